"""What can be taken away from an answer: the case, and the report as HTML and PDF, each made when it is clicked."""

from __future__ import annotations

from collections.abc import Callable
from ctypes.util import find_library

import streamlit as st

from planner import i18n
from planner.errors import MissingDependency, Problem
from planner.i18n import t
from planner.step.evaluate import Estimate
from views import _files
from views._text import problem_list, speak

#: what WeasyPrint loads; looked for first, because loading WeasyPrint itself takes half a second
LIBRARIES = ("pango-1.0", "pangoft2-1.0")


def downloads(found: Estimate) -> None:
    """Three buttons; where a PDF cannot be written, what is missing is said below them."""
    language, missing = speak(), pdf_missing(found)
    with st.container(horizontal=True, horizontal_alignment="right", gap="small"):
        st.download_button(t("app.save.case"), _files.saved(found.case), _files.CASE_FILE, "application/json",
                           key="save-case", on_click="ignore", help=t("app.save.case_help"))  # fmt: skip
        st.download_button(t("app.save.html"), report(found, "html", language), "headroom-report.html", "text/html",
                           key="save-html", on_click="ignore", help=t("app.save.html_help"))  # fmt: skip
        st.download_button(t("app.save.pdf"), report(found, "pdf", language), "headroom-report.pdf",
                           "application/pdf", key="save-pdf", on_click="ignore", disabled=bool(missing),
                           help=t("app.save.pdf_help"))  # fmt: skip
    if missing:
        st.info(problem_list(t("app.save.pdf_missing"), missing))


@st.cache_resource(max_entries=1, show_spinner=False)
def pdf_missing(_found: Estimate) -> tuple[Problem, ...]:
    """What this machine lacks for writing PDFs; asked once."""
    if all(find_library(name) for name in LIBRARIES):
        return ()
    try:
        report(_found, "pdf", i18n.DEFAULT)()
    except MissingDependency as error:
        return error.problems
    return ()


def report(found: Estimate, kind: str, language: str) -> Callable[[], bytes]:
    """A function that writes the report, in the language of the page, when the button is pressed."""

    def write() -> bytes:
        from planner.report import content, render

        i18n.use(language)
        made = content.report(found)
        return render.pdf(made) if kind == "pdf" else render.html(made).encode("utf-8")

    return write
