"""Weights that are gathered for a while: FSDP groups and ZeRO-3's live parameters, and gradients being reduced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.formulas import activations as A
from planner.formulas import parameters as P
from planner.formulas import states as S
from planner.formulas import temporaries as T
from planner.i18n import Phrase
from planner.quantity import Quantity, given, largest, total
from planner.step.setting import Group, Setting, gradients_leave
from planner.step.states import (
    PASSING_WAYS,
    States,
    adapter_width,
    layer_experts,
    outside_width,
    sharded,
    trained_experts,
)


@dataclass(frozen=True, slots=True)
class Gathering:
    """Bytes of gathered weights.

    root          the group of embedding, head and final norm, gathered through the step
    first         what the first layer's gathering finds: buffers of two all-gathers and what was copied out of them
    last          the same of the last layer; `buffer` is that of its all-gather, which stays until the root is done
    own_head      buffers of the gathering of a head that is a group of its own
    at_forward    the last layer at the end of the forward, where it is not resharded
    at_loss       the last layer in the backward of the loss: not resharded, or prefetched
    kept_gathered the other layers, where FSDP does not reshard after the forward
    layer         the layer at work
    at            by group and layers done: prefetched next layer, reduction of the previous, layers still gathered
    root_moments  what lives while the root group is reduced
    """

    root: Quantity
    at_forward: Quantity
    at_loss: Quantity
    kept_gathered: Quantity
    layer: Quantity
    at: Callable[[Group, Quantity], list[Quantity]]
    root_moments: Callable[[States, Quantity, list[Quantity]], list[Quantity]]
    first: tuple[Quantity, ...] = ()
    last: tuple[Quantity, ...] = ()
    buffer: tuple[Quantity, ...] = ()
    own_head: tuple[Quantity, ...] = ()


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
    return Gathering(
        root=none, at_forward=none, at_loss=live, kept_gathered=none, layer=live, at=lambda group, done: [],
        root_moments=lambda held, x, tables: [],
    )  # fmt: skip


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
        T.gathered(called="gathered_adapters", params=group.trained, param_width=adapter_width(setting)),
    ]
    return total("gathered_layer", parts)


def _if_any(group: Group, size: Quantity) -> Quantity:
    """A layer's size where this stage has a layer of its group."""
    return T.where_layers(called=size.name, size=size, layers=group.layers)


def buffer(size: Quantity) -> Quantity:
    """What an all-gather writes, before whole weights are copied out of it."""
    return total("gather_buffer", [size])


def loss_inside(setting: Setting) -> bool:
    """Whether the loss is computed inside the root module; a loss by chunks never is."""
    return setting.stack.loss_inside_root and setting.case.recipe.loss != "chunked-ce"


def apart(setting: Setting) -> bool:
    """Whether embedding and head are FSDP groups of their own; tied ones are one weight of the root group."""
    return setting.sharded and setting.stack.root_group == "separate" and not setting.case.model.tied


def _fsdp(setting: Setting) -> Gathering:
    width = setting.whole_width if setting.trained else outside_width(setting)
    ends = apart(setting)
    table = T.gathered(called="gathered_embedding", params=setting.embedding, param_width=width)
    head = T.gathered(
        called="gathered_root", params=total("root_weights", [setting.head, setting.rest]), param_width=width
    )
    root = head if ends else total("gathered_root", [table, head])
    here = [(g, layer_size(setting, g)) for g in setting.groups]
    layer = largest("gathered_layer", [_if_any(g, size) for g, size in here])
    reshard = setting.case.plan.reshard_after_forward
    kept = [
        T.still_gathered(called="gathered_unsharded", size=size, layers=g.layers, done=0, reshard=reshard)
        for g, size in here
    ]
    if ends:
        kept.append(T.stays_gathered(called="gathered_unsharded", size=table, reshard=reshard))
    # the last layer: not resharded where its backward follows at once, or where nothing is
    whole_last = not np.all(setting.case.plan.reshard_last_block)
    stays = layer if whole_last else T.stays_gathered(called="gathered_layer", size=layer, reshard=reshard)
    return Gathering(
        root=root,
        first=(buffer(table if ends else root), table if ends else root, buffer(layer), layer),
        last=(buffer(layer), buffer(layer), layer, *(() if ends else (root,))),
        buffer=(buffer(root),) if ends else (buffer(layer),),
        own_head=(buffer(root), buffer(layer)) if ends else (),
        at_forward=stays,
        at_loss=total("prefetched_layer", [layer]) if loss_inside(setting) else stays,
        kept_gathered=total("gathered_unsharded", kept),
        layer=layer,
        at=_at(setting, table if ends else None),
        root_moments=_root_moments(setting, root, table, layer),
    )


def _at(setting: Setting, table: Quantity | None) -> Callable[[Group, Quantity], list[Quantity]]:
    """What is gathered or reduced beside the layer at work; `table` is the embedding where it is a group of its own."""
    reshard = setting.case.plan.reshard_after_forward

    def at(group: Group, done: Quantity) -> list[Quantity]:
        size = layer_size(setting, group)
        reduced = S.state_bytes(called="reduced", params=group.graded, param_width=setting.reduce_width, ways=1)
        ahead = T.prefetched(called="prefetched_layer", size=size, layers=group.layers, done=done)
        found = [
            T.unless_unsharded(called="prefetched_layer", size=ahead, reshard=reshard),
            T.still_gathered(
                called="gathered_unsharded", size=size, layers=group.layers, done=done, reshard=reshard
            ),
            T.reduce_input(called="reduce_input", size=reduced, done=done),
        ]
        if table is not None:
            found += [
                T.at_the_last(called="prefetched_layer", size=table, layers=group.layers, done=done),
                T.before_the_first(called="reduce_input", size=head_reduction(setting), done=done),
            ]
        return found

    return at


def head_reduction(setting: Setting) -> Quantity:
    """The head's gradient on its way into a reduce-scatter of its own."""
    params = setting.head if setting.trained else given(0.0, "param", "head", because=Phrase("because.frozen"))
    return S.state_bytes(called="reduce_input", params=params, param_width=setting.reduce_width, ways=1)


def _root_moments(
    setting: Setting, root: Quantity, table: Quantity, layer: Quantity
) -> Callable[[States, Quantity, list[Quantity]], list[Quantity]]:
    """The end of the backward: the first layer's reduction, the embedding's gradient, the root's reduction."""
    group, ends = setting.groups[0], apart(setting)
    of_one = sharded(
        setting, "gradients", group.graded, layer_experts(setting, group), setting.gradient_width, PASSING_WAYS
    )
    in_layers = sharded(
        setting, "gradients", _trained_layers(setting), trained_experts(setting), setting.gradient_width, PASSING_WAYS
    )
    reduced_layer = S.state_bytes(called="reduce_input", params=group.graded, param_width=setting.reduce_width, ways=1)
    reduced_here = [setting.embedding] if ends else [setting.embedding, setting.head, setting.rest]
    reduced = S.state_bytes(
        called="reduce_input", params=total("root_weights", reduced_here), param_width=setting.reduce_width, ways=1
    )
    own = [setting.embedding] if ends else [setting.embedding, setting.head]
    whole = _whole(setting, "root_gradients", total("root_gradient_weights", own))
    embed = T.tied_embedding_gradients(
        called="embedding_gradients", params=setting.embedding, param_width=setting.whole_gradient_width,
        tied=setting.case.model.tied,
    )  # fmt: skip
    split = _split_embedding(setting)
    head = head_gradient(setting)
    last = _whole(setting, "root_gradients", own[-1] if not setting.case.model.tied else setting.embedding)
    output = T.reduce_output(called="reduce_output", size=reduced, ranks=setting.ways_gradients)
    ids = A.token_ids(called="ids", tokens=setting.tokens, width=8)
    gathered = table if ends else root
    kept = [head] if ends else []

    def moments(held: States, x: Quantity, tables: list[Quantity]) -> list[Quantity]:
        others = T.one_layer_less(called="gradients", size=in_layers, layer=of_one)
        stored, before = (
            S.on_gpu(called="gradients", offloaded=gradients_leave(setting.case), size=T.larger_if_carried(
                called="gradients", size=size, all_gradients=held.passing, carried=setting.carried
            ))
            for size in (in_layers, others)
        )  # fmt: skip
        always = [*held.resident, ids, stored]
        around = [*held.resident, ids, *tables, gathered, head, x]
        return [
            total("first_layer_reduce", [*around, before, layer, layer, reduced_layer]),
            total("embedding_gradient", [*around, stored, embed, *split, reduced_layer]),
            total("root_reduce", [*always, *kept, whole, reduced]),
            total("root_reduced", [*always, *kept, last, reduced, output]),
        ]

    return moments


def _split_embedding(setting: Setting) -> list[Quantity]:
    """torch's tensor parallelism: the embedding's gradient is whole on each rank, and then reduced to its rows."""
    if setting.stack.tensor_parallel != "torch" or not setting.trained:
        return []
    width, tp = setting.whole_gradient_width, setting.case.plan.tp
    rows = S.state_bytes(called="embedding_gradients", params=setting.embedding, param_width=width, ways=1)
    return [
        S.partial_embedding(called="embedding_gradients", params=setting.embedding, param_width=width, tp=tp),
        T.if_carried(called="embedding_gradients", size=rows, carried=np.greater(tp, 1)),
    ]


def _whole(setting: Setting, called: str, params: Quantity) -> Quantity:
    return S.state_bytes(called=called, params=params, param_width=setting.whole_gradient_width, ways=1)


def head_gradient(setting: Setting) -> Quantity:
    """The head's gradient until the end of the backward: whole in the root group, a rank's share where it is apart.

    That share is added to what earlier micro-batches left, which the stored gradients count.
    """
    if apart(setting):
        share = S.state_bytes(
            called="head_gradient", params=setting.head, param_width=setting.gradient_width,
            ways=setting.ways_gradients,
        )  # fmt: skip
        return T.unless_carried(called="head_gradient", size=share, carried=setting.carried)
    return _whole(setting, "head_gradient", setting.head)


def _trained_layers(setting: Setting) -> Quantity:
    return total(
        "trained_layers",
        [P.layers_params(called="trained_layers", layers=g.layers, params=g.graded) for g in setting.groups],
    )
