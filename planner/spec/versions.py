"""Versions of a stack as people write them: a release ("0.2.1", "v4.46"), or the day its code is of ("2025-03-12").

A record's free text is read the same way: the first date in it ("9dec370 (2024-12-26)"), or a release at its start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

#: a whole month or year stands for its first day
_DATE = re.compile(r"(?<!\d)(20\d\d)(?:-(\d\d)(?:-(\d\d))?)?(?![\d.])")
_RELEASE = re.compile(r"v?(\d+(?:\.\d+)+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Version:
    """A release or a day, as numbers that compare; the two kinds are never compared with each other."""

    dated: bool
    parts: tuple[int, ...]

    def __str__(self) -> str:
        """As a case file writes it."""
        return "-".join(f"{p:02d}" for p in self.parts) if self.dated else ".".join(map(str, self.parts))


def version(text: str | None) -> Version | None:
    """The version that a text states, or None."""
    if not text:
        return None
    if found := _RELEASE.match(text.strip()):
        return Version(dated=False, parts=tuple(int(p) for p in found[1].split(".")))
    if found := _DATE.search(text):
        return Version(dated=True, parts=tuple(int(p or 1) for p in found.groups()))
    return None


def within(wanted: Version, since: Iterable[str], until: Iterable[str]) -> bool:
    """Whether a version lies in a range: from `since` on, before `until`, each a date, a release or both.

    A range that says nothing of the wanted kind does not hold it.
    """
    first, last = (
        [b.parts for b in map(version, ends) if b is not None and b.dated == wanted.dated] for ends in (since, until)
    )
    return bool(first or last) and all(b <= wanted.parts for b in first) and all(wanted.parts < b for b in last)
