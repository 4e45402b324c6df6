"""Each rule of thumb gives exactly what the founding article writes, and beside it what the planner answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner import article, explain, i18n, thumb
from planner.formulas import thumb as F
from planner.quantity import value_of
from planner.spec import presets
from planner.step.evaluate import evaluate

GIB = 2**30
H100 = {"gpu": "h100-sxm", "gpus": 8}


@pytest.fixture(scope="module")
def made() -> dict[str, thumb.Rule]:
    return {one.key: one for one in thumb.rules(H100)}


def number(quantity: Any) -> float:
    return float(value_of(quantity))


#: rule -> the figure in the article (founding-article, sections 2.2, 2.3, 3.2, 3.3, 3.4 and 7), worked out by hand
STATED = {
    "state-fp32": 4 * 40e9,
    "bytes-fp32": 16,
    "bytes-mixed": 8,
    "memory": 640e9,
    "largest-fp32": 40e9,
    "largest-mixed": 80e9,
    "layer": 1_073_741_824,
    "layers": 42_949_672_960,
    "attention": 5_368_709_120,
    "intermediates": 50e9,
    "checkpoint-none": 120e9,
    "checkpoint-5": 45e9,
    "checkpoint-share": 0.375,
    "zero-0": 80e9,
    "zero-1": 55e9,
    "zero-2": 40e9,
    "zero-3": 25e9,
    "overhead": 2e9,
}


@pytest.mark.parametrize(("key", "value"), STATED.items())
def test_a_rule_is_exactly_what_the_article_computes(made: dict[str, thumb.Rule], key: str, value: float) -> None:
    assert number(made[key].rule) == value


def test_a_tenth_for_the_master_copy(made: dict[str, thumb.Rule]) -> None:
    assert number(made["master-copy"].rule) == pytest.approx(0.8, rel=1e-15)


def test_a_stated_range_has_both_ends(made: dict[str, thumb.Rule]) -> None:
    upper = made["intermediates"].upper
    assert upper is not None
    assert number(upper) == 80e9


#: rule -> (low, high) of the planner's answer, and where the range is from
MODEL = {
    # 4 + 4 + 8 and 2 + 2 + 4 + 8 (rajbhandari2019); fp32 master under autocast is the same 16
    "state-fp32": (160e9, 160e9), "bytes-fp32": (16, 16), "bytes-mixed": (16, 16), "master-copy": (4, 4),
    # torch.cuda total memory of an H100 SXM, 81,090 MiB (SMI)
    "memory": (8 * 80_900 * 2**20, 8 * 81_200 * 2**20),
    # 16 B/param over 79.2 GiB a card, less gathered layers, logits, context and cached blocks (fsdp2-traces)
    "largest-fp32": (29e9, 35e9), "largest-mixed": (29e9, 35e9),
    # 34 h a token for a fused block (shoeybi2022-sequence-parallel counts 34 h for a classic one): 65,536 tokens
    "layer": (0.97 * 34 * 65536 * 8192, 1.01 * 34 * 65536 * 8192),
    "layers": (0.97 * 34 * 65536 * 8192 * 40, 1.01 * 34 * 65536 * 8192 * 40),
    # an fp32 softmax and its 16-bit copy, 64 heads (saved-tensor-traces)
    "attention": (6 * 64 * 32 * 2048**2 * 40,) * 2,
    # k = 1: 39 or 40 inputs of 1 GiB and one layer of 17 GiB; k = 5: 7 or 8 inputs and five layers (chen2016)
    "intermediates": (55 * GIB, 58 * GIB), "checkpoint-5": (89 * GIB, 94 * GIB),
    "checkpoint-none": (0.97 * 680 * GIB, 1.01 * 680 * GIB), "checkpoint-share": (0.13, 0.14),
    # 16, 4 + 12/8, 2 + 14/8 and 16/8 bytes of 40e9 parameters (rajbhandari2019)
    "zero-0": (640e9, 640e9), "zero-1": (220e9, 220e9), "zero-2": (150e9, 150e9), "zero-3": (80e9, 80e9),
    # context 0.5, NCCL 0.7 to 2 and more, workspaces 0.3 GiB (nccl-memory, cublas-workspace)
    "overhead": (1.5 * GIB, 4 * GIB),
}  # fmt: skip


@pytest.mark.parametrize(("key", "ends"), MODEL.items())
def test_the_model_answers_within_its_range(
    made: dict[str, thumb.Rule], key: str, ends: tuple[float, float]
) -> None:
    model = made[key].model
    assert model is not None
    assert ends[0] * (1 - 1e-9) <= number(model) <= ends[1] * (1 + 1e-9)
    assert model.unit == made[key].rule.unit


def test_every_rule_is_tested_and_has_words(made: dict[str, thumb.Rule]) -> None:
    assert set(made) == set(STATED) | {"master-copy", "max-batch"}
    assert set(made) == set(MODEL) | {"max-batch"}
    assert set(made) == set(thumb.table()["rule"])


def test_every_further_answer_has_a_name_in_both_languages(made: dict[str, thumb.Rule]) -> None:
    used = {name for one in made.values() for name, _ in one.also}
    assert used == set(thumb.table()["also"])
    for name in used:
        assert thumb.label(name, "en") != thumb.label(name, "zh")


def test_further_answers(made: dict[str, thumb.Rule]) -> None:
    """Hugging Face code keeps more than fused kernels: 48.5 and 58.5 h a token; a 16-bit score matrix is 640 GiB."""
    layer, scores, mixed = (dict(made[k].also) for k in ("layer", "attention", "bytes-mixed"))
    assert number(layer["composed"]) == pytest.approx(48.5 * 65536 * 8192, rel=0.005)
    assert number(layer["autocast"]) == pytest.approx(58.5 * 65536 * 8192, rel=0.005)
    assert number(scores["scores-16"]) == 640 * GIB
    assert number(scores["flash"]) == 0.625 * GIB
    assert {n: number(q) for n, q in mixed.items()} == {"deepspeed": 16, "megatron": 18, "pure-16": 8}
    ddp = dict(made["largest-fp32"].also)["ddp"]
    assert 3e9 < number(ddp) < 5e9


def test_checkpointing_every_second_layer_takes_least(made: dict[str, thumb.Rule]) -> None:
    """And the formula's optimum lies between the two best whole numbers."""
    by_interval = {int(n.removeprefix("every-")): number(q) for n, q in made["checkpoint-5"].also}
    by_interval[5] = number(made["checkpoint-5"].model)
    assert min(by_interval, key=by_interval.__getitem__) == 2
    assert 1 < number(article.live("best-interval")) < 2
    assert by_interval[8] > by_interval[5] > by_interval[4] > by_interval[1]


# Other clusters


@pytest.mark.parametrize(
    ("cluster", "fp32", "mixed"),
    [
        ({"gpu": "h100-sxm", "gpus": 1}, 5e9, 10e9),
        ({"gpu": "rtx-4090", "gpus": 2}, 3e9, 6e9),
        ({"gpu": "v100-sxm-32", "gpus": 8}, 16e9, 32e9),  # a card without bf16
        ({"node": "dgx-h100", "nodes": 2}, 80e9, 160e9),
        ({"gpu": "h200-sxm", "gpus": 8}, 70.5e9, 141e9),
        ({"gpu": "mi300x", "gpus": 8}, 96e9, 192e9),
    ],
)
def test_a_rule_takes_the_size_on_the_box(cluster: dict[str, Any], fp32: float, mixed: float) -> None:
    found = {one.key: one for one in thumb.rules(cluster)}
    assert number(found["largest-fp32"].rule) == fp32
    assert number(found["largest-mixed"].rule) == mixed
    for one in found.values():
        assert one.model is not None
        assert number(one.model) > 0
        if one.words["about"] == "example":
            assert number(one.rule) == STATED.get(one.key, number(one.rule))


# The batch law


def test_the_batch_law_is_the_articles_formula(made: dict[str, thumb.Rule]) -> None:
    """For Llama 3 8B with 4,096 tokens on 8 H100: the line through 1 and 2 sequences, read at 80e9 bytes."""
    rule, also = made["max-batch"], dict(made["max-batch"].also)
    changes = {**article.AUTOCAST, "recipe.checkpointing": "full", "recipe.seq_len": 4096}
    runs = [article.example({**changes, "plan.micro_batch": n}, presets.model("llama-3-8b")) for n in (1, 2)]
    peaks = [number(evaluate(run).memory.allocated) for run in runs]
    assert number(also["per-sample"]) == pytest.approx(peaks[1] - peaks[0], rel=1e-12)
    assert number(also["fixed"]) == pytest.approx(2 * peaks[0] - peaks[1], rel=1e-12)
    assert number(rule.rule) == pytest.approx((80e9 - 2 * peaks[0] + peaks[1]) / (peaks[1] - peaks[0]), rel=1e-12)
    assert rule.model is not None
    assert 0 <= number(rule.rule) - number(rule.model) < 2
    assert number(rule.model) == int(number(rule.model))


def test_the_batch_law_says_when_two_points_mislead() -> None:
    """At 2,048 tokens the peak is the end of the backward with one sequence and the loss from two on."""
    changes = {**article.AUTOCAST, "recipe.checkpointing": "full", "recipe.seq_len": 2048}
    law = thumb.batch_law(article.example(changes, presets.model("llama-3-8b")))
    assert not law.one_line
    assert law.by_rule is not None
    assert number(law.by_rule) > 200
    assert 14 <= number(law.by_model) <= 19
    longer = thumb.batch_law(article.example({**changes, "recipe.seq_len": 4096}, presets.model("llama-3-8b")))
    assert longer.one_line


def test_the_law_has_no_answer_where_memory_does_not_grow() -> None:
    """With very short sequences the optimizer step, with its foreach copies, is the peak at 1 and at 2."""
    fields = {"recipe.framework": "pytorch", "recipe.seq_len": 16, "plan.data_parallel": "ddp"}
    law = thumb.batch_law(article.example(fields, presets.model("llama-3.2-1b")))
    assert number(law.per_sample) == 0
    assert law.by_rule is None
    assert number(law.by_model) > 100


# As data


def test_the_json_is_the_contracts_shape() -> None:
    rows = thumb.as_json(thumb.rules(H100))
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    for row in rows:
        assert {"rule", "because", "formula", "model", "unit", "title", "verdict"} <= set(row)
        assert len(set(row) & set(thumb.KEYS.values())) == 1
    assert [row["params"] for row in rows if row["rule"].startswith("largest")] == [40_000_000_000, 80_000_000_000]
    by_rule = {row["rule"]: row for row in rows}
    assert by_rule["layer"]["gib"] == 1.0
    assert by_rule["layers"]["gib"] == 40.0
    assert by_rule["attention"]["gib"] == 5.0
    assert by_rule["largest-fp32"]["formula"] == "all_memory ÷ bytes_per_param"
    assert by_rule["zero-3"]["formula"] is None
    assert by_rule["zero-3"]["gib"] == 25e9 / GIB
    assert by_rule["largest-fp32"]["model"] == number(article.live("largest-fsdp2"))


def test_the_json_speaks_the_language_in_use() -> None:
    before = i18n.current()
    found = thumb.rules(H100)
    assert [row["because"] for row in thumb.as_json(found)] == [one.because("en") for one in found]
    assert {one.because("en") for one in found}.isdisjoint(one.because("zh") for one in found)
    assert i18n.current() == before


def test_a_rule_explains_itself(made: dict[str, thumb.Rule]) -> None:
    """The chain of the 40B: 640e9 bytes, 16 bytes a parameter, and the article as the source."""
    text = explain.text(made["largest-fp32"].rule)
    assert "thumb_memory" in text
    assert "thumb_param_bytes" in text
    assert "founding-article" in explain.references(made["largest-fp32"].rule)


def test_a_wrong_width_would_be_seen() -> None:
    """The rule is computed, not written down."""
    assert number(F.thumb_largest(all_memory=640e9, bytes_per_param=thumb.param_bytes(2, 4, 2))) == 640e9 / 14
    assert number(F.thumb_layer(batch=1, seq_len=2048, hidden=8192, act_width=2)) * 32 == STATED["layer"]
