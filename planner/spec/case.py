"""A case: everything the planner needs to answer, frozen, with what was assumed on the user's behalf."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from planner.spec.hardware import Cluster
from planner.spec.model import Model
from planner.spec.plan import Plan
from planner.spec.recipe import Recipe
from planner.spec.stack import Stack


@dataclass(frozen=True, slots=True)
class Case:
    """One question in full.

    assumed   what was open and how it was filled, in words
    stated    the fields as the user gave them, which is what a case file keeps
    """

    cluster: Cluster
    model: Model
    recipe: Recipe
    plan: Plan
    stack: Stack
    name: str = ""
    assumed: tuple[str, ...] = ()
    stated: dict[str, Any] = field(default_factory=dict, hash=False)
