"""The link: what it states is checked once, before a widget reads it, and what cannot be taken is named.

Streamlit would drop a wrong value without a word, and break on a number beyond all bounds.
"""

from __future__ import annotations

import re

import streamlit as st

from planner.errors import PlannerError, Problem, language, nearest
from planner.i18n import phrase
from planner.spec import catalog
from planner.spec.stack import stack
from views import _fields
from views._fields import FIELDS, FIRST, KEYS, Field

#: parameters of pages, beside those of the inputs
PAGES = ("hold", "lang", "formula")
_WHOLE = re.compile(r"-?[0-9]{1,15}")
_WORDS = {"source": ("name", "config"), "hardware": ("gpu", "node"), "hold": ("true", "false")}
_COUNTS = ("cluster.gpus", "cluster.nodes")
_NAMES = {
    "cluster.gpu": lambda word: catalog.accelerator(word).id,
    "cluster.node": lambda word: catalog.node(word).id,
    "recipe.framework": lambda word: stack(word).id,
    "lang": lambda word: language("lang", word),
}
_BY_NAME = {field.name: field for field in FIELDS}


def check() -> None:
    """On a session's first run: correct spellings, take out what is wrong, and keep the problems to be shown."""
    if "link_problems" in st.session_state:
        return
    problems: list[Problem] = []
    before = st.query_params.to_dict()
    for name in before:
        _check(name, st.query_params.get_all(name), problems)
    st.session_state["link_problems"] = problems
    if st.query_params.to_dict() != before or problems:
        st.rerun()


def _check(name: str, values: list[str], problems: list[Problem]) -> None:
    """One parameter: left as it is, put in another spelling, or taken out with a problem noted."""
    if name not in (*KEYS, *PAGES):
        close = nearest(name[:60], KEYS) if "." in name else None
        problems.append(Problem(name[:60], phrase("app.link.unknown"), close))
        del st.query_params[name]
        return
    if not any(values):
        return  # an open field
    found: list[Problem] = []
    taken = _taken(name, values, found)
    if found:
        problems.extend(found)
        del st.query_params[name]
    elif taken != values:
        st.query_params[name] = taken


def _taken(name: str, values: list[str], problems: list[Problem]) -> list[str]:
    """The values in the spelling of the widget's list."""
    field = _BY_NAME.get(name)
    if field and field.kind == "several":
        return [_fields.canonical(name, value, problems) for value in values if value]
    last = values[-1]
    if name in _COUNTS or (field and field.kind == "whole"):
        if not _WHOLE.fullmatch(last):
            problems.append(Problem(name, phrase("app.link.whole", value=last[:60]), _default(name)))
        return [last]
    if name in _NAMES:
        return [_named(name, last, problems)]
    if name in _WORDS or (field and field.kind == "switch") or name == "plan.zero":
        return [_one_of(name, last, field, problems)]
    return [_fields.canonical(name, last, problems)] if field else [last]


def _named(name: str, word: str, problems: list[Problem]) -> str:
    try:
        return _NAMES[name](word[:200])
    except PlannerError as error:
        problems.extend(error.problems)
        return word


def _one_of(name: str, word: str, field: Field | None, problems: list[Problem]) -> str:
    """A word of a short list; true and false are on and off."""
    choices = field.choices if field else _WORDS[name]
    plain = word.strip().lower()
    plain = {"true": "on", "false": "off"}.get(plain, plain) if "on" in choices else plain
    if plain not in choices:
        problems.append(Problem(name, phrase("app.link.choice", value=word[:60]), ", ".join(choices)))
    return plain


def _default(name: str) -> str | None:
    first = FIRST.get(name)
    return str(first) if first is not None else None
