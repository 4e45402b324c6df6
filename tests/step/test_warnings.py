"""Each warning: one case that raises it, and its neighbour, one change away, that does not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import planner
from planner import cases, i18n
from planner.formulas import overheads as O
from planner.quantity import given as fact
from planner.spec.build import merged
from planner.spec.case import Case
from planner.spec.form import CHOICES, fields
from planner.step.evaluate import Estimate, evaluate
from planner.step.warn import Warning
from planner.step.warn.order import order, table
from planner.units import GIB
from tests.strategies import legal_cases

Raw = dict[str, Any]


def on(gpus: int, gpu: str = "h100-sxm") -> Raw:
    return {"gpu": gpu, "gpus": gpus}


def llama(
    gpus: int = 8, gpu: str = "h100-sxm", model: Any = "llama-3-8b", plan: Raw | None = None, **recipe: Any
) -> Raw:
    return {"model": model, "cluster": on(gpus, gpu), "recipe": recipe, "plan": plan or {}}


LORA = {"task": "lora", "checkpointing": "full"}
QLORA = {"task": "qlora", "checkpointing": "full"}
ZERO2 = {"data_parallel": "zero", "zero": 2}
ZERO3 = {"data_parallel": "zero", "zero": 3}
ZERO3_INSTEAD = {"plan.data_parallel": "zero", "plan.zero": 3}
OFFLOAD = {**ZERO3, "offload": {"optimizer": "cpu"}}
GEMMA_VLM = {
    "model_type": "gemma3", "text_config": {
        "model_type": "gemma3_text", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 4096, "vocab_size": 32000,
        "sliding_window": 1024, "max_position_embeddings": 8192,
    },
}  # fmt: skip

HYBRID = {"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50280}

#: code: the case that raises it, and the fields of its neighbour that does not
TABLE: dict[str, tuple[Raw, Raw]] = {
    "edge": (
        llama(framework="torchtitan", plan={"micro_batch": 2}, seq_len=5120), {"plan.micro_batch": 1},
    ),
    "low_headroom": (
        llama(1, "rtx-4090", "llama-3.2-1b", precision="bf16-master", seq_len=1536), {"recipe.seq_len": 256},
    ),
    "allocator_squeezed": (llama(seq_len=8192), {"recipe.seq_len": 4096}),
    "sdpa_math_fallback": (llama(precision="fp32", seq_len=1024), {"recipe.precision": "autocast-bf16"}),
    "eager_attention_quadratic": (llama(attention="eager"), {"recipe.attention": "sdpa"}),
    "beyond_trained_length": (llama(seq_len=8200, checkpointing="full"), {"recipe.seq_len": 8192}),
    "no_master_weights": (llama(precision="bf16-pure"), {"recipe.precision": "bf16-master"}),
    "tp_across_nodes": (llama(16, model="llama-2-7b", framework="megatron-lm", plan={"tp": 16}), {"plan.tp": 8}),
    "pp_needs_microbatches": (
        llama(framework="torchtitan", global_batch=4, plan={"pp": 4}), {"recipe.global_batch": 8},
    ),
    "host_memory": (
        {**llama(model="llama-3-70b", plan=OFFLOAD, checkpointing="full"), "cluster": {"node": "aws-p4d.24xlarge"}},
        {"model": "llama-3-8b"},
    ),
    "host_memory_unknown": (llama(1, "rtx-4090", plan=OFFLOAD, checkpointing="full"), {"plan.offload": None}),
    "not_traced": (llama(plan={"pp": 2}), {"plan.pp": 1}),
    "unconfirmed_hardware": (llama(gpu="ascend-910c"), {"cluster.gpu": "h100-sxm"}),
    "allocated_vs_device_used": (
        llama(2, "rtx-5060-ti-16", "llama-3.2-1b", seq_len=3584, checkpointing="full"), {"cluster.gpu": "h100-sxm"},
    ),
    "version_dependent": (
        llama(2, "a100-sxm-80", framework="torchtitan", checkpointing="full", seq_len=16384),
        {"cluster.gpus": 8},
    ),
    "logits_dominate": (
        llama(8, "a100-sxm-40", checkpointing="full", seq_len=8192), {"recipe.loss": "chunked-linear-ce"},
    ),
    "no_activation_checkpointing": (llama(seq_len=8192), {"recipe.checkpointing": "full"}),
    "activations_not_sharded_by_dp": (llama(plan={"micro_batch": 8}), {"plan.micro_batch": 1}),
    "optimizer_states_created_at_first_step": (
        llama(2, checkpointing="full", framework="torchtitan", seq_len=8192, plan={"micro_batch": 3}),
        {"recipe.optimizer": "adamw8bit"},
    ),
    "variable_length_peak": (llama(task="full-ft"), {"recipe.task": "pretrain"}),
    "moe_imbalance": (llama(model="qwen3-30b-a3b", framework="torchtitan", plan={"ep": 8}), {"plan.ep": 1}),
    "moe_layer_gather_peak": (
        llama(64, model="mixtral-8x7b", checkpointing="full"), {"plan.dp_shard": 8, "plan.dp_replicate": 8},
    ),
    "eval_accumulates_logits": (
        llama(1, "rtx-4090", **QLORA, seq_len=2048, plan={"micro_batch": 4}), {"recipe.seq_len": 256},
    ),
    "full_state_dict_gather_on_gpu": (
        llama(64, model="llama-3-70b", framework="pytorch", checkpointing="full"), {"model": "llama-3-8b"},
    ),
    "image_tokens": (llama(model=GEMMA_VLM, seq_len=2048), {"model": "gemma-3-1b"}),
    "unmodelled_layers": (llama(model=HYBRID), {"model": "llama-3-8b"}),
    "unvalidated_kind": (llama(task="dpo"), {"recipe.task": "full-ft"}),
    "sharding_degree_one": (llama(1, plan={"data_parallel": "fsdp2"}), {"plan.data_parallel": "none"}),
    "frozen_weights_loaded_in_fp32": (
        llama(**LORA, peft={"base_dtype": "fp32"}), {"recipe.peft.base_dtype": "bf16"},
    ),
    "ddp_replicates_quantized_base": (
        llama(2, model="llama-3-70b", **QLORA, seq_len=1024, plan={"data_parallel": "ddp"}), {"model": "llama-3-8b"},
    ),
    "quantized_base_replicated_under_zero2": (
        llama(2, model="llama-3-70b", **QLORA, seq_len=1024, plan=ZERO2), {"plan.zero": 3},
    ),
    "fsdp1_mixed_frozen_flat_params": (
        llama(model="llama-3-70b", **LORA, plan={"data_parallel": "fsdp1"}), {"plan.data_parallel": "fsdp2"},
    ),
    "fsdp_qlora_storage_dtype": (
        llama(model="llama-3-70b", **QLORA, plan={"data_parallel": "fsdp2"}), {"plan.data_parallel": "ddp"},
    ),
    "embedding_or_head_trainable": (
        llama(**LORA, peft={"modules_to_save": ["embed_tokens", "lm_head"]}), {"recipe.peft.modules_to_save": []},
    ),
    "full_ft_on_quantized_weights": (
        llama(precision={"preset": "bf16-pure", "params": "int8"}), {"recipe.precision.params": "bf16"},
    ),
    "fsdp_mixed_precision_upcasts": (llama(precision="bf16-pure"), {"recipe.precision": "autocast-bf16"}),
    "fsdp_no_sync_unsharded_grads": (llama(global_batch=32), {"recipe.global_batch": 8}),
    "rl_model_copies": (llama(task="dpo"), {"recipe.task": "full-ft"}),
    "fp8_keeps_high_precision_weights": (
        llama(precision={"preset": "autocast-bf16", "gemm": "fp8"}), {"recipe.precision.gemm": None},
    ),
    "cp_seq_multiple": (llama(framework="torchtitan", seq_len=8200, plan={"cp": 8}), {"recipe.seq_len": 8208}),
    "fused_backward_optimizer_no_grad_accum": (
        llama(optimizer_in_backward=True, global_batch=32), {"recipe.global_batch": 8},
    ),
    "lora_reentrant_needs_input_grads": (llama(**LORA, framework="pytorch"), {"recipe.checkpointing": "none"}),
    "vpp_needs_pp": (llama(framework="megatron-lm", plan={"virtual_stages": 4}), {"plan.virtual_stages": None}),
    "meg_sp_needs_tp": (
        llama(framework="megatron-lm", plan={"sequence_parallel": True}), {"plan.sequence_parallel": False},
    ),
    "ds_untested_optimizer_flag": (llama(optimizer="adamw8bit", plan=ZERO2), {"recipe.optimizer": "adamw"}),
    "ds_offload_needs_cpu_adam": (llama(optimizer="adafactor", plan=OFFLOAD), {"recipe.optimizer": "adamw"}),
    "ds_native_moe_zero3": (llama(model="mixtral-8x7b", plan={**ZERO3, "ep": 8}), {"plan.zero": 2}),
    "known_bad_version": (
        llama(framework="deepspeed@0.16.7", plan=ZERO3), {"recipe.framework": "deepspeed@0.16.8"},
    ),
    "per_rank_model_copy": (
        llama(model="llama-3-70b", task="full-ft", checkpointing="full"), ZERO3_INSTEAD,
    ),
    "host_ram_too_small_for_loading": (
        {**llama(model="llama-3.1-405b", task="full-ft"), "cluster": {"node": "gcp-a2-ultragpu-8g", "nodes": 8}},
        {"model": "llama-3.1-8b"},
    ),
    "worst_node_not_mean": (
        {**llama(model="llama-3.1-405b", task="full-ft", precision="bf16-master"),
         "cluster": {"node": "dgx-h100", "nodes": 2}},
        {"recipe.task": "pretrain"},
    ),
    "pinned_memory": (llama(model="llama-3-70b", plan=OFFLOAD, checkpointing="full"), {"model": "llama-3-8b"}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _english_afterwards() -> Iterator[None]:
    yield
    i18n.use(i18n.DEFAULT)


def raised(raw: Raw) -> dict[str, Warning]:
    return {one.code: one for one in planner.evaluate(cases.case(raw)).warnings}


def test_every_code_has_its_case_here() -> None:
    assert sorted(TABLE) == sorted(order())


@pytest.mark.parametrize("code", sorted(TABLE))
def test_a_case_raises_it_and_its_neighbour_does_not(code: str) -> None:
    raw, changes = TABLE[code]
    assert code in raised(raw)
    assert code not in raised(merged(raw, changes))


@pytest.mark.parametrize("gpus", [8, 64])
@pytest.mark.parametrize("framework", ["hf-transformers", "torchtitan", "pytorch"])
def test_a_plain_run_with_room_raises_nothing(framework: str, gpus: int) -> None:
    assert raised(llama(gpus, framework=framework)) == {}


# What they say


def values(code: str, raw: Raw | None = None) -> dict[str, Any]:
    return dict(raised(raw or TABLE[code][0])[code].values)


def test_what_would_threaten_the_run_comes_first() -> None:
    found = list(raised(TABLE["optimizer_states_created_at_first_step"][0]))
    assert found == sorted(found, key=order().__getitem__)
    assert list(order())[:1] == ["fused_backward_optimizer_no_grad_accum"]
    assert found.index("optimizer_states_created_at_first_step") < len(found)
    danger = set(table()["danger"])
    assert [code in danger for code in found] == sorted((code in danger for code in found), reverse=True)


def test_whole_gradients_are_counted_as_they_accumulate() -> None:
    """diag-grad-accum-no-sync-26b: 52 GB of 16-bit gradients instead of 3.25 GB on 16 ranks, 48.75 GB more (12 %)."""
    raw = llama(16, "a100-sxm-80", "26B", framework="pytorch", precision="bf16-pure", global_batch=64)
    assert float(values("fsdp_no_sync_unsharded_grads", raw)["extra"]) * GIB / 1e9 == pytest.approx(48.75, rel=0.02)


def test_one_copy_of_the_logits_is_told_as_the_cases_compute_it() -> None:
    """oom-gemma3-27b-17k-h200-4bit: 17,500 x 262,208 x 4 B = 17.1 GiB."""
    found = values("logits_dominate", llama(
        1, "a100-sxm-80", {"name": "gemma-3-27b", "num_hidden_layers": 2}, loss="full-logits", seq_len=17500,
        attention="flash", checkpointing="full", precision="bf16-pure",
    ))  # fmt: skip
    assert found["copy"] == "17.1"


def test_scores_of_one_layer_are_told_as_the_cases_compute_them() -> None:
    """The same case: eager attention adds 18 GiB a layer."""
    raw = llama(1, "h200-sxm", "gemma-3-27b", attention="eager", seq_len=17500, **QLORA)
    assert float(values("eager_attention_quadratic", raw)["layer"]) == pytest.approx(18, rel=0.03)


def test_states_that_the_first_step_makes() -> None:
    """diag-oom-inside-first-optimizer-step: 16 B x 8.03e9 / 2 = 59.8 GiB, half of them made by the first step."""
    assert float(values("optimizer_states_created_at_first_step")["states"]) == pytest.approx(59.8 / 2, rel=0.03)


def test_stacked_experts_are_padded_to_the_number_of_ranks() -> None:
    """8 experts on 64 ranks: every rank is padded to one expert, so eight times the layer is gathered."""
    found = values("moe_layer_gather_peak")
    assert float(found["padded"]) == pytest.approx(8 * float(found["whole"]), rel=0.02)
    assert float(O.padded_gather(size=8, experts=8, ranks=8)) == 8
    assert float(O.padded_gather(size=12, experts=12, ranks=8)) == 16


@pytest.mark.parametrize(
    ("seq_len", "cp", "comm", "sequence_parallel", "wanted"),
    [(8192, 8, "p2p", False, None), (8200, 8, "p2p", False, 8208), (8200, 8, "a2a", False, None),
     (8208, 2, "p2p", True, None), (8212, 2, "a2a", True, 8216)],
)  # fmt: skip
def test_a_ring_cuts_two_parts_a_rank(
    seq_len: int, cp: int, comm: str, sequence_parallel: bool, wanted: int | None
) -> None:
    tp = 4 if sequence_parallel else 1
    plan = {"cp": cp, "cp_comm": comm, "tp": tp, "sequence_parallel": sequence_parallel}
    found = raised(llama(framework="torchtitan", seq_len=seq_len, plan=plan)).get("cp_seq_multiple")
    assert (dict(found.values)["nearest"] if found else None) == wanted


def test_adapters_share_the_reference_model() -> None:
    raw = llama(task="dpo", peft={"rank": 8})
    assert "rl_model_copies" not in raised(raw)


def test_offload_on_one_gpu_is_meant() -> None:
    assert "sharding_degree_one" not in raised(llama(1, plan=OFFLOAD))


def test_deepspeed_makes_its_states_before_the_first_step() -> None:
    raw = llama(2, task="full-ft", checkpointing="full", seq_len=8192, plan={**ZERO3, "micro_batch": 2})
    assert planner.evaluate(cases.case(raw)).verdict != "fits"
    assert "optimizer_states_created_at_first_step" not in raised(raw)


@pytest.mark.parametrize("code", ["logits_dominate", "variable_length_peak"])
def test_what_makes_the_peak_is_no_matter_with_half_of_the_card_left(code: str) -> None:
    raw = merged(TABLE[code][0], {"cluster.gpu": "b300"})
    assert code not in raised(raw)


def test_sharding_over_one_rank_is_no_matter_beside_tensor_parallelism() -> None:
    raw = llama(8, framework="megatron-lm", plan={"data_parallel": "zero", "zero": 1, "tp": 8, "dp_shard": 1})
    assert "sharding_degree_one" not in raised(raw)


def test_a_run_that_cannot_fit_is_not_told_about_its_lengths() -> None:
    assert "variable_length_peak" not in raised(llama(1, task="full-ft"))


def test_a_named_release_does_not_depend_on_the_release() -> None:
    raw = merged(TABLE["version_dependent"][0], {"recipe.framework": "torchtitan-2024"})
    assert "version_dependent" not in raised(raw)


def smaller_host(raw: Raw, gib: float) -> Estimate:
    made = cases.case(raw)
    return evaluate(replace(made, cluster=replace(made.cluster, host_memory=fact(gib * GIB, "B", "host_memory"))))


def test_a_small_container_is_told_before_it_is_killed() -> None:
    """host-llama3-8b-fsdp-qlora-16gb-ram: rank 0 loads 16 GB in 16 bit before it quantises them."""
    raw = llama(4, "a40", **QLORA, seq_len=8192, plan={"data_parallel": "fsdp1"})
    found = smaller_host(raw, 16e9 / GIB)
    assert found.warnings[0].code == "host_ram_too_small_for_loading"
    assert "host_ram_too_small_for_loading" not in {one.code for one in smaller_host(raw, 512).warnings}


# In general


PLACEHOLDER = re.compile(r"[{}]|None|nan")


def check(case: Case) -> None:
    found = evaluate(case).warnings
    codes = [one.code for one in found]
    assert codes == sorted(set(codes), key=order().__getitem__)
    for language in i18n.languages():
        i18n.use(language)
        for one in found:
            assert not PLACEHOLDER.search(one.because + one.remedy), one.code
            assert one.because != one.remedy


@given(case=legal_cases())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_any_legal_case_can_be_warned_of(case: Case) -> None:
    check(case)


FIELD = re.compile(r"\b(?:recipe|plan|cluster)(?:\.\w+)+")


@pytest.mark.parametrize("code", sorted(TABLE))
def test_a_remedy_names_fields_that_exist(code: str) -> None:
    every = set(fields())
    for language in i18n.languages():
        i18n.use(language)
        named = FIELD.findall(i18n.t(f"warn.{code}.remedy"))
        assert set(named) <= every


SETTING = re.compile(r"((?:recipe|plan)(?:\.\w+)+) = ([a-z][\w-]*)(?: (?:or|或) ([a-z][\w-]*))?")


def test_what_a_remedy_sets_is_a_value_of_that_field() -> None:
    said = [i18n.table(language)[f"warn.{code}.remedy"] for language in i18n.languages() for code in TABLE]
    found = [(field, value) for text in said for field, *values in SETTING.findall(text) for value in values if value]
    assert len(found) > 60
    assert [(f, v) for f, v in found if v not in (*CHOICES.get(f, ("true", "false")), *SPOKEN)] == []


#: words that may stand behind a setting and are no values
SPOKEN = ("adapters", "recipe", "plan", "no")
