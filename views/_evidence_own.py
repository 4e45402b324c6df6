"""The visitor's own records: read piece by piece while the page stays usable, shown beside ours, never stored."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from planner.evidence.accuracy import accuracy
from planner.evidence.own import MOST_LINES, MOST_TOLD, Own
from planner.i18n import t
from views import _evidence, _evidence_tables
from views._text import plain, speak

#: MB, the largest file
MOST = 100
#: s of work between two looks at the page
SLICE, PAUSE = 0.8, 0.9
TYPES = ["jsonl", "ndjson", "json", "txt"]


def under_way() -> None:
    """Work on a file that was opened; while it takes longer, how far it is and a way to end it."""
    own = _evidence.own()
    if own and not own.ended and not own.work(SLICE):
        st.fragment(_watch, run_every=PAUSE)()


def _watch() -> None:
    speak()
    own = _evidence.own()
    if own is None or own.ended or own.work(SLICE):
        st.rerun()
    bar, button = st.columns([4, 1], vertical_alignment="bottom")
    bar.progress(own.share, t("page_evidence.own.under_way", done=own.done, total=own.total))
    button.button(t("page_evidence.own.stop"), key="evidence_stop", on_click=own.stop, width="stretch")


def show() -> None:
    """The uploader, or what became of the file."""
    own = _evidence.own()
    st.markdown(t("page_evidence.own.about", lines=MOST_LINES, size=MOST))
    st.file_uploader(t("page_evidence.own.label"), type=TYPES, key=_key(), on_change=_opened, max_upload_size=MOST,
                     help=t("page_evidence.own.help"))  # fmt: skip
    if own and own.ended:
        _answered(own)


def _key() -> str:
    """The uploader's key; it changes after each file, so that Streamlit keeps none."""
    return f"evidence-upload-{len(st.session_state.get('evidence_uploads', []))}"


def _opened() -> None:
    """Callback of the uploader: the file is held by this session only, packed, until it is removed or replaced."""
    speak()
    file = st.session_state.get(_key())
    if file is None:
        return
    st.session_state["evidence_uploads"] = [*st.session_state.get("evidence_uploads", []), None]
    st.session_state["evidence_own"] = Own(file.getvalue(), file.name)


def _remove() -> None:
    """Callback: forget the file."""
    st.session_state["evidence_own"] = None


def _answered(own: Own) -> None:
    """How many lines were answered, their figures, their rows, the lines without an answer, and the way out."""
    st.markdown(t("page_evidence.own.read", name=plain(own.name), lines=own.done, refused=own.count_refused))
    if own.cut or own.stopped:
        st.warning(t("page_evidence.own.cut" if own.cut else "page_evidence.own.stopped", lines=own.done))
    with st.container(horizontal=True, gap="small"):
        st.download_button(t("page_evidence.own.save"), own.answers, "predictions.jsonl", "application/jsonl",
                           key="evidence_answers", on_click="ignore",
                           help=t("page_evidence.own.save_help"))  # fmt: skip
        st.button(t("page_evidence.own.remove"), key="evidence_remove", on_click=_remove)
    if own.refused:
        _refused(own)
    if own.rows:
        found = accuracy(own.rows.values())
        _evidence_tables.figures(found, "own")
        if found.errors is not None:
            _evidence_tables.split(found, "own")
        _evidence_tables.frontier(found)
        _evidence_tables.listing(_evidence.keyed_own(own.rows), "own_rows")


def _refused(own: Own) -> None:
    """Lines without an answer, each with its reason."""
    title = t("page_evidence.own.refused", count=own.count_refused)
    st.warning(title)
    heads = {name: t(f"page_evidence.column.{name}") for name in ("line", "id", "reason")}
    rows = [{"line": one.number, "id": one.id, "reason": one.reason} for one in own.refused]
    st.dataframe(
        pd.DataFrame(rows), hide_index=True, width="stretch", height=220 if len(rows) > 5 else "content", key="refused",
        column_config={
            "line": st.column_config.NumberColumn(heads["line"], format="%d", width=60),
            "id": st.column_config.TextColumn(heads["id"], width=180),
            "reason": st.column_config.TextColumn(heads["reason"], width=700),
        },
        alt=title,
    )  # fmt: skip
    if own.count_refused > len(own.refused):
        st.caption(t("page_evidence.own.told", count=MOST_TOLD))
