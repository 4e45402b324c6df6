"""The link alone restores the inputs; what it holds that cannot be taken is named, never dropped in silence."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.visit import Open, metrics, run, said
from views import _fields, _link

FULL = {
    "model": "llama-3-70b", "hardware": "node", "cluster.node": "dgx-h200", "cluster.nodes": "2",
    "recipe.framework": "torchtitan", "recipe.task": "lora", "recipe.peft.rank": "8",
    "recipe.peft.targets": ["q", "v"], "recipe.peft.base_dtype": "int8", "recipe.seq_len": "8192",
    "plan.micro_batch": "2", "recipe.precision": "autocast-bf16", "recipe.checkpointing": "every-k",
    "recipe.checkpointing_args.k": "2", "recipe.optimizer": "adam", "recipe.optimizer_impl": "foreach",
    "recipe.attention": "flash", "recipe.loss": "chunked-ce", "recipe.loss_chunks": "4",
    "recipe.global_batch": "64", "recipe.allocator": "expandable", "plan.data_parallel": "fsdp2", "plan.zero": "3",
    "plan.tp": "2", "plan.sequence_parallel": "on", "plan.reshard_after_forward": "off", "plan.dp_shard": "8",
    "name": "a run", "set": "recipe.dropout = 0.1",
}  # fmt: skip


def test_a_link_restores_every_input(open_app: Open) -> None:
    app = open_app(**FULL)
    asked = app.session_state["asked"]
    assert asked.case is not None, said(app)
    recipe, plan, cluster = asked.case.recipe, asked.case.plan, asked.case.cluster
    assert (cluster.node, cluster.gpus, asked.case.name) == ("dgx-h200", 16, "a run")
    assert (recipe.framework, recipe.task, recipe.peft.rank, recipe.dropout) == ("torchtitan", "lora", 8, 0.1)
    assert (recipe.peft.targets, recipe.peft.base_dtype, recipe.seq_len) == (("q", "v"), "int8", 8192)
    assert (recipe.checkpoint_every, recipe.loss_chunks, recipe.global_batch) == (2, 4, 64)
    assert (plan.tp, plan.sequence_parallel, plan.reshard_after_forward, plan.micro_batch) == (2, True, False, 2)
    assert not app.warning or "link" not in said(app)


def test_the_link_of_a_page_opens_to_the_same_page(open_app: Open) -> None:
    app = open_app()
    app.selectbox(key="model").select("gpt2-xl")
    app.number_input(key="cluster.gpus").set_value(4)
    app.number_input(key="recipe.seq_len").set_value(1024)
    app.selectbox(key="recipe.task").select("lora")
    run(app)
    app.multiselect(key="recipe.peft.targets").set_value(["q", "v"])
    app.text_area(key="set").set_value("recipe.allocator = expandable\nplan.reshard_after_forward = false")
    run(app)
    values = {key: app.session_state[key] for key in _fields.KEYS if key in app.session_state}
    link = {k: v if isinstance(v, list) else str(v) for k, v in values.items() if v not in (None, "", [])}
    again = open_app(**link)
    assert metrics(again) == metrics(app)
    assert again.session_state["asked"].raw == app.session_state["asked"].raw


@pytest.mark.parametrize(
    ("link", "told"),
    [
        ({"recipe.precision": "fp9"}, ["recipe.precision", "'fp9' is not known"]),
        ({"recipe.seq_len": "many"}, ["recipe.seq_len", "many is not a whole number"]),
        ({"recipe.seq_len": "1e999"}, ["recipe.seq_len", "1e999"]),
        ({"recipe.seq_len": "inf"}, ["recipe.seq_len", "inf"]),
        ({"recipe.seq_len": "4096.5"}, ["recipe.seq_len", "4096.5"]),
        ({"cluster.gpus": "9" * 400}, ["cluster.gpus"]),
        ({"cluster.gpu": "h1000"}, ["cluster.gpu", "'h1000'"]),
        ({"cluster.node": "dgx-9"}, ["cluster.node", "dgx-"]),
        ({"recipe.framework": "keras"}, ["recipe.framework"]),
        ({"plan.zero": "7"}, ["plan.zero", "0, 1, 2, 3"]),
        ({"plan.sequence_parallel": "perhaps"}, ["plan.sequence_parallel", "on, off"]),
        ({"hardware": "toaster"}, ["hardware", "gpu, node"]),
        ({"recipe.peft.targets": ["q", "frog"], "recipe.task": "lora"}, ["recipe.peft.targets", "frog"]),
        ({"recipe.seqlen": "3"}, ["recipe.seqlen", "recipe.seq_len"]),
        ({"frog": "<script>alert(1)</script>"}, ["frog"]),
        ({"x" * 500: "1"}, ["xxxx"]),
    ],
)
def test_a_value_that_cannot_be_taken_is_named(open_app: Open, link: dict[str, Any], told: list[str]) -> None:
    app = open_app(**link)
    text = app.warning[0].value.replace("\\", "")
    for word in told:
        assert word in text
    assert app.metric, "the page answers with what is left"
    assert not set(link) & set(app.query_params) - {"recipe.task"}
    app.button(key="close-link_problems").click()
    run(app)
    assert not [one for one in app.warning if "link" in one.value]


def test_a_valid_but_impossible_value_is_the_planners_to_name(open_app: Open) -> None:
    app = open_app(**{"plan.tp": "3", "recipe.seq_len": "-4"})
    assert "**recipe.seq\\_len**" in app.error[0].value
    assert app.number_input(key="plan.tp").value == 3


@pytest.mark.parametrize(
    ("key", "written", "meant"),
    [
        ("recipe.precision", "bf16", "autocast-bf16"),
        ("recipe.loss", "liger", "fused-linear-ce"),
        ("cluster.gpu", "H100 SXM", "h100-sxm"),
        ("recipe.framework", "megatron", "megatron-lm"),
        ("plan.reshard_after_forward", "False", "off"),
        ("recipe.checkpointing", "true", "full"),
    ],
)
def test_a_link_may_use_the_spellings_of_the_command_line(open_app: Open, key: str, written: str, meant: str) -> None:
    app = open_app(**{key: written})
    assert app.session_state[key] == meant
    assert not app.session_state["link_problems"]


def test_an_open_field_in_the_link_is_open(open_app: Open) -> None:
    app = open_app(**{"recipe.seq_len": "", "recipe.task": "", "recipe.peft.targets": ""})
    assert metrics(app) == metrics(open_app())


def test_every_widget_has_a_place_in_the_link(open_app: Open) -> None:
    app = open_app(**{"recipe.task": "lora", "recipe.checkpointing": "every-k", "recipe.loss": "chunked-ce"})
    app.switch_page("views/largest.py")
    run(app)
    bound = [*app.selectbox, *app.number_input, *app.multiselect, *app.text_area, *app.text_input, *app.toggle]
    keys = {one.key for one in bound} | {one.key for one in app.segmented_control}
    assert keys - {*_fields.KEYS, *_link.PAGES, "language"} == set()  # the switch stands in the link as lang
    assert {field.name for field in _fields.FIELDS} <= keys
