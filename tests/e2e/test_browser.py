"""The app in Chromium: what only a browser shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import planner
from planner import answers
from planner.report import render
from scripts.screenshot import settled

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

FIRST = {"model": "llama-3-8b", "cluster": {"gpu": "h100-sxm", "gpus": 8}, "recipe": {"framework": "hf-transformers"}}


def fit(**recipe: Any) -> dict[str, Any]:
    """What the planner says of the first case with parts of the recipe stated."""
    return answers.fit(planner.evaluate(planner.load_case({**FIRST, "recipe": {**FIRST["recipe"], **recipe}})))


def figure(page: Page, label: str) -> str:
    """A key figure as the page shows it."""
    return page.get_by_test_id("stMetric").filter(has_text=label).get_by_test_id("stMetricValue").inner_text()


def marks(page: Page, chart: str) -> int:
    """Bars that a chart has drawn, each of some width."""
    return page.locator(f".st-key-{chart} svg .mark-rect path").evaluate_all(
        "all => all.filter(one => one.getBoundingClientRect().width > 0.3).length"
    )


def test_an_answer_is_seen_whole_and_follows_the_inputs(visit: Page, address: str) -> None:
    visit.goto(address)
    settled(visit)
    before = fit()
    expect(visit.get_by_test_id("stAlert").first).to_contain_text("Fits.")
    assert figure(visit, "Device") == f"{before['device_gib']:.1f} GiB"
    assert marks(visit, "chart_breakdown") >= len(before["breakdown_gib"])
    assert marks(visit, "chart_moments") >= len(before["moments_gib"])
    for key in ("chart_breakdown", "recipe-checkpointing"):
        box = visit.locator(f".st-key-{key}").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900, f"{key} is not seen without scrolling"

    visit.locator(".st-key-recipe-seq_len input").fill("8192")
    visit.locator(".st-key-recipe-seq_len input").press("Enter")
    after = fit(seq_len=8192)
    expect(visit.get_by_test_id("stMetricValue").first).to_have_text(f"{after['device_gib']:.1f} GiB")
    assert "recipe.seq_len=8192" in visit.url
    settled(visit)
    assert marks(visit, "chart_breakdown") >= len(after["breakdown_gib"])

    visit.locator(".st-key-recipe-checkpointing input").click()
    visit.get_by_role("option", name="full").click()
    full = fit(seq_len=8192, checkpointing="full")
    expect(visit.get_by_test_id("stMetricValue").first).to_have_text(f"{full['device_gib']:.1f} GiB")

    fresh = visit.context.new_page()
    fresh.goto(visit.url)
    settled(fresh)
    assert [figure(fresh, name) for name in ("Device", "Headroom", "Allocated")] == [
        figure(visit, name) for name in ("Device", "Headroom", "Allocated")
    ]
    fresh.close()


def test_pages_share_their_inputs_and_a_row_opens_in_full(visit: Page, address: str) -> None:
    visit.goto(f"{address}/?cluster.gpus=4&plan.tp=2")
    settled(visit)
    visit.get_by_role("link", name="Largest model").click()
    expect(visit.get_by_text("The largest model these GPUs train")).to_be_visible()
    settled(visit)
    found = answers.largest(planner.largest_model({"gpu": "h100-sxm", "gpus": 4}))["regimes"]
    assert marks(visit, "chart_largest") >= len(found)
    expect(visit.get_by_test_id("stAlert").first).to_contain_text("4 × H100")
    assert visit.locator(".st-key-cluster-gpus input").input_value() == "4"
    assert "cluster.gpus=4" in visit.url

    table = visit.get_by_test_id("stDataFrame").locator(".dvn-scroller").first
    table.click(position={"x": 33, "y": 52})  # the button of the first row, drawn on a canvas
    expect(visit.get_by_test_id("stMetric").first).to_be_visible()
    settled(visit)
    assert figure(visit, "Device") == f"{found[0]['device_gib']:.1f} GiB"
    assert "recipe.checkpointing=full" in visit.url
    visit.reload()
    settled(visit)
    assert figure(visit, "Device") == f"{found[0]['device_gib']:.1f} GiB"


def downloaded(page: Page, button: str) -> bytes:
    """What a download button gives."""
    with page.expect_download() as waiting:
        page.get_by_role("button", name=button).click()
    return Path(waiting.value.path()).read_bytes()


@pytest.mark.pdf
def test_the_case_and_the_reports_are_taken_away_and_opened_again(visit: Page, address: str, tmp_path: Path) -> None:
    visit.goto(f"{address}/?recipe.seq_len=2048&name=A+run")
    settled(visit)
    expected = fit(seq_len=2048)["device_gib"]
    case = json.loads(downloaded(visit, "Save case"))
    page = downloaded(visit, "Report (HTML)")
    pdf = downloaded(visit, "Report (PDF)")
    assert page.startswith(b"<!DOCTYPE html>")
    assert pdf.startswith(b"%PDF-")
    for tree in (case, render.case_from_html(page.decode()), render.case_from_pdf(pdf)):
        assert answers.fit(planner.evaluate(planner.load_case(tree)))["device_gib"] == expected

    (tmp_path / "report.pdf").write_bytes(pdf)
    visit.goto(address)
    settled(visit)
    assert figure(visit, "Device") != f"{expected:.1f} GiB"
    visit.get_by_text("Case file and other fields").click()
    visit.get_by_test_id("stFileUploaderDropzoneInput").set_input_files(tmp_path / "report.pdf")
    expect(visit.get_by_test_id("stMetricValue").first).to_have_text(f"{expected:.1f} GiB")
    assert "recipe.seq_len=2048" in visit.url


def test_wrong_and_hostile_input_is_shown_as_text(visit: Page, address: str, tmp_path: Path) -> None:
    visit.goto(f"{address}/?plan.tp=3&recipe.precision=%3Cimg+src%3Dhttp%3A%2F%2Fevil.example%2Fx%3E&cluster.gpus=1e999")
    expect(visit.get_by_test_id("stAlert").first).to_contain_text("<img src=http://evil.example/x>")
    expect(visit.get_by_test_id("stAlert").nth(1)).to_contain_text("not divisible by tp = 3")
    config = {"model_type": "llama", "hidden_size": "![x](http://evil.example/y.png)", "vocab_size": -1}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    visit.get_by_text("Case file and other fields").click()
    visit.get_by_test_id("stFileUploaderDropzoneInput").set_input_files(tmp_path / "config.json")
    refused = visit.get_by_test_id("stAlert").filter(has_text="could not be opened")
    expect(refused).to_contain_text("![x](http://evil.example/y.png)")
    expect(refused).to_contain_text("vocab_size")
    assert visit.locator("[data-testid=stMain] img").count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(visit: Page, address: str, theme: Any) -> None:
    visit.emulate_media(color_scheme=theme)
    visit.set_viewport_size({"width": 390, "height": 844})
    visit.goto(f"{address}/?model=llama-3-70b")
    settled(visit)
    wider = """() => [document.documentElement, ...document.querySelectorAll(
        '[data-testid=stMain], [data-testid=stAppViewContainer], [data-testid=stMainBlockContainer]')]
        .filter(one => one.scrollWidth > one.clientWidth).map(one => one.dataset.testid || one.tagName)"""
    assert visit.evaluate(wider) == []
    page = visit.get_by_test_id("stApp").evaluate("one => getComputedStyle(one).backgroundColor")
    ink = visit.locator(".st-key-chart_breakdown svg .mark-text text").first.evaluate("one => one.getAttribute('fill')")
    assert (page == "rgb(255, 255, 255)") == (theme == "light")
    assert ink.lower() == ("#222222" if theme == "light" else "#f2f2f2")
