"""Host memory by moment: loading, training, saving; on the node of the first rank."""

from __future__ import annotations

from typing import Any

import pytest

import planner
from planner import cases
from planner.quantity import value_of
from planner.step.evaluate import Estimate

GB = 1e9


def fit(
    model: str = "llama-3-8b", gpus: int = 8, plan: Any = None, host: float | None = None, **recipe: Any
) -> Estimate:
    cluster = {"gpu": "h100-sxm", "gpus": gpus, **({"host_gib": host} if host else {})}
    return planner.evaluate(cases.case({"model": model, "cluster": cluster, "recipe": recipe, "plan": plan or {}}))


def size(of: Estimate, moment: str) -> float:
    return float(value_of(of.host.moments[moment]))


def test_what_is_needed_is_the_fullest_moment_and_its_parts_add_up() -> None:
    found = fit(task="full-ft", plan={"data_parallel": "fsdp2"})
    needed = float(value_of(found.host.needed))
    assert needed == max(size(found, name) for name in ("loading", "training", "saving"))
    assert needed == pytest.approx(sum(float(value_of(part)) for part in found.host.parts.values()))


def test_each_rank_reads_a_copy_where_each_has_the_model_and_one_does_where_it_is_sharded() -> None:
    params = 8_030_261_248
    every = fit(task="full-ft", plan={"data_parallel": "ddp"}, checkpointing="full")
    one = fit(task="full-ft", plan={"data_parallel": "fsdp2"})
    for found, copies in ((every, 8), (one, 1)):
        assert size(found, "loading") - size(found, "training") == pytest.approx(copies * 4 * params)


def test_adapters_save_no_whole_copy() -> None:
    found = fit(task="lora", plan={"data_parallel": "fsdp2"})
    assert size(found, "saving") == size(found, "training")


def test_offloaded_layer_inputs_are_pinned_on_the_host() -> None:
    """36 GiB a rank: 36 layers x 131,072 tokens x 4,096 x 2 B (transformers, Qwen3-8B at 128k tokens)."""
    recipe = {"task": "full-ft", "seq_len": 131_072, "checkpointing": "full", "loss": "fused-linear-ce",
              "precision": "bf16-pure"}  # fmt: skip
    kept = fit("qwen3-8b", 8, {"data_parallel": "fsdp2"}, **recipe)
    moved = fit("qwen3-8b", 8, {"data_parallel": "fsdp2", "offload": {"activations": "cpu"}}, **recipe)
    more = size(moved, "training") - size(kept, "training")
    assert more / 8 / 2**30 == pytest.approx(36 * 1.15, rel=0.01)


def test_a_stated_node_decides_the_verdict() -> None:
    """Qwen2.5-32B, ZeRO-3 with everything on the host of 744 GB: killed by the kernel (a public report)."""
    plan = {"data_parallel": "zero", "zero": 3, "offload": {"params": "cpu", "optimizer": "cpu"}}
    recipe = {"framework": "deepspeed", "task": "full-ft", "checkpointing": "full"}
    assert fit("qwen2.5-32b", 1, plan, 693.0, **recipe).host.verdict in ("edge", "oom")
    assert fit("qwen2.5-32b", 1, plan, 2048.0, **recipe).host.verdict == "fits"
