"""Runs traces in processes of their own: a trace registers torch operations for good."""

from __future__ import annotations

import functools
import multiprocessing
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any, TypeVar

Given, Answer = TypeVar("Given"), TypeVar("Answer")
#: seconds that one may take; more is a hang
LONGEST = 300


def apart(work: Callable[[Given], Answer], given: Iterable[Given], workers: int = 2) -> Iterator[Answer]:
    """`work` of each, in order, every one in a process that has the libraries loaded and has traced nothing.

    They are forked off a server without threads: a fork of this process, which has some, may wait for ever.
    Each starts by running this process's main module again, so that must not be the page of a Streamlit test,
    which leaves its own there. (multiprocessing's Pool loses the task of a process that dies, and waits.)
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["peft", "transformers", "planner.trace.inside.step"]
    )
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        with ThreadPoolExecutor(workers) as threads:
            yield from threads.map(functools.partial(_in_a_process, work), given)
    finally:
        sys.modules["__main__"] = main


def _in_a_process(work: Callable[[Given], Answer], one: Given) -> Answer:
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_tell, args=(work, one, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(LONGEST):
            raise TimeoutError(f"no answer in {LONGEST} s: {one}")
        return ours.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"the process ended with {process.exitcode}: {one}") from None
    finally:
        process.kill()
        process.join()


def _tell(work: Callable[[Any], Any], one: Any, to: Connection) -> None:
    warnings.simplefilter("ignore")  # those of the libraries are not ours to fail on
    to.send(work(one))


def trace(request: dict[str, Any]) -> dict[str, Any]:
    """The worker's trace of a request, in this very process."""
    import torch

    from planner.trace.inside.step import trace as traced

    torch.set_num_threads(1)
    return traced(request, lambda stage, share: None)
