"""Verify with the real code: what is pressed, what is shown meanwhile and afterwards, and that no process stays."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.runtime.caching import clear_session_resource_cache
from streamlit.testing.v1 import AppTest

from planner import cases, i18n
from planner.trace import answer, run, shapes
from planner.units import gib
from tests.app.visit import Open, metrics, said
from tests.app.visit import run as again
from views import _traced, _tracing

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 512, "max_position_embeddings": 512,
}  # fmt: skip
CASE = {
    "model": CONFIG, "cluster": {"gpu": "h100-sxm", "gpus": 1},
    "recipe": {"framework": "hf-transformers", "seq_len": 128},
}  # fmt: skip
LINK = {"source": "config", "config": json.dumps(CONFIG), "cluster.gpus": "1", "recipe.seq_len": "128"}
#: s, the longest that a trace of it may take on a busy machine
LONG = 90

needs_torch = pytest.mark.skipif(bool(run.missing()), reason="no torch or no transformers")


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    _tracing._answer.clear()
    yield
    clear_session_resource_cache("test session id")
    i18n.use(i18n.DEFAULT)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder in which the case was traced before."""
    folder = tmp_path_factory.mktemp("traced")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADROOM_HOME", str(folder))
        run.trace(answer.question(CASE).request())
    return folder


@pytest.fixture
def known(traced: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The case was traced; what the command line says of it."""
    monkeypatch.setenv("HEADROOM_HOME", str(traced))
    asked = answer.question(CASE)
    return shapes.as_json(answer.trace(asked, answer.mode_of(asked.case, None)))


def text(app: AppTest) -> str:
    """All that is written on the page, as text."""
    parts = [*app.markdown, *app.caption, *app.info, *app.error, *app.warning, *app.success]
    return "\n".join(str(one.value) for one in parts).replace("\\", "")


def press(app: AppTest, key: str = "trace-start") -> AppTest:
    app.button(key=key).click()
    return again(app)


def pid(app: AppTest) -> int:
    """The worker's number while it is at work."""
    running = app.session_state["tracing"].running
    assert running is not None
    return int(running._process.pid)


def gone(number: int) -> bool:
    """Whether a process has ended and left the table."""
    return not Path(f"/proc/{number}").exists()


def waited(app: AppTest) -> AppTest:
    """The page once the worker is done, asked as the page asks."""
    until = time.monotonic() + LONG
    while app.session_state["tracing"].running is not None:
        assert time.monotonic() < until
        time.sleep(0.3)
        again(app)
    return app


def tab(app: AppTest, name: str) -> AppTest:
    app.session_state["trace-tabs"] = i18n.t(f"app.trace.tab.{name}")
    return again(app)


@needs_torch
def test_pressed_it_traces_and_shows_the_figures_of_the_command_line(open_app: Open) -> None:
    app = open_app(**LINK)
    before = metrics(app)
    assert app.button(key="trace-start").label == "Verify with the real code"
    assert app.session_state["tracing"].running is None
    press(app)
    worker = pid(app)
    assert app.get("progress")
    assert metrics(app) == before, "the answer of the formulas stays"
    waited(app)
    assert gone(worker)
    found, shown = expected(), metrics(app)
    assert shown["Traced peak"] == f"{found['peak_gib']:.3f} GiB"
    assert shown["Formulas"] == f"{found['closed_form_gib']:.3f} GiB"
    assert shown["Difference"] == f"{found['difference']:+.2%}"
    assert shown["Reserved (replay)"] == f"{found['reserved_gib']:.3f} GiB"
    assert shown["On the card"] == "Fits"
    assert {name: shown[name] for name in before} == before
    assert found["peak_op"] in text(app)
    assert i18n.t("trace.show.cached") not in text(tab(app, "about"))


def expected() -> dict[str, Any]:
    """The command line's answer for the case, from the cache that the page has filled."""
    asked = answer.question(CASE)
    found = run.recall(asked.request())
    assert found is not None
    return shapes.as_json(answer.answer(asked, found, asked.case.recipe.allocator, None))


@needs_torch
def test_what_was_traced_before_is_there_at_once(open_app: Open, known: dict[str, Any]) -> None:
    app = open_app(**LINK)
    assert metrics(app)["Traced peak"] == f"{known['peak_gib']:.3f} GiB"
    assert app.session_state["tracing"].running is None
    assert len(app.get("vega_lite_chart")) == 3
    terms = app.dataframe[1].value
    assert list(terms["traced"].iloc[:-1]) == [one["traced_gib"] for one in known["terms"]]
    assert list(terms["formula"].iloc[:-1]) == [one["closed_form_gib"] for one in known["terms"]]
    assert terms["traced"].iloc[-1] == known["peak_gib"]
    assert i18n.t("trace.show.cached") in text(tab(app, "about"))
    assert list(app.dataframe[1].value["flops"]) == list(known["flops"].values())


@needs_torch
@pytest.mark.usefixtures("known")
def test_equal_layers_stand_in_one_row(open_app: Open) -> None:
    table = tab(open_app(**LINK), "layers").dataframe[1].value
    assert list(table["layer"]) == ["model.layers.0 … 1", "outside the layers"]
    assert table["params"].iloc[0] == 41088
    assert (table[["weights_gib", "gradients_gib", "optimizer_states_gib", "saved_gib"]] > 0).all().all()


@needs_torch
@pytest.mark.usefixtures("known")
def test_the_allocator_is_replayed_in_either_mode_without_a_new_trace(open_app: Open) -> None:
    app = tab(open_app(**LINK), "replay")
    native = metrics(app)["Reserved (replay)"]
    assert "native" in text(app)
    app.get_by_key("trace-segments-native").set_value("expandable")
    again(app)
    asked = answer.question(CASE)
    found = run.recall(asked.request())
    assert found is not None
    played = answer.answer(asked, found, "expandable", None).replay
    assert played is not None
    assert metrics(app)["Reserved (replay)"] == f"{gib(played.max_reserved):.3f} GiB" != native
    assert app.session_state["tracing"].running is None


@needs_torch
@pytest.mark.usefixtures("known")
def test_what_the_card_cannot_hold_is_named(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tracing, "room", lambda case: 34 * 2**20)
    app = tab(open_app(**LINK), "replay")
    assert metrics(app)["On the card"] == "Does not fit"
    assert "out of memory. aten." in text(app)


@needs_torch
@pytest.mark.usefixtures("known")
def test_a_trace_is_shown_for_its_own_case_only(open_app: Open) -> None:
    app = open_app(**LINK)
    assert "Traced peak" in metrics(app)
    app.number_input(key="recipe.seq_len").set_value(64)
    again(app)
    assert "Traced peak" not in metrics(app)
    assert app.button(key="trace-start")
    app.number_input(key="recipe.seq_len").set_value(128)
    assert "Traced peak" in metrics(again(app))


@needs_torch
def test_the_trace_speaks_chinese(open_app: Open, known: dict[str, Any]) -> None:
    app = open_app(lang="zh", **LINK)
    assert metrics(app)["追踪峰值"] == f"{known['peak_gib']:.3f} GiB"
    assert "追踪结果：每卡已分配" in text(app)
    i18n.use("zh")
    for name in ("replay", "layers", "about"):
        tab(app, name)
    app = open_app(lang="zh", **{"plan.pp": "2"})
    assert i18n.t("app.trace.cannot") in text(app)
    assert app.button(key="trace-start").label == "用真实代码验证"


# Ended and refused


@needs_torch
def test_cancelled_it_leaves_no_process(open_app: Open) -> None:
    app = press(open_app(**LINK))
    worker = pid(app)
    assert not gone(worker)
    press(app, "trace-cancel")
    assert gone(worker)
    assert i18n.t("app.trace.cancelled") in text(app)
    assert app.button(key="trace-start")
    assert "Traced peak" not in metrics(app)


@needs_torch
def test_a_session_that_ends_leaves_no_process(open_app: Open) -> None:
    worker = pid(press(open_app(**LINK)))
    clear_session_resource_cache("test session id")  # what Streamlit does when the browser leaves
    assert gone(worker)


@needs_torch
def test_a_trace_of_other_inputs_says_so_and_gives_way(open_app: Open) -> None:
    app = press(open_app(**LINK))
    first = pid(app)
    app.number_input(key="recipe.seq_len").set_value(64)
    again(app)
    assert pid(app) == first
    assert "other inputs" in app.get("progress")[0].proto.text
    assert "Traced peak" not in metrics(app)
    assert app.button(key="trace-start").label == i18n.t("app.trace.instead")
    app.number_input(key="plan.tp").set_value(3)
    again(app)
    assert app.error, "not a case at all"
    assert app.button(key="trace-cancel")
    app.number_input(key="plan.tp").set_value(None)
    press(again(app))
    assert gone(first)
    assert not gone(pid(app))
    press(app, "trace-cancel")


@pytest.mark.parametrize(
    ("link", "reasons"),
    [
        ({"plan.pp": "2"}, ("pipeline stages are not cut", "Nearest valid value: 1")),
        ({"recipe.framework": "deepspeed", "plan.offload.optimizer": "cpu"}, ("engine of DeepSpeed", "host memory")),
        ({"recipe.optimizer": "adamw8bit"}, ("not an optimizer of torch's own", "adamw")),
    ],
)
def test_what_cannot_be_traced_says_why(open_app: Open, link: dict[str, str], reasons: tuple[str, ...]) -> None:
    app = open_app(**link)
    assert app.button(key="trace-start").disabled
    assert metrics(app)["Device"]
    for reason in reasons:
        assert reason in text(app).replace("**", "")


def test_a_missing_library_is_named_with_the_line_that_installs_it(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "missing", lambda: ["transformers"])
    app = open_app(**LINK)
    assert app.button(key="trace-start").disabled
    assert "transformers" in text(app)
    assert str(run.install()) in text(app)


@pytest.mark.parametrize("worker", ["planner.trace.no_such_worker"])
def test_a_worker_that_dies_says_so_and_the_answer_stays(
    open_app: Open, monkeypatch: pytest.MonkeyPatch, worker: str
) -> None:
    monkeypatch.setattr(run, "missing", list)
    monkeypatch.setattr(run, "_WORKER", worker)
    app = open_app(**LINK)
    before = metrics(app)
    waited(press(app))
    assert i18n.t("app.trace.failed") in said(app)
    assert "no_such_worker" in text(app)
    assert i18n.t("trace.estimate-stays") in text(app)
    assert metrics(app) == before
    assert app.button(key="trace-start").label == i18n.t("app.trace.button")


def test_no_page_reaches_a_users_own_module(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    class Never(run.Running):
        def __init__(self, request: dict[str, Any]):
            asked.append(request)
            raise run.TraceFailed(run.Problem("trace", "no"))

    monkeypatch.setattr(run, "missing", list)
    monkeypatch.setattr(run, "Running", Never)
    hostile = {**CONFIG, "module": "os:system", "code": "module", "auto_map": {"AutoConfig": "evil.C"}}
    press(open_app(**{**LINK, "config": json.dumps(hostile)}))
    (request,) = asked
    assert set(request["model"]) == {"code", "config"}
    assert request["model"]["code"] == "transformers"
    for line in ("module = os:system", "model.module = os:system", "model = os:system"):
        app = open_app(**{**LINK, "set": line})
        if "trace-start" in {one.key for one in app.button} and not app.button(key="trace-start").disabled:
            press(app)
    assert all("module" not in one["model"] for one in asked)


# What is taken away


@needs_torch
@pytest.mark.usefixtures("known")
def test_the_downloads_are_the_command_lines(open_app: Open) -> None:
    open_app(**LINK)
    case = cases.case(CASE, files=False)
    asked = answer.Question(case)
    found = run.recall(asked.request())
    assert found is not None
    traced = answer.answer(asked, found, "native", answer.room(case))
    assert json.loads(_traced._figures_file(traced, "en")()) == shapes.as_json(traced)
    assert _traced._snapshot(traced)().startswith(b"\x80\x04")
