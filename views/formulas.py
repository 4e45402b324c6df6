"""Formulas and sources: every formula in mathematical notation, the glossary, the coefficients and the works cited."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pandas as pd
import streamlit as st

from planner import reference, terms
from planner.calibration.coefficients import Coefficient
from planner.errors import Problem
from planner.i18n import has, t
from planner.quantity import Formula
from views import _tables
from views._text import plain, problem_list

TABS = ("formulas", "glossary", "coefficients", "sources")
#: the most formulas that a search shows at once
MOST = 20
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
GLOSSARY = {"name": 190, "symbol": 70, "unit": 130, "en": 260, "zh": 240, "note": 380}
COEFFICIENTS = ("name", "value", "spread", "unit", "valid", "origin", "source")


def page() -> None:
    """The whole page."""
    st.markdown(f"#### {t('page_formulas.title')}")
    _linked()
    count = sum(len(held) for held in reference.chapters().values())
    st.markdown(t("page_formulas.intro", formulas=count, sources=len(reference.works())))
    tabs = st.tabs([t(f"page_formulas.tab.{name}") for name in TABS], key="formulas_tab", on_change="rerun")
    for name, tab in zip(TABS, tabs, strict=True):
        if tab.open:
            with tab:
                _part(name)


def _part(name: str) -> None:
    """What stands in a tab; it is made only while that tab is open."""
    match name:
        case "formulas":
            _formulas()
        case "glossary":
            _glossary()
        case "coefficients":
            _coefficients()
        case "sources":
            _sources()


# A formula by link


def _linked() -> None:
    """The formula that the link names, before all others; a name that is none is refused in words."""
    name = st.query_params.get("formula")
    if not name:
        return
    found = reference.formula(name)
    if found is None:
        refused = Problem("formula", t("page_formulas.unknown", name=name[:60]), reference.close_to(name))
        st.warning(problem_list(t("page_formulas.refused"), [refused]))
    else:
        with st.container(key="formula_linked"):
            card(found)
    st.button(t("app.close"), key="formula_close", on_click=_close)


def _close() -> None:
    """Callback: the page without the formula of the link."""
    if "formula" in st.query_params:
        del st.query_params["formula"]


# Formulas


def _formulas() -> None:
    """All of them by chapter, each made only while its chapter is open; or those that were looked for."""
    words = _tables.asked_words("formulas_words", t("page_formulas.search"), t("page_formulas.search_hint"))
    if words:
        found = reference.search(words)
        st.caption(t("page_formulas.found", count=len(found), most=min(len(found), MOST)))
        for one in found[:MOST]:
            card(one)
        return
    for name, held in reference.chapters().items():
        title = t("page_formulas.chapter_of", title=chapter(name), count=len(held))
        part = st.expander(title, key=f"chapter-{name}", on_change="rerun")
        if part.open:
            with part:
                for one in held:
                    card(one)


def chapter(name: str) -> str:
    """A chapter's title."""
    key = f"page_formulas.chapter.{name}"
    return t(key) if has(key) else name


def card(one: Formula) -> None:
    """One formula: what it gives, its equation, what it says and leaves out, its inputs and its source."""
    with st.container(border=True, gap="xsmall"):
        st.markdown(f"**{plain(reference.label(one.name))}** · `{one.name}` · {_unit(one.unit)}")
        st.latex(reference.latex(one))
        st.markdown(f"{_tables.coded(reference.about(one))}\n\n{_inputs(one)}\n\n{_source(one)}")


def _inputs(one: Formula) -> str:
    head = [t(f"page_formulas.column.{name}") for name in ("symbol", "input", "unit")]
    rows = ([f"${i['latex']}$", f"{plain(i['label'])} `{i['name']}`", _unit(i["unit"])] for i in reference.inputs(one))
    return _tables.table(head, rows)


def _unit(unit: str) -> str:
    return t("page_formulas.number") if unit in ("", "1") else plain(unit)


def _source(one: Formula) -> str:
    cited = f"**{plain(one.source)}**: {work(reference.works().get(one.source, {}))}"
    return t("page_formulas.source", key=cited)


def work(source: dict[str, Any]) -> str:
    """A work in a line: authors, title, year, where, and when it was read."""
    said = [str(source[part]) for part in ("authors", "title", "year", "where") if source.get(part)]
    line = plain(". ".join(part.rstrip(".") for part in said) or t("app.chain.unlisted"))
    return f"{line}. {_read_on(source['read_on'])}" if source.get("read_on") else line


def _read_on(day: str) -> str:
    """When it was read; some pages are dated by their year."""
    if _DAY.fullmatch(day):
        return t("page_formulas.read_on", day=day)
    return t("page_formulas.read_in", year=plain(day))


# Glossary, coefficients, sources


def _glossary() -> None:
    words = _tables.asked_words("glossary_words", t("page_formulas.search"), t("page_formulas.glossary_hint"))
    every = reference.glossary()
    rows = _tables.matching(every, words)
    st.caption(t("page_formulas.count", count=len(rows), all=len(every)))
    columns = {
        name: st.column_config.TextColumn(t(f"page_formulas.column.{name}"), width=width)
        for name, width in GLOSSARY.items()
    }
    st.dataframe(pd.DataFrame(rows, columns=list(GLOSSARY)), hide_index=True, width="stretch", height=560,
                 column_config=columns, key="glossary", alt=t("page_formulas.glossary_alt"))  # fmt: skip


def _coefficients() -> None:
    st.markdown(t("page_formulas.coefficients_note"))
    names = {name: t(f"page_formulas.column.{name}") for name in COEFFICIENTS}
    rows = [coefficient(one) for one in reference.coefficients()]
    shown = pd.DataFrame([{title: row[name] for name, title in names.items()} for row in rows])
    st.table(shown, hide_index=True, border="horizontal", alt=t("page_formulas.coefficients_alt"))


def coefficient(one: Coefficient) -> dict[str, str]:
    """A coefficient as cells in Markdown; bytes in GiB."""
    value, low, high = (_tables.amount(v, one.unit)[0] for v in (one.value, one.low, one.high))
    return {
        "name": _named(one.name), "value": plain(value), "spread": _tables.whole(f"{low} … {high}"),
        "unit": _unit(_tables.amount(one.value, one.unit)[1]), "valid": plain(one.valid),
        "origin": plain(one.origin), "source": plain(one.source),
    }  # fmt: skip


def _named(name: str) -> str:
    """A coefficient's name, with what it is called where the glossary has it."""
    return f"**{plain(terms.beside(name))}** `{name}`" if terms.beside(name) else f"`{name}`"


def _sources() -> None:
    words = _tables.asked_words("sources_words", t("page_formulas.search"), t("page_formulas.sources_hint"))
    uses = reference.cited()
    rows = _tables.matching(({"key": key, **about} for key, about in reference.works().items()), words)
    st.caption(t("page_formulas.count", count=len(rows), all=len(reference.works())))
    st.markdown("\n".join(_lines(rows, uses)))


def _lines(rows: Iterable[Any], uses: dict[str, int]) -> Iterable[str]:
    for row in rows:
        cited = f" {t('page_formulas.cited', count=uses[row['key']])}" if row["key"] in uses else ""
        yield f"- **{plain(row['key'])}**: {work(row)}{cited}"


page()
