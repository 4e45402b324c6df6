"""The log of a traced step: what comes through JSON is the same, and what cannot be is refused by its number."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from planner.trace.allocator import Settings, replay
from planner.trace.events import Log
from tests.trace.drawn import MIB, logs

GOOD = {
    "events": [[1, 7, 100, 0, 1], [0, 0, 0, 0, 0], [1, 8, 600, 2, 2], [-1, 7, 100, 0, 0]],
    "labels": ["phase:forward", "aten.mm|layers.0.mlp|activation", "aten.add"],
}


@given(logs())
def test_a_log_survives_json(log: Log) -> None:
    assert Log.from_json(json.loads(json.dumps(log.to_json()))) == log


@pytest.mark.parametrize(
    ("event", "what"),
    [
        ([2, 9, 1, 0, 0], "unknown kind 2"),
        ([1, 9, -5, 0, 0], "a size of -5 bytes"),
        ([1, 9, 0, 0, 0], "a size of 0 bytes"),
        ([1, 9, 1, -1, 0], "stream -1"),
        ([1, 9, 1, 0, 3], "label 3 of 3"),
        ([0, 0, 0, 0, -1], "label -1 of 3"),
        ([-1, 7, 0, 0, 0], "a free of block 7, which is not allocated"),
        ([1, 8, 1, 0, 0], "block 8 is allocated twice"),
        ([1, 9, 1.0, 0, 0], "five whole numbers"),
        ([1, True, 1, 0, 0], "five whole numbers"),
        ([1, 9, 1, 0], "five whole numbers"),
        ("alloc", "five whole numbers"),
    ],
)
def test_the_first_event_that_cannot_be_is_named(event: Any, what: str) -> None:
    raw = {**GOOD, "events": [*GOOD["events"], event, [5, 5, 5, 5, 5]]}
    with pytest.raises(ValueError, match=f"event 4 of the log: .*{what}"):
        Log.from_json(raw)


@pytest.mark.parametrize("raw", [None, [], {}, {"events": []}, {"events": {}, "labels": []}])
def test_what_is_no_log_is_refused(raw: Any) -> None:
    with pytest.raises(ValueError, match="a log is an object"):
        Log.from_json(raw)


def test_a_label_is_text() -> None:
    with pytest.raises(ValueError, match="label 1 is no text"):
        Log.from_json({"events": [], "labels": ["a", 3]})


def test_the_peak_counts_blocks_of_512_bytes() -> None:
    log = Log.from_json(GOOD)
    assert len(log) == 4
    assert log.peak() == 512 + 1024
    assert log.peak(lambda size: size) == 700


def test_marks_and_labels_are_read_off() -> None:
    log = Log.from_json(GOOD)
    assert log.marks() == [(1, "phase:forward")]
    assert log.label(1) == ("aten.mm", "layers.0.mlp", "activation")
    assert log.label(2) == ("aten.add", "", "")


def test_a_freed_blocks_number_is_used_again() -> None:
    raw = {"events": [[1, 40, 8, 0, 1], [-1, 40, 8, 3, 1], [1, 50, 9, 0, 1], [1, 60, 9, 0, 1]], "labels": ["x", "y"]}
    assert Log.from_json(raw).compact().to_json() == {
        "events": [[1, 0, 8, 0, 0], [-1, 0, 0, 0, 0], [1, 0, 9, 0, 0], [1, 1, 9, 0, 0]],
        "labels": ["y"],
    }


@given(logs())
def test_compacting_changes_no_replay(log: Log) -> None:
    short = log.compact()
    assert Log.from_json(short.to_json()) == short
    assert short.compact() == short
    for mode in ("native", "expandable"):
        settings = Settings(mode=mode, capacity=200 * MIB)
        one, two = replay(log, settings), replay(short, settings)
        assert (one.timeline, one.marks, one.oom) == (two.timeline, two.marks, two.oom)
