"""What every chart shares: colours, text, the rule at the card's end, and the way rows get into a specification."""

from __future__ import annotations

import copy
import functools
from typing import Any

import altair as alt
import pandas as pd

from planner import paths
from planner.i18n import current, t

#: the name under which every specification expects its rows
ROWS = "rows"

#: families that draw text without a network: DejaVu comes with pango, Verdana has its widths elsewhere
FONT = "DejaVu Sans, Verdana, sans-serif"
#: the family of assets/fonts, which has what Chinese needs; it must be known to vl-convert or no text is drawn
CHINESE = f"Noto Sans SC, {FONT}"

#: all at least 3:1 on the page and apart for colour-blind readers (Okabe and Ito, darkened where white asks for it)
LIGHT = {
    "blue": "#1F8FD6", "orange": "#D55E00", "plum": "#8E1B5B", "violet": "#5D3A9B", "grey": "#7F7F7F",
    "ink": "#222222", "soft": "#5A5F66", "beyond": "#F3E3DC", "line": "#D9DCE0", "sum": "#CBD2DB",
}  # fmt: skip
DARK = {
    "blue": "#56B4E9", "orange": "#E69F00", "plum": "#CC79A7", "violet": "#009E73", "grey": "#A0A4AA",
    "ink": "#F2F2F2", "soft": "#B8BDC4", "beyond": "#4A2E22", "line": "#3A3F47", "sum": "#4A515B",
}  # fmt: skip


def colours(dark: bool) -> dict[str, str]:
    """The palette of a theme, by colour name."""
    return DARK if dark else LIGHT


def finish(layers: list[alt.Chart], title: str, step: int, dark: bool) -> dict[str, Any]:
    """Layers as one validated specification: title, height per row, quiet axes. Its rows are bound by name."""
    c = colours(dark)
    whole = alt.LayerChart(layer=layers).properties(
        title=alt.TitleParams(title, anchor="start", fontSize=13, fontWeight="bold", color=c["ink"], offset=10),
        height=alt.Step(step),
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
    )
    label = {"labelColor": c["ink"], "titleColor": c["soft"], "labelFontSize": 11, "titleFontSize": 11}
    axis = {"gridColor": c["line"], "domain": False, "ticks": False, "titleFontWeight": "normal", "labelPadding": 6}
    made = whole.configure_view(stroke=None).configure_axis(**label, **axis).configure_legend(**label)
    return dict(made.to_dict())


def on_card(base: alt.Chart, first: str, bars: list[alt.Chart], texts: list[alt.Chart], dark: bool) -> list[alt.Chart]:
    """The shade beyond the card's end, bars, the rule at the end, numbers. The row of role `first` tells the card."""
    c = colours(dark)
    one = base.transform_filter(alt.FieldEqualPredicate(field="role", equal=first))
    beyond = one.mark_rect(color=c["beyond"], opacity=0.7).encode(x="usable_gib:Q", x2="domain_gib:Q")
    rule = one.mark_rule(color=c["ink"], strokeDash=[5, 3], strokeWidth=1.5).encode(x="usable_gib:Q")
    note = one.mark_text(align="right", baseline="bottom", dx=-1, dy=-2, fontSize=10, color=c["ink"]).encode(
        x="usable_gib:Q", y=alt.value(0), text="usable_label:N"
    )
    return [beyond, *bars, rule, note, *texts]


def gib_axis(title: str) -> alt.X:
    """The shared axis of memory: from nothing to a little past the card's end or the bar's, whichever is further."""
    return alt.X(title=title, scale=alt.Scale(zero=True, nice=False), axis=alt.Axis(tickCount=6))


def domain(*ends: float, room: float = 0.05) -> float:
    """Where a memory axis ends: a little past the furthest of these."""
    return max(ends) * (1 + room)


def gib_text(value: float) -> str:
    """GiB in a label: enough digits to tell small parts from nothing."""
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def usable_label(usable: float) -> str:
    """The label of the rule at the card's end."""
    return t("chart.usable", usable=gib_text(usable))


def with_data(spec: dict[str, Any], rows: pd.DataFrame, width: int = 660, font: str | None = None) -> dict[str, Any]:
    """A specification with its rows inside, for a picture or a page without Streamlit; the given one stays as it is."""
    whole = copy.deepcopy(spec)
    plain = rows.astype(object).where(rows.notna(), None)
    whole["data"] = {"name": ROWS, "values": plain.to_dict(orient="records")}
    whole["width"] = width
    whole.setdefault("config", {})["font"] = font or (CHINESE if current() == "zh" else FONT)
    return whole


@functools.cache
def _converter() -> Any:
    """vl-convert, which knows our own fonts from the first use on."""
    import vl_convert

    vl_convert.register_font_directory(str(paths.assets() / "fonts"))
    return vl_convert


def svg(spec: dict[str, Any], rows: pd.DataFrame, width: int = 660) -> str:
    """The chart as an SVG picture, its text as text."""
    return str(_converter().vegalite_to_svg(with_data(spec, rows, width), allowed_base_urls=[]))


def png(spec: dict[str, Any], rows: pd.DataFrame, width: int = 660, scale: float = 2.0) -> bytes:
    """The chart as a PNG picture."""
    return bytes(_converter().vegalite_to_png(with_data(spec, rows, width), scale=scale, allowed_base_urls=[]))
