"""Figures and tables of the Evidence page: how far off, by which column, the verdicts, and the rows themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

import pandas as pd
import streamlit as st

from planner.evidence import disagreements, table
from planner.evidence.accuracy import SPLITS, Accuracy
from planner.evidence.rows import FRONTIER, Row
from planner.i18n import t
from planner.units import gib
from views import _evidence
from views._text import plain

#: the rows that disagree most, and how many buttons one reason has at once
MOST_APART = 40
MOST_LISTED = 2000
HEADS = ("rows", "groups", "error", "by_repository", "bias", "p90", "band", "half_width")
VERDICTS = ("fits", "fits_untuned", "oom")


def figures(found: Accuracy, key: str) -> None:
    """The headline figures of some rows."""
    answered = t("page_evidence.of", count=found.answered, all=found.counted)
    shown = {"coverage": f"{found.coverage:.1%}"}
    if found.errors is not None:
        _, rows, groups, error, by_repository, bias, p90, band, half_width = table.rows_of({"": found.errors})[0]
        shown |= {"error": error, "by_repository": by_repository, "bias": bias, "p90": p90, "band": band}
        shown |= {"half_width": f"± {half_width}", "rows": f"{rows} / {groups}"}
    with st.container(key=f"figures_{key}"), st.grid(4, gap="xsmall", min_column_width=150):
        for name, value in shown.items():
            about = t(f"page_evidence.number_help.{name}", answered=answered)
            st.metric(t(f"page_evidence.number.{name}"), value, help=about, border=True)
    if found.errors is None:
        st.info(t("page_evidence.no_points"))


def split(found: Accuracy, key: str) -> None:
    """Errors by one column, as `planner evidence` prints them."""
    name = st.segmented_control(
        t("page_evidence.split_by"), list(SPLITS), default="framework", required=True, key=f"{key}_by",
        format_func=lambda name: t(f"page_evidence.filter.{name}"), persist_state="session",
    )  # fmt: skip
    if found.errors is None:
        return
    name = str(name or "framework")
    rows = [*table.rows_of(found.splits[name]), *table.rows_of({t("evidence.all"): found.errors})]
    heads = [t(f"evidence.{head}") for head in (name, *HEADS)]
    shown = pd.DataFrame([[plain(_evidence.word(cell)) for cell in row] for row in rows], columns=heads)
    st.table(shown, hide_index=True, border="horizontal", alt=t("page_evidence.split_alt", name=t(f"evidence.{name}")))
    st.caption(t("evidence.legend"))


def frontier(found: Accuracy) -> None:
    """Runs that are known to fit or not, and how they were answered: right, on the edge, or the wrong way."""
    heads = ("outcome", "n", "right", "edge", "opposite")
    rows = []
    for name in VERDICTS:
        one = found.frontier[name]
        shares = (f"{share:.1%}" for share in (one.right, one.edge, one.opposite))
        rows.append([t(f"page_evidence.outcome.{name}"), str(one.n), *(shares if one.n else ("", "", ""))])
    shown = pd.DataFrame(rows, columns=[t(f"page_evidence.column.{head}") for head in heads])
    st.table(shown, hide_index=True, border="horizontal", alt=t("page_evidence.frontier_alt"))


def listing(rows: Mapping[str, Row], key: str) -> None:
    """Rows as a table, each with a button that opens it."""
    listed = dict(islice(rows.items(), MOST_LISTED))
    text, number, button = st.column_config.TextColumn, st.column_config.NumberColumn, f"{key}_button"
    sizes = {name: number(t(f"page_evidence.column.{name}"), format="%.2f", width=84)
             for name in ("measured", "predicted", "low", "high")}  # fmt: skip
    st.dataframe(
        pd.DataFrame([_row(row) for row in listed.values()], columns=list(_row(NOTHING))), hide_index=True,
        width="stretch", height=380 if len(listed) > 9 else "content", key=key,
        column_config={
            "open": st.column_config.ButtonColumn(t("page_evidence.column.open"), on_click=_evidence.show_row,
                                                  args=(list(listed), button), key=button, width=70),
            "id": text(t("page_evidence.column.id"), width=300), **sizes,
            "error": number(t("page_evidence.record_number.off"), format="percent", width=74),
            "verdict": text(t("page_evidence.column.verdict"), width=90),
            "metric": text(t("page_evidence.filter.metric"), width=112),
            "framework": text(t("page_evidence.filter.framework"), width=112),
            "gpu": text(t("page_evidence.filter.gpu"), width=100),
            "repository": text(t("page_evidence.column.repository"), width=190),
        },
        alt=t("page_evidence.rows_alt", count=len(listed)),
    )  # fmt: skip
    if len(rows) > len(listed):
        st.caption(t("page_evidence.listed", count=len(listed), all=len(rows)))


NOTHING = Row("", "", "", "", "", "", "", "", "", frozenset(), None)


def _row(row: Row) -> dict[str, object]:
    measured = None if row.metric in FRONTIER else row.measured
    sizes = {"measured": measured, "predicted": row.predicted, "low": row.low, "high": row.high}
    comparable = bool(measured) and bool(row.predicted)
    return {
        "open": t("app.largest.open"), "id": row.id,
        **{name: gib(size) if size else None for name, size in sizes.items()},
        "error": row.error if comparable else None,
        "verdict": t(f"verdict.{row.verdict}") if row.verdict else t("page_evidence.skipped"),
        "metric": _evidence.word(row.metric), "framework": row.framework, "gpu": _evidence.word(row.gpu),
        "repository": row.repository,
    }  # fmt: skip


def apart(points: Iterable[Row]) -> None:
    """The rows that disagree most, by what we think the reason is."""
    worst = sorted(points, key=lambda row: -abs(row.error))[:MOST_APART]
    grouped: dict[str, list[Row]] = {}
    for row in worst:
        grouped.setdefault(disagreements.reason(row) or t("page_evidence.no_reason"), []).append(row)
    for place, (reason, rows) in enumerate(grouped.items()):
        with st.container(border=True, gap="xsmall"):
            names = t("join.list").join(dict.fromkeys(row.framework for row in rows))
            st.markdown(f"**{plain(names)}** · {plain(reason)}")
            with st.container(horizontal=True, gap="xsmall"):
                for row in rows:
                    st.button(f"{plain(row.id)} ({row.error:+.0%})", key=f"apart-{place}-{row.id}", type="tertiary",
                              on_click=_evidence.show, args=(f"{_evidence.OURS}{row.id}",))  # fmt: skip
