"""The single changes that help a run most: each neighbouring case is evaluated, none is assumed to help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner import cases
from planner.errors import PlannerError
from planner.formulas import overheads as O
from planner.i18n import t
from planner.quantity import value_of
from planner.spec.case import Case
from planner.step.evaluate import Estimate, evaluate
from planner.units import GIB

#: B; less freed memory is not worth a line
WORTH_SAYING = 0.05 * GIB
_ORDER = {"oom": 0, "edge": 1, "fits": 2}


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change: its key, the dotted fields that make it, the estimate after it, and the memory saved in B."""

    key: str
    changes: dict[str, Any]
    estimate: Estimate
    saved: float
    values: tuple[tuple[str, Any], ...] = ()

    @property
    def title(self) -> str:
        """The change in words."""
        return t(f"change.{self.key}", **dict(self.values))


def remedies(found: Estimate) -> list[Remedy]:
    """Changes that free memory, those that reach a better verdict first, then the gentlest (the order of the list)."""
    made = list(_tried(found))
    better = [r for r in made if _ORDER[r.estimate.verdict] > _ORDER[found.verdict]]
    made = [r for r in made if r in better or r.saved > WORTH_SAYING]
    rest = [r for r in made if r not in better]
    best_first = sorted(better, key=lambda r: -_ORDER[r.estimate.verdict])
    return [*best_first, *sorted(rest, key=lambda r: -r.saved)]


def path(found: Estimate, most: int = 4) -> list[Remedy]:
    """Changes that together make a run fit, one after the other; empty where no few changes do."""
    steps: list[Remedy] = []
    here = found
    while here.verdict != "fits" and len(steps) < most:
        options = remedies(here)
        if not options:
            return []
        better = options[0] if _ORDER[options[0].estimate.verdict] > _ORDER[here.verdict] else _most(options)
        steps.append(better)
        here = better.estimate
    return steps if here.verdict == "fits" else []


def _most(options: list[Remedy]) -> Remedy:
    return max(options, key=lambda r: r.saved)


def _tried(found: Estimate) -> Iterator[Remedy]:
    for key, changes, values in _neighbours(found.case):
        try:
            after = evaluate(cases.changed(found.case, changes, found.case.model))
        except PlannerError:
            continue  # this change is not legal here
        if after.host.verdict == "oom":
            continue
        saved = O.headroom(usable=after.memory.headroom, device=found.memory.headroom)
        yield Remedy(key, changes, after, float(value_of(saved)), tuple(values.items()))


def _neighbours(case: Case) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Changes worth trying, gentlest first: those that keep the result, then those that change it."""
    recipe, plan = case.recipe, case.plan
    if recipe.attention == "eager":
        yield "flash", {"recipe.attention": "sdpa"}, {}
    if recipe.allocator == "native":
        yield "expandable", {"recipe.allocator": "expandable"}, {}
    if recipe.optimizer_impl != "fused" and recipe.optimizer in ("adamw", "adam"):
        yield "fused-optimizer", {"recipe.optimizer_impl": "fused"}, {}
    if recipe.loss in ("full-logits", "fused-ce"):
        yield "loss-chunked", {"recipe.loss": "chunked-linear-ce", "recipe.loss_chunks": 8}, {}
    if recipe.checkpointing != "full":
        yield "checkpointing-full", {"recipe.checkpointing": "full"}, {}
    if plan.tp > 1 and not plan.sequence_parallel:
        yield "sequence-parallel", {"plan.sequence_parallel": True}, {}
    if plan.micro_batch > 1:
        half = plan.micro_batch // 2
        yield "micro-batch", {"plan.micro_batch": half}, {"micro_batch": half}
    if recipe.precision.preset in ("fp32", "tf32"):
        yield "bf16-autocast", {"recipe.precision": "autocast-bf16"}, {}
    yield from _sharding(case)
    yield from _states(case)


def _sharding(case: Case) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    plan = case.plan
    spread = {"plan.dp_replicate": None, "plan.dp_shard": None}
    if plan.data_parallel == "ddp":
        yield "fsdp", {"plan.data_parallel": "fsdp2", "plan.zero": None, **spread}, {}
    if plan.data_parallel == "zero" and plan.zero < 3 and plan.pp == 1:
        yield "zero-3", {"plan.zero": 3, **spread}, {}
    if plan.offload.optimizer == "none" and plan.data_parallel in ("zero", "fsdp2", "ddp") and plan.pp == 1:
        yield (
            "offload-optimizer",
            {
                "recipe.framework": "deepspeed", "recipe.precision": "bf16-master", "plan.data_parallel": "zero",
                "plan.zero": 3, "plan.offload.optimizer": "cpu", **spread,
            },
            {},
        )  # fmt: skip


def _states(case: Case) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    recipe = case.recipe
    if recipe.peft is not None:
        if recipe.peft.method == "lora":
            yield "qlora", {"recipe.task": "qlora", "recipe.peft": None}, {}
        return
    if recipe.optimizer in ("adamw", "adam"):
        if recipe.precision.optimizer_state == "fp32":
            parts = {"preset": recipe.precision.preset, "optimizer_state": "bf16"}
            yield "moments-16bit", {"recipe.precision": parts}, {}
        yield "adam-8bit", {"recipe.optimizer": "adamw8bit"}, {}
    if recipe.task == "full-ft":
        yield "lora", {"recipe.task": "lora", "recipe.precision": None}, {}
