"""Every phrase people read, by key and language. The tables are planner/locale/<language>.toml."""

from __future__ import annotations

import functools
import string
import tomllib
from contextvars import ContextVar
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "locale"
DEFAULT = "en"
_language: ContextVar[str] = ContextVar("language", default=DEFAULT)


def languages() -> tuple[str, ...]:
    """Languages that have a table."""
    return tuple(sorted(p.stem for p in FOLDER.glob("*.toml")))


def use(language: str) -> None:
    """Speak that language from here on, in this context (a request, a command)."""
    _language.set(language if language in languages() else DEFAULT)


def current() -> str:
    """The language in use."""
    return _language.get()


@functools.cache
def table(language: str) -> dict[str, str]:
    """All phrases of a language, keys dotted."""
    return dict(_flat(tomllib.loads((FOLDER / f"{language}.toml").read_text(encoding="utf-8"))))


def _flat(tree: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in tree.items():
        found += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return found


class _Plain(string.Formatter):
    """Puts values in by name only: no attributes, no indices, so that a phrase cannot reach into an object."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        return kwargs[field_name], field_name


def t(key: str, /, **values: Any) -> str:
    """The phrase of that key in the language in use; English where it has none. Raises KeyError for no such key."""
    phrase = table(current()).get(key)
    if phrase is None:
        phrase = table(DEFAULT)[key]
    return _Plain().vformat(phrase, (), values) if values else phrase


def has(key: str) -> bool:
    """Whether there is such a phrase."""
    return key in table(DEFAULT)
