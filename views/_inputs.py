"""The shared inputs in the sidebar: widgets in, a case or its problems out. The planner judges, nothing here does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from planner import answers, cases
from planner.errors import PlannerError, Problem
from planner.i18n import has, t
from planner.layers.model import parameters
from planner.quantity import value_of
from planner.spec.case import Case
from planner.units import count_text, gib
from views import _fields, _files, _models
from views._fields import BASIC, FIRST, PLAN, RECIPE, WIDE, Field
from views._text import plain

#: every input is in the link and outlives a change of page
KEPT: dict[str, Any] = {"bind": "query-params", "persist_state": "session"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the inputs state: the file form, the case where there is one, and all that is wrong where there is none."""

    raw: dict[str, Any]
    case: Case | None
    problems: tuple[Problem, ...]


def read() -> None:
    """Before anything is drawn: what the inputs state in this run, for the page and for the inputs themselves."""
    found = _asked(_values())
    st.session_state["asked"] = found
    if found.case:
        st.session_state["assumed"] = _assumed(found.case)


def draw() -> None:
    """The sidebar. The page comes before it, so that the answer is there first; both show the same values."""
    values, found = _values(), asked()
    with st.sidebar:
        with st.container(gap="small"):
            with st.container(horizontal=True, horizontal_alignment="distribute", gap="xsmall"):
                _which("source", ("name", "config"))
                _which("hardware", ("gpu", "node"))
            _model(found)
            _cluster(found)
            st.selectbox(t("app.field.recipe.framework"), _fields.ids("recipe.framework"),
                         index=_place("recipe.framework"), key="recipe.framework", **KEPT)  # fmt: skip
            _rows(BASIC, values)
        with st.expander(t("app.group.recipe")):
            _rows(RECIPE, values)
        with st.expander(t("app.group.plan")):
            _rows(PLAN, values)
        with st.expander(t("app.group.case")):
            _case_file()
    drawn = _values()
    st.session_state["shown"] = _shown(drawn)
    if _fields.raw(drawn) != found.raw:
        st.rerun()  # a widget holds something else than was asked of it


def _shown(values: dict[str, Any]) -> set[str]:
    """Keys of the widgets that these values show."""
    model = "config" if values["source"] == "config" else "model"
    cluster = ("cluster.node", "cluster.nodes") if values["hardware"] == "node" else ("cluster.gpu", "cluster.gpus")
    always = ("source", "hardware", "recipe.framework", "name", "set")
    return {model, *cluster, *always, *(field.name for field in _fields.FIELDS if field.when(values))}


def asked() -> Asked:
    """What the inputs of this run state, for the page."""
    found: Asked = st.session_state["asked"]
    return found


def _values() -> dict[str, Any]:
    """What every widget holds now; before the first drawing, what the link says."""
    link = {} if "shown" in st.session_state else st.query_params
    found = {key: st.session_state.get(key, FIRST.get(key)) for key in _fields.KEYS}
    for key in found:
        if key not in st.session_state and key in link:
            found[key] = _from_link(key, st.query_params.get_all(key))
    return found


def _from_link(key: str, values: Sequence[str]) -> Any:
    field = next((f for f in _fields.FIELDS if f.name == key), None)
    if field and field.kind == "several":
        return list(values)
    counts = key in ("cluster.gpus", "cluster.nodes") or (field and field.kind == "whole")
    return (int(values[-1]) if values[-1] else None) if counts else values[-1]


def _asked(values: dict[str, Any]) -> Asked:
    """The case that the values state, or every problem they have."""
    _, problems = _fields.lines(values.get("set") or "")
    raw = _fields.raw(values)
    if id := _models.elsewhere(raw.get("model")):
        return Asked(raw, None, (*problems, Problem("model", t("app.fetch.needed", id=id))))
    try:
        case = cases.case(raw, files=False)
    except PlannerError as error:
        return Asked(raw, None, (*problems, *error.problems))
    return Asked(raw, None if problems else case, tuple(problems))


def _assumed(case: Case) -> dict[str, str]:
    """What the planner has for each field, by field: of the case, or as it was filled in."""
    whole = {"recipe": answers.recipe(case), "plan": answers.plan(case)}
    found = {name: _word(value) for name, value in _fields.leaves(whole) if not isinstance(value, list)}
    return found | {one.field.removesuffix(".preset"): _word(one.value) for one in case.filled}


def _word(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _place(key: str) -> int:
    """Where the first value stands in a list of the catalogue."""
    return _fields.ids(key).index(FIRST[key])


def _which(key: str, choices: tuple[str, ...]) -> None:
    """Which of two ways a thing is stated in."""
    st.segmented_control(t(f"app.{key}.label"), choices, default=choices[0], required=True, key=key, **KEPT)


def _model(asked: Asked) -> None:
    """The model by name, size or id, or its configuration; below it what it is."""
    if st.session_state["source"] == "config":
        st.text_area(t("app.config.label"), key="config", height=120, max_chars=_models.MOST,
                     placeholder=t("app.config.placeholder"), help=t("app.config.help"), **KEPT)  # fmt: skip
    else:
        held = st.session_state.get("model") or st.query_params.get("model")
        known = _fields.ids("model")
        options = [*known, held] if held and held not in known else known
        st.selectbox(t("app.model.label"), options, index=_place("model"), key="model", accept_new_options=True,
                     help=t("app.model.help"), **KEPT)  # fmt: skip
    if id := _models.elsewhere(asked.raw.get("model")):
        st.button(t("app.fetch.button", id=plain(id)), key="fetch", on_click=_files.fetch, args=(id,), width="stretch",
                  help=t("app.fetch.help"))  # fmt: skip
    if asked.case:
        model = asked.case.model
        st.caption(t("app.model.about", params=count_text(float(value_of(parameters(model)))), layers=int(model.layers),
                     hidden=int(model.hidden), name=plain(model.name)))  # fmt: skip


def _cluster(asked: Asked) -> None:
    """A GPU and how many, or a node and how many."""
    what, many = st.columns([3, 2], gap="small")
    by_node = st.session_state["hardware"] == "node"
    name, count = ("cluster.node", "cluster.nodes") if by_node else ("cluster.gpu", "cluster.gpus")
    what.selectbox(t(f"app.field.{name}"), _fields.ids(name), index=_place(name), key=name, **KEPT)
    many.number_input(t(f"app.field.{count}"), value=FIRST[count], step=1, key=count, placeholder="1", **KEPT)
    if asked.case:
        card = asked.case.cluster
        usable = f"{gib(float(value_of(card.accelerator.memory_usable))):.1f}"
        st.caption(t("app.hardware.about", gpus=card.gpus, gpu=plain(card.accelerator.name), usable=usable))


def _rows(fields: Sequence[Field], values: dict[str, Any]) -> None:
    """Fields two in a row; those that are not asked for are left out."""
    shown = [field for field in fields if field.when(values)]
    with st.grid(2, gap=("small", "small"), min_column_width=120) as grid:
        for field in shown:
            if field.name in WIDE:
                with grid.cell(column_span="all"):
                    _widget(field)
            else:
                _widget(field)


def _widget(field: Field) -> None:
    """The widget of one field; open, it shows what the planner assumes."""
    assumed = st.session_state.get("assumed", {}).get(field.name, t("app.open_field"))
    tip = f"app.help.{field.name}"
    about = {"key": field.name, "placeholder": assumed, "help": t(tip) if has(tip) else None, **KEPT}
    match field.kind:
        case "whole":
            st.number_input(field.label, value=None, step=field.step, **about)
        case "several":
            st.multiselect(field.label, field.choices, **about)
        case _:
            st.selectbox(field.label, field.choices, index=None, **about)


def _case_file() -> None:
    """Open what was saved, name the case, and state fields that have no widget."""
    st.caption(t("app.examples"))
    for key, tree in cases.examples().items():
        st.button(t(f"app.example.{key}"), key=f"example-{key}", on_click=_files.fill, args=(tree,), width="stretch")
    st.file_uploader(t("app.open.label"), type=["json", "toml", "html", "pdf"], key=_files.uploader_key(),
                     on_change=_files.opened, help=t("app.open.help"), max_upload_size=_files.MOST)  # fmt: skip
    st.text_input(t("app.name.label"), key="name", max_chars=200, **KEPT)
    st.text_area(t("app.set.label"), key="set", height=90, help=t("app.set.help"), placeholder=t("app.set.placeholder"),
                 max_chars=_models.MOST, **KEPT)  # fmt: skip
