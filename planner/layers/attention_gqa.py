"""Grouped-query attention: projections, rotary positions, the attention core, the output projection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from planner.formulas import activations as A
from planner.formulas import parameters as P
from planner.layers import norm as N
from planner.layers.ops import (
    FP32,
    Op,
    Storage,
    Weight,
    adapter_inputs,
    adapter_results,
    dropout_mask,
    rank_channels,
    unscaled,
)
from planner.quantity import Like, Quantity
from planner.spec.model import Attention, Norm

#: tensors of a neighbour's keys and values in a ring: two of each, one in use and one on its way
RING_BUFFERS = 4


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
    q, k = (P.local_channels(called=c.name, channels=c, tp=store.tp) for c in widths(attention))
    whole = unscaled("qkv", P.fused_width(called="whole_projection", query_width=q, kv_width=k), store)
    results = (*adapter_results(into, store), *_padded(attention, store), *whole)
    made = [Op("qkv", into, (*rank_channels(readers(attention), store), *results))]
    if attention.qk_norm:
        made.append(
            N.qk_op(norm, attention.qk_norm, attention.heads, attention.kv_heads, attention.head_dim, store)
        )
    made.append(_core(attention, seq_len, store))
    copy = _token_major_copy(attention, q, seq_len, store)
    adapter = (*adapter_inputs(("o",), q, store), *rank_channels(("o",), store), *adapter_results(out, store))
    adapter = (*adapter, *unscaled("o", hidden, store))
    made.append(Op("o", out, (*copy, *adapter, *dropout_mask("attention", hidden, store))))
    return made


def _padded(attention: Attention, store: Storage) -> tuple[Quantity, ...]:
    """What adapters on a part of a fused projection give, kept where it is padded with zeros to the whole of it."""
    if len(store.adapted_parts) in (0, 3):
        return ()
    q, k = (P.local_channels(called=c.name, channels=c, tp=store.tp) for c in widths(attention))
    sizes = {"q": q, "k": k, "v": k}
    return tuple(
        A.kept(called=f"{part}.adapter_output", channels=sizes[part], width=store.adapter_act)
        for part in sorted(store.adapted_parts)
    )


def _token_major_copy(attention: Attention, q: Quantity, seq_len: Like, store: Storage) -> tuple[Quantity, ...]:
    """The copy of flash attention's output that the output projection reads where query and key were put together
    anew by the rotation of a fused projection: the output then has their order, heads before tokens."""
    if not (attention.fused_qkv and attention.rope and store.inputs_kept) or store.attention not in ("flash", "sdpa"):
        return ()
    copy = A.kept(called="attention.output_copy", channels=q, width=store.act)
    if not _masks(attention, store):
        return (copy,)
    return (A.within_window(called="attention.output_copy", size=copy, seq_len=seq_len, window=attention.window or 0),)


def _masks(attention: Attention, store: Storage) -> bool:
    """Whether a sliding window turns into a mask: torch's own kernels know no window."""
    return attention.window is not None and store.attention in ("sdpa", "mem-efficient", "math")


def _core(attention: Attention, seq_len: Like, store: Storage) -> Op:
    """What the attention itself keeps: rotated query and key, value, output, and its statistics or scores."""
    if attention.expanded and np.any(attention.heads != attention.kv_heads):
        attention = replace(attention, kv_heads=attention.heads, fused_qkv=False)
    q, k = widths(attention)
    q = P.local_channels(called="query_channels", channels=q, tp=store.tp)
    k = P.local_channels(called="kv_channels", channels=k, tp=store.tp)
    heads = P.local_channels(called="local_heads", channels=attention.heads, tp=store.tp)
    match store.attention:
        case "flash" | "sdpa" | "mem-efficient":
            return _fused_core(attention, q, k, heads, seq_len, store)
        case "math":
            return _math_core(attention, q, heads, seq_len, store)
        case _:
            return _eager_core(attention, q, heads, seq_len, store)


def _fused_core(
    attention: Attention, q: Quantity, k: Quantity, heads: Like, seq_len: Like, store: Storage
) -> Op:
    """Flash or memory-efficient attention: no scores, only their log-sum-exp; beyond a sliding window also a mask."""
    pinned = attention.fused_qkv and attention.rope
    value = P.fused_width(called="whole_projection", query_width=q, kv_width=k) if pinned else k
    masks, key = _masks(attention, store), k
    if masks:
        key, value = (_expanded(attention, c, q, seq_len) for c in (key, value))
    block = 32 if masks or store.attention == "mem-efficient" else 1
    kept = [
        A.kept(called="attention.query", channels=q, width=store.act),
        A.kept(called="attention.key", channels=key, width=store.act),
        A.kept(called="attention.value", channels=value, width=store.act),
        *_mask(attention, seq_len, store),
        A.kept(called="attention.output", channels=q, width=store.act),
        A.logsumexp_kept(called="attention.logsumexp", heads=heads, width=FP32, seq_len=seq_len, block=block),
    ]
    into = P.fused_width(called="gradient_channels", query_width=q, kv_width=key)
    gradients = [
        A.kept(called="attention.gradients", channels=into, width=store.act),
        A.kept(called="attention.output_gradient", channels=q, width=store.act),
    ]
    ring = A.ring_buffers(
        called="attention.ring_buffers", kv_channels=k, width=store.act, tensors=RING_BUFFERS, cp=store.ring
    )
    if store.prompted:
        kept.append(A.kept(called="attention.adapter_output", channels=q, width=store.act))
    inside = (*_inside_backward(attention, q, heads, store), ring)
    return Op("attention", (), (*kept, *cast_output(q, store)), (*kept, *gradients, *inside))


def cast_output(channels: Quantity, store: Storage) -> tuple[Quantity, ...]:
    """The cast of a fused attention's output that the output projection keeps beside the one that attention keeps."""
    if store.cast is None:
        return ()
    return (A.kept(called="attention.output_cast", channels=channels, width=store.cast),)


def _expanded(attention: Attention, channels: Quantity, q: Quantity, seq_len: Like) -> Quantity:
    """Key or value as a mask's kernel takes it."""
    return A.expanded_channels(
        called="expanded_channels", kv_channels=channels, query_channels=q, heads=attention.heads,
        kv_heads=attention.kv_heads, seq_len=seq_len, window=attention.window or 0,
    )  # fmt: skip


def _mask(attention: Attention, seq_len: Like, store: Storage) -> tuple[Quantity, ...]:
    """The mask of a sliding window that the sequence is longer than; every layer keeps its own."""
    if not _masks(attention, store):
        return ()
    return (A.mask_kept(called="attention.mask", seq_len=seq_len, window=attention.window or 0, width=store.act),)


def _inside_backward(attention: Attention, q: Quantity, heads: Like, store: Storage) -> list[Quantity]:
    """What flash attention's backward allocates inside: the query's gradient in fp32, a row sum, and for grouped heads
    gradients of key and value for every query head."""
    sums = A.kept(called="attention.row_sum", channels=heads, width=FP32)
    if store.attention == "mem-efficient":
        return [sums]
    each = A.expanded_gradients(
        called="expanded_channels", query_channels=q, heads=attention.heads, kv_heads=attention.kv_heads
    )
    return [
        A.kept(called="attention.query_gradient", channels=q, width=FP32),
        sums,
        A.kept(called="attention.expanded_gradients", channels=each, width=store.act),
    ]


def _math_core(attention: Attention, q: Quantity, heads: Like, seq_len: Like, store: Storage) -> Op:
    """The backend that SDPA falls back to for grouped heads: it computes in fp32 with scaled and expanded copies.

    Beyond a sliding window there is a mask, with it the heads are expanded first, and a fused kernel takes them.
    """
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
    if not _masks(attention, store):
        return Op("attention", (), (*kept, output, softmax), (*kept, softmax, *grads))
    place: dict[str, Any] = {"seq_len": seq_len, "window": attention.window}
    softmax, *grads = (A.within_window(called=s.name, size=s, **place) for s in (softmax, *grads))
    mask = _mask(attention, seq_len, store)
    four = P.head_width(called="gradient_channels", heads=4, head_dim=q)
    fused = A.kept(called="attention.gradients", channels=four, width=store.act)
    passing = [A.beyond_window(called=s.name, size=s, **place) for s in (output, fused)]
    return Op("attention", (), (*kept, output, softmax, *mask), (*kept, softmax, *mask, *grads, *passing))


def _eager_core(attention: Attention, q: Quantity, heads: Like, seq_len: Like, store: Storage) -> Op:
    """Scores materialised by the model's own code: a soft cap, the softmax, its low-precision copy after an fp32
    softmax, and dropout. The heaviest instant is the softmax's backward, when value and output are done with."""
    kept = [
        A.kept(called=f"attention.{part}", channels=q, width=store.act)
        for part in ("query", "expanded_key", "expanded_value")
    ]
    kept.append(A.kept(called="attention.output", channels=q, width=store.linear))
    mixed = A.upcast_width(width=store.act, autocast=store.autocast, upcast=FP32)
    upcast = attention.softmax_upcast and not store.fused_softmax
    wide: Like = FP32 if upcast else mixed
    early: list[tuple[str, Like]] = [("capped_scores", store.act)] if attention.softcap else []
    late: list[tuple[str, Like]] = []
    early.append(("softmax", wide))
    if upcast:
        late.append(("probabilities", A.copy_width(width=store.act, upcast=FP32)))
    if store.attention_dropout:
        (late if upcast else early).append(("dropout_mask", 1))
        late.append(("dropped_probabilities", store.act))
    gradients = [("softmax_gradient", wide), ("score_gradient", wide)]

    def scores(parts: list[tuple[str, Like]]) -> list[Quantity]:
        return [A.scores_kept(called=f"attention.{n}", heads=heads, seq_len=seq_len, width=w) for n, w in parts]

    alive = scores(early)
    value = A.kept(called="attention.value_gradient", channels=q, width=store.act)
    return Op("attention", (), (*kept, *alive, *scores(late)), (*kept[:2], *alive, value, *scores(gradients)))
