"""What a visitor of the app does and sees, for its tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamlit.testing.v1 import AppTest

from planner import i18n

Open = Callable[..., AppTest]


def run(app: AppTest) -> AppTest:
    """One more run; an exception on the page fails the test with its text."""
    app.run()
    assert not app.exception, [one.value for one in app.exception]
    return app


def upload(app: AppTest, name: str, data: bytes | str) -> AppTest:
    """Opens a file in the app, as by the uploader."""
    data = data.encode("utf-8") if isinstance(data, str) else data
    app.file_uploader[0].set_value((name, data, "application/octet-stream"))
    return run(app)


def speaking(language: str, key: str, **values: Any) -> str:
    """A phrase in a language."""
    i18n.use(language)
    try:
        return i18n.t(key, **values)
    finally:
        i18n.use("en")


def metrics(app: AppTest) -> dict[str, str]:
    """The key figures by label."""
    return {one.label: one.value for one in app.metric}


def said(app: AppTest) -> str:
    """Everything that is wrong or warned of, as Markdown."""
    return "\n".join(one.value for one in [*app.error, *app.warning])
