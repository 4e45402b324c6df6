"""The report as HTML and PDF: it says the answer, hides nothing, runs nothing, and gives its case back."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import planner
from planner import i18n
from planner.errors import BadInput, MissingDependency
from planner.report import attached, content, render
from planner.report.document import Report
from tests.report.cases import CASES, DATE

ON_PAPER = ("fits", "too much", "pipeline")
HOSTILE = "<script>alert(1)</script> {{7*7}} </title> \"'&<b>bold</b> \x00"

needs_poppler = pytest.mark.skipif(shutil.which("pdftotext") is None, reason="no poppler-utils")
pdf = pytest.mark.pdf


def report_of(raw: dict[str, Any]) -> Report:
    return content.report(planner.evaluate(planner.load_case(raw)), date=DATE)


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    return {name: report_of(raw) for name, raw in CASES.items()}


class Printed(dict[str, bytes]):
    """PDFs by name of the case, each written when it is first asked for: a worker writes those it tests."""

    def __init__(self, reports: dict[str, Report]):
        super().__init__()
        self.reports = reports

    def __missing__(self, name: str) -> bytes:
        self[name] = render.pdf(self.reports[name])
        return self[name]


@pytest.fixture(scope="module")
def printed(reports: dict[str, Report]) -> dict[str, bytes]:
    return Printed(reports)


@pytest.fixture(scope="module")
def hostile() -> Report:
    config = json.loads((Path(planner.__file__).parent / "data/models/llama-3-8b.json").read_text(encoding="utf-8"))
    config["_name_or_path"] = f"model {HOSTILE}"
    return report_of({"name": f"name {HOSTILE}", "model": config, "cluster": {"gpu": "h100-sxm", "gpus": 8}})


def tool(name: str, *options: str, data: bytes, folder: Path) -> str:
    file = folder / "report.pdf"
    file.write_bytes(data)
    command = [name, *options[:-1], str(file), *options[-1:]]
    return subprocess.run(command, capture_output=True, check=True).stdout.decode("utf-8", "replace")


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


# HTML


@pytest.mark.parametrize("name", CASES)
def test_html_says_the_answer_and_reaches_for_nothing(name: str, reports: dict[str, Report]) -> None:
    report = reports[name]
    page = render.html(report)
    assert report.verdict_text in page
    assert all(section.title.replace("'", "&#39;") in page for section in report.sections)
    assert set(re.findall(r'(?:src|href)="([^",]*)', page)) == {"data:image/svg+xml;base64"}
    assert "url(" not in page
    assert "@import" not in page


@pytest.mark.parametrize("name", CASES)
def test_html_gives_its_case_back(name: str, reports: dict[str, Report]) -> None:
    back = render.case_from_html(render.html(reports[name]))
    assert back == reports[name].case
    assert planner.evaluate(planner.load_case(back)).verdict == reports[name].verdict


def test_every_picture_says_what_it_shows(reports: dict[str, Report]) -> None:
    page = render.html(reports["pipeline"])
    alts = re.findall(r'<img [^>]*alt="([^"]*)"', page)
    assert len(alts) == len(re.findall("<img ", page)) == 3
    assert all(len(alt) > 40 for alt in alts)


def test_hostile_text_is_shown_as_text(hostile: Report) -> None:
    page = render.html(hostile)
    assert len(re.findall("<script", page)) == 1  # the case's own
    assert "<b>" not in page
    assert "49" not in hostile.title
    assert "{{7*7}}" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert page.index("</title>") == page.rindex("</title>")
    assert render.case_from_html(page) == hostile.case


def test_half_a_surrogate_pair_does_not_break_the_file(reports: dict[str, Report]) -> None:
    odd = dataclasses.replace(reports["fits"], title="a\ud800b", case={**reports["fits"].case, "name": "a\ud800b"})
    page = render.html(odd)
    page.encode("utf-8")
    assert render.case_from_html(page)["name"] == "a\ud800b"


@pytest.mark.parametrize(
    "sheet",
    [
        "",
        "<html></html>",
        attached.OPENING,
        f"{attached.OPENING}[1]{attached.CLOSING}",
        f"{attached.OPENING}{'[' * 10**5}{attached.CLOSING}",
        f"{attached.OPENING}{{}}{' ' * 2_000_000}{attached.CLOSING}",
        "x" * (attached.MOST_REPORT_BYTES + 1),
    ],
    ids=["empty", "another page", "cut off", "no object", "deep", "large case", "large page"],
)
def test_html_without_a_sound_case_is_refused(sheet: str) -> None:
    with pytest.raises(BadInput):
        render.case_from_html(sheet)


def test_a_report_keeps_the_language_it_was_made_in(
    reports: dict[str, Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    english = i18n.table("en")
    monkeypatch.setattr(i18n, "languages", lambda: ("en", "xx"))
    monkeypatch.setattr(i18n, "table", lambda language: english if language == "en" else {})
    i18n.use("xx")
    try:
        assert '<html lang="en">' in render.html(reports["fits"])
        assert i18n.current() == "xx"
    finally:
        i18n.use("en")


# PDF


@pdf
@needs_poppler
@pytest.mark.parametrize("name", ON_PAPER)
def test_pdf_text_holds_the_answer_and_every_title(
    name: str, reports: dict[str, Report], printed: dict[str, bytes], tmp_path: Path
) -> None:
    report = reports[name]
    text = squeezed(tool("pdftotext", "-layout", "-", data=printed[name], folder=tmp_path))
    said = [report.question, report.verdict_text, *(s.title for s in report.sections), "Page 1 of"]
    said += [i18n.t(f"chart.{chart}.title") for chart in ("breakdown", "moments")]
    said += [i18n.t("chart.stages.title")] if name == "pipeline" else []
    flat = squeezed(tool("pdftotext", "-", data=printed[name], folder=tmp_path))
    assert not [phrase for phrase in said if squeezed(phrase) not in text and squeezed(phrase) not in flat]
    assert f"{abs(report.fit['headroom_gib']):.1f}GiB" in flat
    first = squeezed(tool("pdftotext", "-l", "1", "-", data=printed[name], folder=tmp_path))
    assert squeezed(i18n.t("chart.breakdown.title")) in first
    assert report.verdict_text.replace(" ", "") in first


@pdf
@needs_poppler
@pytest.mark.parametrize("name", ON_PAPER)
def test_no_page_is_blank(name: str, printed: dict[str, bytes], tmp_path: Path) -> None:
    tool("pdftoppm", "-r", "40", "-gray", "-png", str(tmp_path / "page"), data=printed[name], folder=tmp_path)
    pages = sorted(tmp_path.glob("page-*.png"))
    assert len(pages) >= 6
    for page in pages:
        shades = Image.open(io.BytesIO(page.read_bytes())).convert("L").histogram()
        assert sum(shades[:150]) > 200, page.name
        assert sum(shades[240:]) > 0.5 * sum(shades), page.name


@pdf
@needs_poppler
def test_every_font_is_embedded_and_subset(printed: dict[str, bytes], tmp_path: Path) -> None:
    lines = tool("pdffonts", data=printed["pipeline"], folder=tmp_path).splitlines()[2:]
    assert lines
    for line in lines:
        assert re.match(r"[A-Z]{6}\+", line), line
        assert line.split()[-5:-2] == ["yes", "yes", "yes"], line


@pdf
@pytest.mark.parametrize("name", ON_PAPER)
def test_pdf_gives_its_case_back(name: str, reports: dict[str, Report], printed: dict[str, bytes]) -> None:
    back = render.case_from_pdf(printed[name])
    assert back == reports[name].case
    assert planner.evaluate(planner.load_case(back)).verdict == reports[name].verdict


@pdf
def test_other_readers_see_the_same_attachment(reports: dict[str, Report], printed: dict[str, bytes]) -> None:
    pypdf = pytest.importorskip("pypdf")
    reader = pypdf.PdfReader(io.BytesIO(printed["fits"]))
    assert json.loads(reader.attachments["case.json"][0]) == reports["fits"].case
    assert reader.metadata.title == f"Capacity report: {reports['fits'].title}"
    assert reader.metadata.author == f"Headroom {planner.__version__}"
    root = reader.trailer["/Root"]
    assert root["/Lang"] == "en"
    assert root["/MarkInfo"]["/Marked"]
    assert b"pdfuaid" in root["/Metadata"].get_data()
    outline = [one.title for one in reader.outline if not isinstance(one, list)]
    assert outline == [section.title for section in reports["fits"].sections]


@pdf
def test_a_rewritten_pdf_still_gives_its_case(reports: dict[str, Report], printed: dict[str, bytes]) -> None:
    pypdf = pytest.importorskip("pypdf")
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(printed["fits"]))
    rewritten = io.BytesIO()
    writer.write(rewritten)
    assert render.case_from_pdf(rewritten.getvalue()) == reports["fits"].case


@pdf
def test_the_same_report_gives_the_same_bytes(reports: dict[str, Report], printed: dict[str, bytes]) -> None:
    assert render.pdf(reports["fits"]) == printed["fits"]


@pdf
@needs_poppler
def test_hostile_text_is_printed_as_text_and_nothing_is_amiss(
    hostile: Report, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.WARNING, logger="weasyprint"):
        data = render.pdf(hostile)
    assert [r.getMessage() for r in caplog.records] == []
    text = squeezed(tool("pdftotext", "-", data=data, folder=tmp_path))
    assert "name<script>alert(1)</script>{{7*7}}</title>" in text
    assert "model<script>alert(1)</script>{{7*7}}</title>" in text
    assert b"/JavaScript" not in data
    assert render.case_from_pdf(data) == hostile.case


@pdf
def test_nothing_is_fetched_while_printing() -> None:
    _, urls = render._weasyprint()
    fetcher = render._fetcher(urls)
    for address in ("http://127.0.0.1:9/x.png", "https://example.com/", "file:///etc/hostname", "ftp://example.com/"):
        with pytest.raises(ValueError, match="disallowed protocol"):
            fetcher.fetch(address)
    assert fetcher.fetch("data:text/plain,yes").read() == b"yes"


def test_pdf_without_pango_names_what_to_install(reports: dict[str, Report], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    with pytest.raises(MissingDependency) as told:
        render.pdf(reports["fits"])
    assert told.value.problems[0].field == "report"
    assert "libpango-1.0-0" in str(told.value.problems[0].nearest)


def stream(body: bytes, more: bytes = b"") -> bytes:
    return b"%PDF-1.7\n1 0 obj\n<</Type /EmbeddedFile" + more + b">>\nstream\n" + body + b"\nendstream\nendobj\n"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"%PDF-1.7\n%%EOF",
        b"not a pdf /EmbeddedFile",
        stream(b"{}"),
        stream(b'{"schema": "another/1"}'),
        stream(b"no flate", b" /Filter /FlateDecode"),
        stream(zlib.compress(b" " * 500_000_000, 9), b" /Filter /FlateDecode"),
        b"%PDF-1.7\n" + b"/EmbeddedFile stream " * 100_000,
        b"%PDF-1.7" + b" " * attached.MOST_REPORT_BYTES,
    ],
    ids=["empty", "no file", "no pdf", "no schema", "another", "bad flate", "bomb", "many", "large"],
)
def test_pdf_without_a_sound_case_is_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        render.case_from_pdf(data)


def test_a_case_attached_plainly_is_read(reports: dict[str, Report]) -> None:
    plain = json.dumps(reports["fits"].case).encode()
    assert render.case_from_pdf(stream(plain)) == reports["fits"].case
