"""Runs traces in processes of their own: a trace registers torch operations for good."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, TypeVar

Given, Answer = TypeVar("Given"), TypeVar("Answer")
#: seconds that one may take; more is a hang
LONGEST = 300


def apart(work: Callable[[Given], Answer], given: Iterable[Given], workers: int = 2) -> Iterator[Answer]:
    """`work` of each, every one in a process that has the libraries loaded and has traced nothing.

    They are forked off a server without threads: a fork of this process, which has some, may wait for ever.
    Each starts by running this process's main module again, so that must not be the page of a Streamlit test
    (which leaves its own there): the start would fail, and the pool would try again for ever.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["peft", "transformers", "planner.trace.inside.step"])
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        with context.Pool(workers, quiet, maxtasksperchild=1) as pool:
            found = pool.imap(work, given, chunksize=1)
            with contextlib.suppress(StopIteration):
                while True:
                    yield found.next(LONGEST)
    finally:
        sys.modules["__main__"] = main


def quiet() -> None:
    """Warnings of the libraries are not ours to fail on; one that hangs says where."""
    warnings.simplefilter("ignore")
    faulthandler.dump_traceback_later(LONGEST - 10)


def trace(request: dict[str, Any]) -> dict[str, Any]:
    """The worker's trace of a request, in this very process."""
    import torch

    from planner.trace.inside.step import trace as traced

    torch.set_num_threads(1)
    return traced(request, lambda stage, share: None)
