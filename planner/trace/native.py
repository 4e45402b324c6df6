"""A caching allocator that asks the device for whole segments: torch's default.

Requests of up to 1 MiB share segments of 2 MiB, those below 10 MiB segments of 20 MiB, larger ones get their own. A
request takes the smallest free block of its stream that holds it, at the lowest address among equals; what is left
over is split off if it is worth it. When the device refuses, cached blocks go back to it and it is asked again.

Addresses rise with every segment. On a device they may be used again, which decides between free blocks of one size.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from planner.trace.blocks import (
    LARGE_SEGMENT,
    MIB,
    NO_LIMIT,
    SMALL,
    Action,
    Block,
    Pool,
    Recorder,
    Settings,
    merge,
    segment_size,
    split,
)
from planner.trace.events import GRAIN

#: no segment touches the next, or a picture would draw them as one
GAP = 2 * MIB


@dataclass(frozen=True, slots=True)
class Segment:
    """Memory that the device gave, in one piece: its blocks tile it."""

    address: int
    blocks: tuple[Block, ...]

    @property
    def size(self) -> int:
        return sum(block.size for block in self.blocks)

    @property
    def allocated(self) -> int:
        return sum(block.size for block in self.blocks if block.allocated)

    @property
    def requested(self) -> int:
        return sum(block.requested for block in self.blocks if block.allocated)

    @property
    def stream(self) -> int:
        return self.blocks[0].pool.stream

    @property
    def small(self) -> bool:
        return self.blocks[0].pool.small


class Native:
    """The allocator's state and statistics. `allocate` and `free` are all a program calls."""

    def __init__(self, settings: Settings, record: Recorder | None = None):
        self.settings = settings
        self.record = record
        self.capacity = NO_LIMIT if settings.capacity is None else settings.capacity
        self.max_split = NO_LIMIT if settings.max_split_size is None else settings.max_split_size
        self.pools: dict[tuple[int, bool], Pool] = {}
        self.live: set[Block] = set()
        self.allocated = self.max_allocated = 0
        self.reserved = self.max_reserved = 0
        self.retries = 0
        self._address = 1 << 32  # not 0, which reads as no address
        self.now = -1  # index of the event being served, for the recorder
        self._label = -1  # of the request being served

    # What a program calls.

    def allocate(self, requested: int, stream: int, label: int = -1) -> Block | None:
        """A block for `requested` bytes; None when there is no memory, even after all that is cached was released."""
        size = self.settings.block_size(requested)
        key = (stream, size <= SMALL)
        pool = self.pools.get(key)
        if pool is None:
            pool = self.pools[key] = Pool(*key)
        self._label = label
        block = self._cached(pool, size) or self._obtained(pool, size)
        if block is None:
            self._say("oom", self.capacity - self.reserved, size, stream, label)
            return None
        if self._worth(pool, size, block.size - size):
            pool.add(split(block, size))
        block.allocated, block.requested, block.label = True, requested, label
        self.live.add(block)
        self.allocated += block.size
        if self.allocated > self.max_allocated:
            self.max_allocated = self.allocated
        if self.record is not None:
            self._say("alloc", block.address, requested, stream, label)
        return block

    def free(self, block: Block) -> None:
        """Give a block back. It is usable at once: no other stream is waited for."""
        pool = block.pool
        if self.record is not None:
            self._say("free_requested", block.address, block.requested, pool.stream, block.label)
            self._say("free_completed", block.address, block.requested, pool.stream, block.label)
        self.live.remove(block)
        self.allocated -= block.size
        block.allocated, block.requested, block.label = False, 0, -1
        merge(block, block.previous)
        merge(block, block.next)
        pool.add(block)

    def segments(self) -> list[Segment]:
        """What the device has given and not got back, by address."""
        found = []
        blocks = [*self.live, *(block for pool in self.pools.values() for block in pool.blocks.values())]
        for block in sorted(blocks, key=attrgetter("address")):
            if block.previous is None or not block.previous.mapped:
                piece: list[Block] = []
                following: Block | None = block
                while following is not None and following.mapped:
                    piece.append(following)
                    following = following.next
                found.append(Segment(block.address, tuple(piece)))
        return found

    # Where memory comes from.

    def _cached(self, pool: Pool, size: int) -> Block | None:
        """The free block that fits best, out of its pool."""
        at = pool.at_least(size)
        if at == len(pool.free):
            return None
        block = self._best(pool, at)
        if self._oversize(size, block.size):
            return None
        pool.take(block)
        return block

    def _best(self, pool: Pool, at: int) -> Block:
        """Of the free blocks from `at` on, which all hold the request, the one to use."""
        return pool.blocks[pool.free[at][1]]

    def _oversize(self, size: int, found: int) -> bool:
        """Whether a block is too large to serve the request: a block above the split limit is not split."""
        if size < self.max_split:
            return found >= self.max_split
        return found >= size + LARGE_SEGMENT

    def _worth(self, pool: Pool, size: int, rest: int) -> bool:
        """Whether what is left of a block is split off."""
        if pool.small:
            return rest >= GRAIN
        return rest > SMALL and size < self.max_split

    def _obtained(self, pool: Pool, size: int) -> Block | None:
        """New memory from the device, after releasing what is cached if need be."""
        block = self._fresh(pool, size)
        if block is None and self._release_oversize(pool, size):
            block = self._fresh(pool, size)
        if block is None:
            self.release_cached()
            self.retries += 1
            block = self._fresh(pool, size)
        return block

    def _fresh(self, pool: Pool, size: int) -> Block | None:
        """A new segment as one block, in no pool; None when the device refuses."""
        wanted = segment_size(size)
        if self.reserved + wanted > self.capacity:
            return None
        address = self._addresses(wanted)
        block = Block(address, wanted, pool, address)
        self._grow(wanted)
        self._say("segment_alloc", address, wanted, pool.stream, self._label)
        return block

    def _addresses(self, size: int) -> int:
        """Where `size` bytes of addresses begin that nothing else has."""
        address = self._address
        self._address += size + GAP
        return address

    # What goes back to the device.

    def release_cached(self) -> None:
        """Empty the cache: every segment that is free as a whole."""
        for pool in self._in_order():
            for _, address in list(pool.free):
                block = pool.blocks[address]
                if block.previous is None and block.next is None:
                    self._release(block)

    def _in_order(self) -> list[Pool]:
        """Pools as torch goes through them: large ones first, then by stream."""
        return sorted(self.pools.values(), key=lambda pool: (pool.small, pool.stream))

    def _release_oversize(self, pool: Pool, size: int) -> bool:
        """Release blocks above the split limit, one that is large enough or several; whether it was enough."""
        if self.max_split == NO_LIMIT:
            return False
        enough = max(size, self.max_split)
        at = pool.at_least(enough)
        if at < len(pool.free):
            self._release(pool.blocks[pool.free[at][1]])
            return True
        released = 0
        while released < enough and pool.free and pool.free[-1][0] >= self.max_split:
            released += pool.free[-1][0]
            self._release(pool.blocks[pool.free[-1][1]])
        return released >= enough

    def _release(self, block: Block) -> None:
        """Give a whole segment back to the device."""
        block.pool.take(block)
        self.reserved -= block.size
        self._say("segment_free", block.address, block.size, block.pool.stream, self._label)

    def _grow(self, size: int) -> None:
        self.reserved += size
        if self.reserved > self.max_reserved:
            self.max_reserved = self.reserved

    def _say(self, name: str, address: int, size: int, stream: int, label: int) -> None:
        if self.record is not None:
            self.record(Action(self.now, name, address, size, stream, label))
