"""How far off an answer may be: which coefficients span its 90 % band, by the kind of run."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.calibration.coefficients import priors
from planner.formulas import overheads as O
from planner.quantity import Quantity
from planner.spec.case import Case
from planner.spec.fill import APPROXIMATE
from planner.spec.recipe import Recipe

DERIVED, TRACED, MIXTURE = "formula_error_derived", "formula_error_traced", "formula_error_mixture"


def _every_layer(recipe: Recipe) -> bool:
    """Each first layer checkpointed is full checkpointing by another name."""
    return recipe.checkpointing == "every-k" and bool(np.all(np.equal(recipe.checkpoint_every, 1)))


def derived(case: Case) -> Any:
    """1 where the formulas of this kind of run were derived from source code and not traced, else 0."""
    plan, recipe = case.plan, case.recipe
    by_kind = (
        plan.data_parallel == "zero"
        or plan.offload.params != "none"
        or plan.offload.optimizer != "none"
        or recipe.optimizer not in ("adamw", "adam", "sgd", "sgd-momentum")
        or recipe.loss != "full-logits"
        or not (recipe.checkpointing in ("none", "full") or _every_layer(recipe))
        or plan.offload.activations != "none"
        or (recipe.peft is not None and recipe.peft.base_dtype not in ("bf16", "fp16", "fp32"))
    )
    split = 1 if case.stack.tensor_parallel == "torch" else plan.tp
    return O.derived(by_kind=int(by_kind), tp=split, cp=plan.cp, pp=plan.pp, ep=plan.ep).value


def apart(case: Case) -> tuple[str, ...]:
    """Coefficients of what widens the band besides. A mixture that is only come near to has a spread of its own:
    how many tokens an expert gets is not known, and transient copies of the routed tokens decide its peak."""
    mixture = any(group.mlp.kind == "moe" for group in case.model.groups)
    return tuple(MIXTURE if mixture and name == APPROXIMATE else name for name in case.spreads)


def kind(case: Case) -> str:
    """The coefficient that sets the spread of a single case's formulas."""
    names = [DERIVED if np.any(derived(case)) else TRACED, *apart(case)]
    return max(names, key=lambda name: priors()[name].high)


def error(case: Case, end: str) -> Quantity:
    """How far the formulas themselves may be off for this kind of run, and for what they only come near to."""
    known = priors()
    found = O.formula_error(
        derived=derived(case), error_derived=known[DERIVED].at(end), error_traced=known[TRACED].at(end)
    )
    for name in apart(case):
        found = O.wider(called="formula_error", a=found, b=known[name].at(end))
    return found


def unseen(allocated: Quantity, cached: dict[str, Quantity]) -> dict[str, Quantity]:
    """Cached blocks and their ends, which what nobody states of the allocator's history spreads further."""
    beyond = priors()["cached_unseen"]
    ends = {
        end: O.cached_end(
            called="cached", cached=cached["value"], own_end=cached[end], allocated=allocated, unseen=beyond.at(end)
        )
        for end in ("low", "high")
    }
    return {"value": cached["value"], **ends}
