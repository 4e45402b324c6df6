"""Frameworks, FSDP's strategies and optimizers as people write them."""

from __future__ import annotations

import pytest

from planner.evidence import wording


@pytest.mark.parametrize(
    ("text", "name", "engine", "version"),
    [
        ("torchtitan", "torchtitan", "", ""),
        ("HF Trainer FSDP1", "hf-transformers", "fsdp1", ""),
        ("DeepSpeed ZeRO-3", "deepspeed", "zero", ""),
        ("ms-swift/DeepSpeed", "ms-swift", "zero", ""),
        ("TRL/accelerate FSDP2", "trl", "fsdp2", ""),
        ("torchtune FSDP", "torchtune", "fsdp", ""),
        ("LLaMA-Factory, transformers 4.41.2, DeepSpeed 0.14.4", "hf-transformers", "zero", "4.41.2"),
        ("torchtitan fork", "torchtitan", "", ""),
        ("a framework of our own", "a framework of our own", "", ""),
    ],
)
def test_a_framework_s_text(text: str, name: str, engine: str, version: str) -> None:
    found = wording.named(text)
    assert (found.name, found.engine, found.version) == (name, engine, version)


def test_the_stage_of_zero_is_in_the_name() -> None:
    assert wording.named("DeepSpeed ZeRO-2").stage == 2


@pytest.mark.parametrize(
    ("text", "meant"),
    [("full_shard auto_wrap", (3, False)), ("shard_grad_op", (2, False)), ("hybrid_shard", (3, True)),
     ("no_shard", (0, False)), ("FULL_SHARD", (3, False)), ("8", None)],
)  # fmt: skip
def test_a_strategy_of_fsdp(text: str, meant: tuple[int, bool] | None) -> None:
    """torch's ShardingStrategy; SHARD_GRAD_OP keeps the weights whole between steps."""
    assert wording.strategy(text) == meant


@pytest.mark.parametrize(
    ("text", "name", "paged", "backward"),
    [("adamw", "adamw", False, False), ("paged_adamw8bit + optimizer_in_bwd", "adamw8bit", True, True),
     ("paged_adamw (bitsandbytes)", "adamw", True, False), ("adamw distributed", "adamw", False, False)],
)  # fmt: skip
def test_an_optimizer_s_text(text: str, name: str, paged: bool, backward: bool) -> None:
    found = wording.optimizer(text)
    assert (found.name, found.paged, found.in_backward) == (name, paged, backward)
