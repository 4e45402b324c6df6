"""Warnings about the verdict itself: how near the card's end, what the answer rests on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.formulas import overheads as O
from planner.i18n import Phrase
from planner.quantity import value_of
from planner.spec.case import Case
from planner.spec.recipe import MODELS
from planner.spec.stack import Stack, stacks
from planner.step.memory import VERDICTS, memory
from planner.step.spread import derived
from planner.step.warn.facts import LOW_HEADROOM, Facts, above
from planner.step.warn.order import Warning, size, warning

#: share of the card by which torch's own figure may stay below what the card needs before it is worth saying
GAP = 0.1
#: share of the card left from which no release of a stack is known to make the difference
RELEASES = 0.25


def _band(facts: Facts) -> Iterator[Warning]:
    memory = facts.memory
    if memory.verdict == "edge" and not memory.unknown:  # its band has no end that could be told
        yield warning("edge", high=size(memory.high), usable=size(memory.usable))
    if memory.verdict != "oom" and facts.left < LOW_HEADROOM:
        yield warning("low_headroom", share=f"{max(facts.left, 0):.1%}")
    if memory.verdict != "oom" and above(memory.unbounded, memory.cached):
        yield warning("allocator_squeezed", wanted=size(memory.unbounded))


def _allocated(facts: Facts) -> Iterator[Warning]:
    """torch's figure says that it fits, the card says that it does not."""
    memory = facts.memory
    gap = O.apart(a=memory.device, b=memory.allocated)
    if not facts.fits and not above(memory.allocated, memory.usable) and facts.of_card(gap) > GAP:
        yield warning(
            "allocated_vs_device_used", allocated=size(memory.allocated), gap=size(gap), usable=size(memory.usable)
        )


def _known(facts: Facts) -> Iterator[Warning]:
    for part in facts.case.model.unknown:
        yield warning("unmodelled_layers", part=part, least=size(facts.memory.low))
    for part in _unvalidated(facts):
        yield warning("unvalidated_kind", part=part)
    if derived(facts.case):
        yield warning("not_traced")
    doubtful = [f for f in facts.case.cluster.accelerator.unconfirmed if f in ("all", "memory_nominal", "memory_torch")]
    if doubtful:
        yield warning("unconfirmed_hardware", fields=", ".join(doubtful))


def _unvalidated(facts: Facts) -> Iterator[Phrase]:
    """Kinds of runs that nothing measured stands behind: the text part of a larger model, reinforcement learning."""
    if any(isinstance(one, Phrase) and one.key == "model.text-part" for one in facts.case.model.remarks) or any(
        isinstance(one.why, Phrase) and one.why.key == "record.vlm" for one in facts.case.filled
    ):
        yield Phrase("kind.multimodal")
    if facts.stated_for("recipe.task") in MODELS:
        yield Phrase("kind.reinforcement")


def _version(facts: Facts) -> Iterator[Warning]:
    """An older release of the same stack would not fit; only where none is named and the card is not roomy."""
    case, found = facts.case, facts.memory
    named = "@" in str((case.stated.get("recipe") or {}).get("framework"))
    if named or found.verdict == "oom" or facts.left > RELEASES or stacks().get(case.stack.id) != case.stack:
        return
    others = [stack for stack in stacks().values() if stack.versions_of == case.stack.id]
    made = [(stack.id, memory(_at(case, stack), found.stage)) for stack in others]
    worse = [one for one in made if VERDICTS.index(one[1].verdict) < VERDICTS.index(found.verdict)]
    if worse:
        id, other = max(worse, key=lambda one: float(value_of(one[1].device)))
        yield warning(
            "version_dependent", release=id, device=size(other.device), ours=size(found.device),
            usable=size(found.usable),
        )  # fmt: skip


def _at(case: Case, stack: Stack) -> Case:
    """The case under another release of its stack, with that one's optimizer where none was stated."""
    open_ = any(one.field == "recipe.optimizer_impl" for one in case.filled)
    impl = stack.optimizer_impl if open_ else case.recipe.optimizer_impl
    return replace(case, stack=stack, recipe=replace(case.recipe, optimizer_impl=impl))


CHECKS = (_band, _allocated, _known, _version)
