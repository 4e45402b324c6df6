"""What a name of a formula, of its inputs or of a quantity means, from planner/glossary: unit, symbol, words."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from planner.i18n import DEFAULT, current

FOLDER = Path(__file__).parent / "glossary"


@dataclass(frozen=True, slots=True)
class Term:
    """One row. `units` holds, by formula, the unit where the same word counts something else there."""

    name: str
    unit: str
    en: str
    zh: str
    symbol: str = ""
    help_en: str = ""
    help_zh: str = ""
    units: Mapping[str, str] = field(default_factory=dict, hash=False)

    def unit_in(self, formula: str) -> str:
        """Its unit as an input of that formula."""
        return self.units.get(formula, self.unit)


@functools.cache
def terms() -> Mapping[str, Term]:
    """Every row by name. A name has one row, in whichever file."""
    found: dict[str, Term] = {}
    for path in sorted(FOLDER.glob("*.toml")):
        for name, row in tomllib.loads(path.read_text(encoding="utf-8")).items():
            if name in found:
                raise ValueError(f"{path.name}: {name} has a row in another file")
            found[name] = _term(name, row)
    return MappingProxyType(found)


def _term(name: str, row: dict[str, Any]) -> Term:
    return Term(name=name, **row)


def term(name: str) -> Term:
    """The row of that name; of "weights (2)" the row of weights. Raises KeyError where there is none."""
    return terms()[name.split(" (")[0]]


def beside(name: str) -> str:
    """What the reader in use calls it, for a place beside the name itself; nothing where that says no more."""
    try:
        words = label(term(name).name, current())
    except KeyError:
        return ""
    return "" if words.lower() == name.split(" (")[0].replace("_", " ").lower() else words


def label(name: str, language: str = DEFAULT) -> str:
    """What a reader of that language calls it; the name itself, spaced out, where the glossary has no row."""
    try:
        row = term(name)
    except KeyError:
        return name.replace("_", " ")
    return row.zh if language == "zh" else row.en
