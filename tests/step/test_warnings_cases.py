"""Warnings that the cases collected from public threads expect, for those that a case can state today.

Each row names its case and restates its configuration in our own fields.
"""

from __future__ import annotations

from typing import Any

import pytest

import planner
from planner import cases

Raw = dict[str, Any]

#: the case's id, what it states in our fields, the codes it expects
EXPECTED: list[tuple[str, Raw, set[str]]] = [
    (
        "oom-llava13b-fullft-1gpu-fsdp",
        {"model": "llama-13b", "cluster": {"gpu": "a100-sxm-80", "gpus": 1},
         "recipe": {"framework": "hf-transformers", "task": "full-ft", "seq_len": 2048},
         "plan": {"data_parallel": "fsdp1", "dp_shard": 1}},
        {"sharding_degree_one"},
    ),
    (
        "fits-swift-qwen25-32b-full-8x80-zero3-8k",
        {"model": "qwen2.5-32b", "cluster": {"gpu": "a100-sxm-80", "gpus": 8},
         "recipe": {"framework": "ms-swift", "task": "full-ft", "precision": "bf16-master", "seq_len": 8192,
                    "checkpointing": "full", "attention": "flash2", "loss": "fused-linear-ce",
                    "allocator": "expandable"},
         "plan": {"data_parallel": "zero", "zero": 3}},
        {"low_headroom"},
    ),
    (
        "oom-dpo-qwen05b-a100-80g",  # 8 pairs of 1,024 tokens
        {"model": "qwen2.5-0.5b", "cluster": {"gpu": "a100-sxm-80", "gpus": 1},
         "recipe": {"framework": "hf-transformers", "task": "dpo", "seq_len": 1024, "loss": "full-logits"},
         "plan": {"micro_batch": 16}},
        {"logits_dominate", "rl_model_copies"},
    ),
    (
        "oom-gemma3-27b-17k-h200-4bit",
        {"model": "gemma-3-27b", "cluster": {"gpu": "h200-sxm", "gpus": 1},
         "recipe": {"framework": "unsloth", "task": "qlora", "peft": {"rank": 256, "base_dtype": "nf4"},
                    "optimizer": "adamw8bit", "seq_len": 17500, "attention": "eager", "checkpointing": "full",
                    "loss": "full-logits"}},
        {"eager_attention_quadratic"},
    ),
    (
        "host-openrlhf-72b-1p4tb",  # on a node of 2 TB: a case states the host by its node
        {"model": "qwen2.5-72b", "cluster": {"node": "dgx-h100"},
         "recipe": {"framework": "deepspeed", "task": "full-ft", "checkpointing": "full"},
         "plan": {"data_parallel": "zero", "zero": 3, "offload": {"optimizer": "cpu"}}},
        {"pinned_memory"},
    ),
    (
        "mem-swift-qwen3-8b-lora-activation-offload-2npu",
        {"model": "qwen3-8b", "cluster": {"gpu": "ascend-910b", "gpus": 2},
         "recipe": {"framework": "ms-swift", "task": "lora", "peft": {"rank": 8}, "seq_len": 4096,
                    "global_batch": 32, "checkpointing": "none"},
         "plan": {"data_parallel": "fsdp2"}},
        {"variable_length_peak"},
    ),
    (
        "diag-grad-accum-no-sync-26b",
        {"model": "26B", "cluster": {"gpu": "a100-sxm-80", "gpus": 16},
         "recipe": {"framework": "pytorch", "precision": "bf16-pure", "global_batch": 64, "checkpointing": "full"},
         "plan": {"data_parallel": "fsdp2"}},
        {"fsdp_no_sync_unsharded_grads"},
    ),
    (
        "diag-oom-inside-first-optimizer-step",  # the card is not named: the largest on which it still fails
        {"model": "llama-3-8b", "cluster": {"gpu": "h100-sxm", "gpus": 2},
         "recipe": {"framework": "torchtitan", "checkpointing": "full", "seq_len": 8192},
         "plan": {"data_parallel": "fsdp2", "micro_batch": 3}},
        {"optimizer_states_created_at_first_step"},
    ),
    (
        "diag-open-r1-deepspeed-0168",
        {"model": "qwen3-8b", "cluster": {"gpu": "h100-sxm", "gpus": 8},
         "recipe": {"framework": "deepspeed@0.16.7", "task": "full-ft"},
         "plan": {"data_parallel": "zero", "zero": 3}},
        {"known_bad_version"},
    ),
    (
        "diag-eval-27gb-after-train-9gb",  # the card is not named
        {"model": "llama-7b", "cluster": {"gpu": "rtx-4090", "gpus": 1},
         "recipe": {"framework": "hf-transformers", "task": "qlora", "seq_len": 2048, "checkpointing": "full"},
         "plan": {"micro_batch": 4}},
        {"eval_accumulates_logits"},
    ),
    (
        "cfg-acc-fsdp-upcast-fp32",
        {"model": "llama-2-7b", "cluster": {"gpu": "a100-sxm-80", "gpus": 8},
         "recipe": {"framework": "accelerate", "task": "full-ft", "precision": "bf16-pure"},
         "plan": {"data_parallel": "fsdp1"}},
        {"fsdp_mixed_precision_upcasts"},
    ),
    (
        "cfg-acc-grad-accum-no-sync-each-batch",
        {"model": "llama-2-7b", "cluster": {"gpu": "a100-sxm-80", "gpus": 8},
         "recipe": {"framework": "accelerate", "task": "full-ft", "global_batch": 64},
         "plan": {"data_parallel": "fsdp2"}},
        {"fsdp_no_sync_unsharded_grads"},
    ),
    (
        "cfg-layerwise-optimizer-with-grad-accum",
        {"model": "llama-2-7b", "cluster": {"gpu": "rtx-4090", "gpus": 1},
         "recipe": {"optimizer_in_backward": True, "global_batch": 4, "precision": "bf16-pure"}},
        {"fused_backward_optimizer_no_grad_accum"},
    ),
    (
        "cfg-pp-microbatches-below-degree",
        {"model": "llama-3-8b", "cluster": {"gpu": "h100-sxm", "gpus": 8},
         "recipe": {"framework": "torchtitan", "global_batch": 4}, "plan": {"pp": 4}},
        {"pp_needs_microbatches"},
    ),
    (
        "cfg-meg-interleave-pp2",
        {"model": "llama-3-8b", "cluster": {"gpu": "h100-sxm", "gpus": 8},
         "recipe": {"framework": "megatron-lm"}, "plan": {"pp": 1, "virtual_stages": 8}},
        {"vpp_needs_pp"},
    ),
    (
        "cfg-ds-untested-optimizer",
        {"model": "llama-3-8b", "cluster": {"gpu": "h100-sxm", "gpus": 8},
         "recipe": {"framework": "deepspeed", "optimizer": "adamw8bit"},
         "plan": {"data_parallel": "zero", "zero": 2}},
        {"ds_untested_optimizer_flag"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "raw", "codes"), EXPECTED, ids=lambda row: row if isinstance(row, str) else "")
def test_a_case_is_warned_of_as_it_expects(name: str, raw: Raw, codes: set[str]) -> None:
    assert codes <= {one.code for one in planner.evaluate(cases.case(raw)).warnings}


def test_the_cost_of_widened_states_is_the_case_s() -> None:
    """cfg-acc-fsdp-upcast-fp32: 16 B a parameter, not 8: 100 GiB in all instead of 50."""
    raw = next(raw for name, raw, _ in EXPECTED if name == "cfg-acc-fsdp-upcast-fp32")
    found = {one.code: dict(one.values) for one in planner.evaluate(cases.case(raw)).warnings}
    values = found["fsdp_mixed_precision_upcasts"]
    assert 8 * float(values["now"]) == pytest.approx(50, rel=0.02)
    assert 8 * float(values["wide"]) == pytest.approx(100, rel=0.02)
