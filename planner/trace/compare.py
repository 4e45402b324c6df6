"""The closed form beside the trace, term by term, at the trace's peak; and what the allocator makes of the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.spec.case import Case
from planner.step import breakdown as B
from planner.step.memory import memory
from planner.step.setting import Stage

#: term -> (kinds of the closed form's breakdown, categories of the trace). What one names apart and the other does not
#: is one term: the tensors of a layer at work are saved ones to a trace, a gradient is one once it is accumulated.
TERMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "weights": (("weights",), ("weights",)),
    "optimizer_states": (("optimizer_states",), ("optimizer_states",)),
    "gradients": (("gradients",), ("gradients",)),
    "gathered_weights": (("gathered_weights", "buffers"), ("gathered_weights", "buffers")),
    "weight_copies": (("weight_copies",), ("weight_copies",)),
    "activations": (
        ("activations", "layer_at_work", "temporaries"),
        ("activations", "layer_at_work", "temporaries", "inputs", "buffers_of_model", "inside_kernels", "given"),
    ),
    "logits_and_loss": (("logits_and_loss",), ("logits_and_loss",)),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Term:
    """One term at the traced peak: bytes of the trace and of the closed form, either None where unknown."""

    name: str
    traced: float
    closed: float | None

    @property
    def difference(self) -> float | None:
        """Closed form less trace, in bytes."""
        return None if self.closed is None else self.closed - self.traced


@dataclass(frozen=True, slots=True)
class Comparison:
    """The peak of the trace and of the closed form in bytes, the moments that set them, and the terms.

    `terms` are of the moment that the trace peaks in, so that they compare like with like; they add up to `traced` and
    to the closed form's own figure of that moment, `closed_then`.
    """

    traced: float
    closed: float | None
    moment: str
    closed_moment: str | None
    closed_then: float | None
    terms: tuple[Term, ...]

    @property
    def difference(self) -> float | None:
        """How far the closed form's peak is from the trace's, as a share of the trace's."""
        return None if self.closed is None else self.closed / self.traced - 1


def compare(case: Case, found: Mapping[str, Any], known: bool = True) -> Comparison:
    """A trace's answer beside the closed form of its case; `known` is False for a model the formulas do not know."""
    peak = found["peak"]
    seen = {name: sum(peak["by_category"].get(c, 0) for c in theirs) for name, (_, theirs) in TERMS.items()}
    if not known:
        terms = tuple(Term(n, v, None) for n, v in seen.items() if v)
        return Comparison(found["peak_bytes"], None, peak["moment"], None, None, terms)
    ours = memory(case, Stage())
    then = ours.moments[peak["moment"]]
    parts = {kind: float(q.value) for kind, q in B.breakdown(then).items()}
    sums = {name: sum(parts.get(k, 0.0) for k in kinds) for name, (kinds, _) in TERMS.items()}
    terms = tuple(Term(n, seen[n], sums[n]) for n in TERMS if seen[n] or sums[n])
    return Comparison(
        traced=found["peak_bytes"], closed=float(ours.allocated.value), moment=peak["moment"],
        closed_moment=ours.peak_phase, closed_then=float(then.value), terms=terms,
    )  # fmt: skip
