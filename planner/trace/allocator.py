"""An allocation log replayed through a model of torch's CUDA caching allocator: what it reserves, what does not fit.

The rules are those of c10/cuda/CUDACachingAllocator.cpp of torch 2.13, in `native` and `expandable`. Left out:

- record_stream: a block that another stream used stays active until that stream is done with it. Here a free is at
  once, so active bytes are allocated bytes. FSDP2 does without; FSDP1 and DDP may hold a layer or a bucket longer.
- garbage_collection_threshold, which releases cached segments early; it is off unless asked for.
- the private pools of CUDA graphs, which keep their peak for themselves: add it for what is captured.
- backend:cudaMallocAsync, another allocator altogether; roundup_power2_divisions by size interval.
- what the device gives to others: the CUDA context, NCCL and cuBLAS handles. `capacity` is what is left of it.

Of eight published H100 runs of torchtitan, the peak of reserved memory is within 0.8 % on seven and 5 % too low on one
(which mode a run used was inferred). A packing has a history: the same step replayed from its parameters and states
alone reserved 14 % less to 10 % more (native; expandable 9 % less to 2 % more) than in a log from the first step on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from planner import units
from planner.trace.blocks import LARGE_GRAIN, Block, Recorder, Settings, segment_size
from planner.trace.events import ALLOCATION, FREE, Log
from planner.trace.expandable import Expandable
from planner.trace.native import Native, Segment

__all__ = ["Mark", "Oom", "Recorder", "Replay", "Segment", "Settings", "replay", "smallest_capacity", "thin"]

#: (index of the event, allocated bytes, reserved bytes) once the event is over
Point = tuple[int, int, int]

Numbers = TypeVar("Numbers", bound=tuple[int, ...])

#: what a plot shows: more than a screen has pixels across
POINTS = 2000


@dataclass(frozen=True, slots=True)
class Mark:
    """Where memory stood at a mark of the log (bytes)."""

    event: int
    name: str
    allocated: int
    reserved: int


@dataclass(frozen=True, slots=True)
class Oom:
    """A request that could not be served, with what torch's OutOfMemoryError tells of it (bytes)."""

    event: int  # index in the log; -1 when a permanent allocation found no room
    requested: int
    tried: int  # what the device was asked for
    capacity: int
    allocated: int
    reserved: int
    stream: int
    op: str
    module: str

    @property
    def free(self) -> int:
        """What the device had left."""
        return self.capacity - self.reserved

    @property
    def unallocated(self) -> int:
        """What was reserved but held nothing, and could not be given back."""
        return self.reserved - self.allocated

    def __str__(self) -> str:
        place = f" for {self.op}" * bool(self.op) + f" in {self.module}" * bool(self.module)
        return (
            f"CUDA out of memory: tried to allocate {_size(self.tried)}{place}, "
            f"{_size(self.free)} free of {_size(self.capacity)}; "
            f"{_size(self.allocated)} allocated, {_size(self.unallocated)} reserved but unallocated"
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay found (bytes); up to the request that failed, when there was one."""

    max_allocated: int
    max_reserved: int
    allocated: int  # at the end
    reserved: int
    fragmentation: int  # reserved less allocated when reserved first stood at its peak
    retries: int  # times the cache was emptied because the device refused: torch's num_alloc_retries
    oom: Oom | None
    marks: tuple[Mark, ...]
    timeline: tuple[Point, ...]  # thinned, peaks kept
    segments: tuple[Segment, ...] = field(repr=False)  # at the end; of expandable ranges, each piece that is mapped

    @property
    def max_active(self) -> int:
        """The peak of active bytes: here that of allocated bytes, since no free waits for another stream."""
        return self.max_allocated


def replay(log: Log, settings: Settings | None = None, record: Recorder | None = None) -> Replay:
    """Run `log` through the allocator that `settings` describe; `record` sees everything the allocator does.

    A request that finds no memory ends it: the result says so, and holds what was until then.
    """
    played = _Player(log, settings or Settings(), record)
    played.run()
    memory = played.memory
    return Replay(
        max_allocated=memory.max_allocated,
        max_reserved=memory.max_reserved,
        allocated=memory.allocated,
        reserved=memory.reserved,
        fragmentation=played.fragmentation,
        retries=memory.retries,
        oom=played.oom,
        marks=tuple(played.marks),
        timeline=tuple(thin(played.points)),
        segments=tuple(memory.segments()),
    )


class _Player:
    """A log on its way through an allocator."""

    def __init__(self, log: Log, settings: Settings, record: Recorder | None = None):
        self.log = log
        self.settings = settings
        self.memory: Native = (Expandable if settings.mode == "expandable" else Native)(settings, record)
        self.fragmentation = 0
        self.oom: Oom | None = None
        self.marks: list[Mark] = []
        self.points: list[Point] = []

    def run(self) -> None:
        """All of it, or up to the request that fails."""
        memory, points, most = self.memory, self.points, 0
        live: dict[int, Block] = {}
        for size, stream in self.settings.permanent:
            if memory.allocate(size, stream) is None:
                self._fail(-1, size, stream, "permanent", "")
                return
        for index, (kind, number, size, stream, label) in enumerate(self.log.events):
            memory.now = index
            if kind == ALLOCATION:
                block = memory.allocate(size, stream, label)
                if block is None:
                    op, module, _ = self.log.label(label)
                    self._fail(index, size, stream, op, module)
                    return
                live[number] = block
            elif kind == FREE:
                memory.free(live.pop(number))
            else:
                self.marks.append(Mark(index, self.log.labels[label], memory.allocated, memory.reserved))
            if memory.max_reserved > most:
                most = memory.max_reserved
                self.fragmentation = memory.reserved - memory.allocated
            points.append((index, memory.allocated, memory.reserved))

    def _fail(self, event: int, size: int, stream: int, op: str, module: str) -> None:
        memory = self.memory
        self.oom = Oom(
            event=event,
            requested=size,
            tried=segment_size(self.settings.block_size(size)),
            capacity=memory.capacity,
            allocated=memory.allocated,
            reserved=memory.reserved,
            stream=stream,
            op=op,
            module=module,
        )


def smallest_capacity(log: Log, settings: Settings | None = None) -> int:
    """The smallest capacity (to 2 MiB) at which the log replays to its end, whatever `settings.capacity` is.

    Found by halving the span between the live bytes' peak, below which nothing can run, and the bytes reserved when
    nothing limits them, with which the replay is the same as without a limit. Emptying the cache at another moment
    packs blocks differently, so that a smaller capacity may by chance do as well: the one returned is sure to.
    """
    settings = settings or Settings()
    works = -(-replay(log, _with(settings, None)).max_reserved // LARGE_GRAIN)
    fails = _least(log, settings) // LARGE_GRAIN - 1
    while works - fails > 1:
        middle = (works + fails) // 2
        played = _Player(log, _with(settings, middle * LARGE_GRAIN))
        played.run()
        if played.oom is None:
            works = middle
        else:
            fails = middle
    return works * LARGE_GRAIN


def _with(settings: Settings, capacity: int | None) -> Settings:
    return dataclasses.replace(settings, capacity=capacity)


def _least(log: Log, settings: Settings) -> int:
    """The most bytes that live at once, rounded as blocks are: no packing needs less."""
    return log.peak(settings.block_size) + sum(settings.block_size(size) for size, _ in settings.permanent)


def thin(points: Sequence[Numbers], most: int = POINTS) -> list[Numbers]:
    """At most `most` of the points, in order: the first, the last, and of each stretch the extremes of every value.

    A point is an index and its values. However few are kept, no peak and no valley of the whole is lost.
    """
    values = len(points[0]) - 1 if points else 0
    stretches = (most - 2) // max(2 * values, 1)
    if len(points) <= most:
        return list(points)
    if stretches < 1:
        raise ValueError(f"{most} points cannot hold the extremes of {values} values")
    columns = list(zip(*points, strict=True))[1:]
    kept = {0, len(points) - 1}
    for stretch in range(stretches):
        part = range(len(points) * stretch // stretches, len(points) * (stretch + 1) // stretches)
        for column in columns:
            kept |= {min(part, key=column.__getitem__), max(part, key=column.__getitem__)}
    return [points[i] for i in sorted(kept)]


def _size(size: int) -> str:
    """Bytes for people, in GiB, or MiB when less than one."""
    return f"{size / units.GIB:.2f} GiB" if size >= units.GIB else f"{size / units.MIB:.2f} MiB"
