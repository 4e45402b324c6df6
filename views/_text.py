"""Phrases on the page: the language of a run, other people's text as text, and problems in the planner's words."""

from __future__ import annotations

import re
from collections.abc import Iterable

import streamlit as st

from planner import i18n
from planner.errors import Problem
from planner.i18n import t

#: what Markdown would read as more than text: emphasis, links, pictures, HTML, formulas, directives
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~$:&!])")


def speak() -> str:
    """Use this session's language from here on, and return it. Every run, callback and download begins with it.

    A session begins in the language of its link, else of its browser, else in English.
    """
    if "lang" not in st.session_state:
        said = (st.query_params.get("lang"), st.context.locale)
        found = (i18n.canonical(one) for one in said if one)
        st.session_state["lang"] = next((one for one in found if one), i18n.DEFAULT)
    i18n.use(str(st.session_state["lang"]))
    return i18n.current()


def plain(text: object) -> str:
    """Text that others wrote, for a place that reads Markdown: shown as it is, on one line, never followed."""
    line = " ".join(str(text).split())
    return _MARKDOWN.sub(r"\\\1", line).replace("www.", "www\\.")


def problem_line(problem: Problem) -> str:
    """One problem as Markdown: where, what, and the nearest valid value."""
    line = f"**{plain(problem.field)}**{t('join.colon')}{plain(problem.problem)}"
    if not problem.nearest:
        return line
    return t("join.sentences").join((line, t("app.nearest", nearest=plain(problem.nearest))))


def problem_list(title: str, problems: Iterable[Problem]) -> str:
    """All problems of one input, under a title."""
    return "\n".join([f"**{title}**\n", *(f"- {problem_line(p)}" for p in problems)])
