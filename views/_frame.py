"""The look of every page: mark, style, and charts with their rows bound by name."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from planner import i18n, paths
from planner.charts import theme
from planner.i18n import t

#: a card's memory with room left at its top; in colours that light and dark pages both carry
_MARK = (
    '<rect x="1.5" y="1.5" width="21" height="21" rx="4" fill="none" stroke="#1F8FD6" stroke-width="2"/>'
    '<rect x="5" y="16" width="14" height="3.5" fill="#1F8FD6"/>'
    '<rect x="5" y="11" width="14" height="3.5" fill="#D55E00"/>'
)
_ICON = f'<svg xmlns="http://www.w3.org/2000/svg" width="24" height="24" viewBox="0 0 24 24">{_MARK}</svg>'
_LOGO = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="134" height="24" viewBox="0 0 134 24">'
    f'{_MARK}<text x="31" y="18" font-family="DejaVu Sans, Verdana, sans-serif" font-size="17" font-weight="bold" '
    'fill="#1F8FD6">Headroom</text></svg>'
)

#: less air above the page and in the figures, so that an answer is seen whole on a laptop
STYLE = """<style>
.stApp .stMainBlockContainer { padding: 4rem 2rem 3rem; }
.stApp [data-testid="stMainBlockContainer"] h4 { padding: 0.4rem 0 0.2rem; }
.stApp [data-testid="stSidebarUserContent"] { padding-bottom: 2rem; }
.stApp [data-testid="stMetric"] { padding: 0.5rem 1rem; }
.stApp [data-testid="stMetric"] > div { padding: 0; }
.stApp [data-testid="stMetricValue"] { font-size: 1.3rem; line-height: 1.5rem; padding: 0; }
.stApp [data-testid="stCaptionContainer"], .stApp [data-testid="stCaptionContainer"] p { color: inherit; opacity: 0.9; }
@media (max-width: 640px) { .stApp .stMainBlockContainer { padding: 4rem 1rem 2rem; } }
</style>"""


def dress(title: str) -> None:
    """Title, icon, logo and style of a page. All of it is on this machine: nothing is fetched for it."""
    icon, logo = paths.assets().joinpath("icon.png"), paths.assets().joinpath("logo.svg")
    st.set_page_config(title, str(icon) if icon.is_file() else _ICON, "wide", 352)
    st.logo(str(logo) if logo.is_file() else _LOGO)
    st.html(STYLE)


#: languages as their readers write them
LANGUAGES = {"en": "EN", "zh": "中文"}


def language() -> None:
    """The switch between languages. The link holds the choice, under the table's name (not under what is shown)."""
    st.sidebar.segmented_control(
        t("app.language"), list(LANGUAGES), default=i18n.current(), format_func=LANGUAGES.get, required=True,
        key="language", on_change=_switched, label_visibility="collapsed", persist_state="session",
    )  # fmt: skip
    if st.query_params.get("lang", i18n.DEFAULT) != i18n.current():
        st.query_params["lang"] = i18n.current()


def _switched() -> None:
    """Callback of the switch."""
    st.session_state["lang"] = st.query_params["lang"] = st.session_state["language"]


def dark() -> bool:
    """Whether the page is shown dark."""
    return st.context.theme.type == "dark"


def chart(key: str, spec: dict[str, Any], rows: pd.DataFrame, alt: str) -> None:
    """A chart of the planner: the specification and the rows that it expects by name."""
    with st.container(key=key):
        st.vega_lite_chart(spec={**spec, "datasets": {theme.ROWS: rows}}, key=f"{key}_drawn", alt=alt)
