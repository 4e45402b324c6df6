"""Weights that are gathered for a while: FSDP groups and ZeRO-3's live parameters, and gradients being reduced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from planner.formulas import activations as A
from planner.formulas import parameters as P
from planner.formulas import states as S
from planner.formulas import temporaries as T
from planner.i18n import Phrase
from planner.quantity import Quantity, given, largest, total
from planner.step.setting import Group, Setting
from planner.step.states import GRADIENTS_WAYS, States, outside_width, sharded, trained_experts


@dataclass(frozen=True, slots=True)
class Gathering:
    """Bytes of gathered weights.

    root          the group of embedding, head and final norm, gathered through the step
    at_loss       the last layer, prefetched before the loss's backward
    kept_gathered layers that FSDP does not reshard after the forward
    layer         the layer at work
    at            by group and layers done: prefetched next layer, reduction of the previous, layers still gathered
    root_moments  what lives while the root group is reduced
    """

    root: Quantity
    at_loss: Quantity
    kept_gathered: Quantity
    layer: Quantity
    at: Callable[[Group, Quantity], list[Quantity]]
    root_moments: Callable[[States, Quantity, list[Quantity]], list[Quantity]]


def _nothing(name: str, why: str = "whole-weights") -> Quantity:
    return given(0.0, "B", name, because=Phrase(f"because.{why}"))


def gathering(setting: Setting) -> Gathering:
    """What this plan gathers."""
    if setting.sharded:
        return _fsdp(setting)
    live = _nothing("gathered_layer")
    if setting.case.plan.data_parallel == "zero" and setting.stack.live_elements:
        live = _zero3(setting)
    none = _nothing("gathered_root")
    return Gathering(none, live, none, live, lambda group, done: [], lambda held, x, tables: [])


def _zero3(setting: Setting) -> Quantity:
    """DeepSpeed: the layer at work and what its coordinator prefetches or keeps for reuse."""
    group = setting.groups[0]
    params = total("layer_weights", [group.linear, group.other])
    everything = total("all_weights", [setting.embedding, setting.head, setting.rest, *_whole_layers(setting)])
    size = T.live_parameters(
        called="gathered_layer",
        layer_params=params,
        live_elements=setting.stack.live_elements,
        prefetch_elements=setting.stack.prefetch_elements,
        param_width=setting.whole_width,
        params=everything,
    )
    return T.where_sharded(called="gathered_layer", size=size, zero=setting.case.plan.zero, stage=3)


def _whole_layers(setting: Setting) -> list[Quantity]:
    return [
        P.layers_params(called="layers", layers=g.layers, params=total("layer_weights", [g.linear, g.other]))
        for g in setting.groups
    ]


def layer_size(setting: Setting, group: Group) -> Quantity:
    """One layer's whole weights as gathered; a packed base is gathered packed."""
    if setting.trained:
        params = total("layer_weights", [group.linear, group.other])
        return T.gathered(called="gathered_layer", params=params, param_width=setting.whole_width)
    parts = [
        T.gathered(called="gathered_base", params=group.linear, param_width=setting.base_width),
        T.gathered(called="gathered_other", params=group.other, param_width=outside_width(setting)),
        T.gathered(called="gathered_adapters", params=group.trained, param_width=setting.store.adapter_act),
    ]
    return total("gathered_layer", parts)


def _if_any(group: Group, size: Quantity) -> Quantity:
    """A layer's size where this stage has a layer of its group."""
    return T.where_layers(called=size.name, size=size, layers=group.layers)


def _fsdp(setting: Setting) -> Gathering:
    shared = setting.stack.root_group == "shared"
    own = [setting.embedding, setting.head, setting.rest] if shared else [setting.head, setting.rest]
    width = setting.whole_width if setting.trained else outside_width(setting)
    root = T.gathered(called="gathered_root", params=total("root_weights", own), param_width=width)
    here = [(g, layer_size(setting, g)) for g in setting.groups]
    layer = largest("gathered_layer", [_if_any(g, size) for g, size in here])
    reshard = setting.case.plan.reshard_after_forward
    inside = setting.stack.loss_inside_root
    kept = total("gathered_unsharded", [
        T.still_gathered(called="gathered_unsharded", size=size, layers=g.layers, done=0, reshard=reshard)
        for g, size in here
    ])  # fmt: skip
    at_loss = layer if inside else _nothing("gathered_layer", "loss-outside")

    def at(group: Group, done: Quantity) -> list[Quantity]:
        size = layer_size(setting, group)
        reduced = S.state_bytes(called="reduced", params=group.trained, param_width=setting.reduce_width, ways=1)
        ahead = T.prefetched(called="prefetched_layer", size=size, layers=group.layers, done=done)
        return [
            T.unless_unsharded(called="prefetched_layer", size=ahead, reshard=reshard),
            T.still_gathered(
                called="gathered_unsharded", size=size, layers=group.layers, done=done, reshard=reshard
            ),
            T.reduce_input(called="reduce_input", size=reduced, done=done),
        ]

    def root_moments(held: States, x: Quantity, tables: list[Quantity]) -> list[Quantity]:
        return _root_moments(setting, held, x, tables, root, layer, at)

    return Gathering(root, at_loss, kept, layer, at, root_moments)


def _root_moments(
    setting: Setting,
    held: States,
    x: Quantity,
    tables: list[Quantity],
    root: Quantity,
    layer: Quantity,
    at: Callable[[Group, Quantity], list[Quantity]],
) -> list[Quantity]:
    """The end of the backward: the first layer's reduction, the embedding's gradient, the root's reduction."""
    group = setting.groups[0]
    gradients = held.gradients
    in_layers = sharded(
        setting, "gradients", _trained_layers(setting), trained_experts(setting), setting.gradient_width, GRADIENTS_WAYS
    )
    reduced_layer = S.state_bytes(called="reduce_input", params=group.trained, param_width=setting.reduce_width, ways=1)
    root_params = total("root_weights", [setting.embedding, setting.head, setting.rest])
    reduced_root = S.state_bytes(called="reduce_input", params=root_params, param_width=setting.reduce_width, ways=1)
    own_grads = total("root_gradient_weights", [setting.embedding, setting.head])
    whole = S.state_bytes(
        called="root_gradients", params=own_grads, param_width=setting.whole_gradient_width, ways=1
    )
    embed = T.tied_embedding_gradients(
        called="embedding_gradients", params=setting.embedding, param_width=setting.whole_gradient_width,
        tied=setting.case.model.tied,
    )  # fmt: skip
    head = S.state_bytes(called="head_gradient", params=setting.head, param_width=setting.whole_gradient_width, ways=1)
    stored = T.larger_if_carried(called="gradients", size=in_layers, all_gradients=gradients, carried=setting.carried)
    ids = A.token_ids(called="ids", tokens=setting.tokens, width=8)
    return [
        total("first_layer_reduce", [*held.resident, *tables, ids, root, head, stored, layer, layer, reduced_layer, x]),
        total("embedding_gradient", [*held.resident, *tables, ids, root, head, stored, embed, reduced_layer, x]),
        total("root_reduce", [*held.resident, stored, whole, reduced_root, ids]),
    ]


def _trained_layers(setting: Setting) -> Quantity:
    return total(
        "trained_layers",
        [P.layers_params(called="trained_layers", layers=g.layers, params=g.trained) for g in setting.groups],
    )
