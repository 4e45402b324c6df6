"""A warning: a code and the values that its phrases name; and which code comes before which."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from typing import Any

from planner import paths
from planner.i18n import t
from planner.quantity import Like, value_of
from planner.units import gib


@dataclass(frozen=True, slots=True)
class Warning:
    """A warning's code and the values its phrases name; the phrases are made in the language in use."""

    code: str
    values: tuple[tuple[str, Any], ...] = ()

    @property
    def because(self) -> str:
        """Why it is raised."""
        return t(f"warn.{self.code}.because", **dict(self.values))

    @property
    def remedy(self) -> str:
        """What to do."""
        return t(f"warn.{self.code}.remedy", **dict(self.values))


def warning(code: str, **values: Any) -> Warning:
    """The warning of that code."""
    return Warning(code, tuple(values.items()))


def size(bytes_: Like) -> str:
    """Bytes of a single value as GiB, to the digits that a warning needs."""
    found = gib(float(value_of(bytes_)))
    return f"{found:.1f}" if abs(found) >= 1 else f"{found:.2g}"


@functools.cache
def table() -> dict[str, Any]:
    """planner/data/warnings.toml: codes by severity, and releases known to be bad."""
    return tomllib.loads(paths.data().joinpath("warnings.toml").read_text(encoding="utf-8"))


@functools.cache
def order() -> dict[str, int]:
    """Every code -> its place, what threatens a run first."""
    every = [code for level in ("danger", "caution", "note") for code in table()[level]]
    return {code: place for place, code in enumerate(every)}
