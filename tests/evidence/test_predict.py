"""What a prediction reads of a record, which figure it gives, and what it says was assumed."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import BadInput
from planner.evidence.expressing import express, form
from planner.evidence.predict import Prediction, answer, predict
from planner.evidence.records import Line
from planner.evidence.rows import shipped
from planner.layers.model import parameters
from planner.quantity import value_of
from planner.step.memory import memory, stages
from tests.evidence.samples import DENSE, EVERY, LORA, MOE, PIPELINE, Record, changed

#: records whose stated count is not that of the shape they state
OTHER_COUNT = {"modded-nanogpt-20241210"}  # value embeddings
OTHER_NAMES: Record = {
    "id": "x" * 50, "model": "something else", "notes": "3 GB", "grade": "C", "version": "9", "torch": "1.0",
    "source": {"repo_or_url": "z"}, "raw": {"optimizer": "sgd"}, "inferred": ["arch"],
}  # fmt: skip


def said(record: Record) -> dict[str, Any]:
    return answer(Line(1, record))


def reason(record: Record) -> str:
    found = said(record)
    assert found["status"] == "skipped", found
    return str(found["reason"])


def figures(found: Prediction) -> tuple[float, float, float]:
    return found.value, found.low, found.high


# What decides.


@pytest.mark.parametrize("record", EVERY, ids=lambda r: r["id"])
def test_names_notes_and_sources_decide_nothing(record: Record) -> None:
    one, two = said(record), said({**record, **OTHER_NAMES})
    assert {**one, "id": ""} == {**two, "id": ""}


@pytest.mark.parametrize("record", EVERY, ids=lambda r: r["id"])
def test_what_was_measured_decides_nothing_but_which_figure_is_asked_for(record: Record) -> None:
    other = changed(record, measured={"mem_value": 1e6, "mem_unit": "furlong", "tokens_per_s_per_gpu": 3, "mfu": 2})
    assert said(record) == said(other)


def test_null_and_a_missing_field_are_the_same() -> None:
    for field in DENSE:
        if field not in ("id", "arch", "measured"):
            with_null = {**DENSE, field: None}
            assert said(with_null) == said({k: v for k, v in DENSE.items() if k != field}), field


def test_what_a_record_leaves_open_is_listed() -> None:
    bare = {"id": "bare", "arch": DENSE["arch"], "framework": "torchtitan"}
    found = said(bare)
    assert found["status"] == "ok"
    listed = " ".join(found["assumed"])
    for field in ("n_gpus", "gpu", "seq_len", "optimizer", "loss", "attention", "micro_batch", "precision", "task"):
        assert field in listed, field


# Which figure.


@pytest.mark.parametrize(
    ("metric", "figure"),
    [
        ("max_allocated", "allocated_gib"), ("max_active", "allocated_gib"), ("max_reserved", "reserved_gib"),
        ("nvidia-smi", "device_gib"), (None, "device_gib"), ("fits", "device_gib"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("record", [DENSE, PIPELINE], ids=lambda r: r["id"])
def test_the_figure_is_that_of_the_metric(record: Record, metric: str | None, figure: str) -> None:
    found = said(changed(record, measured={"mem_metric": metric}))
    assert found["mem_gib"] == pytest.approx(found[figure])
    assert found["mem_low_gib"] < found["mem_gib"] < found["mem_high_gib"]


def test_the_scope_names_the_stage() -> None:
    case = express(PIPELINE).case
    each = [float(memory(case, stage).allocated) for stage in stages(case)]
    assert len(set(each)) > 2

    def at(scope: str) -> float:
        return predict(changed(PIPELINE, measured={"mem_scope": scope})).value

    for scope, index in {"rank0": 0, "logged-rank": 0, "last-stage": 3, "last-stage-max": 3, "stage0-max": 0,
                         "rank7": 1, "rank15": 3, "stage2": 2}.items():  # fmt: skip
        assert at(scope) == pytest.approx(each[index]), scope
    assert at("per-gpu") == at("max-rank") == pytest.approx(max(each))
    assert at("mean") == pytest.approx(sum(each) / 4)
    assert at("sum") == pytest.approx(sum(each) * 4)


def test_a_sum_over_gpus_is_so_many_times_one() -> None:
    one, all_ = (predict(changed(DENSE, measured={"mem_scope": s})) for s in ("rank0", "sum"))
    assert figures(all_) == pytest.approx(tuple(8 * f for f in figures(one)))


def test_the_verdict_is_of_the_worst_gpu_whatever_is_asked_for() -> None:
    scopes = [changed(PIPELINE, measured={"mem_scope": s}) for s in ("rank0", "last-stage", "mean")]
    assert len({said(r)["verdict"] for r in scopes}) == 1


# Names.


def test_an_unknown_framework_is_plain_pytorch_said_so_and_with_a_wider_band() -> None:
    known, odd = (said(changed(DENSE, framework=name)) for name in ("pytorch", "my-own-trainer"))
    assert odd["mem_gib"] == pytest.approx(known["mem_gib"])
    assert any("my-own-trainer" in line and "plain PyTorch" in line for line in odd["assumed"])
    assert odd["mem_high_gib"] - odd["mem_low_gib"] > known["mem_high_gib"] - known["mem_low_gib"]


def test_an_unknown_card_is_one_of_its_size() -> None:
    found = said(changed(DENSE, gpu="h900", gpu_mem_gb=48))
    assert found["status"] == "ok"
    assert any("h900" in line for line in found["assumed"])


@pytest.mark.parametrize(
    "changes",
    [
        {"attention": "flex"}, {"loss": "cut-ce"}, {"optimizer": "badam"}, {"act_ckpt": "full-except"},
        {"compile": True}, {"precision": {"gemm": "fp8", "fp8": "tensorwise"}},
        {"parallel": {"fsdp_impl": "megatron-fsdp"}},
        {"arch": {"mla": {"rank": 512}}}, {"arch": {"norm": "batchnorm"}}, {"task": "component"},
    ],
    ids=str,
)  # fmt: skip
def test_what_has_no_formula_is_named_and_widens_the_band(changes: dict[str, Any]) -> None:
    plain, odd = predict(DENSE), predict(changed(DENSE, **changes))
    assert odd.expressed.case.spreads == ("formula_error_approximate",)
    assert (odd.high - odd.low) / odd.value > (plain.high - plain.low) / plain.value


def test_a_misspelt_value_is_skipped_with_the_nearest() -> None:
    assert "adamw" in reason(changed(DENSE, optimizer="adamww"))


# What cannot be expressed.


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"arch": None}, "arch: is missing"),
        ({"arch": {"vocab_size": None}}, "arch.vocab_size: is missing"),
        ({"n_gpus": 7}, "takes 8 GPUs"),
        ({"parallel": {"tp": 3}}, "takes 24 GPUs"),
        ({"gpu_mem_gb": 24}, "contradicts h100-sxm"),
        ({"gpu_mem_gb": 80e9}, "too large"),
        ({"seq_len": -5}, "too small"),
        ({"seq_len": "long"}, "seq_len"),
        ({"micro_batch": 1.5}, "micro_batch"),
        ({"micro_batch": 3, "global_batch": 8, "grad_accum": None}, "micro-batches"),
        ({"parallel": {"shard": 3}}, "3 shards"),
        ({"tags": ["encoder-decoder"]}, "encoder-decoder"),
        ({"arch": [1, 2]}, "arch"),
        ({"parallel": "dp8"}, "parallel"),
    ],
    ids=str,
)
def test_what_cannot_be_is_skipped_with_its_reason(changes: dict[str, Any], why: str) -> None:
    assert why in reason(changed(DENSE, **changes))


@pytest.mark.parametrize("changes", [{"tags": ["hybrid-ssm"]}, {"arch": {"ssm_state_size": 128}}], ids=str)
def test_a_hybrid_is_answered_for_what_is_known_and_open_above(changes: dict[str, Any]) -> None:
    """Never `fits`, the part named, no upper end; the figure no more than that of a decoder of the same size."""
    whole, found = said(DENSE), said(changed(DENSE, **changes))
    assert found["status"] == "ok"
    assert found["mem_high_gib"] is None
    assert "state-space" in found["unmodelled"][0]
    assert found["verdict"] in ("edge", "oom")
    assert 0 < found["mem_gib"] < whole["mem_gib"]


def test_every_problem_of_a_record_is_told_at_once() -> None:
    with pytest.raises(BadInput) as told:
        form(changed(DENSE, seq_len=-1, micro_batch="x", arch={"vocab_size": None}))
    assert {p.field for p in told.value.problems} >= {"seq_len", "micro_batch", "arch.vocab_size"}


def test_a_model_of_which_only_the_size_is_known_gets_a_shape_that_is_listed() -> None:
    found = said({**changed(DENSE, arch=None), "params_total": 8e9})
    assert found["status"] == "ok"
    assert any(line.startswith("arch: 8e+09") for line in found["assumed"])


# What the fields mean.


def test_context_parallel_ranks_share_the_states() -> None:
    """A record counts them among the ranks that shard; a plan does not."""
    record = changed(DENSE, n_gpus=16, parallel={"cp": 2, "shard": 16, "fsdp": 16})
    plan = express(record).case.plan
    assert (plan.dp_shard, plan.dp_replicate, plan.cp) == (8, 1, 2)


def test_replicas_of_sharded_groups_are_dp_replicate() -> None:
    plan = express(changed(DENSE, parallel={"shard": 4, "fsdp": 4})).case.plan
    assert (plan.dp_shard, plan.dp_replicate, plan.data_parallel) == (4, 2, "fsdp2")


def test_each_second_layer_is_checkpointed() -> None:
    recipe = express(changed(DENSE, act_ckpt="every-k", act_ckpt_args={"k": 2})).case.recipe
    assert (recipe.checkpointing, recipe.checkpoint_every, recipe.checkpoint_region) == ("every-k", 2, 1)


def test_megatrons_uniform_method_is_regions() -> None:
    args = {"method": "uniform", "layers": 4}
    recipe = express(changed(PIPELINE, act_ckpt="full", act_ckpt_args=args)).case.recipe
    assert (recipe.checkpointing, recipe.checkpoint_region) == ("full", 4)


def test_stages_that_do_not_divide_get_a_split_that_is_listed() -> None:
    found = express(changed(PIPELINE, arch={"num_hidden_layers": 30}))
    assert found.case.plan.layer_split == (7, 8, 8, 7)  # embedding and loss count as a layer each
    assert any("layer_split" in line for line in found.case.assumed)
    uneven = express(changed(PIPELINE, arch={"num_hidden_layers": 31}))
    assert uneven.case.plan.layer_split == (8, 8, 8, 7)
    last = express(changed(PIPELINE, parallel={"final_stage_layers": 2}))
    assert last.case.plan.layer_split == (10, 10, 10, 2)
    later = express(changed(PIPELINE, parallel={"final_stage_layers": 3}))
    assert later.case.plan.layer_split == (9, 10, 10, 3)


def test_packed_states_are_an_optimizer_of_their_own() -> None:
    recipe = express(changed(DENSE, precision={"optimizer_state": "int8"})).case.recipe
    assert recipe.optimizer == "adamw8bit"


def test_adapters_and_weights_that_train_whole() -> None:
    record = changed(LORA, peft={"targets": ["c_attn", "w1", "lm_head"], "modules_to_save": ["wte"]})
    peft = express(record).case.recipe.peft
    assert peft is not None
    assert peft.targets == ("q", "k", "v", "gate")
    assert peft.modules_to_save == ("embedding",)  # an adapter on the head trains no whole head
    less = predict(LORA).value
    assert predict(record).value > less + 128256 * 4096 * 2


def test_experts_are_spread_and_shared_ones_are_not() -> None:
    case = express(MOE).case
    assert [(g.count, g.mlp.kind, g.mlp.shared_ffn) for g in case.model.groups] == [(2, "dense", 0), (30, "moe", 2048)]
    whole = predict(changed(MOE, parallel={"ep": 1})).value
    assert predict(MOE).value < whole


def test_paged_states_are_not_torchs() -> None:
    kept, paged = (predict(changed(LORA, offload={"optimizer": o})).value for o in ("none", "paged"))
    assert paged < kept


def test_the_form_of_a_record_is_a_case_file() -> None:
    from planner import cases

    for record in EVERY:
        tree, _ = form(record)
        again = cases.case(tree, files=False)
        mine = express(record).case
        assert (again.recipe, again.plan, again.stack) == (mine.recipe, mine.plan, mine.stack)
        assert again.model.groups == mine.model.groups


def test_shapes_have_the_stated_number_of_parameters() -> None:
    """Of the shipped records: within half a per cent, by the formulas that memory is computed with."""
    wrong = []
    for line in shipped():
        record = line.record or {}
        stated = record.get("params_total")
        if stated and record.get("arch") and not {"vlm", "hybrid-ssm"} & set(record["tags"]):
            count = float(value_of(parameters(express(record).case.model)))
            if abs(count / stated - 1) > 0.005:
                wrong.append((record["id"], count, stated))
    assert {one[0] for one in wrong} == OTHER_COUNT


#: every canonical value of a record's enumerated fields, and where a record states it
VOCABULARY: dict[str, tuple[str, ...]] = {
    "act_ckpt": ("none", "full", "selective-op", "selective-modules", "every-k", "partial-layers", "full-except",
                 "remat-policy", "selective"),
    "attention": ("eager", "sdpa", "mem-efficient", "flash", "flash2", "flash3", "flash4", "flex", "cudnn", "te-auto",
                  "xla"),
    "loss": ("full-logits", "fused-ce", "compiled-ce", "chunked-ce", "chunked-linear-ce", "fused-linear-ce", "cut-ce"),
    "optimizer": ("adamw", "adam", "adamw8bit", "adamw4bit", "muon", "badam", "galore-adamw", "galore-adamw8bit",
                  "q-galore", "q-apollo-mini", "sgd", "adafactor", "lion"),
    "task": ("pretrain", "full-ft", "lora", "qlora", "dpo", "component"),
    "precision.params": ("fp32", "bf16", "fp16", "fp8", "int8"),
    "precision.compute": ("bf16", "fp16", "fp32"),
    "precision.gemm": ("fp8", "mxfp8", "nvfp4", "int8"),
    "precision.grads": ("fp32", "bf16", "fp16"),
    "precision.grad_reduce": ("fp32", "bf16"),
    "precision.optimizer_state": ("fp32", "bf16", "fp16", "int8", "int4", "rank-1"),
    "precision.master": ("fp32", "bf16", "none"),
    "precision.fp8": ("delayed", "current", "tensorwise", "rowwise", "rowwise-gw-hp", "blockwise", "mxfp8", "nvfp4",
                      "int8-weight-only", "unspecified"),
    "parallel.pp_schedule": ("1f1b", "interleaved-1f1b", "zero-bubble-interleaved", "dualpipe"),
    "parallel.cp_type": ("ring", "ulysses"),
    "parallel.fsdp_impl": ("fsdp1", "fsdp2", "megatron-fsdp optim_grads_params"),
    "offload.params": ("none", "cpu", "nvme"),
    "offload.optimizer": ("none", "cpu", "nvme", "paged"),
    "offload.activations": ("none", "cpu"),
}  # fmt: skip


@pytest.mark.parametrize("field", sorted(VOCABULARY))
def test_every_canonical_value_is_answered(field: str) -> None:
    table, _, name = field.rpartition(".")
    base = PIPELINE if name in ("pp_schedule", "cp_type") else DENSE
    for value in VOCABULARY[field]:
        changes: dict[str, Any] = {table: {name: value}} if table else {name: value}
        if name == "cp_type":
            changes["parallel"] |= {"cp": 2, "dp": 1, "shard": 2}
        found = said(changed(base, **changes))
        assert found["status"] == "ok", (value, found["reason"])


@pytest.mark.parametrize("base", ["fp32", "bf16", "fp16", "int8", "nf4", "nf4-dq", "gptq-int4", "awq-int4", "hqq-int4"])
def test_every_base_of_adapters_is_answered(base: str) -> None:
    assert said(changed(LORA, peft={"base_dtype": base}, precision={"params": base}))["status"] == "ok"


@pytest.mark.parametrize("name", ["apollo", "axolotl", "deepspeed", "hf-accelerate", "litgpt", "maxtext", "nanotron",
                                  "trl", "xtuner", "paxml", "mlperf-nemo", "", "x" * 300, "日本語"])  # fmt: skip
def test_nothing_is_skipped_for_its_name(name: str) -> None:
    assert said(changed(DENSE, framework=name))["status"] == "ok"
