"""Reading run records: each line by itself, in order, whatever stands in it, with bounded memory."""

from __future__ import annotations

import io
import itertools
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.evidence import records
from planner.evidence.predict import KEYS, answer, answers
from planner.evidence.records import MOST_BYTES, Line, lines
from tests.evidence.samples import DENSE, EVERY, changed
from tests.strategies import json_trees


def read(*texts: str | bytes) -> list[Line]:
    data = b"\n".join(t.encode() if isinstance(t, str) else t for t in texts)
    return list(lines(io.BytesIO(data)))


def test_lines_keep_their_order_and_number() -> None:
    found = read(json.dumps(DENSE), "", "   ", "nonsense", json.dumps(DENSE))
    assert [(one.number, one.record is None) for one in found] == [(1, False), (4, True), (5, False)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"), ("[1]", "not a JSON object"), ("3", "not a JSON object"), ("null", "not a JSON object"),
        ('{"a": NaN}', "NaN"), ('{"a": -Infinity}', "-Infinity"), (b"\xff\xfe", "not JSON"), ('{"a": 1}}', "not JSON"),
        ("{\"a\": " + "[" * 30 + "]" * 30 + "}", "nested"), ("[" * 100_000, "nested"), ("{'a': 1}", "not JSON"),
        ('{"a": ' + "9" * 5000 + "}", "not JSON"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_record_is_told_with_its_reason(text: str | bytes, why: str) -> None:
    (found,) = read(text)
    assert found.record is None
    assert why in str(found.problem)
    said = answer(found)
    assert (said["id"], said["status"]) == ("line 1", "skipped")
    assert "line 1" in said["reason"]


def test_a_line_without_end_is_passed_over_piece_by_piece() -> None:
    found = read(json.dumps(DENSE), b"{" + b"x" * (3 * MOST_BYTES), json.dumps(DENSE))
    assert [one.record is None for one in found] == [False, True, False]
    assert "longer than" in str(found[1].problem)


def test_a_byte_order_mark_is_no_reason_to_refuse() -> None:
    (found,) = read(b"\xef\xbb\xbf" + json.dumps(DENSE).encode())
    assert found.record is not None


class Endless(io.RawIOBase):
    """A file of one line over and over, that counts what was read of it."""

    def __init__(self, line: bytes, times: int):
        self.line, self.left, self.read_lines = line, times, 0

    def readable(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> bytes:
        if not self.left:
            return b""
        self.left, self.read_lines = self.left - 1, self.read_lines + 1
        return self.line


def test_answers_are_made_when_they_are_asked_for() -> None:
    stream: Any = Endless(json.dumps(DENSE).encode() + b"\n", 100_000)
    some = list(itertools.islice(answers(lines(stream)), 3))
    assert [one["status"] for one in some] == ["ok"] * 3
    assert stream.read_lines == 3


def test_twenty_thousand_records_need_no_more_memory_than_a_few() -> None:
    broken = json.dumps(changed(DENSE, n_gpus=7)).encode() + b"\n"
    tracemalloc.start()
    stream: Any = Endless(broken, 20_000)
    count = sum(1 for _ in records.lines(stream))
    few: Any = Endless(broken, 300)
    skipped = sum(one["status"] == "skipped" for one in answers(lines(few)))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (count, skipped) == (20_000, 300)
    assert most < 20e6


def test_every_answer_has_the_same_keys_and_is_json() -> None:
    texts = [*map(json.dumps, EVERY), "{", json.dumps(changed(DENSE, n_gpus=3))]
    for one in answers(read(*texts)):
        assert set(one) == set(KEYS)
        json.loads(json.dumps(one, allow_nan=False))


@given(json_trees, st.sampled_from(sorted(DENSE)))
@settings(max_examples=200, deadline=None)
def test_whatever_stands_in_a_field_is_answered_or_skipped_with_a_reason(tree: Any, field: str) -> None:
    said = answer(Line(1, {**DENSE, field: tree}))
    assert said["status"] == "ok" or (said["status"] == "skipped" and said["reason"])
    json.dumps(said, allow_nan=False)


@given(json_trees, st.sampled_from(["arch", "parallel", "precision", "peft", "measured", "offload", "act_ckpt_args"]),
       st.data())  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_whatever_stands_in_a_table_is_answered_or_skipped(tree: Any, table: str, data: st.DataObject) -> None:
    inside = DENSE.get(table) or {"k": 1, "rank": 8, "targets": []}
    name = data.draw(st.sampled_from(sorted(inside)))
    said = answer(Line(1, {**DENSE, table: {**inside, name: tree}}))
    assert said["status"] in ("ok", "skipped")
    json.dumps(said, allow_nan=False)
