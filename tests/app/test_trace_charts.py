"""The charts of a trace: what their rows hold, and that they are drawn in both themes and languages."""

from __future__ import annotations

import gzip
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner import i18n
from planner.charts import theme
from planner.charts import trace as charts
from planner.trace.allocator import Replay, Settings, replay
from planner.trace.events import Log
from planner.units import GIB, gib

LOG = Path(__file__).resolve().parents[1] / "data" / "log_llama3_8b.json.gz"
FOUND: dict[str, Any] = {
    "peak_bytes": 30 * GIB,
    "peak": {"bytes": 30 * GIB, "operation": 80, "moment": "loss"},
    "operations": 100,
    "phases": {
        "forward": {"bytes": 20 * GIB, "operation": 50},
        "backward": {"bytes": 30 * GIB, "operation": 80},
        "optimizer": {"bytes": 10 * GIB, "operation": 100},
    },
    "timeline": [(1, 5 * GIB), (50, 20 * GIB), (80, 30 * GIB), (100, 10 * GIB)],
}


@pytest.fixture(autouse=True)
def _english_afterwards() -> Iterator[None]:
    yield
    i18n.use(i18n.DEFAULT)


@pytest.fixture(scope="module")
def log() -> Log:
    return Log.from_json(json.loads(gzip.decompress(LOG.read_bytes()))["log"])


@pytest.fixture(scope="module")
def played(log: Log) -> Replay:
    return replay(log)


def texts(spec: dict[str, Any], rows: Any) -> list[str]:
    svg = theme.svg(spec, rows)
    return [html.unescape(re.sub("<[^>]+>", "", one)) for one in re.findall(r"<text[^>]*>(.*?)</text>", svg, re.DOTALL)]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_timeline_names_its_peak(language: str, dark: bool) -> None:
    i18n.use(language)
    drawn = texts(charts.timeline_spec(dark), charts.timeline_rows(FOUND))
    assert i18n.t("chart.trace.title") in drawn
    assert i18n.t("chart.trace.peak", value="30.0", moment=i18n.t("trace.moment.loss")) in drawn
    assert "30.0 GiB" in charts.timeline_alt(FOUND)


def test_the_words_of_a_late_peak_stand_before_it() -> None:
    rows = charts.timeline_rows(FOUND)
    assert rows.loc[rows.role == "peak", "place"].item() == "before"
    assert list(rows.loc[rows.role == "phase", "live_gib"]) == [20, 10]
    early = {**FOUND, "peak": {**FOUND["peak"], "operation": 10}}
    rows = charts.timeline_rows(early)
    assert rows.loc[rows.role == "peak", "place"].item() == "after"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_replay_shows_the_most_reserved_and_the_cards_end(played: Replay, language: str, dark: bool) -> None:
    i18n.use(language)
    room = played.max_reserved * 2
    rows = charts.replay_rows(played, room)
    drawn = texts(charts.replay_spec(dark), rows)
    assert any(f"{gib(played.max_reserved):.1f}" in one for one in drawn)
    assert any(theme.gib_text(gib(room)) in one for one in drawn)
    assert {i18n.t("chart.trace.allocated"), i18n.t("chart.trace.reserved")} <= set(drawn)
    assert rows.reserved_gib[rows.role == "peak"].item() == gib(played.max_reserved)
    assert not (rows.role == "oom").any()


def test_a_card_that_is_far_away_is_not_drawn(played: Replay) -> None:
    rows = charts.replay_rows(played, played.max_reserved * 20)
    assert not (rows.role == "card").any()


def test_the_request_that_failed_is_marked(log: Log, played: Replay) -> None:
    room = played.max_allocated // 2
    held = replay(log, Settings(capacity=room))
    assert held.oom is not None
    rows = charts.replay_rows(played, room, held.oom)
    assert rows["at"][rows.role == "oom"].item() == held.oom.event
    assert "out of memory here" in texts(charts.replay_spec(), rows)
