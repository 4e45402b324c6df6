"""Reasons for disagreements are data: each is in both languages, speaks of records that exist, and on one side only."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest

from planner import i18n
from planner.evidence.disagreements import entries, reason, reasons
from planner.evidence.rows import Row, rows, shipped

HAN = re.compile("[\u4e00-\u9fff]")
IDS = [str(line.record["id"]) for line in shipped() if line.record]


def point(id: str, error: float) -> Row:
    """A point that is off by so much."""
    return Row(id, "a/b", "m", "pretrain", "f", "dense pretrain", "g", "max_allocated", "A", frozenset(), 100.0,
               100.0 * (1 + error), 90.0, 110.0, "fits")  # fmt: skip


def test_every_reason_is_said_in_both_languages() -> None:
    for key, texts in reasons().items():
        assert set(texts) == set(i18n.languages()), key
        assert HAN.search(texts["zh"]), key
        assert not HAN.search(texts["en"]), key
        assert not re.search(r"[\u4e00-\u9fff][,;:?!]|[,;:?!][\u4e00-\u9fff]|[\u4e00-\u9fff]\.(?!\w)", texts["zh"]), key


def test_every_entry_names_records_and_a_reason() -> None:
    assert {one.reason for one in entries()} == set(reasons())
    for one in entries():
        assert one.too in ("", "high", "low")
        for pattern in one.ids:
            assert any(fnmatchcase(id, pattern) for id in IDS), pattern


def test_the_first_entry_that_fits_is_the_one_and_its_side_counts() -> None:
    high, low = point("tune-flags-3b-baseline", 0.5), point("tune-flags-3b-baseline", -0.5)
    assert reason(high) == reasons()["unpacked"]["en"]
    assert reason(low) is None
    assert reason(point("mcore-golden-gpt-uneven_pipeline", -0.2)) == reasons()["hidden-flag"]["en"]
    assert reason(point("nobody-knows", 0.5)) is None
    assert reason(replace(high, predicted=None)) is None


def test_what_agrees_needs_no_reason() -> None:
    near = replace(point("tune-flags-3b-baseline", 0.05), low=90.0, high=120.0)
    assert reason(near) is None
    assert reason(replace(near, low=104.0)) is not None, "its band misses"


def test_a_reason_speaks_the_language_of_its_reader() -> None:
    i18n.use("zh")
    try:
        assert reason(point("tune-flags-3b-baseline", 0.5)) == reasons()["unpacked"]["zh"]
    finally:
        i18n.use("en")


@pytest.mark.parametrize("most", [20])
def test_most_of_what_lies_furthest_off_has_a_reason(most: int) -> None:
    points = sorted((r for r in rows(shipped()) if r.point), key=lambda r: -abs(r.error))[:most]
    assert sum(reason(r) is not None for r in points) >= most // 2
