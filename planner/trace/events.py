"""The log of a traced step: every allocation and every free, in program order.

A tracer writes it in a process of its own, a replay reads it; in between it is JSON, on a pipe or in a cache. So what
comes in is checked event by event. Sizes are bytes as the program asked for them, before any allocator rounds them.
Time is left out: the order is all that an allocator sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

#: kinds of events
ALLOCATION, FREE, MARK = 1, -1, 0

#: what an allocator never goes below, and rounds up to (bytes)
GRAIN = 512

#: (kind, block, bytes, stream, label)
Event = tuple[int, int, int, int, int]

FIELDS = ("kind", "block", "bytes", "stream", "label")


def grains(size: int) -> int:
    """Bytes rounded up to what an allocator hands out."""
    return -(-size // GRAIN) * GRAIN


@dataclass(frozen=True, slots=True)
class Log:
    """Allocations and frees of a traced step in program order.

    An event is (kind, block, bytes, stream, label). Kind 1 is an allocation, -1 a free, 0 a mark, which only has a
    label: "phase:forward", "step:2". A block is a number that names one allocation while it lives. A label is an index
    into `labels`: "op|module|category" of an allocation, the name of a mark. What lives before the step (parameters,
    optimizer states) is allocated by the first events. A storage that is resized is a free and an allocation.
    """

    events: list[Event]
    labels: list[str]

    def __len__(self) -> int:
        """The number of events, marks included."""
        return len(self.events)

    @classmethod
    def from_json(cls, raw: Any) -> Log:
        """The log in `raw`, as `to_json` gives it; raises ValueError naming the first event that cannot be."""
        events, labels = (raw.get("events"), raw.get("labels")) if isinstance(raw, dict) else (None, None)
        if not isinstance(events, list) or not isinstance(labels, list):
            raise ValueError("a log is an object with a list of events and a list of labels")
        for index, text in enumerate(labels):
            if not isinstance(text, str):
                raise ValueError(f"label {index} is no text: {text!r}")
        return cls(list(_checked(events, len(labels))), list(labels))

    def to_json(self) -> dict[str, Any]:
        """The log as JSON holds it."""
        return {"events": [list(event) for event in self.events], "labels": list(self.labels)}

    def label(self, index: int) -> tuple[str, str, str]:
        """The op, module and category of an allocation's label; what the text lacks is empty."""
        op, module, category = (*self.labels[index].split("|"), "", "")[:3]
        return op, module, category

    def marks(self) -> list[tuple[int, str]]:
        """(index of the event, name) of each mark."""
        return [(i, self.labels[event[4]]) for i, event in enumerate(self.events) if event[0] == MARK]

    def peak(self, rounded: Callable[[int], int] = grains) -> int:
        """The most bytes that ever lived at once, each block rounded up, to 512 B if nothing else is said.

        No allocator reserves less: it adds what it cannot split off a block, and what it holds free.
        """
        live: dict[int, int] = {}
        total = most = 0
        for kind, block, size, _, _ in self.events:
            if kind == ALLOCATION:
                live[block] = rounded(size)
                total += live[block]
                most = max(most, total)
            elif kind == FREE:
                total -= live.pop(block)
        return most

    def compact(self) -> Log:
        """The same log in fewer characters: a freed block's number is used again, labels are those that occur, once.

        A free has neither size, stream nor label of its own.
        """
        numbers: dict[int, int] = {}
        unused: list[int] = []
        labels: dict[str, int] = {}
        events: list[Event] = []
        for kind, block, size, stream, label in self.events:
            if kind == FREE:
                unused.append(numbers.pop(block))
                events.append((FREE, unused[-1], 0, 0, 0))
                continue
            index = labels.setdefault(self.labels[label], len(labels))
            if kind == MARK:
                events.append((MARK, 0, 0, 0, index))
            else:
                numbers[block] = unused.pop() if unused else len(numbers)
                events.append((ALLOCATION, numbers[block], size, stream, index))
        return Log(events, list(labels))


def _checked(events: Iterable[Any], labels: int) -> Iterator[Event]:
    """Each event as a tuple, or a ValueError that names the first one that cannot be."""
    live: set[int] = set()
    for index, raw in enumerate(events):
        fault = _fault(raw, labels, live)
        if fault is not None:
            raise ValueError(f"event {index} of the log: {fault}")
        kind, block, size, stream, label = raw
        if kind == ALLOCATION:
            live.add(block)
        elif kind == FREE:
            live.remove(block)
        yield (kind, block, size, stream, label)


def _fault(raw: Any, labels: int, live: set[int]) -> str | None:
    """What is wrong with an event, given the blocks that live; None when nothing is."""
    if not isinstance(raw, (list, tuple)) or len(raw) != len(FIELDS) or any(type(value) is not int for value in raw):
        return f"five whole numbers expected ({', '.join(FIELDS)}), found {raw!r}"
    kind, block, size, stream, label = raw
    if kind not in (ALLOCATION, FREE, MARK):
        return f"unknown kind {kind}"
    if size < 0 or (kind == ALLOCATION and size == 0):
        return f"a size of {size} bytes"
    if stream < 0:
        return f"stream {stream}"
    if kind != FREE and not 0 <= label < labels:
        return f"label {label} of {labels}"
    if kind == FREE and block not in live:
        return f"a free of block {block}, which is not allocated"
    if kind == ALLOCATION and block in live:
        return f"block {block} is allocated twice"
    return None
