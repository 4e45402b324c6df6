"""Verify with the real code in Chromium: pressed, watched, compared with the command line, and read by axe."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from planner.trace import run
from scripts.screenshot import ROOT, settled
from tests.e2e.test_axe import RULES

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(bool(run.missing()), reason="no torch or no transformers"),
]

CONFIG = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 2048, "max_position_embeddings": 512,
}  # fmt: skip
LINK = urlencode({"source": "config", "config": json.dumps(CONFIG), "cluster.gpus": 1, "recipe.seq_len": 512})
CASE = {
    "model": CONFIG, "cluster": {"gpu": "h100-sxm", "gpus": 1},
    "recipe": {"framework": "hf-transformers", "seq_len": 512},
}  # fmt: skip
#: ms, the longest that a trace of it may take on a busy machine
LONG = 90_000


def of_the_command_line(folder: Path) -> dict[str, Any]:
    """What `planner trace --json` says of the case, traced anew."""
    (folder / "case.json").write_text(json.dumps(CASE), encoding="utf-8")
    command = [sys.executable, "-m", "planner", "trace", str(folder / "case.json"), "--json", "--fresh"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def figure(page: Page, label: str) -> str:
    """A key figure as the page shows it."""
    return page.get_by_test_id("stMetric").filter(has_text=label).get_by_test_id("stMetricValue").inner_text()


def drawn(page: Page, chart: str) -> None:
    """The chart has an area and its words."""
    expect(page.locator(f".st-key-{chart} svg .mark-area path").first).to_be_visible()
    words = page.locator(f".st-key-{chart} svg .mark-text text").filter(has_text="GiB")
    expect(words.first).to_be_visible()


def violations(page: Page) -> list[str]:
    found = Axe().run(page, options=RULES)
    return [f"{v['id']}: {v['help']} {[n['target'] for n in v['nodes']][:3]}" for v in found.response["violations"]]


def test_pressed_it_answers_what_the_command_line_does(visit: Page, address: str, tmp_path: Path) -> None:
    visit.goto(f"{address}/?{LINK}")
    settled(visit)
    before = figure(visit, "Device")
    visit.get_by_role("button", name="Verify with the real code").click()
    expect(visit.get_by_test_id("stProgress")).to_be_visible()
    expect(visit.get_by_role("button", name="Cancel the trace")).to_be_visible()
    assert figure(visit, "Device") == before
    visit.wait_for_selector(".st-key-chart_trace svg", timeout=LONG)
    settled(visit)
    found = of_the_command_line(tmp_path)
    assert figure(visit, "Traced peak") == f"{found['peak_gib']:.3f} GiB"
    assert figure(visit, "Formulas") == f"{found['closed_form_gib']:.3f} GiB"
    assert figure(visit, "Difference") == f"{found['difference']:+z.2%}"
    assert figure(visit, "Reserved (replay)") == f"{found['reserved_gib']:.3f} GiB"
    assert figure(visit, "Fragmentation") == f"{found['fragmentation_gib']:.3f} GiB"
    expect(visit.get_by_test_id("stMain")).to_contain_text(found["peak_op"])
    drawn(visit, "chart_trace")
    expect(visit.get_by_test_id("stProgress")).to_have_count(0)

    visit.get_by_role("tab", name="Allocator").click()
    drawn(visit, "chart_replay")
    visit.get_by_role("radio", name="expandable").click()
    expect(visit.get_by_test_id("stMain")).to_contain_text("Allocator (expandable segments)")
    with visit.expect_download() as waiting:
        visit.get_by_role("button", name="For memory_viz").click()
    assert Path(waiting.value.path()).read_bytes().startswith(b"\x80\x04")
    with visit.expect_download() as waiting:
        visit.get_by_role("button", name="Trace (JSON)").click()
    kept = json.loads(Path(waiting.value.path()).read_bytes())
    assert kept["allocator"] == "expandable"
    same = ("peak_gib", "terms", "layers", "flops", "timeline_gib", "operations")
    assert {name: kept[name] for name in same} == {name: found[name] for name in same}


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_no_violation_in_a_result(page: Page, address: str, theme: str) -> None:
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.goto(f"{address}/?{LINK}")
    settled(page)
    if page.locator(".st-key-trace-start").count():
        page.locator(".st-key-trace-start button").click()
        page.wait_for_selector(".st-key-trace-cancel")
        page.wait_for_timeout(1500)  # what has just come is pale
        assert not violations(page), "while it runs"
    page.wait_for_selector(".st-key-chart_trace svg", timeout=LONG)
    for name in ("Against the formulas", "Allocator", "Layers", "About the trace"):
        page.get_by_role("tab", name=name).click()
        settled(page)
        page.wait_for_timeout(1500)
        told = violations(page)
        assert not told, name + "\n" + "\n".join(told)
