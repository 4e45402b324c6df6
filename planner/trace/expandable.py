"""A caching allocator whose segments grow: torch's expandable_segments:True.

A stream's small and large blocks each live in a range of addresses, 9/8 of the device's memory long, of which only
pages that are needed have memory behind them: 2 MiB pages for small blocks, 20 MiB pages for large ones. Emptying
the cache takes the memory from every page that is wholly free, in the middle of the range as well, and later requests
fill such holes first. A second range begins only when the addresses of the first run out.
"""

from __future__ import annotations

from planner.trace.blocks import Block, Pool, Recorder, Settings, merge, split
from planner.trace.events import GRAIN
from planner.trace.native import Native

#: the range when the device's memory is not known (bytes)
UNKNOWN_RANGE = 1 << 42


class Expandable(Native):
    """As `Native`, with ranges of pages in place of segments."""

    def __init__(self, settings: Settings, record: Recorder | None = None):
        super().__init__(settings, record)
        device = settings.device_memory
        self.range = UNKNOWN_RANGE if device is None else device + device // 8

    def _best(self, pool: Pool, at: int) -> Block:
        """The first block, or a later one while that can grow less: the growing end is for what fits nowhere else."""
        best = pool.blocks[pool.free[at][1]]
        reach = _reach(best)
        while reach > best.size and at + 1 < len(pool.free):
            at += 1
            block = pool.blocks[pool.free[at][1]]
            if _reach(block) >= reach:
                break
            best, reach = block, _reach(block)
        return best

    def _worth(self, pool: Pool, size: int, rest: int) -> bool:
        return rest >= GRAIN

    def _fresh(self, pool: Pool, size: int) -> Block | None:
        """Free and unmapped addresses in a row, the lowest that hold `size`, with memory put behind them."""
        block = self._room(pool, size)
        if not block.mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            following = block.next
            assert following is not None  # noqa: S101 - _room counted it
            if not self._map(following, min(size - block.size, following.size)):
                return None
            block = following  # it took in the block before it
        pool.take(block)
        return block

    def _room(self, pool: Pool, size: int) -> Block:
        """Where the lowest addresses begin that could hold `size`: free or unmapped blocks in a row."""
        for _, block in sorted(pool.unmapped.items()):
            before = block.previous
            first = before if before is not None and not before.allocated else block
            if _holds(first, size):
                return first
        length = -(-max(self.range, size) // pool.page) * pool.page
        start = self._addresses(length)
        block = Block(start, length, pool, start, mapped=False)
        pool.unmapped[start] = block
        return block

    def _map(self, block: Block, size: int) -> bool:
        """Put memory behind the first `size` bytes of an unmapped block, in whole pages; all of them or none."""
        pool = block.pool
        mapped = -(-size // pool.page) * pool.page
        if self.reserved + mapped > self.capacity:
            return False
        address = block.address
        del pool.unmapped[address]
        if mapped < block.size:
            rest = split(block, mapped)
            pool.unmapped[rest.address] = rest
        block.mapped = True
        merge(block, block.previous)
        merge(block, block.next)
        pool.add(block)
        self._grow(mapped)
        self._say("segment_map", address, mapped, pool.stream, self._label)
        return True

    def release_cached(self) -> None:
        """Empty the cache: take the memory from every page that is wholly free, wherever it is."""
        for pool in self._in_order():
            for _, address in list(pool.free):
                block = pool.blocks[address]
                self._unmap(block)
                if not block.mapped and block.previous is None and block.next is None:
                    del pool.unmapped[block.address]  # the range holds nothing: its addresses go too

    def _unmap(self, block: Block) -> None:
        """Take the memory from the whole pages in a free block; what it has of others stays a free block."""
        pool = block.pool
        first = block.start + -(-(block.address - block.start) // pool.page) * pool.page
        end = block.start + (block.address + block.size - block.start) // pool.page * pool.page
        if first >= end:
            return
        pool.take(block)
        address, size = first, end - first
        if block.address + block.size > end:
            pool.add(split(block, end - block.address))
        if block.address < first:
            self._cut_front(block, first - block.address)
        block.mapped = False
        merge(block, block.previous)
        merge(block, block.next)
        pool.unmapped[block.address] = block
        self.reserved -= size
        self._say("segment_unmap", address, size, pool.stream, self._label)

    def _cut_front(self, block: Block, size: int) -> None:
        """Make the first `size` bytes of a block a free block of their own; `block` itself keeps what follows."""
        front = Block(block.address, size, block.pool, block.start)
        front.previous, front.next = block.previous, block
        if front.previous is not None:
            front.previous.next = front
        block.previous = front
        block.address += size
        block.size -= size
        block.pool.add(front)

    def _release_oversize(self, pool: Pool, size: int) -> bool:
        """Nothing: a range is never released for its size."""
        return False


def _reach(block: Block) -> int:
    """What a free block could grow to."""
    following = block.next
    return block.size + (0 if following is None or following.mapped else following.size)


def _holds(block: Block | None, size: int) -> bool:
    """Whether the free and unmapped addresses from `block` on hold `size` bytes."""
    while size > 0 and block is not None and not block.allocated:
        size -= block.size
        block = block.next
    return size <= 0

