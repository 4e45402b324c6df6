"""The app's pages run and answer what the planner answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import planner
from planner import answers, explain, i18n
from planner.search.largest import regimes
from tests.app.visit import Open, metrics, run, said
from views import _families, _fields

PAGES = ("views/fit.py", "views/largest.py")
FIRST = {"model": "llama-3-8b", "cluster": {"gpu": "h100-sxm", "gpus": 8}, "recipe": {"framework": "hf-transformers"}}


def fit(**changes: Any) -> dict[str, Any]:
    """What the planner says of the first case with some dotted fields stated otherwise."""
    return answers.fit(planner.evaluate(planner.load_case(_fields.merged(FIRST, changes), files=False)))


def device_row(app: AppTest) -> float:
    """The sum in the breakdown's table, to the last digit."""
    table = app.dataframe[0].value
    return float(table["value_gib"].iloc[-1])


def tab(app: AppTest, name: str) -> AppTest:
    """The page with one of its tabs open."""
    app.session_state["details"] = i18n.t(f"app.tab.{name}")
    return run(app)


@pytest.mark.parametrize("where", PAGES)
def test_every_page_runs(open_app: Open, where: str) -> None:
    app = open_app()
    app.switch_page(where)
    run(app)
    assert app.dataframe


def test_the_first_visit_shows_what_the_planner_says(open_app: Open) -> None:
    app, expected = open_app(), fit()
    shown = metrics(app)
    assert shown["Device"] == f"{expected['device_gib']:.1f} GiB"
    assert shown["Headroom"] == f"{expected['headroom_gib']:.1f} GiB"
    assert shown["Allocated"] == f"{expected['allocated_gib']:.1f} GiB"
    assert shown["Reserved"] == f"{expected['reserved_gib']:.1f} GiB"
    assert shown["Parameters"] == "8.03B"
    assert shown["Step time"] == shown["Cost"] == "open"
    assert device_row(app) == expected["device_gib"]
    assert "**Fits.**" in app.success[0].value
    assert i18n.t("phase." + expected["peak_phase"]) in app.success[0].value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("recipe.seq_len", 8192),
        ("plan.micro_batch", 2),
        ("recipe.checkpointing", "full"),
        ("recipe.precision", "bf16-pure"),
        ("recipe.optimizer", "adamw8bit"),
        ("recipe.attention", "eager"),
        ("recipe.loss", "chunked-linear-ce"),
        ("recipe.task", "lora"),
        ("plan.data_parallel", "ddp"),
        ("plan.tp", 2),
        ("plan.pp", 2),
        ("cluster.gpus", 16),
    ],
)
def test_a_changed_input_changes_the_answer_to_the_planners(open_app: Open, key: str, value: Any) -> None:
    app = open_app()
    before = device_row(app)
    app.get_by_key(key).set_value(value)
    run(app)
    expected = fit(**{key: value})
    assert device_row(app) == expected["device_gib"] != before
    assert metrics(app)["Allocated"] == f"{expected['allocated_gib']:.1f} GiB"


def test_a_switch_and_a_stage_reach_the_case(open_app: Open) -> None:
    app = open_app(**{"plan.tp": "2", "plan.sequence_parallel": "on", "plan.zero": "3", "plan.data_parallel": "zero"})
    plan = app.session_state["asked"].case.plan
    assert (plan.tp, plan.sequence_parallel, plan.zero, plan.data_parallel) == (2, True, 3, "zero")


def test_what_is_asked_for_follows_the_task(open_app: Open) -> None:
    app = open_app()
    keys = {one.key for one in [*app.number_input, *app.selectbox, *app.multiselect]}
    assert not {"recipe.peft.rank", "recipe.peft.targets", "recipe.checkpointing_args.k"} & keys
    app.selectbox(key="recipe.task").select("qlora")
    app.selectbox(key="recipe.checkpointing").select("every-k")
    run(app)
    app.number_input(key="recipe.peft.rank").set_value(64)
    app.multiselect(key="recipe.peft.targets").set_value(["q", "v"])
    app.number_input(key="recipe.checkpointing_args.k").set_value(4)
    run(app)
    recipe = app.session_state["asked"].case.recipe
    assert (recipe.peft.rank, recipe.peft.targets, recipe.checkpoint_every) == (64, ("q", "v"), 4)


def test_an_open_field_shows_what_is_assumed(open_app: Open) -> None:
    app = open_app(model="llama-3-70b")
    assert app.number_input(key="recipe.seq_len").placeholder == "4096"
    assert app.number_input(key="plan.tp").placeholder == "1"
    assert app.number_input(key="plan.dp_shard").placeholder == "8"
    assert app.number_input(key="recipe.seq_len").value is None


def test_a_node_instead_of_a_gpu(open_app: Open) -> None:
    app = open_app()
    app.segmented_control(key="hardware").set_value("node")
    run(app)
    app.number_input(key="cluster.nodes").set_value(2)
    run(app)
    cluster = app.session_state["asked"].case.cluster
    assert (cluster.node, cluster.gpus) == ("dgx-h100", 16)


@pytest.mark.parametrize("size", ["40B", "124M", "7e9"])
def test_a_size_is_a_model(open_app: Open, size: str) -> None:
    app = open_app(model=size)
    expected = answers.fit(planner.evaluate(planner.load_case({**FIRST, "model": size})))
    assert device_row(app) == expected["device_gib"]


def test_what_does_not_fit_says_how_it_would_and_does_it(open_app: Open) -> None:
    app = open_app(model="llama-3-70b")
    assert "**Does not fit.**" in app.error[0].value
    assert "more than the 79.2 GiB of the card" in app.error[0].value
    found = planner.evaluate(app.session_state["asked"].case)
    first = planner.remedies(found)[0]
    app.button(key=f"apply-{first.key}").click()
    run(app)
    assert device_row(app) == answers.in_gib(first.estimate.memory.device)
    app = open_app(model="llama-3-70b")
    app.button(key="apply-together").click()
    run(app)
    assert app.success
    assert "**Fits.**" in app.success[0].value


@pytest.mark.parametrize("remedy", ["moments-16bit", "adam-8bit", "offload-optimizer"])
def test_every_remedy_gives_what_it_promised(open_app: Open, remedy: str) -> None:
    app = open_app(model="llama-3-70b")
    promised = next(r for r in planner.remedies(planner.evaluate(app.session_state["asked"].case)) if r.key == remedy)
    app.button(key=f"apply-{remedy}").click()
    run(app)
    assert device_row(app) == answers.in_gib(promised.estimate.memory.device)


def test_every_number_of_the_page_opens_its_chain(open_app: Open) -> None:
    app = tab(open_app(), "chain")
    memory = planner.evaluate(app.session_state["asked"].case).memory
    box = app.selectbox(key="chain")
    assert len(box.options) >= 11 + len(memory.moments)
    for key, name in (("headroom", "headroom"), ("part.activations", "activations"), ("phase.loss", "loss")):
        app.selectbox(key="chain").set_value(key)
        run(app)
        table = app.dataframe[0].value
        assert table["quantity"].iloc[0] == name
        assert (table["value"] != "").all()
        assert any("×" in line or "−" in line for line in table["numbers"])
    app.selectbox(key="chain").set_value("headroom")
    run(app)
    assert app.latex, "a formula is shown in mathematical notation"
    listed = "\n".join(one.value for one in app.markdown)
    missing = [key for key in explain.references(memory.headroom) if key.replace("_", "\\_") not in listed]
    assert not missing, "sources of the chain that the page does not list"


def test_a_number_inside_a_chain_opens_too(open_app: Open) -> None:
    app = tab(open_app(), "chain")
    app.selectbox(key="chain_inside").set_value("communicators")
    run(app)
    assert app.dataframe[0].value["quantity"].iloc[0] == "communicators"
    assert "communicators = " in app.code[0].value


def test_assumptions_and_open_questions_are_on_the_page(open_app: Open) -> None:
    app = tab(open_app(), "assumed")
    text = "\n".join(one.value for one in app.markdown).replace("\\", "")
    for line in app.session_state["asked"].case.assumed:
        assert line in text
    tab(app, "open")
    assert i18n.t("app.fit.open") in "\n".join(one.value for one in app.markdown)


def test_a_pipeline_shows_its_stages(open_app: Open) -> None:
    app = open_app(**{"plan.pp": "2"})
    assert len(app.get("vega_lite_chart")) == 3
    assert len(open_app().get("vega_lite_chart")) == 2


# Wrong input: every problem named, nothing lost.


def test_an_impossible_plan_is_named_and_nothing_is_lost(open_app: Open) -> None:
    app = open_app(**{"recipe.seq_len": "2048"})
    app.number_input(key="plan.tp").set_value(3)
    run(app)
    try:
        planner.load_case(_fields.merged(FIRST, {"plan.tp": 3}))
    except planner.BadInput as error:
        problems = error.problems
    assert len(problems) >= 3
    text = app.error[0].value.replace("\\", "")
    for one in problems:
        assert one.field in text
        assert one.problem in text
        assert str(one.nearest) in text
    assert not app.metric
    assert app.number_input(key="plan.tp").value == 3
    assert app.number_input(key="recipe.seq_len").value == 2048
    app.number_input(key="plan.tp").set_value(2)
    run(app)
    assert app.metric


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("recipe.seq_len", 0, "recipe.seq_len"),
        ("recipe.seq_len", -5, "recipe.seq_len"),
        ("recipe.seq_len", 10**15, "recipe.seq_len"),
        ("cluster.gpus", 0, "cluster.gpus"),
        ("cluster.gpus", 10**12, "cluster.gpus"),
        ("cluster.gpus", 12, "cluster.gpus"),
        ("plan.micro_batch", 0, "plan.micro_batch"),
        ("recipe.global_batch", 7, "recipe.global_batch"),
        ("plan.dp_shard", 3, "plan"),
    ],
)
def test_numbers_out_of_bounds_are_named_by_the_planner(open_app: Open, key: str, value: int, named: str) -> None:
    app = open_app()
    app.number_input(key=key).set_value(value)
    run(app)
    assert f"**{named}**".replace("_", "\\_") in app.error[0].value
    assert app.number_input(key=key).value == value


def test_other_fields_take_any_field_of_a_case(open_app: Open) -> None:
    app = open_app()
    app.text_area(key="set").set_value("recipe.allocator = expandable\nrecipe.precision.optimizer_state = bf16")
    run(app)
    expected = fit(**{
        "recipe.allocator": "expandable",
        "recipe.precision": {"preset": "autocast-bf16", "optimizer_state": "bf16"},
    })  # fmt: skip
    assert device_row(app) == expected["device_gib"]


@pytest.mark.parametrize("line", ["nonsense", "= 3", "recipe.seqlen = 3", "recipe = 5", "plan.tp = 1e400", "a.b.c = {"])
def test_a_wrong_line_of_other_fields_is_named(open_app: Open, line: str) -> None:
    app = open_app()
    app.text_area(key="set").set_value(line)
    run(app)
    assert app.error
    assert app.text_area(key="set").value == line


# The largest model.


def test_the_largest_models_are_the_planners(open_app: Open) -> None:
    app = open_app()
    app.switch_page("views/largest.py")
    run(app)
    table = app.dataframe[0].value
    found = answers.largest(planner.largest_model({"gpu": "h100-sxm", "gpus": 8}))["regimes"]
    for column, key in (("recipe", "recipe"), ("headroom", "headroom_gib"), ("host", "host_gib_per_node")):
        assert list(table[column]) == [one[key] for one in found]
    assert all(table["shape"])
    assert app.info
    assert app.get("vega_lite_chart")


def test_the_largest_model_follows_the_gpus_and_what_is_held(open_app: Open) -> None:
    app = open_app(**{"cluster.gpus": "4", "recipe.seq_len": "16384"})
    app.switch_page("views/largest.py")
    run(app)
    alone = app.dataframe[0].value
    assert alone["most"].iloc[0] != "32B"
    app.toggle(key="hold").set_value(True)
    run(app)
    assert list(app.dataframe[0].value["most"]) != list(alone["most"])
    assert "recipe.seq\\_len = 16384" in "\n".join(one.value for one in app.caption)


def test_an_impossible_cluster_is_named_on_every_page(open_app: Open) -> None:
    app = open_app(**{"cluster.gpus": "12"})
    app.switch_page("views/largest.py")
    run(app)
    assert "**cluster.gpus**" in said(app)


@pytest.mark.parametrize("row", range(len(regimes())))
def test_a_row_opened_gives_the_rows_own_numbers(row: int) -> None:
    found = _families.answer(json.dumps({"gpu": "h100-sxm", "gpus": 8}), "{}", "en")
    case = _families_case(found, row)
    shown = planner.load_case(_fields.raw(_fields.filled(case)), files=False)
    memory = planner.evaluate(shown).memory
    assert answers.in_gib(memory.device) == found["answer"]["regimes"][row]["device_gib"]


def _families_case(found: dict[str, Any], row: int) -> dict[str, Any]:
    case: dict[str, Any] = found["cases"][row]
    return case


# Languages.


def test_the_language_of_a_session_reaches_the_page(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    english = i18n.table("en")
    other = {**english, "verdict.fits": "合适", "app.number.device": "设备显存"}
    monkeypatch.setattr(i18n, "languages", lambda: ("en", "zh"))
    monkeypatch.setattr(i18n, "table", lambda language: other if language == "zh" else english)
    app = open_app()
    app.session_state["lang"] = "zh"
    run(app)
    assert "合适" in app.success[0].value
    assert "设备显存" in metrics(app)
    assert "**Fits.**" in open_app().success[0].value, "another session keeps its own"
