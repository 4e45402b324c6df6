"""How errors are counted, on rows made by hand; and the shipped evidence against its baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.evidence import ratchet
from planner.evidence.accuracy import Accuracy, accuracy, errors, fitted, frontier, left_out
from planner.evidence.rows import Row, row, rows, shipped
from planner.evidence.table import as_json
from tests.evidence.samples import DENSE, changed

BASELINE = Path(__file__).parent / "accuracy_baseline.json"


def made(off: float, repository: str = "a/b", model: str = "m", **fields: Any) -> Row:
    """A point that is off by that share; its band is 10 % to either side of the prediction."""
    about: dict[str, Any] = {
        "id": "x", "repository": repository, "model": model, "task": "pretrain", "framework": "f", "kind": "dense",
        "gpu": "g", "metric": "max_allocated", "grade": "A", "tags": frozenset(), "measured": 100.0,
        "predicted": 100 * (1 + off), "low": 90 * (1 + off), "high": 110 * (1 + off), "verdict": "fits", **fields,
    }  # fmt: skip
    return Row(**about)


def test_a_group_counts_once_however_many_rows_it_has() -> None:
    found = errors([made(0.1), made(0.1), made(0.1), made(-0.3, model="other")])
    assert found.mape == pytest.approx(0.2)
    assert found.bias == pytest.approx(-0.1)
    assert (found.n, found.groups) == (4, 2)


def test_a_repository_counts_once_however_many_groups_it_has() -> None:
    many = [made(0.1, "a/b", f"m{i}") for i in range(9)]
    found = errors([*many, made(0.5, "c/d")])
    assert found.mape == pytest.approx(0.14)
    assert found.mape_by_repository == pytest.approx(0.3)


def test_toys_of_one_repository_and_task_are_one_group() -> None:
    toys = [made(0.2, model=f"toy{i}", tags=frozenset({"toy"})) for i in range(5)]
    assert errors([*toys, made(0.4)]).groups == 2


def test_the_band_holds_what_lies_in_it() -> None:
    found = errors([made(0.0), made(0.05), made(0.5), made(-0.5)])
    assert found.band_coverage == 0.5
    assert found.half_width == pytest.approx(0.1)


def test_the_ninetieth_percentile_is_of_rows() -> None:
    found = errors([made(i / 100) for i in range(100)])
    assert found.p90 == pytest.approx(0.9)


@pytest.mark.parametrize(
    "fields",
    [
        {"grade": "C"}, {"metric": "nvidia-smi"}, {"metric": "None"}, {"metric": "fits"}, {"measured": None},
        {"predicted": None}, *({"tags": frozenset({t})} for t in ("component", "pathology", "below-floor", "vlm")),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_point_is_not_counted_as_one(fields: dict[str, Any]) -> None:
    assert not made(0.1, **fields).point


def test_frontiers_count_opposite_verdicts_and_edges() -> None:
    at = [
        made(0, metric="fits", verdict=v, tags=t)
        for v, t in (("fits", frozenset()), ("oom", frozenset()), ("edge", frozenset({"fits-tuned"})))
    ] + [made(0, metric="oom", verdict=v) for v in ("oom", "fits", "edge", "edge")]
    found = frontier(at)
    assert (found["fits"].n, found["fits"].opposite, found["fits"].edge) == pytest.approx((3, 1 / 3, 1 / 3))
    assert (found["fits_untuned"].n, found["fits_untuned"].edge) == (2, 0.0)
    assert (found["oom"].n, found["oom"].opposite, found["oom"].edge) == (4, 0.25, 0.5)


@pytest.mark.parametrize(
    ("value", "unit", "bytes_"),
    [(1, "GiB", 2**30), (1, "GB", 1e9), (1, "MiB", 2**20), (1, "MB", 1e6), (1, "parsec", None), (-1, "GiB", None),
     (True, "GiB", None), ("1", "GiB", None), (1, None, None), (1, "GB/s", None)],
)  # fmt: skip
def test_a_measurement_is_read_in_its_unit(value: Any, unit: Any, bytes_: float | None) -> None:
    found = row(changed(DENSE, measured={"mem_value": value, "mem_unit": unit}))
    assert found.measured == bytes_


def test_a_record_that_cannot_be_expressed_is_a_row_with_its_reason() -> None:
    found = accuracy([row(changed(DENSE, n_gpus=7)), row(DENSE)])
    assert (found.counted, found.answered, found.coverage) == (2, 1, 0.5)
    assert any("7" in reason for reason in found.skipped)


def test_nothing_at_all_is_a_table_too() -> None:
    found = accuracy([])
    assert found.errors is None
    json.dumps(as_json(found), allow_nan=False)


# The shipped evidence.


@pytest.fixture(scope="module")
def table() -> Accuracy:
    return accuracy(rows(shipped()))


def test_nearly_every_training_run_is_answered(table: Accuracy) -> None:
    assert table.coverage >= 0.98


def test_no_figure_got_worse(table: Accuracy) -> None:
    before = json.loads(BASELINE.read_text(encoding="utf-8"))
    assert ratchet.worse(before, ratchet.figures(table)) == []


def test_the_table_has_the_shape_of_the_contract(table: Accuracy) -> None:
    found = as_json(table)
    assert set(found) >= {"memory", "speed", "groups"}
    assert set(found["memory"]) >= {
        "n", "coverage", "mape", "mape_by_repository", "bias", "p90", "band_coverage", "by_framework", "opposite_fits",
        "opposite_oom", "edge_fits", "edge_oom",
    }  # fmt: skip
    assert set(found["groups"][0]) == {"source", "model", "task", "n", "mape", "bias"}
    json.dumps(found, allow_nan=False)


def test_a_worse_figure_and_a_lost_one_are_told() -> None:
    assert ratchet.worse({"mape": 0.1, "gone": 0.2}, {"mape": 0.12}) == ["gone: gone", "mape: 0.1000 -> 0.1200"]
    assert ratchet.worse({"mape": 0.1}, {"mape": 0.09, "new": 1.0}) == []


def test_leaving_out_what_a_coefficient_was_fitted_to_puts_it_aside() -> None:
    lines = [line for line in shipped() if line.record and line.record["framework"] in ("megatron-lm", "litgpt")][:60]
    found = {one.name: one for one in left_out(lines, "framework")}
    assert "slack_megatron" in found["megatron-lm"].coefficients
    assert all(c.without is not None for c in fitted())
