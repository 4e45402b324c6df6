"""Models with layers that the planner does not know (state-space, linear attention, RWKV, short convolutions): read for
the parts that it knows. What a layer mixes its tokens with stays open and is named, so that an answer is a lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Annotated, Any

from pydantic import BaseModel, Field

from planner.i18n import Phrase, Said, phrase
from planner.spec.architectures import (
    RMS,
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
from planner.spec.model import Attention, LayerGroup, Mlp, Model

#: the name under which such a model is read
KIND = "outside"
#: model_type -> what its layers mix tokens with; the word is a phrase `model.mixer.<word>`
KINDS = {
    "mamba": "state-space", "mamba2": "state-space", "falcon_mamba": "state-space", "falcon_h1": "state-space",
    "jamba": "state-space", "bamba": "state-space", "zamba": "state-space", "zamba2": "state-space",
    "nemotron_h": "state-space", "granitemoehybrid": "state-space", "plamo2": "state-space", "hymba": "state-space",
    "samba": "state-space", "rwkv": "rwkv", "rwkv5": "rwkv", "rwkv6": "rwkv", "rwkv6qwen2": "rwkv", "rwkv7": "rwkv",
    "retnet": "linear-attention", "gla": "linear-attention", "delta_net": "linear-attention",
    "gated_deltanet": "linear-attention", "hgrn2": "linear-attention", "kimi_linear": "linear-attention",
    "qwen3_next": "linear-attention", "qwen3_5_text": "linear-attention", "qwen3_5_moe_text": "linear-attention",
    "minimax": "linear-attention", "minimax_m1": "linear-attention", "minimax_text_01": "linear-attention",
    "recurrent_gemma": "recurrent", "xlstm": "recurrent", "lfm2": "convolution", "lfm2_moe": "convolution",
    "hyena": "convolution", "stripedhyena": "convolution",
}  # fmt: skip
#: keys that only such models have, by the word of what they stand for
KEYS = {
    "ssm_cfg": "state-space", "ssm_state_size": "state-space", "mamba_d_state": "state-space",
    "hybrid_override_pattern": "state-space", "linear_num_value_heads": "linear-attention",
    "linear_attn_config": "linear-attention", "rwkv_hidden_size": "rwkv", "conv_L_cache": "convolution",
}  # fmt: skip
#: names of layers with plain attention, in lists of layer kinds and in patterns of letters
PLAIN = ("attention", "full_attention", "sliding_attention", "*", "1")
FEED_ONLY = ("-", "e")
#: mark of a layer of a mixture whose feed-forward block is dense
DENSE = "|dense"
#: models whose layers are a mixer alone, without a feed-forward block; and those whose blocks layers share (Zamba) or
#: that are narrower than the configuration says (RecurrentGemma, LFM2): left out, so that the bound stays a lower one
BARE = ("mamba", "mamba2", "falcon_mamba", "nemotron_h", "zamba", "zamba2", "recurrent_gemma", "lfm2")

Kinds = Annotated[list[str | int], Field(max_length=10_000)]


class Outside(BaseModel):
    """The keys that most such configurations share, under their usual name."""

    model_config = Stack.model_config

    hidden_size: Width = Field(examples=[4096])
    num_hidden_layers: Layers = Field(examples=[32])
    vocab_size: Vocab = Field(examples=[32000])
    num_attention_heads: Heads | None = None
    num_key_value_heads: Heads | None = None
    head_dim: HeadDim | None = None
    intermediate_size: Ffn | None = None
    num_experts: Experts | None = None
    num_experts_per_tok: Experts | None = None
    moe_intermediate_size: Ffn | None = None
    shared_expert_intermediate_size: int = Field(default=0, ge=0, le=10_000_000)
    max_position_embeddings: Positions = 1_000_000_000
    tie_word_embeddings: bool = False
    layer_kinds: Kinds = []
    word: str = "unknown"
    bare: bool = False
    by_size: bool = False


SPELLINGS = (
    ("d_model", "hidden_size"), ("n_embd", "hidden_size"), ("n_layer", "num_hidden_layers"),
    ("num_layers", "num_hidden_layers"), ("num_local_experts", "num_experts"), ("n_routed_experts", "num_experts"),
    ("attention_hidden_size", "head_width"),
)  # fmt: skip


def word_of(kind: str | None, published: Mapping[str, Any]) -> str | None:
    """What the layers of a configuration mix tokens with that the planner does not know; None where nothing tells."""
    if kind in KINDS:
        return KINDS[kind]
    return next((word for key, word in KEYS.items() if published.get(key)), None)


def keys_of(kind: str | None, published: Mapping[str, Any], word: str) -> dict[str, Any]:
    """The configuration with the kind of each layer as one list, whichever way it is published."""
    layers = next((published[k] for k in ("num_hidden_layers", "n_layer", "num_layers") if k in published), 0)
    count = layers if isinstance(layers, int) and 0 < layers <= 10_000 else 0
    kinds = _kinds(published, count, word) or [word] * count
    named = [f"{one}{DENSE}" if _dense(published, i) else one for i, one in enumerate(kinds)]
    return {**published, "layer_kinds": named, "word": word, "bare": kind in BARE}


def _dense(published: Mapping[str, Any], layer: int) -> bool:
    """Whether a layer of a mixture has a dense feed-forward block instead, by the ways that configurations say it."""
    names = ("expert_layer_period", "expert_layer_offset", "decoder_sparse_step", "first_k_dense_replace")
    sparse = {name: published.get(name) for name in names}
    whole = {name: value for name, value in sparse.items() if isinstance(value, int) and value > 0}
    if "expert_layer_period" in whole:
        return (layer - whole.get("expert_layer_offset", 0)) % whole["expert_layer_period"] != 0
    step = whole.get("decoder_sparse_step", 1)
    return layer < whole.get("first_k_dense_replace", 0) or (layer + 1) % step != 0


def _kinds(published: Mapping[str, Any], count: int, word: str) -> list[str | int]:
    """One name a layer; empty where none of the usual ways says it: then all are unknown."""
    for key in ("layer_types", "layers_block_type", "attn_type_list", "block_types", "_block_types"):
        if isinstance(found := published.get(key), list) and found:
            return [found[i % len(found)] for i in range(count)]
    pattern = published.get("hybrid_override_pattern")
    if isinstance(pattern, str) and pattern:
        return [*pattern.lower()]
    for key in ("attn_layer_indices", "full_attn_idxs"):
        if isinstance(found := published.get(key), list):
            return ["attention" if i in found else word for i in range(count)]
    every = published.get("full_attention_interval") or published.get("attn_layer_period")
    first = published.get("attn_layer_offset", -1)
    if isinstance(every, int) and isinstance(first, int) and every > 0:
        return ["attention" if (i - first) % every == 0 else word for i in range(count)]
    return []


def outside(c: Outside) -> Model:
    """Layers of plain attention as such, the others without what mixes their tokens."""
    kinds = [str(kind).lower() for kind in c.layer_kinds] or [c.word] * c.num_hidden_layers
    runs = [(kind, sum(1 for _ in same)) for kind, same in groupby(sorted(kinds, key=_order))]
    groups = tuple(LayerGroup(count, _attention(c, kind), _feed(c, kind), RMS) for kind, count in runs)
    strange = sum(group.count for group in groups if group.attention.kind == "unknown")
    return Model(
        name="", family="", hidden=c.hidden_size, groups=groups, vocab=c.vocab_size, tied=c.tie_word_embeddings,
        max_positions=c.max_position_embeddings, unknown=named(c, strange),
    )  # fmt: skip


def named(c: Outside, layers: Any) -> tuple[Said, ...]:
    """The part that is not known, in words."""
    word = c.word
    if c.by_size:
        return (phrase("model.outside-size", mixer=Phrase(f"model.mixer.{word}")),)
    return (phrase("model.outside", layers=layers, mixer=Phrase(f"model.mixer.{word}")),)


def _order(kind: str) -> tuple[int, str]:
    """Plain attention first, then what is only a feed-forward block."""
    plain = kind.removesuffix(DENSE)
    return (0 if plain in PLAIN else 1 if plain in FEED_ONLY else 2), kind


def _attention(c: Outside, kind: str) -> Attention:
    heads, kind = c.num_attention_heads or 0, kind.removesuffix(DENSE)
    size = c.head_dim or max(1, c.hidden_size // max(heads, 1))
    plain = kind in PLAIN and c.num_attention_heads is not None
    if kind in FEED_ONLY:
        return Attention(heads, c.num_key_value_heads or heads, size, "none")
    return Attention(heads, c.num_key_value_heads or heads, size, "gqa" if plain else "unknown")


def _feed(c: Outside, kind: str) -> Mlp:
    ffn = c.intermediate_size or c.moe_intermediate_size
    sparse, kind = not kind.endswith(DENSE), kind.removesuffix(DENSE)
    if ffn is None or (c.bare and kind not in FEED_ONLY) or c.word == "rwkv":
        return Mlp(0, "none", experts=c.num_experts or 1)  # where the experts are is not known, only how many
    gated = not c.bare
    if sparse and c.num_experts and c.num_experts > 1 and (kind == "e" or not c.bare):
        per = min(c.num_experts_per_tok or 1, c.num_experts)
        return Mlp(c.moe_intermediate_size or ffn, "moe", gated=gated, experts=c.num_experts, experts_per_token=per,
                   shared_ffn=c.shared_expert_intermediate_size)  # fmt: skip
    return Mlp(ffn, gated=gated)


OUTSIDE = Architecture(Outside, outside, SPELLINGS)
