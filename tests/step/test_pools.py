"""FSDP2's pools by stream against replayed traces and published runs of torchtitan."""

from __future__ import annotations

from typing import Any

import pytest

from planner import cases
from planner.step.evaluate import evaluate

GIB = 2**30


def run(framework: str, gpus: int = 8, gpu: str = "h100-sxm-96", **more: Any) -> Any:
    """Llama 3 8B at 8,192 tokens, operator-wise checkpointing."""
    plan = {"data_parallel": "fsdp2", **more.pop("plan", {})}
    recipe = {"framework": framework, "seq_len": 8192, "checkpointing": "selective-op", **more}
    return evaluate(cases.case(
        {"cluster": {"gpu": gpu, "gpus": gpus}, "model": "llama-3-8b", "recipe": recipe, "plan": plan}
    )).memory  # fmt: skip


def gib(size: Any) -> float:
    return float(size.value) / GIB


@pytest.mark.parametrize(
    ("framework", "mode", "replayed"),
    [("torchtitan-2024", "native", 51.201), ("torchtitan-2024", "expandable", 49.701),
     ("torchtitan", "native", 50.023), ("torchtitan", "expandable", 47.318)],
)  # fmt: skip
def test_reserved_is_what_the_replay_of_a_trace_reserves(framework: str, mode: str, replayed: float) -> None:
    """The same runs traced (torch 2.13) and replayed; a replay has no workspaces."""
    found = run(framework, allocator=mode)
    off = 0.006 if mode == "expandable" else 0.025
    assert gib(found.reserved) - gib(found.workspaces) == pytest.approx(replayed, rel=off)


@pytest.mark.parametrize(
    ("framework", "more", "published"),
    [("torchtitan@2024-11-27", {}, 49.586),  # commit 6a6f755d2 (#699)
     ("torchtitan@2025-02-06", {"plan": {"reshard_after_forward": False}}, 62.18),  # commit 5940ddeb5 (#822)
     ("torchtitan@2025-02-18", {"compile": True}, 47.65),  # commit 069bae286 (#808): the same with compiled layers
     ("torchtitan@2025-03-24", {}, 49.58)],  # commit e23bb707d (#996)
)  # fmt: skip
def test_published_reserved_memory_within_one_per_cent(framework: str, more: dict[str, Any], published: float) -> None:
    assert gib(run(framework, **more).reserved) == pytest.approx(published, rel=0.01)


def test_a_compiled_layer_keeps_no_result_that_nothing_reads() -> None:
    """The down projection's: 2 bytes for each channel of each token of each layer."""
    eager, compiled = (gib(run("torchtitan@2025-02-18", compile=c).allocated) for c in (None, True))
    assert eager - compiled == pytest.approx(2 * 4096 * 8192 * 32 / GIB, rel=0.1)


def test_tensor_parallel_keeps_what_reduces_the_sums() -> None:
    """Traced with tp = 2 (torch 2.13): 30.603 GiB."""
    assert gib(run("torchtitan", plan={"tp": 2, "sequence_parallel": True}).allocated) == pytest.approx(30.603, 1e-3)


def test_the_pool_of_gradients_outlives_them() -> None:
    """At the loss no gradient exists, and yet reserved memory falls by four bytes a parameter with more ranks."""
    few, many = run("torchtitan", gpus=8, allocator="native"), run("torchtitan", gpus=64, allocator="native")
    fell = gib(few.cached) - gib(many.cached)
    states = (gib(few.allocated) - gib(many.allocated)) / 3
    assert fell == pytest.approx(states, rel=0.35)


@pytest.mark.parametrize(
    ("gpu", "gpus", "mode"), [("h100-sxm", 8, "expandable"), ("h100-sxm", 16, "native"), ("mi300x", 8, "native")]
)
def test_expandable_segments_need_one_node_and_no_rocm(gpu: str, gpus: int, mode: str) -> None:
    case = cases.case({
        "cluster": {"gpu": gpu, "gpus": gpus}, "model": "llama-3-8b", "recipe": {"framework": "torchtitan"},
        "plan": {"data_parallel": "fsdp2"},
    })  # fmt: skip
    assert case.recipe.allocator == mode
