"""Groups of equal layers as one rank of one pipeline stage holds them: how many, their weights and operations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.formulas import activations as A
from planner.formulas import parameters as P
from planner.i18n import Phrase
from planner.layers import block
from planner.layers import model as M
from planner.layers import norm as N
from planner.layers.ops import Op, Storage, Weight
from planner.quantity import Like, Quantity, given, largest, total
from planner.spec.case import Case
from planner.spec.model import LayerGroup

#: learned tokens of LLaMA-Adapter in each layer
PROMPT_TOKENS = 10
#: the parameters of a mixer that is not known: many weights, of which none is known to be the largest
UNKNOWN = "mixer"


@dataclass(frozen=True, slots=True)
class Stage:
    """A pipeline stage by position (from 0), and 1 or 0 for whether it holds the embedding and the head.

    A position may be an array: all stages at once.
    """

    index: Any = 0
    embedding: Any = 1
    head: Any = 1


@dataclass(frozen=True, slots=True)
class Group:
    """Equal layers on this rank.

    layers      how many on this stage
    linear      parameters of one layer that matrix products use (quantised base, autocast copies)
    other       the rest of one layer: norms, biases outside products
    trained     parameters of one layer that train: all, or the adapters
    graded      parameters of one layer that have a gradient: those that train, or all that share a flat parameter
    experts     parameters of one layer's experts on this rank, which are among the linear ones
    largest     the largest single weight of one layer
    ops         operations in forward order
    own_input   the layer's input where no saved tensor is that tensor, B/token
    further     they predict further tokens: on the last stage, and never of a micro-batch that waits
    """

    spec: LayerGroup
    layers: Quantity
    linear: Quantity
    other: Quantity
    trained: Quantity
    graded: Quantity
    experts: Quantity
    largest: Quantity
    weights: tuple[Weight, ...]
    ops: tuple[Op, ...]
    own_input: Quantity
    further: bool = False


def groups(case: Case, stage: Stage, store: Storage) -> list[Group]:
    """Each group of equal layers, as much of it as lies on this stage."""
    first, last = _edges(case, stage)
    before: Quantity = given(0, "layer", "layers_before")
    found = []
    for group in case.model.groups:
        layers = P.stage_layers(called="layers", layers=group.count, before=before, start=first, end=last)
        found.append(_group(case, group, store, layers))
        before = total("layers_before", [before, given(group.count, "layer", "layers")])
    if case.model.further:
        found.append(_further(case, stage, store))
    return found


def mixed_units(case: Case) -> bool:
    """Whether frozen weights and adapters share FSDP1's flat parameters."""
    return case.recipe.peft is not None and case.stack.mixed_units and case.plan.data_parallel == "fsdp1"


def _further(case: Case, stage: Stage, store: Storage) -> Group:
    """Layers that predict further tokens, of the last group's kind: each joins the last hidden state and an embedding,
    both normed, and takes them back to the hidden size."""
    hidden, last = case.model.hidden, case.model.groups[-1]
    spec = replace(last, count=case.model.further)
    layers = P.stage_layers(
        called="layers", layers=case.model.further, before=0, start=0,
        end=P.on_stage(called="further", params=case.model.further, present=stage.head),
    )  # fmt: skip
    both = P.head_width(called="joined", heads=2, head_dim=hidden)
    norms = [w for i in range(3) for w in N.weights(last.norm, f"further_norm{i}", hidden)]
    made = _group(case, spec, store, layers, (Weight("further_projection", both, hidden), *norms))
    local = P.local_channels(
        called="joined", channels=both, tp=A.sequence_ways(tp=store.tp, sequence_parallel=store.sp)
    )
    kept = [A.kept(called="further.normed", channels=local, width=store.stream),
            A.kept(called="further.joined", channels=local, width=store.linear)]  # fmt: skip
    return replace(made, ops=(Op("further", (), tuple(kept)), *made.ops), further=True)


def _edges(case: Case, stage: Stage) -> tuple[Like, Like]:
    """Layers before a stage, and up to its end; chunks of an interleaved schedule count as if they lay together."""
    plan = case.plan
    if plan.layer_split:
        ends = np.cumsum((0, *plan.layer_split))
        return ends[:-1][stage.index], ends[1:][stage.index]
    after = np.add(stage.index, 1)
    return (
        P.stage_edge(called="first_layer", layers=case.model.layers, pp=plan.pp, stage=stage.index),
        P.stage_edge(called="last_layer", layers=case.model.layers, pp=plan.pp, stage=after),
    )


def _group(
    case: Case, group: LayerGroup, store: Storage, layers: Quantity, more: tuple[Weight, ...] = ()
) -> Group:
    hidden, plan = case.model.hidden, case.plan
    weights = (*block.weights(group, hidden), *more)
    split = {"tp": plan.tp, "ep": plan.ep, "etp": plan.etp}
    linear = M.count("linear_weights", (w for w in weights if w.linear), **split)
    other = M.count("other_weights", (w for w in weights if not w.linear), **split)
    if case.recipe.peft is None:
        trained = total("trained_weights", [linear, other])
    else:
        trained = _adapters(case, group, weights, store)
    sizes = [M.count(w.name, [w], **split) for w in weights if w.linear and w.name != UNKNOWN]
    stacked = [w for w in weights if w.name in ("gate", "up")] if group.mlp.kind == "moe" else []
    if stacked:  # experts are stacked, gate and up in one weight
        sizes.append(M.count("gate_up", stacked, **split))
    return Group(
        spec=group,
        layers=layers,
        linear=linear,
        other=other,
        trained=trained,
        graded=total("flat_parameter", [linear, other, trained]) if mixed_units(case) else trained,
        experts=M.count("experts", (w for w in weights if w.expert), **split),
        largest=largest("largest_weight", sizes) if sizes else given(0.0, "param", "largest_weight"),
        weights=weights,
        ops=tuple(block.ops(group, hidden, case.recipe.seq_len, store)),
        own_input=block.own_input(group, hidden, store),
    )


def _adapters(case: Case, group: LayerGroup, weights: tuple[Weight, ...], store: Storage) -> Quantity:
    """Parameters of a layer's adapters; a stack that fuses projections by itself still adapts each of them."""
    if case.recipe.peft and case.recipe.peft.each_layer:
        each = case.recipe.peft.each_layer
        return given(each, "param", "adapters", because=Phrase("because.adapters-counted"))
    adapted = store.adapted
    if store.prompted:
        return _prompt(case, group, weights, store)
    if case.stack.fused_qkv and case.recipe.peft and group.attention.kind == "gqa":
        apart = replace(group, attention=replace(group.attention, fused_qkv=False))
        weights, adapted = block.weights(apart, case.model.hidden), frozenset(case.recipe.peft.targets)
    parts = [
        P.expert_params(called=f"{w.name}.adapter", params=size, ep=case.plan.ep, etp=1) if w.expert else size
        for w, size in (
            (w, P.adapter_params(
                called=f"{w.name}.adapter", rank=store.rank, rows=w.rows, cols=w.cols, copies=w.copies
            ))
            for w in weights
            if w.name in adapted
        )
    ]  # fmt: skip
    return total("adapters", parts) if parts else given(0.0, "param", "adapters", because=Phrase("because.no-target"))


def _prompt(case: Case, group: LayerGroup, weights: tuple[Weight, ...], store: Storage) -> Quantity:
    """Parameters of LLaMA-Adapter in one layer: the prompt and a gate for each head; V2's scales, biases and norms."""
    vectors: list[tuple[str, Like, Like]] = [("prompt", PROMPT_TOKENS, case.model.hidden)]
    vectors.append(("gates", 1, group.attention.heads))
    linears = [w for w in weights if w.linear and "bias" not in w.name and store.scaled]
    vectors += [(f"{w.name}.scale_and_bias", 2, w.cols) for w in linears]
    made = [P.weight_params(called=name, rows=rows, cols=cols, copies=1) for name, rows, cols in vectors]
    norms = [w for w in weights if not w.linear] if store.scaled else []
    return total("adapters", [*made, M.count("norms", norms)])
