"""A user's own records, read and answered piece by piece: bounded, every broken line told, nothing written anywhere."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import threading
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from planner.evidence import records
from planner.evidence.predict import answer
from planner.evidence.records import Line
from planner.evidence.rows import Row, answered
from planner.i18n import Said, said

MOST_LINES = 100_000
MOST_TOLD = 1_000  # lines without an answer that are kept with their reason


@dataclass(frozen=True, slots=True)
class Refused:
    """A line without an answer, and why; `id` only where it is a record."""

    number: int
    id: str
    reason: str


class Own:
    """One file: its rows with their line numbers, the lines without an answer, and the answers packed."""

    def __init__(self, data: bytes, name: str = ""):
        self.name = name
        self.rows: dict[int, Row] = {}
        self.refused: list[Refused] = []
        self.count_refused = 0
        self.done = 0
        self.total = min(MOST_LINES, data.count(b"\n") + (not data.endswith(b"\n")))
        self.ended = self.cut = self.stopped = False
        self._lock = threading.Lock()
        self._kept = gzip.compress(data, 1)
        self._lines = iter(records.lines(self._opened()))
        self._packer = zlib.compressobj(6)
        self._packed: list[bytes] = []

    def work(self, seconds: float) -> bool:
        """Answer lines for about that long; whether the file has come to its end. Only one thread works at a time."""
        if self._lock.acquire(blocking=False):
            try:
                self._work(time.monotonic() + seconds)
            finally:
                self._lock.release()
        return self.ended

    def _work(self, until: float) -> None:
        while not self.ended and time.monotonic() < until:
            line = next(self._lines, None)
            if line is None or self.done == MOST_LINES:
                self.cut = line is not None
                self._end()
            else:
                self._take(line)

    def stop(self) -> None:
        """No more lines are read; what was answered stays."""
        with self._lock:
            self.stopped = not self.ended
            self._end()

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self._packed.append(self._packer.flush())

    @property
    def share(self) -> float:
        """How much of the file is done."""
        return 1.0 if self.ended else min(1.0, self.done / max(self.total, 1))

    def answers(self) -> bytes:
        """The answers as `planner predict` gives them, one JSON line each in the file's order."""
        return zlib.decompress(b"".join(self._packed)) if self.ended else b""

    def record(self, number: int) -> dict[str, Any] | None:
        """The record of a line."""
        with self._opened() as stream:
            line = records.at(stream, number)
        return line.record if line else None

    def _opened(self) -> BinaryIO:
        return cast(BinaryIO, gzip.GzipFile(fileobj=io.BytesIO(self._kept)))

    def _take(self, line: Line) -> None:
        found = answer(line)
        self._packed.append(self._packer.compress(json.dumps(found, ensure_ascii=False).encode() + b"\n"))
        self.done += 1
        if line.record is None:
            self._refuse(line.number, "", line.problem or "")
            return
        row = answered(line.record, found)
        self.rows[line.number] = row
        if row.problem is not None:
            self._refuse(line.number, row.id, row.problem)

    def _refuse(self, number: int, id: str, why: Said) -> None:
        self.count_refused += 1
        if len(self.refused) < MOST_TOLD:
            self.refused.append(Refused(number, id, said(why)))


def thinned(rows: Mapping[int, Row], most: int) -> dict[int, Row]:
    """At most that many rows, evenly over the file."""
    step = -(-len(rows) // most) if rows else 1
    return dict(itertools.islice(rows.items(), 0, None, step))
