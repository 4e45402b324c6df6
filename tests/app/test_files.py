"""Cases and configurations go in and out of the app without loss, and hostile ones go nowhere."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import planner
from planner import answers, cases
from planner.errors import MissingDependency, Problem
from planner.report import content, render
from planner.spec import hub, presets
from tests.app.visit import Open, metrics, run, said, upload
from views import _downloads, _fields, _files, _models

CONFIG = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
    "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 2048,
}  # fmt: skip

CASES: dict[str, dict[str, Any]] = {
    "least": {"model": "llama-3-8b"},
    "one GPU": {"model": "gpt2", "cluster": {"gpu": "rtx-4090"}, "recipe": {"precision": "bf16"}},
    "node": {"model": "llama-3-8b", "cluster": {"node": "dgx-h100", "nodes": 2}, "plan": {"tp": 2}},
    "node by GPUs": {"model": "llama-3-8b", "cluster": {"node": "dgx-h100", "gpus": 16}},
    "part of a node": {"model": "gpt2-xl", "cluster": {"node": "dgx-a100", "gpus": 4}},
    "GPU and node": {"model": "gpt2-xl", "cluster": {"gpu": "h100-sxm", "node": "dgx-h100"}},
    "nodes of four": {"model": "llama-3-8b", "cluster": {"gpu": "a100-sxm-80", "gpus": 8, "nodes": 2}},
    "aliases": {
        "model": "meta-llama/Meta-Llama-3-8B", "cluster": {"gpu": "H100 SXM", "gpus": 8},
        "recipe": {"framework": "titan", "checkpointing": True, "loss": "liger", "optimizer": "adamw_8bit"},
    },
    "lora": {
        "name": "<b>a name</b> = 3", "model": "llama-3-70b", "cluster": {"gpu": "h200-sxm", "gpus": 8},
        "recipe": {
            "task": "lora", "seq_len": 2048, "dropout": 0.1, "allocator": "expandable",
            "peft": {"rank": 64, "targets": ["q_proj", "v_proj"], "base_dtype": "int8", "adapter_dtype": "bf16"},
            "checkpointing": "every-k", "checkpointing_args": {"k": 4},
        },
        "plan": {"micro_batch": 2, "reshard_after_forward": False},
    },
    "adapters without a task": {"model": "gpt2", "recipe": {"peft": {"rank": 8, "targets": "q,v"}}},
    "parts of a precision": {
        "model": "llama-3-8b", "cluster": {"gpu": "h100-sxm", "gpus": 8},
        "recipe": {"precision": {"preset": "autocast-bf16", "optimizer_state": "bf16"}, "tokens": 1e12},
    },
    "offload": {
        "model": "40B", "cluster": {"gpu": "h100-sxm", "gpus": 8},
        "recipe": {"framework": "deepspeed", "loss": "chunked", "loss_chunks": 16, "global_batch": 32},
        "plan": {"data_parallel": "zero", "zero": 3, "offload": {"optimizer": "cpu"}, "dp_shard": 8},
    },
    "pipeline": {
        "model": "llama-3-70b", "cluster": {"node": "dgx-h100", "nodes": 4},
        "recipe": {"framework": "megatron-lm", "global_batch": 128},
        "plan": {"tp": 8, "pp": 4, "sequence_parallel": True, "zero": 1, "dp_replicate": 1},
    },
    "configuration": {"model": CONFIG, "cluster": {"gpu": "a100-sxm-40", "gpus": 2}},
    "configuration as text": {"model": json.dumps(CONFIG), "cluster": {"gpu": "a100-sxm-40", "gpus": 2}},
    "changed preset": {"model": {"name": "llama-3-8b", "num_hidden_layers": 16}},
}  # fmt: skip


def numbers(case: planner.Case) -> dict[str, Any]:
    """Every number of the answer, and the plan and recipe behind it."""
    found = answers.fit(planner.evaluate(case))
    return {k: v for k, v in found.items() if k not in ("case", "assumed", "model")}


def shown(app: AppTest) -> dict[str, Any]:
    """The numbers of the case that the app shows."""
    case = app.session_state["asked"].case
    assert case is not None, said(app)
    return numbers(case)


@pytest.mark.parametrize("name", CASES)
def test_a_case_through_the_widgets_is_the_same_case(name: str) -> None:
    case = planner.load_case(CASES[name], files=False)
    once = planner.load_case(_fields.raw(_fields.filled(CASES[name])), files=False)
    assert numbers(once) == numbers(case)
    assert once.name == case.name
    again = json.loads(_files.saved(once))
    assert numbers(planner.load_case(again, files=False)) == numbers(case)
    assert _fields.filled(again) == _fields.filled(_fields.raw(_fields.filled(CASES[name])))


@pytest.mark.parametrize("name", ["lora", "pipeline", "configuration", "changed preset", "node by GPUs"])
def test_opening_a_case_restores_the_inputs(open_app: Open, name: str) -> None:
    app = upload(open_app(), "case.json", json.dumps(CASES[name]))
    assert shown(app) == numbers(planner.load_case(CASES[name], files=False))
    again = open_app(**app.query_params)
    assert shown(again) == shown(app), "the link of the page does not lead back to it"
    saved = _files.saved(app.session_state["asked"].case)
    fresh = upload(open_app(model="gpt2", **{"plan.tp": "2"}), "again.json", saved)
    assert shown(fresh) == shown(app)


def test_a_case_may_be_toml(open_app: Open) -> None:
    text = 'model = "gpt2-xl"\n[cluster]\ngpu = "a100-sxm-80"\ngpus = 4\n[recipe]\nseq_len = 1024\n'
    app = upload(open_app(), "case.toml", text)
    assert app.selectbox(key="cluster.gpu").value == "a100-sxm-80"
    assert app.number_input(key="recipe.seq_len").value == 1024


def test_a_report_opens_as_its_case(open_app: Open) -> None:
    case = planner.load_case(CASES["lora"], files=False)
    report = content.report(planner.evaluate(case))
    app = upload(open_app(), "report.html", render.html(report))
    assert shown(app) == numbers(case)


@pytest.mark.pdf
def test_a_pdf_report_opens_as_its_case(open_app: Open) -> None:
    case = planner.load_case(CASES["offload"], files=False)
    app = upload(open_app(), "report.pdf", render.pdf(content.report(planner.evaluate(case))))
    assert shown(app) == numbers(case)


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("case.json", '{"model": "llama-3-8b", "recipe": {"seq_len": "long"}, "frog": 1}', ["seq", "frog"]),
        ("case.json", '{"schema": "headroom.case/99", "model": "gpt2"}', ["newer"]),
        ("case.json", '{"model": "no-such-model"}', ["no-such-model"]),
        ("case.json", '{"cluster": {"gpus": 8}}', ["model"]),
        ("case.json", '{"model": "gpt2", "cluster": {"gpu": "h1000"}, "recipe": {"framework": "x"}}', ["h1000"]),
        ("case.json", "[1, 2]", ["neither JSON nor TOML"]),
        ("case.json", "{" * 100_000, ["nested", "JSON"]),
        ("case.json", '{"model": "gpt2", "plan": {"tp": 1e999}}', ["plan.tp"]),
        ("x.json", b"\xff\xfe\x00\x01", ["neither JSON nor TOML"]),
        ("x.html", "<html><script>alert(1)</script></html>", ["no case"]),
        ("x.pdf", b"%PDF-1.7 nothing", ["no case"]),
        ("x.pdf", b"", ["model"]),
        ("config.json", '{"model_type": "llama", "hidden_size": "many"}', ["hidden_size", "num_hidden_layers"]),
        ("config.json", '{"model_type": "llama", "hidden_size": NaN, "num_hidden_layers": -3}', ["hidden_size"]),
        ("config.json", '{"model_type": "<script>alert(1)</script>"}', ["model_type"]),
        ("config.json", '{"a":' * 5000 + "1" + "}" * 5000, ["nested"]),
        ("config.json", '{"x": "' + "a" * 4_900_000 + '"}', ["1000000 bytes"]),
        ("config.json", '{"model_type": "llama", "hidden_size": ' + "9" * 5000 + "}", ["digits", "hidden_size"]),
    ],
)  # fmt: skip
def test_what_cannot_be_opened_is_named_and_nothing_is_lost(
    open_app: Open, name: str, data: bytes | str, told: list[str]
) -> None:
    app = open_app(**{"recipe.seq_len": "2048"})
    before = metrics(app)
    upload(app, name, data)
    text = said(app).replace("\\", "")
    assert any(word in text for word in told), text
    if len(told) > 1 and told[0] != "nested" and told[0] != "digits":
        assert all(word in text for word in told), text
    assert metrics(app) == before
    assert app.number_input(key="recipe.seq_len").value == 2048
    app.button(key="close-refused").click()
    run(app)
    assert not app.warning


def test_a_configuration_is_opened_and_pasted(open_app: Open) -> None:
    app = upload(open_app(), "config.json", json.dumps(CONFIG))
    expected = planner.load_case({"model": CONFIG, "cluster": {"gpu": "h100-sxm", "gpus": 8},
                                  "recipe": {"framework": "hf-transformers"}})  # fmt: skip
    assert shown(app) == numbers(expected)
    assert app.segmented_control(key="source").value == "config"
    app.text_area(key="config").set_value(json.dumps({**CONFIG, "num_hidden_layers": 11}))
    run(app)
    assert app.session_state["asked"].case.model.layers == 11


@pytest.mark.parametrize(
    "text",
    [
        "", "hello", "evil/model", "{", "[]", "null", "{}", '{"model_type": 3}', '{"name": "evil/model", "n_layer": 2}',
        json.dumps({**CONFIG, "hidden_size": -1, "vocab_size": 1e300}),
        json.dumps({**CONFIG, "num_attention_heads": 7}), '{"a":' * 2000,
        json.dumps({**CONFIG, "num_hidden_layers": float("nan")}),
    ],
)  # fmt: skip
def test_a_wrong_configuration_in_the_text_is_named(open_app: Open, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(hub, "huggingface_config", _never)
    app = open_app(source="config")
    app.text_area(key="config").set_value(text)
    run(app)
    assert app.error
    assert "model" in app.error[0].value
    assert app.text_area(key="config").value == text


def test_a_long_configuration_is_kept_without_its_tables_of_labels(open_app: Open) -> None:
    labels = {f"label {i}": i for i in range(3000)}
    app = upload(open_app(), "config.json", json.dumps({**CONFIG, "label2id": labels, "note": "x"}))
    assert len(app.session_state["config"]) < 1000
    app = upload(open_app(), "config.json", json.dumps({**CONFIG, "note": "x" * 30_000}))
    assert f"{_models.MOST} characters" in said(app)


def _never(*_: Any) -> bytes:
    raise AssertionError("the app asked another machine without being told to")


def test_a_hugging_face_id_is_fetched_only_when_asked(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "huggingface_config", _never)
    app = open_app(model="acme/model")
    assert "acme/model is not in the catalogue" in app.error[0].value
    monkeypatch.setattr(hub, "huggingface_config", lambda id: json.dumps(CONFIG).encode())
    app.button(key="fetch").click()
    run(app)
    assert app.session_state["asked"].case.model.layers == 22
    assert app.session_state["asked"].case.model.name == "acme/model"


def test_a_fetch_that_fails_says_why(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    def gated(id: str) -> bytes:
        raise planner.BadInput(Problem("model", f"{id} is gated."))

    monkeypatch.setattr(hub, "huggingface_config", gated)
    app = open_app(model="acme/model")
    app.button(key="fetch").click()
    run(app)
    assert "is gated" in said(app)
    assert app.selectbox(key="model").value == "acme/model"


@pytest.mark.parametrize("where", ["set", "case", "changed"])
def test_no_way_in_makes_the_app_ask_another_machine(
    open_app: Open, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(hub, "huggingface_config", _never)
    match where:
        case "set":
            app = open_app(set="model = acme/model")
        case "case":
            app = upload(open_app(), "case.json", '{"model": "acme/model", "plan": {"tp": 2}}')
            assert app.number_input(key="plan.tp").value == 2
        case _:
            app = upload(open_app(), "case.json", '{"model": {"name": "acme/model", "hidden_size": 64}}')
    assert "acme/model" in said(app)


def test_a_path_of_the_machine_is_not_read(open_app: Open) -> None:
    for name in ("/etc/passwd", "planner/data/models/gpt2.json", "./app.py"):
        app = open_app(model=name)
        assert app.error
        assert not app.metric


def test_every_preset_is_known_without_asking() -> None:
    spellings = [alias for one in presets.models() for alias in (one.name, one.hf_id, *one.aliases) if alias]
    assert not [alias for alias in spellings if _models.elsewhere(alias)]


MARKUP = "![x](http://evil.example/x.png) <img src=x onerror=alert(1)> $a$ :red[b] **c** {{7*7}}"


def test_markup_in_any_text_is_shown_as_text(open_app: Open) -> None:
    app = upload(open_app(), "config.json", json.dumps({**CONFIG, "_name_or_path": MARKUP}))
    app.text_input(key="name").set_value(MARKUP)
    run(app)
    upload(app, f"{MARKUP[:20]}.json", json.dumps({"model": MARKUP}))
    written = [*app.markdown, *app.caption, *app.warning, *app.error, *app.success]
    marks = re.compile(r"(?<!\\)(?:!\[|<img|\$a|:red|\{\{|\*\*c\*\*)")
    assert any("evil.example" in one.value for one in written)
    assert not [one.value for one in written if marks.search(one.value)]


# What is taken away.


def test_a_report_is_written_as_the_button_gives_it(open_app: Open) -> None:
    app = open_app()
    found = planner.evaluate(app.session_state["asked"].case)
    page = _downloads.report(found, "html", "en")()
    assert page.startswith(b"<!DOCTYPE html>")
    again = planner.load_case(render.case_from_html(page.decode()), files=False)
    assert numbers(again) == shown(app)
    assert {one.label for one in app.download_button} == {"Save case", "Report (HTML)", "Report (PDF)"}


def test_where_pango_is_missing_the_app_runs_and_says_so(open_app: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(report: Any) -> bytes:
        raise MissingDependency(Problem("report", "PDF needs pango.", "apt-get install libpango-1.0-0"))

    monkeypatch.setattr(_downloads, "find_library", lambda name: None)
    monkeypatch.setattr(render, "pdf", missing)
    _downloads.pdf_missing.clear()
    try:
        app = open_app()
        assert "PDF needs pango" in app.info[0].value
        assert "apt-get install libpango" in app.info[0].value
        assert next(one for one in app.download_button if "PDF" in one.label).disabled
        assert metrics(app)
    finally:
        _downloads.pdf_missing.clear()


@pytest.mark.parametrize("name", sorted(cases.examples()))
def test_an_example_opens_as_it_stands(open_app: Open, name: str) -> None:
    tree = cases.examples()[name]
    app = open_app()
    app.button(key=f"example-{name}").click()
    run(app)
    assert not app.exception
    assert app.session_state["asked"].case.plan == cases.case(tree).plan
    assert app.session_state["asked"].case.model.name == cases.case(tree).model.name
