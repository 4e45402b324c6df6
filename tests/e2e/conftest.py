"""The real server, a real browser, and what holds of every visit: nothing asked outside, nothing in the console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page

from scripts.screenshot import served

HERE = ("localhost", "127.0.0.1")


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the server says."""
    return tmp_path_factory.mktemp("server") / "log.txt"


@pytest.fixture(scope="session")
def address(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the app is served, with a user's folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADROOM_HOME", str(tmp_path_factory.mktemp("home")))
        with served(log) as where:
            yield where


@pytest.fixture
def visit(page: Page, log: Path) -> Iterator[Page]:
    """A page that is watched: at the end nothing was asked of another machine, and no error was raised anywhere."""
    asked: list[str] = []
    errors: list[str] = []
    page.set_default_timeout(30_000)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.context.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("websocket", lambda socket: asked.append(socket.url))
    yield page
    outside = [url for url in asked if url.startswith(("http", "ws")) and urlsplit(url).hostname not in HERE]
    assert not outside
    assert not errors
    assert "Traceback" not in log.read_text(encoding="utf-8")
