"""The published records beside their predictions, kept for every visit; which of them are shown; the one opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from planner import i18n
from planner.evidence import rows as evidence
from planner.evidence.accuracy import SPLITS
from planner.evidence.own import Own
from planner.evidence.rows import FRONTIER, Row
from planner.i18n import t

FILTERS = tuple(SPLITS)
#: the record that is open: "ours:" and its id, or "own:" and its line
OPEN = "evidence_open"
OURS, OWN = "ours:", "own:"


@st.cache_resource(max_entries=4, show_spinner=False)
def _rows(language: str) -> tuple[Row, ...]:
    """Every published record with its prediction; rows are never changed, so that one copy serves all."""
    i18n.use(language)
    return tuple(evidence.rows(evidence.shipped()))


@st.cache_resource(max_entries=1, show_spinner=False)
def _records() -> dict[str, dict[str, Any]]:
    """The published records by id."""
    return {str(line.record["id"]): line.record for line in evidence.shipped() if line.record}


def ours() -> tuple[Row, ...]:
    """The published records; the first visitor waits for their predictions."""
    with st.spinner(t("page_evidence.predicting")):
        return _rows(i18n.current())


def own() -> Own | None:
    """The visitor's own records, while there are any."""
    found: Own | None = st.session_state.get("evidence_own")
    return found


# Filters


def filtered(every: Iterable[Row]) -> list[Row]:
    """The filters, and the rows that pass them. An empty filter lets everything pass."""
    rows = list(every)
    chosen = {}
    with st.grid(4, gap="small", min_column_width=150):
        for name in FILTERS:
            chosen[name] = st.multiselect(
                t(f"page_evidence.filter.{name}"), _options(rows, name), key=f"evidence_{name}",
                placeholder=t("page_evidence.filter.every"), format_func=word, persist_state="session",
            )  # fmt: skip
    return [row for row in rows if all(_passes(row, name, some) for name, some in chosen.items())]


def _options(rows: Iterable[Row], name: str) -> list[str]:
    """What a column holds, the most frequent first; fits and oom are no metrics to choose: they have their own tab."""
    counts = Counter(SPLITS[name](row) for row in rows)
    return [word for word, _ in counts.most_common() if word not in FRONTIER]


def _passes(row: Row, name: str, chosen: list[str]) -> bool:
    value = SPLITS[name](row)
    return not chosen or value in chosen or value in FRONTIER


def word(name: str) -> str:
    """A value of a column for people: what a record leaves open has a word too."""
    return t("chart.accuracy.unstated") if name == "None" else name


# The record that is open


def keyed(rows: Iterable[Row]) -> dict[str, Row]:
    """Published rows by key."""
    return {f"{OURS}{row.id}": row for row in rows}


def keyed_own(rows: Mapping[int, Row]) -> dict[str, Row]:
    """Own rows by key."""
    return {f"{OWN}{number}": row for number, row in rows.items()}


def find(key: str) -> tuple[Row | None, dict[str, Any] | None]:
    """The row and the record of a key, where they are still there."""
    mine = own()
    if key.startswith(OURS):
        name = key.removeprefix(OURS)
        return next((row for row in ours() if row.id == name), None), _records().get(name)
    number = int(key.removeprefix(OWN))
    return (mine.rows.get(number), mine.record(number)) if mine else (None, None)


def show(key: str) -> None:
    """Callback: open a record."""
    st.session_state[OPEN] = key


def close() -> None:
    """Callback: nothing is open; chart and search box are made anew, so that the same record can be chosen again."""
    st.session_state[OPEN] = None
    st.session_state["evidence_turns"] = [*st.session_state.get("evidence_turns", []), None]


def turn() -> int:
    """How often something was closed: part of the keys of what is chosen in."""
    return len(st.session_state.get("evidence_turns", []))


def show_row(keys: list[str], button: str) -> None:
    """Callback of a table's button: open the record of its row."""
    click = st.session_state.get(button)
    if click and click["row"] < len(keys):
        show(keys[click["row"]])
