"""The allocator's rules once more, in the plainest way there is: one list of pieces a pool, searched from end to end.

No neighbours that are linked, no order that is kept. Slow, and written apart from the product: where the two differ,
one of them is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.trace.blocks import Settings
from planner.trace.events import Log

MIB = 1 << 20


@dataclass
class Piece:
    start: int
    size: int
    state: str  # used, free, bare: addresses with nothing behind them
    segment: int  # where its segment begins


@dataclass
class Naive:
    settings: Settings
    pools: dict[tuple[bool, int], list[Piece]] = field(default_factory=dict)
    reserved: int = 0
    retries: int = 0
    address: int = 0

    def run(self, log: Log) -> list[tuple[int, int] | None]:
        """(allocated, reserved) after each event; None in place of the one that failed, and no more."""
        told: list[tuple[int, int] | None] = []
        held: dict[int, tuple[tuple[bool, int], Piece]] = {}
        for kind, number, size, stream, _ in log.events:
            if kind == 1:
                rounded = max(512, (size + 511) // 512 * 512)
                key = (rounded > MIB, stream)
                piece = self.allocate(key, rounded)
                if piece is None:
                    return [*told, None]
                held[number] = key, piece
            elif kind == -1:
                key, piece = held.pop(number)
                piece.state = "free"
                self.join(key)
            told.append((sum(piece.size for _, piece in held.values()), self.reserved))
        return told

    @property
    def grows(self) -> bool:
        return self.settings.mode == "expandable"

    def allocate(self, key: tuple[bool, int], size: int) -> Piece | None:
        found = self.cached(key, size) or self.fresh(key, size)
        if found is None and not self.grows and self.give_back_large(key, size):
            found = self.fresh(key, size)
        if found is None:
            self.give_back()
            self.retries += 1
            found = self.fresh(key, size)
        if found is None:
            return None
        rest = found.size - size
        limit = self.settings.max_split_size
        if rest >= 512 if self.grows or not key[0] else rest > MIB and (limit is None or size < limit):
            self.pools[key].append(Piece(found.start + size, rest, "free", found.segment))
            found.size = size
        found.state = "used"
        return found

    def cached(self, key: tuple[bool, int], size: int) -> Piece | None:
        free = sorted((p for p in self.pools.get(key, []) if p.state == "free" and p.size >= size), key=order)
        if not free:
            return None
        at = 0
        while self.grows and at + 1 < len(free) and self.reach(key, free[at + 1]) < self.reach(key, free[at]):
            at += 1
        limit, found = self.settings.max_split_size or 1 << 60, free[at].size
        return None if size < limit <= found or (size >= limit and found >= size + 20 * MIB) else free[at]

    def reach(self, key: tuple[bool, int], piece: Piece) -> int:
        end = piece.start + piece.size
        behind = [p for p in self.pools[key] if p.start == end and p.segment == piece.segment and p.state == "bare"]
        return piece.size + sum(p.size for p in behind)

    def fresh(self, key: tuple[bool, int], size: int) -> Piece | None:
        pool = self.pools.setdefault(key, [])
        if self.grows:
            return self.grown(pool, key, size)
        want = 2 * MIB if not key[0] else 20 * MIB if size < 10 * MIB else (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
        if self.settings.capacity is not None and self.reserved + want > self.settings.capacity:
            return None
        self.address += 1 << 40
        self.reserved += want
        pool.append(Piece(self.address, want, "free", self.address))
        return pool[-1]

    def grown(self, pool: list[Piece], key: tuple[bool, int], size: int) -> Piece | None:
        page = 20 * MIB if key[0] else 2 * MIB
        row = self.row(pool, size)
        if not row:
            self.address += 1 << 45
            pool.append(Piece(self.address, 1 << 42, "bare", self.address))
            pool[-1].size = (pool[-1].size + page - 1) // page * page
            row = [pool[-1]]
        have = 0
        for piece in row:
            if piece.state == "bare":
                need = min(piece.size, (size - have + page - 1) // page * page)
                if self.settings.capacity is not None and self.reserved + need > self.settings.capacity:
                    self.join(key)
                    return None
                if need < piece.size:
                    pool.append(Piece(piece.start + need, piece.size - need, "bare", piece.segment))
                piece.size, piece.state = need, "free"
                self.reserved += need
            have += piece.size
        start = row[0].start
        self.join(key)
        return next(p for p in pool if p.start <= start < p.start + p.size)

    def row(self, pool: list[Piece], size: int) -> list[Piece]:
        """The lowest pieces in a row that hold `size`, as few as do: from a bare one on, or the free one before it."""
        pieces = sorted(pool, key=lambda p: p.start)
        for at, bare in enumerate(pieces):
            if bare.state != "bare":
                continue
            before = pieces[at - 1] if at else bare
            row: list[Piece] = []
            for piece in pieces[at - (before.state == "free" and before.segment == bare.segment) :]:
                if piece.state == "used" or piece.segment != bare.segment or sum(p.size for p in row) >= size:
                    break
                row.append(piece)
            if sum(p.size for p in row) >= size:
                return row
        return []

    def give_back(self) -> None:
        for key, pool in self.pools.items():
            page = 20 * MIB if key[0] else 2 * MIB
            for piece in [p for p in pool if p.state == "free"]:
                if not self.grows:
                    if not any(p is not piece and p.segment == piece.segment for p in pool):
                        pool.remove(piece)
                        self.reserved -= piece.size
                    continue
                low = piece.segment + (piece.start - piece.segment + page - 1) // page * page
                high = piece.segment + (piece.start + piece.size - piece.segment) // page * page
                if low < high:
                    pool.remove(piece)
                    cuts = (piece.start, low, high, piece.start + piece.size)
                    for start, end, state in zip(cuts, cuts[1:], ("free", "bare", "free"), strict=False):
                        if start < end:
                            pool.append(Piece(start, end - start, state, piece.segment))
                    self.reserved -= high - low
            self.join(key)

    def give_back_large(self, key: tuple[bool, int], size: int) -> bool:
        limit = self.settings.max_split_size
        pool = self.pools.get(key, [])
        if limit is None:
            return False
        large = sorted((p for p in pool if p.state == "free" and p.size >= limit), key=order)
        enough = [p for p in large if p.size >= size][:1]
        given = 0
        for piece in enough or large[::-1]:
            if given >= max(size, limit):
                break
            given += piece.size
            pool.remove(piece)
            self.reserved -= piece.size
        return given >= max(size, limit)

    def join(self, key: tuple[bool, int]) -> None:
        """Make one of neighbours that are both free or both bare."""
        pool = self.pools[key]
        pool.sort(key=lambda p: p.start)
        at = 0
        while at + 1 < len(pool):
            one, two = pool[at], pool[at + 1]
            if one.state == two.state != "used" and one.segment == two.segment and one.start + one.size == two.start:
                one.size += two.size
                del pool[at + 1]
            else:
                at += 1


def order(piece: Piece) -> tuple[int, int]:
    return piece.size, piece.start
