"""`make bench`: what a user waits for before anything is shown, against its budget. Exits 1 when over.

The best of several tries is taken, since a shared machine only ever adds time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

IMPORT_BUDGET = 0.3  # s, in a fresh process
CASE_BUDGET = 0.002  # s, one case of memory
RECORD_BUDGET = 0.005  # s, the mean of all shipped run records, from the line to the answer
HEAVY = ("streamlit", "altair", "torch", "weasyprint", "pandas", "transformers")

CASE = {
    "cluster": {"gpu": "h100-sxm", "gpus": 64},
    "model": "llama-3.1-8b",
    "recipe": {"seq_len": 8192, "checkpointing": "full"},
    "plan": {"zero": 3, "micro_batch": 1},
}

_FRESH = f"""
import json, sys, time
start = time.perf_counter()
import planner
for name in planner.__all__:
    getattr(planner, name)
seconds = time.perf_counter() - start
print(json.dumps([seconds, len(sys.modules), [name for name in {HEAVY!r} if name in sys.modules]]))
"""


def import_time(tries: int = 7) -> tuple[float, int, list[str]]:
    """Seconds that `import planner` and the load of every public name take, modules loaded, heavy ones among them."""
    # As a user has it: from the second start on, Python finds our modules compiled.
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", _FRESH]
    runs = [subprocess.run(command, env=compiled, check=True, capture_output=True).stdout for _ in range(tries)]
    seconds, modules, heavy = min(json.loads(run) for run in runs)
    return seconds, modules, heavy


def case_time(tries: int = 200) -> float:
    """Seconds that one evaluation takes, its case made already."""
    import planner

    case = planner.load_case(CASE)
    best = float("inf")
    for _ in range(tries):
        start = time.perf_counter()
        planner.evaluate(case)
        best = min(best, time.perf_counter() - start)
    return best


def record_time(tries: int = 2) -> float:
    """Seconds that one run record takes, from its line to its answer: the mean over all that are shipped."""
    from planner.evidence.predict import answer
    from planner.evidence.rows import shipped

    lines = list(shipped())
    best = float("inf")
    for _ in range(tries):
        start = time.perf_counter()
        for line in lines:
            answer(line)
        best = min(best, (time.perf_counter() - start) / len(lines))
    return best


def main() -> int:
    seconds, modules, heavy = import_time()
    one, record = case_time(), record_time()
    rows = [
        (
            "import planner, all of it", f"{seconds * 1e3:.0f} ms", f"{IMPORT_BUDGET * 1e3:.0f} ms",
            seconds <= IMPORT_BUDGET,
        ),
        ("heavy modules loaded by it", ", ".join(heavy) or "none", "none", not heavy),
        ("one case", f"{one * 1e3:.2f} ms", f"{CASE_BUDGET * 1e3:.0f} ms", one <= CASE_BUDGET),
        (
            "one run record", f"{record * 1e3:.2f} ms", f"{RECORD_BUDGET * 1e3:.0f} ms", record <= RECORD_BUDGET,
        ),
    ]  # fmt: skip
    for what, found, budget, good in rows:
        print(f"{'ok  ' if good else 'OVER'}  {what}: {found} (budget {budget})")
    print(f"      modules loaded: {modules}")
    return 0 if all(good for *_, good in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
