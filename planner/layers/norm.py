"""Normalisation: RMSNorm as composed or fused code, LayerNorm, and the norm over queries and keys."""

from __future__ import annotations

from planner.formulas import activations as A
from planner.formulas import parameters as P
from planner.layers.ops import FP32, Op, Storage, Weight, adapter_inputs
from planner.quantity import Like, Quantity
from planner.spec.model import Norm


def weights(norm: Norm, name: str, width: Like) -> tuple[Weight, ...]:
    """A scale, and for LayerNorm a bias; none for OLMo 1."""
    scale = Weight(f"{name}.weight", 1, width, split=False, linear=False)
    bias = Weight(f"{name}.bias", 1, width, split=False, linear=False)
    match norm.kind:
        case "rms":
            return (scale,)
        case "layer":
            return (scale, bias)
        case "layer-plain":
            return ()


def op(norm: Norm, name: str, width: Like, store: Storage, readers: tuple[str, ...], grad_width: Like) -> Op:
    """A norm over the hidden channels whose output `readers` (names of linears) take.

    `grad_width` is the width of the gradients that pass by while its backward runs.
    """
    local = P.local_channels(
        called=f"{name}.channels", channels=width, tp=A.sequence_ways(tp=store.tp, sequence_parallel=store.sp)
    )
    saved = [*_own(norm, name, local, store)]
    alive = saved[:2]
    out = outputs(name, width, local, store, readers)
    temporaries = _backward(norm, name, local, store)
    passing = A.kept(called=f"{name}.gradients", channels=local, width=grad_width)
    return Op(name, weights(norm, name, width), (*saved, *out), (*alive, *temporaries, passing))


def _own(norm: Norm, name: str, local: Like, store: Storage) -> tuple[Quantity, ...]:
    """What the norm itself keeps: its input, its statistics, and composed code also the normalised input."""
    composed = norm.kind == "layer-plain" or (norm.kind == "rms" and store.norm_kernels == "composed")
    wide = composed or (norm.kind == "layer" and store.wide_norms)
    source = A.kept(called=f"{name}.input", channels=local, width=FP32 if wide else store.stream)
    stats = A.kept(called=f"{name}.statistics", channels=1 if norm.kind == "rms" else 2, width=FP32)
    if norm.kind != "rms" or not composed or not (store.trained or store.scaled):
        return source, stats
    width = FP32 if norm.upcast_kept == "fp32" else store.stream
    return source, stats, A.kept(called=f"{name}.normalised", channels=local, width=width)


def outputs(name: str, width: Like, local: Like, store: Storage, readers: tuple[str, ...]) -> tuple[Quantity, ...]:
    """What the linears that read a tensor keep of it: itself, casts of it, and what their adapters cast."""
    if not readers:
        return ()
    whole = P.local_channels(
        called=f"{name}.read", channels=width, tp=A.sequence_ways(tp=store.tp, sequence_parallel=store.sp)
    )
    channels = width if store.gathered_input else whole
    if store.trained:
        return (
            A.reader_copies(
                called=f"{name}.output", channels=channels, width=store.linear, autocast=store.autocast,
                readers=len(readers),
            ),
        )  # fmt: skip
    own = [A.kept(called=f"{name}.output", channels=channels, width=store.act)] if store.packed_inputs else []
    return (*own, *adapter_inputs(readers, channels, store))


def _backward(norm: Norm, name: str, local: Like, store: Storage) -> tuple[Quantity, ...]:
    """Temporaries of the backward: five fp32 tensors in composed RMSNorm, one gradient in a fused kernel."""
    if norm.kind == "rms" and store.norm_kernels == "composed":
        five = P.head_width(called=f"{name}.five_tensors", heads=5, head_dim=local)
        return (A.kept(called=f"{name}.backward", channels=five, width=FP32),)
    return (A.kept(called=f"{name}.backward", channels=local, width=store.stream),)


def qk_op(norm: Norm, kind: str, heads: Like, kv_heads: Like, head_dim: Like, store: Storage) -> Op:
    """The norm over queries and keys: by head (Qwen 3, Gemma 3) or over the whole width (OLMo 2)."""
    q = P.head_width(called="query_width", heads=heads, head_dim=head_dim)
    k = P.head_width(called="kv_width", heads=kv_heads, head_dim=head_dim)
    each = (head_dim, head_dim) if kind == "head" else (q, k)
    named = zip(("q_norm", "k_norm"), each, strict=True)
    ws = tuple(Weight(n, 1, w, split=kind == "full", linear=False) for n, w in named)
    saved: list[Quantity] = []
    for name, width, groups in (("q_norm", q, heads), ("k_norm", k, kv_heads)):
        local = P.local_channels(called=f"{name}.channels", channels=width, tp=store.tp)
        stats = P.local_channels(
            called=f"{name}.groups", channels=groups if kind == "head" else 1, tp=store.tp if kind == "head" else 1
        )
        fused = store.norm_kernels == "fused"
        saved.append(A.kept(called=f"{name}.input", channels=local, width=store.act if fused else FP32))
        saved.append(A.kept(called=f"{name}.statistics", channels=stats, width=FP32))
        if store.trained and not fused:
            wide = FP32 if norm.upcast_kept == "fp32" else store.act
            saved.append(A.kept(called=f"{name}.normalised", channels=local, width=wide))
    return Op("qk_norm", ws, tuple(saved))
