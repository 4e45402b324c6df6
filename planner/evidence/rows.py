"""Measured runs beside what the planner says of them, one row each: what accuracy is counted over."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner import paths
from planner.errors import PlannerError
from planner.evidence.predict import predict
from planner.evidence.records import Line, lines
from planner.i18n import Said
from planner.units import GIB, UNITS

#: metrics that are a measured size, as against "it ran" or a value of unknown kind
POINTS = ("max_allocated", "max_reserved", "max_active")
FRONTIER = ("fits", "oom")
GRADES = ("A", "B")
#: what a record without a grade is: whoever measured it knows its settings
UNGRADED = "A"
#: tags of records that are no measurement of a training run that the planner models
NOT_SCORED = frozenset({
    "component", "pathology", "below-floor", "inconsistent", "first-step", "init-only", "hybrid-ssm", "vlm",
    "encoder-decoder", "fake-backend",
})  # fmt: skip
#: tags of records that are no training run of a decoder or an encoder: not counted in coverage
NO_RUN = frozenset({"component", "hybrid-ssm", "encoder-decoder"})


@dataclass(frozen=True, slots=True)
class Row:
    """One record and its prediction; sizes in B. `problem` says why there is none."""

    id: str
    repository: str
    model: str
    task: str
    framework: str
    kind: str
    gpu: str
    metric: str
    grade: str
    tags: frozenset[str]
    measured: float | None
    predicted: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str | None = None
    problem: Said | None = None
    assumed: tuple[str, ...] = field(default=(), repr=False)

    @property
    def group(self) -> tuple[str, str, str]:
        """Rows that stand for one measurement: of one repository, model and task; toys whatever their shape."""
        return self.repository, "toy" if "toy" in self.tags else self.model, self.task

    @property
    def family(self) -> str:
        """The model's family: the first word of its name."""
        found = re.match(r"[a-z]+", self.model.lower())
        return found.group() if found else "other"

    @property
    def counted(self) -> bool:
        """Whether it counts for coverage: a training run of grade A or B of a decoder or an encoder."""
        return self.grade in GRADES and not NO_RUN & self.tags

    @property
    def scored(self) -> bool:
        """Whether it is of a kind that can be held against a prediction."""
        return self.grade in GRADES and not NOT_SCORED & self.tags and self.predicted is not None

    @property
    def point(self) -> bool:
        """Whether it is a measured size with a prediction of it."""
        return self.scored and self.metric in POINTS and bool(self.measured)

    @property
    def error(self) -> float:
        """How far off the prediction is, as a share of what was measured; points only."""
        return (self.predicted or 0.0) / (self.measured or 1.0) - 1

    @property
    def inside(self) -> bool:
        """Whether the band holds what was measured; points only."""
        return (self.low or 0.0) <= (self.measured or 0.0) <= (self.high or 0.0)


def row(record: Mapping[str, Any]) -> Row:
    """A record with its prediction, or with the reason why there is none."""
    about = _about(record)
    try:
        found = predict(record)
    except PlannerError as error:
        return Row(**about, problem=str(error.problems[0]) if error.problems else str(error))
    except (ArithmeticError, ValueError) as error:
        return Row(**about, problem=type(error).__name__)
    return Row(
        **about, predicted=found.value, low=found.low, high=found.high, verdict=found.worst.verdict,
        assumed=found.expressed.case.assumed,
    )  # fmt: skip


def answered(record: Mapping[str, Any], answer: Mapping[str, Any]) -> Row:
    """A record beside its answer of `predict`, which has sizes in GiB: the same row without predicting anew."""
    about = _about(record)
    if answer["status"] != "ok":
        return Row(**about, problem=answer["reason"])
    high = math.inf if answer["mem_high_gib"] is None else answer["mem_high_gib"]
    sizes = (value * GIB for value in (answer["mem_gib"], answer["mem_low_gib"], high))
    predicted, low, high = sizes
    return Row(**about, predicted=predicted, low=low, high=high, verdict=answer["verdict"])


def _table(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = record.get(name)
    return found if isinstance(found, Mapping) else {}


def _about(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a row says of its record; text, whatever stands there."""
    arch, measured, source = (_table(record, name) for name in ("arch", "measured", "source"))
    task, tags = str(record.get("task")), record.get("tags")
    moe = isinstance(arch.get("num_experts"), int) and arch["num_experts"] > 1
    return {
        "id": str(record.get("id")), "repository": str(source.get("repo_or_url")), "model": str(record.get("model")),
        "task": task, "framework": str(record.get("framework")), "kind": f"{'moe' if moe else 'dense'} {task}",
        "gpu": str(record.get("gpu")), "metric": str(measured.get("mem_metric")),
        "grade": str(record.get("grade") or UNGRADED),
        "tags": frozenset(str(tag) for tag in tags) if isinstance(tags, list) else frozenset(),
        "measured": _bytes(measured),
    }  # fmt: skip


def _bytes(measured: Mapping[str, Any]) -> float | None:
    """What was measured, in B; None where its value or its unit makes no sense."""
    value, unit = measured.get("mem_value"), measured.get("mem_unit")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        return None
    factor, base = UNITS.get(str(unit), (0.0, ""))
    return value * factor if base == "B" else None


def rows(found: Iterable[Line]) -> Iterator[Row]:
    """A row for each line that is a record."""
    return (row(line.record) for line in found if line.record is not None)


def shipped() -> Iterator[Line]:
    """The records that the product carries."""
    with (paths.data() / "evidence" / "memory.jsonl").open("rb") as file:
        yield from lines(file)
