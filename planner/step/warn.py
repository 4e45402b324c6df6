"""Warnings that stand beside an answer: a code, because, remedy. Codes are those of the cases' vocabulary where it has one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.formulas import overheads as O
from planner.quantity import value_of
from planner.spec.case import Case
from planner.step.memory import Host, Memory
from planner.step.setting import attention_core

LOW_HEADROOM = 0.05


@dataclass(frozen=True, slots=True)
class Warning:
    """One warning."""

    code: str
    because: str
    remedy: str


def warnings(case: Case, memory: Memory, host: Host) -> tuple[Warning, ...]:
    """Every warning of a single case."""
    return tuple(_all(case, memory, host))


def _all(case: Case, memory: Memory, host: Host) -> Iterator[Warning]:
    share = float(value_of(O.share(part=memory.headroom, whole=memory.usable)))
    if memory.verdict == "fits" and share < LOW_HEADROOM:
        yield Warning(
            "low_headroom",
            f"only {share:.1%} of the card is left; evaluation, saving or a longer batch can take that.",
            "Keep 5 % free: smaller micro-batch, checkpointing, or a chunked loss.",
        )
    if attention_core(case) == "math":
        yield Warning(
            "sdpa_math_fallback",
            "grouped heads have no fused attention kernel in this precision: torch takes the math backend, "
            "whose memory grows with the square of the sequence.",
            "Train in bf16 (autocast or pure), where flash attention runs.",
        )
    if case.recipe.attention == "eager":
        yield Warning(
            "eager_attention",
            "eager attention keeps every score: heads x sequence^2.",
            "attention = sdpa or flash.",
        )
    longest = case.model.max_positions
    if value_of(case.recipe.seq_len) > longest:
        yield Warning(
            "beyond_trained_length",
            f"{case.recipe.seq_len} tokens are more than the {longest} the model is declared for.",
            "Extend the rotary base, or shorten the sequence.",
        )
    if case.recipe.precision.preset == "bf16-pure" and case.recipe.peft is None:
        yield Warning(
            "no_master_weights",
            "16-bit weights without an fp32 master lose small updates.",
            "Keep a master copy, or use stochastic rounding.",
        )
    if case.plan.tp > case.cluster.gpus_per_node:
        yield Warning(
            "tp_across_nodes",
            f"tp = {case.plan.tp} leaves the node of {case.cluster.gpus_per_node} GPUs: every layer waits for the network.",
            f"tp up to {case.cluster.gpus_per_node}.",
        )
    if case.plan.pp > 1 and case.plan.accumulation < case.plan.pp:
        yield Warning(
            "pipeline_not_filled",
            f"{case.plan.accumulation} micro-batches do not fill {case.plan.pp} stages.",
            f"At least {case.plan.pp} micro-batches a step.",
        )
    if host.verdict == "oom":
        yield Warning(
            "host_memory", "a node's memory does not hold the offloaded states.", "More host memory, or less offload."
        )
    if host.capacity is None and (case.plan.offload.params != "none" or case.plan.offload.optimizer != "none"):
        yield Warning(
            "host_memory_unknown", "the node's memory is not known, so offload cannot be judged.", "Name the node."
        )
