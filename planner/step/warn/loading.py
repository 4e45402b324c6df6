"""Warnings about the host: offloaded state, pinned memory, and the weights while they are loaded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.calibration.coefficients import priors
from planner.formulas import overheads as O
from planner.quantity import Quantity, given, total
from planner.spec.case import Case
from planner.step.hosting import checkpoint, offloaded_activations, reads_part, reads_whole
from planner.step.warn.facts import Facts, above, share
from planner.step.warn.order import Warning, size, warning

#: share of a node's memory from which pinned buffers are a budget of their own
PINNED = 0.5
#: share of a node's memory that one node may hold more than the others before it is worth saying
UNEVEN = 0.25


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
    kept = offloaded_activations(facts.case, facts.memory)
    pinned = O.host_memory(
        called="pinned", state=total("state", [*facts.memory.states.host, *kept]),
        pinned=priors()["host_pinned"].at("high"), process=given(0.0, "B", "process"),
        ranks=facts.case.cluster.gpus_per_node,
    )  # fmt: skip
    if capacity is None or share(pinned, capacity) > PINNED:
        yield warning("pinned_memory", pinned=size(pinned), ranks=facts.case.cluster.gpus_per_node)


def _prepared(case: Case, copy: Quantity) -> Quantity:
    """What one rank holds at the peak of its preparation: FSDP2 keeps a state dict beside the model."""
    copies = 2 if case.plan.data_parallel == "fsdp2" else 1
    return O.copies_on_host(called="prepared", size=copy, copies=copies, models=1)


def _weights(facts: Facts) -> Iterator[Warning]:
    """One whole copy, one a rank, or one on the node of the rank that reads for the others."""
    case, capacity = facts.case, facts.host.capacity
    if capacity is None or not reads_whole(case) or np.any(reads_part(case)):
        return
    copy = checkpoint(case)
    every = O.host_memory(
        called="loading", state=_prepared(case, copy), pinned=1, process=priors()["host_process"].at(),
        ranks=case.cluster.gpus_per_node,
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
