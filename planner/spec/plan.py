"""The parallel plan, in the words of torchtitan and Megatron. Every count may be an array of candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.spec.model import Count

DATA_PARALLEL = ("none", "ddp", "zero", "fsdp1", "fsdp2", "megatron-fsdp")
#: data parallelism that gathers and reshards groups of weights
FSDP = ("fsdp1", "fsdp2", "megatron-fsdp")
#: 1F1B with embedding and head split over the stages: two barriers, one, or as one more layer of every stage
VOCAB_SCHEDULES = ("1f1b-vocab-1", "1f1b-vocab-2", "1f1b-interlaced")
SCHEDULES = ("1f1b", "interleaved-1f1b", "zero-bubble-interleaved", "dualpipe", *VOCAB_SCHEDULES)
#: schedules of one chunk of layers a stage
WHOLE_STAGES = ("1f1b", *VOCAB_SCHEDULES)
CP_COMM = ("p2p", "a2a", "all_gather")
OFFLOAD = ("none", "cpu", "nvme")
OFFLOAD_OPTIMIZER = ("none", "cpu", "nvme", "paged")
OFFLOAD_ACTIVATIONS = ("none", "cpu")


@dataclass(frozen=True, slots=True)
class Offload:
    """Where things live: "none" (the GPU), "cpu" (host memory), "paged" (memory that the driver moves), "nvme"."""

    params: Any = "none"
    optimizer: Any = "none"
    activations: Any = "none"


@dataclass(frozen=True, slots=True)
class Plan:
    """How the run is spread: world = dp_replicate x dp_shard x tp x cp x pp.

    zero                    0 to 3: optimizer (1), gradients (2), weights (3) sharded over dp_shard
    reshard_after_forward   FSDP frees the gathered weights after the forward
    reshard_last_block      and those of the last layer too, which its backward needs at once
    sequence_parallel       norms and residual are split over tp
    cp, cp_comm             the sequence is split; how key and value travel (p2p: a ring, a2a: Ulysses)
    ep, etp                 ranks that share the experts, and each expert; they are ranks of dp, cp and tp
    virtual_stages          chunks of layers a stage holds (interleaved schedules)
    layer_split             layers of each stage, where they are not equal
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
    cp_comm: str = "p2p"
    pp: Count = 1
    ep: Count = 1
    etp: Count = 1
    schedule: str = "1f1b"
    virtual_stages: Count = 1
    layer_split: tuple[int, ...] = ()
    reshard_after_forward: Any = True
    reshard_last_block: Any = True
    micro_batch: Count = 1
    accumulation: Count = 1
    offload: Offload = Offload()

    @property
    def vocab_stages(self) -> Count:
        """Stages that share the vocabulary."""
        return self.pp if self.schedule in VOCAB_SCHEDULES else 1

    @property
    def fully_sharded(self) -> bool:
        """Whether groups of weights are gathered and resharded."""
        return self.data_parallel in FSDP
