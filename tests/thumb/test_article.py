"""The audit of the founding article: all of it, in both languages, and its live figures what the text says."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from planner import article, i18n, thumb
from planner.article import Row, audit
from planner.formulas import thumb as F
from planner.quantity import FORMULAS, Formula, value_of
from planner.terms import term

ROWS = audit()
LIVE = [row for row in ROWS if row.live]
CHINESE = re.compile(r"[一-鿿]")
#: five Latin words in a row, or a full stop after a Latin word and a space: English left standing in Chinese text
ENGLISH = re.compile(r"(?:\b[A-Za-z]{2,}\b[ ,]+){4,}[A-Za-z]{2,}|[a-z]{3,}\. ")


def by_number(number: int) -> Row:
    return next(row for row in ROWS if row.number == number)


def test_every_row_is_there_once_in_order() -> None:
    assert [row.number for row in ROWS] == list(range(1, 110))


def test_the_tally() -> None:
    assert article.tally() == {"sound": 36, "approx": 32, "wrong": 41}
    assert Counter(row.verdict for row in ROWS) == article.tally()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_a_row_speaks_both_languages(row: Row) -> None:
    for language in ("en", "zh"):
        for said in (row.claim(language), row.text(language)):
            assert said.strip() == said != ""
    assert row.text("en").endswith(".")
    assert row.text("zh").endswith("。")
    assert CHINESE.search(row.claim("zh")) or "flash_attn" in row.claim("zh")
    assert CHINESE.search(row.text("zh"))
    assert not CHINESE.search(row.claim("en") + row.text("en") + row.note("en"))
    assert bool(row.note("en")) == bool(row.note("zh"))
    assert not row.note("zh") or row.note("zh").endswith("。")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_no_english_sentence_stands_in_chinese_text(row: Row) -> None:
    assert not ENGLISH.search(row.text("zh") + row.note("zh"))


def test_the_language_in_use_is_taken() -> None:
    row = by_number(15)
    assert i18n.current() == "en"
    assert row.text() == row.text("en") != row.text("zh")
    assert row.note() == row.note("en")
    assert by_number(1).note("en") == ""


@pytest.mark.parametrize("text", ["The rule is right. It holds", "这里 the rule of thumb leaves out heads 而已"])
def test_english_would_be_seen(text: str) -> None:
    assert ENGLISH.search(text)


def figures(text: str) -> set[str]:
    """The numbers in a text as written, without separators of thousands."""
    return set(re.findall(r"\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", text)))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_both_languages_give_the_same_figures(row: Row) -> None:
    """Chinese counts in 10^4 and 10^8 where English counts in millions and billions; apart from those, all agree."""
    for say in (row.text, row.note):
        en, zh = figures(say("en")), figures(say("zh"))
        gone = {n for n in en - zh if float(n) > 0 and not _in_other_counting(float(n), zh)}
        assert not gone


def _in_other_counting(value: float, others: set[str]) -> bool:
    """x billion is 10x 亿, x million is 100x 万; a share may be written out."""
    return any(float(o) in (value * 10, value * 100) for o in others)


@pytest.mark.parametrize("row", LIVE, ids=lambda row: row.number)
def test_a_live_figure_is_what_the_text_says(row: Row) -> None:
    assert row.expect is not None
    assert 0 < row.rel_tol <= 0.1
    assert row.shown() == pytest.approx(row.expect, rel=row.rel_tol)
    for language in ("en", "zh"):
        assert f"{row.expect:g}" in figures(row.text(language)), row.text(language)


@pytest.mark.parametrize("row", LIVE, ids=lambda row: row.number)
def test_a_live_figure_has_its_rows_unit(row: Row) -> None:
    found = row.figure()
    assert found is not None
    si = {"GiB": "B", "GB": "B", "1e9 param": "param", "%": "1"}
    assert found.unit == si.get(row.unit, row.unit)


def test_many_rows_are_live_and_every_live_figure_is_shown() -> None:
    assert len(LIVE) >= 40
    assert set(article.LIVE) == {row.live for row in LIVE}
    assert by_number(3).figure() is None
    assert by_number(3).shown() is None


def test_a_figure_that_is_not_known_is_refused() -> None:
    with pytest.raises(KeyError):
        article.live("no-such-figure")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_a_row_names_a_promise_of_the_article(row: Row) -> None:
    assert re.fullmatch(r"S([1-9]|1[0-8])", row.scope)
    assert re.fullmatch(r"[1-7](\.[1-4])?", row.section)


def test_every_promise_has_rows() -> None:
    assert {row.scope for row in ROWS} == {f"S{n}" for n in range(1, 19)}


# Figures in the text that no row shows live.


@pytest.mark.parametrize(
    ("number", "figure", "value"),
    [
        (2, "640", lambda: article.per_card(article.zero(0)).value / 1e9),
        (15, "24.3", lambda: article.one_layer(article.COMPOSED).saved.value / 2**30),
        (15, "29.3", lambda: article.one_layer(article.AUTOCAST).saved.value / 2**30),
        (17, "0.6", lambda: article.attention_part(article.COMPOSED, "logsumexp").value / 2**30),
        (21, "101", lambda: article.logits(32).value / 1e9),
        (37, "53", lambda: article.checkpointed(article.FUSED, 2).value / 2**30),
        (37, "76", lambda: article.checkpointed(article.FUSED, 4).value / 2**30),
        (37, "138", lambda: article.checkpointed(article.FUSED, 8).value / 2**30),
        (40, "84", lambda: article.all_layers(article.FUSED).value / 8 / 2**30),
        (41, "0.375", lambda: 45 / 120),
        (54, "80", lambda: article.per_card(article.zero(2), "weights").value / 1e9),
        (78, "96", lambda: 100 * article.adapters("qlora").value),
        (95, "61", lambda: article.all_layers(article.COMPOSED, 2).value / 2**30),
        (96, "5.9", lambda: article.logits(2).value / 2**30),
        (108, "69.8", lambda: 75e9 / 2**30),
    ],
)
def test_a_figure_in_the_text_is_the_planners(number: int, figure: str, value: object) -> None:
    assert callable(value)
    assert figure in figures(by_number(number).text("en"))
    assert figure in figures(by_number(number).text("zh"))
    assert float(value()) == pytest.approx(float(figure), rel=0.05)


def test_the_best_interval_of_each_stack() -> None:
    """The note of row 37: 2 for fused kernels and under autocast, 1 for Hugging Face code in bf16."""
    best = {}
    for name, stack in {"fused": article.FUSED, "autocast": article.AUTOCAST, "composed": article.COMPOSED}.items():
        sizes = {k: float(value_of(article.checkpointed(stack, k))) for k in (1, 2, 4, 5, 8)}
        best[name] = min(sizes, key=sizes.__getitem__)
    assert best == {"fused": 2, "autocast": 2, "composed": 1}


# Words of the rules.


RULES = thumb.table()["rule"]


@pytest.mark.parametrize("key", RULES)
def test_a_rule_has_words_in_both_languages(key: str) -> None:
    words = RULES[key]
    assert words["because_en"].endswith(".")
    assert words["because_zh"].endswith("。")
    assert words["because_en"].count(". ") == words["because_zh"].rstrip("。").count("。") == 0  # one sentence
    assert CHINESE.search(words["title_zh"])
    assert not CHINESE.search(words["title_en"] + words["because_en"])
    assert not ENGLISH.search(words["title_zh"] + words["because_zh"])
    assert words["about"] in ("cluster", "example")
    assert words["unit"] in thumb.KEYS


@pytest.mark.parametrize("key", RULES)
def test_a_rule_names_the_rows_that_judge_it(key: str) -> None:
    rows = [by_number(n) for n in RULES[key]["rows"]]
    assert rows
    assert RULES[key]["scope"] in {row.scope for row in rows}


def test_the_promised_parts_of_the_article_have_a_rule() -> None:
    assert {row["scope"] for row in RULES.values()} >= {"S1", "S2", "S3", "S4", "S5", "S6", "S9"}


def test_every_formula_of_the_rules_is_in_the_glossary() -> None:
    own = [f for f in vars(F).values() if isinstance(f, Formula)]
    assert len(own) >= 12
    for made in own:
        assert FORMULAS[made.name] is made
        assert term(made.name).unit == made.unit
        for name in (made.name, *made.parameters):
            assert CHINESE.search(term(name).zh)
