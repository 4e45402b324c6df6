"""The Evidence page in Chromium: a point and a row open their record, own records come and go, axe, a narrow screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from planner.evidence.rows import rows, shipped
from scripts.screenshot import settled
from tests.e2e.test_axe import RULES
from tests.evidence.samples import DENSE

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

POINTS = [row for row in rows(shipped()) if row.point]
TABS = ("Errors by part", "Fits or not", "Furthest off", "Your records")


def arrive(page: Page, address: str) -> None:
    """By the link at the top, as a visitor does."""
    page.goto(address)
    settled(page)
    page.get_by_role("link", name="Evidence").click()
    expect(page.get_by_text("How far off is the planner?")).to_be_visible()
    page.wait_for_selector(".st-key-chart_evidence svg .mark-symbol path")
    settled(page)


def dialog(page: Page) -> Locator:
    return page.get_by_role("dialog")


def violations(page: Page) -> list[str]:
    page.wait_for_timeout(1500)  # what has just come is pale
    found = Axe().run(page, options=RULES)
    return [f"{v['id']}: {v['help']} {[n['target'] for n in v['nodes']][:3]}" for v in found.response["violations"]]


def test_a_point_and_a_row_open_their_record_again_and_again(visit: Page, address: str) -> None:
    arrive(visit, address)
    points = visit.locator(".st-key-chart_evidence svg .mark-symbol path[aria-roledescription=point]")
    expect(points).to_have_count(len(POINTS))
    for _ in range(2):
        points.last.click(force=True)
        expect(dialog(visit)).to_contain_text("Source:")
        shown = dialog(visit).locator("h5").inner_text()
        assert shown in {row.id for row in POINTS}
        visit.keyboard.press("Escape")
        expect(dialog(visit)).to_have_count(0)
        settled(visit)

    table = visit.get_by_test_id("stDataFrame").locator(".dvn-scroller").first
    table.scroll_into_view_if_needed()
    table.click(position={"x": 35, "y": 52})  # the button of the first row, drawn on a canvas
    expect(dialog(visit).locator("h5")).to_have_text(POINTS[0].id)
    dialog(visit).get_by_role("tab", name="Formulas").click()
    expect(dialog(visit).get_by_test_id("stDataFrame")).to_be_visible()
    dialog(visit).get_by_role("button", name="Does it fit").click()
    expect(visit.get_by_test_id("stAlert").first).to_be_visible()
    settled(visit)
    assert "source=config" in visit.url
    expect(dialog(visit)).to_have_count(0)


def test_the_keyboard_finds_a_record(visit: Page, address: str) -> None:
    arrive(visit, address)
    box = visit.get_by_role("combobox", name="Find a record")
    box.focus()
    visit.keyboard.type("tune-flags-3b-baseline")
    expect(visit.get_by_role("option", name="tune-flags-3b-baseline")).to_be_visible()
    visit.keyboard.press("Enter")
    expect(dialog(visit)).to_contain_text("The sequences are not packed")
    assert dialog(visit).evaluate("one => one.contains(document.activeElement)")
    visit.keyboard.press("Escape")
    expect(dialog(visit)).to_have_count(0)


def test_own_records_are_read_shown_taken_away_and_forgotten(visit: Page, address: str, tmp_path: Path) -> None:
    arrive(visit, address)
    lines = [json.dumps({**DENSE, "id": "my own run"}), "<img src=http://evil.example/x>", "[1]"]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines), encoding="utf-8")
    visit.get_by_role("tab", name="Your records").click()
    place = visit.get_by_test_id("stMain").get_by_test_id("stFileUploaderDropzoneInput")
    place.set_input_files(tmp_path / "mine.jsonl")
    expect(visit.get_by_test_id("stMain")).to_contain_text("3 lines read, 2 without an answer")
    with visit.expect_download() as waiting:
        visit.get_by_role("button", name="Answers (JSONL)").click()
    answers = [json.loads(line) for line in Path(waiting.value.path()).read_text(encoding="utf-8").splitlines()]
    assert [one["status"] for one in answers] == ["ok", "skipped", "skipped"]
    visit.get_by_role("tab", name="Points").click()
    points = visit.locator(".st-key-chart_evidence svg .mark-symbol path[aria-roledescription=point]")
    expect(points).to_have_count(len(POINTS) + 1)
    points.last.click(force=True)  # what is drawn last lies on top: the visitor's own
    expect(dialog(visit).locator("h5")).to_have_text("my own run")
    assert dialog(visit).locator("a[href*='github']").count() == 0
    visit.keyboard.press("Escape")
    visit.get_by_role("tab", name="Your records").click()
    visit.get_by_role("button", name="Remove").click()
    expect(visit.get_by_text("lines read")).to_have_count(0)


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_no_violation_in_any_part(page: Page, address: str, theme: Any) -> None:
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": 1440, "height": 900})
    arrive(page, address)
    for name in TABS:
        page.get_by_role("tab", name=name).click()
        told = violations(page)
        assert not told, name + "\n" + "\n".join(told)
    page.get_by_role("tab", name="Furthest off").click()
    page.locator("[class*=st-key-apart-0] button").first.click()
    for name in ("Settings", "Assumed", "Formulas", "JSON"):
        dialog(page).get_by_role("tab", name=name).click()
        told = violations(page)
        assert not told, name + "\n" + "\n".join(told)


def test_a_phone_shows_it_without_scrolling_sideways(visit: Page, address: str) -> None:
    arrive(visit, address)
    visit.set_viewport_size({"width": 390, "height": 844})
    settled(visit)
    wider = """() => [document.documentElement, ...document.querySelectorAll(
        '[data-testid=stMain], [data-testid=stAppViewContainer], [data-testid=stMainBlockContainer]')]
        .filter(one => one.scrollWidth > one.clientWidth).map(one => one.dataset.testid || one.tagName)"""
    assert visit.evaluate(wider) == []
