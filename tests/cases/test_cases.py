"""Whole answers against the figures that domain experts write down in the .toml files here."""

from __future__ import annotations

import functools
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

import planner
from planner import answers, cases
from planner.search.largest import largest

HERE = Path(__file__).parent
FIELDS = {"name", "ask", "case", "expect", "margin", "source"}

Case = dict[str, Any]


def read(path: Path) -> list[Case]:
    """A file's cases, each with the file's own source where it names none."""
    tree = tomllib.loads(path.read_text(encoding="utf-8"))
    return [{"source": tree.get("source"), "file": path.name, **row} for row in tree["case"]]


EVERY = [row for path in sorted(HERE.glob("*.toml")) for row in read(path)]


@functools.cache
def _answer(ask: str, text: str) -> dict[str, Any]:
    raw = json.loads(text)
    match ask:
        case "fit":
            return answers.fit(planner.evaluate(cases.case(raw)))
        case "largest":
            found = answers.largest(largest(raw["cluster"]))
            return {one["id"]: one for one in found["regimes"]}
        case "batch":
            return answers.limit("micro_batch", planner.largest_micro_batch(cases.case(raw)))
        case "sequence":
            return answers.limit("seq_len", planner.longest_sequence(cases.case(raw)))
        case _:
            raise ValueError(f"{ask} is not something a case can ask")


def answer(row: Case) -> dict[str, Any]:
    return _answer(row.get("ask", "fit"), json.dumps(row["case"], sort_keys=True))


def at(tree: Any, dotted: str) -> Any:
    for step in dotted.split("."):
        tree = tree[step]
    return tree


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables (a dotted key in TOML) as dotted names."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def missed(found: Any, wanted: Any, margin: float | None) -> str | None:
    """How `found` misses what a case expects of it, or None."""
    match wanted:
        case bool() | str():
            good, said = found == wanted, repr(wanted)
        case [str(), *_]:
            good, said = found in wanted, f"one of {wanted}"
        case [low, high]:
            good, said = low <= found <= high, f"from {low:g} to {high:g}"
        case int() | float() if margin is not None:
            good, said = abs(found - wanted) <= margin * abs(wanted), f"{wanted:g} within {margin:.2%}"
        case _:
            return f"expected {wanted!r}, which is neither a text, a range nor a number with a margin"
    return None if good else f"is {found!r}, expected {said}"


def share(text: str | None) -> float | None:
    """ "0.1 %" as a share."""
    if text is None:
        return None
    number, percent = text.split()
    assert percent == "%"
    return float(number) / 100


@pytest.mark.parametrize("row", EVERY, ids=lambda row: row["name"])
def test_a_case_is_answered_as_its_expert_expects(row: Case) -> None:
    found, margin = answer(row), share(row.get("margin"))
    wrong = {
        name: said for name, wanted in flat(row["expect"]).items() if (said := missed(at(found, name), wanted, margin))
    }
    assert not wrong, f"{row['file']}: {row['name']} ({row['source']})"


def test_every_case_is_whole_and_named_once() -> None:
    names = [row["name"] for row in EVERY]
    assert len(names) == len(set(names))
    assert len(EVERY) > 60
    for row in EVERY:
        assert set(row) - {"file"} <= FIELDS, row["name"]
        assert row["source"], row["name"]
        assert row["expect"], row["name"]


@pytest.mark.parametrize(
    ("found", "wanted", "margin", "good"),
    [
        (100.0, 100.09, 0.001, True), (100.0, 101.0, 0.001, False), (5, [5, 6], None, True), (4.9, [5, 6], None, False),
        ("loss", "loss", None, True), ("loss", ["loss", "backward"], None, True), ("loss", "backward", None, False),
        (5.0, 5.0, None, False), (-1.0, -1.05, 0.1, True),
    ],
)  # fmt: skip
def test_the_comparison_itself(found: Any, wanted: Any, margin: float | None, good: bool) -> None:
    assert (missed(found, wanted, margin) is None) == good
