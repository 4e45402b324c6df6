"""Cases in and out of the app: a case file, a report with its case inside, a config.json; inputs set from one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

import planner
from planner import cases
from planner.errors import PlannerError, Problem
from planner.i18n import t
from views import _fields, _models
from views._text import plain, problem_list, speak

#: name of the file that "Save case" writes
CASE_FILE = "headroom-case.json"
#: MB, the largest file that is opened: a plan, a report or a model's config.json, never weights
MOST = 5


def fill(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Set every input to what a case states, and return what; where it is none, say why and leave them as they are."""
    speak()
    try:
        found = _fields.filled(tree)
    except PlannerError as error:
        refuse(t("app.open.refused"), error.problems)
        return {}
    _set(found)
    return found


def _set(values: dict[str, Any]) -> None:
    """Set widgets to these values. Those that were not shown before are put into the link here: they would not be."""
    lists = {field.name for field in _fields.FIELDS if field.kind == "several"}
    values = {key: [] if value is None and key in lists else value for key, value in values.items()}
    st.session_state.update(values)
    st.session_state["refused"] = None
    for key, value in unshown(values).items():
        st.query_params[key] = value


def unshown(values: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """What the link has to say for widgets that are not on the page yet: Streamlit minds only those that are."""
    shown = st.session_state.get("shown", ())
    said = {key: value for key, value in values.items() if key not in shown and value not in (None, "", [])}
    said = {key: value for key, value in said.items() if value != _fields.FIRST.get(key)}
    return {key: value if isinstance(value, list) else str(value) for key, value in said.items()}


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
    _set({"source": "config", "config": text})


def saved(case: planner.Case) -> str:
    """The text of a case file."""
    tree = planner.stated(case)
    tree["model"] = _models.for_file(tree.get("model"))
    return json.dumps(tree, ensure_ascii=False, indent=2)

