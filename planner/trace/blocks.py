"""What a caching allocator keeps: blocks of memory, and the pools where it looks for a free one.

The sizes are those of c10/core/AllocatorConfig.h of torch 2.13, the rules those of c10/cuda/CUDACachingAllocator.cpp.
A block knows its neighbours in its segment, so that two free ones become one again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from planner import units
from planner.trace.events import GRAIN, grains

MIB = int(units.MIB)

#: the largest request of the small pool
SMALL = 1 * MIB
#: what the small pool asks the device for
SMALL_SEGMENT = 2 * MIB
#: what the large pool asks the device for, for requests below `LARGE_REQUEST`: torch's large_segment_size
LARGE_SEGMENT = 20 * MIB
LARGE_REQUEST = 10 * MIB
#: larger requests get a segment of their own size, rounded up to this
LARGE_GRAIN = 2 * MIB

NO_LIMIT = 1 << 62


class Action(NamedTuple):
    """Something the allocator did, under the name that torch's snapshots give it.

    alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap or oom, which has
    the bytes left on the device in place of an address. `size` of an allocation is what the program asked for.
    """

    event: int  # index in the log; -1 before it begins
    name: str
    address: int
    size: int
    stream: int
    label: int  # of the request being served; -1 when it has none


Recorder = Callable[[Action], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """How the allocator is set (PYTORCH_ALLOC_CONF), what it may take, and what it holds before the log begins.

    Bytes throughout. `capacity` is what is left for the allocator: not the card's memory, but what the CUDA context,
    libraries and other processes leave of it. `device_memory`, the card's, only sizes the address ranges of expandable
    segments; they have no end when it is not given.
    """

    mode: str = "native"  # or "expandable": expandable_segments:True
    capacity: int | None = None
    roundup_power2_divisions: int = 0
    max_split_size: int | None = None
    permanent: tuple[tuple[int, int], ...] = ()  # (bytes, stream), cuBLAS workspaces for instance
    device_memory: int | None = None

    def __post_init__(self) -> None:
        divisions = self.roundup_power2_divisions
        if self.mode not in ("native", "expandable"):
            raise ValueError(f"mode is native or expandable, not {self.mode!r}")
        if divisions < 0 or divisions & (divisions - 1):
            raise ValueError(f"roundup_power2_divisions is a power of two, not {divisions}")
        if self.max_split_size is not None and self.max_split_size < LARGE_SEGMENT:
            raise ValueError(f"max_split_size is at least {LARGE_SEGMENT} bytes, as torch demands")
        if any(size <= 0 for size, _ in self.permanent):
            raise ValueError("a permanent allocation has a size")

    def block_size(self, requested: int) -> int:
        """The bytes a request occupies: a multiple of 512, or the next of the steps that divide a power of two."""
        divisions = self.roundup_power2_divisions
        if divisions <= 1 or requested <= GRAIN * divisions or not requested & (requested - 1):
            return grains(requested)
        step = (1 << (requested.bit_length() - 1)) // divisions
        return -(-requested // step) * step


def segment_size(size: int) -> int:
    """What the allocator asks the device for when no free block holds `size` bytes."""
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < LARGE_REQUEST:
        return LARGE_SEGMENT
    return -(-size // LARGE_GRAIN) * LARGE_GRAIN


class Block:
    """A stretch of a segment that is allocated, free, or (of an expandable range) has no memory behind it."""

    __slots__ = ("address", "allocated", "label", "mapped", "next", "pool", "previous", "requested", "size", "start")

    def __init__(self, address: int, size: int, pool: Pool, start: int, mapped: bool = True):
        self.address = address
        self.size = size
        self.pool = pool
        self.start = start  # where its segment or range begins
        self.mapped = mapped
        self.allocated = False
        self.requested = 0  # bytes the program asked for, while allocated
        self.label = -1
        self.previous: Block | None = None
        self.next: Block | None = None

    def __repr__(self) -> str:
        state = "allocated" if self.allocated else "free" if self.mapped else "unmapped"
        return f"<{state} {self.size} at {self.address:#x}>"


class Pool:
    """The free blocks of one stream, small or large, ordered by (size, address); unmapped ones by address."""

    __slots__ = ("blocks", "free", "small", "stream", "unmapped")

    def __init__(self, stream: int, small: bool):
        self.stream = stream
        self.small = small
        self.free: list[tuple[int, int]] = []
        self.blocks: dict[int, Block] = {}  # free blocks by address
        self.unmapped: dict[int, Block] = {}  # few: those with no memory behind them

    @property
    def page(self) -> int:
        """What an expandable range maps at a time."""
        return SMALL_SEGMENT if self.small else LARGE_SEGMENT

    def add(self, block: Block) -> None:
        """Keep a free block."""
        insort(self.free, (block.size, block.address))
        self.blocks[block.address] = block

    def take(self, block: Block) -> None:
        """Let a free block go, to be used or changed."""
        del self.free[bisect_left(self.free, (block.size, block.address))]
        del self.blocks[block.address]

    def at_least(self, size: int) -> int:
        """Where the smallest free block of `size` bytes or more stands in `free`."""
        return bisect_left(self.free, (size, 0))


def merge(block: Block, other: Block | None) -> None:
    """Make `other`, a neighbour, part of `block` when it is free too, and as much mapped. `block` is in no pool."""
    if other is None or other.allocated or other.mapped != block.mapped:
        return
    if other.mapped:
        other.pool.take(other)
    else:
        del other.pool.unmapped[other.address]
    if other is block.previous:
        block.address = other.address
        block.previous = other.previous
        if block.previous is not None:
            block.previous.next = block
    else:
        block.next = other.next
        if block.next is not None:
            block.next.previous = block
    block.size += other.size


def split(block: Block, size: int) -> Block:
    """Cut `block` after `size` bytes; it keeps the front, and the new block behind it is returned."""
    rest = Block(block.address + size, block.size - size, block.pool, block.start, block.mapped)
    rest.previous, rest.next = block, block.next
    if block.next is not None:
        block.next.previous = rest
    block.next = rest
    block.size = size
    return rest
