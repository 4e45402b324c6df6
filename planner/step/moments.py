"""The moments of a step that can be its peak, each the sum of what lives then.

Loss, end of the forward, the backward of one layer, the embedding's gradient (under FSDP: the root group's
reduction) and the optimizer step. Derived from traces of real code; see docs/explanation/memory.md.
"""

from __future__ import annotations

from planner.formulas import activations as A
from planner.formulas import parameters as P
from planner.formulas import states as S
from planner.formulas import temporaries as T
from planner.quantity import Quantity, given, largest, total
from planner.step import activations as act
from planner.step import loss
from planner.step.gathering import Gathering, gathering
from planner.step.setting import Group, Setting
from planner.step.states import OFFLOADED, States, states, trained_params
from planner.quantity import pick


def moments(setting: Setting) -> dict[str, Quantity]:
    """Bytes alive at each moment, by the phase's name in the command line's contract."""
    held = states(setting)
    gather = gathering(setting)
    return {
        "forward": _forward(setting, held, gather),
        "loss": _loss(setting, held, gather),
        "backward": _backward(setting, held, gather),
        "root_reduce": _root_reduce(setting, held, gather),
        "optimizer": _optimizer(setting, held),
    }


def _waiting(setting: Setting) -> list[Quantity]:
    """Activations of other micro-batches in the pipeline."""
    plan = setting.case.plan
    flight = A.in_flight_1f1b(
        called="in_flight", pp=plan.pp, stage=setting.stage.index, microbatches=plan.accumulation
    )
    each = total("kept_each_microbatch", _kept(setting))
    return [A.waiting_kept(called="waiting_microbatches", bytes_each=each, in_flight=flight)]


def _kept(setting: Setting) -> list[Quantity]:
    """Everything autograd keeps of one micro-batch on this stage."""
    layers = [act.kept_by_layers(setting, g, act.tensors(setting, g)) for g in setting.groups]
    return [*layers, *act.outside_layers(setting)]


def _gradients_before(setting: Setting, held: States) -> Quantity:
    """Gradients that exist before this backward."""
    return T.if_carried(called="gradients", size=_stored_gradients(setting, held), carried=setting.carried)


def _stored_gradients(setting: Setting, held: States) -> Quantity:
    """All gradients as they stay on the GPU; with the optimizer on the host they leave in buckets."""
    off = pick(setting.case.plan.offload.optimizer, OFFLOADED)
    return S.on_gpu(called="gradients", size=held.gradients, offloaded=off)


def _forward(setting: Setting, held: States, gather: Gathering) -> Quantity:
    """End of the forward: all saved tensors, the loss's forward, and under autocast every weight copy."""
    copies = [
        A.whole_copies(called="weight_copies", size=act.tensors(setting, g).copies, layers=g.layers)
        for g in setting.groups
    ]
    return total(
        "forward",
        [
            *held.resident, _gradients_before(setting, held), *_kept(setting), *_waiting(setting),
            *copies, *loss.head_copy(setting), loss.forward(setting), *loss.last_hidden(setting),
            gather.root, gather.kept_gathered,
        ],
    )  # fmt: skip


def _loss(setting: Setting, held: States, gather: Gathering) -> Quantity:
    """The backward of the loss, the heaviest instant of most runs with a large vocabulary."""
    flag = act.recomputed(setting)
    copies = [
        A.copies_at_loss(
            called="weight_copies", size=act.tensors(setting, g).copies, layers=g.layers, recomputed=flag
        )
        for g in setting.groups
    ]
    return total(
        "loss",
        [
            *held.resident, _gradients_before(setting, held), *_kept(setting), *_waiting(setting),
            *copies, *loss.head_copy(setting), loss.backward(setting), *loss.outputs(setting),
            gather.root, gather.at_loss, gather.kept_gathered,
        ],
    )  # fmt: skip


def _backward(setting: Setting, held: States, gather: Gathering) -> Quantity:
    """One layer's backward, at the layer and the operation where it is heaviest."""
    fixed = [
        *held.resident, *act.shared_tables(setting), *act.embedding_mask(setting), *_waiting(setting),
        _head_gradient(setting), gather.root,
    ]  # fmt: skip
    places = []
    for group in setting.groups:
        others = _other_groups(setting, group)
        position = largest("position", [_position(setting, held, gather, group, n) for n in ("last", "next", "second", "first")])
        instant = largest("instant", _instants(setting, group))
        places.append(total("layer_backward", [*others, position, instant, gather.layer]))
    return total("backward", [*fixed, largest("heaviest_layer", places)])


def _other_groups(setting: Setting, group: Group) -> list[Quantity]:
    """Saved tensors of layers of another kind, all alive when this kind's backward is at its heaviest."""
    return [act.kept_by_layers(setting, g, act.tensors(setting, g)) for g in setting.groups if g is not group]


def _position(setting: Setting, held: States, gather: Gathering, group: Group, name: str) -> Quantity:
    """What depends on how many layers are done: kept tensors, gradients, prefetched and reduced groups."""
    done = A.layers_done(called=f"done_{name}", layers=group.layers, place=("last", "next", "second", "first").index(name))
    layer = act.tensors(setting, group)
    flag = act.recomputed(setting)
    kept = A.kept_in_backward(
        called="kept_by_layers", saved=layer.saved, input=layer.input, layers=group.layers, done=done,
        every=setting.case.recipe.checkpoint_every, recomputed=flag,
    )  # fmt: skip
    copies = T.all_weight_copies(
        called="weight_copies", size=layer.copies, layers=group.layers, done=done, recomputed=flag
    )
    return total(f"at_{name}_layer", [kept, copies, *_gradients(setting, held, group, done), *gather.at(group, done)])


def _gradients(setting: Setting, held: States, group: Group, done: Quantity) -> list[Quantity]:
    """Gradients of finished layers, as stored; all of them where earlier micro-batches left theirs."""
    each = S.state_bytes(
        called="layer_gradients", params=group.trained, param_width=setting.gradient_width, ways=setting.ways_gradients
    )
    off = pick(setting.case.plan.offload.optimizer, OFFLOADED)
    so_far = T.gradients_so_far(size_each=each, layers=group.layers, done=done, carried=setting.carried)
    outside = T.if_carried(called="gradients_outside", size=_outside_gradients(setting), carried=setting.carried)
    return [
        S.on_gpu(called="gradients", size=so_far, offloaded=off),
        S.on_gpu(called="gradients_outside", size=outside, offloaded=off),
    ]


def _outside_gradients(setting: Setting) -> Quantity:
    """Stored gradients of embedding, head and final norm."""
    if not setting.trained:
        return given(0.0, "B", "gradients_outside", because="frozen")
    outside = total("outside_layers", [setting.embedding, setting.head, setting.rest])
    return S.state_bytes(
        called="gradients_outside", params=outside, param_width=setting.gradient_width, ways=setting.ways_gradients
    )


def _instants(setting: Setting, group: Group) -> list[Quantity]:
    """Working sets of the layer's operations with the weight gradients made by then."""
    found = []
    for instant in act.instants(setting, group):
        gradient = T.new_gradient(
            called="new_gradients", params=instant.gradients, param_width=setting.whole_gradient_width,
            carried=_kept_whole(setting), largest_params=group.largest, fused_wgrad=int(setting.stack.fused_wgrad),
        )  # fmt: skip
        copies = T.weight_copies(
            called="weight_copies", params=instant.copied, act_width=setting.store.act,
            autocast=_casts(setting),
        )  # fmt: skip
        found.append(total(f"at_{instant.name}", [instant.working, gradient, copies]))
    return found


def _casts(setting: Setting) -> int:
    """1 where autocast keeps copies of the weights that train (or of the adapters)."""
    return setting.store.autocast if setting.trained else int(setting.case.recipe.precision.autocast)


def _kept_whole(setting: Setting) -> Quantity:
    """Whether new gradients are added into whole buffers: never where they are sharded as they are made."""
    return T.adds_into_buffer(carried=setting.carried, sharded=setting.ways_gradients)


def _head_gradient(setting: Setting) -> Quantity:
    """The head's gradient, made first and whole until it is reduced (FSDP: with the root group)."""
    if not setting.trained:
        return given(0.0, "B", "head_gradient", because="frozen")
    params = P.embedding_or_head(
        called="head_weights", embedding=setting.embedding, head=setting.head, tied=setting.case.model.tied
    )
    size = S.state_bytes(called="head_gradient", params=params, param_width=setting.whole_gradient_width, ways=1)
    if setting.sharded:
        return size
    return T.unless_carried(called="head_gradient", size=size, carried=setting.carried)


def _root_reduce(setting: Setting, held: States, gather: Gathering) -> Quantity:
    """The end of the backward: the embedding's gradient; under FSDP the root group's reduction."""
    if not setting.trained:
        return total("root_reduce", [*held.resident, _stored_gradients(setting, held)])
    x = act.tensors(setting, setting.groups[0]).input
    if setting.sharded:
        return largest("root_reduce", gather.root_moments(held, x, act.shared_tables(setting)))
    tied = T.tied_gradients(
        called="tied_gradients", params=setting.embedding, param_width=setting.whole_gradient_width,
        tied=setting.case.model.tied,
    )  # fmt: skip
    sort = T.embedding_sort(called="embedding_sort", tokens=setting.tokens, width=24)
    return total("root_reduce", [*held.resident, _stored_gradients(setting, held), tied, x, sort])


def _optimizer(setting: Setting, held: States) -> Quantity:
    """The optimizer step: all gradients, all states, and the optimizer's temporaries."""
    return total("optimizer", [*held.resident, _stored_gradients(setting, held), *_step_temporaries(setting)])


def _step_temporaries(setting: Setting) -> list[Quantity]:
    """What the optimizer's implementation allocates while it steps."""
    recipe, stack = setting.case.recipe, setting.stack
    if setting.case.plan.offload.optimizer == "cpu":
        return []
    width = max(setting.width, 4) if recipe.precision.master != "none" else setting.width
    if stack.bucket_elements:
        return [
            T.fp32_gradient_slice(
                params=trained_params(setting), ways=setting.ways_states, slice_elements=stack.live_elements, width=4
            )
        ]
    biggest = largest("largest_weight", [setting.embedding, setting.head, *(g.largest for g in setting.groups)])
    match (recipe.optimizer, recipe.optimizer_impl):
        case ("adamw" | "adam", "foreach"):
            return [T.foreach_copy(params=trained_params(setting), param_width=width, ways=setting.ways_states)]
        case ("adamw" | "adam" | "lion" | "adafactor", "for-loop") | ("lion" | "adafactor", _):
            return [T.forloop_copies(largest_params=biggest, param_width=width, copies=2, ways=setting.ways_states)]
        case _:
            return []
