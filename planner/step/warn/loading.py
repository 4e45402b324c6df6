"""Warnings about the host: offloaded state, pinned memory, and the weights while they are loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.calibration.coefficients import priors
from planner.formulas import overheads as O
from planner.formulas import states as S
from planner.layers.model import parameters
from planner.quantity import Quantity, given, total
from planner.spec.recipe import WIDTH
from planner.step import activations as act
from planner.step.setting import setting
from planner.step.warn.facts import FINE_TUNING, Facts, above, share
from planner.step.warn.order import Warning, size, warning

#: share of a node's memory from which pinned buffers are a budget of their own
PINNED = 0.5
#: share of a node's memory that one node may hold more than the others before it is worth saying
UNEVEN = 0.25
#: stacks that read a checkpoint into host memory whole
READ_WHOLE = ("hf-transformers", "pytorch", "deepspeed")


def _offload(facts: Facts) -> Iterator[Warning]:
    offload, host = facts.case.plan.offload, facts.host
    if host.capacity is None:
        if offload.params != "none" or offload.optimizer != "none":
            yield warning("host_memory_unknown")
    elif host.verdict != "fits":
        yield warning("host_memory", needed=size(host.needed), capacity=size(host.capacity))


def _pinned(facts: Facts) -> Iterator[Warning]:
    offload, capacity = facts.case.plan.offload, facts.host.capacity
    if "cpu" not in (offload.params, offload.optimizer, offload.activations):
        return
    pinned = O.host_memory(
        called="pinned", state=total("state", [*facts.memory.states.host, *_activations(facts)]),
        pinned=priors()["host_pinned"].at("high"), process=given(0.0, "B", "process"),
        ranks=facts.case.cluster.gpus_per_node,
    )  # fmt: skip
    if capacity is None or share(pinned, capacity) > PINNED:
        yield warning("pinned_memory", pinned=size(pinned), ranks=facts.case.cluster.gpus_per_node)


def _activations(facts: Facts) -> list[Quantity]:
    """What layers keep, where it leaves the GPU."""
    plan = facts.case.plan
    if plan.offload.activations != "cpu":
        return []
    here = setting(
        replace(facts.case, plan=replace(plan, offload=replace(plan.offload, activations="none"))), facts.memory.stage
    )
    return [act.kept_by_layers(here, group, act.tensors(here, group)) for group in here.groups]


def _reads_whole(facts: Facts) -> bool:
    """Whether ranks read published weights into host memory; ZeRO-3 and split models read their part."""
    case, plan = facts.case, facts.case.plan
    partly = plan.tp > 1 or plan.pp > 1 or (plan.data_parallel == "zero" and plan.zero == 3)
    return case.recipe.task in FINE_TUNING and facts.runs(*READ_WHOLE) and not partly


def _weights(facts: Facts) -> Iterator[Warning]:
    """One whole copy, one a rank, or one on the node of the rank that reads for the others."""
    case, capacity = facts.case, facts.host.capacity
    if capacity is None or not _reads_whole(facts):
        return
    params = case.recipe.precision.params
    width = WIDTH[params] if WIDTH[params] >= WIDTH["bf16"] else WIDTH["bf16"]
    copy = S.state_bytes(called="checkpoint", params=parameters(case.model), param_width=width, ways=1)
    every = O.host_memory(
        called="loading", state=copy, pinned=1, process=priors()["host_process"].at(), ranks=case.cluster.gpus_per_node
    )
    said = {"copy": size(copy), "capacity": size(capacity), "ranks": case.cluster.gpus_per_node}
    if not above(capacity, copy):
        yield warning("host_ram_too_small_for_loading", **said)
        return
    if above(every, capacity):
        yield warning("per_rank_model_copy", every=size(every), **said)
    if case.plan.fully_sharded and facts.ways > case.cluster.gpus_per_node and share(copy, capacity) > UNEVEN:
        yield warning("worst_node_not_mean", **said)


CHECKS = (_offload, _pinned, _weights)
