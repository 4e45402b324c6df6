"""One case equals its row in a search: the same formulas over arrays give each candidate's own answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner import cases, rules
from planner.quantity import value_of
from planner.spec import presets
from planner.spec.case import Case
from planner.step.hosting import host
from planner.step.memory import memory, stages
from tests.strategies import legal_cases

FIELDS = (
    "allocated", "workspaces", "cached", "reserved", "nccl", "device", "low", "high", "least", "headroom",
    "verdict_code",
)  # fmt: skip
draws = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])

Set = Callable[[Case, Any], Case]


def plan(name: str) -> Set:
    return lambda case, value: replace(case, plan=replace(case.plan, **{name: value}))


def recipe(name: str) -> Set:
    return lambda case, value: replace(case, recipe=replace(case.recipe, **{name: value}))


def depth(case: Case, value: Any) -> Case:
    groups = tuple(replace(g, count=value) for g in case.model.groups)
    return replace(case, model=replace(case.model, groups=groups))


AXES: dict[str, tuple[Set, list[int]]] = {
    "micro_batch": (plan("micro_batch"), [1, 2, 3, 16, 64]),
    "dp_shard": (plan("dp_shard"), [1, 2, 8, 64, 512]),
    "tp": (plan("tp"), [2, 4, 8]),
    "accumulation": (plan("accumulation"), [1, 2, 3, 16]),
    "zero": (plan("zero"), [0, 1, 2, 3]),
    "sequence_parallel": (plan("sequence_parallel"), [0, 1]),
    "reshard_after_forward": (plan("reshard_after_forward"), [0, 1]),
    "seq_len": (recipe("seq_len"), [64, 512, 1024, 4096, 65_536]),
    "cp": (plan("cp"), [1, 2, 8]),
    "ep": (plan("ep"), [1, 2, 8]),
    "virtual_stages": (plan("virtual_stages"), [1, 2, 4]),
    "checkpoint_every": (recipe("checkpoint_every"), [1, 2, 3, 7]),
    "checkpoint_region": (recipe("checkpoint_region"), [1, 2, 3, 7]),
    "checkpoint_most": (recipe("checkpoint_most"), [1, 2, 3, 99]),
    "loss_chunks": (recipe("loss_chunks"), [1, 2, 8, 32]),
    "layers": (depth, [1, 2, 3, 16, 126]),
}


def same(row: Any, place: int, single: Any, name: str) -> None:
    value = np.asarray(value_of(row))
    mine = float(value[place]) if value.ndim else float(value)
    assert mine == pytest.approx(float(value_of(single)), rel=1e-12, abs=1e-3), name


@pytest.mark.parametrize("axis", sorted(AXES))
@given(case=legal_cases(), data=st.data())
@draws
def test_one_case_equals_its_row(axis: str, case: Case, data: st.DataObject) -> None:
    put, values = AXES[axis]
    stage = data.draw(st.sampled_from(stages(case)))
    rows_case = put(case, np.array(values))
    rows = memory(rows_case, stage)
    machine = host(rows_case, rows)
    for place, value in enumerate(values):
        one_case = put(case, value)
        single = memory(one_case, stage)
        for field in FIELDS:
            same(getattr(rows, field), place, getattr(single, field), field)
        for moment, quantity in single.moments.items():
            same(rows.moments[moment], place, quantity, moment)
        same(machine.needed, place, host(one_case, single).needed, "host")


@given(case=legal_cases(), data=st.data())
@draws
def test_one_case_equals_its_row_over_two_axes_at_once(case: Case, data: st.DataObject) -> None:
    one, two = data.draw(st.permutations(sorted(AXES)).map(lambda names: names[:2]))
    stage = stages(case)[-1]
    grid = np.meshgrid(*(np.array(AXES[n][1]) for n in (one, two)))
    a, b = (g.ravel() for g in grid)
    rows = memory(AXES[two][0](AXES[one][0](case, a), b), stage)
    place = data.draw(st.integers(0, len(a) - 1))
    single = memory(AXES[two][0](AXES[one][0](case, int(a[place])), int(b[place])), stage)
    for field in FIELDS:
        same(getattr(rows, field), place, getattr(single, field), field)


@given(case=legal_cases(), widths=st.lists(st.sampled_from([2048, 4096, 8192]), min_size=2, max_size=4))
@draws
def test_one_width_equals_its_row(case: Case, widths: list[int]) -> None:
    """A solver's candidates: shapes of several widths and depths in one array."""
    depths = np.arange(1, len(widths) + 1) * 4
    assume(not case.stack.dummy_wgrads)  # see below
    stage = stages(case)[0]
    rows = memory(replace(case, model=presets.shape(np.array(widths), depths)), stage)
    for place, (hidden, layers) in enumerate(zip(widths, depths, strict=True)):
        single = memory(replace(case, model=presets.shape(hidden, int(layers))), stage)
        for field in FIELDS:
            same(getattr(rows, field), place, getattr(single, field), field)


@pytest.mark.parametrize("axis", sorted(set(AXES) - {"sequence_parallel", "reshard_after_forward"}))
@given(case=legal_cases())
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_the_rules_mask_is_each_candidates_own_answer(axis: str, case: Case) -> None:
    put, values = AXES[axis]
    mask = np.broadcast_to(rules.mask(put(case, np.array(values))), len(values))
    assert list(mask) == [not rules.violations(put(case, value)) for value in values]


# Where it does not hold yet.


def stated(framework: str, **plan_: Any) -> Case:
    world = plan_.get("tp", 1)
    return cases.case(
        {
            "cluster": {"gpu": "h100-sxm", "gpus": world}, "model": "llama-3-8b",
            "recipe": {"framework": framework, "seq_len": 4096}, "plan": {"data_parallel": "none", **plan_},
        }
    )  # fmt: skip


def test_widths_in_one_array_with_transformer_engine() -> None:
    rows = memory(replace(stated("megatron-lm"), model=presets.shape(np.array([1024, 2048]), 4)))
    single = memory(replace(stated("megatron-lm"), model=presets.shape(2048, 4)))
    same(rows.allocated, 1, single.allocated, "allocated")


def test_rows_with_and_without_tensor_parallelism_keep_their_own_band() -> None:
    case = stated("hf-transformers")
    rows = memory(plan("tp")(case, np.array([1, 2])))
    for field in FIELDS:
        same(getattr(rows, field), 0, getattr(memory(case), field), field)


@pytest.mark.xfail(reason="step.memory.worst_stage lays stages along the axis of the rows", raises=ValueError)
def test_the_worst_stage_of_rows() -> None:
    case = cases.case(
        {
            "cluster": {"gpu": "h100-sxm", "gpus": 4}, "model": "llama-3-8b",
            "recipe": {"framework": "megatron-lm", "seq_len": 4096}, "plan": {"pp": 4, "data_parallel": "none"},
        }
    )  # fmt: skip
    rows = memory(plan("micro_batch")(case, np.array([1, 2, 4])))
    same(rows.device, 1, memory(plan("micro_batch")(case, 2)).device, "device")


@pytest.mark.xfail(reason="step.setting.attention_core: one grouped width gives every row the math backend")
def test_rows_with_and_without_grouped_heads_keep_their_own_attention() -> None:
    wide = cases.case({"model": "llama-3-8b", "recipe": {"precision": "fp32"}})
    case = replace(stated("pytorch"), recipe=wide.recipe)
    rows = memory(replace(case, model=presets.shape(np.array([1024, 2048]), 4)))
    single = memory(replace(case, model=presets.shape(1024, 4)))
    same(rows.allocated, 0, single.allocated, "allocated")
