"""A transformer as its shape: what decides parameters, saved tensors and matrix products, and nothing else.

Shapes are whole numbers or arrays of them, so that a search over depth or width uses the same description.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from planner.i18n import Said

Count = int | np.ndarray

NormKind = Literal["rms", "layer", "layer-plain"]
Placement = Literal["pre", "post", "sandwich", "parallel"]


@dataclass(frozen=True, slots=True)
class Norm:
    """How a block normalises.

    kind        rms, layer (mean and variance, weight and bias), layer-plain (no parameters, OLMo 1)
    placement   pre (Llama, GPT-2), post (after the block, OLMo 2), sandwich (both, Gemma 2 and 3),
                parallel (attention and MLP read norms of the same input, NeoX)
    upcast_kept width in which composed code keeps the normalised tensor for the weight's gradient:
                "input" (Llama: back in the input's dtype) or "fp32" (Gemma, OLMo 2)
    """

    kind: NormKind = "rms"
    placement: Placement = "pre"
    upcast_kept: Literal["input", "fp32"] = "input"


@dataclass(frozen=True, slots=True)
class Attention:
    """Grouped-query attention, or multi-head latent attention. Head counts in heads, `head_dim` in channels.

    kind        "unknown" is another way to mix tokens that the planner has no formulas for, "none" a layer without one

    qk_norm     None, "head" (a norm over each head's channels) or "full" (over the whole width, OLMo 2)
    fused_qkv   one projection; the value is then a view that keeps the whole projection alive
    expanded    keys and values of grouped heads are copied for every query head before the attention
    rope        rotary positions are applied to query and key (new tensors)
    window      sliding window in tokens on some layers, or None
    softcap     the scores pass through a soft cap (Gemma 2)
    softmax_upcast  the model's own (eager) code runs the softmax in fp32; GPT-2 does not
    params          parameters of a mixer of unknown kind, where the model's total tells them
    q_rank, kv_rank latent attention: channels of the latents (0: queries have none)
    rope_dim, value_dim  channels of a head that carry the position, and of its value; `head_dim` is the whole query's
    """

    heads: Count
    kv_heads: Count
    head_dim: Count
    kind: Literal["gqa", "mla", "unknown", "none"] = "gqa"
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["head", "full"] | None = None
    fused_qkv: bool = False
    expanded: bool = False
    rope: bool = True
    window: int | None = None
    softcap: bool = False
    softmax_upcast: bool = True
    q_rank: Count = 0
    kv_rank: Count = 0
    rope_dim: Count = 0
    value_dim: Count = 0
    params: Count = 0


@dataclass(frozen=True, slots=True)
class Mlp:
    """The feed-forward half of a block; for a mixture of experts `ffn` is the width of one expert.

    activation  silu, relu, gelu (one fused op, exact or tanh), and code of several operations: gelu_composed (GPT-2's
                gelu_new, five tensors), gelu_fast (GPT-NeoX-20B, eight)
    fused_gate_up  gate and up are one projection
    shared_ffn     width of the experts that every token passes, all together (mixtures only)
    """

    ffn: Count
    kind: Literal["dense", "moe", "none"] = "dense"
    gated: bool = True
    activation: Literal["silu", "gelu", "gelu_composed", "gelu_fast", "relu"] = "silu"
    bias: bool = False
    fused_gate_up: bool = False
    experts: Count = 1
    experts_per_token: Count = 1
    shared_ffn: Count = 0


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """`count` equal layers in a row."""

    count: Count
    attention: Attention
    mlp: Mlp
    norm: Norm


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder: embedding, groups of layers, final norm, head.

    vocab           rows of the embedding as stored (padded where the publisher padded it)
    max_positions   tokens the model is declared for; learned positions are a table of that length
    dropout         residual and embedding dropout probability the configuration states (0 switches masks off)
    attention_dropout  the same for attention probabilities
    logit_softcap   the logits pass through a soft cap (Gemma 2)
    further         layers after the last one that predict further tokens (multi-token prediction); not among `layers`
    unknown         parts that the planner has no formulas for, in words: an answer is then a lower bound
    remarks         what a reader should know of how it was read
    config          the configuration it was read from, as published; empty for a model made from a size
    """

    name: str
    family: str
    hidden: Count
    groups: tuple[LayerGroup, ...]
    vocab: Count
    tied: bool
    max_positions: int
    position: Literal["rope", "learned", "none"] = "rope"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    head_bias: bool = False
    logit_softcap: bool = False
    further: int = 0
    source: str = ""
    unknown: tuple[Said, ...] = ()
    remarks: tuple[Said, ...] = ()
    config: Any = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader of this model should know, in the language in use."""
        return tuple(str(one) for one in self.remarks)

    @property
    def layers(self) -> Count:
        """How many layers, all groups together."""
        return sum(group.count for group in self.groups)
