"""The app in one process, without a browser: `open_app(model="40B")` is a visit by link."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.app.visit import Open, run

APP = Path(__file__).resolve().parents[2] / "app.py"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder of its own for each test: nothing was traced before, and nothing is left behind."""
    monkeypatch.setenv("HEADROOM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def open_app() -> Open:
    """Opens the app by a link with these parameters, and runs it once; no exception is ever right."""

    def visit(**link: Any) -> AppTest:
        app = AppTest.from_file(str(APP), default_timeout=30)
        app.query_params.update(link)
        return run(app)

    return visit
