"""The parallel plan of a record, in the words of a case file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from planner.evidence import wording
from planner.evidence.reading import MOST_RANKS, Reader
from planner.evidence.settings import framework
from planner.spec.plan import FSDP, VOCAB_SCHEDULES
from planner.spec.stack import known

CP_COMM = {"ulysses": "a2a", "ring": "p2p", "a2a": "a2a", "p2p": "p2p", "all_gather": "all_gather", "a2a+p2p": "p2p"}
MEGATRON = ("megatron-lm", "megatron-bridge", "megatron-swift", "nemo", "mlperf-nemo", "megatron-deepspeed")


def plan(read: Reader, layers: int | None) -> dict[str, Any]:
    """Every field of the plan that the record states."""
    parallel = read.table("parallel")
    ways = {n: read.count(parallel, n, "parallel.", most=MOST_RANKS) for n in ("dp", "tp", "pp", "cp", "ep", "etp")}
    found: dict[str, Any] = {n: ways[n] for n in ("tp", "pp", "cp", "ep", "etp")}
    found |= _data_parallel(read, parallel, ways)
    found["sequence_parallel"] = read.flag(parallel, "sp", "parallel.")
    comm = parallel.get("cp_comm") or parallel.get("cp_type")
    found["cp_comm"] = CP_COMM.get(str(comm).lower()) if comm else None
    found |= _pipeline(read, parallel, ways["pp"] or 1, layers)
    reshard = parallel.get("reshard_after_forward")
    found["reshard_after_forward"] = reshard if isinstance(reshard, bool) else None  # open: unless there are stages
    found["reshard_last_block"] = read.flag(parallel, "reshard_last_block", "parallel.")
    found["micro_batch"] = read.count(read.record, "micro_batch", most=10**7)
    found["offload"] = _offload(read, found)
    return {k: v for k, v in found.items() if v is not None}


def global_batch(read: Reader, spread: Mapping[str, Any]) -> int | None:
    """Sequences of a step: as stated, or the micro-batches of all replicas."""
    stated: int | None = read.count(read.record, "global_batch", most=10**9)
    passes = read.count(read.record, "grad_accum", most=10**7)
    replicas = _replicas(read, spread)
    micro = spread.get("micro_batch")
    if stated and micro and stated % (replicas * micro):
        if stated < replicas * micro or passes is None:
            read.contradiction("global_batch", "batch", batch=stated, replicas=replicas, micro=micro)
        return None
    if stated is None and micro and passes:
        return int(replicas * micro * passes)
    return stated


def _replicas(read: Reader, spread: Mapping[str, Any]) -> int:
    """Replicas of the batch: as the plan says, else all GPUs that the other axes leave."""
    if "dp_replicate" in spread or "dp_shard" in spread:
        return int((spread.get("dp_replicate") or 1) * (spread.get("dp_shard") or 1))
    gpus = int(read.count(read.record, "n_gpus", most=MOST_RANKS) or 1)
    inside = int(math.prod(spread.get(name) or 1 for name in ("tp", "pp", "cp")))
    return max(1, gpus // inside)


def _data_parallel(read: Reader, parallel: Mapping[str, Any], ways: Mapping[str, Any]) -> dict[str, Any]:
    """Which data parallelism, its ZeRO stage, replicas and shards."""
    stage = read.count(parallel, "zero_stage", "parallel.", least=0, most=3)
    dp, cp = ways["dp"], ways["cp"] or 1
    said = _worded(read, parallel, stage, dp)
    if said is not None:
        return said
    fsdp = read.count(parallel, "fsdp", "parallel.", most=MOST_RANKS)
    if stage is None and fsdp is None and dp is None:
        return {}
    if stage is None:
        stage = 3 if (fsdp or 1) > 1 else None
        if stage is None:
            return {}
    kind = _kind(read, parallel, stage, fsdp, dp or 1)
    found: dict[str, Any] = {"data_parallel": kind, "zero": stage}
    shard = read.count(parallel, "shard", "parallel.", most=MOST_RANKS) or fsdp
    if dp is None:
        return found
    if kind in ("none", "ddp"):
        return {**found, "dp_replicate": dp}
    sharded = _shards(shard, dp, cp)
    if dp % sharded:
        read.contradiction("parallel.shard", "shards", shard=shard, dp=dp, cp=cp)
        return found
    return {**found, "dp_shard": sharded, "dp_replicate": dp // sharded}


def _worded(
    read: Reader, parallel: Mapping[str, Any], stage: int | None, dp: int | None
) -> dict[str, Any] | None:
    """Sharding that is said in words: FSDP by its strategy, or an engine in the framework's name; else None."""
    engine = wording.named(str(read.record.get("framework") or ""))
    stated = parallel.get("fsdp")
    if isinstance(stated, str):
        meant = wording.strategy(stated)
        if meant is None:
            return None  # the count below says what is wrong with it
        zero, inside = meant
        if zero == 0:
            return {"data_parallel": "ddp", "zero": 0}
        kind = engine.engine if engine.engine.startswith("fsdp") and engine.engine != "fsdp" else _usual_fsdp(read)
        each = read.count(read.record, "gpus_per_node", most=MOST_RANKS)
        return {"data_parallel": kind, "zero": zero, **({"dp_shard": each} if inside and each else {})}
    if stated is not None or stage is not None or dp is not None or not engine.engine:
        return None
    if engine.engine == "zero":
        return {"data_parallel": "zero", "zero": engine.stage} if engine.stage is not None else None
    kind = engine.engine if engine.engine != "fsdp" else _usual_fsdp(read)
    read.note("plan.data_parallel", kind, "fsdp-open" if engine.engine == "fsdp" else "engine-named")
    return {"data_parallel": kind, "zero": 3}


def _shards(shard: int | None, dp: int, cp: int) -> int:
    """Shards of the data-parallel ranks; a record counts context-parallel ranks with them."""
    if shard is None:
        return dp
    return max(1, shard // cp) if shard % cp == 0 else shard


def _kind(read: Reader, parallel: Mapping[str, Any], stage: int, fsdp: int | None, dp: int) -> str:
    """The data parallelism by name."""
    if stage == 0:
        return "ddp" if dp > 1 else "none"
    impl = parallel.get("fsdp_impl") or read.table("framework_args").get("parallel")
    stated = str(impl or wording.named(str(read.record.get("framework") or "")).engine).lower()
    for kind in ("megatron-fsdp", "fsdp1", "fsdp2"):
        if stated.startswith(kind):
            return kind
    if stage < 3 or (stated == "deepspeed" and fsdp is None):
        return "zero"
    if str(read.record.get("framework")).lower() in MEGATRON:
        return "megatron-fsdp"
    if fsdp is None:
        return "zero"
    usual = _usual_fsdp(read)
    read.note("parallel.fsdp_impl", usual, "fsdp-open")
    return usual


def _usual_fsdp(read: Reader) -> str:
    """The FSDP that the framework takes by itself."""
    stack = known(framework(read) or "")
    return stack.data_parallel if stack and stack.data_parallel in FSDP else "fsdp2"


def _pipeline(read: Reader, parallel: Mapping[str, Any], pp: int, layers: int | None) -> dict[str, Any]:
    """Schedule, chunks, and layers of each stage where they are not equal."""
    chunks = read.count(parallel, "vpp", "parallel.", most=1000) if pp > 1 else None
    schedule = read.word(parallel, "pp_schedule", "parallel.") if pp > 1 else None
    split = read.word(parallel, "vocab_pp", "parallel.") if pp > 1 else None
    schedule = f"1f1b-{split}" if schedule in (None, "1f1b") and f"1f1b-{split}" in VOCAB_SCHEDULES else schedule
    found: dict[str, Any] = {"schedule": schedule, "virtual_stages": chunks}
    last = read.count(parallel, "final_stage_layers", "parallel.", least=0, most=10**4)
    if not layers or pp == 1:
        return found
    if last is not None and last <= layers:
        found["layer_split"] = [*reversed(_evenly(layers - last, pp - 1)), last]  # early stages hold more micro-batches
    elif (counted := layers + ENDS) % (pp * (chunks or 1)) == 0 and layers % pp and _megatron(read):
        each = counted // pp
        found["layer_split"] = [each - 1, *[each] * (pp - ENDS), each - 1]
        read.note("plan.layer_split", str(found["layer_split"]), "ends-counted")
    elif layers % (pp * (chunks or 1)):
        found["layer_split"] = _evenly(layers, pp)
        read.note("plan.layer_split", str(found["layer_split"]), "uneven-stages")
    return found


#: embedding and loss, which Megatron can count as a layer each
ENDS = 2


def _megatron(read: Reader) -> bool:
    return str(read.record.get("framework")).lower() in MEGATRON


def _evenly(layers: int, stages: int) -> list[int]:
    """Layers over stages, the first ones one more where they do not divide."""
    return [layers // stages + (i < layers % stages) for i in range(stages)]


def _offload(read: Reader, found: dict[str, Any]) -> dict[str, Any] | None:
    """What leaves the GPU. Where no engine is named for it, one stage of ZeRO on one rank stands for it."""
    stated = read.table("offload")
    where = {n: read.word(stated, n, "offload.") for n in ("params", "optimizer", "activations")}
    stepped = read.word(read.record, "optimizer")
    if stepped and wording.optimizer(stepped).paged:
        where["optimizer"] = where["optimizer"] or "paged"
    left = {k: v for k, v in where.items() if v not in (None, "none")}
    if not left:
        return None
    kind, states, weights = found.get("data_parallel"), left.get("optimizer"), left.get("params")
    if kind in ("none", "ddp", None) and (weights or states in ("cpu", "nvme")):
        read.note("plan.data_parallel", "zero", "offload-engine", near=True)
        stage = 3 if weights else 1
        found |= {"data_parallel": "zero", "zero": stage, "dp_shard": found.pop("dp_replicate", 1), "dp_replicate": 1}
    elif kind == "zero" and weights and found.get("zero") != 3:
        read.note("offload.params", "none", "offload-stage", near=True)
        left.pop("params")
    elif kind in ("fsdp1", "fsdp2", "megatron-fsdp") and states != "paged" and states != weights:
        read.note("offload.optimizer", "none" if states else "cpu", "offload-fsdp", near=True)
        left.pop("optimizer", None)
        if weights:
            left["optimizer"] = weights
    return left or None
