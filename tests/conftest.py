"""What every test shares: the system's Chromium for browser tests, and how Hypothesis draws."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

import pytest
from hypothesis import settings

# No deadline: a shared machine pauses now and then. Under CI the draws are the same for the same commit.
settings.register_profile("headroom", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("headroom")


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """Playwright on the system's Chromium: its own browser build is a download that many networks refuse."""
    chromium = shutil.which("chromium")
    if chromium is None and not os.environ.get("CI"):
        pytest.skip("no chromium on the path")
    return {
        **browser_type_launch_args,
        "executable_path": chromium or "/usr/bin/chromium",
        "args": [
            "--no-sandbox",  # root has no sandbox, and CI is root
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            # without these Chromium looks up addresses outside at every start
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ],
    }


@pytest.fixture(autouse=True)
def _fresh_specs() -> None:
    """Charts keep their specifications by language; a test that swaps the tables must not leave its own behind."""
    memory = sys.modules.get("planner.charts.memory")
    largest = sys.modules.get("planner.charts.largest")
    if memory is not None:
        memory._breakdown.cache_clear()
        memory._bars.cache_clear()
    if largest is not None:
        largest._spec.cache_clear()
