"""Warnings that stand beside an answer, in the codes of the cases' vocabulary where it has one.

`order` says which comes first; each other module holds the conditions of one subject. Meaning, reason and remedy of a
code are phrases (`warn.<code>`), and docs/reference/warnings.md shows them all.
"""

from __future__ import annotations

from planner.spec.case import Case
from planner.step.hosting import Host
from planner.step.memory import Memory
from planner.step.warn import copies, loading, peak, plan, verdict
from planner.step.warn.facts import Facts
from planner.step.warn.order import Warning as Warning
from planner.step.warn.order import order

CHECKS = (*verdict.CHECKS, *peak.CHECKS, *copies.CHECKS, *plan.CHECKS, *loading.CHECKS)


def warnings(case: Case, memory: Memory, host: Host) -> tuple[Warning, ...]:
    """Every warning of a single case, what threatens the run first."""
    facts = Facts(case, memory, host)
    found = [warning for check in CHECKS for warning in check(facts)]
    return tuple(sorted(found, key=lambda warning: order()[warning.code]))
