"""What a report says: plain data, the same numbers as the answer, sources that are known, nothing computed."""

from __future__ import annotations

import ast
import dataclasses
import datetime
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import planner
from planner import explain, i18n
from planner.report import chain, content
from planner.report.document import Points, Report, Steps, Table
from tests.report.cases import CASES, DATE

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def estimates() -> dict[str, planner.Estimate]:
    return {name: planner.evaluate(planner.load_case(raw)) for name, raw in CASES.items()}


@pytest.fixture(scope="module")
def reports(estimates: dict[str, planner.Estimate]) -> dict[str, Report]:
    return {name: content.report(found, date=DATE) for name, found in estimates.items()}


def blocks(report: Report, kind: type[Any]) -> Iterator[Any]:
    return (block for section in report.sections for block in section.blocks if isinstance(block, kind))


def table(report: Report, section: str, number: int = 0) -> Table:
    found = next(s for s in report.sections if s.key == section)
    return [b for b in found.blocks if isinstance(b, Table)][number]


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, inside in value.items():
            yield key
            yield from leaves(inside)
    elif isinstance(value, list | tuple):
        for inside in value:
            yield from leaves(inside)
    else:
        yield value


@pytest.mark.parametrize("name", CASES)
def test_a_report_is_plain_finite_data(name: str, reports: dict[str, Report]) -> None:
    found = list(leaves(dataclasses.asdict(reports[name])))
    assert {type(one) for one in found} <= {str, int, float, bool, type(None)}
    assert all(math.isfinite(one) for one in found if isinstance(one, float))
    assert not [one for one in found if isinstance(one, str) and re.search(r"\b(nan|inf|None)\b|<\w+ = ", one)]


@pytest.mark.parametrize("name", CASES)
def test_it_says_the_verdict_the_question_and_the_headroom(name: str, reports: dict[str, Report]) -> None:
    report = reports[name]
    fit = report.fit
    assert report.verdict == fit["verdict"]
    assert f"{fit['recipe']['seq_len']:,} tokens" in report.question
    assert fit["model"] in report.question
    assert report.figures[0].value == f"{abs(fit['headroom_gib']):.1f}"
    assert report.figures[0].unit == "GiB"
    assert f"{fit['device_gib']:.1f} GiB" in report.answer[0]
    assert f"{fit['mem_low_gib']:.1f} to {fit['mem_high_gib']:.1f} GiB" in report.answer[0]


def test_each_verdict_has_its_own_sentence(reports: dict[str, Report]) -> None:
    assert {r.verdict for r in reports.values()} == {"fits", "edge", "oom"}
    assert reports["fits"].answer[0].startswith("Yes, it fits.")
    assert reports["edge"].answer[0].startswith("It is on the edge")
    assert reports["too much"].answer[0].startswith("No, it does not fit.")


@pytest.mark.parametrize("name", CASES)
def test_the_memory_table_is_the_answer(name: str, reports: dict[str, Report]) -> None:
    report = reports[name]
    rows = table(report, "memory").rows
    assert [row[1] for row in rows] == [
        *(f"{v:,.2f}" for v in report.fit["breakdown_gib"].values()),
        f"{report.fit['device_gib']:,.2f}",
    ]
    assert rows[-1][2] == "100.0%"


def test_sections_follow_the_case(reports: dict[str, Report]) -> None:
    keys = {name: [s.key for s in report.sections] for name, report in reports.items()}
    assert "stages" in keys["pipeline"]
    assert "stages" not in keys["fits"]
    assert "remedies" in keys["too much"]
    assert "remedies" not in keys["fits"]
    assert "warnings" in keys["pipeline"]
    for found in keys.values():
        assert {"case", "assumptions", "open", "chain", "hardware", "references", "file"} <= set(found)


def test_remedies_name_the_fields_to_set(reports: dict[str, Report]) -> None:
    report = reports["too much"]
    rows = table(report, "remedies").rows
    assert [row[0] for row in rows] == [one["title"] for one in report.fit["remedies"]]
    assert "recipe.checkpointing = full" in [row[4] for row in rows]
    assert not [row for row in rows if "{" in row[4]]


def test_what_was_assumed_is_told_apart_from_what_was_stated(reports: dict[str, Report]) -> None:
    report = reports["too much"]
    origin = {row[0]: row[2] for row in table(report, "case", 2).rows}
    assert origin["seq_len"] == "stated"
    assert origin["optimizer"] == "assumed"
    assert origin["precision.params"] == "derived"
    filled = next(b for b in blocks(report, Points) if b.points[0][0].startswith("recipe."))
    assert [f"{head} {said}" for head, said in filled.points] == report.fit["assumed"]


@pytest.mark.parametrize("name", CASES)
def test_every_reference_is_known_and_every_number_leads_to_one(name: str, estimates: dict[str, Any]) -> None:
    found = estimates[name]
    keys = chain.used(found)
    assert not [key for key in keys if key not in chain.sources()]
    assert set(explain.references(found.memory.device)) <= set(keys)
    numbers = {n for b in chain.section(found).blocks if isinstance(b, Steps) for s in b.steps for n in s.sources}
    assert numbers
    assert numbers <= set(range(1, len(keys) + 1))


def test_an_unknown_source_is_said_and_does_not_crash(
    estimates: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "sources", dict)
    rows = chain.references(estimates["fits"]).blocks[1].rows  # type: ignore[union-attr]
    assert all("Not in the list of sources" in row[1] for row in rows)


@pytest.mark.parametrize("name", CASES)
def test_the_chain_explains_every_part_with_formula_and_numbers(name: str, reports: dict[str, Report]) -> None:
    report = reports[name]
    steps = {block.title: block.steps for block in blocks(report, Steps)}
    missing = [part for part in report.fit["breakdown_gib"] if i18n.t(f"part.{part}") not in steps]
    assert set(missing) <= {"workspaces"}  # told as an input of the allocator's blocks
    assert "headroom = usable − device" in [s.formula for s in steps["Result"]]
    assert any(s.formula.startswith("state_bytes = ") and s.numbers.startswith("= ") for s in steps["Weights"])


def test_hardware_marks_what_is_used_and_what_is_unconfirmed() -> None:
    raw = {"model": "llama-3-8b", "cluster": {"gpu": "h100-nvl", "gpus": 8}}
    rows = table(content.report(planner.evaluate(planner.load_case(raw)), date=DATE), "hardware").rows
    state = {row[0]: row[2:] for row in rows}
    assert state["Memory that torch sees"][0] == "yes"
    assert state["Memory that torch sees"][1] != "confirmed"
    assert state["Peak rate, bf16"] == ("no", "unconfirmed")


def test_the_largest_models_stand_in_it_when_given(estimates: dict[str, Any]) -> None:
    found = planner.largest_model({"gpu": "h100-sxm", "gpus": 8})
    report = content.report(estimates["fits"], found, DATE)
    rows = table(report, "largest").rows
    assert [row[0] for row in rows] == [one.title for one in found]
    assert rows[0][2] == f"{found[0].params / 1e9:,.1f}"


def test_it_is_dated_today_unless_told(estimates: dict[str, Any]) -> None:
    today = datetime.datetime.now(tz=datetime.UTC).date()
    dates = {today.isoformat(), (today + datetime.timedelta(days=1)).isoformat()}
    assert content.report(estimates["fits"]).date in dates


@pytest.mark.parametrize("module", ["content", "parts", "chain", "document"])
def test_content_computes_nothing(module: str) -> None:
    tree = ast.parse((ROOT / f"planner/report/{module}.py").read_text(encoding="utf-8"))
    sums = [ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.BinOp) and not isinstance(n.op, ast.BitOr)]
    assert not sums
