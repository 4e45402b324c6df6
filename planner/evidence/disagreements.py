"""Why a prediction and its record disagree, as far as we know: words kept as data, read by people and no formula."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from planner import i18n, paths
from planner.evidence.rows import Row


@dataclass(frozen=True, slots=True)
class Entry:
    """Records by id pattern, the side on which the prediction lies ("" for either), and the reason's key."""

    ids: tuple[str, ...]
    too: str
    reason: str

    def holds(self, row: Row) -> bool:
        """Whether it speaks of this row."""
        side = "high" if row.error > 0 else "low"
        return self.too in ("", side) and any(fnmatchcase(row.id, pattern) for pattern in self.ids)


@functools.cache
def reasons() -> dict[str, dict[str, str]]:
    """The reasons by key, each by language."""
    return {key: dict(texts) for key, texts in _file()["reason"].items()}


@functools.cache
def entries() -> tuple[Entry, ...]:
    """What is said of which records, in the file's order."""
    return tuple(Entry(tuple(one["id"]), one.get("too", ""), one["reason"]) for one in _file()["of"])


@functools.cache
def _file() -> dict[str, Any]:
    text = (paths.data() / "evidence" / "disagreements.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


#: an error below which a prediction whose band holds the measurement needs no reason
SMALL = 0.1


def agrees(row: Row) -> bool:
    """Whether there is nothing to explain."""
    return row.inside and abs(row.error) < SMALL


def reason(row: Row) -> str | None:
    """What we think the reason is, in the language in use; None where none has been written, or none is needed."""
    if not row.measured or row.predicted is None or agrees(row):
        return None
    found = next((entry for entry in entries() if entry.holds(row)), None)
    if found is None:
        return None
    texts = reasons()[found.reason]
    return texts.get(i18n.current()) or texts[i18n.DEFAULT]
