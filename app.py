"""The app: `streamlit run app.py`. The frame of every page: title, language, shared inputs, and which page is shown."""

from __future__ import annotations

import streamlit as st

from planner.i18n import t
from views import _files, _frame, _inputs, _link
from views._text import speak


def main() -> None:
    """One run of the app."""
    speak()
    _frame.dress(t("app.title"))
    here = st.navigation(
        [
            st.Page("views/fit.py", title=t("app.page.fit"), url_path="fit", default=True, help=t("app.page.fit_help")),
            st.Page("views/largest.py", title=t("app.page.largest"), url_path="largest",
                    help=t("app.page.largest_help")),
            st.Page("views/rules_of_thumb.py", title=t("page_rules.page"), url_path="rules",
                    help=t("page_rules.page_help")),
            st.Page("views/formulas.py", title=t("page_formulas.page"), url_path="formulas",
                    help=t("page_formulas.page_help")),
            st.Page("views/evidence.py", title=t("page_evidence.page"), url_path="evidence",
                    help=t("page_evidence.page_help")),
        ],
        position="top",
    )  # fmt: skip
    _link.check()  # after the page is known: it may run the page anew
    _frame.language()
    _inputs.read()
    _files.show_refused()
    here.run()
    _inputs.draw()


main()
