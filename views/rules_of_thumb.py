"""Rules of thumb: the founding article's rules beside the planner's answers, and the audit of its 109 figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
import streamlit as st

from planner import article, cases, explain, i18n, thumb
from planner.errors import PlannerError
from planner.i18n import t
from planner.quantity import Formula, value_of
from planner.units import gb
from views import _inputs, _tables
from views._text import plain, problem_list

TABS = ("rules", "audit", "batch")
#: groups of rules in the article's order -> how the keys of their rules begin
GROUPS = {
    "states": ("state-", "bytes-", "master-"),
    "capacity": ("memory", "largest-", "overhead"),
    "activations": ("layer", "attention", "intermediates"),
    "checkpointing": ("checkpoint-",),
    "zero": ("zero-",),
    "batch": ("max-batch",),
}
#: beside the word, so that a verdict is told without its colour
MARKS = {"sound": "✓", "approx": "≈", "wrong": "✗"}
#: columns of the audit
COLUMNS = ("number", "scope", "verdict", "claim", "right", "live")
#: number, promise, verdict and figure stay on one line, in Chinese too
STYLE = """<style>
.st-key-audit_rows :is(td, th):is(:nth-child(-n+3), :last-child) { white-space: nowrap; }
.st-key-audit_rows :is(td, th):is(:nth-child(-n+3), :last-child) * { white-space: nowrap; }
</style>"""
SCOPES = [f"S{i}" for i in range(1, 19)]
FORMULAS = "views/formulas.py"


def page() -> None:
    """The whole page."""
    asked = _inputs.asked()
    st.markdown(f"#### {t('page_rules.title')}")
    st.markdown(t("page_rules.intro", rows=len(article.audit()), **article.tally()))
    tabs = st.tabs([t(f"page_rules.tab.{name}") for name in TABS], key="rules_tab", on_change="rerun")
    for name, tab in zip(TABS, tabs, strict=True):
        if tab.open:
            with tab:
                _part(name, asked)


def _part(name: str, asked: _inputs.Asked) -> None:
    """What stands in a tab; it is made only while that tab is open."""
    match name:
        case "rules":
            _rules(asked)
        case "audit":
            _audit()
        case "batch":
            _batch(asked)


# The rules


@st.cache_data(max_entries=64, show_spinner=False)
def rules(cluster: str, language: str) -> list[dict[str, Any]]:
    """Every rule for a cluster (JSON) as text to show."""
    i18n.use(language)
    stated = json.loads(cluster)
    return [_shown(one) for one in thumb.rules(stated if isinstance(stated, dict) else {})]


def _shown(one: thumb.Rule) -> dict[str, Any]:
    says, made = _tables.figure(one.rule), one.rule.formula
    if one.upper is not None:
        says = t("page_rules.range", low=says, high=_tables.figure(one.upper))
    return {
        "key": one.key, "title": one.title(), "verdict": one.verdict, "about": str(one.words["about"]),
        "says": says, "model": _tables.figure(one.model), "numbers": _tables.numbers(one.rule),
        "formula": made.name if isinstance(made, Formula) else "", "because": one.because(),
        "also": [(thumb.label(name), _tables.figure(value)) for name, value in one.also],
        "rows": list(one.rows), "stated": _stated(one),
    }  # fmt: skip


def _stated(one: thumb.Rule) -> str:
    """The figure as the article gives it, in GB."""
    ends = [one.rule] if one.upper is None else [one.rule, one.upper]
    return " – ".join(_tables.counted(explain.figure(gb(float(value_of(end)))), "GB") for end in ends)


def group(key: str) -> str:
    """The group that a rule belongs to."""
    return next(name for name, begins in GROUPS.items() if key.startswith(begins))


def _rules(asked: _inputs.Asked) -> None:
    try:
        found = rules(json.dumps(asked.raw.get("cluster") or {}), i18n.current())
    except PlannerError as error:
        st.error(problem_list(t("app.fit.problems", count=len(error.problems)), error.problems))
        return
    st.caption(t("page_rules.about_note"))
    for name in GROUPS:
        held = [one for one in found if group(one["key"]) == name]
        if not held:
            continue
        st.markdown(f"##### {t(f'page_rules.group.{name}')}")
        with st.grid(2, gap="small", min_column_width=420):
            for one in held:
                _card(one)


def _card(one: Mapping[str, Any]) -> None:
    """One rule: what it says, what the planner says, and why."""
    with st.container(border=True, key=f"rule-{one['key']}", gap="xsmall", height="stretch"):
        about = t(f"page_rules.about.{one['about']}")
        st.markdown(f"**{plain(one['title'])}**  \n{verdict(one['verdict'])} · {about}")
        left, right = st.columns(2, gap="small")
        left.metric(t("page_rules.says"), one["says"])
        right.metric(t("page_rules.model"), one["model"])
        if one["numbers"]:
            st.code(one["numbers"], language=None, wrap_lines=True)
        else:
            st.caption(t("page_rules.stated", figure=one["stated"]))
        if one["also"]:
            lines = (t("page_rules.also_line", name=plain(name), value=plain(value)) for name, value in one["also"])
            also = "\n".join(f"- {line}" for line in lines)
            st.markdown(f"{t('page_rules.also')}\n\n{also}")
        st.markdown(plain(one["because"]))
        with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
            st.caption(t("page_rules.judged", rows=", ".join(map(str, one["rows"]))))
            if one["formula"]:
                st.page_link(FORMULAS, label=t("page_rules.open", name=one["formula"]),
                             query_params={"formula": one["formula"]})  # fmt: skip


def verdict(word: str) -> str:
    """A verdict of the audit: a mark and the word."""
    return f"{MARKS[word]} {t(f'page_rules.verdict.{word}')}"


# The audit


@st.cache_data(max_entries=4, show_spinner=False)
def audit(language: str) -> list[dict[str, Any]]:
    """Every row of the audit as text to show, in the article's order."""
    i18n.use(language)
    return [
        {
            "number": row.number, "scope": row.scope, "section": row.section, "kind": row.verdict,
            "verdict": verdict(row.verdict), "claim": row.claim(), "right": " ".join((row.text(), row.note())).strip(),
            "live": live(row),
        }
        for row in article.audit()
    ]  # fmt: skip


def live(row: article.Row) -> str:
    """The figure that the planner computes now, in the row's own unit; nothing where it has none."""
    found, value = row.figure(), row.shown()
    if found is None or value is None:
        return ""
    if row.unit == "1e9 param":
        return _tables.figure(found)
    if row.unit in ("", "1"):
        return explain.figure(value)
    return _tables.counted(explain.figure(value), row.unit)


def _audit() -> None:
    rows = audit(i18n.current())
    st.markdown(t("page_rules.audit_note"))
    with st.grid(3, gap="small", min_column_width=120):
        for word, count in article.tally().items():
            st.metric(verdict(word), t("page_rules.of", count=count, all=len(rows)), border=True)
    pick, scope, search = st.columns([4, 4, 4], vertical_alignment="bottom")
    with pick:
        kinds = st.pills(t("page_rules.column.verdict"), list(MARKS), selection_mode="multi", format_func=verdict,
                         key="audit_verdict", persist_state="session")  # fmt: skip
    with scope:
        scopes = st.multiselect(t("page_rules.column.scope"), SCOPES, key="audit_scope", format_func=_scope,
                                placeholder=t("page_rules.every"), persist_state="session")  # fmt: skip
    with search:
        words = _tables.asked_words("audit_words", t("page_rules.search"), t("page_rules.search_hint"))
    shown = _tables.matching(kept(rows, kinds, scopes), words)
    st.caption(t("page_rules.count", count=len(shown), all=len(rows)))
    if shown:
        _audit_table(shown)


def kept(rows: Iterable[Mapping[str, Any]], kinds: Iterable[str], scopes: Iterable[str]) -> list[Mapping[str, Any]]:
    """Rows of these verdicts and promises; of all where none is named."""
    kinds, scopes = list(kinds), list(scopes)
    return [r for r in rows if (not kinds or r["kind"] in kinds) and (not scopes or r["scope"] in scopes)]


def _scope(name: str) -> str:
    return f"{name} {t(f'page_rules.scope.{name}')}"


def _audit_table(rows: Iterable[Mapping[str, Any]]) -> None:
    """The rows as a table whose text wraps."""
    names = {name: t(f"page_rules.column.{name}") for name in COLUMNS}
    shown = pd.DataFrame([{title: plain(row[name]) for name, title in names.items()} for row in rows])
    st.html(STYLE)
    with st.container(key="audit_rows"):
        st.table(shown, hide_index=True, border="horizontal", alt=t("page_rules.audit_alt"))


# The largest batch of the run at hand


@st.cache_data(max_entries=64, show_spinner=False)
def batch(raw: str, language: str) -> dict[str, Any]:
    """The article's batch law for a case (its file form as JSON), and the planner's answer, as text to show."""
    i18n.use(language)
    law = thumb.batch_law(cases.case(json.loads(raw), files=False))
    return {
        "fixed": _tables.figure(law.fixed), "per_sample": _tables.figure(law.per_sample),
        "says": _tables.figure(law.by_rule), "model": _tables.figure(law.by_model),
        "numbers": "" if law.by_rule is None else _tables.numbers(law.by_rule), "rule": law.by_rule is not None,
        "one_line": law.one_line, "binding": law.by_model.because or "",
    }  # fmt: skip


def _batch(asked: _inputs.Asked) -> None:
    st.markdown(t("page_rules.batch_note"))
    if asked.case is None:
        st.error(problem_list(t("app.fit.problems", count=len(asked.problems)), asked.problems))
        return
    try:
        law = batch(json.dumps(asked.raw), i18n.current())
    except PlannerError as error:
        st.warning(problem_list(t("page_rules.batch_refused"), error.problems))
        return
    with st.grid(4, gap="xsmall", min_column_width=170):
        for name in ("fixed", "per_sample", "says", "model"):
            st.metric(t(f"page_rules.law.{name}"), law[name], border=True)
    if law["numbers"]:
        st.code(law["numbers"], language=None, wrap_lines=True)
    st.markdown(t("page_rules.batch_limit", binding=plain(law["binding"])))
    if not law["rule"]:
        st.warning(t("page_rules.batch_flat"))
    elif not law["one_line"]:
        st.warning(t("page_rules.batch_bent"))
    else:
        st.info(t("page_rules.batch_straight"))


page()
