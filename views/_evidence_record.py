"""One record in full, over the page: where it is from, what it states, what was assumed, the figure and its chain."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import streamlit as st

from planner.errors import PlannerError
from planner.evidence import disagreements
from planner.evidence.predict import Prediction, estimate, predict
from planner.evidence.rows import FRONTIER, Row
from planner.i18n import t
from planner.units import gib
from views import _chain, _evidence, _fields, _files, _tables
from views._text import plain, problem_list, speak

FIT = "views/fit.py"
#: the frame's style of figures does not reach a dialog
STYLE = """<style>
[role=dialog] [data-testid="stMetric"] { padding: 0.5rem 0.75rem; }
[role=dialog] [data-testid="stMetricValue"] { font-size: 1rem; line-height: 1.3rem; padding: 0; }
[role=dialog] [data-testid="stCaptionContainer"], [role=dialog] [data-testid="stCaptionContainer"] p {
    color: inherit; opacity: 0.9; }
</style>"""
TABS = ("settings", "assumed", "chain", "record")
#: parts of a record that are no setting of the run
APART = ("id", "source", "measured", "notes", "grade", "tags", "inferred", "raw")
_REPOSITORY = re.compile(r"[\w.-]{1,60}/[\w.-]{1,100}")
_COMMIT = re.compile(r"[0-9a-f]{7,40}\b")


def opened() -> None:
    """The record that is open, if one is."""
    key = st.session_state.get(_evidence.OPEN)
    if not key:
        return
    row, record = _evidence.find(key)
    if row is None or record is None:
        _evidence.close()
        return
    st.dialog(t("page_evidence.record"), width="large", on_dismiss=_evidence.close)(_whole)(key, row, record)


def _whole(key: str, row: Row, record: dict[str, Any]) -> None:
    """What stands in the dialog; a widget in it runs only this."""
    speak()
    st.markdown(f"##### {plain(row.id)}")
    st.markdown(_source(record, ours=key.startswith(_evidence.OURS)))
    try:
        found = predict(record)
    except PlannerError as error:
        st.warning(problem_list(t("page_evidence.no_answer"), error.problems))
        _settings(record)
        return
    except (ArithmeticError, ValueError) as error:
        st.warning(t("record.uncomputable", error=type(error).__name__))
        return
    if st.session_state.get("evidence_chain_of") != key:
        st.session_state.update(evidence_chain_of=key, chain=found.metric)  # begins at the figure asked for
    _figures(row, found)
    _because(row)
    _actions(record, found)
    tabs = st.tabs([t(f"page_evidence.record_tab.{name}") for name in TABS], key="evidence_record_tab",
                   on_change="rerun")  # fmt: skip
    for name, tab in zip(TABS, tabs, strict=True):
        if tab.open:
            with tab:
                _part(name, record, found)


def _source(record: Mapping[str, Any], ours: bool) -> str:
    """Repository, path and commit; a link only to what we ship."""
    source = record.get("source")
    about = source if isinstance(source, Mapping) else {}
    name, path, when = (str(about.get(part) or "") for part in ("repo_or_url", "path", "date_or_commit"))
    if not name:
        return t("page_evidence.no_source")
    commit = _COMMIT.search(when)
    linked = f"https://github.com/{name}" + (f"/tree/{commit.group()}" if commit else "")
    where = f"[{plain(name)}]({linked})" if ours and _REPOSITORY.fullmatch(name) else plain(name)
    said = [where, plain(path), plain(when)]
    return t("page_evidence.source", source=" · ".join(part for part in said if part))


def _range(low: float, high: float) -> str:
    """A band in words; one without an upper end is "at least"."""
    least = f"{gib(low):.2f}"
    return f"{least} … {gib(high):.2f} GiB" if math.isfinite(high) else f"{t('show.at_least', low=least)} GiB"


def _figures(row: Row, found: Prediction) -> None:
    """Measured, predicted with its band, how far off; or the verdict beside what came of the run."""
    outcome = row.metric in FRONTIER
    measured = f"{gib(row.measured):.2f} GiB" if row.measured else t("page_evidence.nothing")
    shown = {
        "measured": t(f"page_evidence.came.{row.metric}") if outcome else measured,
        "predicted": f"{gib(found.value):.2f} GiB",
        "range": _range(found.low, found.high),
        "off": f"{row.error:+.1%}" if row.measured and not outcome else t("page_evidence.nothing"),
        "verdict": t(f"verdict.{found.worst.verdict}"),
    }  # fmt: skip
    st.html(STYLE)
    with st.container(key="figures_record"), st.grid(5, gap="xsmall", min_column_width=128):
        for name, value in shown.items():
            st.metric(t(f"page_evidence.record_number.{name}"), value, border=True)
    scope = t("page_evidence.scope", metric=plain(_evidence.word(row.metric)), figure=t(f"app.number.{found.metric}"),
              scope=plain(found.scope or "per-gpu"), stage=int(found.memory.stage.index))  # fmt: skip
    st.caption(scope)


def _because(row: Row) -> None:
    """Whether the band holds it, whether it counts, and what we think the reason is."""
    if not row.measured or row.metric in FRONTIER:
        return
    text = t("page_evidence.inside" if row.inside else "page_evidence.outside")
    reason = disagreements.reason(row)
    why = t("page_evidence.reason", reason=reason) if reason else t("page_evidence.no_reason")
    said = [text] if disagreements.agrees(row) else [text, why]
    if not row.point:
        said.append(t("page_evidence.uncounted"))
    st.info(plain(t("join.sentences").join(said)))


def _actions(record: Mapping[str, Any], found: Prediction) -> None:
    with st.container(horizontal=True, gap="small"):
        st.button(t("page_evidence.open_fit"), key="evidence_fit", on_click=_open_fit, args=(found.expressed.form,),
                  help=t("page_evidence.open_fit_help"))  # fmt: skip
        st.download_button(t("page_evidence.save_record"), json.dumps(record, ensure_ascii=False) + "\n",
                           "record.jsonl", "application/jsonl", key="evidence_save", on_click="ignore")  # fmt: skip


def _open_fit(form: dict[str, Any]) -> None:
    """Callback: the record's case becomes the inputs of the page that answers it in full."""
    if values := _files.fill(form):
        _evidence.close()
        st.switch_page(FIT, query_params=_files.unshown(values))


def _part(name: str, record: Mapping[str, Any], found: Prediction) -> None:
    match name:
        case "settings":
            _settings(record)
        case "assumed":
            lines = [f"- {plain(line)}" for line in found.expressed.case.assumed]
            st.markdown("\n".join(lines) or t("page_evidence.nothing_assumed"))
        case "chain":
            _chain.show(estimate(found))
        case "record":
            st.json(record)


def _settings(record: Mapping[str, Any]) -> None:
    """What the record states of the run, field by field, and its notes."""
    stated = {name: value for name, value in record.items() if name not in APART}
    heads = (t("page_evidence.column.field"), t("page_evidence.column.value"))
    cells = ([plain(name), plain(_written(value))] for name, value in _fields.leaves(stated))
    st.markdown(_tables.table(heads, cells))
    if notes := record.get("notes"):
        st.caption(t("page_evidence.notes", notes=plain(notes)))


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
