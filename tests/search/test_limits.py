"""The inverse questions: what is answered trains, one more does not, and more GPUs never train less."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner import cases
from planner.quantity import value_of
from planner.search.largest import Largest, largest, regimes
from planner.search.limits import STEP, fits, micro_batch, sequence, trains
from planner.search.remedies import path, remedies
from planner.search.solve import largest_true
from planner.spec.case import Case
from planner.step.evaluate import evaluate
from tests.strategies import legal_cases

some = settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


@given(st.integers(0, 3000), st.integers(1, 64), st.integers(1, 2000))
@settings(max_examples=200)
def test_the_largest_that_holds_is_found(limit: int, start: int, most: int) -> None:
    asked: list[int] = []

    def holds(n: int) -> bool:
        asked.append(n)
        assert 1 <= n <= max(most, 2), "asked outside its range"
        return n <= limit

    assert largest_true(holds, start, most) == min(limit, most)
    assert len(asked) <= 4 + 2 * math.log2(max(most, 2))


def at_batch(case: Case, n: int) -> Case:
    return replace(case, plan=replace(case.plan, micro_batch=n))


def at_sequence(case: Case, n: int) -> Case:
    return replace(case, recipe=replace(case.recipe, seq_len=n))


@given(legal_cases())
@some
def test_the_micro_batch_is_exact(case: Case) -> None:
    case = replace(case, recipe=replace(case.recipe, global_batch=None))  # no batch to divide
    found = micro_batch(case)
    exact(case, found.value, found.comfortable, 1, at_batch)
    assert found.comfortable <= found.value


@given(legal_cases(), st.sampled_from([1, 6, 64]))
@some
def test_a_stated_batch_is_divided(case: Case, each: int) -> None:
    """With a global batch the answer is a divisor of a replica's share, and no larger one trains."""
    replicas = case.plan.dp_replicate * case.plan.dp_shard
    found = micro_batch(replace(case, recipe=replace(case.recipe, global_batch=each * replicas)))
    for n in (n for n in range(1, each + 1) if each % n == 0):
        at = replace(case, plan=replace(case.plan, micro_batch=n, accumulation=each // n))
        assert trains(at) == (n <= found.value)


@given(legal_cases())
@some
def test_the_sequence_is_exact(case: Case) -> None:
    assume(case.model.position != "learned")
    found = sequence(case)
    assert found.value % STEP == 0
    exact(case, found.value, found.comfortable, STEP, at_sequence)


def exact(case: Case, value: int, sure: int, step: int, at: Callable[[Case, int], Case]) -> None:
    """`value` trains and the next does not; the same of `sure` and the verdict `fits`."""
    if value:
        assert trains(at(case, value))
    assert not trains(at(case, value + step))
    if sure:
        assert fits(at(case, sure))
        assert sure <= value
    assert not fits(at(case, sure + step))


CLUSTERS = (1, 2, 8, 16, 64)


@cache
def on(gpus: int, gpu: str = "h100-sxm") -> tuple[Largest, ...]:
    return tuple(largest({"gpu": gpu, "gpus": gpus}))


def test_more_gpus_never_train_a_smaller_model() -> None:
    """From two on: sharding over one GPU has buffers and nothing to share. A shape's depth is whole layers."""
    assert list(regimes()) == [one.regime for one in on(8)]
    for few, many in pairwise(CLUSTERS[1:]):
        for one, two in zip(on(few), on(many), strict=True):
            assert one.params <= two.params, f"{one.regime.id}: {few} and {many} GPUs"
            assert one.comfortable <= two.comfortable, f"{one.regime.id}: {few} and {many} GPUs"


def test_a_larger_card_never_trains_a_smaller_model() -> None:
    for one, two in zip(on(8, "a100-sxm-40"), on(8, "a100-sxm-80"), strict=True):
        assert one.params <= two.params, one.regime.id


@pytest.mark.parametrize("gpus", [8, 64])
def test_the_largest_is_the_largest(gpus: int) -> None:
    """Its case trains, one more layer does not, and the comfortable one is no larger."""
    for one in on(gpus):
        assert one.case is not None
        assert one.estimate is not None
        assert one.params == float(value_of(evaluate(one.case).params))
        assert trains(one.case)
        groups = tuple(replace(g, count=g.count + 1) for g in one.case.model.groups)
        assert not trains(replace(one.case, model=replace(one.case.model, groups=groups)))
        assert one.comfortable <= one.params
        assert one.binding


def test_lighter_regimes_train_larger_models() -> None:
    by = {one.regime.id: one.params for one in on(8)}
    order = ["fsdp2-fp32", "fsdp2-16bit-moments", "fsdp2-pure", "fsdp2-8bit", "lora", "qlora"]
    assert [by[name] for name in order] == sorted(by[name] for name in order)


@given(legal_cases())
@some
def test_a_remedy_frees_memory_and_can_be_stated(case: Case) -> None:
    found = evaluate(case)
    assume(found.verdict != "fits")
    for remedy in remedies(found):
        better = ("oom", "edge", "fits").index
        assert remedy.saved > 0 or better(remedy.estimate.verdict) > better(found.verdict)  # a narrower band
        assert remedy.title
        again = evaluate(cases.changed(case, remedy.changes, case.model))
        assert float(value_of(again.memory.device)) == float(value_of(remedy.estimate.memory.device))


def test_a_path_ends_where_it_fits() -> None:
    case = cases.case({"cluster": {"gpu": "h100-sxm", "gpus": 8}, "model": "llama-3-8b", "plan": {"micro_batch": 8}})
    found = evaluate(case)
    assert found.verdict == "oom"
    steps = path(found)
    assert steps
    assert steps[-1].estimate.verdict == "fits"
    assert all(s.estimate.verdict != "fits" for s in steps[:-1])
