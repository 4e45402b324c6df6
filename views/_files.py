"""Cases in and out of the app: a case file, a report with its case inside, a config.json; inputs set from one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

import planner
from planner import cases
from planner.errors import BadInput, PlannerError, Problem
from planner.i18n import t
from views import _fields, _models
from views._text import plain, problem_list, speak

#: name of the file that "Save case" writes
CASE_FILE = "headroom-case.json"


def fill(tree: Mapping[str, Any]) -> bool:
    """Set every input to what a case states; where it is none, say why and leave the inputs as they are."""
    speak()
    try:
        found = _fields.filled(tree)
    except PlannerError as error:
        refuse(t("app.open.refused"), error.problems)
        return False
    st.session_state.update(found)
    st.session_state["refused"] = None
    return True


def refuse(title: str, problems: Iterable[Problem]) -> None:
    """Keep problems to be shown until they are closed or something is opened."""
    st.session_state["refused"] = (title, tuple(problems))


def show_refused() -> None:
    """What could not be opened or was not taken from the link, with a button that closes it."""
    for key, title in (("link_problems", t("app.link.title")), ("refused", None)):
        kept = st.session_state.get(key)
        if not kept:
            continue
        title, problems = (title, kept) if title else kept
        with st.container(key=f"closing-{key}"):
            st.warning(problem_list(title, problems))
            st.button(t("app.close"), key=f"close-{key}", on_click=_close, args=(key,))


def _close(key: str) -> None:
    st.session_state[key] = [] if key == "link_problems" else None


def opened() -> None:
    """Callback of the uploader: whatever the file is, set the inputs from it."""
    speak()
    file = st.session_state.get(uploader_key())
    if file is None:
        return
    data = file.getvalue()
    st.session_state["uploads"] = [*st.session_state.get("uploads", []), None]  # a fresh uploader: the file is read
    try:
        tree = _tree(data, plain(file.name))
        if _models.is_config(tree):
            _use_config(_models.checked(data))
            return
    except PlannerError as error:
        refuse(t("app.open.refused_file", name=plain(file.name)), error.problems)
        return
    fill(tree)


def uploader_key() -> str:
    """The uploader's key; it changes after each file, so that none is read twice."""
    return f"open-{len(st.session_state.get('uploads', []))}"


def _tree(data: bytes, name: str) -> dict[str, Any]:
    """The case in a report or a file, or the configuration in a file."""
    from planner.report import render

    start = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"%PDF"):
        return render.case_from_pdf(data)
    if start.startswith(b"<"):
        return render.case_from_html(data.decode("utf-8", "replace"))
    return cases.read(data, name)


def fetch(id: str) -> None:
    """Callback of the fetch button: the configuration of a Hugging Face id becomes the model."""
    speak()
    try:
        _use_config(_models.fetched(id))
    except PlannerError as error:
        refuse(t("app.fetch.refused", id=plain(id)), error.problems)


def _use_config(text: str) -> None:
    st.session_state.update({"source": "config", "config": text, "refused": None})


def saved(case: planner.Case) -> str:
    """The text of a case file."""
    tree = planner.stated(case)
    tree["model"] = _models.for_file(tree.get("model"))
    return json.dumps(tree, ensure_ascii=False, indent=2)


__all__ = ["CASE_FILE", "BadInput", "fetch", "fill", "opened", "refuse", "saved", "show_refused", "uploader_key"]
