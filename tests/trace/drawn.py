"""Logs drawn by Hypothesis, and logs written by hand."""

from __future__ import annotations

from hypothesis import strategies as st

from planner.trace.events import Log

MIB = 1 << 20

#: sizes about which the rules change, and some in between
SIZES = st.one_of(
    st.integers(1, 2000),
    st.integers(1, 3 * MIB),
    st.integers(MIB, 60 * MIB),
    st.builds(int.__add__, st.sampled_from([512, MIB, 2 * MIB, 10 * MIB, 20 * MIB, 40 * MIB]), st.integers(-1, 1)),
)

#: (what, size, stream, which): an allocation mostly, or a free of one of the living
STEPS = st.lists(
    st.tuples(st.sampled_from(["allocate", "allocate", "free", "mark"]), SIZES, st.integers(0, 1), st.integers(0, 99)),
    max_size=60,
)

LABELS = ["aten.mm|layers.0|activation", "aten.empty|optimizer|state", "step:1"]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """A log of some allocations, frees and marks on two streams; some of it lives at the end."""
    events: list[tuple[int, int, int, int, int]] = []
    living: list[int] = []
    for number, (what, size, stream, which) in enumerate(draw(STEPS)):
        if what == "mark":
            events.append((0, 0, 0, 0, 2))
        elif what == "free" and living:
            events.append((-1, living.pop(which % len(living)), 0, 0, 0))
        else:
            living.append(number)
            events.append((1, number, size, stream, which % 2))
    return Log(events, LABELS)


def written(*steps: int | float | tuple[int | float, int]) -> Log:
    """A log by hand: MiB to allocate (blocks are numbered 1, 2, ...), minus a block's number to free it.

    A pair is MiB and a stream.
    """
    events = []
    blocks = 0
    for step in steps:
        size, stream = step if isinstance(step, tuple) else (step, 0)
        if size < 0:
            events.append((-1, -int(size), 0, 0, 0))
        else:
            blocks += 1
            events.append((1, blocks, int(size * MIB), stream, 0))
    return Log(events, LABELS)
