"""The feed-forward half of a block: dense or a dropless mixture of experts, gated or not, composed or fused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from planner.formulas import activations as A
from planner.formulas import parameters as P
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
from planner.quantity import Like, Quantity, given
from planner.spec.model import Mlp

#: bytes an element of f that composed tanh-GELU holds at the heaviest instant of its backward, traced (GPT-2)
COMPOSED_GELU_WORKING = {"16-bit": 14, "autocast": 26, "fp32": 28}

#: tensors of f that an activation written as several operations keeps besides its product
COMPOSED_KEPT = {"gelu_fast": ("up", "half_input", "scaled_input", "scaled_square", "inner", "tanh", "one_plus_tanh")}


def weights(mlp: Mlp, hidden: Like) -> tuple[Weight, ...]:
    """Router, gate, up and down projections with their biases, `copies` times for experts, and the shared experts'."""
    if mlp.kind == "none":
        return ()
    router = (Weight("router", hidden, mlp.experts, split=False),) if mlp.kind == "moe" else ()
    shared = (replace(w, name=f"shared_{w.name}") for w in weights(shared_mlp(mlp), hidden)) if mlp.shared_ffn else ()
    many: dict[str, Any] = {"copies": mlp.experts, "expert": mlp.kind == "moe"}
    if not mlp.gated:
        into: tuple[Weight, ...] = (Weight("up", hidden, mlp.ffn, **many),)
    elif mlp.fused_gate_up:
        both = P.head_width(called="gate_up_width", heads=2, head_dim=mlp.ffn)
        into = (Weight("gate_up", hidden, both, **many),)
    else:
        into = (Weight("gate", hidden, mlp.ffn, **many), Weight("up", hidden, mlp.ffn, **many))
    out: tuple[Weight, ...] = (Weight("down", mlp.ffn, hidden, **many),)
    if mlp.bias:
        into += tuple(Weight(f"{w.name}.bias", 1, w.cols, **many) for w in into)
        out += (Weight("down.bias", 1, hidden, split=False, **many),)
    return (*router, *into, *out, *shared)


def shared_mlp(mlp: Mlp) -> Mlp:
    """The shared experts of a mixture, as one dense block that every token passes."""
    return replace(mlp, ffn=mlp.shared_ffn, kind="dense", experts=1, experts_per_token=1, shared_ffn=0)


def readers(mlp: Mlp) -> tuple[str, ...]:
    """The linears that read the norm's output."""
    if mlp.gated and not mlp.fused_gate_up and mlp.kind == "dense":
        return ("gate", "up")
    return ("gate_up",) if mlp.gated else ("up",)


def ops(mlp: Mlp, hidden: Like, store: Storage) -> list[Op]:
    """Dispatch (experts), projections in, activation, projection out, in forward order."""
    ws = [w for w in weights(mlp, hidden) if not w.name.startswith("shared_")]
    into = tuple(w for w in ws if not w.name.startswith("down"))
    out = tuple(w for w in ws if w.name.startswith("down"))
    f = P.local_channels(called="ffn_channels", channels=mlp.ffn, tp=store.tp)
    if mlp.kind == "moe":
        f = A.routed_channels(called="routed_ffn", channels=f, experts_per_token=mlp.experts_per_token)
        f = A.crowded(called="routed_ffn", channels=f, crowding=store.crowding)
    act = _gated(f, store) if mlp.gated else _plain(mlp, f, store)
    routed = P.head_width(called="routed", heads=mlp.experts_per_token, head_dim=hidden)
    routed = A.routed_share(called="routed", channels=routed, tp=store.tp, etp=store.etp)
    passing = (A.kept(called="mlp.routed_gradient", channels=routed, width=store.act),) if mlp.kind == "moe" else ()
    own_input = () if store.kernels == "in-place-lora" else adapter_inputs(("down",), f, store)
    adapter = (*own_input, *rank_channels(("down",), store), *adapter_results(out, store))
    adapter = (*adapter, *unscaled("down", hidden, store))
    last = Op("down", out, (*adapter, *dropout_mask("mlp", hidden, store)))
    both = P.head_width(called="gate_up_width", heads=2 if mlp.gated else 1, head_dim=f)
    gradient = A.kept(called="mlp.gate_up_gradient", channels=both, width=store.act)
    packed = mlp.kind == "moe" or mlp.fused_gate_up
    working = (gradient, *passing) if packed else ()
    results = (*adapter_results(into, store), *unscaled("up", both, store))
    ranks = (*rank_channels((w.name for w in into), store), *results)
    first = Op("up", into, ranks, working, makes_own=True)
    if mlp.kind == "moe" and store.weighted_experts:
        return [_dispatch(mlp, routed, store), first, _weighted(mlp, act, f, store), last, *_shared(mlp, hidden, store)]
    if mlp.kind == "moe":
        return [_dispatch(mlp, routed, store), first, act, last, *_shared(mlp, hidden, store), _combine(routed, store)]
    return [first, act, last] if np.all(np.equal(store.mlp_tile, 1)) else [_tiled(hidden, (first, act, last), store)]


def _tiled(hidden: Like, whole: tuple[Op, ...], store: Storage) -> Op:
    """Tile by tile: nothing is kept but the input, which the norm keeps; the backward recomputes a tile at a time."""
    tile = [
        A.of_a_tile(called=kept.name, per_token=kept, portion=store.mlp_tile)
        for op in whole for kept in (op.saved if op is not whole[1] else op.working)
    ]  # fmt: skip
    gradient = A.kept(called="mlp.input_gradient", channels=hidden, width=store.act)
    return Op("tiled_mlp", tuple(w for op in whole for w in op.weights), (), (gradient, *tile), makes_own=True)


def _shared(mlp: Mlp, hidden: Like, store: Storage) -> list[Op]:
    """What the shared experts keep; they read the tensor that the router reads."""
    if not mlp.shared_ffn:
        return []
    own = tuple(w for w in weights(mlp, hidden) if w.name.startswith("shared_"))
    first, act, last = ops(shared_mlp(mlp), hidden, store)
    return [
        Op("shared_up", tuple(w for w in own if "down" not in w.name), first.saved),
        replace(act, name="shared_activation"),
        Op("shared_down", tuple(w for w in own if "down" in w.name), last.saved),
    ]


def _gated(f: Quantity, store: Storage) -> Op:
    """act(gate) x up. Composed code keeps four tensors of f, a fused kernel recomputes act(gate) and keeps three."""
    names = ("gate", "activated", "up") if store.kernels == "composed" else ("gate", "up")
    kept = [A.kept(called=f"mlp.{n}", channels=f, width=store.act) for n in names]
    product = [A.kept(called="mlp.product", channels=f, width=store.linear)] if store.inputs_kept else []
    if store.kernels.startswith("in-place"):  # gradients of gate and up are written over them
        gradient = A.kept(called="mlp.product_gradient", channels=f, width=store.act)
        return Op("activation", (), (*kept, *product), (*kept, *product, gradient))
    gradients = [
        A.kept(called=f"mlp.{n}_gradient", channels=f, width=store.act) for n in ("product", "activated", "up")
    ]
    return Op("activation", (), (*kept, *product), (*kept, *gradients))


def _plain(mlp: Mlp, f: Quantity, store: Storage) -> Op:
    """An activation without a gate: one op keeps its input, composed tanh-GELU keeps four tensors."""
    if mlp.activation == "gelu_composed" and store.kernels == "composed":
        return _composed_gelu(f, store)
    names = COMPOSED_KEPT.get(mlp.activation) if store.kernels == "composed" else None
    kept = [A.kept(called=f"mlp.{n}", channels=f, width=store.act) for n in names or ("up",)]
    product = [A.kept(called="mlp.product", channels=f, width=store.linear)] if store.inputs_kept else []
    passing = ("product", "half_input", "one_plus_tanh") if names else ("product", "up")
    gradients = [A.kept(called=f"mlp.{n}_gradient", channels=f, width=store.act) for n in passing]
    return Op("activation", (), (*kept, *product), (*kept, *gradients))


def _composed_gelu(f: Quantity, store: Storage) -> Op:
    """gelu_new as Hugging Face writes it: the cube's input, 0.5 x, tanh, 1 + tanh; under autocast partly fp32."""
    wide = A.upcast_width(width=store.act, autocast=store.autocast, upcast=FP32)
    parts = (("cube_input", wide), ("half_input", store.act), ("tanh", wide), ("one_plus_tanh", wide))
    kept = [A.kept(called=f"mlp.{n}", channels=f, width=w) for n, w in parts]
    product = [A.kept(called="mlp.product", channels=f, width=store.linear)] if store.inputs_kept else []
    mode = A.pick_by_mode(
        called="mlp.composed_gelu_width",
        act_width=store.act,
        autocast=store.autocast,
        low=COMPOSED_GELU_WORKING["16-bit"],
        mixed=COMPOSED_GELU_WORKING["autocast"],
        full=COMPOSED_GELU_WORKING["fp32"],
    )
    return Op("activation", (), (*kept, *product), (A.kept(called="mlp.gelu_backward", channels=f, width=mode),))


def _dispatch(mlp: Mlp, routed: Quantity, store: Storage) -> Op:
    """The router and the gathered copies of the tokens."""
    received = A.crowded(called="received", channels=routed, crowding=store.crowding)
    router = A.router_kept(
        called="mlp.router",
        experts=mlp.experts,
        experts_per_token=mlp.experts_per_token,
        expert_width=FP32,
        index_width=given(40, "B", "routing_index_width", source="hf-moe-traces"),
        fixed=4,
    )
    tokens = [A.kept(called="mlp.dispatched", channels=received, width=store.linear)] if store.inputs_kept else []
    return Op("dispatch", (), (router, *tokens))


def _weighted(mlp: Mlp, act: Op, f: Quantity, store: Storage) -> Op:
    """The activation with the routing weights applied to its result: one kernel with a gated activation, else a
    product of its own, which keeps the result before it too."""
    if mlp.gated:
        return act
    return replace(act, saved=(*act.saved, A.kept(called="mlp.weighted_product", channels=f, width=store.linear)))


def _combine(routed: Quantity, store: Storage) -> Op:
    """Expert outputs, kept for the gradient of the routing weights; where these are applied in fp32, as an fp32 copy,
    whose backward holds the gradients of both factors and the upcast one that they are made from."""
    if not store.wide_scores:
        return Op("combine", (), (A.kept(called="mlp.expert_output", channels=routed, width=store.act),))
    kept = A.kept(called="mlp.expert_output", channels=routed, width=FP32)
    names = ("weighted_gradient", "score_product", "output_gradient")
    gradients = [A.kept(called=f"mlp.{n}", channels=routed, width=FP32) for n in names]
    return Op("combine", (), (kept,), (kept, *gradients))
