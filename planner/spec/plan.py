"""The parallel plan, in the words of torchtitan and Megatron. Every count may be an array of candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.spec.model import Count

DATA_PARALLEL = ("none", "ddp", "zero", "fsdp2")
SCHEDULES = ("1f1b",)
OFFLOAD = ("none", "cpu")


@dataclass(frozen=True, slots=True)
class Offload:
    """Where parameters and optimizer states live: "none" (the GPU) or "cpu" (host memory)."""

    params: Any = "none"
    optimizer: Any = "none"


@dataclass(frozen=True, slots=True)
class Plan:
    """How the run is spread: world = dp_replicate x dp_shard x tp x pp.

    zero                    0 to 3: optimizer (1), gradients (2), weights (3) sharded over dp_shard
    reshard_after_forward   FSDP frees the gathered weights after the forward
    sequence_parallel       norms and residual are split over tp
    micro_batch             sequences per GPU and pass
    accumulation            micro-batches an optimizer step
    """

    data_parallel: str = "none"
    zero: Count = 0
    dp_replicate: Count = 1
    dp_shard: Count = 1
    tp: Count = 1
    sequence_parallel: Any = False
    cp: Count = 1
    pp: Count = 1
    ep: Count = 1
    schedule: str = "1f1b"
    reshard_after_forward: Any = True
    micro_batch: Count = 1
    accumulation: Count = 1
    offload: Offload = Offload()
