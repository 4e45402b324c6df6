"""One layer, put together: its weights, and its operations in forward order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.formulas import activations as A
from planner.layers import attention_gqa, attention_mla, mlp
from planner.layers import norm as N
from planner.layers.ops import FP32, Op, Storage, Weight
from planner.quantity import Like, Quantity, value_of
from planner.spec.model import LayerGroup


def weights(group: LayerGroup, hidden: Like) -> tuple[Weight, ...]:
    """Every parameter tensor of one layer."""
    halves = 1 if "none" in (group.attention.kind, group.mlp.kind) else 2
    names = {"sandwich": 4}.get(group.norm.placement, halves)
    norms = [w for i in range(names) for w in N.weights(group.norm, f"norm{i}", hidden)]
    qk: tuple[Weight, ...] = ()
    a = group.attention
    if a.kind in ("unknown", "none"):
        mixer = (Weight("mixer", 1, a.params, expert=_holds_experts(group)),) if a.params else ()
        return (*norms, *mixer, *mlp.weights(group.mlp, hidden))
    if a.kind == "mla":
        return (*norms, *attention_mla.weights(a, hidden), *attention_mla.norms(a, group.norm),
                *mlp.weights(group.mlp, hidden))  # fmt: skip
    if a.qk_norm:
        qk = N.qk_op(group.norm, a.qk_norm, a.heads, a.kv_heads, a.head_dim, Storage(2, 2, 0)).weights
    return (*norms, *attention_gqa.weights(a, hidden), *qk, *mlp.weights(group.mlp, hidden))


def ops(group: LayerGroup, hidden: Like, seq_len: Like, store: Storage) -> list[Op]:
    """The layer's operations in forward order."""
    norm, attn, ff = group.norm, group.attention, group.mlp
    if attn.kind in ("unknown", "none"):
        return _known_half(group, hidden, store)
    kind = attention_mla if attn.kind == "mla" else attention_gqa
    core = kind.ops(attn, norm, hidden, seq_len, store)
    feed = mlp.ops(ff, hidden, store)
    before, after = kind.readers(attn), mlp.readers(ff)
    inner = replace(store, cast=None) if ff.kind == "moe" else store  # the router reads the norm's output as it is
    match norm.placement:
        case "pre":
            first = N.op(norm, "norm1", hidden, store, before, FP32)
            second = N.op(norm, "norm2", hidden, inner, after, store.stream)
            return [first, *core, second, *feed]
        case "parallel":
            first = N.op(norm, "norm1", hidden, store, before, FP32)
            second = N.op(norm, "norm2", hidden, inner, after, store.stream)
            # both read the layer's input; an fp32 copy of it each has to itself
            copied = store.wide_norms and bool(np.all(np.less(value_of(store.stream), FP32)))
            saved = second.saved if copied else second.saved[1:]
            shared = Op("norm_shared", second.weights, saved, second.working)
            return [first, *core, shared, *feed]
        case "post":
            return [
                _read("attention_input", hidden, store, before),
                *core,
                N.op(norm, "norm1", hidden, store, (), FP32),
                Op("mlp_input", (), N.outputs("mlp_input", hidden, hidden, store, after)),
                *feed,
                N.op(norm, "norm2", hidden, store, (), store.stream),
            ]
        case "sandwich":
            return [
                N.op(norm, "norm1", hidden, store, before, FP32),
                *core,
                N.op(norm, "norm2", hidden, store, (), FP32),
                N.op(norm, "norm3", hidden, store, after, store.stream),
                *feed,
                N.op(norm, "norm4", hidden, store, (), store.stream),
            ]


def _holds_experts(group: LayerGroup) -> bool:
    """Whether what is not known of a layer is mostly experts, which expert parallelism spreads."""
    return group.mlp.kind == "none" and bool(np.all(np.greater(group.mlp.experts, 1)))


def _known_half(group: LayerGroup, hidden: Like, store: Storage) -> list[Op]:
    """Of a layer whose mixer is not known, or that has none: its norms and its feed-forward block."""
    norm, ff = group.norm, group.mlp
    made = [N.op(norm, "norm1", hidden, store, ("mixer",), FP32)] if group.attention.kind == "unknown" else []
    if ff.kind == "none":
        return made
    second = N.op(norm, "norm2", hidden, store, mlp.readers(ff), store.stream)
    return [*made, second, *mlp.ops(ff, hidden, store)]


def _read(name: str, hidden: Like, store: Storage, readers: tuple[str, ...]) -> Op:
    """What linears read without a norm ahead; at its instant they have all made their gradients."""
    kept = N.outputs(name, hidden, hidden, store, readers)
    return Op(name, (), kept, (*kept, A.kept(called=f"{name}.gradient", channels=hidden, width=store.act)))


def own_input(group: LayerGroup, hidden: Like, store: Storage) -> Quantity:
    """The layer's input, B/token, where none of the layer's saved tensors is that very tensor."""
    composed = group.norm.kind == "layer-plain" or (
        group.norm.kind == "rms" and store.norm_kernels == "composed" and group.norm.placement != "post"
    )
    return A.input_kept_apart(
        called="layer_input", channels=hidden, stream_width=store.stream, upcast_width=FP32 if composed else 0
    )
