"""Figures as people write them, and the SI values the planner computes with.

The only place where 1024, 8 and 3600 occur. Inside: B, s, flop, W, USD. GB is 10^9 B and GiB is 2^30 B,
always. A rate's direction and "per what" are said by the name of the field it goes into.
"""

from __future__ import annotations

import math
import re

from planner.errors import Problem, UnreadableFigure
from planner.i18n import phrase

KIB, MIB, GIB, TIB = 2.0**10, 2.0**20, 2.0**30, 2.0**40
HOUR = 3600.0

_FIGURE = re.compile(r"^\s*([-+]?\d+(?:[_,]\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*([A-Za-z/%]*)\s*$")

#: unit as written -> (factor, SI unit)
UNITS: dict[str, tuple[float, str]] = {
    "B": (1.0, "B"), "kB": (1e3, "B"), "MB": (1e6, "B"), "GB": (1e9, "B"), "TB": (1e12, "B"),
    "KiB": (KIB, "B"), "MiB": (MIB, "B"), "GiB": (GIB, "B"), "TiB": (TIB, "B"),
    "B/s": (1.0, "B/s"), "MB/s": (1e6, "B/s"), "GB/s": (1e9, "B/s"), "TB/s": (1e12, "B/s"),
    "Mbit/s": (1e6 / 8, "B/s"), "Gbit/s": (1e9 / 8, "B/s"), "Tbit/s": (1e12 / 8, "B/s"),
    "TFLOP/s": (1e12, "flop/s"), "PFLOP/s": (1e15, "flop/s"), "GFLOP/s": (1e9, "flop/s"),
    "s": (1.0, "s"), "ms": (1e-3, "s"), "us": (1e-6, "s"), "h": (HOUR, "s"),
    "W": (1.0, "W"), "kW": (1e3, "W"),
    "USD/h": (1 / HOUR, "USD/s"),
    "": (1.0, "1"), "%": (1e-2, "1"),
}  # fmt: skip

_COUNT_SUFFIX = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_COUNT = re.compile(r"^\s*(\d+(?:\.\d+)?(?:[eE]\+?\d+)?)\s*([KkMmBbGgTt]?)\s*$")


def parse(text: str, si: str, field: str = "figure") -> float:
    """`text` ("400 Gbit/s") as a value in the SI unit `si` ("B/s"); raises UnreadableFigure."""
    found = _FIGURE.match(str(text))
    known = [u for u, (_, base) in UNITS.items() if base == si]
    if not found:
        raise UnreadableFigure(Problem(field, phrase("problem.figure", text=repr(text)), f"1 {known[0]}"))
    number, unit = found.groups()
    if unit not in UNITS or UNITS[unit][1] != si:
        raise UnreadableFigure(Problem(field, phrase("problem.unit", text=repr(text), unit=si), ", ".join(known)))
    value = float(number.replace("_", "").replace(",", "")) * UNITS[unit][0]
    if not math.isfinite(value):
        raise UnreadableFigure(Problem(field, phrase("problem.infinite", text=repr(text))))
    return value


def parse_count(text: str) -> float | None:
    """A bare count such as "40B", "1.5b", "7e9" as a number; None when `text` is not one."""
    found = _COUNT.match(text)
    if not found:
        return None
    value = float(found.group(1)) * _COUNT_SUFFIX[found.group(2).upper()]
    return value if math.isfinite(value) else None


def gib(value: float) -> float:
    """Bytes as GiB (2^30)."""
    return value / GIB


def gb(value: float) -> float:
    """Bytes as GB (10^9)."""
    return value / 1e9


def count_text(value: float) -> str:
    """A count of parameters or tokens for people: 8.03B, 124M."""
    for suffix, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"
