"""A decoder by its parts, for shapes that no published configuration names: the architecture fields of a run record.

The form is `{"model_type": "decoder", "hidden_size": ..., "norm": "rmsnorm", "position": "rope", ...}`, in the words of
Hugging Face configurations where they have one.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from planner.spec.architectures import (
    Architecture,
    Experts,
    Ffn,
    HeadDim,
    Heads,
    Layers,
    Positions,
    Stack,
    Vocab,
    Width,
)
from planner.spec.model import Attention, LayerGroup, Mlp, Model, Norm

#: activation by the word of a record; a squared ReLU keeps what a ReLU does
ACTIVATION = {"swiglu": "silu", "silu": "silu", "gelu": "gelu", "geglu": "gelu", "relu": "relu", "squared-relu": "relu"}


class Decoder(BaseModel):
    """The keys of a decoder by its parts."""

    model_config = Stack.model_config

    hidden_size: Width = Field(examples=[4096])
    intermediate_size: Ffn = Field(examples=[11008])
    num_hidden_layers: Layers = Field(examples=[32])
    num_attention_heads: Heads = Field(examples=[32])
    vocab_size: Vocab = Field(examples=[32000])
    num_key_value_heads: Heads | None = None
    head_dim: HeadDim | None = None
    max_position_embeddings: Positions = 1_000_000_000
    gated_mlp: bool = True
    activation: Literal["swiglu", "silu", "gelu", "geglu", "relu", "squared-relu"] | None = None
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    position: Literal["rope", "learned", "alibi", "none"] = "rope"
    bias: Literal["none", "qkv", "all"] = "none"
    qk_norm: bool = False
    tie_word_embeddings: bool = False
    q_lora_rank: Ffn | None = None
    kv_lora_rank: Ffn | None = None
    qk_nope_head_dim: HeadDim = 128
    qk_rope_head_dim: HeadDim = 64
    v_head_dim: HeadDim = 128
    num_experts: Experts | None = None
    experts_per_token: Experts = 1
    moe_intermediate_size: Ffn | None = None
    shared_intermediate_size: int = Field(default=0, ge=0, le=10_000_000)
    first_k_dense: int = Field(default=0, ge=0, le=10_000)
    mtp_num_layers: int = Field(default=0, ge=0, le=1000)


def decoder(c: Decoder) -> Model:
    """The model that the parts make."""
    att = _latent(c) if c.kv_lora_rank else _grouped(c)
    norm = Norm("rms" if c.norm == "rmsnorm" else "layer")
    act: Any = ACTIVATION[c.activation or ("silu" if c.gated_mlp else "gelu")]
    dense = Mlp(c.intermediate_size, gated=c.gated_mlp, activation=act, bias=c.bias == "all")
    groups = tuple(LayerGroup(n, att, mlp, norm) for n, mlp in _layers(c, dense, act) if n)
    return Model(
        name="", family="", hidden=c.hidden_size, groups=groups, vocab=c.vocab_size, tied=c.tie_word_embeddings,
        max_positions=c.max_position_embeddings, further=c.mtp_num_layers,
        position="none" if c.position == "alibi" else c.position,
    )  # fmt: skip


def _grouped(c: Decoder) -> Attention:
    size = c.head_dim or max(1, c.hidden_size // c.num_attention_heads)
    return Attention(
        c.num_attention_heads, c.num_key_value_heads or c.num_attention_heads, size, qkv_bias=c.bias != "none",
        out_bias=c.bias == "all", qk_norm="head" if c.qk_norm else None, rope=c.position == "rope",
    )  # fmt: skip


def _latent(c: Decoder) -> Attention:
    """Multi-head latent attention, which has no biases and as many keys as queries."""
    return Attention(
        c.num_attention_heads, c.num_attention_heads, c.qk_nope_head_dim + c.qk_rope_head_dim, "mla",
        q_rank=c.q_lora_rank or 0, kv_rank=c.kv_lora_rank or 0, rope_dim=c.qk_rope_head_dim, value_dim=c.v_head_dim,
    )  # fmt: skip


def _layers(c: Decoder, dense: Mlp, act: Any) -> list[tuple[int, Mlp]]:
    """How many layers of each kind, in order: dense ones first where there are experts."""
    if c.num_experts is None or c.num_experts < 2:
        return [(c.num_hidden_layers, dense)]
    first = min(c.first_k_dense, c.num_hidden_layers)
    moe = Mlp(
        c.moe_intermediate_size or c.intermediate_size, "moe", gated=c.gated_mlp, activation=act, bias=c.bias == "all",
        experts=c.num_experts, experts_per_token=min(c.experts_per_token, c.num_experts),
        shared_ffn=c.shared_intermediate_size,
    )  # fmt: skip
    return [(first, dense), (c.num_hidden_layers - first, moe)]


DECODER = Architecture(Decoder, decoder)
