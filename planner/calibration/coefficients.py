"""Coefficients: a value, a 90 % spread, where it holds and where it comes from. Priors ship as data files."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

from planner.quantity import Quantity, given
from planner.units import parse

FOLDER = Path(__file__).parent.parent / "data" / "coefficients"


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One measured or remembered number. value, low and high in SI `unit`; low to high spans 90 %.

    valid   in words, the range of situations it was measured in
    origin  data sheet, evidence set, simulation or calibration run
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    valid: str
    origin: str
    source: str

    def at(self, end: str = "value") -> Quantity:
        """The coefficient as a Quantity: its value, or one end of its spread."""
        return given(getattr(self, end), self.unit, self.name, source=self.source, because=self.origin)


@functools.lru_cache(maxsize=1)
def priors() -> dict[str, Coefficient]:
    """Every shipped coefficient by name."""
    found = {}
    for path in sorted(FOLDER.glob("*.toml")):
        for name, raw in tomllib.loads(path.read_text(encoding="utf-8")).items():
            unit = raw["unit"]
            value, low, high = (parse(raw[k], unit, f"{name}.{k}") for k in ("value", "low", "high"))
            found[name] = Coefficient(
                name, value, low, high, unit, raw["valid"], raw["origin"], raw["source"]
            )
    return found
