"""Values as a report prints them. Converting for display is all that is computed here."""

from __future__ import annotations

import math
from typing import Any

from planner import explain, units
from planner.i18n import t, written
from planner.quantity import Quantity, value_of

MINUS = "−"


def one(value: float) -> str:
    """GiB in a sentence: one decimal."""
    return _signed(f"{value:,.1f}")


def whole(value: float) -> str:
    """GiB of a host: none."""
    return _signed(f"{value:,.0f}")


def two(value: float | None) -> str:
    """GiB in a table: two decimals; of a band without an upper end, that it is open."""
    return t("report.open_end") if value is None else _signed(f"{value:,.2f}")


def _signed(text: str) -> str:
    text = "0" + text[2:] if text.startswith("-0.") and not float(text) else text
    return text.replace("-", MINUS)


def sentence(text: str) -> str:
    """A phrase that begins as a sentence does."""
    return text[:1].upper() + text[1:]


def share(part: float, whole: float) -> str:
    """A part of a whole in percent."""
    return written(part / whole, "percent") if whole else "–"


def billions(count: float) -> str:
    """A count in 10^9."""
    return f"{count / 1e9:,.1f}" if count else "–"


def count(value: Any) -> str:
    """A whole number with its thousands parted."""
    return written(int(value), "number")


def plain(value: Any, none: str) -> str:
    """A field of a case as its file writes it."""
    if value is None:
        return none
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(str(v) for v in value) if isinstance(value, list | tuple) else str(value)


def value(quantity: Quantity) -> str:
    """A quantity's value with a unit for people: bytes as GiB, rates in steps of thousands, counts as counts."""
    number, unit = float(value_of(quantity)), quantity.unit
    if not math.isfinite(number):
        return "–"
    if unit == "B":
        return _bytes(number)
    if unit == "param":
        return f"{units.count_text(number)} param"
    return explain.figure(quantity.value) + ("" if unit == "1" else f" {unit}")


def _bytes(number: float) -> str:
    for unit, size in (("GiB", units.GIB), ("MiB", units.MIB), ("KiB", units.KIB)):
        if abs(number) >= size:
            return f"{_signed(f'{number / size:,.2f}')} {unit}"
    return f"{number:g} B"


def fact(name: str, quantity: Quantity) -> str:
    """A hardware figure in its vendor's unit: GB for memory as sold, GiB for what software sees, TFLOP/s, GB/s, W."""
    number = float(value_of(quantity))
    match quantity.unit:
        case "flop/s":
            return f"{number / 1e12:,.4g} TFLOP/s"
        case "B/s":
            return f"{units.gb(number):,.6g} GB/s"
        case "B" if name == "memory_nominal":
            return f"{units.gb(number):,.4g} GB"
        case "B":
            return f"{units.gib(number):,.2f} GiB"
        case unit:
            return f"{number:g} {unit}"
