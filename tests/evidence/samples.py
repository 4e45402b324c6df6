"""Run records to start from in tests."""

from __future__ import annotations

import copy
from typing import Any

Record = dict[str, Any]

DENSE: Record = {
    "id": "one", "source": {"repo_or_url": "a/b", "path": "c"}, "model": "llama-3-8b", "task": "pretrain", "grade": "A",
    "arch": {
        "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128, "intermediate_size": 14336, "gated_mlp": True, "vocab_size": 128256,
        "tie_word_embeddings": False, "norm": "rmsnorm", "position": "rope", "bias": False,
    },
    "gpu": "h100-sxm", "gpu_mem_gb": 80, "n_gpus": 8, "gpus_per_node": 8, "framework": "torchtitan",
    "precision": {"params": "fp32", "compute": "bf16", "grads": "fp32", "optimizer_state": "fp32", "master": "none",
                  "fp8": False},
    "optimizer": "adamw",
    "parallel": {"dp": 8, "fsdp": 8, "zero_stage": 3, "tp": 1, "sp": False, "pp": 1, "cp": 1, "ep": 1,
                 "fsdp_impl": "fsdp2", "reshard_after_forward": True, "shard": 8},
    "offload": {"params": "none", "optimizer": "none", "activations": "none"},
    "micro_batch": 1, "global_batch": 8, "grad_accum": 1, "seq_len": 8192, "act_ckpt": "selective-op",
    "attention": "flash2", "compile": False, "loss": "full-logits", "tags": [],
    "measured": {"mem_value": 50.0, "mem_unit": "GiB", "mem_metric": "max_reserved", "mem_scope": "max-rank"},
}  # fmt: skip

PIPELINE: Record = {
    **DENSE, "id": "two", "framework": "megatron-lm", "n_gpus": 16, "loss": "fused-ce", "act_ckpt": "none",
    "precision": {"params": "bf16", "compute": "bf16", "grads": "fp32", "optimizer_state": "fp32", "master": "fp32"},
    "parallel": {"dp": 2, "zero_stage": 1, "tp": 2, "sp": True, "pp": 4, "pp_schedule": "1f1b", "cp": 1, "ep": 1,
                 "shard": 2},
    "global_batch": 32, "grad_accum": 16,
    "measured": {"mem_value": 50.0, "mem_unit": "GiB", "mem_metric": "max_allocated", "mem_scope": "rank0"},
}  # fmt: skip

LORA: Record = {
    **DENSE, "id": "three", "framework": "hf-transformers", "task": "qlora", "n_gpus": 1, "gpus_per_node": 1,
    "peft": {"method": "lora", "rank": 16, "targets": ["q_proj", "v_proj"], "base_dtype": "nf4"},
    "precision": {"params": "nf4", "compute": "bf16", "grads": "bf16", "optimizer_state": "bf16", "master": "none"},
    "parallel": {"dp": 1, "zero_stage": 0, "tp": 1, "pp": 1, "cp": 1, "shard": 1}, "act_ckpt": "full",
    "global_batch": 1, "measured": {"mem_metric": "max_allocated", "mem_scope": "rank0"},
}  # fmt: skip

MOE: Record = {
    **PIPELINE, "id": "four",
    "arch": {**DENSE["arch"], "num_experts": 16, "experts_per_token": 2, "moe_intermediate_size": 2048,
             "shared_experts": 1, "first_k_dense": 2},
    "parallel": {**PIPELINE["parallel"], "pp": 1, "dp": 8, "ep": 8, "shard": 8},
}  # fmt: skip
EVERY = (DENSE, PIPELINE, LORA, MOE)


def changed(record: Record, **fields: Any) -> Record:
    """A copy with some fields put in; a dict goes into the table that is there, None takes a field out."""
    made = copy.deepcopy(record)
    for name, value in fields.items():
        if isinstance(value, dict) and isinstance(made.get(name), dict):
            made[name] = {k: v for k, v in {**made[name], **value}.items() if v is not None}
        elif value is None:
            made.pop(name, None)
        else:
            made[name] = value
    return made
