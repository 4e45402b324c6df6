"""What warnings ask of a case: each made once, and only when a warning asks for it."""

from __future__ import annotations

from functools import cached_property

from planner.formulas import overheads as O
from planner.i18n import Phrase
from planner.quantity import Like, Quantity, given, total, value_of
from planner.spec.case import Case
from planner.spec.recipe import WIDTH
from planner.spec.stack import lineage
from planner.step import breakdown as B
from planner.step.hosting import FINE_TUNING as FINE_TUNING
from planner.step.hosting import Host
from planner.step.memory import Memory
from planner.step.setting import Setting, setting

#: less of the card than this is too little to be left; a size above it is worth a word
LOW_HEADROOM = 0.05
#: with more of the card than this left, what makes the peak threatens nothing
ROOMY = 0.4
#: kinds of the breakdown that grow with the tokens of a micro-batch
TOKENS = ("activations", "layer_at_work", "logits_and_loss")


def share(part: Like, whole: Like) -> float:
    """A part of a whole, single values."""
    return float(value_of(O.share(part=part, whole=whole)))


def above(a: Like, b: Like) -> bool:
    """Whether one size is larger than another, single values."""
    return float(value_of(a)) > float(value_of(b))


class Facts:
    """A case with its memory (of the worst stage) and its host."""

    def __init__(self, case: Case, memory: Memory, host: Host):
        self.case, self.memory, self.host = case, memory, host

    @cached_property
    def work(self) -> Setting:
        """What one rank of the worst stage holds."""
        return setting(self.case, self.memory.stage)

    @cached_property
    def parts(self) -> dict[str, Quantity]:
        """What is allocated at the peak, by kind."""
        return B.breakdown(self.memory.allocated)

    @cached_property
    def most(self) -> str:
        """The kind that takes most of the peak."""
        return max(self.parts, key=lambda kind: float(self.parts[kind]))

    @cached_property
    def of_tokens(self) -> Quantity:
        """What of the peak grows with the tokens of a micro-batch."""
        none = given(0.0, "B", "none")
        return total("of_tokens", [none, *(part for kind, part in self.parts.items() if kind in TOKENS)])

    @cached_property
    def states(self) -> Quantity:
        """What stays on the card through the whole step: weights, master copy, optimizer states, buckets."""
        return total("states", self.memory.states.resident)

    @cached_property
    def left(self) -> float:
        """Headroom as a share of the card."""
        return share(self.memory.headroom, self.memory.usable)

    @property
    def fits(self) -> bool:
        """Whether the card holds the run for sure."""
        return self.memory.verdict == "fits"

    @property
    def tight(self) -> bool:
        """Whether the run does not fit for sure, or leaves next to nothing."""
        return not self.fits or self.left < LOW_HEADROOM

    @property
    def roomy(self) -> bool:
        """Whether so much is left that what makes the peak does not matter."""
        return self.fits and self.left > ROOMY

    def matters(self, part: Like) -> bool:
        """Whether a size that the answer does not count is worth a word: on this card, or in what is left of it."""
        return self.of_card(part) > LOW_HEADROOM or above(part, self.memory.headroom)

    @cached_property
    def free(self) -> Quantity:
        """What of the card is left beside all that stays on it through a step: weights, states, context."""
        memory = self.memory
        stays = total("stays", [self.states, memory.workspaces, memory.context, memory.nccl])
        return O.headroom(usable=memory.usable, device=stays)

    def of_peak(self, part: Like) -> float:
        """A size as a share of what is allocated at the peak."""
        return share(part, self.memory.allocated)

    def of_card(self, part: Like) -> float:
        """A size as a share of the card."""
        return share(part, self.memory.usable)

    @property
    def ways(self) -> int:
        """Ranks that share the weights."""
        return int(value_of(self.work.ways_weights))

    @property
    def packed(self) -> bool:
        """Whether a frozen base is stored in less than 16 bit."""
        peft = self.case.recipe.peft
        return peft is not None and WIDTH[peft.base_dtype] < WIDTH["bf16"]

    def runs(self, *ids: str) -> bool:
        """Whether the stack is one of these or builds upon one."""
        return not set(ids).isdisjoint(lineage(self.case.stack))

    @property
    def deepspeed(self) -> bool:
        """Whether DeepSpeed's engine runs the plan."""
        return self.case.plan.data_parallel == "zero" and bool(self.case.stack.bucket_elements)

    def stated_for(self, field: str) -> str | None:
        """What was stated where the formulas have only something near to it."""
        for one in self.case.filled:
            if one.field == field and one.spread and isinstance(one.why, Phrase):
                stated = dict(one.why.values).get("stated")
                return None if stated is None else str(stated)
        return None
