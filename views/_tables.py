"""What the pages of reference share: rows filtered by words, figures for people, and our own text as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from planner import explain
from planner.i18n import has, t, written
from planner.quantity import Quantity, value_of
from planner.units import count_text, gib
from views._text import plain

#: a piece of text between backticks, or one outside them
_PIECES = re.compile(r"`([^`]+)`|([^`]+)")


def asked_words(key: str, label: str, placeholder: str) -> str:
    """What someone looks for, in a search box."""
    found = st.text_input(label, key=key, placeholder=placeholder, max_chars=100, type="search", live=True,
                          persist_state="session")  # fmt: skip
    return (found or "").strip()


def matching(rows: Iterable[Mapping[str, Any]], words: str) -> list[Mapping[str, Any]]:
    """Rows that have every one of these words in some cell."""
    wanted = words.lower().split()
    return [row for row in rows if all(word in " ".join(map(str, row.values())).lower() for word in wanted)]


def figure(quantity: Quantity | None) -> str:
    """A value with its unit for people: parameters as 40B, bytes in GiB."""
    if quantity is None:
        return t("page_rules.no_answer")
    value = float(value_of(quantity))
    match quantity.unit:
        case "param":
            return counted(count_text(value), "param")
        case "1":
            return written(value, "percent")
    return counted(*amount(value, quantity.unit))


def amount(value: float, unit: str) -> tuple[str, str]:
    """A value to three figures, and its unit as people read it: bytes in GiB."""
    if unit in ("B", "B/sequence"):
        return _short(gib(value)), unit.replace("B", "GiB")
    return _short(value), unit


def counted(value: str, unit: str) -> str:
    """A figure with its unit as the language writes it."""
    key = f"page_rules.unit.{unit}"
    return t(key, value=value) if has(key) else f"{value} {unit}"


def _short(value: float) -> str:
    """To three figures, without an exponent."""
    return f"{float(f'{value:.3g}'):,.12g}"


def whole(text: str) -> str:
    """A short text of ours that stays on one line."""
    return plain(text).replace(" ", "\N{NO-BREAK SPACE}")


def coded(text: str) -> str:
    """Text of our own code as Markdown: names between backticks as code, everything else as it is."""
    return "".join(f"`{code}`" if code else _kept(words) for code, words in _PIECES.findall(text))


def _kept(words: str) -> str:
    """Plain text with the spaces at its ends."""
    before, after = words[:1] == " ", words[-1:] == " "
    return f"{' ' if before else ''}{plain(words)}{' ' if after else ''}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown; cells are Markdown already."""
    columns = list(head)
    lines = [columns, ["---" for _ in columns], *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def numbers(quantity: Quantity) -> str:
    """The formula of a quantity with its names, and on the next line with its numbers; nothing where it has none."""
    made = quantity.formula
    if made is None or isinstance(made, str):
        return ""
    return f"{made.name} = {explain.expression(made)}\n= {explain.expression(made, quantity.inputs)}"
