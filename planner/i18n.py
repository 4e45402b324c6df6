"""Every phrase people read, by key and language. The tables are planner/locale/<language>.toml.

`t` says a phrase now, in the language in use. A `Phrase` is said when it is read, so that what is kept (a model of the
catalogue, the reason beside a number, a problem on a page) speaks the language of its reader.

In a phrase, {name} puts a value in as it is; {name:number}, {name:percent} and {name:date} as the language writes it.
"""

from __future__ import annotations

import datetime
import functools
import string
import tomllib
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

FOLDER = Path(__file__).parent / "locale"
DEFAULT = "en"
_language: ContextVar[str] = ContextVar("language", default=DEFAULT)

#: spellings of a language beside its own name and its name with a region (zh-CN, zh_Hans)
_ALSO = {"cn": "zh"}


@functools.cache
def languages() -> tuple[str, ...]:
    """Languages that have a table."""
    return tuple(sorted(p.stem for p in FOLDER.glob("*.toml")))


def canonical(language: str) -> str | None:
    """The name of a language's table for what someone wrote (zh-CN, zh_CN, cn), or None."""
    first = language.strip().lower().replace("_", "-").partition("-")[0]
    found = _ALSO.get(first, first)
    return found if found in languages() else None


def use(language: str) -> None:
    """Speak that language from here on, in this context (a request, a command); English where it has no table."""
    _language.set(canonical(language) or DEFAULT)


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

    def format_field(self, value: Any, format_spec: str) -> str:
        return written(value, format_spec) if format_spec else str(value)


_PLAIN = _Plain()


def written(value: Any, kind: str) -> str:
    """A number, percent or date (as ISO text) as the language in use writes it."""
    import babel.dates  # loads for 11 ms, which most commands never need
    import babel.numbers

    match kind:
        case "number":
            return str(babel.numbers.format_decimal(value, locale=current()))
        case "percent":
            return str(babel.numbers.format_percent(value, "#,##0.0%", locale=current()))
        case "date":
            return str(babel.dates.format_date(datetime.date.fromisoformat(value), "long", locale=current()))
    raise ValueError(f"a phrase cannot write a {kind}")


def t(key: str, /, **values: Any) -> str:
    """The phrase of that key in the language in use; English where it has none. Raises KeyError for no such key."""
    text = table(current()).get(key)
    if text is None:
        text = table(DEFAULT)[key]
    return _PLAIN.vformat(text, (), values) if values else text


def has(key: str) -> bool:
    """Whether there is such a phrase."""
    return key in table(DEFAULT)


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase by its key and values, said in the language of whoever reads it; a value may be a phrase itself."""

    key: str
    values: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return t(self.key, **dict(self.values))


#: text of others, or a phrase of ours
Said = str | Phrase


def phrase(key: str, /, **values: Any) -> Phrase:
    """The phrase of that key, to be said later."""
    return Phrase(key, tuple(values.items()))


@overload
def said(text: Said) -> str: ...
@overload
def said(text: None) -> None: ...
def said(text: Said | None) -> str | None:
    """What a reader sees of a text or a phrase."""
    return None if text is None else str(text)
