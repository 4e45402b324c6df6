"""`make spreads`: how wide the bands must be, by kind of run, from the measured runs that the product ships.

A formula's spread is the 90 % quantile of |measured / predicted - 1| over the points of its kind that measure allocated
memory (of a kind without three groups of those: over all its points). Each repository, model and task counts once, but
not less than the plain quantile over rows. What reserved memory is off beyond that goes into `cached_unseen`. Each is
also derived without one repository at a time, and that repository's points are held against it: the coverage that
a new source can expect.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from planner.calibration.coefficients import Coefficient, priors, replaced
from planner.evidence.predict import predict
from planner.evidence.rows import Row, row, shipped
from planner.quantity import value_of
from planner.step.spread import kind

UNSEEN = "cached_unseen"
LEVEL, FEW = 0.9, 3


@dataclass(frozen=True)
class Point:
    """A measured run beside its prediction: the kind of its formulas, its group, and how far off it is."""

    row: Row
    kind: str
    allocated: float

    @property
    def off(self) -> float:
        """How far what was measured lies from what was predicted, as a share of the latter."""
        return abs((self.row.measured or 0.0) / (self.row.predicted or 1.0) - 1)

    @property
    def direct(self) -> bool:
        """Whether it measures allocated memory, where nothing but the formulas can be off."""
        return self.row.metric != "max_reserved"

    def beyond(self, widths: dict[str, float]) -> float:
        """What a reserved figure is off beyond its formulas' spread, as a share of what is allocated."""
        side = self.row.high if (self.row.measured or 0.0) > (self.row.predicted or 0.0) else self.row.low
        held = abs((side or 0.0) - (self.row.predicted or 0.0))  # allocator and workspaces alone: spreads are nothing
        off = abs((self.row.measured or 0.0) - (self.row.predicted or 0.0))
        own = math.hypot(held, widths[self.kind] * self.allocated)
        return math.sqrt(max(0.0, off**2 - own**2)) / self.allocated


def nothing() -> dict[str, Coefficient]:
    """The spreads that are derived here, put to nothing."""
    mine = [c for c in priors().values() if c.name.startswith("formula_error_") or c.name == UNSEEN]
    return {c.name: replace(c, low=-1e-9, high=1e-9) for c in mine}


def points(bare: bool = True) -> list[Point]:
    """Every point of the evidence; `bare`: its band without the spreads that are derived here."""
    found = []
    for line in shipped():
        if line.record is None:
            continue
        with replaced(nothing()) if bare else nullcontext():
            made = row(line.record)
        if made.point:
            given = predict(line.record)
            found.append(Point(made, kind(given.expressed.case), float(value_of(given.memory.allocated))))
    return found


def quantile(found: Sequence[Point], of: Callable[[Point], float]) -> float:
    """The 90 % quantile over groups, each weighing the same, or over rows if that is larger."""
    sizes: dict[tuple[str, str, str], int] = defaultdict(int)
    for p in found:
        sizes[p.row.group] += 1
    ordered = sorted(found, key=of)
    by_group = _at(ordered, [1 / sizes[p.row.group] for p in ordered])
    by_row = _at(ordered, [1.0] * len(ordered))
    return max(of(by_group), of(by_row))


def _at(ordered: Sequence[Point], weights: Sequence[float]) -> Point:
    passed = 0.0
    for point, weight in zip(ordered, weights, strict=True):
        passed += weight
        if passed >= LEVEL * sum(weights) - 1e-9:
            return point
    return ordered[-1]


def widths(found: Sequence[Point], shipped_ones: dict[str, float]) -> dict[str, float]:
    """The half-width of each kind, and what reserved memory needs beyond; the shipped one of a kind without points."""
    derived = dict(shipped_ones)
    for name in {p.kind for p in found}:
        mine = [p for p in found if p.kind == name]
        direct = [p for p in mine if p.direct]
        enough = len({p.row.group for p in direct}) >= FEW
        derived[name] = quantile(direct if enough else mine, lambda p: p.off)
    reserved = [p for p in found if not p.direct]
    derived[UNSEEN] = quantile(reserved, lambda p: p.beyond(derived)) if reserved else derived[UNSEEN]
    return derived


def inside(p: Point, by: dict[str, float]) -> bool:
    """Whether these spreads hold the point."""
    return p.off <= by[p.kind] if p.direct else p.beyond(by) <= by[UNSEEN]


def share(flags: Iterable[bool]) -> str:
    """A share in per cent."""
    every = list(flags)
    return f"{100 * sum(every) / len(every):.0f}%" if every else "-"


def main() -> None:
    """Print the table."""
    found = points()
    now = {name: c.high for name, c in priors().items() if name in nothing()}
    fresh = widths(found, now)
    without = {r: widths([p for p in found if p.row.repository != r], now) for r in {p.row.repository for p in found}}
    print(f"{'spread':30} {'points':>6} {'groups':>6} {'shipped':>8} {'derived':>8} {'held':>5} {'left out':>8}")
    for name in now:
        mine = [p for p in found if (not p.direct if name == UNSEEN else p.kind == name)]
        held = share(inside(p, now) for p in mine)
        blind = share(inside(p, without[p.row.repository]) for p in mine)
        groups = len({p.row.group for p in mine})
        print(f"{name:30} {len(mine):6} {groups:6} {now[name]:8.1%} {fresh[name]:8.1%} {held:>5} {blind:>8}")
    print(f"{'all':30} {len(found):6} {'':6} {'':8} {'':8} {share(inside(p, now) for p in found):>5} "
          f"{share(inside(p, without[p.row.repository]) for p in found):>8}")  # fmt: skip


if __name__ == "__main__":
    main()
