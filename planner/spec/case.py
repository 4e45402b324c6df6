"""A case: everything the planner needs to answer, frozen, with what was assumed on the user's behalf."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from planner.i18n import Said, t
from planner.spec.hardware import Cluster
from planner.spec.model import Model
from planner.spec.plan import Plan
from planner.spec.recipe import Recipe
from planner.spec.stack import Stack


@dataclass(frozen=True, slots=True)
class Assumed:
    """One thing that was left open, or stands for something not modelled: the field, its value, and why.

    `spread` names the coefficient that then widens the band; empty where the value is as good as a stated one.
    """

    field: str
    value: Any
    why: Said | None = None
    spread: str = ""

    @property
    def filled(self) -> str:
        """The value and the reason, in the language in use."""
        return str(self.value) if self.why is None else t("assumed.filled", value=self.value, why=self.why)

    def __str__(self) -> str:
        return f"{self.field}: {self.filled}"


@dataclass(frozen=True, slots=True)
class Case:
    """One question in full.

    filled    what was open and how it was filled
    stated    the fields as the user gave them, which is what a case file keeps
    """

    cluster: Cluster
    model: Model
    recipe: Recipe
    plan: Plan
    stack: Stack
    name: str = ""
    filled: tuple[Assumed, ...] = ()
    stated: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def spreads(self) -> tuple[str, ...]:
        """Coefficients that widen the band, for what the formulas only come near to; each once."""
        return tuple(dict.fromkeys(one.spread for one in self.filled if one.spread))

    @property
    def assumed(self) -> tuple[str, ...]:
        """What was filled in, in words."""
        return tuple(str(one) for one in self.filled)
