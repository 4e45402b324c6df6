"""Open fields of a plan, filled by the stack's defaults and listed as assumed; the world is filled with replicas."""

from __future__ import annotations

from planner.errors import Problem
from planner.i18n import Phrase, phrase
from planner.spec.case import Assumed
from planner.spec.fill import Filler, Spellings, of
from planner.spec.form import CaseForm, PlanForm
from planner.spec.hardware import Cluster
from planner.spec.plan import FSDP, WHOLE_STAGES, Offload, Plan
from planner.spec.recipe import Recipe
from planner.spec.stack import Stack


def filled_plan(
    form: CaseForm,
    cluster: Cluster | None,
    stack: Stack,
    table: Spellings,
    recipe: Recipe,
    problems: list[Problem],
    assumed: list[Assumed],
) -> Plan:
    """The plan with every open field filled; the world is filled with data parallelism."""
    given = form.plan or PlanForm()
    fill, quiet = (Filler("plan.", given, table, problems, noted) for noted in (assumed, []))
    gpus = int(cluster.gpus) if cluster else 1
    tp, pp, cp = given.tp or 1, given.pp or 1, given.cp or 1
    inside = tp * pp * cp
    kind, zero = _data_parallel(given, fill, stack, gpus // inside if gpus % inside == 0 else 1)
    replicate, shard = _ways(given, kind, zero, gpus, inside, assumed)
    micro = fill.number("micro_batch", 1, Phrase("assumed.one-sequence"))
    schedule, chunks = _schedule(given, pp, fill, quiet)
    return Plan(
        data_parallel=kind,
        zero=zero,
        dp_replicate=replicate,
        dp_shard=shard,
        tp=tp,
        sequence_parallel=_sequence_parallel(given, tp, stack, assumed),
        cp=cp,
        cp_comm=(fill if cp > 1 else quiet).choice("cp_comm", "p2p", Phrase("assumed.ring")),
        pp=pp,
        ep=given.ep or 1,
        etp=given.etp or (tp if replicate * shard * cp % (given.ep or 1) == 0 else 1),
        schedule=schedule,
        virtual_stages=chunks,
        layer_split=tuple(given.layer_split or ()),
        reshard_after_forward=given.reshard_after_forward if given.reshard_after_forward is not None else pp == 1,
        reshard_last_block=stack.reshard_last if given.reshard_last_block is None else given.reshard_last_block,
        micro_batch=micro,
        accumulation=_accumulation(recipe, replicate * shard, micro, pp, problems, assumed),
        offload=_offload(given, table, problems, assumed),
    )


def _offload(given: PlanForm, table: Spellings, problems: list[Problem], assumed: list[Assumed]) -> Offload:
    """What does not live on the GPU; where weights leave, so do the states, unless stated otherwise."""
    fill = Filler("plan.offload.", given.offload, table, problems, [], assumed)
    params = fill.choice("params", "none", "")
    return Offload(
        params=params,
        optimizer=fill.choice("optimizer", params, ""),
        activations=fill.choice("activations", "none", ""),
    )


def _schedule(given: PlanForm, pp: int, fill: Filler, quiet: Filler) -> tuple[str, int]:
    """The pipeline's schedule, and chunks of layers a stage: more than one where it is interleaved."""
    usual = "interleaved-1f1b" if (given.virtual_stages or 1) > 1 else "1f1b"
    schedule = (fill if pp > 1 or given.schedule else quiet).choice("schedule", usual, Phrase("assumed.schedule"))
    if schedule in WHOLE_STAGES or pp == 1:
        return schedule, 1
    return schedule, fill.number("virtual_stages", 2, Phrase("assumed.two-chunks"))


def _data_parallel(given: PlanForm, fill: Filler, stack: Stack, ranks: int) -> tuple[str, int]:
    """Which data parallelism, and its ZeRO stage."""
    wanted = given.dp_shard or given.dp_replicate or ranks
    if given.zero is not None and given.data_parallel is None:
        kind = {0: "ddp" if ranks > 1 else "none", 3: stack.data_parallel}.get(given.zero, "zero")
        if kind == "none" and given.zero:
            kind = "zero"
        return kind, given.zero
    default = stack.data_parallel if wanted > 1 else "none"
    kind = fill.choice("data_parallel", default, of(stack) if wanted > 1 else Phrase("assumed.one-replica"))
    if kind in ("none", "ddp"):
        return kind, given.zero or 0
    if kind in FSDP:
        return kind, 3 if given.zero is None else given.zero
    return kind, fill.number("zero", stack.zero if stack.data_parallel == "zero" else 3, of(stack))


def _ways(given: PlanForm, kind: str, zero: int, gpus: int, inside: int, assumed: list[Assumed]) -> tuple[int, int]:
    """dp_replicate and dp_shard; what is open takes the ranks that are left."""
    sharding = kind in FSDP or (kind == "zero" and zero > 0)
    left = gpus // inside if gpus % inside == 0 else 1
    replicate, shard = given.dp_replicate, given.dp_shard
    if sharding and shard is None:
        shard = left // replicate if replicate and left % replicate == 0 else (left if not replicate else 1)
        assumed.append(Assumed("plan.dp_shard", shard, Phrase("assumed.world")))
    if not sharding and replicate is None:
        replicate = left // shard if shard and left % shard == 0 else (left if not shard else 1)
        assumed.append(Assumed("plan.dp_replicate", replicate, Phrase("assumed.world")))
    return replicate or 1, shard or 1


def _sequence_parallel(given: PlanForm, tp: int, stack: Stack, assumed: list[Assumed]) -> bool:
    if given.sequence_parallel is not None:
        return given.sequence_parallel
    if tp > 1:
        assumed.append(Assumed("plan.sequence_parallel", stack.sequence_parallel, of(stack)))
    return tp > 1 and stack.sequence_parallel


def _accumulation(
    recipe: Recipe, dp: int, micro: int, pp: int, problems: list[Problem], assumed: list[Assumed]
) -> int:
    """Micro-batches a step, from the global batch; without one, one (with a pipeline enough to fill it)."""
    if recipe.global_batch is None:
        open_ = 4 * pp if pp > 1 else 1
        assumed.append(Assumed("recipe.global_batch", dp * micro * open_, phrase("assumed.micro-batches", count=open_)))
        return open_
    batch = int(recipe.global_batch)
    if batch % (dp * micro):
        near = max(1, round(batch / (dp * micro))) * dp * micro
        said = phrase("problem.global-batch", batch=batch, replicas=dp, micro_batch=micro)
        problems.append(Problem("recipe.global_batch", said, str(near)))
        return 1
    return batch // (dp * micro)
