"""The answer to one case: memory of the worst stage, every stage, the host, and the warnings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.i18n import t
from planner.layers.model import parameters
from planner.quantity import Quantity, value_of
from planner.spec.case import Case
from planner.step import breakdown as B
from planner.step.hosting import Host, host
from planner.step.memory import VERDICTS, Memory, band, memory, stages
from planner.step.warn import Warning, warnings
from planner.units import gib


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the planner says of a case. `memory` is the worst stage's; time and cost are not known yet."""

    case: Case
    memory: Memory
    host: Host
    params: Quantity
    warnings: tuple[Warning, ...]

    @property
    def verdict(self) -> str:
        """fits, edge or oom on the GPU."""
        return self.memory.verdict

    @property
    def overall(self) -> str:
        """The worse of the GPU's verdict and the host's: what a headline says."""
        host = self.host.verdict or "fits"
        return min(self.verdict, host, key=VERDICTS.index)

    @property
    def headline(self) -> str:
        """The overall verdict in words, with the host named where it is what decides."""
        if self.memory.unknown and self.overall == "edge":
            return t("verdict.open", least=f"{gib(float(value_of(self.memory.low))):.1f}")
        said = t(f"verdict.{self.overall}")
        return said if self.overall == self.verdict else t("verdict.by_host", verdict=said)

    def breakdown(self) -> dict[str, Quantity]:
        """Device memory by kind, at the moment of the peak."""
        return B.breakdown(self.memory.device)

    def stages(self) -> list[Memory]:
        """Every pipeline stage; of a very long pipeline the first and the last ones, which differ most."""
        every = stages(self.case)
        shown = every if len(every) <= MOST_STAGES else [*every[:HALF], *every[-HALF:]]
        return [memory(self.case, stage) for stage in shown]


MOST_STAGES, HALF = 64, 32


def figure(memory: Memory, metric: str) -> tuple[Any, Any, Any]:
    """One figure in B with its 90 % band: allocated, reserved or device; arrays where the memory is of many stages.

    The band has no upper end where parts of the model have no formulas.
    """
    low, high = band(memory, metric)
    upper = np.full_like(value_of(high), np.inf, dtype=float) if memory.unknown else value_of(high)
    return value_of(getattr(memory, metric)), value_of(low), upper


def evaluate(case: Case) -> Estimate:
    """The estimate of a single case."""
    found = memory(case)
    machine = host(case, found)
    return Estimate(case, found, machine, parameters(case.model), warnings(case, found, machine))
