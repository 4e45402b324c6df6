"""The moments of a step that can be its peak, each the sum of what lives then.

Loss, end of the forward, the backward of one layer, the embedding's gradient (under FSDP: the root group's
reduction) and the optimizer step. Derived from traces of real code; see docs/explanation/memory.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.formulas import activations as A
from planner.formulas import states as S
from planner.formulas import temporaries as T
from planner.i18n import Phrase
from planner.quantity import Quantity, given, largest, total, where
from planner.spec.plan import VOCAB_SCHEDULES
from planner.spec.recipe import WIDTH
from planner.step import activations as act
from planner.step import loss
from planner.step.activations import LayerTensors
from planner.step.gathering import Gathering, apart, buffer, gathering, head_gradient, head_reduction, loss_inside
from planner.step.setting import Group, Setting, gradients_leave, packed
from planner.step.states import (
    PASSING_WAYS,
    States,
    layer_experts,
    main_gradients,
    partial_embedding,
    sharded,
    states,
    trained_params,
)


@dataclass(frozen=True, slots=True)
class Step:
    """What the moments share, made once: states, gathered weights, saved tensors, gradients as stored."""

    setting: Setting
    held: States
    gather: Gathering
    layers: tuple[LayerTensors, ...]
    kept: tuple[Quantity, ...]
    waiting: Quantity
    stored: Quantity
    before: Quantity
    tables: tuple[Quantity, ...]
    mask: tuple[Quantity, ...]
    head_copy: Quantity
    head_gradient: Quantity
    head_made: tuple[Quantity, ...]

    @property
    def groups(self) -> tuple[tuple[Group, LayerTensors], ...]:
        """Each group of equal layers with its tensors."""
        return tuple(zip(self.setting.groups, self.layers, strict=True))


def step(setting: Setting) -> Step:
    """One optimizer step of one rank, before it is looked at moment by moment."""
    held = states(setting)
    layers = tuple(act.tensors(setting, g) for g in setting.groups)
    by_layer = [act.kept_by_layers(setting, g, t) for g, t in zip(setting.groups, layers, strict=True)]
    tables, mask = tuple(act.shared_tables(setting)), tuple(act.embedding_mask(setting))
    kept = (*by_layer, *act.outside_layers(setting), *tables, *mask)
    off = gradients_leave(setting.case)
    stored, passing = (S.on_gpu(called="gradients", size=g, offloaded=off) for g in (held.gradients, held.passing))
    return Step(
        setting=setting,
        held=held,
        gather=gathering(setting),
        layers=layers,
        kept=kept,
        waiting=_waiting(setting, (*_of_all(setting, by_layer), *kept[len(by_layer):])),
        stored=stored,
        before=T.if_carried(called="gradients", size=passing, carried=setting.carried),
        tables=tables,
        mask=mask,
        head_copy=loss.head_copy(setting),
        head_gradient=_head_gradient(setting),
        head_made=_head_made(setting),
    )


def moments(step: Step) -> dict[str, Quantity]:
    """Bytes alive at each moment, by the phase's name in the command line's contract."""
    return {
        "forward": _forward(step),
        "loss": _loss(step),
        "backward": _backward(step),
        "root_reduce": _root_reduce(step),
        "optimizer": _optimizer(step),
    }


def _of_all(setting: Setting, by_layer: list[Quantity]) -> list[Quantity]:
    """What layers keep of a micro-batch that waits: those that predict further tokens go back at once."""
    return [kept for group, kept in zip(setting.groups, by_layer, strict=True) if not group.further]


#: by schedule: barriers of the loss, and how much longer the way to it is (the paper's figures)
VOCAB_PASSES = {"1f1b-vocab-1": (2, 1), "1f1b-vocab-2": (1, 1), "1f1b-interlaced": (0, 1.5)}


def _waiting(setting: Setting, kept: tuple[Quantity, ...]) -> Quantity:
    """Activations of other micro-batches in the pipeline."""
    plan = setting.case.plan
    place = {"pp": plan.pp, "stage": setting.stage.index, "microbatches": plan.accumulation}
    if plan.schedule == "interleaved-1f1b":
        here = total("layers", [group.layers for group in setting.groups if not group.further])
        flight = A.in_flight_interleaved(called="in_flight", virtual_stages=plan.virtual_stages, layers=here, **place)
    elif plan.schedule in VOCAB_SCHEDULES:
        barriers, lengthened = VOCAB_PASSES[plan.schedule]
        flight = A.in_flight_vocab(called="in_flight", barriers=barriers, lengthened=lengthened, **place)
    else:
        flight = A.in_flight_1f1b(called="in_flight", **place)
    each = total("kept_each_microbatch", kept)
    return A.waiting_kept(called="waiting_microbatches", bytes_each=each, in_flight=flight)


def _forward(step: Step) -> Quantity:
    """The heaviest of the forward: FSDP's first and last gathering, the head, or all that the forward leaves."""
    copies = [A.whole_copies(called="weight_copies", size=t.copies, layers=g.layers) for g, t in step.groups]
    gather, always = step.gather, [*step.held.resident, step.before, step.waiting]
    around = [*always, *step.kept, *copies, step.head_copy, gather.root, gather.kept_gathered, gather.at_forward]
    around = [*around, *act.former_inputs(step.setting)]
    end = [*around, loss.forward(step.setting), *loss.last_hidden(step.setting, step.layers[-1])]
    if not gather.first:
        unpacked = [*around, *loss.unpacked_head(step.setting)]
        heads = [total("forward_head", [*unpacked, loss.before(step.setting)])] if len(unpacked) > len(around) else []
        return largest("forward", [total("forward_end", end), *heads]) if heads else total("forward", end)
    inside = loss_inside(step.setting)
    return largest("forward", [
        total("forward_end", [*end, *(gather.buffer if inside else ())]),
        total("forward_head", [*around, *loss.whole_logits(step.setting), *gather.buffer]),
        total("head_gathering", [*around, *gather.own_head]),
        total("first_gathering", [*always, *step.tables, *gather.first, step.layers[0].input]),
        total("last_gathering", [*always, *step.tables, *step.mask, *_before_last(step), *gather.last]),
    ])  # fmt: skip


def _before_last(step: Step) -> list[Quantity]:
    """What all layers but the last keep after their forward, and those of them that stay gathered."""
    (group, layer), others = step.groups[-1], step.groups[:-1]
    kept = A.kept_in_backward(
        called="kept_by_layers", saved=layer.saved, checkpointed=layer.kept, layers=group.layers, done=0,
        **act.regions(step.setting),
    )  # fmt: skip
    kept = act.on_gpu(step.setting, act.without_first_norm(step.setting, group, kept, 0), group.layers)
    return [*(act.kept_by_layers(step.setting, g, t) for g, t in others), kept, step.gather.kept_gathered]


def _loss(step: Step) -> Quantity:
    """The backward of the loss, the heaviest instant of most runs with a large vocabulary; and that of the head."""
    setting = step.setting
    flag = act.recomputed(setting)
    copies = [
        A.copies_at_loss(called="weight_copies", size=t.copies, layers=g.layers, recomputed=flag)
        for g, t in step.groups
    ]
    gather = step.gather
    always = [
        *step.held.resident, step.before, *step.kept, step.waiting, *copies, step.head_copy, loss.outputs(setting),
        gather.kept_gathered,
    ]  # fmt: skip
    found = [total("loss_backward", [
        *always, gather.root, gather.at_loss, loss.backward(setting), *loss.unpacked_head(setting)
    ])]  # fmt: skip
    if step.head_made:
        # the root's backward has begun: the last layer is there, wherever the loss was computed
        last = gather.layer if gather.first else gather.at_loss
        x = step.layers[-1].input
        around = [*always, gather.root, last, x]
        if loss.by_chunks(setting):
            found.append(total("head_backward", [*around, loss.chunks_left(setting), *step.head_made]))
        else:  # under autocast made in 16 bits, beside the logits' gradient, and upcast when that is gone
            narrow = where(setting.store.autocast, setting.store.act, setting.whole_gradient_width)
            made = [loss.logits_gradient(setting), loss.whole_head(setting, narrow)]
            found += [total("head_backward", [*around, *one]) for one in (made, step.head_made)]
        if apart(setting):  # a head of its own is resharded before it is reduced
            whole = loss.whole_head(setting, setting.whole_gradient_width)
            found.append(total("head_reduction", [*always, gather.at_loss, whole, x, head_reduction(setting)]))
    return largest("loss", found)


def _backward(step: Step) -> Quantity:
    """One layer's backward, at the layer and the operation where it is heaviest."""
    root = [] if apart(step.setting) else [step.gather.root]  # a head of its own is resharded after its backward
    fixed = [*step.held.resident, *step.tables, *step.mask, step.waiting, step.head_gradient, *root]
    places = []
    for group, layer in step.groups:
        others = [act.kept_by_layers(step.setting, g, t) for g, t in step.groups if g is not group]
        position = largest("position", [_position(step, group, layer, n) for n in PLACES])
        instant = largest("instant", _instants(step.setting, group))
        here = total("layer_backward", [position, instant, step.gather.layer])
        if step.gather.first:
            edges = [_reduction(step, group, layer), _gathering(step, group, layer), *_flat(step, group, layer)]
            here = largest("layer_backward", [here, *edges])
        places.append(total("layer_backward", [*others, T.where_layers(called="here", size=here, layers=group.layers)]))
    return total("backward", [*fixed, largest("heaviest_layer", places)])


def _reduction(step: Step, group: Group, layer: LayerTensors) -> Quantity:
    """FSDP: the first layer that is reduced, its whole gradients and what they are copied into, its weights gone."""
    setting = step.setting
    whole = S.state_bytes(
        called="new_gradients", params=group.graded, param_width=setting.whole_gradient_width, ways=1
    )
    reduced = S.state_bytes(called="reduce_input", params=group.graded, param_width=setting.reduce_width, ways=1)
    position = _position(step, group, layer, "last", reducing=False)
    return total("layer_reduction", [position, whole, reduced, layer.input])


def _flat(step: Step, group: Group, layer: LayerTensors) -> list[Quantity]:
    """FSDP1 that accumulates whole gradients: those of a layer's weights and the flat one that they are put together
    in, before it is added to what earlier micro-batches left, the layer still gathered."""
    setting = step.setting
    if not setting.stack.whole_accumulation or setting.case.plan.data_parallel != "fsdp1":
        return []
    new = S.state_bytes(
        called="new_gradients", params=group.graded, param_width=setting.whole_gradient_width, ways=1
    )
    pieces = T.if_carried(called="new_gradients", size=new, carried=setting.carried)
    position = _position(step, group, layer, "last")
    return [total("flat_gradient", [position, pieces, pieces, layer.input, step.gather.layer])]


def _gathering(step: Step, group: Group, layer: LayerTensors) -> Quantity:
    """FSDP: the last layer of the backward while it is copied out of its all-gather, nothing of it worked on yet."""
    own = A.own_before_backward(
        called="kept_by_layers", size=layer.saved, layer=layer.kept, recomputed=act.recomputed(step.setting)
    )
    whole = step.gather.layer
    return total("layer_gathering", [_position(step, group, layer, "first"), own, whole, buffer(whole)])


#: places in the backward, by how many layers are done: none, one, all but two, all but one
PLACES = ("last", "next", "second", "first")


def _position(step: Step, group: Group, layer: LayerTensors, name: str, reducing: bool = True) -> Quantity:
    """What depends on how many layers are done: kept tensors, gradients, prefetched and reduced groups."""
    setting = step.setting
    done = A.layers_done(called=f"done_{name}", layers=group.layers, place=PLACES.index(name))
    flag = act.recomputed(setting)
    kept = A.kept_in_backward(
        called="kept_by_layers", saved=layer.saved, checkpointed=layer.kept, layers=group.layers, done=done,
        **act.regions(setting),
    )  # fmt: skip
    kept = act.on_gpu(setting, act.without_first_norm(setting, group, kept, done), group.layers)
    copies = T.all_weight_copies(
        called="weight_copies", size=layer.copies, layers=group.layers, done=done, recomputed=flag
    )
    beside = [one for one in step.gather.at(group, done) if reducing or one.name != "reduce_input"]
    return total(f"at_{name}_layer", [kept, copies, *_gradients(setting, group, done), *beside])


def _gradients(setting: Setting, group: Group, done: Quantity) -> list[Quantity]:
    """Gradients of finished layers, as stored; all of them where earlier micro-batches left theirs."""
    each = sharded(
        setting, "layer_gradients", group.graded, layer_experts(setting, group), setting.gradient_width, PASSING_WAYS
    )
    off = gradients_leave(setting.case)
    so_far = T.gradients_so_far(size_each=each, layers=group.layers, done=done, carried=setting.carried)
    outside = T.if_carried(called="gradients_outside", size=_outside_gradients(setting), carried=setting.carried)
    return [
        S.on_gpu(called="gradients", size=so_far, offloaded=off),
        S.on_gpu(called="gradients_outside", size=outside, offloaded=off),
    ]


def _outside_gradients(setting: Setting) -> Quantity:
    """Stored gradients of embedding, head and final norm, as far as they train."""
    whole = [setting.embedding, setting.head, setting.rest]
    outside = total("outside_layers", whole if setting.trained else [setting.whole_saved])
    return S.state_bytes(
        called="gradients_outside", params=outside, param_width=setting.gradient_width, ways=setting.ways_gradients
    )


def _instants(setting: Setting, group: Group) -> list[Quantity]:
    """Working sets of the layer's operations with the weight gradients made by then."""
    found = []
    nothing = given(0.0, "param", "largest_params", because=Phrase("because.added"))
    for instant in act.instants(setting, group):
        gradient = T.new_gradient(
            called="new_gradients", params=instant.gradients, param_width=setting.whole_gradient_width,
            carried=_kept_whole(setting), largest_params=group.largest if instant.adding else nothing,
            fused_wgrad=int(setting.stack.fused_wgrad),
        )  # fmt: skip
        copies = T.weight_copies(
            called="weight_copies", params=instant.copied, act_width=setting.store.act,
            autocast=_casts(setting),
        )  # fmt: skip
        found.append(total(f"at_{instant.name}", [instant.working, gradient, copies, *_unpacked(setting, group)]))
    return found


def _unpacked(setting: Setting, group: Group) -> list[Quantity]:
    """A packed base is unpacked one weight at a time for each matrix product."""
    if not packed(setting.case):
        return []
    return [T.unpacked_weight(
        called="unpacked_weight", params=group.largest, param_width=setting.store.act,
        copies=setting.stack.unpacked_copies,
    )]  # fmt: skip


def _casts(setting: Setting) -> int:
    """1 where autocast keeps copies of the weights that train (or of the adapters)."""
    return setting.store.autocast if setting.trained else int(setting.case.recipe.precision.autocast)


def _kept_whole(setting: Setting) -> Quantity:
    """Whether new gradients are added into whole buffers: never where they are sharded as they are made."""
    return T.adds_into_buffer(carried=setting.carried, sharded=setting.ways_passing)


def _head_gradient(setting: Setting) -> Quantity:
    """The head's gradient, made first and whole until it is reduced (FSDP: with the root group)."""
    peft = setting.case.recipe.peft
    if peft and "head" not in peft.modules_to_save:
        return given(0.0, "B", "head_gradient", because=Phrase("because.frozen"))
    if apart(setting):
        return head_gradient(setting)
    size = loss.whole_head(setting, setting.whole_gradient_width)
    if setting.sharded:
        return size
    return T.unless_carried(called="head_gradient", size=size, carried=_kept_whole(setting))


def _head_made(setting: Setting) -> tuple[Quantity, ...]:
    """The head's gradient as its matrix product makes it, where the loss did not make it already."""
    by_loss = setting.case.recipe.loss not in ("full-logits", "fused-ce", "compiled-ce", "chunked-ce")
    if not setting.trained or by_loss or setting.stack.fused_wgrad:
        return ()
    if not loss.by_chunks(setting):
        return (loss.whole_head(setting, setting.whole_gradient_width),)
    # pieces are summed on autocast's copy of the head
    piece = loss.whole_head(setting, where(setting.store.autocast, setting.store.act, setting.whole_gradient_width))
    chunks = setting.case.recipe.loss_chunks
    return (T.summed_gradient(called="head_gradient", size=piece, chunks=chunks, alive=3),)


def _root_reduce(step: Step) -> Quantity:
    """The end of the backward: the embedding's gradient; under FSDP the root group's reduction."""
    setting, held = step.setting, step.held
    if not setting.trained:
        return total("root_reduce", [*held.resident, step.stored])
    x = step.layers[0].input
    if setting.sharded:
        return largest("root_reduce", step.gather.root_moments(held, x, list(step.tables)))
    tied = T.tied_gradients(
        called="tied_gradients", params=setting.embedding, param_width=setting.whole_gradient_width,
        tied=setting.case.model.tied, carried=0 if setting.stack.fused_wgrad else _kept_whole(setting),
    )  # fmt: skip
    sort = T.embedding_sort(called="embedding_sort", tokens=setting.tokens, width=24)
    again = [
        T.if_carried(called="embedding_gradients", size=one, carried=setting.carried)
        for one in partial_embedding(setting)
    ]
    return total("root_reduce", [*held.resident, step.stored, tied, *again, x, sort])


def _optimizer(step: Step) -> Quantity:
    """The optimizer step: all gradients, all states, and the optimizer's temporaries."""
    temporary = [*_step_temporaries(step.setting), *_reduced_table(step.setting), *main_gradients(step.setting)]
    heaviest = [largest("temporaries", temporary)] if len(temporary) > 1 else temporary
    return total("optimizer", [*step.held.resident, step.stored, *heaviest])


def _reduced_table(setting: Setting) -> list[Quantity]:
    """The split embedding's gradient, reduced to this rank's rows for the step."""
    if not partial_embedding(setting):
        return []
    return [T.if_carried(
        called="gradients", carried=np.greater(setting.case.plan.tp, 1),
        size=S.state_bytes(
            called="gradients", params=setting.embedding, param_width=setting.gradient_width, ways=1
        ),
    )]  # fmt: skip


def _step_temporaries(setting: Setting) -> list[Quantity]:
    """What the optimizer's implementation allocates while it steps."""
    recipe, stack = setting.case.recipe, setting.stack
    if setting.case.plan.offload.optimizer in ("cpu", "nvme") or recipe.optimizer_in_backward:
        return []
    width = WIDTH["fp32"] if recipe.precision.master != "none" else setting.width
    if stack.bucket_elements:
        return [
            T.fp32_gradient_slice(
                params=trained_params(setting), ways=setting.ways_states, slice_elements=stack.live_elements, width=4
            )
        ]
    whole = [setting.embedding, setting.head, *(g.largest for g in setting.groups)]
    biggest = largest("largest_weight", whole if setting.trained else [setting.whole_saved])
    match (recipe.optimizer, recipe.optimizer_impl):
        case ("adamw" | "adam", "foreach"):
            return [T.foreach_copy(params=trained_params(setting), param_width=width, ways=setting.ways_states)]
        case ("adamw" | "adam" | "lion" | "adafactor", "for-loop") | ("lion" | "adafactor", _):
            return [T.forloop_copies(largest_params=biggest, param_width=width, copies=2, ways=setting.ways_states)]
        case _:
            return []
