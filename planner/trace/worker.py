"""The worker process: a request as a line of JSON on standard input, progress and result as lines on standard output.

It ends when its input closes, with all that it started, so that they do not outlive who asked.
Whatever the model code prints goes to standard
error. `python -m planner.trace.worker` is not for people; `planner trace` is.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import threading
import traceback
from pathlib import Path
from typing import Any, TextIO

#: what a trace is made with
LIBRARIES = ("torch", "transformers", "peft")
#: the most memory of its own that a worker may take, in bytes; a trace of a 405B model needs about 1 GB
MOST_MEMORY = 8 * 2**30


def main() -> None:
    """Trace one request and end."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    asked = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # model code that reads its input finds none, and does not wait for it
    line = asked.readline()
    threading.Thread(target=_end_with_input, args=(asked,), daemon=True).start()

    def say(message: dict[str, Any]) -> None:
        out.write(json.dumps(message, allow_nan=False) + "\n")
        out.flush()

    try:
        say({"result": _trace(json.loads(line), lambda stage, share: say({"stage": stage, "share": share}))})
    except BaseException as error:  # noqa: BLE001 - whatever it is, who asked must hear of it
        traceback.print_exc()
        say({"error": _reason(error)})
    out.close()
    os._exit(0)  # torch may abort while it ends after fake tensors


def _trace(request: dict[str, Any], tell: Any) -> dict[str, Any]:
    _limit_memory()
    _quiet()
    tell("import", 0.0)
    import torch

    from planner.trace.inside.step import trace

    torch.set_num_threads(1)
    found = trace(request, tell)
    found["versions"] = versions()
    return found


@functools.cache
def versions() -> dict[str, str]:
    """What the trace was made with."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _limit_memory() -> None:
    """A runaway trace fails by itself before it takes the machine down. Where the system has no such limit, none."""
    try:
        import resource
    except ImportError:
        return
    for kind in (resource.RLIMIT_DATA,):
        soft, hard = resource.getrlimit(kind)
        most = MOST_MEMORY if hard == resource.RLIM_INFINITY else min(MOST_MEMORY, hard)
        if soft == resource.RLIM_INFINITY or soft > most:
            resource.setrlimit(kind, (most, hard))


def _quiet() -> None:
    import logging
    import warnings

    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error",
                   "TOKENIZERS_PARALLELISM": "false"}  # fmt: skip
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)


def _end_with_input(asked: TextIO) -> None:
    """Wait until nobody can ask anything any more."""
    while asked.readline():
        pass
    if os.getpgrp() == os.getpid():  # a group of its own: what the model code started ends too
        os.killpg(0, signal.SIGKILL)
    os._exit(3)


#: errors of torch's fake tensors that mean: the code looks at values, which a fake tensor does not have
VALUES = ("DataDependentOutputException", "DynamicOutputShapeException", "GuardOnDataDependentSymNode")


def _reason(error: BaseException) -> dict[str, Any]:
    """Kind, place and one sentence."""
    name = type(error).__name__
    if name == "CannotTrace":
        return {"kind": "cannot", "what": error.field, "key": error.key, "values": error.values}  # type: ignore[attr-defined]
    if name in VALUES or "data is not allocated yet" in str(error):
        return {"kind": "values", "what": _place(error), "because": str(error).splitlines()[0][:200]}
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return {"kind": "memory", "what": _place(error), "because": (str(error) or name).splitlines()[0][:200]}
    if isinstance(error, ModuleNotFoundError):
        return {"kind": "missing", "what": error.name or "", "because": str(error)}
    said = next((part.strip() for part in str(error).splitlines() if part.strip()), name)
    return {"kind": "failed", "what": _place(error), "because": f"{name}: {said[:300]}"}


def _place(error: BaseException) -> str:
    """The deepest place that is neither torch's nor ours: file name and line, without its folder."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if "/torch/" not in f.filename and "/planner/trace/" not in f.filename]
    last = (theirs or frames or [None])[-1]  # type: ignore[list-item]
    return f"{Path(last.filename).name}:{last.lineno} ({last.name})" if last else ""


if __name__ == "__main__":
    main()
