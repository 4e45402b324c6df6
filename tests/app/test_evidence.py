"""The Evidence page: the command's figures, filters, one record in full, and a visitor's own records."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import planner
from planner import cases, i18n
from planner.evidence import table
from planner.evidence.accuracy import Accuracy, accuracy
from planner.evidence.disagreements import reason
from planner.evidence.predict import answer, predict
from planner.evidence.records import Line
from planner.evidence.rows import Row, rows, shipped
from planner.units import gib
from tests.app.visit import Open, metrics, run, said, speaking
from tests.evidence.samples import DENSE
from views import _fields

ROOT = Path(__file__).resolve().parents[2]
PAGE = "views/evidence.py"
LANGUAGES = ("en", "zh")
LINES: list[Line] = list(shipped())
ROWS: list[Row] = list(rows(LINES))
Visit = Callable[..., AppTest]


@pytest.fixture
def visit(open_app: Open) -> Visit:
    """Opens the page in a language, on one of its tabs."""

    def go(tab: str = "points", language: str = "en", **state: Any) -> AppTest:
        app = open_app()
        app.session_state["lang"] = language
        app.session_state["evidence_tab"] = speaking(language, f"page_evidence.tab.{tab}")
        for key, value in state.items():
            app.session_state[key] = value
        app.switch_page(PAGE)
        return run(app)

    return go


def written(app: AppTest) -> str:
    """All Markdown of the page, escapes taken out."""
    return "\n".join(one.value for one in [*app.markdown, *app.caption, *app.info]).replace("\\", "")


def figures(found: Accuracy, language: str = "en") -> dict[str, str]:
    """The headline figures that the page must show, from the command's answer."""
    told = table.as_json(found)["memory"]
    shown = {
        "coverage": f"{told['coverage']:.1%}", "error": f"{told['mape']:.1%}", "bias": f"{told['bias']:+.1%}",
        "by_repository": f"{told['mape_by_repository']:.1%}", "p90": f"{told['p90']:.1%}",
        "band": f"{told['band_coverage']:.0%}", "half_width": f"± {told['half_width']:.0%}",
        "rows": f"{told['n']} / {told['groups']}",
    }  # fmt: skip
    return {speaking(language, f"page_evidence.number.{name}"): value for name, value in shown.items()}


def cells(app: AppTest, place: int = 0) -> list[list[str]]:
    return [[str(cell).replace("\\", "") for cell in row] for row in app.table[place].value.itertuples(index=False)]


# Ours


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_figures_are_those_of_the_command(visit: Visit, language: str) -> None:
    app = visit(language=language)
    assert figures(accuracy(ROWS), language).items() <= metrics(app).items()
    text = written(app)
    assert "1,062" in text
    assert speaking(language, "page_evidence.groups") in text
    assert app.get("vega_lite_chart")
    assert len(app.dataframe[0].value) == sum(row.point for row in ROWS)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("tab", ["points", "split", "frontier", "apart", "own"])
def test_every_tab_is_there_in_both_languages(visit: Visit, tab: str, language: str) -> None:
    app = visit(tab, language)
    assert len(written(app)) > {"en": 400, "zh": 200}[language]


@pytest.mark.parametrize("column", ["framework", "kind", "gpu", "metric"])
def test_the_table_is_what_the_command_prints(visit: Visit, column: str) -> None:
    app = visit("split", ours_by=column)
    found = accuracy(ROWS)
    assert found.errors is not None
    expected = [*table.rows_of(found.splits[column]), *table.rows_of({"all": found.errors})]
    assert cells(app) == [list(row) for row in expected]


def test_filters_change_the_figures(visit: Visit) -> None:
    app = visit()
    app.multiselect(key="evidence_framework").set_value(["torchtitan", "megatron-lm"])
    app.multiselect(key="evidence_metric").set_value(["max_reserved"])
    run(app)
    kept = [r for r in ROWS if r.framework in ("torchtitan", "megatron-lm")]
    expected = accuracy([r for r in kept if r.metric in ("max_reserved", "fits", "oom")])
    assert figures(expected).items() <= metrics(app).items()
    assert set(app.dataframe[0].value["framework"]) == {"torchtitan", "megatron-lm"}
    assert set(app.dataframe[0].value["metric"]) == {"max_reserved"}
    app.multiselect(key="evidence_gpu").set_value(["a10g"])
    run(app)
    assert i18n.t("page_evidence.no_points") in written(app)
    assert not app.get("vega_lite_chart")


def test_what_no_error_counts_is_drawn_when_asked_for_and_enters_no_figure(visit: Visit) -> None:
    app = visit()
    before, shown = metrics(app), len(app.dataframe[0].value)
    app.toggle(key="evidence_pale").set_value(True)
    run(app)
    assert metrics(app) == before
    assert len(app.dataframe[0].value) > shown + 100


def test_the_frontier_has_both_errors_and_the_edge(visit: Visit) -> None:
    app, found = visit("frontier"), accuracy(ROWS)
    told = table.as_json(found)["memory"]
    fits, untuned, oom = cells(app)
    assert fits[1:] == [str(told["n_fits"]), f"{1 - told['opposite_fits'] - told['edge_fits']:.1%}",
                        f"{told['edge_fits']:.1%}", f"{told['opposite_fits']:.1%}"]  # fmt: skip
    assert untuned[1] == str(told["n_fits_untuned"])
    assert (oom[1], oom[3], oom[4]) == (
        str(told["n_oom"]), f"{told['edge_oom']:.1%}", f"{told['opposite_oom']:.1%}",
    )  # fmt: skip
    wrong = app.dataframe[0].value
    assert len(wrong) == round(told["opposite_fits"] * told["n_fits"] + told["opposite_oom"] * told["n_oom"])
    assert wrong["measured"].isna().all(), "the size of a card is no measurement"


# What lies furthest off


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_lies_furthest_off_has_its_reason_or_says_that_none_is_written(visit: Visit, language: str) -> None:
    app = visit("apart", language)
    worst = sorted((r for r in ROWS if r.point), key=lambda r: -abs(r.error))[:40]
    i18n.use(language)
    expected = {reason(r) or i18n.t("page_evidence.no_reason") for r in worst}
    i18n.use("en")
    text = written(app)
    assert all(one in text for one in expected)
    labels = [one.label.replace("\\", "") for one in app.button]
    assert [label for label in labels if label.startswith(worst[0].id)] == [f"{worst[0].id} ({worst[0].error:+.0%})"]
    assert sum(label.endswith("%)") for label in labels) == 40


def test_a_button_there_opens_the_record(visit: Visit) -> None:
    app = visit("apart")
    button = next(one for one in app.button if one.label.endswith("%)"))
    button.click()
    run(app)
    assert app.session_state["evidence_open"] == f"ours:{str(button.key).split('-', 2)[2]}"
    assert i18n.t("page_evidence.record_number.measured") in metrics(app)


# One record


def a_point() -> tuple[Row, dict[str, Any]]:
    row = next(r for r in ROWS if r.point and r.framework == "torchtitan" and not r.inside)
    return row, next(one.record for one in LINES if one.record and one.record["id"] == row.id)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_record_shows_its_source_figures_and_reason(visit: Visit, language: str) -> None:
    row, record = a_point()
    app = visit(language=language, evidence_open=f"ours:{row.id}")
    text, shown, source = written(app), metrics(app), record["source"]
    for part in (source["repo_or_url"], source["path"], source["date_or_commit"]):
        assert part in text
    found = predict(record)
    assert shown[speaking(language, "page_evidence.record_number.measured")] == f"{gib(row.measured or 0):.2f} GiB"
    assert shown[speaking(language, "page_evidence.record_number.predicted")] == f"{gib(found.value):.2f} GiB"
    assert shown[speaking(language, "page_evidence.record_number.range")] == (
        f"{gib(found.low):.2f} … {gib(found.high):.2f} GiB"
    )
    assert shown[speaking(language, "page_evidence.record_number.off")] == f"{row.error:+.1%}"
    assert speaking(language, "page_evidence.outside") in text
    assert str(record["arch"]["hidden_size"]) in text


def opened(app: AppTest, tab: str) -> AppTest:
    app.session_state["evidence_record_tab"] = i18n.t(f"page_evidence.record_tab.{tab}")
    return run(app)


def test_a_record_shows_what_was_assumed_and_its_chain(visit: Visit) -> None:
    row, record = a_point()
    app = visit(evidence_open=f"ours:{row.id}")
    text = written(opened(app, "assumed"))
    found = predict(record)
    assert found.expressed.case.assumed
    assert all(line in text for line in found.expressed.case.assumed)
    opened(app, "chain")
    assert app.selectbox(key="chain").value == found.metric
    chain = app.dataframe[-1].value
    assert chain["quantity"].iloc[0] == found.metric
    assert chain["value"].iloc[0] == f"{gib(found.value):,.3f} GiB"
    opened(app, "record")
    assert json.loads(app.json[0].value) == record


def test_a_record_opens_on_the_fit_page_with_its_own_memory() -> None:
    _, record = a_point()
    found = predict(record)
    shown = cases.case(_fields.raw(_fields.filled(found.expressed.form)), files=False)
    assert planner.evaluate(shown).memory.device.value == found.worst.device.value


def test_a_record_without_an_answer_says_why(visit: Visit) -> None:
    row = next(r for r in ROWS if r.problem is not None)
    app = visit(evidence_open=f"ours:{row.id}")
    assert i18n.t("page_evidence.no_answer") in said(app)


def test_a_run_that_did_not_fit_shows_what_came_of_it(visit: Visit) -> None:
    row = next(r for r in ROWS if r.metric == "oom" and r.predicted)
    shown = metrics(visit(evidence_open=f"ours:{row.id}"))
    assert shown["Measured"] == i18n.t("page_evidence.came.oom")
    assert shown["Error"] == i18n.t("page_evidence.nothing")


@pytest.mark.parametrize("key", ["ours:nobody", "own:3"])
def test_a_record_that_is_gone_opens_nothing(visit: Visit, key: str) -> None:
    app = visit(evidence_open=key)
    assert app.session_state["evidence_open"] is None


def test_the_search_box_opens_a_record(visit: Visit) -> None:
    row, _ = a_point()
    app = visit()
    app.selectbox(key="evidence_search_0").set_value(f"ours:{row.id}")
    run(app)
    assert app.session_state["evidence_open"] == f"ours:{row.id}"


# Own records


def uploaded(app: AppTest, data: bytes) -> AppTest:
    box = next(one for one in app.file_uploader if str(one.key).startswith("evidence-upload"))
    box.set_value(("mine.jsonl", data, "application/jsonl"))
    return run(app)


HOSTILE = {**DENSE, "id": "![x](http://evil.example/y.png) <b>", "framework": "| a | b |", "gpu": "`h100-sxm`"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_own_records_are_answered_and_broken_lines_told(visit: Visit, language: str) -> None:
    some = [line.record for line in LINES if line.record][::50]
    texts = [json.dumps(one).encode() for one in [*some, HOSTILE]]
    data = b"\n".join([*texts[:-1], b"nonsense", b"[1]", texts[-1]])
    app = uploaded(visit("own", language), data)
    own = app.session_state["evidence_own"]
    assert own.ended
    refused = app.dataframe[0].value
    lines = list(refused["line"])
    assert len(some) + 1 in lines
    assert len(some) + 2 in lines
    assert all(refused["reason"])
    expected = accuracy(own.rows.values())
    assert figures(expected, language)[speaking(language, "page_evidence.number.error")] in [
        m.value for m in app.metric
    ]
    assert len(app.dataframe[1].value) == len(some) + 1
    answers = [json.loads(line) for line in own.answers().splitlines()]
    i18n.use(language)
    assert answers[0] == answer(Line(1, some[0]))
    i18n.use("en")
    assert len(answers) == len(some) + 3


def test_own_records_stand_beside_ours_and_open(visit: Visit) -> None:
    app = uploaded(visit("own"), json.dumps({**DENSE, "id": "mine"}).encode())
    app.session_state["evidence_tab"] = i18n.t("page_evidence.tab.points")
    run(app)
    assert app.dataframe[0].value["id"].iloc[0] == "mine"
    app.session_state["evidence_open"] = "own:1"
    run(app)
    assert "mine" in written(app)
    assert "](http" not in "\n".join(one.value for one in app.markdown if "Source" in one.value), "no link to theirs"


@pytest.mark.parametrize("data", [b"", b"\x00\xff\xfe", b"{" * 50_000, b"null\n" * 20, json.dumps(HOSTILE).encode()])
def test_what_is_no_file_of_records_breaks_nothing(visit: Visit, data: bytes) -> None:
    app = uploaded(visit("own"), data)
    assert app.session_state["evidence_own"].ended
    assert metrics(app)
    app.session_state["evidence_open"] = "own:1"
    run(app)


def test_own_records_are_forgotten_when_removed(visit: Visit) -> None:
    app = uploaded(visit("own"), json.dumps(DENSE).encode())
    app.button(key="evidence_remove").click()
    run(app)
    assert app.session_state["evidence_own"] is None


def test_a_long_file_leaves_the_page_usable_and_can_be_stopped(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    from views import _evidence_own

    monkeypatch.setattr(_evidence_own, "SLICE", 0.02)
    app = uploaded(visit("own"), b"\n".join([json.dumps(DENSE).encode()] * 3000))
    own = app.session_state["evidence_own"]
    assert not own.ended
    assert figures(accuracy(ROWS)).items() <= metrics(app).items()
    app.button(key="evidence_stop").click()
    run(app)
    assert own.stopped
    assert i18n.t("page_evidence.own.stopped", lines=own.done) in said(app)


def test_the_server_takes_what_the_uploader_promises() -> None:
    from views import _evidence_own, _files

    told = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert told["server"]["maxUploadSize"] >= _evidence_own.MOST > _files.MOST
