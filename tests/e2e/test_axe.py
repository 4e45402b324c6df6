"""No page has an accessibility violation that axe can find, in either theme and language."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

pytestmark = pytest.mark.browser
PAGES = ("", "largest", "rules", "formulas", "evidence")
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_no_violation(page: Page, address: str, path: str, theme: str) -> None:
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.goto(f"{address}/{path}?lang={'zh' if theme == 'dark' else 'en'}")
    page.wait_for_selector('[data-testid="stSidebar"] [data-testid="stExpander"]')
    page.wait_for_function("document.querySelector('[data-testid=stApp]').dataset.testScriptState !== 'running'")
    page.wait_for_timeout(4000)  # a page that is still being drawn is pale
    found = Axe().run(page, options=RULES)
    told = [f"{v['id']}: {v['help']} {[n['target'] for n in v['nodes']][:3]}" for v in found.response["violations"]]
    assert not told, "\n".join(told)
