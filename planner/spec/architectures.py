"""The architectures the planner knows, by `model_type`: which keys their configuration has, and the shape they mean.

Key names, defaults and their meaning are those of the configuration classes of transformers 5.24: a key that is
absent means there what it means here. Keys that change neither parameters, saved tensors nor matrix products are
not read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from planner.i18n import Phrase, Said
from planner.spec.model import Attention, LayerGroup, Mlp, Model, Norm

#: a mixture that changes kind more often than this is gathered into one group of each kind
MAX_RUNS = 8

Width = Annotated[int, Field(ge=1, le=1_000_000)]
Ffn = Annotated[int, Field(ge=1, le=10_000_000)]
Layers = Annotated[int, Field(ge=1, le=10_000)]
Heads = Annotated[int, Field(ge=1, le=100_000)]
HeadDim = Annotated[int, Field(ge=1, le=100_000)]
Vocab = Annotated[int, Field(ge=1, le=100_000_000)]
Positions = Annotated[int, Field(ge=1, le=1_000_000_000)]
Experts = Annotated[int, Field(ge=1, le=100_000)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Cap = Annotated[float, Field(gt=0, allow_inf_nan=False)]
LayerList = Annotated[list[int], Field(max_length=10_000)]

ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_composed",
    "gelu_fast": "gelu_fast", "gelu_python": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_python_tanh": "gelu",
    "gelu_accurate": "gelu", "quick_gelu": "gelu",
}  # fmt: skip

RMS = Norm("rms")
RMS_FP32 = Norm("rms", upcast_kept="fp32")


class Published(dict[str, Any]):
    """A configuration as published, to be read and not changed; hashable so that a Model is."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self))


class Stack(BaseModel):
    """The keys that all rotary decoders share. `examples` are what an error proposes where there is no default."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", protected_namespaces=(), defer_build=True)

    hidden_size: Width = Field(examples=[4096])
    intermediate_size: Ffn = Field(examples=[11008])
    num_hidden_layers: Layers = Field(examples=[32])
    num_attention_heads: Heads = Field(examples=[32])
    vocab_size: Vocab = Field(examples=[32000])
    max_position_embeddings: Positions = 2048
    hidden_act: str = "silu"
    attention_bias: bool = False
    attention_dropout: Probability = 0.0
    tie_word_embeddings: bool = False


class Config(Stack):
    """With grouped-query attention."""

    num_key_value_heads: Heads | None = None
    head_dim: HeadDim | None = None


class Llama(Config):
    mlp_bias: bool = False


class Mistral(Config):
    num_key_value_heads: Heads | None = 8
    max_position_embeddings: Positions = 131072
    sliding_window: Positions | None = 4096


class Mixtral(Mistral):
    sliding_window: Positions | None = None
    num_local_experts: Experts = 8
    num_experts_per_tok: Experts = 2


class Qwen2(Config):
    num_key_value_heads: Heads | None = 32
    max_position_embeddings: Positions = 32768
    use_sliding_window: bool = False
    sliding_window: Positions | None = 4096


class Qwen3(Qwen2):
    head_dim: HeadDim | None = 128


class Qwen3Moe(Qwen2):
    num_key_value_heads: Heads | None = 4
    num_experts: Experts = 128
    num_experts_per_tok: Experts = 8
    moe_intermediate_size: Ffn = 768
    decoder_sparse_step: Layers = 1
    mlp_only_layers: LayerList = []


class Gemma(Config):
    num_key_value_heads: Heads | None = 16
    head_dim: HeadDim | None = 256
    max_position_embeddings: Positions = 8192
    hidden_act: str = "gelu_pytorch_tanh"
    tie_word_embeddings: bool = True


class Gemma2(Gemma):
    num_key_value_heads: Heads | None = 4
    hidden_activation: str = "gelu_pytorch_tanh"
    sliding_window: Positions | None = 4096
    attn_logit_softcapping: Cap | None = 50.0
    final_logit_softcapping: Cap | None = 30.0


class Gemma3Text(Gemma2):
    # Published Gemma 3 files leave out every key that equals the class default, heads and vocabulary too.
    num_attention_heads: Heads = 8
    vocab_size: Vocab = 262208
    max_position_embeddings: Positions = 131072
    attn_logit_softcapping: Cap | None = None
    final_logit_softcapping: Cap | None = None


class Phi3(Config):
    max_position_embeddings: Positions = 4096
    resid_pdrop: Probability = 0.0
    sliding_window: Positions | None = None


class GptNeox(Stack):
    hidden_act: str = "gelu"
    attention_bias: bool = True
    hidden_dropout: Probability = 0.0
    use_parallel_residual: bool = True


class Gpt2(BaseModel):
    """GPT-2 has names of its own."""

    model_config = Stack.model_config

    n_embd: Width = Field(examples=[768])
    n_layer: Layers = Field(examples=[12])
    n_head: Heads = Field(examples=[12])
    n_inner: Ffn | None = None
    n_positions: Positions = 1024
    vocab_size: Vocab = Field(examples=[50257])
    activation_function: str = "gelu_new"
    resid_pdrop: Probability = 0.1
    attn_pdrop: Probability = 0.1
    tie_word_embeddings: bool = True


def attention(c: Config, **more: Any) -> Attention:
    """The heads a configuration states: key and value heads default to all of them, their size to an equal share."""
    size = c.head_dim or c.hidden_size // c.num_attention_heads
    return Attention(c.num_attention_heads, c.num_key_value_heads or c.num_attention_heads, size, **more)


def biased(c: Config, **more: Any) -> Attention:
    """Attention whose four projections have a bias when the configuration says so."""
    return attention(c, qkv_bias=c.attention_bias, out_bias=c.attention_bias, **more)


def mlp(c: Stack, act: str | None = None, **more: Any) -> Mlp:
    """A gated feed-forward block."""
    return Mlp(c.intermediate_size, activation=ACTIVATIONS[act or c.hidden_act], **more)  # type: ignore[arg-type]


def stack(c: Stack, *groups: LayerGroup, dropout: float = 0.0, remarks: tuple[Said, ...] = ()) -> Model:
    """A decoder with rotary positions around its layers; name and family are filled in by the reader."""
    return Model(
        name="", family="", hidden=c.hidden_size, groups=groups, vocab=c.vocab_size, tied=c.tie_word_embeddings,
        max_positions=c.max_position_embeddings, dropout=dropout, attention_dropout=c.attention_dropout,
        remarks=remarks,
    )  # fmt: skip


def equal(c: Stack, att: Attention, ffn: Mlp, norm: Norm, **more: Any) -> Model:
    """A decoder whose layers are all alike."""
    return stack(c, LayerGroup(c.num_hidden_layers, att, ffn, norm), **more)


def llama(c: Llama) -> Model:
    return equal(c, biased(c), mlp(c, bias=c.mlp_bias), RMS)


def mistral(c: Mistral) -> Model:
    return equal(c, attention(c, window=c.sliding_window), mlp(c), RMS)


def mixtral(c: Mixtral) -> Model:
    moe = mlp(c, kind="moe", experts=c.num_local_experts, experts_per_token=c.num_experts_per_tok)
    return equal(c, attention(c, window=c.sliding_window), moe, RMS)


def _qwen_window(c: Qwen2) -> int | None:
    return c.sliding_window if c.use_sliding_window else None


def qwen2(c: Qwen2) -> Model:
    return equal(c, attention(c, qkv_bias=True, window=_qwen_window(c)), mlp(c), RMS)


def qwen3(c: Qwen3) -> Model:
    return equal(c, biased(c, qk_norm="head", window=_qwen_window(c)), mlp(c), RMS)


def qwen3_moe(c: Qwen3Moe) -> Model:
    att = biased(c, qk_norm="head", window=_qwen_window(c))
    moe = Mlp(c.moe_intermediate_size, "moe", activation=ACTIVATIONS[c.hidden_act],  # type: ignore[arg-type]
              experts=c.num_experts, experts_per_token=c.num_experts_per_tok)  # fmt: skip
    dense, step, only = mlp(c), c.decoder_sparse_step, set(c.mlp_only_layers)
    kinds = [moe if i not in only and (i + 1) % step == 0 else dense for i in range(c.num_hidden_layers)]
    runs = [(kind, len(list(layers))) for kind, layers in groupby(kinds)]
    if len(runs) <= MAX_RUNS:
        return stack(c, *(LayerGroup(count, att, kind, RMS) for kind, count in runs))
    both = [LayerGroup(kinds.count(kind), att, kind, RMS) for kind in (dense, moe)]
    return stack(c, *both, remarks=(Phrase("model.alternating"),))


def gemma(c: Gemma) -> Model:
    return equal(c, biased(c), mlp(c), RMS_FP32)


def gemma2(c: Gemma2, qk_norm: Any = None) -> Model:
    capped = c.attn_logit_softcapping is not None
    att = biased(c, qk_norm=qk_norm, window=c.sliding_window, softcap=capped)
    made = equal(c, att, mlp(c, c.hidden_activation), Norm("rms", "sandwich", "fp32"))
    return replace(made, logit_softcap=c.final_logit_softcapping is not None)


def gemma3(c: Gemma3Text) -> Model:
    return gemma2(c, qk_norm="head")


def phi3(c: Phi3) -> Model:
    att = attention(c, fused_qkv=True, window=c.sliding_window)
    return equal(c, att, mlp(c, fused_gate_up=True), RMS, dropout=c.resid_pdrop)


def olmo(c: Config) -> Model:
    return equal(c, biased(c), mlp(c), Norm("layer-plain"))


def olmo2(c: Config) -> Model:
    return equal(c, biased(c, qk_norm="full"), mlp(c), Norm("rms", "post", "fp32"))


def gpt_neox(c: GptNeox) -> Model:
    norm = Norm("layer", "parallel" if c.use_parallel_residual else "pre")
    size = c.hidden_size // c.num_attention_heads
    att = Attention(c.num_attention_heads, c.num_attention_heads, size, qkv_bias=c.attention_bias,
                    out_bias=c.attention_bias, fused_qkv=True)  # fmt: skip
    return equal(c, att, mlp(c, gated=False, bias=True), norm, dropout=c.hidden_dropout)


def gpt2(c: Gpt2) -> Model:
    size = c.n_embd // c.n_head
    att = Attention(c.n_head, c.n_head, size, qkv_bias=True, out_bias=True, fused_qkv=True, rope=False,
                    softmax_upcast=False)  # fmt: skip
    act: Any = ACTIVATIONS[c.activation_function]
    ffn = Mlp(c.n_inner or 4 * c.n_embd, gated=False, activation=act, bias=True)
    return Model(
        name="", family="", hidden=c.n_embd, groups=(LayerGroup(c.n_layer, att, ffn, Norm("layer")),),
        vocab=c.vocab_size, tied=c.tie_word_embeddings, max_positions=c.n_positions, position="learned",
        dropout=c.resid_pdrop, attention_dropout=c.attn_pdrop,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Architecture:
    """How one model_type is read: its keys, the shape they mean, and other spellings transformers accepts."""

    config: type[BaseModel]
    build: Callable[[Any], Model]
    spellings: tuple[tuple[str, str], ...] = ()


_GPT2_NAMES = (
    ("hidden_size", "n_embd"), ("num_hidden_layers", "n_layer"), ("num_attention_heads", "n_head"),
    ("max_position_embeddings", "n_positions"),
)  # fmt: skip

ARCHITECTURES: dict[str, Architecture] = {
    "gpt2": Architecture(Gpt2, gpt2, _GPT2_NAMES),
    "gpt_neox": Architecture(GptNeox, gpt_neox),
    "llama": Architecture(Llama, llama),
    "mistral": Architecture(Mistral, mistral),
    "mixtral": Architecture(Mixtral, mixtral, (("num_experts", "num_local_experts"),)),
    "qwen2": Architecture(Qwen2, qwen2),
    "qwen3": Architecture(Qwen3, qwen3),
    "qwen3_moe": Architecture(Qwen3Moe, qwen3_moe, (("num_local_experts", "num_experts"),)),
    "gemma": Architecture(Gemma, gemma),
    "gemma2": Architecture(Gemma2, gemma2),
    "gemma3_text": Architecture(Gemma3Text, gemma3),
    "phi3": Architecture(Phi3, phi3),
    "olmo": Architecture(Config, olmo),
    "olmo2": Architecture(Config, olmo2),
}
