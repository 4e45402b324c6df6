"""What must hold of every case: sums, bands, verdicts, shards that add up, and what more of something never does."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner import cases
from planner.formulas import parameters as P
from planner.layers import block
from planner.layers import model as M
from planner.quantity import Quantity, value_of
from planner.quantity import given as given_quantity
from planner.spec.case import Case
from planner.spec.recipe import WIDTH
from planner.step import states as S
from planner.step.breakdown import PARTS, breakdown
from planner.step.evaluate import evaluate
from planner.step.hosting import host
from planner.step.memory import VERDICTS, Memory, memory, stages
from planner.step.setting import attention_core, setting
from tests.strategies import DENSE_SMALL, legal_cases

many = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
some = settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])

ROUNDING = 1 + 1e-12


def bytes_(quantity: Any) -> float:
    return float(value_of(quantity))


def given_bytes(size: float) -> Quantity:
    return given_quantity(size, "B", "memory_usable")


def with_plan(case: Case, **changes: Any) -> Case:
    return replace(case, plan=replace(case.plan, **changes))


def with_recipe(case: Case, **changes: Any) -> Case:
    return replace(case, recipe=replace(case.recipe, **changes))


def with_layers(case: Case, factor: int) -> Case:
    groups = tuple(replace(g, count=g.count * factor) for g in case.model.groups)
    return replace(case, model=replace(case.model, groups=groups))


def sizes(found: Memory) -> dict[str, float]:
    """Every figure of a memory, and its moments."""
    names = ("allocated", "cached", "reserved", "device", "low", "high", "least", "usable", "headroom")
    return {**{n: bytes_(getattr(found, n)) for n in names}, **{n: bytes_(q) for n, q in found.moments.items()}}


# Sums.


@given(legal_cases())
@many
def test_the_parts_add_up_to_what_the_device_holds(case: Case) -> None:
    found = evaluate(case)
    for whole in (found.memory.device, found.memory.allocated, found.memory.reserved):
        parts = breakdown(whole)
        assert list(parts) == [k for k in PARTS if k in parts]
        assert all(bytes_(p) > 0 for p in parts.values())
        assert sum(map(bytes_, parts.values())) == pytest.approx(bytes_(whole), rel=1e-9)


@given(legal_cases())
@many
def test_every_figure_is_finite_and_nothing_is_negative(case: Case) -> None:
    found = evaluate(case)
    for name, size in sizes(found.memory).items():
        assert math.isfinite(size), name
        assert size >= 0 or name in ("headroom", "low"), name
    assert bytes_(found.host.needed) > 0
    assert bytes_(found.params) > 0


@given(legal_cases())
@many
def test_reserved_is_at_least_allocated_and_the_band_holds_the_device(case: Case) -> None:
    found = sizes(memory(case))
    assert found["reserved"] >= found["allocated"]
    assert found["device"] >= found["reserved"]
    assert found["low"] <= found["device"] * ROUNDING
    assert found["high"] * ROUNDING >= found["device"]
    assert found["headroom"] == pytest.approx(found["usable"] - found["device"])
    assert found["allocated"] == max(found[m] for m in ("forward", "loss", "backward", "root_reduce", "optimizer"))


@given(legal_cases())
@many
def test_the_verdict_is_what_it_says(case: Case) -> None:
    made = memory(case)
    found = sizes(made)
    expected = "fits" if found["high"] <= found["usable"] else "oom" if found["least"] > found["usable"] else "edge"
    assert made.verdict == expected
    assert VERDICTS.index(made.verdict) == int(bytes_(made.verdict_code))


@given(legal_cases())
@many
def test_the_allocator_gives_back_what_it_can_before_the_card_is_full(case: Case) -> None:
    """Above the card's end only what nothing can free: the peak itself, and no more cached blocks than at the least."""
    found = memory(case)
    roomy = replace(case.cluster.accelerator, memory_usable=given_bytes(1e15))
    free = memory(replace(case, cluster=replace(case.cluster, accelerator=roomy)), found.stage)
    full = replace(case.cluster.accelerator, memory_usable=given_bytes(1.0))
    tight = memory(replace(case, cluster=replace(case.cluster, accelerator=full)), found.stage)
    least, most = bytes_(tight.cached), bytes_(free.cached)
    outside = bytes_(found.device) - bytes_(found.cached)
    room = bytes_(found.usable) - outside
    assert 0 < least <= most
    assert bytes_(found.cached) == pytest.approx(min(most, max(room, least)), rel=1e-9)


@given(legal_cases())
@some
def test_the_worst_stage_is_the_worst(case: Case) -> None:
    worst = memory(case)
    every = [memory(case, stage) for stage in stages(case)]
    assert bytes_(worst.device) == max(bytes_(m.device) for m in every)
    assert len(every) == case.plan.pp


# Shards add up.


@given(legal_cases(adapters=False))
@many
def test_weights_over_all_ranks_are_the_model_and_what_is_replicated(case: Case) -> None:
    """Over tp x dp_shard x pp: each split weight once, what tensor parallelism cannot split tp times, a tied head that
    a pipeline copies, and the rows that pad the vocabulary."""
    plan, model = case.plan, case.model
    summed = 0.0
    for stage in stages(case):
        here = setting(case, stage)
        share = plan.dp_shard if plan.zero == 3 else 1
        summed += bytes_(S.states(here).weights) * plan.tp * share
    vocab = bytes_(P.padded_vocab(vocab=model.vocab, multiple=case.stack.vocab_multiple, tp=plan.tp))
    once = [*M.embedding(model, vocab), *M.head(model, vocab)]
    if model.tied and plan.pp > 1:
        once += M.embedding(model, vocab)
    whole = (*M.positions(model), *M.final_norm(model))
    params = sum(w.rows * w.cols for w in once) + sum(w.rows * w.cols for w in whole) * plan.tp
    for group in model.groups:
        for w in block.weights(group, model.hidden):
            params += value_of(w.rows) * value_of(w.cols) * w.copies * group.count * (1 if w.split else plan.tp)
    assert summed == pytest.approx(params * WIDTH[case.recipe.precision.params], rel=1e-12)


@given(legal_cases(adapters=False), st.sampled_from([2, 3, 16]))
@some
def test_a_state_over_its_sharding_group_is_the_whole_state(case: Case, more: int) -> None:
    """On twice the ranks half of what is sharded, on each; what the stage does not reach stays whole."""
    wider = with_plan(case, dp_shard=case.plan.dp_shard * more)
    here, wide = (S.states(setting(c, stages(c)[0])) for c in (case, wider))
    for name, stage in (("weights", 3), ("gradients", 2), ("master", 1), ("optimizer", 1)):
        factor = more if case.plan.zero >= stage else 1
        assert bytes_(getattr(here, name)) == pytest.approx(factor * bytes_(getattr(wide, name)), rel=1e-12)


@given(legal_cases(adapters=False))
@some
def test_embedding_and_head_are_on_one_stage_each(case: Case) -> None:
    assume(case.plan.pp > 1)
    held = [setting(case, stage) for stage in stages(case)]
    assert [bytes_(h.embedding) > 0 for h in held] == [True] + [False] * (case.plan.pp - 1)
    assert [bytes_(h.head) > 0 for h in held] == [False] * (case.plan.pp - 1) + [True]


@given(legal_cases())
@many
def test_what_leaves_the_gpu_is_on_the_host(case: Case) -> None:
    here = S.states(setting(case, stages(case)[0]))
    on_host = {q.name: bytes_(q) for q in here.host}
    on_gpu = {q.name: bytes_(q) for q in here.resident}
    for name, whole in (("weights", here.weights), ("master", here.master), ("optimizer_states", here.optimizer)):
        assert on_host[name] + on_gpu[name] == bytes_(whole)
        assert 0 in (on_host[name], on_gpu[name])


# More of something.


def never_less(small: Case, large: Case, names: tuple[str, ...] = ("allocated", "device", "high", "least")) -> None:
    """Stage by stage: `allocated` is told of the stage with the most on the device, and that may be another one."""
    for stage in stages(small):
        a, b = sizes(memory(small, stage)), sizes(memory(large, stage))
        for name in names:
            assert a[name] <= b[name] * ROUNDING, f"{name} of stage {stage.index}"


@given(legal_cases(), st.integers(1, 9))
@many
def test_more_micro_batch_never_needs_less(case: Case, more: int) -> None:
    never_less(case, with_plan(case, micro_batch=case.plan.micro_batch + more))


@given(legal_cases(), st.integers(1, 5))
@many
def test_a_longer_sequence_never_needs_less(case: Case, more: int) -> None:
    step = 64 * case.plan.tp
    never_less(case, with_recipe(case, seq_len=case.recipe.seq_len + more * step))


@given(legal_cases(), st.sampled_from([2, 3]))
@many
def test_more_layers_never_need_less(case: Case, factor: int) -> None:
    never_less(case, with_layers(case, factor))


@given(legal_cases(), st.integers(1, 8))
@many
def test_more_waiting_micro_batches_never_need_less(case: Case, more: int) -> None:
    assume(case.plan.offload.optimizer == "none")  # see below
    never_less(case, with_plan(case, accumulation=case.plan.accumulation + more), ("allocated",))


@given(legal_cases(), st.sampled_from([2, 4]))
@many
def test_more_shards_never_need_more(case: Case, factor: int) -> None:
    """From two on: the first split also brings the buffers that gather and reduce."""
    assume(case.plan.dp_shard > 1)
    never_less(with_plan(case, dp_shard=case.plan.dp_shard * factor), case)


@given(legal_cases())
@many
def test_recomputing_every_layer_never_keeps_more(case: Case) -> None:
    """A layer's input is one of its saved tensors or smaller than them, and one layer is at work either way."""
    masked = attention_core(case) == "eager" or case.model.groups[0].attention.window is not None
    assume(not masked)  # a mask is one more input of a recomputed layer
    full = with_recipe(case, checkpointing="full", checkpoint_every=1)
    never_less(full, with_recipe(case, checkpointing="none", checkpoint_every=1), ("allocated",))


@given(legal_cases())
@some
def test_regions_of_one_layer_are_full_checkpointing(case: Case) -> None:
    one = with_recipe(case, checkpointing="every-k", checkpoint_every=1)
    assert sizes(memory(one)) == sizes(memory(with_recipe(case, checkpointing="full", checkpoint_every=1)))


@given(legal_cases())
@some
def test_a_higher_zero_stage_never_keeps_more_states(case: Case) -> None:
    assume(case.plan.data_parallel == "zero")
    held = []
    for zero in (0, 1, 2, 3):
        found = S.states(setting(with_plan(case, zero=zero), stages(case)[0]))
        held.append(sum(bytes_(q) for q in (found.weights, found.gradients, found.master, found.optimizer)))
    assert held == sorted(held, reverse=True)


@given(legal_cases(), st.sampled_from([2, 3]))
@many
def test_host_memory_grows_with_the_model_and_its_band_holds_it(case: Case, factor: int) -> None:
    small, large = (host(c, memory(c)) for c in (case, with_layers(case, factor)))
    assert bytes_(small.needed) <= bytes_(large.needed) * ROUNDING
    for one in (small, large):
        assert bytes_(one.low) <= bytes_(one.needed) <= bytes_(one.high)


@given(legal_cases(models=DENSE_SMALL, adapters=False))
@some
def test_replicas_change_nothing_but_how_ranks_talk(case: Case) -> None:
    """Data-parallel copies of a group hold what one holds; DDP's second copy of the gradients and NCCL apart."""
    assume(case.plan.dp_replicate > 1 and case.plan.data_parallel != "ddp")
    alone, copied = memory(with_plan(case, dp_replicate=1)), memory(case)
    assert bytes_(alone.allocated) == bytes_(copied.allocated)
    assert bytes_(alone.nccl) <= bytes_(copied.nccl)


def test_accumulation_over_offloaded_gradients_never_needs_less() -> None:
    case = cases.case(
        {
            "cluster": {"gpu": "h100-sxm", "gpus": 1}, "model": "llama-3-8b",
            "recipe": {"framework": "pytorch", "seq_len": 64, "precision": "fp32", "global_batch": 1},
            "plan": {"data_parallel": "zero", "zero": 0, "offload": {"optimizer": "cpu"}},
        }
    )  # fmt: skip
    never_less(case, with_plan(case, accumulation=2), ("allocated",))
