"""The shipped records by themselves, without the planner's formulas: values, worlds, cards, a floor by arithmetic."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / "planner" / "data" / "evidence" / "memory.jsonl"
RECORDS: list[dict[str, Any]] = [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]
HARDWARE = {path.stem for path in (ROOT / "planner" / "data" / "hardware").glob("*.toml")}

UNITS = {"GiB": 2**30, "MiB": 2**20, "GB": 1e9, "MB": 1e6}
#: canonical values of run-record fields (docs/explanation/evidence.md); null is a missing field
CANONICAL: dict[str, set[Any]] = {
    "act_ckpt": {"none", "full", "selective-op", "selective-modules", "every-k", "partial-layers", "full-except",
                 "remat-policy", "selective"},
    "attention": {"eager", "sdpa", "mem-efficient", "flash", "flash2", "flash3", "flash4", "flex", "cudnn", "te-auto",
                  "xla"},
    "loss": {"full-logits", "fused-ce", "compiled-ce", "chunked-ce", "chunked-linear-ce", "fused-linear-ce", "cut-ce"},
    "optimizer": {"adamw", "adam", "adamw8bit", "adamw4bit", "muon", "badam", "galore-adamw", "galore-adamw8bit",
                  "q-galore", "q-apollo-mini", "sgd", "adafactor", "lion"},
    "task": {"pretrain", "full-ft", "lora", "qlora", "dpo", "component"},
    "grade": {"A", "B", "C"},
    "measured.mem_metric": {"max_allocated", "max_active", "max_reserved", "nvidia-smi", "fits", "oom"},
    "measured.mem_unit": set(UNITS),
    "measured.mem_scope": {"rank0", "logged-rank", "rank7", "single-gpu", "per-gpu", "max-rank", "mean", "sum",
                           "last-stage", "last-stage-max", "stage0-max"},
    "parallel.pp_schedule": {"1f1b", "interleaved-1f1b", "zero-bubble-interleaved", "dualpipe"},
    "offload.params": {"none", "cpu", "nvme"},
    "offload.optimizer": {"none", "cpu", "nvme", "paged"},
    "offload.activations": {"none", "cpu"},
    "precision.params": {"fp32", "bf16", "fp16", "fp8", "nf4", "nf4-dq", "gptq-int4", "awq-int4", "hqq-int4", "int8"},
    "precision.grads": {"fp32", "bf16", "fp16"},
    "precision.optimizer_state": {"fp32", "bf16", "fp16", "int8", "int4", "rank-1"},
    "precision.master": {"fp32", "bf16", "none"},
}  # fmt: skip
#: bytes a number; a floor takes packed 4-bit kinds without their scales
WIDTH = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "int4": 0.5, "none": 0, "nf4": 0.5, "nf4-dq": 0.5,
         "gptq-int4": 0.5, "awq-int4": 0.5, "hqq-int4": 0.5}  # fmt: skip
#: tags that say a record is known to be off, or that it is no whole run
EXCUSED = {"below-floor", "inconsistent", "component", "init-only", "first-step", "pathology", "hybrid-ssm", "vlm"}


def ids(record: dict[str, Any]) -> str:
    return str(record["id"])


def value(record: dict[str, Any], dotted: str) -> Any:
    here: Any = record
    for part in dotted.split("."):
        here = here.get(part) if isinstance(here, dict) else None
    return here


def measured(record: dict[str, Any]) -> float:
    """What was measured, in B, of one GPU."""
    size = record["measured"]["mem_value"] * UNITS[record["measured"]["mem_unit"]]
    gpus: int = record["n_gpus"] if record["measured"].get("mem_scope") == "sum" else 1
    return float(size) / gpus


def test_every_id_is_its_own() -> None:
    assert [id for id, n in Counter(ids(r) for r in RECORDS).items() if n > 1] == []


def test_every_record_names_its_source() -> None:
    assert [ids(r) for r in RECORDS if not (value(r, "source.repo_or_url") and value(r, "source.path"))] == []


@pytest.mark.parametrize("field", sorted(CANONICAL))
def test_enumerated_values_are_canonical(field: str) -> None:
    found = {value(r, field) for r in RECORDS} - {None}
    assert found <= CANONICAL[field]


def test_every_card_is_in_the_catalogue() -> None:
    assert {r["gpu"] for r in RECORDS if r.get("gpu")} <= HARDWARE


def test_worlds_multiply_up() -> None:
    wrong = []
    for r in RECORDS:
        p = r["parallel"]
        if r.get("n_gpus") and p.get("dp"):
            world = p["dp"] * p.get("tp", 1) * p.get("pp", 1) * p.get("cp", 1)
            if world != r["n_gpus"]:
                wrong.append((ids(r), world, r["n_gpus"]))
    assert wrong == []


def test_batches_multiply_up() -> None:
    wrong = []
    for r in RECORDS:
        parts = [r.get("micro_batch"), r.get("grad_accum"), r["parallel"].get("dp"), r.get("global_batch")]
        if all(parts) and parts[0] * parts[1] * parts[2] != parts[3]:  # type: ignore[operator]
            wrong.append(ids(r))
    assert wrong == []


def test_states_are_sharded_over_ranks_that_there_are() -> None:
    wrong = []
    for r in RECORDS:
        p = r["parallel"]
        if p.get("shard") and p.get("dp") and (p["dp"] * p.get("cp", 1)) % p["shard"]:
            wrong.append(ids(r))
    assert wrong == []


def test_nothing_is_measured_above_the_card() -> None:
    """A card holds up to 7.4 % more than its decimal size: an "80 GB" H100 has 81,559 MiB."""
    wrong = []
    for r in RECORDS:
        known = r.get("gpu_mem_gb") and r["measured"].get("mem_unit") and not EXCUSED & set(r["tags"])
        if known and measured(r) > r["gpu_mem_gb"] * 1e9 * 1.08:
            wrong.append((ids(r), round(measured(r) / 1e9, 1), r["gpu_mem_gb"]))
    assert wrong == []


def floor(r: dict[str, Any]) -> float | None:
    """The least that one rank can hold in B: its weights and, where they train and stay on the GPU, their states."""
    total, p, precision = r.get("params_total"), r["parallel"], r.get("precision") or {}
    if not total or precision.get("params") not in WIDTH or value(r, "offload.params") not in (None, "none"):
        return None
    split = p.get("tp", 1) * p.get("pp", 1) * (p.get("ep") or 1)
    shard = p.get("shard") or 1
    ways = split * (shard if p.get("zero_stage") == 3 else 1)
    held = total * WIDTH[precision["params"]] / ways
    trains = r["task"] in ("pretrain", "full-ft") and r.get("optimizer") in ("adamw", "adam")
    if trains and value(r, "offload.optimizer") in (None, "none"):
        states = 2 * WIDTH.get(precision.get("optimizer_state"), 0) + WIDTH.get(precision.get("master"), 0)
        held += total * states / (split * (shard if p.get("zero_stage") else 1))
    return float(held)


def test_no_measurement_is_below_its_weights_and_states() -> None:
    """5 % are left for counts of parameters that leave a part out."""
    wrong = []
    for r in RECORDS:
        least = floor(r)
        points = r["measured"].get("mem_metric") not in ("oom", None)
        sound = r["grade"] in "AB" and not EXCUSED & set(r["tags"]) and r["parallel"].get("pp", 1) == 1
        if least and points and sound and measured(r) < 0.95 * least:
            wrong.append((ids(r), round(measured(r) / 2**30, 2), round(least / 2**30, 2)))
    assert wrong == []


#: shapes that an architecture's fields cannot state
OTHER_SHAPE = {"modded-nanogpt-20241210": "value embeddings beside the token embedding"}


def test_the_stated_size_is_that_of_the_stated_shape() -> None:
    """An embedding, layers of attention and feed-forward, and a head: within 3 % of the stated count."""
    wrong = []
    for r in RECORDS:
        count = parameters(r.get("arch") or {})
        stated = r.get("params_total")
        plain = ids(r) not in OTHER_SHAPE and not {"vlm", "hybrid-ssm"} & set(r["tags"])
        if count and stated and plain and abs(count / stated - 1) > 0.03:
            wrong.append((ids(r), f"{count:.4g}", stated))
    assert wrong == []


def parameters(arch: dict[str, Any]) -> float | None:
    """Parameters of a shape, counted by hand; None where a part is not stated."""
    keys = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "head_dim", "intermediate_size")
    if any(not arch.get(k) for k in keys):
        return None
    h, layers, heads, vocab, size, ffn = (arch[k] for k in keys)
    kv = arch.get("num_key_value_heads") or heads
    if mla := arch.get("mla"):
        q, k, n, rope, v = (mla.get(x) for x in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
                                                 "v_head_dim"))  # fmt: skip
        query = h * q + q * heads * (n + rope) if q else h * heads * (n + rope)
        attention = query + h * (k + rope) + k * heads * (n + v) + heads * v * h
    else:
        attention = 2 * h * heads * size + 2 * h * kv * size
    gates = 3 if arch.get("gated_mlp", True) else 2
    dense = gates * h * ffn
    experts = arch.get("num_experts") or 0
    if experts > 1:
        fe = arch.get("moe_intermediate_size") or ffn
        shared = arch.get("shared_intermediate_size") or (arch.get("shared_experts") or 0) * fe
        moe = experts * gates * h * fe + gates * h * shared + h * experts
        first = arch.get("first_k_dense") or 0
        feed = (layers - first) * moe + first * dense
    else:
        feed = layers * dense
    tables = vocab * h * (1 if arch.get("tie_word_embeddings") else 2)
    learned = arch.get("max_position", 0) * h if arch.get("position") == "learned" else 0
    return float(tables + learned + layers * attention + feed)
