"""The case inside a report, read back: from the HTML's script element, from the PDF's attachment. Bounded in size."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

from planner import cases
from planner.errors import BadInput, PlannerError, Problem
from planner.i18n import Phrase, phrase
from planner.spec.form import SCHEMA

OPENING, CLOSING = '<script type="application/json" id="headroom-case">', "</script>"
NAME = "case.json"
MOST_REPORT_BYTES = 50_000_000
MOST_ATTACHMENTS = 20
HEADER_BYTES = 2_000


def text(case: dict[str, Any]) -> str:
    """A case as the text of its file: for people, or without the spaces where it would grow past what is read back."""
    pretty = json.dumps(case, ensure_ascii=False, indent=2, allow_nan=False)
    if len(pretty.encode("utf-8", "backslashreplace")) > cases.MOST_BYTES:
        pretty = json.dumps(case, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return encodable(pretty)


def encodable(text: str) -> str:
    """The text with what UTF-8 cannot hold (halves of surrogate pairs) written as JSON's own escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def element(case: dict[str, Any]) -> str:
    """A case as a script element that no reader of HTML can end early: <, > and & are written as escapes."""
    inside = json.dumps(case, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        inside = inside.replace(sign, f"\\u{ord(sign):04x}")
    return f"{OPENING}{encodable(inside)}{CLOSING}"


def from_html(page: str) -> dict[str, Any]:
    """The case in an HTML report. Raises BadInput where there is none."""
    _bounded(len(page))
    _, opening, after = page.partition(OPENING)
    inside, closing, _ = after.partition(CLOSING)
    tree = _case(inside) if opening and closing else None
    if tree is None:
        raise BadInput(Problem("report", Phrase("problem.report.no-html")))
    return tree


def _case(text: str | bytes) -> dict[str, Any] | None:
    """The case in a text; None where there is something else, or more than a case may be."""
    try:
        tree = cases.read(text, NAME)
    except PlannerError:
        return None
    return tree if str(tree.get("schema", "")).split("/")[0] == SCHEMA.split("/")[0] else None


def from_pdf(data: bytes) -> dict[str, Any]:
    """The case attached to a PDF report. Raises BadInput where there is none.

    Reads the attachments as this planner writes them: streams of their own, plain or deflated, not encrypted.
    """
    _bounded(len(data))
    if not data.startswith(b"%PDF-"):
        raise BadInput(Problem("report", Phrase("problem.report.not-pdf")))
    for stream in _attachments(data):
        if (tree := _case(stream)) is not None:
            return tree
    raise BadInput(Problem("report", Phrase("problem.report.no-pdf")))


def _bounded(size: int) -> None:
    if size > MOST_REPORT_BYTES:
        large = phrase("problem.report.large", bytes=size)
        raise BadInput(Problem("report", large, phrase("near.bytes", most=MOST_REPORT_BYTES)))


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
