"""A report as one HTML file and as a PDF, with the case inside both. Nothing is fetched from anywhere."""

from __future__ import annotations

import base64
import contextvars
import datetime
import hashlib
import re
from typing import Any

import jinja2
from markupsafe import Markup

from planner import i18n, paths
from planner.charts import largest, memory, theme
from planner.errors import MissingDependency, Problem
from planner.i18n import phrase
from planner.report import attached
from planner.report.document import Picture, Report

PANGO = "apt-get install -y --no-install-recommends libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0"

case_from_html = attached.from_html
case_from_pdf = attached.from_pdf


def html(report: Report) -> str:
    """The report as one HTML file: style, charts and case are in it."""
    return contextvars.copy_context().run(_html, report)


def _html(report: Report) -> str:
    i18n.use(report.language)
    loader = jinja2.FileSystemLoader(paths.templates() / "report")
    around = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    around.globals.update(t=i18n.t, picture=lambda block: _picture(report, block))
    page = around.get_template("report.html.j2").render(
        report=report,
        style=Markup(_style(report.language)),  # noqa: S704 our own files
        case=Markup(attached.element(report.case)),  # noqa: S704 holds no sign that HTML knows
    )
    return attached.encodable(page)


def _style(language: str) -> str:
    """The style sheet, with what a language sets otherwise."""
    found = [paths.assets() / "report.css", paths.assets() / f"report-{language}.css"]
    return "\n".join(path.read_text(encoding="utf-8") for path in found if path.is_file())


def _picture(report: Report, block: Picture) -> str:
    """A chart as an address that holds the SVG itself."""
    if block.chart == "largest":
        svg = theme.svg(largest.spec(), largest.rows(report.largest or {"regimes": []}))
    else:
        spec, rows = getattr(memory, f"{block.chart}_spec"), getattr(memory, f"{block.chart}_rows")
        svg = theme.svg(spec(), rows(report.fit))
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode("utf-8")).decode("ascii")


def pdf(report: Report) -> bytes:
    """The report as a tagged PDF (PDF/UA-1), the case attached as case.json. The same report gives the same bytes."""
    weasyprint, urls = _weasyprint()
    page = html(report)
    made = datetime.datetime.fromisoformat(report.date).replace(tzinfo=datetime.UTC)
    case = weasyprint.Attachment(
        string=attached.text(report.case), name=attached.NAME,
        description=i18n.t("report.file.attachment"), created=made, modified=made, relationship="Data",
    )  # fmt: skip
    written = weasyprint.HTML(string=page, url_fetcher=_fetcher(urls)).write_pdf(
        attachments=[case],
        **_fonts(weasyprint, urls, page),
        pdf_variant="pdf/ua-1",
        pdf_identifier=hashlib.sha256(page.encode("utf-8")).hexdigest()[:32].encode("ascii"),
    )
    return bytes(written)


def _fetcher(urls: Any) -> Any:
    """Refuses every address but those that hold their own data."""
    return urls.URLFetcher(allowed_protocols=("data",), allow_redirects=False)


#: Chinese characters and punctuation, and the forms of full width
_HAN = re.compile("[\u2e80-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef]")
STYLES = {"Regular": 400, "Bold": 700}


def _fonts(weasyprint: Any, urls: Any, page: str) -> dict[str, Any]:
    """Our own fonts for a page with Chinese in it; without them the system's would be taken, often Japanese ones."""
    if not _HAN.search(page):
        return {}
    from weasyprint.text.fonts import FontConfiguration

    known = FontConfiguration()
    sheet = weasyprint.CSS(string=_faces(), url_fetcher=_own_fonts(urls), font_config=known)
    return {"stylesheets": [sheet], "font_config": known}


def _faces() -> str:
    """The style sheet that names the files of assets/fonts; a text that is not Chinese takes them last."""
    folder = (paths.assets() / "fonts").as_uri()
    named = "@font-face {{ font-family: 'Noto Sans SC'; font-weight: {}; src: url({}/NotoSansSC-{}.ttf) }}"
    faces = [named.format(weight, folder, style) for style, weight in STYLES.items()]
    last = ':lang(en) body { font-family: "DejaVu Sans", Verdana, "Noto Sans SC", sans-serif }'
    return "\n".join([*faces, last])


def _own_fonts(urls: Any) -> Any:
    """Hands out the files of assets/fonts and refuses every other address."""
    allowed = {(paths.assets() / "fonts" / f"NotoSansSC-{style}.ttf").as_uri() for style in STYLES}

    class Own(urls.URLFetcher):  # type: ignore[misc]
        def fetch(self, url: str, headers: Any = None) -> Any:
            if url not in allowed:
                raise ValueError(f"{url} is no font of ours")
            return super().fetch(url, headers)

    return Own(allowed_protocols=("file",), allow_redirects=False)


def _weasyprint() -> tuple[Any, Any]:
    try:
        import weasyprint
        from weasyprint import urls
    except (ImportError, OSError) as error:
        lacking = phrase("problem.report.pango", error=str(error).splitlines()[0])
        raise MissingDependency(Problem("report", lacking, PANGO)) from None
    return weasyprint, urls
