"""Coefficients: a value, a 90 % spread, where it holds and where it comes from. Priors ship as data files."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path

from planner.quantity import Quantity, given
from planner.units import parse

FOLDER = Path(__file__).parent.parent / "data" / "coefficients"


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One measured or remembered number. value, low and high in SI `unit`; low to high spans 90 %.

    valid      in words, the range of situations it was measured in
    origin     data sheet, evidence set, simulation or calibration run
    fitted_to  which records of the evidence it was fitted to: "framework:name", "family:name"; empty for none
    without    what stands for its value where those records are left out
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    valid: str
    origin: str
    source: str
    fitted_to: tuple[str, ...] = ()
    without: float | None = None

    def at(self, end: str = "value") -> Quantity:
        """The coefficient as a Quantity: its value, or one end of its spread."""
        return given(getattr(self, end), self.unit, self.name, source=self.source, because=self.origin)

    def unfitted(self) -> Coefficient:
        """The same without the records that it was fitted to."""
        return self if self.without is None else replace(self, value=self.without)


@functools.lru_cache(maxsize=1)
def _shipped() -> dict[str, Coefficient]:
    found = {}
    for path in sorted(FOLDER.glob("*.toml")):
        for name, raw in tomllib.loads(path.read_text(encoding="utf-8")).items():
            unit = raw["unit"]
            value, low, high = (parse(raw[k], unit, f"{name}.{k}") for k in ("value", "low", "high"))
            found[name] = Coefficient(
                name, value, low, high, unit, raw["valid"], raw["origin"], raw["source"],
                tuple(raw.get("fitted_to", ())), parse(raw["without"], unit, name) if "without" in raw else None,
            )  # fmt: skip
    return found


_in_use: ContextVar[dict[str, Coefficient] | None] = ContextVar("coefficients", default=None)


def priors() -> dict[str, Coefficient]:
    """Every coefficient by name: those shipped, with what `replaced` puts in their place."""
    return _in_use.get() or _shipped()


@contextmanager
def replaced(by: Mapping[str, Coefficient]) -> Iterator[None]:
    """Other coefficients for as long as this lasts, in this context."""
    token = _in_use.set({**priors(), **by})
    try:
        yield
    finally:
        _in_use.reset(token)
