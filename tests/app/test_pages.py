"""The pages of reference: rules of thumb with the audit, and formulas with their sources, in both languages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from planner import article, explain, i18n, reference, terms, thumb
from planner.calibration.coefficients import priors
from planner.quantity import value_of
from tests.app.visit import Open, metrics, run, said, speaking

RULES, FORMULAS = "views/rules_of_thumb.py", "views/formulas.py"
LANGUAGES = ("en", "zh")

Visit = Callable[..., AppTest]


@pytest.fixture
def visit(open_app: Open) -> Visit:
    """Opens a page in a language, with parameters of the link that belong to the page."""

    def go(where: str, language: str = "en", link: dict[str, Any] | None = None, **inputs: Any) -> AppTest:
        app = open_app(**inputs)
        app.session_state["lang"] = language
        app.switch_page(where)
        app.query_params.update(link or {})
        return run(app)

    return go


def tab(app: AppTest, page: str, name: str, language: str = "en") -> AppTest:
    """The page with one of its tabs open."""
    key = "rules" if page == RULES else "formulas"
    app.session_state[f"{key}_tab"] = speaking(language, f"page_{key}.tab.{name}")
    return run(app)


def written(app: AppTest) -> str:
    """All Markdown of the page, escapes taken out."""
    return "\n".join(one.value for one in [*app.markdown, *app.caption]).replace("\\", "")


def equations(app: AppTest) -> list[str]:
    """The equations of the page in LaTeX."""
    return [one.value.strip("$").strip() for one in app.latex]


def cells(app: AppTest) -> list[list[str]]:
    """The cells of the page's table, escapes and no-break spaces taken out."""
    plain = app.table[0].value.map(lambda cell: str(cell).replace("\\", "").replace("\N{NO-BREAK SPACE}", " "))
    return [list(row) for row in plain.itertuples(index=False)]


# Rules of thumb


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_rule_stands_beside_the_planners_answer(visit: Visit, language: str) -> None:
    app, found = visit(RULES, language), thumb.rules({"gpu": "h100-sxm", "gpus": 8})
    text = written(app)
    for one in found:
        assert one.title(language) in text
        assert one.because(language) in text
        assert f"{speaking(language, f'page_rules.verdict.{one.verdict}')} · " in text
    says = [m.value for m in app.metric if m.label == speaking(language, "page_rules.says")]
    model = [m.value for m in app.metric if m.label == speaking(language, "page_rules.model")]
    assert len(says) == len(model) == len(found)
    assert {"40B", "80B"} <= set(says)
    assert float(value_of(found[5].rule)) == 40e9
    assert float(value_of(found[6].rule)) == 80e9
    assert len([one for one in app.code if "thumb_largest" in one.value]) == 2
    assert "6.4e+11 ÷ 16" in "\n".join(one.value for one in app.code)


def test_the_rules_follow_the_cluster(visit: Visit) -> None:
    app = visit(RULES, **{"cluster.gpus": "16"})
    values = [m.value for m in app.metric if m.label == "Rule of thumb"]
    assert {"80B", "160B"} <= set(values)


def test_a_cluster_that_is_none_is_named(visit: Visit) -> None:
    app = visit(RULES, **{"cluster.gpus": "0"})
    assert "cluster.gpus" in said(app)


def test_every_rule_has_its_group(visit: Visit) -> None:
    text = written(visit(RULES))
    for name in ("states", "capacity", "activations", "checkpointing", "zero", "batch"):
        assert i18n.t(f"page_rules.group.{name}") in text


# The audit


@pytest.mark.parametrize("language", LANGUAGES)
def test_all_rows_of_the_audit_are_shown_with_their_verdicts(visit: Visit, language: str) -> None:
    app = tab(visit(RULES, language), RULES, "audit", language)
    rows = cells(app)
    assert [row[0] for row in rows] == [str(n) for n in range(1, 110)]
    for row, one in zip(rows, article.audit(), strict=True):
        assert row[1] == one.scope
        assert row[2].endswith(speaking(language, f"page_rules.verdict.{one.verdict}"))
        assert row[3] == one.claim(language)
        assert row[4].startswith(one.text(language))
        assert bool(row[5]) == bool(one.live)
    shown = metrics(app)
    for word, count in article.tally().items():
        label = next(name for name in shown if name.endswith(speaking(language, f"page_rules.verdict.{word}")))
        assert shown[label] == speaking(language, "page_rules.of", count=count, all=109)


def test_the_audit_is_filtered_by_verdict_promise_and_words(visit: Visit) -> None:
    app = tab(visit(RULES), RULES, "audit")
    app.session_state["audit_verdict"] = ["sound"]
    run(app)
    assert len(cells(app)) == article.tally()["sound"]
    app.session_state["audit_scope"] = ["S7"]
    run(app)
    expected = [str(r.number) for r in article.audit() if r.verdict == "sound" and r.scope == "S7"]
    assert [row[0] for row in cells(app)] == expected
    app.text_input(key="audit_words").set_value("nowhere in the article")
    run(app)
    assert not app.table
    assert "0 of 109 rows" in written(app)


def test_a_live_figure_of_the_audit_is_the_planners(visit: Visit) -> None:
    app = tab(visit(RULES), RULES, "audit")
    shown = {int(row[0]): row[5] for row in cells(app)}
    assert shown[5] == "160 GB"
    for one in article.audit():
        if one.unit == "GiB":
            assert shown[one.number] == f"{explain.figure(one.shown())} GiB"


# The batch law


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_batch_law_of_the_run(visit: Visit, language: str) -> None:
    app = tab(visit(RULES, language, **{"recipe.checkpointing": "full"}), RULES, "batch", language)
    law = thumb.batch_law(app.session_state["asked"].case)
    shown = metrics(app)
    model = shown[speaking(language, "page_rules.law.model")]
    assert str(int(float(value_of(law.by_model)))) in model
    notes = [one.value for one in [*app.info, *app.warning]]
    assert speaking(language, "page_rules.batch_straight" if law.one_line else "page_rules.batch_bent") in notes


def test_the_batch_law_says_where_it_cannot_answer_and_where_it_misleads(visit: Visit) -> None:
    kinds = set()
    for link in ({"model": "llama-3-8b"}, {"model": "llama-3-8b", "recipe.checkpointing": "full"},
                 {"model": "smollm2-135m", "recipe.seq_len": "128"},
                 {"model": "llama-3-8b", "recipe.seq_len": "1024", "recipe.checkpointing": "full"}):  # fmt: skip
        app = tab(visit(RULES, **link), RULES, "batch")
        law = thumb.batch_law(app.session_state["asked"].case)
        key = "flat" if law.by_rule is None else "straight" if law.one_line else "bent"
        assert i18n.t(f"page_rules.batch_{key}") in [one.value for one in [*app.info, *app.warning]]
        kinds.add(key)
    assert len(kinds) >= 2


def test_the_batch_law_of_an_impossible_run_is_refused_in_words(visit: Visit) -> None:
    app = tab(visit(RULES, **{"plan.tp": "3"}), RULES, "batch")
    assert "plan" in said(app)
    app = tab(visit(RULES, **{"recipe.global_batch": "8"}), RULES, "batch")
    assert i18n.t("page_rules.batch_refused") in said(app)


# Formulas


def chapters(app: AppTest) -> AppTest:
    """The page with every chapter open."""
    for name in reference.chapters():
        app.session_state[f"chapter-{name}"] = True
    return run(app)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_formula_appears_with_its_equation_words_and_source(visit: Visit, language: str) -> None:
    app = chapters(visit(FORMULAS, language))
    text, shown = written(app), set(equations(app))
    i18n.use(language)
    try:
        every = explain.all_formulas()
        assert len(every) == len(app.latex) >= 117
        for one in every:
            assert f"`{one.name}`" in text
            assert terms.label(one.name, language) in text
            assert reference.latex(one) in shown
            assert reference.about(one).replace("`", "") in text.replace("`", "")
            assert one.source in text
            for name in one.parameters:
                assert f"`{name}`" in text
    finally:
        i18n.use("en")


def test_a_closed_chapter_costs_nothing(visit: Visit) -> None:
    app = visit(FORMULAS)
    assert not app.latex
    app.session_state["chapter-states"] = True
    run(app)
    assert len(app.latex) == len(reference.chapters()["states"])


@pytest.mark.parametrize(("words", "name"), [("ZeRO 分片", "state_bytes"), ("rajbhandari state_bytes", "state_bytes"),
                                             ("显存 band upper", "upper_end")])  # fmt: skip
def test_a_search_finds_formulas_in_either_language(visit: Visit, words: str, name: str) -> None:
    app = visit(FORMULAS)
    app.text_input(key="formulas_words").set_value(words)
    run(app)
    assert f"`{name}`" in written(app)
    assert 0 < len(app.latex) <= 20


def test_a_search_that_finds_nothing_says_so(visit: Visit) -> None:
    app = visit(FORMULAS)
    app.text_input(key="formulas_words").set_value("<b>nothing</b>")
    run(app)
    assert not app.latex
    assert "Formulas found: 0" in written(app)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_link_opens_its_formula_first(visit: Visit, language: str) -> None:
    app = visit(FORMULAS, language, {"formula": "state_bytes"})
    assert equations(app) == [r"\text{state bytes} = \frac{P \cdot  w}{N}"]
    assert "`state_bytes`" in written(app)
    app.button(key="formula_close").click()
    run(app)
    assert not app.latex
    assert "formula" not in app.query_params


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", "__class__", "x" * 5000, "{name}", "![x](http://a.b/c)"])
def test_a_link_to_no_formula_is_refused_in_words(visit: Visit, language: str, hostile: str) -> None:
    app = visit(FORMULAS, language, {"formula": hostile})
    assert len(app.warning) == 1
    text = app.warning[0].value
    assert speaking(language, "page_formulas.refused") in text
    assert hostile[:20] in text.replace("\\", "")
    assert not re.search(r"(?<!\\)(?:<|!\[)", text)
    assert len(text) < 1000
    assert not app.latex


def test_a_misspelled_formula_is_given_its_nearest_name(visit: Visit) -> None:
    assert "state_bytes" in said(visit(FORMULAS, link={"formula": "state_byte"})).replace("\\", "")


# Glossary, coefficients, sources


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_glossary_has_both_languages(visit: Visit, language: str) -> None:
    app = tab(visit(FORMULAS, language), FORMULAS, "glossary", language)
    table = app.dataframe[0].value
    assert set(table["name"]) == set(terms.terms())
    assert (table["en"] != "").all()
    assert (table["zh"] != "").all()
    app.text_input(key="glossary_words").set_value("显存 headroom")
    run(app)
    assert list(app.dataframe[0].value["name"]) == ["headroom"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_coefficient_is_shown_with_its_spread_and_origin(visit: Visit, language: str) -> None:
    rows = cells(tab(visit(FORMULAS, language), FORMULAS, "coefficients", language))
    for row, name in zip(rows, sorted(priors()), strict=True):
        one = priors()[name]
        assert f"`{name}`" in row[0]
        assert (row[4], row[5], row[6]) == (one.valid, one.origin, one.source)
        assert "…" in row[2]
    nccl = next(row for row in rows if "`nccl`" in row[0])
    assert nccl[1:4] == ["1.4", "0.5 … 2.5", "GiB"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_source_is_listed(visit: Visit, language: str) -> None:
    app = tab(visit(FORMULAS, language), FORMULAS, "sources", language)
    text = written(app)
    for key, work in reference.works().items():
        assert f"**{key}**" in text
        assert " ".join(work["title"].split()).rstrip(".") in text
    assert {one.source for one in explain.all_formulas()} <= set(reference.works())


# The data behind them


def test_every_formula_has_its_words_in_chinese() -> None:
    assert set(reference.ABOUT_ZH) == {one.name for one in explain.all_formulas()}


def test_symbols_of_one_formula_differ() -> None:
    for one in explain.all_formulas():
        shown = list(reference.symbols(one).values())
        assert len(shown) == len(set(shown)), one.name
        assert r"\mathrm" not in reference.latex(one)


def test_nothing_is_written_as_nothing() -> None:
    shown = reference.latex(reference.formula("on_gpu"))
    assert shown.startswith(r"\text{on gpu} = \begin{cases}0 & \text{if } \text{offloaded}\\\text{size} &")
