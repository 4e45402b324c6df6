"""Headroom: what a set of GPUs can train, whether a run fits, and why. The public surface of the planner."""

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
