"""Grouped-query attention: projections, rotary positions, the attention core, the output projection."""

from __future__ import annotations

from planner.formulas import activations as A
from planner.formulas import parameters as P
from planner.layers import norm as N
from planner.layers.ops import FP32, Op, Storage, Weight, adapter_input, dropout_mask, rank_channels
from planner.quantity import Like, Quantity
from planner.spec.model import Attention, Norm


def widths(attention: Attention) -> tuple[Quantity, Quantity]:
    """Channels of all query heads and of all key (or value) heads."""
    q = P.head_width(called="query_width", heads=attention.heads, head_dim=attention.head_dim)
    k = P.head_width(called="kv_width", heads=attention.kv_heads, head_dim=attention.head_dim)
    return q, k


def weights(attention: Attention, hidden: Like) -> tuple[Weight, ...]:
    """Query, key, value and output projections with their biases."""
    q, k = widths(attention)
    if attention.fused_qkv:
        wide = P.fused_width(called="qkv_width", query_width=q, kv_width=k)
        into = [Weight("qkv", hidden, wide)]
    else:
        into = [Weight("q", hidden, q), Weight("k", hidden, k), Weight("v", hidden, k)]
    out = [Weight("o", q, hidden)]
    biases = [Weight(f"{w.name}.bias", 1, w.cols) for w in into] if attention.qkv_bias else []
    last = [Weight("o.bias", 1, hidden, split=False)] if attention.out_bias else []
    return (*into, *biases, *out, *last)


def readers(attention: Attention) -> tuple[str, ...]:
    """The linears that read the norm's output."""
    return ("qkv",) if attention.fused_qkv else ("q", "k", "v")


def ops(attention: Attention, norm: Norm, hidden: Like, seq_len: Like, store: Storage) -> list[Op]:
    """From the projections to the output projection, in forward order."""
    named = {w.name: w for w in weights(attention, hidden)}
    into = tuple(w for n, w in named.items() if not n.startswith("o"))
    out = tuple(w for n, w in named.items() if n.startswith("o"))
    made = [Op("qkv", into, rank_channels(readers(attention), store))]
    if attention.qk_norm:
        made.append(
            N.qk_op(norm, attention.qk_norm, attention.heads, attention.kv_heads, attention.head_dim, store)
        )
    made.append(_core(attention, seq_len, store))
    q = P.local_channels(called="query_channels", channels=widths(attention)[0], tp=store.tp)
    adapter = (*adapter_input("o", q, store), *rank_channels(("o",), store))
    made.append(Op("o", out, (*adapter, *dropout_mask("attention", hidden, store))))
    return made


def _core(attention: Attention, seq_len: Like, store: Storage) -> Op:
    """What the attention itself keeps: rotated query and key, value, output, and its statistics or scores."""
    q, k = widths(attention)
    q = P.local_channels(called="query_channels", channels=q, tp=store.tp)
    k = P.local_channels(called="kv_channels", channels=k, tp=store.tp)
    heads = P.local_channels(called="local_heads", channels=attention.heads, tp=store.tp)
    match store.attention:
        case "flash" | "mem-efficient":
            kept = _fused_core(attention, q, k, heads, seq_len, store)
            gradients = [
                A.kept(called="attention.gradients", channels=P.fused_width(query_width=q, kv_width=k), width=store.act),
                A.kept(called="attention.output_gradient", channels=q, width=store.act),
            ]
            return Op("attention", (), tuple(kept), (*kept, *gradients))
        case "math":
            return _math_core(q, heads, seq_len, store)
        case _:
            return _eager_core(attention, q, heads, seq_len, store)


def _fused_core(
    attention: Attention, q: Quantity, k: Quantity, heads: Like, seq_len: Like, store: Storage
) -> list[Quantity]:
    """Flash or memory-efficient attention: no scores, only their log-sum-exp."""
    pinned = attention.fused_qkv and attention.rope
    value = P.fused_width(called="whole_projection", query_width=q, kv_width=k) if pinned else k
    block = 32 if store.attention == "mem-efficient" else 1
    return [
        A.kept(called="attention.query", channels=q, width=store.act),
        A.kept(called="attention.key", channels=k, width=store.act),
        A.kept(called="attention.value", channels=value, width=store.act),
        A.kept(called="attention.output", channels=q, width=store.act),
        A.logsumexp_kept(called="attention.logsumexp", heads=heads, width=FP32, seq_len=seq_len, block=block),
    ]


def _math_core(q: Quantity, heads: Like, seq_len: Like, store: Storage) -> Op:
    """The backend that SDPA falls back to for grouped heads: it computes in fp32 with scaled and expanded copies."""
    kept = [
        A.kept(called=f"attention.{part}", channels=q, width=FP32)
        for part in ("scaled_query", "expanded_key", "expanded_value")
    ]
    output = A.kept(called="attention.output", channels=q, width=store.act)
    softmax = A.scores_kept(called="attention.softmax", heads=heads, seq_len=seq_len, width=FP32)
    grads = [
        A.scores_kept(called=f"attention.{n}_gradient", heads=heads, seq_len=seq_len, width=FP32)
        for n in ("softmax", "score")
    ]
    return Op("attention", (), (*kept, output, softmax), (*kept, softmax, *grads))


def _eager_core(attention: Attention, q: Quantity, heads: Like, seq_len: Like, store: Storage) -> Op:
    """Scores materialised by the model's own code: the softmax, its low-precision copy after an fp32 softmax, and dropout."""
    kept = [
        A.kept(called=f"attention.{part}", channels=q, width=store.act)
        for part in ("query", "expanded_key", "expanded_value", "output")
    ]
    copies = [("softmax", FP32), ("probabilities", A.copy_width(width=store.act, upcast=FP32))]
    if not attention.softmax_upcast:
        copies = [("softmax", store.act)]
    if store.attention_dropout:
        copies += [("dropout_mask", 1), ("dropped_probabilities", store.act)]
    scores = [A.scores_kept(called=f"attention.{n}", heads=heads, seq_len=seq_len, width=w) for n, w in copies]
    gradient = FP32 if attention.softmax_upcast else store.act
    grads = [
        A.scores_kept(called=f"attention.{n}_gradient", heads=heads, seq_len=seq_len, width=gradient)
        for n in ("softmax", "score")
    ]
    return Op("attention", (), (*kept, *scores), (*kept, *scores, *grads))
