"""Runs traces in processes of their own: a trace registers torch operations for good."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterable
from multiprocessing.pool import Pool
from typing import Any, TypeVar

Given, Answer = TypeVar("Given"), TypeVar("Answer")


def apart(work: Callable[[Given], Answer], given: Iterable[Given], workers: int = 2) -> list[Answer]:
    """`work` of each, every one in a process of its own."""
    with fresh(workers) as pool:
        return list(pool.imap(work, given, chunksize=1))


def fresh(workers: int = 2) -> Pool:
    """A pool whose every task gets a process that has the libraries loaded and has traced nothing.

    They are forked off a server without threads: a fork of this process, which has some, may wait for ever.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["peft", "transformers", "planner.trace.inside.step"])
    return context.Pool(workers, quiet, maxtasksperchild=1)


def quiet() -> None:
    """Warnings of the libraries are not ours to fail on."""
    warnings.simplefilter("ignore")


def trace(request: dict[str, Any]) -> dict[str, Any]:
    """The worker's trace of a request, in this very process."""
    import torch

    from planner.trace.inside.step import trace as traced

    torch.set_num_threads(1)
    return traced(request, lambda stage, share: None)
