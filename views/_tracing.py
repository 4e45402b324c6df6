"""The one trace that a session may run: started, asked how far it is, ended; and its answers, ready to be shown.

The worker ends with its trace, when it is cancelled, when another is started, when the browser leaves (Streamlit then
releases what is cached for a session), when the server ends, and, as its input closes, when the server is killed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import streamlit as st

import planner
from planner.errors import PlannerError, Problem
from planner.spec.case import Case
from planner.trace import run
from planner.trace.answer import Question, Traced, answer, room

Request = Mapping[str, Any]
_numbers = itertools.count()


@dataclass(slots=True)
class Tracing:
    """A session's trace. `asked` is the request it was given last, `running` its worker while there is one.

    An answer lives in the traces' own cache on disk; it is kept here only where that could not be written.
    """

    asked: str = ""
    running: run.Running | None = None
    unkept: dict[str, Any] | None = None
    ended: bool = False
    cancelled: bool = False
    problems: tuple[Problem, ...] = ()
    number: int = field(default_factory=lambda: next(_numbers))

    def start(self, request: Request) -> None:
        """Begin to trace; what ran before is ended."""
        self.cancel()
        self.asked, self.unkept, self.problems = key(request), None, ()
        self.ended = self.cancelled = False
        try:
            self.running = run.Running(dict(request))
        except PlannerError as error:
            self.problems = error.problems
        else:
            _leash(self.number, self)

    def poll(self) -> bool:
        """Take in what the worker said; whether none is at work any more."""
        running = self.running
        if running is None or not running.poll():
            return running is None
        try:
            found = running.result()
            self.unkept = None if run.recall(running.request) else found
        except run.Cancelled:
            self.cancelled = True
        except PlannerError as error:
            self.problems = error.problems
        self._end()
        return True

    def cancel(self) -> None:
        """End the worker, if there is one."""
        if not self.poll():
            self.cancelled = True
            self._end()

    def _end(self) -> None:
        running, self.running, self.ended = self.running, None, True
        if running is not None:
            running.cancel()


@st.cache_resource(scope="session", max_entries=1, show_spinner=False, on_release=Tracing.cancel)
def _leash(number: int, _tracing: Tracing) -> Tracing:
    """Kept once for a session's trace, so that Streamlit releases it, and with it the worker, when the session goes."""
    return _tracing


def held() -> Tracing:
    """This session's trace."""
    found: Tracing = st.session_state.setdefault("tracing", Tracing())
    return found


def key(request: Request) -> str:
    """A request as text: the same for the same."""
    return json.dumps(request, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Answer:
    """A traced case with its log replayed without a limit, and within the `room` of the card (bytes)."""

    free: Traced
    within: Traced
    room: int


def answered(case: Case, request: Request, mode: str) -> Answer | None:
    """The answer for a case, from the cache, if the case was ever traced."""
    tracing, asked = held(), key(request)
    unkept = tracing.unkept if tracing.asked == asked else None
    about = json.dumps(planner.stated(case), sort_keys=True, default=str)
    found: Answer | None = _answer(asked, about, mode, case, request, unkept)
    return found


@st.cache_resource(max_entries=8, show_spinner=False, validate=lambda found: found is not None)
def _answer(
    asked: str, about: str, mode: str, _case: Case, _request: Request, _unkept: dict[str, Any] | None
) -> Answer | None:
    """A replay takes up to a second, so that it is kept for the next runs of a page."""
    found = _unkept or run.recall(dict(_request))
    if found is None:
        return None
    question, most = Question(_case), room(_case)
    free = answer(question, found, mode, None)
    if free.replay is None or free.replay.max_reserved <= most:
        return Answer(free, replace(free, capacity=most), most)
    return Answer(free, answer(question, found, mode, most), most)
