"""Verify with the real code: a button, how far the trace is, and its answer beside that of the formulas."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from planner.errors import BadInput, Problem
from planner.i18n import phrase, t
from planner.spec.case import Case
from planner.trace import run
from planner.trace.answer import Question
from views import _traced, _tracing
from views._text import plain, problem_list, speak
from views._tracing import Request, Tracing

#: s between two looks at a worker
PAUSE = 0.5


def show(case: Case) -> None:
    """The whole section for the case of the page."""
    tracing = _tracing.held()
    tracing.poll()
    try:
        request = Question(case).request()
    except BadInput as error:
        _refused(error.problems)
        aside()
        return
    if found := _tracing.answered(case, request, _traced.mode(case)):
        _traced.show(found, fresh=tracing.asked == _tracing.key(request))
        aside()
        return
    _heading()
    if lacking := run.missing():
        missing = Problem("trace", phrase("trace.missing", names=", ".join(lacking)), run.install())
        _refused([missing], heading=False)
        return
    _ask(tracing, request)


def aside() -> None:
    """A trace of other inputs than the page's, if one is under way."""
    tracing = _tracing.held()
    if not tracing.poll():
        _watch(other=True)


def _heading() -> None:
    st.markdown(f"#### {t('app.trace.title')}")
    st.caption(t("app.trace.about"))


def _refused(problems: Iterable[Problem], heading: bool = True) -> None:
    """Why there is no trace of this case, and what comes nearest."""
    if heading:
        _heading()
    st.button(t("app.trace.button"), key="trace-start", disabled=True)
    st.info(problem_list(t("app.trace.cannot"), problems))


def _ask(tracing: Tracing, request: Request) -> None:
    """The button, and what became of the last trace."""
    ours, busy = tracing.asked == _tracing.key(request), tracing.running is not None
    if busy:
        _watch(other=not ours)
    if not (busy and ours):
        st.button(t("app.trace.instead" if busy else "app.trace.button"), key="trace-start", on_click=tracing.start,
                  args=(request,))  # fmt: skip
    if busy or not (tracing.ended or tracing.problems):
        return
    if not ours:
        if not tracing.problems and not tracing.cancelled:
            st.caption(t("app.trace.other_ended"))
    elif tracing.problems:
        st.error(problem_list(t("app.trace.failed"), tracing.problems))
        st.caption(t("trace.estimate-stays"))
    elif tracing.cancelled:
        st.info(t("app.trace.cancelled"))


def _watch(other: bool) -> None:
    """Stage, share and a way to end it, asked anew twice a second for as long as the worker is at work."""
    st.fragment(_under_way, run_every=PAUSE)(other)


def _under_way(other: bool) -> None:
    speak()
    tracing = _tracing.held()
    if tracing.poll() or (running := tracing.running) is None:
        st.rerun()
    stage = t(f"trace.stage.{running.stage}")
    text = t("app.trace.other" if other else "app.trace.under_way", stage=plain(stage))
    bar, button = st.columns([4, 1], vertical_alignment="bottom")
    bar.progress(min(running.share, 1.0), text)
    button.button(t("app.trace.cancel"), key="trace-cancel", on_click=tracing.cancel, width="stretch")
