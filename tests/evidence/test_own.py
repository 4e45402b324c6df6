"""A user's own records: answered in order, bounded, broken lines told, and the same figures as the command's."""

from __future__ import annotations

import io
import json
import threading
import time
from typing import Any

import pytest

from planner.evidence import own as module
from planner.evidence.accuracy import accuracy
from planner.evidence.own import Own, thinned
from planner.evidence.predict import answers
from planner.evidence.records import at, lines
from planner.evidence.rows import answered, row, rows, shipped
from planner.evidence.table import as_json
from tests.evidence.samples import DENSE, changed


def file(*records: Any) -> bytes:
    return b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in records)


def done(data: bytes) -> Own:
    found = Own(data, "mine.jsonl")
    while not found.work(0.2):
        assert found.share < 1
    return found


BROKEN = file(DENSE, b"nonsense", b"", [1], {**DENSE, "id": "no arch", "arch": None}, DENSE)


def test_broken_lines_are_told_and_the_others_answered() -> None:
    found = done(BROKEN)
    assert list(found.rows) == [1, 5, 6]
    assert [one.number for one in found.refused] == [2, 4, 5]
    assert found.refused[2].id == "no arch"
    assert all(one.reason for one in found.refused)
    assert (found.done, found.count_refused, found.cut, found.stopped) == (5, 3, False, False)
    assert found.record(6) == json.loads(json.dumps(DENSE))
    assert found.record(2) is None
    assert found.record(99) is None


def test_answers_are_those_of_predict() -> None:
    expected = [json.dumps(one, ensure_ascii=False) for one in answers(lines(io.BytesIO(BROKEN)))]
    assert done(BROKEN).answers().decode().splitlines() == expected


def test_a_row_of_an_answer_is_the_row_of_its_record() -> None:
    some = [line for line in shipped() if line.record][::40]
    for line, answer in zip(some, answers(some), strict=True):
        assert line.record is not None
        made, expected = answered(line.record, answer), row(line.record)
        for name in ("predicted", "low", "high", "verdict", "measured", "grade"):
            assert getattr(made, name) == getattr(expected, name), (line.number, name)


def test_figures_are_those_of_the_command() -> None:
    some = [line.record for line in shipped() if line.record][::20]
    data = file(*some)
    expected = as_json(accuracy(rows(lines(io.BytesIO(data)))))["memory"]
    assert as_json(accuracy(done(data).rows.values()))["memory"] == expected


def test_a_record_without_a_grade_counts() -> None:
    bare = {name: value for name, value in DENSE.items() if name != "grade"}
    assert row(bare).counted
    assert not row({**bare, "grade": "C"}).counted


def test_a_file_is_cut_at_the_limit_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LINES", 3)
    found = done(file(*[b"{"] * 5))
    assert (found.done, found.cut) == (3, True)
    assert not done(file(*[b"{"] * 3)).cut


def test_a_hundred_thousand_broken_lines_are_counted_and_few_are_kept() -> None:
    found = Own(b"x\n" * 100_001)
    before = time.monotonic()
    assert found.work(60)
    assert time.monotonic() - before < 30
    assert (found.done, found.count_refused, found.cut) == (100_000, 100_000, True)
    assert len(found.refused) == module.MOST_TOLD
    assert found.answers().count(b"\n") == 100_000


def test_it_can_be_stopped_and_keeps_what_it_has() -> None:
    found = Own(file(*[DENSE] * 2000))
    found.work(0.05)
    found.stop()
    assert found.ended
    assert found.stopped
    assert 0 < found.done < 2000
    assert found.answers().count(b"\n") == len(found.rows) == found.done
    assert found.work(1), "nothing more is read"


def test_threads_do_not_get_in_each_others_way() -> None:
    found = Own(file(*[DENSE] * 400))
    threads = [threading.Thread(target=found.work, args=(0.3,)) for _ in range(4)]
    for one in threads:
        one.start()
    found.stop()
    for one in threads:
        one.join()
    assert found.answers().count(b"\n") == found.done


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xff\xfe\x00", b"\x00" * 1000])
def test_what_is_no_file_of_records_is_no_accident(data: bytes) -> None:
    found = done(data)
    assert not found.rows
    assert found.answers() == b"".join(json.dumps(one).encode() + b"\n" for one in answers(lines(io.BytesIO(data))))


def test_one_line_is_found_by_its_number() -> None:
    found = at(io.BytesIO(BROKEN), 2)
    assert found is not None
    assert found.record is None
    assert at(io.BytesIO(BROKEN), 3) is None


def test_thinning_is_even_and_bounded() -> None:
    found = done(file(*[changed(DENSE, id=str(n)) for n in range(10)]))
    assert list(thinned(found.rows, 10)) == list(found.rows)
    assert list(thinned(found.rows, 4)) == [1, 4, 7, 10]
    assert thinned({}, 4) == {}
