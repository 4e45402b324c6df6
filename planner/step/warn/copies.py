"""Warnings about copies: weights, gradients and states that a plan keeps whole, twice, or wider than it seems."""

from __future__ import annotations

from collections.abc import Iterator

from planner.formulas import overheads as O
from planner.formulas import parameters as P
from planner.formulas import states as S
from planner.formulas import temporaries as T
from planner.quantity import Like, pick, total
from planner.spec.recipe import MODELS, STATES, WIDTH
from planner.step.states import adapter_width, trained_params
from planner.step.warn.facts import LOW_HEADROOM, Facts
from planner.step.warn.order import Warning, size, warning

#: share of the card from which a base that every GPU holds whole is worth sharding
BIG_BASE = 0.25
#: loops that skip the reduction of all but the last micro-batch unless told otherwise
NO_SYNC = ("hf-transformers", "pytorch")


def _sharding(facts: Facts) -> Iterator[Warning]:
    """Sharded over one rank; with offload that is meant, and beside tp or pp it is only left over."""
    plan, offload = facts.case.plan, facts.case.plan.offload
    moved = offload.params != "none" or offload.optimizer in ("cpu", "nvme")
    alone = plan.dp_shard == plan.cp == plan.tp == plan.pp == 1
    if plan.zero and alone and not moved:
        held = facts.memory.states
        states = total("states", [held.weights, held.gradients, held.master, held.optimizer])
        yield warning("sharding_degree_one", kind=plan.data_parallel, states=size(states))


def _base(facts: Facts) -> Iterator[Warning]:
    """A frozen base: in fp32, replicated, or in storage that FSDP cannot shard."""
    peft, plan, weights = facts.case.recipe.peft, facts.case.plan, facts.memory.states.weights
    if peft is None:
        return
    if peft.base_dtype == "fp32":
        yield warning("frozen_weights_loaded_in_fp32", weights=size(weights))
    replicas = max(plan.dp_replicate, plan.dp_shard)
    if facts.packed and replicas > 1 and plan.zero < 3 and (facts.of_card(weights) > BIG_BASE or not facts.fits):
        code = "quantized_base_replicated_under_zero2" if plan.zero else "ddp_replicates_quantized_base"
        yield warning(code, base=size(weights), usable=size(facts.memory.usable), replicas=replicas)
    if facts.ways > 1 and plan.fully_sharded:
        yield from _mixed(facts)


def _mixed(facts: Facts) -> Iterator[Warning]:
    """Frozen and trained weights under FSDP."""
    peft, weights = facts.case.recipe.peft, facts.memory.states.weights
    if facts.case.plan.data_parallel == "fsdp1" and facts.matters(weights):
        yield warning("fsdp1_mixed_frozen_flat_params", gradients=size(weights))
    if peft is not None and peft.base_dtype.startswith("nf4"):
        linear = [P.layers_params(called="linear_params", layers=g.layers, params=g.linear) for g in facts.work.groups]
        whole = T.gathered(called="base", params=total("linear", linear), param_width=facts.work.base_width)
        if facts.matters(O.apart(a=whole, b=weights)):
            yield warning("fsdp_qlora_storage_dtype", whole=size(whole), compute=facts.case.recipe.precision.compute)


def _saved_modules(facts: Facts) -> Iterator[Warning]:
    """Embedding or head that train whole beside adapters."""
    peft, recipe, work = facts.case.recipe.peft, facts.case.recipe, facts.work
    if peft is None or not peft.modules_to_save:
        return
    moments = S.optimizer_width(
        called="moments",
        states=pick(recipe.optimizer, STATES),
        state_width=pick(recipe.precision.optimizer_state, WIDTH),
    )
    widths: dict[str, Like] = {
        "copy": adapter_width(work), "gradients": work.gradient_width, "moments": moments,
    }  # fmt: skip
    found = total("whole_saved", [
        S.state_bytes(called=name, params=work.whole_saved, param_width=width, ways=1) for name, width in widths.items()
    ])  # fmt: skip
    if facts.of_card(found) > LOW_HEADROOM or facts.of_peak(found) > LOW_HEADROOM:
        yield warning("embedding_or_head_trainable", modules=", ".join(peft.modules_to_save), states=size(found))


def _upcasts(facts: Facts) -> Iterator[Warning]:
    """Weights that are quantised, or that Accelerate widens, though the plan counts them narrow."""
    case, precision, held = facts.case, facts.case.recipe.precision, facts.memory.states
    if case.recipe.peft is not None:
        return
    if precision.params in ("fp8", "int8") and precision.master == "none":
        yield warning("full_ft_on_quantized_weights", params=precision.params)
    fsdp = facts.runs("hf-transformers") and case.plan.fully_sharded
    if fsdp and precision.params in ("bf16", "fp16") and precision.master == "none":
        now = total("states", [held.weights, held.gradients, held.optimizer])
        fp32 = WIDTH["fp32"]
        moments = S.optimizer_width(called="moments", states=pick(case.recipe.optimizer, STATES), state_width=fp32)
        widths: dict[str, Like] = {"weights": fp32, "gradients": fp32, "optimizer": moments}
        wide = total("states", [
            S.state_bytes(called=name, params=trained_params(facts.work), param_width=each, ways=facts.ways)
            for name, each in widths.items()
        ])  # fmt: skip
        yield warning("fsdp_mixed_precision_upcasts", params=precision.params, now=size(now), wide=size(wide))


def _no_sync(facts: Facts) -> Iterator[Warning]:
    """Gradient accumulation that does not reduce keeps the whole gradients on every rank."""
    case, sharded = facts.case, facts.memory.states.gradients
    loop = case.plan.fully_sharded and facts.runs(*NO_SYNC) and case.plan.offload.optimizer == "none"
    if not loop or case.plan.accumulation == 1 or facts.ways == 1:
        return
    whole = S.state_bytes(
        called="gradients", params=trained_params(facts.work), param_width=facts.work.reduce_width, ways=1
    )
    extra = O.apart(a=whole, b=sharded)
    if facts.matters(extra):
        yield warning(
            "fsdp_no_sync_unsharded_grads", whole=size(whole), sharded=size(sharded), extra=size(extra),
            headroom=size(facts.memory.headroom), accumulation=case.plan.accumulation,
        )  # fmt: skip


def _reference(facts: Facts) -> Iterator[Warning]:
    """Frozen models beside the trained one; adapters share theirs."""
    task = facts.stated_for("recipe.task")
    if task in MODELS and facts.case.recipe.peft is None:
        trained, frozen = MODELS[task]
        yield warning(
            "rl_model_copies", task=task, trained=trained, frozen=frozen, weights=size(facts.memory.states.weights)
        )


def _fp8(facts: Facts) -> Iterator[Warning]:
    stated = facts.stated_for("recipe.precision.gemm") or facts.stated_for("recipe.precision.fp8")
    if stated:
        held = facts.memory.states
        kept = total("states", [held.weights, held.master, held.gradients])
        yield warning("fp8_keeps_high_precision_weights", stated=stated, kept=size(kept))


CHECKS = (_sharding, _base, _saved_modules, _upcasts, _no_sync, _reference, _fp8)
