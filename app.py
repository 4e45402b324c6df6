"""The app: `streamlit run app.py`. The frame of every page: title, language, shared inputs, and which page is shown."""

from __future__ import annotations

import streamlit as st

from planner import paths
from planner.i18n import t
from views import _files, _inputs, _link
from views._text import speak

#: less air above the page and between things, so that an answer is seen whole on a laptop
STYLE = """<style>
.stMainBlockContainer { padding: 3.6rem 2rem 3rem; }
[data-testid="stSidebarUserContent"] { padding-bottom: 2rem; }
[data-testid="stMetricValue"] { font-size: 1.45rem; }
[data-testid="stMetric"] { padding: 0.45rem 0.7rem; }
</style>"""


def main() -> None:
    """One run of the app."""
    speak()
    icon = paths.assets() / "icon.png"
    st.set_page_config(t("app.title"), str(icon) if icon.is_file() else None, "wide", 380)
    st.html(STYLE)
    _link.check()
    here = st.navigation(
        [
            st.Page("views/fit.py", title=t("app.page.fit"), url_path="fit", default=True, help=t("app.page.fit_help")),
            st.Page("views/largest.py", title=t("app.page.largest"), url_path="largest",
                    help=t("app.page.largest_help")),
        ],
        position="top",
    )  # fmt: skip
    _inputs.draw()
    _files.show_refused()
    here.run()


main()
