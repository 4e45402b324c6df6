"""The largest micro-batch and the longest sequence of a case, at the card's end and with certainty."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.formulas import overheads as L
from planner.i18n import Phrase, phrase
from planner.quantity import value_of
from planner.search.solve import largest_true
from planner.spec.case import Case
from planner.step.evaluate import Estimate, evaluate

MOST_SEQUENCE = 10**8
MOST_DIVISORS = 10**6
STEP = 128


@dataclass(frozen=True, slots=True)
class Limit:
    """The answer to an inverse question.

    value        the most the expected memory allows: within the card, perhaps on the edge
    comfortable  the most whose verdict is `fits`: the whole 90 % band is within the card
    estimate     at `value`; at 1 where nothing fits
    limit        what sets the limit: the phase and the largest part at its peak, or host memory
    """

    value: int
    comfortable: int
    estimate: Estimate
    limit: Phrase

    @property
    def binding(self) -> str:
        """What sets the limit, in words."""
        return str(self.limit)


def trains(case: Case) -> bool:
    """Whether the expected memory is within the card, and offloaded states within the host."""
    found = evaluate(case)
    return float(value_of(found.memory.headroom)) >= 0 and host_holds(found)


def host_holds(found: Estimate) -> bool:
    """Whether the node holds what is expected of its memory; yes where the node is not known."""
    room = found.host.capacity
    return room is None or float(value_of(found.host.needed)) <= float(value_of(room))


def fits(case: Case) -> bool:
    """Whether the verdict is `fits` on the GPU and not `oom` on the host."""
    return evaluate(case).overall == "fits"


def binding_of(found: Estimate) -> Phrase:
    """What limits an estimate."""
    if not host_holds(found):
        return Phrase("binding.host")
    parts = found.breakdown()
    biggest = max(parts, key=lambda k: float(value_of(parts[k])))
    return phrase("binding.part", phase=Phrase(f"phase.{found.memory.peak_phase}"), part=Phrase(f"part.{biggest}"))


def micro_batch(case: Case) -> Limit:
    """The largest micro-batch, in sequences per GPU and pass, everything else as it is.

    With a stated global batch it is one of the batch's divisors, and accumulation follows.
    """
    batch = case.recipe.global_batch
    if batch is None:
        return _limit(case, lambda n: replace(case, plan=replace(case.plan, micro_batch=n)), 1, 10**7)
    plan = case.plan
    each = value_of(L.per_replica(step_sequences=batch, dp_replicate=plan.dp_replicate, dp_shard=plan.dp_shard))
    sizes = [n for n in range(1, min(int(each), MOST_DIVISORS) + 1) if each % n == 0]

    def at(place: int) -> Case:
        n = sizes[min(place, len(sizes)) - 1]
        return replace(case, plan=replace(case.plan, micro_batch=n, accumulation=int(each) // n))

    found = _limit(case, at, 1, len(sizes))
    return replace(found, value=sizes[found.value - 1] if found.value else 0,
                   comfortable=sizes[found.comfortable - 1] if found.comfortable else 0)  # fmt: skip


def sequence(case: Case) -> Limit:
    """The longest sequence, in tokens, a multiple of 128 (or of tp with sequence parallelism)."""
    longest = MOST_SEQUENCE if case.model.position != "learned" else case.model.max_positions
    step = math.lcm(STEP, int(case.plan.tp)) if case.plan.sequence_parallel else STEP
    step = min(step, longest)
    found = _limit(case, lambda n: replace(case, recipe=replace(case.recipe, seq_len=n * step)), step, longest // step)
    table = case.model.position == "learned" and found.value // step >= longest // step
    return replace(found, limit=Phrase("binding.positions")) if table else found


def _limit(case: Case, at: Callable[[int], Case], step: int, most: int) -> Limit:
    """`at` makes the case with a count; `step` is what one count is worth."""
    value = largest_true(lambda n: trains(at(n)), 8, most)
    sure = largest_true(lambda n: fits(at(n)), 8, max(value, 1))
    found = evaluate(at(max(value, 1)))
    beyond = evaluate(at(value + 1))
    return Limit(value * step, sure * step, found, binding_of(beyond))
