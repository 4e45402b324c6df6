"""What the planner says of a run record: its own metric on its own ranks, with a band, and everything that was assumed.

Of what was measured only `mem_metric` and `mem_scope` are read: they say which figure is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.errors import PlannerError
from planner.evidence.expressing import Expressed, express
from planner.evidence.records import Line
from planner.i18n import Said, phrase, said
from planner.layers.model import parameters
from planner.quantity import value_of
from planner.spec.case import Case
from planner.step import breakdown as B
from planner.step.evaluate import Estimate, figure
from planner.step.hosting import host
from planner.step.memory import Memory, all_stages, memory, stages
from planner.step.warn import warnings
from planner.units import gib

#: what a record calls a figure -> ours; an unknown metric is the whole device, and reserved stands beside it
METRICS = {
    "max_allocated": "allocated", "max_active": "allocated", "max_reserved": "reserved", "nvidia-smi": "device",
    "fits": "device", "oom": "device",
}  # fmt: skip
#: scopes that name a stage
FIRST, LAST = ("rank0", "logged-rank", "stage0", "stage0-max"), ("last-stage", "last-stage-max", "last-rank")


@dataclass(frozen=True, slots=True)
class Prediction:
    """The figure asked for in B, with its 90 % band; the memory of the stage it is read from; what it is of."""

    metric: str
    scope: str
    value: float
    low: float
    high: float
    memory: Memory
    worst: Memory
    expressed: Expressed


def predict(record: Mapping[str, Any]) -> Prediction:
    """The prediction for one record; raises PlannerError where it cannot be expressed."""
    found = express(record)
    measured = record.get("measured")
    asked = measured if isinstance(measured, Mapping) else {}
    metric = METRICS.get(str(asked.get("mem_metric")), "device")
    scope = str(asked.get("mem_scope") or "")
    case = found.case
    many = len(stages(case))
    if many == 1:
        here = worst = memory(case, stages(case)[0])
        share = float(case.cluster.gpus) if scope == "sum" else 1.0
        value, low, high = (share * float(part) for part in figure(here, metric))
        return Prediction(metric, scope, value, low, high, here, worst, found)
    return _of_stages(found, metric, scope, many)


def estimate(found: Prediction) -> Estimate:
    """The whole estimate of a record's case, with the memory of the stage that its figure is read from."""
    case = found.expressed.case
    machine = host(case, found.worst)
    return Estimate(case, found.memory, machine, parameters(case.model), warnings(case, found.worst, machine))


def _of_stages(found: Expressed, metric: str, scope: str, many: int) -> Prediction:
    """The figure of a pipeline: of the stage that the scope names, else of the largest one; or over all ranks."""
    case = found.case
    at_once = all_stages(case)
    rows = [np.broadcast_to(row, many) for row in figure(at_once, metric)]
    most = int(np.argmax(np.broadcast_to(value_of(at_once.device), many)))
    worst = memory(case, stages(case)[most])
    if scope in ("mean", "sum"):
        share = float(case.cluster.gpus) if scope == "sum" else 1.0
        value, low, high = (share * float(np.mean(row)) for row in rows)
        return Prediction(metric, scope, value, low, high, worst, worst, found)
    index = _named(case, scope, many)
    index = int(np.argmax(rows[0])) if index is None else index
    here = worst if index == most else memory(case, stages(case)[index])
    value, low, high = (float(row[index]) for row in rows)
    return Prediction(metric, scope, value, low, high, here, worst, found)


def _named(case: Case, scope: str, many: int) -> int | None:
    """The stage that a scope means: by name, or the one that holds a rank. Ranks of a stage lie together."""
    if scope in FIRST:
        return 0
    if scope in LAST:
        return many - 1
    for word in ("rank", "stage"):
        if scope.startswith(word) and scope.removeprefix(word).removeprefix("-").isdecimal():
            number = int(scope.removeprefix(word).removeprefix("-"))
            place = number if word == "stage" else number // max(1, int(case.cluster.gpus) // many)
            return min(place, many - 1)
    return None


def answer(line: Line) -> dict[str, Any]:
    """The JSON line of a record, or of a line that is none: never an exception."""
    record = line.record
    name = record.get("id") if record is not None else None
    id = name if isinstance(name, str) else f"line {line.number}"
    if record is None:
        return _skipped(id, phrase("record.line", number=line.number, problem=line.problem))
    try:
        return {"id": id, **told(predict(record))}
    except PlannerError as error:
        return _skipped(id, "; ".join(str(problem) for problem in error.problems))
    except (ArithmeticError, ValueError) as error:  # figures of a size that no run has
        return _skipped(id, phrase("record.uncomputable", error=type(error).__name__))


def answers(lines: Iterable[Line]) -> Iterator[dict[str, Any]]:
    """One answer a line, in order, each made when it is asked for."""
    return (answer(line) for line in lines)


def _skipped(id: str, reason: Said) -> dict[str, Any]:
    return {**dict.fromkeys(KEYS), "id": id, "status": "skipped", "reason": said(reason), "assumed": []}


def told(found: Prediction) -> dict[str, Any]:
    """A prediction in the shape of the command line's contract; sizes in GiB, per GPU unless the scope is a sum."""
    here, case = found.memory, found.expressed.case
    machine = host(case, found.worst)
    sizes = {name: gib(float(value_of(part))) for name, part in B.breakdown(here.device).items()}
    return {
        "status": "ok",
        "reason": None,
        "assumed": list(case.assumed),
        "verdict": found.worst.verdict,
        "mem_gib": gib(found.value),
        "mem_low_gib": gib(found.low),
        "mem_high_gib": gib(found.high) if math.isfinite(found.high) else None,
        "unmodelled": [said(one) for one in here.unknown],
        "allocated_gib": gib(float(here.allocated)),
        "reserved_gib": gib(float(here.reserved)),
        "device_gib": gib(float(here.device)),
        "peak_phase": here.peak_phase,
        "stage": int(here.stage.index),
        "host_gib_per_node": gib(float(machine.needed)),
        "tokens_per_s_per_gpu": None,
        "tokens_low": None,
        "tokens_high": None,
        "step_time_s": None,
        "mfu": None,
        "breakdown_gib": sizes,
        "time_s": None,
    }


KEYS = (
    "id", "status", "reason", "assumed", "verdict", "mem_gib", "mem_low_gib", "mem_high_gib",
    "unmodelled", "allocated_gib",
    "reserved_gib", "device_gib", "peak_phase", "stage", "host_gib_per_node", "tokens_per_s_per_gpu", "tokens_low",
    "tokens_high", "step_time_s", "mfu", "breakdown_gib", "time_s",
)  # fmt: skip
