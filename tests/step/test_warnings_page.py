"""docs/reference/warnings.md against the codes and their texts. Run as a module, this writes the page's tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner import i18n
from planner.rules import RULES
from planner.step.warn.order import order, table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "warnings.md"
LEVELS = ("danger", "caution", "note")
HEADS = {
    "en": ("| Code | What it means | What to do |", {"danger": "Danger", "caution": "Caution", "note": "Note"}),
    "zh": ("| 代码 | 含义 | 处理 |", {"danger": "危险", "caution": "注意", "note": "提示"}),
}


def shown(text: str) -> str:
    """A phrase in a table: a value by its name, in italics."""
    return re.sub(r"\{(\w+)\}", r"*\1*", text).replace("|", r"\|")


def tables(language: str) -> str:
    """The codes of each level with meaning and remedy."""
    head, levels = HEADS[language]
    said, lines = i18n.table(language), []
    for level in LEVELS:
        lines += [f"### {levels[level]}", "", head, "|---|---|---|"]
        lines += [
            f"| `{code}` | {shown(said[f'warn.{code}.meaning'])} | {shown(said[f'warn.{code}.remedy'])} |"
            for code in table()[level]
        ]
        lines.append("")
    return "\n".join(lines)


def between(page: str, language: str) -> tuple[int, int]:
    start, end = (page.index(f"<!-- {mark}{language} -->") for mark in ("", "/"))
    return start + len(f"<!-- {language} -->\n"), end


@pytest.mark.parametrize("language", sorted(HEADS))
def test_the_page_shows_every_code_as_its_texts_have_it(language: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    start, end = between(page, language)
    assert page[start:end] == tables(language)


def test_every_language_has_a_table() -> None:
    assert sorted(HEADS) == sorted(i18n.languages())


@pytest.mark.parametrize("language", sorted(HEADS))
def test_every_code_has_its_three_texts_and_no_text_is_without_a_code(language: str) -> None:
    found = {key for key in i18n.table(language) if key.startswith("warn.")}
    assert found == {f"warn.{code}.{part}" for code in order() for part in ("meaning", "because", "remedy")}
    assert len({i18n.table(language)[f"warn.{code}.meaning"] for code in order()}) == len(order())


def test_a_code_is_built_or_left_to_another_never_both() -> None:
    page = PAGE.read_text(encoding="utf-8")
    elsewhere = re.findall(r"`([a-z0-9_]+)`", page[page.index("## Codes that") :])
    assert len(elsewhere) == len(set(elsewhere)) > 60
    assert set(elsewhere).isdisjoint(order())


def test_a_rule_that_the_page_names_exists() -> None:
    page = PAGE.read_text(encoding="utf-8")
    named = re.findall(r"\*\*([a-z-]+)\*\*", page[page.index("## Codes that") :])
    assert named
    assert set(named) <= {rule.name for rule in RULES} | {"global-batch"}


def write() -> None:
    """Put the tables into the page."""
    page = PAGE.read_text(encoding="utf-8")
    for language in HEADS:
        start, end = between(page, language)
        page = page[:start] + tables(language) + page[end:]
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write()
