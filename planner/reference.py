"""The reference behind the numbers as data: formulas in mathematical notation, their words, coefficients and sources.

Symbols are the glossary's. Where two names of one formula share a symbol, or a name has none, words stand instead.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from planner import explain, formulas, i18n, terms
from planner.calibration.coefficients import Coefficient, priors
from planner.errors import nearest
from planner.quantity import FORMULAS, Formula

#: chapters in the order they are read; one that is not named comes after these
ORDER = ("parameters", "states", "activations", "temporaries", "overheads", "capacity", "thumb")

_NAME = re.compile(r"\\mathrm\{((?:[^{}\\]|\\_)+)\}")
#: 0 x size: how a formula writes nothing for a number and for an array alike
_NOTHING = re.compile(r"(?<![\w.}])0 \\cdot +\\mathrm\{[^{}]+\}(?: \\cdot +\\mathrm\{[^{}]+\})*")


@functools.cache
def chapters() -> dict[str, tuple[Formula, ...]]:
    """Every formula by chapter: the module it is written in, in its order there."""
    for module in pkgutil.walk_packages(formulas.__path__, f"{formulas.__name__}."):
        importlib.import_module(module.name)
    found: dict[str, list[Formula]] = {name: [] for name in ORDER}
    for one in explain.all_formulas():
        found.setdefault(chapter(one), []).append(one)
    return {name: tuple(sorted(held, key=_line)) for name, held in found.items() if held}


def chapter(one: Formula) -> str:
    """The chapter of a formula."""
    return str(one.function.__module__.rpartition(".")[2])


def _line(one: Formula) -> int:
    return int(one.function.__code__.co_firstlineno)


def formula(name: str) -> Formula | None:
    """The formula of that name, or None."""
    chapters()
    return FORMULAS.get(name)


def close_to(name: str) -> str | None:
    """The name of a formula that is spelled most like it, or None."""
    chapters()
    return nearest(name[:60], FORMULAS)


# Mathematical notation


def symbols(one: Formula) -> dict[str, str]:
    """LaTeX of the formula's name and of each of its inputs."""
    names = dict.fromkeys((one.name, *one.parameters))
    found = {name: terms.term(name).symbol if name in terms.terms() else "" for name in names}
    uses = Counter(found.values())
    return {name: symbol if symbol and uses[symbol] == 1 else _words(name) for name, symbol in found.items()}


def _words(name: str) -> str:
    return rf"\text{{{name.replace('_', ' ')}}}"


def latex(one: Formula) -> str:
    """The whole equation."""
    shown = symbols(one)
    right = _NOTHING.sub("0", explain.latex(one))
    right = _NAME.sub(lambda found: shown[found[1].replace(r"\_", "_")], right)
    return f"{shown[one.name]} = {right}"


# Words


def label(name: str) -> str:
    """What a name is called in the language in use."""
    return terms.label(name, i18n.current())


def about(one: Formula) -> str:
    """What a formula says, assumes and leaves out, in one paragraph."""
    own = ABOUT_ZH.get(one.name) if i18n.current() == "zh" else None
    return own or " ".join((one.__doc__ or "").split())


def inputs(one: Formula) -> list[dict[str, str]]:
    """The inputs of a formula: name, LaTeX, label and unit."""
    shown = symbols(one)
    return [{"name": p, "latex": shown[p], "label": label(p), "unit": _unit(p, one)} for p in one.parameters]


def _unit(name: str, one: Formula) -> str:
    return terms.term(name).unit_in(one.name) if name in terms.terms() else ""


def glossary() -> list[dict[str, str]]:
    """Every word of the formulas and answers in both languages, by name; `note` in the language in use."""
    rows = sorted(terms.terms().values(), key=lambda row: row.name)
    return [
        {"name": row.name, "symbol": row.symbol, "unit": row.unit, "en": row.en, "zh": row.zh, "note": _note(row)}
        for row in rows
    ]


def _note(row: terms.Term) -> str:
    return (row.help_zh if i18n.current() == "zh" else "") or row.help_en


def coefficients() -> list[Coefficient]:
    """Every shipped coefficient, by name."""
    return [priors()[name] for name in sorted(priors())]


# Sources


@functools.cache
def works() -> dict[str, dict[str, Any]]:
    """Every work and page that is cited, by key."""
    return tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))


def cited() -> dict[str, int]:
    """How many formulas cite a source, by its key."""
    return dict(Counter(one.source for held in chapters().values() for one in held))


# Search


def search(words: str) -> list[Formula]:
    """Formulas that have every word in their name, words, inputs or source, in either language."""
    wanted = words.lower().split()
    held = [one for part in chapters().values() for one in part]
    return [one for one in held if all(word in _searched(one.name) for word in wanted)]


@functools.cache
def _searched(name: str) -> str:
    one = FORMULAS[name]
    names = (name, *one.parameters)
    labels = (terms.label(n, language) for n in names for language in ("en", "zh"))
    work = works().get(one.source, {})
    source = (one.source, work.get("title", ""), work.get("authors", ""))
    return " ".join((*names, *labels, *source, one.__doc__ or "", ABOUT_ZH.get(name, ""))).lower()


#: what each formula's own description says, in Chinese; the English one stands beside its code
ABOUT_ZH: dict[str, str] = {}
