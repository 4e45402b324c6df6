"""From what a user states to a case that no rule forbids, and from one case to its neighbour."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner import paths, rules
from planner.errors import BadInput, Problem, system, unread
from planner.i18n import Phrase, phrase
from planner.spec.build import build, merged
from planner.spec.case import Case
from planner.spec.form import SCHEMA
from planner.spec.model import Model

MOST_BYTES = 1_000_000
DEPTH = 20


def case(raw: Mapping[str, Any], model: Model | None = None, files: bool = True) -> Case:
    """The case that `raw` (the file form) states, legal by every rule.

    `model` replaces the stated one; `files=False` reads no path. Raises BadInput with every problem at once.
    """
    if deeper_than(raw, DEPTH):
        raise BadInput(Problem("case", Phrase("problem.too_deep")))
    made = build(raw, model, files)
    broken = rules.violations(made)
    if broken:
        raise BadInput([Problem(v.field, v.because, v.nearest) for v in broken])
    return made


def deeper_than(tree: Any, levels: int) -> bool:
    """Whether a tree of tables and lists is nested deeper than that; looks no deeper."""
    if not isinstance(tree, Mapping | list):
        return False
    below = tree.values() if isinstance(tree, Mapping) else tree
    return levels == 0 or any(deeper_than(one, levels - 1) for one in below)


def changed(old: Case, changes: Mapping[str, Any], model: Model | None = None) -> Case:
    """The same case with some dotted fields stated otherwise: changed(case, {"plan.tp": 4})."""
    return case(merged(old.stated, changes), model)


def read(text: str | bytes, where: str = "case") -> dict[str, Any]:
    """The raw case in a JSON or TOML text; refuses what is too large, too deep or neither."""
    if len(text) > MOST_BYTES:
        large = phrase("problem.case.large", bytes=len(text))
        raise BadInput(Problem(where, large, phrase("near.bytes", most=MOST_BYTES)))
    try:
        plain = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        tree = json.loads(plain) if plain.lstrip().startswith("{") else tomllib.loads(plain)
    except RecursionError:
        raise BadInput(Problem(where, Phrase("problem.too_deep"))) from None
    except (UnicodeDecodeError, ValueError) as error:
        raise BadInput(Problem(where, phrase("problem.case.neither", error=unread(error)))) from None
    if deeper_than(tree, DEPTH):
        raise BadInput(Problem(where, Phrase("problem.too_deep")))
    if not isinstance(tree, dict):
        raise BadInput(Problem(where, Phrase("problem.case.object"), '{"model": "llama-3-8b"}'))
    return tree


def read_file(path: str) -> dict[str, Any]:
    """The raw case in a file."""
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise BadInput(Problem("case", phrase("problem.not-a-file", path=path)))  # a folder, a pipe
        with Path(path).open("rb") as file:
            return read(file.read(MOST_BYTES + 1), path)
    except OSError as error:
        raise BadInput(Problem("case", phrase("problem.file", path=path, because=system(error)))) from None


def examples() -> dict[str, dict[str, Any]]:
    """Cases to start from, by file name."""
    folder = paths.data() / "examples"
    return {path.stem: read_file(str(path)) for path in sorted(folder.glob("*.toml"))}


def stated(of: Case) -> dict[str, Any]:
    """The file form of a case: its format and what the user stated."""
    return {"schema": SCHEMA, **of.stated}
