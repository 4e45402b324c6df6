"""`planner predict` and `planner evidence` on the command line."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from planner import cli, i18n
from tests.evidence.samples import DENSE, LORA, changed

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    def go(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(list(arguments))
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    yield go
    i18n.use(i18n.DEFAULT)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    path = tmp_path / "runs.jsonl"
    lines = [json.dumps(DENSE), "{broken", json.dumps(changed(DENSE, n_gpus=7, id="seven")), json.dumps(LORA)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def answered(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_one_line_a_record_in_order(run: Run, runs: Path) -> None:
    status, out, _ = run("predict", str(runs))
    found = answered(out)
    assert status == 0
    assert [(one["id"], one["status"]) for one in found] == [
        ("one", "ok"), ("line 2", "skipped"), ("seven", "skipped"), ("three", "ok"),
    ]  # fmt: skip


def test_records_come_from_standard_input_too(run: Run, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(runs.read_bytes())))
    assert answered(run("predict", "-")[1]) == answered(run("predict", str(runs))[1])


def test_reasons_and_assumptions_are_said_in_chinese(run: Run, runs: Path) -> None:
    found = answered(run("predict", str(runs), "--lang", "zh")[1])
    assert "张 GPU" in found[2]["reason"]
    assert "默认值" in " ".join(found[3]["assumed"])


@pytest.mark.parametrize("command", ["predict", "evidence"])
def test_a_file_that_is_not_there_is_a_wrong_input(run: Run, command: str) -> None:
    status, _, err = run(command, "nowhere.jsonl")
    assert status == 2
    assert "nowhere.jsonl" in err


def test_evidence_of_ones_own_runs(run: Run, runs: Path) -> None:
    status, out, _ = run("evidence", str(runs), "--json", "--leave-out")
    found = json.loads(out)
    assert status == 0
    assert found["memory"]["n"] == 1
    assert (found["memory"]["counted"], found["memory"]["answered"]) == (3, 2)
    assert list(found["memory"]["by_framework"]) == ["torchtitan"]
    assert found["left_out"]["framework"][0]["name"] == "torchtitan"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_table_is_printed_in_both_languages(run: Run, runs: Path, language: str) -> None:
    status, out, _ = run("evidence", str(runs), "--leave-out", "--lang", language)
    assert status == 0
    assert "torchtitan" in out
    assert ("Answered" in out) == (language == "en")


def test_a_file_without_a_single_point_is_a_table_without_figures(run: Run, tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("{}", encoding="utf-8")
    status, out, _ = run("evidence", str(tmp_path / "none.jsonl"), "--json")
    assert status == 0
    assert json.loads(out)["memory"]["mape"] is None


def test_lines_without_a_record_are_told_beside_the_table(run: Run, runs: Path) -> None:
    assert json.loads(run("evidence", str(runs), "--json")[1])["unread"]["n"] == 1
    assert "1 lines hold no record; the first: line 2" in run("evidence", str(runs))[1]
    assert "第 2 行" in run("evidence", str(runs), "--lang", "zh")[1]
    assert json.loads(run("evidence", str(runs), "--json", "--leave-out")[1])["unread"]["n"] == 1


def test_a_wrong_field_is_not_missing_as_well(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps({**DENSE, "arch": {**DENSE["arch"], "hidden_size": "x"}}), encoding="utf-8")
    (one,) = answered(run("predict", str(path))[1])
    assert one["reason"].count("arch.hidden_size") == 1


def test_half_a_letter_is_answered_as_json(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps({**DENSE, "id": "\ud800"}), encoding="utf-8")
    status, out, _ = run("predict", str(path))
    assert (status, answered(out)[0]["id"]) == (0, "\ud800")
