"""The largest whole number for which a question's answer is still yes, by doubling and halving."""

from __future__ import annotations

from collections.abc import Callable


def largest_true(holds: Callable[[int], bool], start: int = 1, most: int = 2**40) -> int:
    """The largest n from 1 to `most` with holds(n); 0 where even 1 does not. `holds` must be true, then false.

    Memory grows with batch, length and depth, so it is; a test of the planner holds it to that.
    """
    if most < 1 or not holds(1):
        return 0
    low, high = 1, max(2, min(start, most))
    while high <= most and holds(high):
        low, high = high, min(high * 2, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
