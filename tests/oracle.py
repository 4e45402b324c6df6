"""`make oracle`: closed form against trace over many random configurations. By hand, for it takes a while.

python -m tests.oracle --count 500 [--seed N] [--out FILE.md]
The seed is drawn at run time unless given, and printed. Exits 1 when the figures promised in docs are missed.
"""

from __future__ import annotations

import argparse
import datetime
import secrets
import sys
import time
from pathlib import Path
from statistics import median

from tests.oracles.drawn import Compared, compared, drawn, words

MEDIAN, MOST, SHARE = 0.001, 0.01, 0.99


def main() -> None:
    """Draw, trace, compare, and print a report in markdown."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=100)
    options.add_argument("--seed", type=int, default=None)
    options.add_argument("--out", type=Path, default=None)
    stated = options.parse_args()
    seed = secrets.randbelow(10**9) if stated.seed is None else stated.seed
    print(f"seed {seed}, {stated.count} configurations", flush=True)
    started, found = time.monotonic(), []
    for number, one in enumerate(compared(drawn(stated.count, seed)), 1):
        found.append(one)
        if one.difference is None or abs(one.difference) > 0.001:
            print(f"{number}: {_line(one)}", flush=True)
    report, good = _report(found, seed, time.monotonic() - started)
    print(report)
    if stated.out is not None:
        stated.out.write_text(report, encoding="utf-8")
    sys.exit(0 if good else 1)


def _line(one: Compared) -> str:
    off = "not traced" if one.difference is None else f"{one.difference:+.3%}"
    return f"{off} {words(one.case)} ({one.said})"


def _report(found: list[Compared], seed: int, seconds: float) -> tuple[str, bool]:
    from planner.trace.worker import versions

    off = sorted(abs(one.difference) for one in found if one.difference is not None)
    within = sum(size <= MOST for size in off) / len(off)
    middle = median(off)
    used = ", ".join(f"{name} {number}" for name, number in versions().items())
    lines = [
        f"Seed {seed}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {used}.",
        f"{len(found)} configurations in {seconds:.0f} s.",
        "",
        "| figure | value |",
        "|---|---|",
        f"| traced | {len(off)} of {len(found)} |",
        f"| median difference | {middle:.4%} |",
        f"| within 0.1 % | {sum(size <= 0.001 for size in off) / len(off):.1%} |",
        f"| within 1 % | {within:.1%} |",
        f"| largest | {off[-1]:.2%} |",
        "",
        "Above 1 %, or not traced:",
        "",
        *(f"- {_line(one)}" for one in found if one.difference is None or abs(one.difference) > MOST),
    ]
    return "\n".join(lines) + "\n", middle < MEDIAN and within >= SHARE and len(off) == len(found)


if __name__ == "__main__":
    main()
