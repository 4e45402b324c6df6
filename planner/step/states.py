"""Weights, gradients, master copy and optimizer states of one rank, and what of them lives on the host."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.calibration.coefficients import priors
from planner.formulas import parameters as P
from planner.formulas import states as S
from planner.formulas import temporaries as T
from planner.i18n import Phrase
from planner.layers import model as M
from planner.layers.ops import Weight
from planner.quantity import Like, Quantity, given, pick, total, value_of
from planner.spec.recipe import CAST_WIDTH, STATES, WIDTH
from planner.step.groups import mixed_units
from planner.step.setting import GRADIENTS_LEAVE, OFFLOADED, Group, Setting, packed


@dataclass(frozen=True, slots=True)
class States:
    """Bytes of one rank. `weights`, `gradients`, `master` and `optimizer` are whole, wherever they live; `passing` are
    the gradients between micro-batches, `resident` is what stays on the GPU through the whole step, `host` what lies in
    host memory."""

    weights: Quantity
    gradients: Quantity
    master: Quantity
    optimizer: Quantity
    passing: Quantity
    buckets: Quantity
    resident: tuple[Quantity, ...]
    host: tuple[Quantity, ...]


#: which of a setting's ways belong to what: states, gradients, weights
STATES_WAYS, GRADIENTS_WAYS, WEIGHTS_WAYS, PASSING_WAYS = 0, 1, 2, 3


def sharded(
    setting: Setting, called: str, params: Quantity, experts: Quantity, param_width: Like, kind: int
) -> Quantity:
    """Bytes of a state on this rank, experts shared by ranks of their own."""
    ways = (setting.ways_states, setting.ways_gradients, setting.ways_weights, setting.ways_passing)[kind]
    if not setting.mixture:
        return S.state_bytes(called=called, params=params, param_width=param_width, ways=ways)
    return S.mixed_state_bytes(
        called=called, params=params, experts=experts, param_width=param_width, ways=ways,
        expert_ways=setting.expert_ways[kind],
    )  # fmt: skip


def layer_experts(setting: Setting, group: Group) -> Quantity:
    """Experts of one layer that train (adapters of experts are counted with the rest)."""
    return group.experts if setting.trained else given(0.0, "param", "experts", because=Phrase("because.frozen"))


def trained_params(setting: Setting) -> Quantity:
    """Parameters of this rank that get gradients, before any sharding over data parallel."""
    layers = [
        P.layers_params(called="trained_layers", layers=g.layers, params=g.trained) for g in setting.groups
    ]
    outside = [setting.embedding, setting.head, setting.rest] if setting.trained else [setting.whole_saved]
    return total("trained_params", [*layers, *outside])


def _graded_params(setting: Setting) -> Quantity:
    """Parameters of this rank that have a gradient, before any sharding."""
    if setting.trained or not mixed_units(setting.case):
        return trained_params(setting)
    return total("params_with_gradient", [
        P.layers_params(called="layers_with_gradient", layers=g.layers, params=g.graded) for g in setting.groups
    ])  # fmt: skip


def trained_experts(setting: Setting) -> Quantity:
    """The experts among them."""
    return total("trained_experts", [
        P.layers_params(called="experts", layers=g.layers, params=layer_experts(setting, g)) for g in setting.groups
    ])  # fmt: skip


def all_params(setting: Setting) -> Quantity:
    """All parameters of this rank before any sharding over data parallel, adapters included."""
    parts = [setting.embedding, setting.head, setting.rest]
    for g in setting.groups:
        parts.append(P.layers_params(called="linear_params", layers=g.layers, params=g.linear))
        parts.append(P.layers_params(called="other_params", layers=g.layers, params=g.other))
        if not setting.trained:
            parts.append(P.layers_params(called="adapter_params", layers=g.layers, params=g.trained))
    return total("local_params", parts)


def _weights(setting: Setting) -> Quantity:
    ways, parts = setting.ways_weights, []
    plain = setting.width if setting.trained else outside_width(setting)
    outside = [setting.embedding, *([] if head_packed(setting) else [setting.head]), setting.rest]
    parts.append(S.state_bytes(
        called="weights_outside", params=total("outside_layers", outside), param_width=plain, ways=ways
    ))  # fmt: skip
    if head_packed(setting):
        parts.append(S.state_bytes(
            called="weights_outside", params=setting.head, param_width=setting.base_width, ways=ways
        ))  # fmt: skip
    for g in setting.groups:
        linear = P.layers_params(called="linear_params", layers=g.layers, params=g.linear)
        experts = P.layers_params(called="experts", layers=g.layers, params=g.experts)
        other = P.layers_params(called="other_params", layers=g.layers, params=g.other)
        parts.append(sharded(setting, "weights_linear", linear, experts, setting.base_width, WEIGHTS_WAYS))
        parts.append(S.state_bytes(called="weights_other", params=other, param_width=plain, ways=ways))
        if not setting.trained:
            adapters = P.layers_params(called="adapter_params", layers=g.layers, params=g.trained)
            parts.append(
                S.state_bytes(called="adapters", params=adapters, param_width=adapter_width(setting), ways=ways)
            )
    if not setting.trained and setting.case.recipe.peft and setting.case.recipe.peft.modules_to_save:
        parts.append(S.state_bytes(
            called="adapters", params=setting.whole_saved, param_width=adapter_width(setting), ways=ways
        ))  # fmt: skip
    return total("weights", parts)


def adapter_width(setting: Setting) -> Like:
    """B/param of an adapter's weights."""
    peft = setting.case.recipe.peft
    return WIDTH[peft.adapter_dtype] if peft else 0


def outside_width(setting: Setting) -> Like:
    """B/param of frozen weights that are not packed: a 4-bit base keeps embeddings, norms and head in 16 bit."""
    return WIDTH["bf16"] if packed(setting.case) else setting.base_width


def head_packed(setting: Setting) -> bool:
    """Whether the head is packed with the layers; never where it is the embedding."""
    return packed(setting.case) and setting.stack.packed_head and not setting.case.model.tied


def states(setting: Setting) -> States:
    """All states of one rank."""
    recipe, plan = setting.case.recipe, setting.case.plan
    params = trained_params(setting)
    weights = _weights(setting)
    experts = trained_experts(setting)
    graded = _graded_params(setting)
    gradients, passing = (
        total("gradients", [
            sharded(setting, "gradients", graded, experts, setting.gradient_width, kind), *partial_embedding(setting),
        ])
        for kind in (GRADIENTS_WAYS, PASSING_WAYS)
    )  # fmt: skip
    master = sharded(setting, "master", params, experts, pick(recipe.precision.master, WIDTH), STATES_WAYS)
    optimizer = _optimizer(setting, params, experts)
    buckets = _buckets(setting, params)
    off_params = pick(plan.offload.params, OFFLOADED)
    off_states = pick(plan.offload.optimizer, OFFLOADED)
    beside = _beside(setting, weights, {"master": master, "optimizer_states": optimizer, "gradients": gradients})
    resident = (
        *_dummy_wgrads(setting),
        *_gemm_workspaces(setting),
        *_cast_weights(setting),
        *(S.on_gpu(called=one.name, size=one, offloaded=off_params if one.name == "weights" else off_states)
          for one in beside),
        S.on_gpu(called="weights", size=weights, offloaded=off_params),
        S.on_gpu(called="master", size=master, offloaded=off_states),
        S.on_gpu(called="optimizer_states", size=optimizer, offloaded=off_states),
        buckets,
    )
    host = (
        S.on_host(called="weights", size=weights, offloaded=off_params),
        S.on_host(called="master", size=master, offloaded=off_states),
        S.on_host(called="optimizer_states", size=optimizer, offloaded=off_states),
        S.on_host(called="gradients", size=_host_gradients(setting, params),
                  offloaded=pick(plan.offload.optimizer, GRADIENTS_LEAVE)),
    )
    return States(weights, gradients, master, optimizer, passing, buckets, resident, host)


def _beside(setting: Setting, weights: Quantity, states: dict[str, Quantity]) -> list[Quantity]:
    """Weights of frozen models, and everything of further trained ones, each as large and as sharded as this one."""
    recipe = setting.case.recipe
    more = recipe.models_trained
    if not recipe.models_beside:
        return []
    return [
        S.models_beside(called="weights", size=weights, models=recipe.models_beside),
        *(S.models_beside(called=name, size=size, models=more) for name, size in states.items() if more),
    ]


def partial_embedding(setting: Setting) -> list[Quantity]:
    """What torch's split embedding adds to its gradient on each rank; an engine that shards reduces it at once."""
    whole = setting.case.plan.data_parallel in ("none", "ddp")
    if setting.stack.tensor_parallel != "torch" or not setting.trained or not whole:
        return []
    return [S.partial_embedding(
        called="gradients", params=setting.embedding, param_width=setting.gradient_width, tp=setting.case.plan.tp
    )]  # fmt: skip


#: optimizers whose states have a dtype of their own, whatever the recipe's precision
PACKED = {"adamw8bit": "int8", "adamw4bit": "int4"}


def _optimizer(setting: Setting, params: Quantity, experts: Quantity) -> Quantity:
    recipe = setting.case.recipe
    name = recipe.optimizer
    if name == "adafactor":
        sums = [
            P.layers_params(called="row_and_column_sums", layers=g.layers, params=_sums(g.weights))
            for g in setting.groups
        ]
        return S.factored_states(
            called="optimizer_states", sums=total("row_and_column_sums", sums), width=4, ways=setting.ways_states
        )
    dtype = PACKED.get(name, recipe.precision.optimizer_state)
    width = S.optimizer_width(called="state_width", states=pick(name, STATES), state_width=pick(dtype, WIDTH))
    held = sharded(setting, "optimizer_states", params, experts, width, STATES_WAYS)
    if name == "muon":
        second = S.state_bytes(
            called="optimizer_states", params=_by_adam(setting), param_width=width, ways=setting.ways_states
        )
        return total("optimizer_states", [held, second])
    if name != "sgd-momentum" or not partial_embedding(setting):
        return held
    whole = S.partial_embedding(  # the momentum begins as a copy of the gradient, and stays as whole as that is
        called="optimizer_states", params=setting.embedding, param_width=width, tp=setting.case.plan.tp
    )
    return total("optimizer_states", [held, whole])


def _by_adam(setting: Setting) -> Quantity:
    """What Muon leaves to Adam, which has a second state: embedding, head and everything that is no matrix."""
    if not setting.trained:
        return given(0.0, "param", "by_adam", because=Phrase("because.frozen"))
    vectors = [P.layers_params(called="other_params", layers=g.layers, params=g.other) for g in setting.groups]
    return total("by_adam", [setting.embedding, setting.head, setting.rest, *vectors])


def _sums(weights: tuple[Weight, ...]) -> Quantity:
    return total("sums", [P.rows_and_cols(called=w.name, rows=w.rows, cols=w.cols, copies=w.copies) for w in weights])


def _buckets(setting: Setting, params: Quantity) -> Quantity:
    """Communication buckets that stay allocated."""
    stack, plan = setting.stack, setting.case.plan
    if plan.data_parallel == "ddp" and stack.ddp_bucket_copy:
        return S.ddp_buckets(
            called="ddp_buckets", params=params, param_width=setting.gradient_width, replicas=plan.dp_replicate
        )
    if plan.data_parallel == "zero" and stack.bucket_elements:
        return T.buckets(
            called="zero_buckets",
            elements=stack.bucket_elements,
            width=setting.gradient_width,
            copies=stack.bucket_copies,
            params=params,
        )
    return given(0.0, "B", "buckets", because=Phrase("because.no-bucket"))


def _dummy_wgrads(setting: Setting) -> list[Quantity]:
    """Placeholder gradients that Transformer Engine caches, one for each distinct shape of a linear weight."""
    if not (setting.stack.dummy_wgrads and setting.trained):
        return []
    linear = [w for g in setting.groups if not g.further for w in g.weights if w.linear and not _is_vector(w)]
    plan = setting.case.plan
    sizes = [M.count(w.name, [replace(w, copies=1)], plan.tp, 1, plan.etp) for w in _distinct(linear)]
    return [T.dummy_wgrads(params=total("distinct_shapes", [*sizes, setting.head]), width=WIDTH["bf16"])]


def _gemm_workspaces(setting: Setting) -> list[Quantity]:
    """Workspaces of matrix products, which torch's own allocator holds from the first step on."""
    stack = setting.stack
    if not stack.gemm_workspaces:
        return []
    recent = setting.case.cluster.accelerator.arch not in OLDER
    return [T.gemm_workspaces(
        called="gemm_workspaces", each=priors()["gemm_workspace" if recent else "gemm_workspace_older"].at(),
        plain=stack.gemm_workspaces, grouped=stack.grouped_workspaces if _grouped(setting) else 0,
    )]  # fmt: skip


def main_gradients(setting: Setting) -> list[Quantity]:
    """The fp32 copies of 16-bit gradients that Megatron's optimizer steps with, on its share of the states."""
    precision = setting.case.recipe.precision
    wide = np.all(np.greater_equal(value_of(setting.gradient_width), WIDTH["fp32"]))
    wide = wide or precision.optimizer_state != "fp32"  # narrower states: an optimizer that takes gradients as they are
    if not setting.stack.main_gradients or precision.master == "none" or wide:
        return []
    return [sharded(setting, "fp32_gradients", trained_params(setting), trained_experts(setting), WIDTH["fp32"],
                    STATES_WAYS)]  # fmt: skip


def _cast_weights(setting: Setting) -> list[Quantity]:
    """Casts of the linear weights that Transformer Engine makes for the first micro-batch and keeps for the others."""
    copies, width = setting.stack.cast_weights, CAST_WIDTH.get(setting.case.recipe.precision.gemm, 0)
    if not (copies and width and setting.trained) or setting.sharded:
        return []
    linear = [P.layers_params(called="linear_params", layers=g.layers, params=g.linear) for g in setting.groups]
    return [T.cast_weights(called="weight_copies", params=total("linear_params", linear), width=width, copies=copies)]


#: GPUs before Hopper: their matrix products get a smaller workspace
OLDER = ("Volta", "Turing", "Ampere", "Ada")


def _grouped(setting: Setting) -> bool:
    """Whether experts run as one grouped product: wherever a token has several of them, as all recent mixtures do."""
    return any(g.spec.mlp.kind == "moe" and bool(np.all(np.greater(g.spec.mlp.experts_per_token, 1)))
               for g in setting.groups)  # fmt: skip


def _is_vector(weight: Weight) -> bool:
    return isinstance(weight.rows, int) and weight.rows == 1


def _distinct(weights: list[Weight]) -> list[Weight]:
    """One weight for each pair of equal sizes."""
    return list({(str(value_of(w.rows)), str(value_of(w.cols))): w for w in weights}.values())


def _host_gradients(setting: Setting, params: Quantity) -> Quantity:
    """The CPU optimizer reads fp32 gradients from host memory."""
    return S.state_bytes(called="host_gradients", params=params, param_width=WIDTH["fp32"], ways=setting.ways_states)
