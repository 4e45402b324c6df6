"""Runs a trace in a worker process: start, progress, cancel, result; answers from the cache what was traced before."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gzip
import hashlib
import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from planner import paths
from planner.errors import MissingDependency, PlannerError, Problem
from planner.i18n import Phrase, phrase
from planner.trace.worker import LIBRARIES, versions

NEEDED = ("torch", "transformers")
#: traces kept on disk; the oldest go first. One is 0.1 to 1 MB
MOST_KEPT = 200
#: what every answer of the worker holds
WHOLE = {"peak_bytes", "peak", "phases", "params", "trainable", "layers", "flops", "operations", "timeline", "log",
         "versions", "seconds"}  # fmt: skip
_WORKER = "planner.trace.worker"
_ROOT = Path(__file__).resolve().parents[2]


class TraceFailed(PlannerError):
    """The worker could not trace: its reason, in a sentence."""


class Cancelled(PlannerError):
    """Somebody ended the trace."""


Progress = Callable[[str, float], None]


def missing() -> list[str]:
    """Libraries that a trace needs and this machine lacks."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def trace(request: dict[str, Any], progress: Progress | None = None, fresh: bool = False) -> dict[str, Any]:
    """The worker's answer to a request, from the cache if it is there. Raises TraceFailed or MissingDependency."""
    if not fresh and (kept := recall(request)) is not None:
        return kept
    with Running(request) as running:
        for stage, share in running.progress():
            if progress is not None:
                progress(stage, share)
        return running.result()


class Running:
    """A trace under way: `poll` says how far it is, `result` waits, `cancel` or leaving the context ends it."""

    def __init__(self, request: dict[str, Any]):
        if lacking := missing():
            said = phrase("trace.missing", names=", ".join(lacking))
            raise MissingDependency(Problem("trace", said, install(LIBRARIES)))
        self.request = request
        self.started = time.monotonic()
        self.stage, self.share = "import", 0.0
        self._answer: dict[str, Any] | None = None
        self._failure: dict[str, Any] | None = None
        self._cancelled = False
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - cancel closes it
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", _WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            text=True, encoding="utf-8", env=_environment(), start_new_session=True,
        )  # fmt: skip
        self._reaping = threading.Lock()
        _running.add(self)
        for task in (self._listen, self._reap):
            threading.Thread(target=task, daemon=True).start()
        with contextlib.suppress(BrokenPipeError, OSError):
            assert self._process.stdin is not None  # noqa: S101 - asked for above
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: Any) -> None:
        self.cancel()

    @property
    def seconds(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self.started

    def poll(self) -> bool:
        """Take in what the worker said; whether it has ended."""
        while not self._ended:
            try:
                self._hear(self._messages.get_nowait())
            except queue.Empty:
                return False
        return True

    def progress(self) -> Any:
        """Each stage and share as it comes, until the end."""
        while not self._ended:
            self._hear(self._messages.get())
            yield self.stage, self.share

    def result(self) -> dict[str, Any]:
        """The answer, waited for. Raises TraceFailed or Cancelled."""
        for _ in self.progress():
            pass
        if self._answer is not None:
            return self._answer
        if self._cancelled:
            raise Cancelled(Problem("trace", Phrase("trace.cancelled")))
        raise TraceFailed(_problem(self._failure or {}))

    def cancel(self) -> None:
        """End the worker and all that it started, if they have not ended, and take it off the process table."""
        if self._process.returncode is None:
            self._cancelled = self._answer is None
            _end_group(self._process.pid)
        self._reap()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._errors.close()
        _running.discard(self)

    # What the worker says

    @property
    def _ended(self) -> bool:
        return self._answer is not None or self._failure is not None

    def _listen(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - asked for above
        with contextlib.suppress(ValueError, OSError):  # closed by cancel
            for line in self._process.stdout:
                with contextlib.suppress(ValueError):
                    self._messages.put(json.loads(line))
        self._reap()
        self._messages.put(None)

    def _reap(self) -> int:
        """Wait for the worker, end what it started and left, and take it off the process table: its exit status.

        In that order, for until then no other process can have its number. What it left may hold its output open.
        """
        with self._reaping:
            if self._process.returncode is None:
                if hasattr(os, "waitid"):
                    with contextlib.suppress(ChildProcessError):
                        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
                    _end_group(self._process.pid)
                self._process.wait()
                if not hasattr(os, "waitid"):
                    _end_group(self._process.pid)
        return self._process.returncode

    def _hear(self, message: dict[str, Any] | None) -> None:
        if message is None:
            self._failure = _died(self._reap(), self._last_words())
        elif "result" in message:
            self._answer = message["result"]
            keep(self.request, message["result"])
        elif "error" in message:
            self._failure = message["error"]
        else:
            self.stage, self.share = str(message["stage"]), float(message["share"])

    def _last_words(self) -> str:
        """The last line that the worker wrote for nobody: a crash says its reason there."""
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(0)
            lines = [line.strip() for line in self._errors.read()[-4000:].splitlines() if line.strip()]
            return lines[-1][:300] if lines else ""
        return ""


_running: weakref.WeakSet[Running] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for running in list(_running):
        running.cancel()


def _end_group(leader: int) -> None:
    """End a worker and every process of its group; one that made a session of its own is beyond reach."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _environment() -> dict[str, str]:
    """The worker finds this very planner, and what the user could import here."""
    path = [str(_ROOT), str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in path if p)}


def install(names: tuple[str, ...] = LIBRARIES) -> Phrase:
    """The line that installs what a trace needs."""
    return phrase("trace.install.line", names=" ".join(names))


def _died(status: int, words: str) -> dict[str, Any]:
    """Why a worker ended without an answer."""
    if status < 0:
        name = signal.Signals(-status).name if -status in list(signal.Signals) else str(-status)
        memory = name == "SIGKILL" or "bad_alloc" in words
        return {"kind": "memory" if memory else "crashed", "what": "", "because": f"{name}: {words}" if words else name}
    return {"kind": "crashed", "what": "", "because": words or f"exit status {status}"}


def _problem(failure: dict[str, Any]) -> Problem:
    kind, what, because = (failure.get(k, "") for k in ("kind", "what", "because"))
    if kind == "cannot":
        return Problem(what or "trace", phrase(f"trace.worker.{failure['key']}", **failure["values"]))
    if kind == "missing":
        return Problem("trace", phrase("trace.missing", names=what), install((what,) if what else LIBRARIES))
    known = kind if kind in ("values", "memory", "crashed") else "failed"
    return Problem("trace", phrase(f"trace.failed.{known}", place=what or "?", because=because))


# The cache


def recall(request: dict[str, Any]) -> dict[str, Any] | None:
    """What was traced before for the same request by the same versions, or None."""
    path = _place(request)
    if path is None or not path.is_file():
        return None
    try:
        found = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, ValueError, gzip.BadGzipFile):
        return None
    if not isinstance(found, dict) or not found.keys() >= WHOLE:
        return None
    found["from_cache"] = True
    return found


def keep(request: dict[str, Any], answer: dict[str, Any]) -> None:
    """Keep an answer; a full or read-only disk only costs the next trace its time."""
    path = _place(request)
    if path is None:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}.part")
        fresh.write_bytes(gzip.compress(json.dumps(answer).encode(), 5))
        fresh.replace(path)
        oldest_first = sorted(path.parent.glob("*.json.gz"), key=lambda p: p.stat().st_mtime)
        for old in oldest_first[:-MOST_KEPT]:
            old.unlink(missing_ok=True)


def _place(request: dict[str, Any]) -> Path | None:
    """The file of a request; none for a user's own module, whose code may change under the same name."""
    if request["model"].get("module"):
        return None
    stated = json.dumps([request, versions(), _code()], sort_keys=True)
    return paths.user_data() / "traces" / f"{hashlib.sha256(stated.encode()).hexdigest()[:32]}.json.gz"


@functools.cache
def _code() -> str:
    """A mark of the tracer's own code: a trace made by other code is made anew."""
    files = sorted((Path(__file__).parent / "inside").glob("*.py"))
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:16]
