"""Headroom: what a set of GPUs can train, whether a run fits, and why. The public surface of the planner.

Names are loaded when they are first used, so that `import planner` costs nothing before a question is asked.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.cases import case as load_case
    from planner.cases import changed, read, read_file, stated
    from planner.errors import BadInput, PlannerError, Problem
    from planner.search.largest import largest as largest_model
    from planner.search.limits import micro_batch as largest_micro_batch
    from planner.search.limits import sequence as longest_sequence
    from planner.search.remedies import remedies
    from planner.spec.case import Case
    from planner.step.evaluate import Estimate, evaluate

__version__ = "0.1.0"

__all__ = [
    "BadInput",
    "Case",
    "Estimate",
    "PlannerError",
    "Problem",
    "changed",
    "evaluate",
    "largest_micro_batch",
    "largest_model",
    "load_case",
    "longest_sequence",
    "read",
    "read_file",
    "remedies",
    "stated",
]

#: public name -> (module, name there)
_HOME = {
    "BadInput": ("errors", "BadInput"),
    "Case": ("spec.case", "Case"),
    "Estimate": ("step.evaluate", "Estimate"),
    "PlannerError": ("errors", "PlannerError"),
    "Problem": ("errors", "Problem"),
    "changed": ("cases", "changed"),
    "evaluate": ("step.evaluate", "evaluate"),
    "largest_micro_batch": ("search.limits", "micro_batch"),
    "largest_model": ("search.largest", "largest"),
    "load_case": ("cases", "case"),
    "longest_sequence": ("search.limits", "sequence"),
    "read": ("cases", "read"),
    "read_file": ("cases", "read_file"),
    "remedies": ("search.remedies", "remedies"),
    "stated": ("cases", "stated"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'planner' has no attribute {name!r}")
    module, there = _HOME[name]
    return getattr(importlib.import_module(f"planner.{module}"), there)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
