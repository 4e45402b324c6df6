"""How far predictions are off: coverage, error, bias, bands and verdicts, over groups and by repository.

Errors are averaged over the rows of a group first, then over groups, so that a source with a hundred rows of one model
counts once; and again over the groups of a repository first, so that one with seventy small groups does not rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from planner.calibration.coefficients import Coefficient, priors, replaced
from planner.evidence.records import Line
from planner.evidence.rows import FRONTIER, Row, rows

#: the columns that the table is split by
SPLITS: dict[str, Callable[[Row], str]] = {
    "framework": lambda r: r.framework, "kind": lambda r: r.kind, "gpu": lambda r: r.gpu, "metric": lambda r: r.metric,
}  # fmt: skip
P90 = 0.9


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of some rows as shares: mean absolute over groups and by repository, bias, 90th percentile of rows, the
    share of rows in the band, and half the band's median width."""

    n: int
    groups: int
    mape: float
    mape_by_repository: float
    bias: float
    p90: float
    band_coverage: float
    half_width: float


@dataclass(frozen=True, slots=True)
class Frontier:
    """Rows that ran or did not: how many, and the shares answered with the opposite verdict and with `edge`."""

    n: int
    opposite: float
    edge: float

    @property
    def right(self) -> float:
        """The share answered as it came."""
        return 1 - self.opposite - self.edge if self.n else 0.0


@dataclass(frozen=True, slots=True)
class Group:
    """One group of rows: repository, model, task, and its errors."""

    source: str
    model: str
    task: str
    n: int
    mape: float
    bias: float


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The error on what was left out, with the coefficients fitted to it put aside, and which those are."""

    name: str
    n: int
    mape: float
    mape_with: float
    coefficients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The whole table."""

    counted: int
    answered: int
    skipped: dict[str, int]
    errors: Errors | None
    splits: dict[str, dict[str, Errors]]
    groups: tuple[Group, ...]
    frontier: dict[str, Frontier]
    worst: tuple[Row, ...]

    @property
    def coverage(self) -> float:
        """Share of training runs of grade A and B that were answered."""
        return self.answered / self.counted if self.counted else 1.0


def accuracy(found: Iterable[Row]) -> Accuracy:
    """The table over some rows."""
    every = list(found)
    points = [r for r in every if r.point]
    counted = [r for r in every if r.counted]
    reasons: dict[str, int] = defaultdict(int)
    for r in every:
        if r.problem is not None:
            reasons[str(r.problem)] += 1
    return Accuracy(
        counted=len(counted),
        answered=sum(r.predicted is not None for r in counted),
        skipped=dict(sorted(reasons.items(), key=lambda kv: -kv[1])),
        errors=errors(points) if points else None,
        splits={name: _split(points, key) for name, key in SPLITS.items()},
        groups=tuple(_groups(points)),
        frontier=frontier(every),
        worst=tuple(sorted(points, key=lambda r: -abs(r.error))[:20]),
    )


def errors(points: Sequence[Row]) -> Errors:
    """The errors of at least one row."""
    by_group = _by(points, lambda r: r.group)
    by_repository = _by(list(by_group), lambda key: key[0])
    absolute = {key: fmean(abs(r.error) for r in some) for key, some in by_group.items()}
    each = sorted(abs(r.error) for r in points)
    return Errors(
        n=len(points),
        groups=len(by_group),
        mape=fmean(absolute.values()),
        mape_by_repository=fmean(fmean(absolute[key] for key in keys) for keys in by_repository.values()),
        bias=fmean(fmean(r.error for r in some) for some in by_group.values()),
        p90=each[min(len(each) - 1, int(P90 * len(each)))],
        band_coverage=fmean(r.inside for r in points),
        half_width=median(((r.high or 0) - (r.low or 0)) / 2 / (r.predicted or 1) for r in points),
    )


def _by(items: Sequence[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return dict(found)


def _split(points: Sequence[Row], key: Callable[[Row], str]) -> dict[str, Errors]:
    """Errors by one column, the largest part first."""
    parts = sorted(_by(points, key).items(), key=lambda kv: -len(kv[1]))
    return {name: errors(some) for name, some in parts}


def _groups(points: Sequence[Row]) -> list[Group]:
    found = []
    for (source, model, task), some in _by(points, lambda r: r.group).items():
        off = [r.error for r in some]
        found.append(Group(source, model, task, len(some), fmean(map(abs, off)), fmean(off)))
    return sorted(found, key=lambda g: -g.mape)


def frontier(every: Sequence[Row]) -> dict[str, Frontier]:
    """Runs that fitted, those among them that were not tuned to the limit, and runs that did not fit."""
    at_limit = [r for r in every if r.scored and r.metric in FRONTIER]
    parts = {
        "fits": [r for r in at_limit if r.metric == "fits"],
        "fits_untuned": [r for r in at_limit if r.metric == "fits" and "fits-tuned" not in r.tags],
        "oom": [r for r in at_limit if r.metric == "oom"],
    }
    return {name: _verdicts(some, "fits" if name == "oom" else "oom") for name, some in parts.items()}


def _verdicts(some: Sequence[Row], opposite: str) -> Frontier:
    if not some:
        return Frontier(0, 0.0, 0.0)
    return Frontier(
        len(some), fmean(r.verdict == opposite for r in some), fmean(r.verdict == "edge" for r in some)
    )


def left_out(found: Sequence[Line], key: str) -> list[LeftOut]:
    """Each framework (or family) predicted without the coefficients that were fitted to it.

    A coefficient says in its file what it was fitted to and what stands for it otherwise. Where none was fitted to what
    is left out, the prediction is the same: then it is a prediction made without it already.
    """
    with_all = [r for r in rows(found) if r.point]
    names = sorted({getattr(r, key) for r in with_all})
    return [_without(found, with_all, key, name) for name in names]


def _without(found: Sequence[Line], with_all: Sequence[Row], key: str, name: str) -> LeftOut:
    mine = [r for r in with_all if getattr(r, key) == name]
    fitted = [c for c in priors().values() if f"{key}:{name}" in c.fitted_to]
    before = errors(mine).mape
    if not fitted:
        return LeftOut(name, len(mine), before, before, ())
    ids = {r.id for r in mine}
    with replaced({c.name: c.unfitted() for c in fitted}):
        again = list(rows(line for line in found if line.record and str(line.record.get("id")) in ids))
    return LeftOut(name, len(mine), errors(again).mape, before, tuple(c.name for c in fitted))


def fitted() -> list[Coefficient]:
    """The coefficients that were fitted to records of the evidence; every other figure was not."""
    return [c for c in priors().values() if c.fitted_to]

