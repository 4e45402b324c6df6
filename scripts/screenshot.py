"""Pictures of the running app for the README: docs/images/app-fit.png and app-largest.png.

    .venv/bin/python scripts/screenshot.py [folder] [--dark] [--width 390] [--height 900]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"app-fit.png": "", "app-largest.png": "largest"}
#: without these Chromium looks up addresses outside at every start
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
START = 60.0  # s, the longest that the server may take


@contextlib.contextmanager
def served(log: Path = Path(os.devnull)) -> Iterator[str]:
    """The real app on a free port; yields its address, ends the server afterwards, and keeps what it said."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://localhost:{port}"
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    with log.open("w") as said:
        server = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT)  # noqa: S603 our own program
        try:
            _wait(address, server)
            yield address
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait(address: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START
    while time.monotonic() < until:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/_stcore/health", timeout=2):  # noqa: S310
            return
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with {server.returncode}")
        time.sleep(0.1)
    raise TimeoutError(f"no answer from {address} within {START:.0f} s")


def settled(page: Page) -> None:
    """Wait until the run has ended and every chart has drawn."""
    page.wait_for_selector("[data-testid=stVegaLiteChart] svg, [data-testid=stVegaLiteChart] canvas", timeout=30_000)
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=30_000)
    page.wait_for_timeout(800)


def main() -> None:
    """Take the pictures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs" / "images")
    options.add_argument("--dark", action="store_true")
    options.add_argument("--full", action="store_true")
    options.add_argument("--width", type=int, default=1440)
    options.add_argument("--height", type=int, default=900)
    options.add_argument("--query", default="")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with served() as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=list(QUIET))
        page = browser.new_page(
            viewport={"width": given.width, "height": given.height}, color_scheme="dark" if given.dark else "light"
        )
        for name, where in PAGES.items():
            page.goto(f"{address}/{where}{given.query}")
            settled(page)
            page.screenshot(path=given.folder / name, full_page=given.full)
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            print(given.folder / name, f"sideways scroll: {wide} px")
        browser.close()


if __name__ == "__main__":
    main()
