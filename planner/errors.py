"""What can go wrong with what a user gave, as a tree. Every error says what, why and what to do.

PlannerError
├── UnreadableFigure        a figure such as "400 Gbit/s" that cannot be read
├── UnknownPreset           a catalogue name that is not known; names the nearest
├── UnsupportedArchitecture a model that the planner has no layers for; names the field
├── BadInput                all problems of one input at once
├── NewerFormat             a case file written by a newer version
└── MissingDependency       this machine lacks something; says the line that installs it

An impossible plan is not an error: it is an answer (see planner.rules).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from errno import errorcode

from planner.i18n import Phrase, Said, canonical, has, languages, phrase, said, t


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input: where it is, what is wrong, and the nearest valid value.

    Both are phrases, or text of others, and are read in the language in use.
    """

    field: str
    what: Said
    near: Said | None = None

    @property
    def problem(self) -> str:
        """What is wrong."""
        return said(self.what)

    @property
    def nearest(self) -> str | None:
        """The nearest valid value."""
        return said(self.near)

    def __str__(self) -> str:
        if not self.nearest:
            return t("problem.line", field=self.field, problem=self.problem)
        return t("problem.line-nearest", field=self.field, problem=self.problem, nearest=self.nearest)

    def to_dict(self) -> dict[str, str | None]:
        return {"field": self.field, "problem": self.problem, "nearest": self.nearest}


class PlannerError(Exception):
    """The base of everything the planner raises on purpose; carries a list of problems."""

    def __init__(self, problems: Iterable[Problem] | Problem):
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(p) for p in self.problems)


class UnreadableFigure(PlannerError):
    """A figure with a unit that cannot be read."""


class UnknownPreset(PlannerError):
    """A name that the catalogue does not hold."""


class UnsupportedArchitecture(PlannerError):
    """A model description that the planner has no layers for."""


class BadInput(PlannerError):
    """Every problem of one input, collected before anything was raised."""


class NewerFormat(PlannerError):
    """A file that a newer version of the planner wrote."""


class MissingDependency(PlannerError):
    """Something the command needs is missing on this machine."""


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice spelled most like `word`, or None when nothing is close."""
    found = get_close_matches(word.lower(), {c.lower(): c for c in choices}, n=1, cutoff=0.4)
    return next((c for c in choices if found and c.lower() == found[0]), None)


def unknown(field: str, word: str, choices: Iterable[str]) -> UnknownPreset:
    """The error for a name that is not among `choices`."""
    known = sorted(choices)
    close = nearest(word, known)
    listed = close or ", ".join(known[:8]) + (" ..." if len(known) > 8 else "")
    return UnknownPreset(Problem(field, phrase("problem.unknown", word=repr(word)), listed))


def language(field: str, word: str) -> str:
    """The name of the language that `word` means; raises UnknownPreset naming the ones there are."""
    known = canonical(word)
    if known is None:
        raise UnknownPreset(Problem(field, phrase("problem.unknown", word=repr(word)), ", ".join(languages())))
    return known


def unread(error: ValueError) -> Said:
    """Why a text could not be read as JSON or TOML; in words of ours but for what a TOML parser says."""
    match error:
        case json.JSONDecodeError():
            return phrase("parse.at", error=json_error(error), line=error.lineno, column=error.colno)
        case UnicodeDecodeError():
            return Phrase("parse.unicode")
    return phrase("parse.toml", message=error) if "(at " in str(error) else Phrase("parse.digits")


def json_error(error: json.JSONDecodeError) -> Said:
    """What is wrong with a JSON text; the parser's own words where we have none."""
    words = error.msg.lower().replace("','", "comma").replace("':'", "colon")
    key = "json." + re.sub(r"[^a-z]+", "-", words).strip("-")
    return Phrase(key) if has(key) else error.msg


def system(error: OSError) -> Said:
    """Why the system refused a file, in words of ours where we have some."""
    key = f"system.{errorcode.get(error.errno or 0, '')}"
    return Phrase(key) if has(key) else error.strerror or str(error)
