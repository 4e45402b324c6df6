"""What one rank keeps between forward and backward, and what lives while one layer's backward runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.formulas import activations as A
from planner.formulas import parameters as P
from planner.formulas import states as S
from planner.formulas import temporaries as T
from planner.layers import model as M
from planner.layers import norm as N
from planner.layers.ops import Op
from planner.quantity import Like, Quantity, largest, pick, total
from planner.step import selective
from planner.step.setting import OFFLOADED, Group, Setting, casts_base

#: by name: whether layers are recomputed, and whether they keep less than everything
RECOMPUTED: dict[str, float] = {
    "none": 0, "full": 1, "every-k": 1, "partial-layers": 1, "selective-op": 1, "selective-modules": 0,
}  # fmt: skip
REDUCED: dict[str, float] = {**RECOMPUTED, "selective-modules": 1}
#: layers before the first that LLaMA-Adapter gives a prompt
FIRST_PROMPT = 2
#: the tensors that a layer's linears read
LINEAR_INPUTS = ("norm1.output", "norm2.output", "norm3.output", "attention.output_copy", "mlp.product")
#: more regions than any model has
ALL_REGIONS = 1_000_000


@dataclass(frozen=True, slots=True)
class LayerTensors:
    """One layer: saved tensors of a micro-batch, what its checkpoint keeps of them, its input alone, and the copies
    autocast makes of its weights (B)."""

    saved: Quantity
    kept: Quantity
    input: Quantity
    copies: Quantity


def saved_per_token(group: Group) -> Quantity:
    """The saved tensors of one layer, B/token."""
    return total("saved_per_token", [kept for op in group.ops for kept in op.saved])


def stream_per_token(setting: Setting) -> Quantity:
    """The residual stream as one rank keeps it, B/token."""
    store = setting.store
    ways = A.sequence_ways(called="stream_ways", tp=store.tp, sequence_parallel=store.sp)
    local = P.local_channels(called="stream_channels", channels=setting.case.model.hidden, tp=ways)
    return A.checkpoint_kept(called="stream_per_token", channels=local, stream_width=store.stream)


def tensors(setting: Setting, group: Group) -> LayerTensors:
    """Bytes of one layer and micro-batch."""
    store = setting.store
    cast = store.autocast if setting.trained else int(setting.case.recipe.precision.autocast)
    params = group.linear if setting.trained or casts_base(setting.case) else group.trained
    own = A.microbatch_bytes(called="layer_input", tokens=setting.tokens, per_token=stream_per_token(setting))
    saved = A.microbatch_bytes(called="layer_saved", tokens=setting.tokens, per_token=saved_per_token(group))
    return LayerTensors(
        saved=_with_updates(setting, group, saved),
        kept=_kept(setting, group, own),
        input=own,
        copies=T.weight_copies(called="layer_weight_copies", params=params, act_width=store.act, autocast=cast),
    )


def _with_updates(setting: Setting, group: Group, saved: Quantity) -> Quantity:
    """A method that makes an update as large as each adapted weight keeps it for the gradient of its parts."""
    if setting.store.adapter_keeps != "update":
        return saved
    weights = [w for w in group.weights if w.name in setting.store.adapted]
    params = M.count("adapter_updates", weights, setting.case.plan.tp)
    update = S.state_bytes(called="adapter_updates", params=params, param_width=setting.store.adapter_act, ways=1)
    return total("layer_saved", [saved, update])


def _kept(setting: Setting, group: Group, own: Quantity) -> Quantity:
    """What the checkpoint of one layer keeps of a micro-batch: its input, and what a selective policy keeps besides."""
    match setting.case.recipe.checkpointing:
        case "selective-op":
            per_token = total("kept_per_token", [stream_per_token(setting), *selective.by_operator(setting, group)])
        case "selective-modules":
            per_token = total("kept_per_token", selective.without_modules(setting, group))
        case _:
            return own
    return A.microbatch_bytes(called="layer_kept", tokens=setting.tokens, per_token=per_token)


def recomputed(setting: Setting) -> Like:
    """1 where whole layers are recomputed in the backward, else 0."""
    flag: Like = pick(setting.case.recipe.checkpointing, RECOMPUTED)
    return flag


def regions(setting: Setting) -> dict[str, Any]:
    """Which layers keep less: regions of so many layers, each k-th of them, so many at most."""
    recipe = setting.case.recipe
    partial = recipe.checkpointing == "partial-layers"
    return {
        "region": recipe.checkpoint_region, "every": recipe.checkpoint_every,
        "most": recipe.checkpoint_most if partial else ALL_REGIONS, "recomputed": pick(recipe.checkpointing, REDUCED),
    }  # fmt: skip


def kept_by_layers(setting: Setting, group: Group, layer: LayerTensors) -> Quantity:
    """All layers after the forward of one micro-batch: saved tensors, or of recomputed regions what is kept of them."""
    size = A.kept_after_forward(
        called="kept_by_layers", saved=layer.saved, checkpointed=layer.kept, layers=group.layers, **regions(setting)
    )
    return on_gpu(setting, without_first_norm(setting, group, size, -1), group.layers)


def without_first_norm(setting: Setting, group: Group, size: Quantity, done: Like) -> Quantity:
    """What layers keep, less what the very first one does not keep ahead of its adapters: the embedding is frozen."""
    if setting.store.prompted:
        return _behind_prompts(setting, group, size)
    if setting.trained or group is not setting.groups[0]:
        return size
    branches = [group.ops]
    if "norm_shared" in (names := [op.name for op in group.ops]):
        at = names.index("norm_shared")
        branches = [group.ops[:at], group.ops[at:]]
    ahead = [kept for ops in branches for kept in _ahead_of_adapters(ops)]
    if not ahead:
        return size
    own = total("ahead_of_adapters", ahead)
    return A.without_first_norm(
        called=size.name, size=size, layers=group.layers, done=done, recomputed=recomputed(setting),
        unsaved=A.microbatch_bytes(called="first_norm", tokens=setting.tokens, per_token=own),
    )  # fmt: skip


def _ahead_of_adapters(ops: tuple[Op, ...]) -> list[Quantity]:
    """What operations would keep whose input needs no gradient: all before the first that feeds an adapter."""
    found: list[Quantity] = []
    for op in ops:
        adapted = any(".adapter_" in kept.name for kept in op.saved)
        if not adapted or op.name.startswith("norm"):
            found += [kept for kept in op.saved if ".adapter_" not in kept.name]
        if adapted:
            break
    return found


def _behind_prompts(setting: Setting, group: Group, size: Quantity) -> Quantity:
    """What layers keep, less the first layers, which have no prompt; V2 trains their norms and keeps them."""
    if setting.store.scaled or group is not setting.groups[0]:
        return size
    layer = A.microbatch_bytes(called="layer_saved", tokens=setting.tokens, per_token=saved_per_token(group))
    return A.without_first_layers(
        called=size.name, size=size, saved=layer, first=FIRST_PROMPT, recomputed=recomputed(setting)
    )


def former_inputs(setting: Setting) -> list[Quantity]:
    """Inputs that linears of a packed base keep of the pass before, where the loop still holds its graph.

    They hang on the graph's nodes, not among the tensors that the backward releases.
    """
    if not (setting.store.packed_inputs and setting.stack.keeps_graph):
        return []
    again = recomputed(setting)
    return [
        A.former_inputs(
            called="former_inputs", layers=g.layers, recomputed=again,
            size=A.microbatch_bytes(called="layer_inputs", tokens=setting.tokens, per_token=_linear_inputs(g)),
        )
        for g in setting.groups
    ]  # fmt: skip


def _linear_inputs(group: Group) -> Quantity:
    """What a layer's linears read, each tensor once, B/token."""
    read = [kept for op in group.ops for kept in op.saved if kept.name in LINEAR_INPUTS]
    apart = [kept for op in group.ops for kept in op.saved if kept.name == "attention.output"]
    copied = any(kept.name == "attention.output_copy" for kept in read)
    return total("linear_inputs", read if copied else [*read, *apart])


def on_gpu(setting: Setting, size: Quantity, layers: Like) -> Quantity:
    """What layers keep, less what activation offload sends to the host."""
    if np.all(np.equal(setting.case.plan.offload.activations, "none")):
        return size
    flag = pick(setting.case.plan.offload.activations, OFFLOADED)
    again = recomputed(setting)
    return A.kept_on_gpu(called=size.name, size=size, layers=layers, recomputed=again, offloaded=flag)


def outside_layers(setting: Setting) -> list[Quantity]:
    """Kept outside the layers: ids and the final norm."""
    model, store = setting.case.model, setting.store
    last = N.op(model.groups[-1].norm, "final_norm", model.hidden, store, ("head",), store.stream)
    final = A.microbatch_bytes(
        called="final_norm_saved", tokens=setting.tokens, per_token=total("final_norm", last.saved)
    )
    return [
        A.token_ids(called="ids", tokens=setting.tokens, width=8),
        P.on_stage_bytes(called="final_norm_saved", size=final, present=setting.stage.head),
    ]


def shared_tables(setting: Setting) -> list[Quantity]:
    """Rotary cosines and sines, and the attention mask that recomputed layers take as an input."""
    model, seq = setting.case.model, setting.case.recipe.seq_len
    attention, store = model.groups[0].attention, setting.store
    tables, again = [], recomputed(setting)
    if model.position == "rope":
        tables.append(
            A.rope_tables(called="rope", seq_len=seq, head_dim=attention.head_dim, width=store.stream, tables=2)
        )
    if store.attention == "eager":
        kinds = 1 if attention.window is None else 2
        tables.append(A.shared_mask(seq_len=seq, width=store.stream, window=0, kinds=kinds, recomputed=again))
    elif attention.window is not None and store.attention != "flash":
        tables.append(A.shared_mask(seq_len=seq, width=1, window=attention.window, kinds=1, recomputed=again))
    return tables


def embedding_mask(setting: Setting) -> list[Quantity]:
    """The embedding's dropout mask (models with learned positions)."""
    if not setting.store.dropout or setting.case.model.position != "learned":
        return []
    mask = A.kept(called="embedding.dropout_mask", channels=setting.case.model.hidden, width=1)
    return [A.microbatch_bytes(called="embedding_mask", tokens=setting.tokens, per_token=mask)]


@dataclass(frozen=True, slots=True)
class Instant:
    """The heaviest instant of one operation's backward: tensors alive (B), gradients made so far (param).

    adding  whether a gradient may be on its way into its buffer: not while an operation without weights is at work
    """

    name: str
    working: Quantity
    gradients: Quantity
    copied: Quantity
    adding: bool


def instants(setting: Setting, group: Group) -> list[Instant]:
    """One instant for each operation whose backward can be the heaviest of the layer."""
    stream, held = stream_per_token(setting), held_gradients(setting)
    return [
        _instant(setting, group, stream, group.ops[:i], op, after, held)
        for i, (op, *after) in enumerate(_from_each(group.ops))
        if op.working
    ]


def held_gradients(setting: Setting) -> list[Quantity]:
    """FSDP1 over frozen weights, reentrant checkpoints: each recomputed layer's input and its gradient stay to the end.

    The inputs count as kept anyway where the last layer is at work, so it is there that the gradients are added; they
    all exist when the first layer is, and the sum is the same.
    """
    recipe, plan = setting.case.recipe, setting.case.plan
    hooked = not setting.trained and setting.stack.reentrant and plan.data_parallel == "fsdp1"
    if not hooked or recipe.checkpointing != "full":
        return []
    each = A.microbatch_bytes(called="layer_input", tokens=setting.tokens, per_token=stream_per_token(setting))
    return [A.held_gradients(called="held_gradients", size=each, layers=g.layers) for g in setting.groups]


def _from_each(ops: tuple[Op, ...]) -> list[tuple[Op, ...]]:
    """The operations from each one on."""
    return [ops[i:] for i in range(len(ops))]


def _instant(
    setting: Setting, group: Group, stream: Quantity, before: tuple[Op, ...], op: Op, after: list[Op],
    held: list[Quantity],
) -> Instant:  # fmt: skip
    plan = setting.case.plan
    split = {"tp": plan.tp, "ep": plan.ep, "etp": plan.etp}
    alive = [kept for earlier in before for kept in earlier.saved]
    passing = () if op.name.startswith("norm") else (stream,)  # a norm's working set counts what passes by
    per_token = total(f"{op.name}.alive", [*alive, *op.working, group.own_input, *passing])
    done = [w for later in after for w in later.weights] + (list(op.weights) if op.makes_own else [])
    earlier = [w for o in before for w in o.weights if w.linear]
    if setting.trained:
        gradients = M.count(f"{op.name}.gradients", done, **split)
        copied = M.count(f"{op.name}.copied", earlier, **split)
    else:
        gradients, copied = group.graded, group.trained
    working = A.microbatch_bytes(called=f"{op.name}.working", tokens=setting.tokens, per_token=per_token)
    return Instant(
        op.name,
        total("alive_at_once", [working, *held]) if held else working,
        gradients,
        copied,
        bool(op.weights) or not setting.trained,
    )


def worst_instant(found: list[Instant]) -> Quantity:
    """The largest working set, without gradients (for reports)."""
    return largest("layer_working_set", [i.working for i in found])
