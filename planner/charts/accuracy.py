"""Predicted against measured memory on log-log axes: one point a record with its own band, and the diagonal.

The specification is made for the names, the ends of the axes and the width of the band that `frame` gives of the rows.
A point is picked by its `key`. Colour tells a column of the record, shape the metric; the tooltip says both in words.
"""

from __future__ import annotations

import copy
import functools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import altair as alt
import pandas as pd

from planner import i18n
from planner.charts import theme
from planner.evidence.accuracy import SPLITS
from planner.evidence.rows import FRONTIER, Row
from planner.i18n import t
from planner.units import gib

ROWS = theme.ROWS
HEIGHT = 430
#: the selection's name, and the field that it gives
PICK, KEY = "pick", "key"
#: names with a colour of their own; the rest share one
MOST_COLOURS = 5
_COLOURS = ("blue", "orange", "plum", "violet")
#: the fifth colour, at least 3:1 on the page and apart from the theme's others
_FIFTH = {False: "#00795A", True: "#F0E442"}
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
_ROOM = 1.25
_STEPS = (1, 2, 5)
_MOST_STEPPED = 5000.0


@dataclass(frozen=True, slots=True)
class Frame:
    """What the specification needs of the rows: legend, ends of both axes in GiB, half the band's median width."""

    names: tuple[str, ...]
    others: bool
    own: bool
    metrics: tuple[str, ...]
    low: float
    high: float
    half_width: float


def shown(row: Row) -> bool:
    """Whether a record can be drawn: it has a measured size of its own, not a card's, and a prediction."""
    return bool(row.measured) and bool(row.predicted) and row.metric not in FRONTIER


def frame(rows: Mapping[str, Row], own: Mapping[str, Row], by: str) -> Frame:
    """The frame around these rows; colours go to the names with the most of them."""
    every = [*rows.values(), *own.values()]
    sizes = [gib(size) for row in every for size in (row.measured, row.predicted) if size]
    counts = Counter(SPLITS[by](row) for row in rows.values())
    names = [name for name, _ in counts.most_common(MOST_COLOURS)]
    widths = [((r.high or 0.0) - (r.low or 0.0)) / 2 / (r.predicted or 1.0) for r in every]
    return Frame(
        names=tuple(names), others=len(counts) > len(names), own=bool(own),
        metrics=tuple(name for name, _ in Counter(row.metric for row in every).most_common(len(_SHAPES))),
        low=min(sizes, default=1.0) / _ROOM, high=max(sizes, default=100.0) * _ROOM,
        half_width=round(median(widths), 3) if widths else 0.0,
    )  # fmt: skip


def spec(about: Frame, dark: bool = False) -> dict[str, Any]:
    """Points with their bands, the line on which prediction and measurement agree, and the median band around it."""
    return copy.deepcopy(_spec(about, i18n.current(), dark))


@functools.lru_cache(maxsize=64)
def _spec(about: Frame, language: str, dark: bool) -> dict[str, Any]:
    c, base = theme.colours(dark), alt.Chart(alt.NamedData(theme.ROWS))
    line, point = _only(base, "line"), _only(base, "point")
    x, y = (_axis(about, t(f"chart.accuracy.{name}")) for name in ("measured", "predicted"))
    colour = _colour(about, c, dark)
    layers = [
        line.mark_area(color=c["sum"], opacity=0.6, aria=False).encode(
            x=alt.X("measured_gib:Q", **x), y=alt.Y("high_gib:Q", **y), y2="low_gib:Q"
        ),
        line.mark_line(strokeDash=[5, 3], strokeWidth=1.2, aria=False, color=c["ink"]).encode(
            x="measured_gib:Q", y="predicted_gib:Q"
        ),
        *_sides(base, c),
        point.mark_rule(strokeWidth=1.2, opacity=0.4, aria=False).encode(
            x="measured_gib:Q", y="low_gib:Q", y2="high_gib:Q", color=colour
        ),
        _points(point, about, colour, dark),
    ]
    return {**theme.finish(layers, t("chart.accuracy.title"), 1, dark), "height": HEIGHT}


def _points(point: alt.Chart, about: Frame, colour: alt.Color, dark: bool) -> alt.Chart:
    """The points themselves; records that no error counts are pale. Shapes are told above, colours below."""
    metrics = [_metric(name) for name in about.metrics]
    ink = theme.colours(dark)["ink"]
    legend = alt.Legend(title=None, orient="top", columns=3, symbolFillColor=ink, symbolStrokeColor=ink)
    shapes = alt.Scale(domain=metrics, range=list(_SHAPES[: len(metrics)]))
    shape = alt.Shape("metric:N", scale=shapes, legend=legend)
    pale = alt.condition("datum.counted", alt.value(0.85), alt.value(0.3))
    marks = point.mark_point(filled=True, size=52, cursor="pointer").encode(
        x="measured_gib:Q", y="predicted_gib:Q", color=colour, shape=shape, opacity=pale, tooltip=_tips()
    )  # fmt: skip
    made: alt.Chart = marks.add_params(alt.selection_point(name=PICK, fields=[KEY]))
    return made


def _colour(about: Frame, c: dict[str, str], dark: bool) -> alt.Color:
    palette = [*(c[name] for name in _COLOURS), _FIFTH[dark]][: len(about.names)]
    names = list(about.names)
    if about.others:
        names, palette = [*names, t("chart.accuracy.others")], [*palette, c["grey"]]
    if about.own:
        names, palette = [*names, t("chart.accuracy.own")], [*palette, c["ink"]]
    legend = alt.Legend(title=None, orient="bottom", columns=3, symbolType="circle", symbolOpacity=1)
    return alt.Color("name:N", scale=alt.Scale(domain=names, range=palette), legend=legend)


def _sides(base: alt.Chart, c: dict[str, str]) -> list[alt.Chart]:
    """What it means to lie above or below the line, in words at the two corners."""
    about: dict[str, Any] = {"baseline": "middle", "fontSize": 11, "color": c["soft"], "aria": False}
    made = {
        "high": _only(base, "high").mark_text(align="left", dx=8, **about),
        "low": _only(base, "low").mark_text(align="right", dx=-8, **about),
    }
    return [one.encode(x="measured_gib:Q", y="predicted_gib:Q", text="id:N") for one in made.values()]


def _axis(about: Frame, title: str) -> dict[str, Any]:
    scale = alt.Scale(type="log", domain=[about.low, about.high], nice=False)
    return {"title": title, "scale": scale, "axis": alt.Axis(values=ticks(about.low, about.high), format="~g")}


def ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10 ... between two ends; of many decades only their beginnings."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = _STEPS if high / low < _MOST_STEPPED else _STEPS[:1]
    found = [float(f"{step}e{ten}") for ten in decades for step in steps]
    return [value for value in found if low <= value <= high]


def _tips() -> list[alt.Tooltip]:
    words = ("framework", "kind", "gpu", "metric")
    sizes = ("measured", "predicted", "low", "high")
    return [
        alt.Tooltip("id:N", title=t("chart.accuracy.record")),
        *(alt.Tooltip(f"{name}:N", title=t(f"evidence.{name}")) for name in words),
        *(alt.Tooltip(f"{name}_gib:Q", title=t(f"chart.accuracy.{name}"), format=".2f") for name in sizes),
        alt.Tooltip("error:Q", title=t("evidence.error"), format="+.1%"),
    ]


def _only(base: alt.Chart, role: str) -> alt.Chart:
    return base.transform_filter(alt.FieldEqualPredicate(field="role", equal=role))


def _metric(name: str) -> str:
    return t("chart.accuracy.unstated") if name == "None" else name


def rows(found: Mapping[str, Row], own: Mapping[str, Row], by: str, about: Frame) -> pd.DataFrame:
    """One row a record, by key; the line with the median band; the words at its two sides."""
    made = [_point(key, row, _name(SPLITS[by](row), about)) for key, row in found.items()]
    made += [_point(key, row, t("chart.accuracy.own")) for key, row in own.items()]
    return pd.DataFrame([*made, *_line(about), *_words(about)])


def _name(name: str, about: Frame) -> str:
    return name if name in about.names else t("chart.accuracy.others")


def _point(key: str, row: Row, name: str) -> dict[str, Any]:
    return {
        "role": "point", KEY: key, "id": row.id, "name": name, "framework": row.framework, "kind": row.kind,
        "gpu": row.gpu, "metric": _metric(row.metric), "counted": row.point, "error": row.error,
        "measured_gib": gib(row.measured or 0.0), "predicted_gib": gib(row.predicted or 0.0),
        "low_gib": gib(row.low or 0.0), "high_gib": gib(row.high or 0.0),
    }  # fmt: skip


def _line(about: Frame) -> list[dict[str, Any]]:
    """The diagonal's two ends, cut so that the band stays within the axes."""
    ends = (about.low / (1 - about.half_width), about.high / (1 + about.half_width))
    return [
        {"role": "line", "measured_gib": at, "predicted_gib": at, "low_gib": at * (1 - about.half_width),
         "high_gib": at * (1 + about.half_width)}
        for at in ends
    ]  # fmt: skip


def _words(about: Frame) -> list[dict[str, Any]]:
    near, far = about.low * _ROOM**0.25, about.high / _ROOM**0.25
    return [
        {"role": "high", "id": t("chart.accuracy.too_high"), "measured_gib": about.low, "predicted_gib": far},
        {"role": "low", "id": t("chart.accuracy.too_low"), "measured_gib": about.high, "predicted_gib": near},
    ]


def alt_text(found: Mapping[str, Row], own: Mapping[str, Row]) -> str:
    """What the chart shows, in a sentence."""
    every = [*found.values(), *own.values()]
    inside = sum(row.inside for row in every)
    above = sum(row.error > 0 for row in every)
    return t("chart.accuracy.alt", count=len(every), inside=inside, above=above, below=len(every) - above,
             own=len(own))  # fmt: skip
