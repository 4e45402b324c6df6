"""Host memory of one node: of the node with rank 0, which reads the weights for the others and gathers them to save.

Three moments, as on the GPU: while the weights are loaded, while it trains (processes, pinned buffers of what is
offloaded), and while a whole state dict is gathered to be saved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.calibration.coefficients import priors
from planner.formulas import overheads as O
from planner.formulas import states as S
from planner.layers.model import parameters
from planner.quantity import Quantity, binding, given, largest, total, value_of
from planner.spec.case import Case
from planner.spec.recipe import WIDTH
from planner.spec.stack import lineage
from planner.step import activations as act
from planner.step.memory import VERDICTS, Memory
from planner.step.setting import setting

#: tasks that begin from published weights
FINE_TUNING = ("full-ft", "lora", "qlora")
#: stacks that read a checkpoint into host memory whole, and write one whole
READ_WHOLE = ("hf-transformers", "pytorch", "deepspeed")


@dataclass(frozen=True, slots=True)
class Host:
    """Host memory of one node in B: needed with its band, what the node has, and the verdict (None: unknown).

    moments   what loading, training and saving need; the largest is `needed`
    parts     what `needed` is made of
    """

    needed: Quantity
    low: Quantity
    high: Quantity
    capacity: Quantity | None
    verdict: str | None
    moments: dict[str, Quantity]
    parts: dict[str, Quantity]


def host(case: Case, memory: Memory) -> Host:
    """Host memory of a node whose ranks all hold the stage of `memory`."""
    ends = {end: _moments(case, memory, end) for end in ("low", "value", "high")}
    whole = {end: largest("host", [sum_ for sum_, _ in found.values()]) for end, found in ends.items()}
    single = np.ndim(value_of(whole["value"])) == 0
    moments = {name: sum_ for name, (sum_, _) in ends["value"].items()}
    parts = ends["value"][binding(whole["value"]).name][1] if single else {}
    capacity, verdict = case.cluster.host_memory, None
    if capacity is not None:
        code = O.verdict_code(high=whole["high"], least=whole["low"], usable=capacity)
        verdict = VERDICTS[int(value_of(code))] if np.ndim(value_of(code)) == 0 else None
    return Host(whole["value"], whole["low"], whole["high"], capacity, verdict, moments, parts)


def _moments(case: Case, memory: Memory, end: str) -> dict[str, tuple[Quantity, dict[str, Quantity]]]:
    """Each moment's sum and parts."""
    known, none = priors(), given(0.0, "B", "none")

    def node(called: str, state: Quantity, process: Quantity) -> Quantity:
        return O.host_memory(
            called=called, state=state, pinned=known["host_pinned"].at(end), process=process,
            ranks=case.cluster.gpus_per_node,
        )  # fmt: skip

    processes = node("processes", none, known["host_process"].at(end))
    offloaded = node("offloaded", total("state", memory.states.host), none)
    kept = node("activations", total("state", [none, *offloaded_activations(case, memory)]), none)
    training = {"processes": processes, "offloaded": offloaded, "activations": kept}
    found = {
        "loading": {"processes": processes, "checkpoint": loading(case)},
        "training": training,
        "saving": {**training, "checkpoint": saving(case)},
    }
    return {name: (total(name, parts.values()), parts) for name, parts in found.items()}


def offloaded_activations(case: Case, memory: Memory) -> list[Quantity]:
    """What layers keep, where it leaves the GPU."""
    plan = case.plan
    if plan.offload.activations != "cpu":
        return []
    here = setting(replace(case, plan=replace(plan, offload=replace(plan.offload, activations="none"))), memory.stage)
    return [act.kept_by_layers(here, group, act.tensors(here, group)) for group in here.groups]


def checkpoint(case: Case) -> Quantity:
    """One whole copy of the weights as a process reads or gathers them."""
    params = case.recipe.precision.params
    width = WIDTH[params] if WIDTH[params] >= WIDTH["bf16"] else WIDTH["bf16"]
    return S.state_bytes(called="checkpoint", params=parameters(case.model), param_width=width, ways=1)


def reads_whole(case: Case) -> bool:
    """Whether the run begins from published weights, in a stack that reads and writes a checkpoint whole."""
    return case.recipe.task in FINE_TUNING and not set(READ_WHOLE).isdisjoint(lineage(case.stack))


def reads_part(case: Case) -> Any:
    """Whether a rank reads its part: of a split model, and under ZeRO-3."""
    plan = case.plan
    split = np.logical_or(np.greater(plan.tp, 1), np.greater(plan.pp, 1))
    return np.logical_or(split, np.logical_and(plan.data_parallel == "zero", np.equal(plan.zero, 3)))


def loading(case: Case) -> Quantity:
    """Copies while loading: one under FSDP, whose first rank reads for all; one a rank where each has the model."""
    none = given(0.0, "B", "checkpoint")
    if not reads_whole(case):
        return none
    ranks = np.where(reads_part(case), 0, 1 if case.plan.fully_sharded else case.cluster.gpus_per_node)
    models = O.models_loaded(beside=case.recipe.models_beside)
    return O.copies_on_host(called="checkpoint", size=checkpoint(case), copies=ranks, models=models)


def saving(case: Case) -> Quantity:
    """The copy that is gathered on the first rank to be saved, where the model is sharded and written whole."""
    gathered = case.plan.fully_sharded and case.recipe.peft is None  # DeepSpeed writes shards unless told to gather
    return checkpoint(case) if gathered and reads_whole(case) else given(0.0, "B", "checkpoint")
