"""The case inside a report, read back: from the HTML's script element, from the PDF's attachment. Bounded in size."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from planner import cases
from planner.errors import BadInput, PlannerError, Problem
from planner.spec.form import SCHEMA

ELEMENT = "headroom-case"
NAME = "case.json"
MOST_REPORT_BYTES = 50_000_000
MOST_ATTACHMENTS = 20
HEADER_BYTES = 2_000


def from_html(text: str) -> dict[str, Any]:
    """The case in an HTML report. Raises BadInput where there is none."""
    _bounded(len(text))
    reader = _Reader()
    reader.feed(text)
    if not reader.found:
        raise BadInput(Problem("report", "holds no case: it is no HTML report of Headroom."))
    return cases.read("".join(reader.found), NAME)


class _Reader(HTMLParser):
    """Keeps the text of the first script element that holds a case."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.found: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag == "script" and not self.found and ("id", ELEMENT) in attrs

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found.append(data)


def from_pdf(data: bytes) -> dict[str, Any]:
    """The case attached to a PDF report. Raises BadInput where there is none.

    Reads the attachments as this planner writes them: streams of their own, plain or deflated, not encrypted.
    """
    _bounded(len(data))
    if not data.startswith(b"%PDF-"):
        raise BadInput(Problem("report", "is no PDF file."))
    for stream in _attachments(data):
        try:
            tree = cases.read(stream, NAME)
        except PlannerError:
            continue
        if str(tree.get("schema", "")).split("/")[0] == SCHEMA.split("/")[0]:
            return tree
    raise BadInput(Problem("report", "holds no case: it is no PDF report of Headroom, or other software rewrote it."))


def _bounded(size: int) -> None:
    if size > MOST_REPORT_BYTES:
        raise BadInput(Problem("report", f"{size} bytes are more than a report has.", f"{MOST_REPORT_BYTES} bytes"))


def _attachments(data: bytes) -> Iterator[bytes]:
    """The embedded files of a PDF, unpacked as far as a case may reach."""
    at = 0
    for _ in range(MOST_ATTACHMENTS):
        at = data.find(b"/EmbeddedFile", at)
        if at < 0:
            return
        start = data.find(b"stream", at, at + HEADER_BYTES)
        if start >= 0 and (end := data.find(b"endstream", start)) >= 0:
            body = data[start + len(b"stream") : end].removeprefix(b"\r").removeprefix(b"\n")
            header = data[data.rfind(b"obj", 0, at) : start]
            yield _inflated(body) if b"/FlateDecode" in header else body[: cases.MOST_BYTES + 1].rstrip(b"\r\n")
        at += len(b"/EmbeddedFile")


def _inflated(body: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(body, cases.MOST_BYTES + 1)
    except zlib.error:
        return b""
