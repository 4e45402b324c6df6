"""What the README says is what the planner answers: its table, its worked commands, its picture."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import planner
from planner import cli
from planner.units import count_text

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    python -m planner (.+)$", README, re.MULTILINE)


def test_the_table_of_the_largest_models_is_the_answer() -> None:
    shown = README.split("<!-- largest -->")[1].split("<!-- /largest -->")[0].strip().splitlines()
    found = [
        f"| {one.title} | {count_text(one.comfortable)} | {count_text(one.params)} |"
        for one in planner.largest_model({"gpu": "h100-sxm", "gpus": 8})
    ]
    assert shown == found


def test_there_are_at_least_three_worked_commands() -> None:
    assert len({line.split()[0] for line in COMMANDS}) >= 3


@pytest.mark.parametrize("line", COMMANDS)
def test_a_worked_command_answers(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(shlex.split(line))
    assert ended.value.code == 0
    for name in re.findall(r"\S+\.(?:pdf|html)", line):
        assert (tmp_path / name).stat().st_size > 10_000


def test_the_quoted_answer_is_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    line = next(c for c in COMMANDS if c.startswith("fit"))
    with pytest.raises(SystemExit):
        cli.main(shlex.split(line))
    said = capsys.readouterr().out
    quoted = [q.strip() for q in README.splitlines() if q.startswith(("    Fits:", "    Peak at"))]
    assert len(quoted) == 2
    for sentence in quoted:
        assert sentence in said


def test_the_picture_is_there() -> None:
    for name in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README):
        assert (ROOT / name).stat().st_size > 20_000
