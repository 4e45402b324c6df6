"""A trace as people ask for it: the case traced, compared with the formulas, and its log replayed by the allocator."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner import cases, units
from planner.errors import BadInput, PlannerError, Problem, UnsupportedArchitecture, nearest
from planner.i18n import Phrase, phrase
from planner.spec.case import Case
from planner.step.memory import memory
from planner.step.setting import Stage
from planner.trace import run
from planner.trace.allocator import Replay, Settings, replay, smallest_capacity
from planner.trace.compare import Comparison, compare
from planner.trace.events import Log
from planner.trace.request import STEPS, notes, request

MODES = ("native", "expandable")
#: B of the workspace that cuBLAS keeps on its stream: 32 MiB on Hopper (pytorch, CUDABlas.cpp), 8 MiB before
WORKSPACE = {"hopper": 32 * 2**20, "": 8 * 2**20 + 128 * 2**10}
#: a model that every part of a case but the model is read with, where the formulas do not know the model
_PLACEHOLDER = "llama-3-8b"
#: what the formulas say of a configuration that no code makes a sound model of
_WRONG = {"problem.not-a", *(f"problem.config.{k}" for k in (
    "too-small", "too-large", "uneven-heads", "no-multiple", "experts"))}  # fmt: skip
_CONSTRUCTOR = "package.module:constructor"
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class Traced:
    """The answer: the worker's (bytes), the comparison, and the replay (None where none was asked for).

    `capacity` is what the replay was held to, or None; `least` the smallest capacity that the log runs in.
    """

    case: Case
    found: Mapping[str, Any]
    comparison: Comparison
    replay: Replay | None
    mode: str
    capacity: int | None
    notes: tuple[Phrase, ...]

    @property
    def log(self) -> Log | None:
        """The log of all steps."""
        raw = self.found.get("log")
        return Log.from_json(raw) if raw else None

    def settings(self) -> Settings:
        """How the allocator was set for the replay."""
        return settings(self.case, self.mode, self.capacity)

    def least(self) -> int | None:
        """The smallest capacity in bytes, to 2 MiB, that the log runs in; seconds of work."""
        log = self.log
        return None if log is None else smallest_capacity(log, replace(self.settings(), capacity=None))


@dataclass(frozen=True, slots=True)
class Question:
    """What to trace: a case, and what replaces its model (a configuration no formula knows, a user's own module)."""

    case: Case
    config: Mapping[str, Any] | None = None
    module: str | None = None
    #: why the formulas do not answer for the configuration, where it is not for the architecture
    unread: tuple[Problem, ...] = ()

    @property
    def known(self) -> bool:
        """Whether the formulas answer for the traced model."""
        return self.config is None and self.module is None

    def request(self, log: bool = True, steps: int = STEPS) -> dict[str, Any]:
        """What the worker is asked. Raises BadInput with everything that cannot be traced."""
        return request(self.case, steps, log, self.module, self.config)


def question(raw: Mapping[str, Any], module: str | None = None) -> Question:
    """The question of a raw case. An architecture that the formulas do not know is traced without them."""
    if module is not None:
        if not _MODULE.fullmatch(module):
            raise BadInput(Problem("--module", phrase("trace.module-form", name=repr(module[:100])), _CONSTRUCTOR))
        return Question(cases.case({**raw, "model": raw.get("model") or _PLACEHOLDER}), module=module)
    try:
        made = cases.case(raw)
        if not made.model.unknown:
            return Question(made)
        return Question(cases.case({**raw, "model": _PLACEHOLDER}), config=_configuration(raw))
    except UnsupportedArchitecture:
        return Question(cases.case({**raw, "model": _PLACEHOLDER}), config=_configuration(raw))
    except BadInput as error:
        config = _configuration(raw)
        if config is None or not all(_of_the_model(p) for p in error.problems):
            raise
        return Question(cases.case({**raw, "model": _PLACEHOLDER}), config=config, unread=error.problems)


def _of_the_model(problem: Problem) -> bool:
    """Whether the code of a model may know what the formulas do not: its default for a field, an activation."""
    wrong = isinstance(problem.what, Phrase) and problem.what.key in _WRONG
    return problem.field.split(".")[0] == "model" and not wrong


def _configuration(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """A configuration written out in the case, or in the file that it names."""
    stated = raw.get("model")
    if isinstance(stated, dict) and isinstance(stated.get("model_type"), str):
        return {k: v for k, v in stated.items() if k != "name"}
    if isinstance(stated, str) and stated.endswith(".json"):
        try:
            found = cases.read_file(stated)
        except PlannerError:
            return None
        return found if isinstance(found.get("model_type"), str) else None
    return None


def mode_of(case: Case, asked: str | None) -> str:
    """The allocator's mode: asked for, or the case's own."""
    if asked is None:
        return case.recipe.allocator
    word = asked.strip().lower()
    if word not in MODES:
        close = nearest(word, MODES) or MODES[0]
        raise BadInput(Problem("--replay", phrase("problem.unknown", word=repr(asked)), close))
    return word


def size(field: str, text: str) -> int:
    """A size such as 79.2GiB, in bytes; a bare number is GiB."""
    stated = text.strip()
    if len(stated) > 40:
        raise BadInput(Problem(field, phrase("problem.unknown", word=repr(stated[:37] + "...")), "79.2GiB"))
    if stated.replace(".", "", 1).isdigit():
        stated += " GiB"
    try:
        found = int(units.parse(stated, "B"))
    except PlannerError as error:
        raise BadInput([Problem(field, p.what, "79.2GiB") for p in error.problems]) from None
    if found <= 0:
        raise BadInput(Problem(field, phrase("problem.too-small", value=text.strip()), "79.2GiB"))
    return found


def settings(case: Case, mode: str, capacity: int | None) -> Settings:
    """The allocator's settings on the case's GPU."""
    hopper = "hopper" if "hopper" in case.cluster.accelerator.arch.lower() else ""
    return Settings(
        mode=mode, capacity=capacity, permanent=((WORKSPACE[hopper], 0),),
        device_memory=int(case.cluster.accelerator.memory_usable.value),
    )  # fmt: skip


def room(case: Case) -> int:
    """Bytes of the card that are left to torch's allocator: what torch sees less the CUDA context and NCCL."""
    ours = memory(case, Stage())
    return int(ours.usable.value - ours.context.value - ours.nccl.value)


def answer(asked: Question, found: Mapping[str, Any], mode: str, capacity: int | None) -> Traced:
    """The worker's answer with the comparison and the replay."""
    case = asked.case
    raw = found.get("log")
    replayed = replay(Log.from_json(raw), settings(case, mode, capacity)) if raw else None
    said = tuple(notes(case)) if asked.module is None else (Phrase("trace.note.module"),)
    if asked.unread:
        problems = "; ".join(str(p).rstrip(".。") for p in asked.unread)
        said = (*said, phrase("trace.note.unread-model", problems=problems))
    elif asked.config is not None:
        said = (*said, Phrase("trace.note.unknown-model"))
    return Traced(case, found, compare(case, found, asked.known), replayed, mode, capacity, said)


def trace(
    asked: Question, mode: str, capacity: int | None = None, progress: run.Progress | None = None, fresh: bool = False
) -> Traced:
    """Trace a question and replay its log. Raises BadInput, TraceFailed or MissingDependency."""
    try:
        found = run.trace(asked.request(), progress, fresh)
    except run.TraceFailed as error:
        raise run.TraceFailed([*asked.unread, *error.problems]) from None  # the formulas' words name the field
    return answer(asked, found, mode, capacity)
