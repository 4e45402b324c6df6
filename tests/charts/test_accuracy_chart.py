"""Predicted against measured as a chart: valid, drawn in both themes, one point a record, nothing outside the axes."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import altair as alt
import pytest

from planner import i18n
from planner.charts import accuracy as charts
from planner.charts import theme
from planner.evidence.rows import Row
from planner.units import GIB


def a_row(number: int, framework: str = "f", metric: str = "max_allocated", grade: str = "A") -> Row:
    size = (number + 1) * GIB
    return Row(f"r{number}", "a/b", "m", "pretrain", framework, "dense pretrain", "h100-sxm", metric, grade,
               frozenset(), size, 1.1 * size, size, 1.2 * size, "fits")  # fmt: skip


ROWS = {f"ours:r{n}": a_row(n, f"f{n % 7}", ("max_allocated", "max_reserved")[n % 2]) for n in range(40)}
MINE = {"own:1": replace(a_row(60), framework="mine")}


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("by", ["framework", "kind", "gpu"])
def test_the_chart_is_valid_and_draws_every_record(by: str, dark: bool) -> None:
    about = charts.frame(ROWS, MINE, by)
    spec, data = charts.spec(about, dark), charts.rows(ROWS, MINE, by, about)
    assert spec["data"] == {"name": theme.ROWS}
    assert "datasets" not in spec
    alt.Chart.from_dict(spec)
    json.dumps(spec, allow_nan=False)
    assert [one["name"] for one in spec["params"]] == [charts.PICK]
    picture = theme.svg(spec, data)
    drawn = re.findall(r'aria-roledescription="point"', picture)
    assert len(drawn) == len(ROWS) + len(MINE)
    for text in (i18n.t("chart.accuracy.title"), i18n.t("chart.accuracy.too_high"), i18n.t("chart.accuracy.own")):
        assert text in picture


def test_names_beyond_the_colours_share_one() -> None:
    about = charts.frame(ROWS, {}, "framework")
    assert len(about.names) == charts.MOST_COLOURS
    assert about.others
    assert not about.own
    data = charts.rows(ROWS, {}, "framework", about)
    shown = set(data.loc[data["role"] == "point", "name"])
    assert shown == {*about.names, i18n.t("chart.accuracy.others")}


def test_everything_lies_within_the_axes() -> None:
    about = charts.frame(ROWS, MINE, "kind")
    data = charts.rows(ROWS, MINE, "kind", about)
    for column in ("measured_gib", "predicted_gib"):
        assert data[column].between(about.low, about.high).all()
    line = data[data["role"] == "line"]
    assert (line["low_gib"] >= about.low * 0.999).all()
    assert (line["high_gib"] <= about.high * 1.001).all()
    assert about.half_width == pytest.approx(0.1 / 1.1, abs=1e-3)


def test_a_point_says_what_it_is() -> None:
    about = charts.frame(ROWS, {}, "framework")
    first = charts.rows(ROWS, {}, "framework", about).iloc[0]
    assert (first[charts.KEY], first["id"], first["measured_gib"]) == ("ours:r0", "r0", 1.0)
    assert first["error"] == pytest.approx(0.1)
    pale = charts.rows({"ours:c": a_row(1, grade="C")}, {}, "framework", about).iloc[0]
    assert not pale["counted"]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.8, 12, [1, 2, 5, 10]), (3, 60, [5, 10, 20, 50]), (0.001, 1000, [0.001, 0.01, 0.1, 1, 10, 100, 1000])],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert charts.ticks(low, high) == expected


def test_only_a_measured_size_can_be_drawn() -> None:
    assert charts.shown(a_row(1))
    assert charts.shown(a_row(1, metric="None"))
    assert not charts.shown(a_row(1, metric="oom"))
    assert not charts.shown(replace(a_row(1), measured=None))
    assert not charts.shown(replace(a_row(1), predicted=None))


def test_the_sentence_counts_the_sides() -> None:
    below = {"ours:low": replace(a_row(3), predicted=GIB)}
    said = charts.alt_text({**ROWS, **below}, MINE)
    assert "42 measured runs (1 of them yours)" in said
    assert "41 lie above" in said
    assert "1 on or below" in said
