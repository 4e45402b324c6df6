"""Warnings that stand beside an answer: a code, because, remedy; codes of the cases' vocabulary where it has one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner.formulas import overheads as O
from planner.i18n import t
from planner.quantity import value_of
from planner.spec.case import Case
from planner.step.memory import Host, Memory, derived
from planner.step.setting import attention_core
from planner.units import gib

LOW_HEADROOM = 0.05


@dataclass(frozen=True, slots=True)
class Warning:
    """A warning's code and the values its phrases name; the phrases are made in the language in use."""

    code: str
    values: tuple[tuple[str, Any], ...] = ()

    @property
    def because(self) -> str:
        """Why it is raised."""
        return t(f"warn.{self.code}.because", **dict(self.values))

    @property
    def remedy(self) -> str:
        """What to do."""
        return t(f"warn.{self.code}.remedy", **dict(self.values))


def warnings(case: Case, memory: Memory, host: Host) -> tuple[Warning, ...]:
    """Every warning of a single case."""
    return (*_of_memory(case, memory), *_of_recipe(case), *_of_plan(case), *_of_host(case, host))


def _warning(code: str, **values: Any) -> Warning:
    return Warning(code, tuple(values.items()))


def _of_memory(case: Case, memory: Memory) -> Iterator[Warning]:
    share = float(value_of(O.share(part=memory.headroom, whole=memory.usable)))
    if memory.verdict == "edge":
        high, usable = gib(float(value_of(memory.high))), gib(float(value_of(memory.usable)))
        yield _warning("edge", high=f"{high:.1f}", usable=f"{usable:.1f}")
    if memory.verdict != "oom" and value_of(memory.cached) < value_of(memory.unbounded):
        yield _warning("allocator_squeezed", wanted=f"{gib(float(value_of(memory.unbounded))):.1f}")
    if memory.verdict == "fits" and share < LOW_HEADROOM:
        yield _warning("low_headroom", share=f"{share:.1%}")
    if derived(case):
        yield _warning("not_traced")
    doubtful = [f for f in case.cluster.accelerator.unconfirmed if f in ("all", "memory_nominal", "memory_torch")]
    if doubtful:
        yield _warning("unconfirmed_hardware", fields=", ".join(doubtful))


def _of_recipe(case: Case) -> Iterator[Warning]:
    recipe, longest = case.recipe, case.model.max_positions
    if attention_core(case) == "math":
        yield _warning("sdpa_math_fallback")
    if recipe.attention == "eager":
        yield _warning("eager_attention")
    if value_of(recipe.seq_len) > longest:
        yield _warning("beyond_trained_length", seq_len=recipe.seq_len, positions=longest)
    if recipe.precision.preset == "bf16-pure" and recipe.precision.master == "none" and recipe.peft is None:
        yield _warning("no_master_weights")


def _of_plan(case: Case) -> Iterator[Warning]:
    plan, per_node = case.plan, case.cluster.gpus_per_node
    if plan.tp > per_node:
        yield _warning("tp_across_nodes", tp=plan.tp, per_node=per_node)
    if plan.pp > 1 and plan.accumulation < plan.pp:
        yield _warning("pipeline_not_filled", microbatches=plan.accumulation, pp=plan.pp)


def _of_host(case: Case, host: Host) -> Iterator[Warning]:
    offload = case.plan.offload
    if host.capacity is None:
        if offload.params != "none" or offload.optimizer != "none":
            yield _warning("host_memory_unknown")
    elif host.verdict != "fits":
        needed, capacity = gib(float(value_of(host.needed))), gib(float(value_of(host.capacity)))
        yield _warning("host_memory", needed=f"{needed:.0f}", capacity=f"{capacity:.0f}")
