"""Run records from JSON Lines: one record a line, each read by itself, so that a file of any length needs no memory.

A line that is no record is told with its reason and keeps its place. What a record must hold is not decided here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from planner.cases import deeper_than
from planner.errors import unread
from planner.i18n import Phrase, Said, phrase

MOST_BYTES = 1_000_000  # of one line
DEPTH = 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is not empty: its number, and the record or the reason why it is none."""

    number: int
    record: dict[str, Any] | None
    problem: Said | None = None


def lines(stream: BinaryIO) -> Iterator[Line]:
    """Every line of a file in its order; lines of blanks only are left out."""
    number = 0
    while text := stream.readline(MOST_BYTES + 1):
        number += 1
        if len(text) > MOST_BYTES and not text.endswith(b"\n"):
            _to_its_end(stream)
            yield Line(number, None, phrase("record.long", most=MOST_BYTES))
        elif text.strip():
            yield _line(number, text.removeprefix(b"\xef\xbb\xbf") if number == 1 else text)


def at(stream: BinaryIO, number: int) -> Line | None:
    """The line of that number, if there is one with something in it."""
    found = next((line for line in lines(stream) if line.number >= number), None)
    return found if found and found.number == number else None


def _to_its_end(stream: BinaryIO) -> None:
    """Read the rest of a line that is too long, piece by piece."""
    while (piece := stream.readline(MOST_BYTES)) and not piece.endswith(b"\n"):
        pass


def _line(number: int, text: bytes) -> Line:
    try:
        found = json.loads(text.decode("utf-8"), parse_constant=_refuse)
    except RecursionError:
        return Line(number, None, Phrase("problem.too_deep"))
    except _NotFinite as error:
        return Line(number, None, phrase("record.not-finite", value=str(error)))
    except (UnicodeDecodeError, ValueError) as error:
        return Line(number, None, phrase("record.not-json", error=unread(error)))
    if not isinstance(found, dict):
        return Line(number, None, Phrase("record.not-object"))
    if deeper_than(found, DEPTH):
        return Line(number, None, Phrase("problem.too_deep"))
    return Line(number, found)


class _NotFinite(Exception):
    """A NaN or an infinity, which JSON does not have."""


def _refuse(word: str) -> Any:
    raise _NotFinite(word)
