"""Figures of the accuracy table that may only get better: what the baseline keeps, and what is worse than it.

`python -m planner.evidence.ratchet FILE` writes the figures of the shipped evidence, if none of them got worse. With
`--accept` it writes them all the same: for a change that is right and uncovers an error which another one had hidden.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from planner.evidence.accuracy import Accuracy, accuracy
from planner.evidence.rows import rows, shipped

#: how much a figure may move before it counts: rounding of another machine
SLACK = 0.0005
NOMINAL = 0.9  # of a 90 % band


def figures(found: Accuracy) -> dict[str, float]:
    """Every figure that the baseline keeps; smaller is better."""
    kept = {"uncovered": 1 - found.coverage}
    if found.errors is not None:
        kept |= {
            "mape": found.errors.mape, "mape_by_repository": found.errors.mape_by_repository,
            "bias": abs(found.errors.bias), "p90": found.errors.p90,
            "band_miss": abs(found.errors.band_coverage - NOMINAL),
        }  # fmt: skip
    kept |= {f"framework:{name}": one.mape for name, one in found.splits["framework"].items()}
    for name in ("fits", "oom"):
        kept[f"opposite_{name}"] = found.frontier[name].opposite
    return {name: round(value, 4) for name, value in kept.items()}


def worse(before: dict[str, float], now: dict[str, float]) -> list[str]:
    """The figures that got worse, or are gone."""
    gone = [f"{name}: gone" for name in before if name not in now]
    return gone + [
        f"{name}: {before[name]:.4f} -> {now[name]:.4f}"
        for name in before
        if name in now and now[name] > before[name] + SLACK
    ]


def main(arguments: list[str]) -> int:
    """Tighten the baseline in a file, or with --accept replace it; tells what got worse."""
    path, now = Path(arguments[0]), figures(accuracy(rows(shipped())))
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if told := worse(before, now):
        sys.stderr.write("\n".join(told) + "\n")
        if "--accept" not in arguments[1:]:
            return 1
    path.write_text(json.dumps(dict(sorted(now.items())), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
