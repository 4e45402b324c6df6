"""What a report is made of: frozen plain data, in the language it was made in. No numbers are made here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; `strong` for the sentence that matters."""

    text: str
    strong: bool = False
    kind: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class Points:
    """A list; each point is a head, perhaps empty, and what is said of it."""

    title: str
    points: tuple[tuple[str, str], ...]
    kind: Literal["points"] = "points"


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text. The first cell of a row names the row.

    numeric   columns that are aligned as numbers
    strong    rows that are sums or the ones to look at
    shape     the class that the style sheet sets widths for
    """

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[int, ...] = ()
    strong: tuple[int, ...] = ()
    shape: str = ""
    note: str = ""
    kind: Literal["table"] = "table"


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart by its name in planner.charts, and what it shows in a sentence."""

    chart: Literal["breakdown", "moments", "stages", "largest"]
    alt: str
    kind: Literal["picture"] = "picture"


@dataclass(frozen=True, slots=True)
class Step:
    """One quantity of the chain: its formula with names, the same with numbers, its value, its references.

    label   what people call it, where that says more than its name
    """

    quantity: str
    formula: str
    numbers: str
    value: str
    sources: tuple[int, ...] = ()
    label: str = ""


@dataclass(frozen=True, slots=True)
class Steps:
    """The formulas behind one part of the answer."""

    title: str
    steps: tuple[Step, ...]
    head: tuple[str, ...]
    kind: Literal["steps"] = "steps"


@dataclass(frozen=True, slots=True)
class Listing:
    """Text to be kept letter by letter, such as a file."""

    text: str
    kind: Literal["listing"] = "listing"


Block = Text | Points | Table | Picture | Steps | Listing


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands under it."""

    key: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A key figure of the cover: what it is, its value with unit, and what it is measured against."""

    label: str
    value: str
    unit: str
    note: str


@dataclass(frozen=True, slots=True)
class Report:
    """A capacity report as plain data.

    verdict   fits, edge or oom; verdict_text says it in words
    answer    the answer in sentences
    fit       the answer as `planner fit --json` gives it, which the charts are drawn from
    largest   the answer as `planner largest --json` gives it, or None
    case      the case file
    """

    title: str
    language: str
    date: str
    version: str
    question: str
    setting: str
    verdict: str
    verdict_text: str
    answer: tuple[str, ...]
    figures: tuple[Figure, ...]
    sections: tuple[Section, ...]
    fit: dict[str, Any]
    largest: dict[str, Any] | None
    case: dict[str, Any]
