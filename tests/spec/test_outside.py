"""Models with layers that have no formulas: what is known is counted, the rest named, and never `fits`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import planner
from planner import answers, cases, i18n
from planner.errors import UnsupportedArchitecture
from planner.evidence.predict import answer
from planner.evidence.records import Line
from planner.spec.huggingface import read_config
from tests.evidence.samples import DENSE

NEXT = {
    "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "vocab_size": 151936,
    "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5120, "num_experts": 512,
    "num_experts_per_tok": 10, "moe_intermediate_size": 512, "full_attention_interval": 4,
}  # fmt: skip
JAMBA = {
    "model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 65536, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "num_experts": 16, "num_experts_per_tok": 2,
    "attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1,
}  # fmt: skip
MAMBA = {"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50280}
RWKV = {"model_type": "rwkv", "hidden_size": 2048, "num_hidden_layers": 24, "vocab_size": 50277}
NEMOTRON = {
    "model_type": "nemotron_h", "hidden_size": 1024, "num_hidden_layers": 6, "vocab_size": 65536,
    "num_attention_heads": 8, "intermediate_size": 4096, "hybrid_override_pattern": "M-M*-M",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _in_english() -> Iterator[None]:
    yield
    i18n.use(i18n.DEFAULT)


@pytest.mark.parametrize(
    ("config", "strange", "plain"), [(NEXT, 36, 12), (JAMBA, 28, 4), (MAMBA, 64, 0), (RWKV, 24, 0), (NEMOTRON, 3, 1)]
)
def test_layers_of_plain_attention_are_known_and_the_others_named(
    config: dict[str, Any], strange: int, plain: int
) -> None:
    made = read_config(config)
    count = {kind: sum(g.count for g in made.groups if g.attention.kind == kind) for kind in ("unknown", "gqa")}
    assert (count["unknown"], count["gqa"]) == (strange, plain)
    assert str(strange) in str(made.unknown[0])


def test_dense_layers_of_a_mixture_stay_dense() -> None:
    """Jamba has experts in every second layer."""
    groups = read_config(JAMBA).groups
    assert sum(g.count for g in groups if g.mlp.kind == "moe") == 16


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("config", [NEXT, JAMBA, MAMBA, RWKV, NEMOTRON], ids=lambda c: c["model_type"])
def test_the_answer_is_a_lower_bound_and_never_that_it_fits(config: dict[str, Any], language: str) -> None:
    i18n.use(language)
    found = planner.evaluate(cases.case({"model": config, "cluster": {"gpu": "b200", "gpus": 64}}))
    told = answers.fit(found)
    assert found.overall != "fits"
    assert told["mem_high_gib"] is None
    assert told["unmodelled"] == [str(one) for one in found.case.model.unknown]
    assert told["mem_low_gib"] > 0
    assert "unmodelled_layers" in {one["code"] for one in told["warnings"]}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_terminal_and_report_say_at_least(
    language: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from planner import cli

    path, page = tmp_path / "config.json", tmp_path / "report.html"
    path.write_text(json.dumps(MAMBA), encoding="utf-8")
    asked = ["--model", str(path), "--gpus", "8", "--gpu", "h100-sxm", "--lang", language]
    for command in (["fit", *asked], ["report", *asked, "--html", str(page)]):
        with pytest.raises(SystemExit) as ended:
            cli.app(command)
        assert ended.value.code in (0, None)
    least = {"en": "at least", "zh": "至少"}[language]
    assert least in capsys.readouterr().out.lower()
    assert least in page.read_text(encoding="utf-8").lower()


def test_with_the_known_parts_alone_too_large_it_does_not_fit() -> None:
    """Parts without formulas only add, so that the verdict of the others stands."""
    found = planner.evaluate(cases.case({"model": NEXT, "cluster": {"gpu": "rtx-4090", "gpus": 1}}))
    assert found.verdict == "oom"


def test_a_multimodal_model_is_read_for_its_text_part_and_marked() -> None:
    text = {"model_type": "qwen2_5_vl_text", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 4,
            "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 32000}  # fmt: skip
    config = {"model_type": "qwen2_5_vl", "text_config": text}
    found = planner.evaluate(cases.case({"model": config, "cluster": {"gpu": "h100-sxm", "gpus": 1}}))
    assert found.case.model.family == "qwen2"
    assert "unvalidated_kind" in {one.code for one in found.warnings}


def test_what_is_no_decoder_is_still_refused() -> None:
    with pytest.raises(UnsupportedArchitecture):
        read_config({"model_type": "t5", "hidden_size": 512, "num_hidden_layers": 6, "vocab_size": 32128})


@pytest.mark.parametrize(
    ("kind", "more", "real"),
    [  # parameters as transformers counts them on the meta device
        ("zamba2", {"num_hidden_layers": 81, "hidden_size": 3584, "intermediate_size": 14336}, 7.289e9),
        ("recurrent_gemma", {"num_hidden_layers": 26, "hidden_size": 2560, "intermediate_size": 15360}, 2.683e9),
    ],
)
def test_what_is_counted_stays_below_the_whole_model(kind: str, more: dict[str, Any], real: float) -> None:
    published = {"model_type": kind, "vocab_size": 32000, "num_attention_heads": 32, **more}
    counted = cases.case({"cluster": {"gpu": "h100-sxm", "gpus": 1}, "model": published})
    assert float(planner.evaluate(counted).params.value) < real


def test_a_record_names_unknown_layers_by_its_model_type() -> None:
    arch = {"model_type": "jamba", "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8,
            "intermediate_size": 4096, "vocab_size": 32000, "mamba_d_state": 16}  # fmt: skip
    said = answer(Line(1, {**DENSE, "arch": arch, "params_total": None}))
    assert said["verdict"] != "fits"
    assert said["mem_high_gib"] is None
    assert said["unmodelled"]
