"""Evidence: predicted against measured memory of published runs, how far off that is, and why."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from planner.charts import accuracy as charts
from planner.evidence.accuracy import Accuracy, accuracy
from planner.evidence.own import thinned
from planner.evidence.rows import FRONTIER, Row
from planner.i18n import t
from views import _evidence, _evidence_own, _evidence_record, _evidence_tables, _frame

TABS = ("points", "split", "frontier", "apart", "own")
COLOURS = ("framework", "kind", "gpu")
#: own points that a chart can hold
MOST_DRAWN = 1500


def page() -> None:
    """The whole page."""
    st.markdown(f"#### {t('page_evidence.title')}")
    every = _evidence.ours()
    st.markdown(t("page_evidence.intro", records=len(every), repositories=len({row.repository for row in every})))
    rows = _evidence.filtered(every)
    found = accuracy(rows)
    _evidence_tables.figures(found, "ours")
    st.caption(t("page_evidence.groups"))
    _evidence_own.under_way()
    tabs = st.tabs([t(f"page_evidence.tab.{name}") for name in TABS], key="evidence_tab", on_change="rerun")
    for name, tab in zip(TABS, tabs, strict=True):
        if tab.open:
            with tab:
                _part(name, rows, found)
    _evidence_record.opened()


def _part(name: str, rows: Sequence[Row], found: Accuracy) -> None:
    """What stands in a tab; it is made only while that tab is open."""
    match name:
        case "points":
            _points(rows)
        case "split":
            _evidence_tables.split(found, "ours")
            st.caption(t("page_evidence.fitted"))
        case "frontier":
            _frontier(rows, found)
        case "apart":
            st.markdown(t("page_evidence.apart", count=_evidence_tables.MOST_APART))
            _evidence_tables.apart(row for row in rows if row.point)
        case "own":
            _evidence_own.show()


def _points(rows: Sequence[Row]) -> None:
    """The chart, a search box for a record, and the same rows as a table."""
    colour, others = st.columns([3, 2], vertical_alignment="bottom")
    by = colour.segmented_control(
        t("page_evidence.colour"), COLOURS, default=COLOURS[0], required=True, key="evidence_colour",
        format_func=lambda name: t(f"page_evidence.filter.{name}"), persist_state="session",
    )  # fmt: skip
    pale = others.toggle(t("page_evidence.pale"), key="evidence_pale", help=t("page_evidence.pale_help"),
                         persist_state="session")  # fmt: skip
    shown = _evidence.keyed(row for row in rows if row.point or (pale and charts.shown(row)))
    own = _own_points()
    _chart(shown, own, str(by or COLOURS[0]))
    st.selectbox(t("page_evidence.search"), [*shown, *own], index=None, key=f"evidence_search_{_evidence.turn()}",
                 format_func=lambda key: {**shown, **own}[key].id, placeholder=t("page_evidence.search_hint"),
                 on_change=_searched)  # fmt: skip
    _evidence_tables.listing({**own, **shown}, "evidence_rows")


def _own_points() -> dict[str, Row]:
    """The visitor's records that can be drawn, thinned where they are too many."""
    mine = _evidence.own()
    if mine is None or not mine.ended:
        return {}
    drawn = {number: row for number, row in mine.rows.items() if charts.shown(row)}
    few = thinned(drawn, MOST_DRAWN)
    if len(few) < len(drawn):
        st.caption(t("page_evidence.own.thinned", count=len(few), all=len(drawn)))
    return _evidence.keyed_own(few)


def _chart(shown: dict[str, Row], own: dict[str, Row], by: str) -> None:
    """The points; one that is clicked opens."""
    if not shown and not own:
        st.info(t("page_evidence.no_points"))
        return
    about = charts.frame(shown, own, by)
    spec = charts.spec(about, _frame.dark())
    data = charts.rows(shown, own, by, about)
    key = f"chart_evidence_{_evidence.turn()}"
    with st.container(key="chart_evidence"):
        st.vega_lite_chart(spec={**spec, "datasets": {charts.ROWS: data}}, key=key, on_select=_picked,
                           selection_mode=charts.PICK, alt=charts.alt_text(shown, own))  # fmt: skip
    st.caption(t("page_evidence.chart_note", half=f"{about.half_width:.0%}"))


def _picked() -> None:
    """Callback of the chart."""
    state = st.session_state.get(f"chart_evidence_{_evidence.turn()}")
    picked = state.selection.get(charts.PICK) if state else None
    if picked:
        _evidence.show(str(picked[0][charts.KEY]))


def _searched() -> None:
    """Callback of the search box."""
    if key := st.session_state.get(f"evidence_search_{_evidence.turn()}"):
        _evidence.show(key)


def _frontier(rows: Sequence[Row], found: Accuracy) -> None:
    """Fits or not: both kinds of error, and the runs that were answered the wrong way."""
    st.markdown(t("page_evidence.frontier"))
    _evidence_tables.frontier(found)
    opposite = {"fits": "oom", "oom": "fits"}
    wrong = [row for row in rows if row.scored and row.metric in FRONTIER and row.verdict == opposite[row.metric]]
    st.markdown(t("page_evidence.wrong", count=len(wrong)))
    if wrong:
        _evidence_tables.listing(_evidence.keyed(wrong), "evidence_wrong")


page()
