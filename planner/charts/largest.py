"""The largest model of each recipe family as a chart, from `answers.largest`."""

from __future__ import annotations

import copy
import functools
from typing import Any

import altair as alt
import pandas as pd

from planner import i18n
from planner.charts import theme
from planner.i18n import t


def spec(dark: bool = False) -> dict[str, Any]:
    """A bar a recipe family: solid to what fits with certainty, pale to the most that may."""
    return copy.deepcopy(_spec(i18n.current(), dark))


@functools.cache
def _spec(language: str, dark: bool) -> dict[str, Any]:
    c, base = theme.colours(dark), alt.Chart(alt.NamedData(theme.ROWS))
    y = alt.Y("recipe:N", title=None, sort=alt.EncodingSortField(field="order", op="min"),
              axis=alt.Axis(labelLimit=230, grid=False))  # fmt: skip
    tips = [
        alt.Tooltip("recipe:N", title=t("show.recipe")),
        alt.Tooltip("sure_1e9:Q", title=t("show.sure"), format=".2f"),
        alt.Tooltip("most_1e9:Q", title=t("show.params"), format=".2f"),
        alt.Tooltip("binding:N", title=t("show.binding")),
    ]
    axis = alt.Axis(tickCount=6)
    scale = alt.Scale(zero=True, nice=False)
    most = base.mark_bar(height={"band": 0.62}, color=c["blue"], opacity=0.35).encode(
        x=alt.X("most_1e9:Q", title=t("chart.largest.axis"), scale=scale, axis=axis), y=y, tooltip=tips
    )
    sure = base.mark_bar(height={"band": 0.62}, color=c["blue"]).encode(x="sure_1e9:Q", y=y, tooltip=tips)
    end = base.mark_tick(color=c["blue"], thickness=2, height=18).encode(x="most_1e9:Q", y=y)
    text = base.mark_text(align="left", dx=6, color=c["ink"], fontSize=11).encode(x="most_1e9:Q", y=y, text="text:N")
    room = base.mark_rule(opacity=0).encode(x="domain_1e9:Q")
    return theme.finish([most, sure, end, text, room], t("chart.largest.title"), 27, dark)


def rows(largest: dict[str, Any]) -> pd.DataFrame:
    """One row a family: parameters in 10^9 with certainty and at most, and what sets the limit."""
    found = largest["regimes"]
    end = max([one["params"] / 1e9 for one in found] + [1e-3]) * 1.3
    return pd.DataFrame([_row(i, one, end) for i, one in enumerate(found)])


def _row(order: int, one: dict[str, Any], end: float) -> dict[str, Any]:
    sure, most = one["params_comfortable"] / 1e9, one["params"] / 1e9
    if not one["params"]:
        text = t("chart.largest.none")
    elif not one["params_comfortable"]:
        text = t("chart.largest.most_only", most=_text(most))
    else:
        text = t("chart.largest.range", sure=_text(sure), most=_text(most))
    return {
        "recipe": one["recipe"], "regime": one["regime"], "order": order, "sure_1e9": sure, "most_1e9": most,
        "binding": one["binding"], "text": text, "domain_1e9": end,
    }  # fmt: skip


def _text(billions: float) -> str:
    if billions >= 100:
        return f"{billions:.0f}"
    return f"{billions:.1f}" if billions >= 1 else f"{billions:.2f}"


def alt_text(largest: dict[str, Any]) -> str:
    """What the chart shows, in a sentence."""
    able = [one for one in largest["regimes"] if one["params"]]
    if not able:
        return t("chart.largest.alt_none")
    first, best = able[0], max(able, key=lambda one: one["params"])
    return t(
        "chart.largest.alt", first=first["recipe"], first_sure=_text(first["params_comfortable"] / 1e9),
        first_most=_text(first["params"] / 1e9), best=best["recipe"],
        best_sure=_text(best["params_comfortable"] / 1e9), best_most=_text(best["params"] / 1e9),
    )  # fmt: skip
