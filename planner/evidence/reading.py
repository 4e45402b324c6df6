"""A record's fields with their types and limits, every problem collected. null is as good as a missing field: open."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from planner.errors import Problem
from planner.i18n import Phrase, phrase
from planner.spec.case import Assumed
from planner.spec.fill import APPROXIMATE

MOST_RANKS = 10**6


class Reader:
    """Reads the tables of one record; notes problems, and what is assumed of it besides what the case assumes."""

    def __init__(self, record: Mapping[str, Any]):
        self.record = record
        self.problems: list[Problem] = []
        self.assumed: list[Assumed] = []

    def table(self, name: str, inside: Mapping[str, Any] | None = None, where: str = "") -> Mapping[str, Any]:
        """A table of the record, or of a table in it; empty where it is open."""
        found = (self.record if inside is None else inside).get(name)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            self.wrong(f"{where}{name}", found, "table")
            return {}
        return found

    def count(self, table: Mapping[str, Any], name: str, where: str = "", least: int = 1, most: int = 10**9) -> Any:
        """A whole number, or None."""
        value = table.get(name)
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            return self.wrong(f"{where}{name}", value, "integer")
        return self._within(f"{where}{name}", value, least, most)

    def number(self, table: Mapping[str, Any], name: str, least: float, most: float, where: str = "") -> Any:
        """A number, or None."""
        value = table.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return self.wrong(f"{where}{name}", value, "number")
        return self._within(f"{where}{name}", value, least, most)

    def _within(self, field: str, value: Any, least: Any, most: Any) -> Any:
        if value < least:
            self.problems.append(Problem(field, phrase("problem.too-small", value=str(value)[:40]), str(least)))
            return None
        if value > most:
            self.problems.append(Problem(field, phrase("problem.too-large", value=str(value)[:40]), str(most)))
            return None
        return value

    def word(self, table: Mapping[str, Any], name: str, where: str = "") -> Any:
        """A text, or None."""
        value = table.get(name)
        return value if value is None or isinstance(value, str) else self.wrong(f"{where}{name}", value, "text")

    def flag(self, table: Mapping[str, Any], name: str, where: str = "") -> Any:
        """True, False or None."""
        value = table.get(name)
        return value if value is None or isinstance(value, bool) else self.wrong(f"{where}{name}", value, "boolean")

    def words(self, table: Mapping[str, Any], name: str, where: str = "") -> Any:
        """A list of texts, or None."""
        value = table.get(name)
        if value is None or (isinstance(value, list) and all(isinstance(one, str) for one in value)):
            return value
        return self.wrong(f"{where}{name}", value, "list")

    def wrong(self, field: str, value: Any, needed: str) -> None:
        """Note a value of another kind than is needed."""
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        self.problems.append(Problem(field, phrase("problem.not-a", value=shown, needed=Phrase(f"needed.{needed}"))))

    def missing(self, field: str) -> None:
        """Note a field that nothing can be computed without; one that is there but wrong has been told."""
        if any(problem.field == field for problem in self.problems):
            return
        self.problems.append(Problem(field, Phrase("record.missing")))

    def contradiction(self, field: str, why: str, **values: Any) -> None:
        """Note fields that cannot all be right."""
        self.problems.append(Problem(field, phrase(f"record.{why}", **values)))

    def note(self, field: str, value: Any, why: str, near: bool = False, **values: Any) -> None:
        """List something as assumed; `near`: the formulas only come near to it, which widens the band."""
        said = phrase(f"record.{why}", **values)
        self.assumed.append(Assumed(field, value, said, APPROXIMATE if near else ""))
