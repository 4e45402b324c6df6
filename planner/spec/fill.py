"""Open fields of a recipe and a plan, filled by the stack's defaults and listed as assumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import Problem
from planner.i18n import Phrase, Said, phrase
from planner.spec.case import Assumed
from planner.spec.form import CaseForm, PlanForm, PrecisionForm, RecipeForm, choose
from planner.spec.hardware import Cluster
from planner.spec.model import Model
from planner.spec.plan import Offload, Plan
from planner.spec.recipe import PEFT_TARGETS, Peft, Precision, Recipe
from planner.spec.stack import Stack

Spellings = Mapping[str, dict[str, str]]

#: (params, compute, autocast, grads or None for the stack's, grad_reduce or None, master, optimizer_state)
PRESETS: dict[str, tuple[str, str, bool, str | None, str | None, str, str]] = {
    "fp32": ("fp32", "fp32", False, "fp32", "fp32", "none", "fp32"),
    "tf32": ("fp32", "tf32", False, "fp32", "fp32", "none", "fp32"),
    "autocast-bf16": ("fp32", "bf16", True, "fp32", "fp32", "none", "fp32"),
    "autocast-fp16": ("fp32", "fp16", True, "fp32", "fp32", "none", "fp32"),
    "bf16-master": ("bf16", "bf16", False, None, None, "fp32", "fp32"),
    "fp16-master": ("fp16", "fp16", False, None, None, "fp32", "fp32"),
    "bf16-pure": ("bf16", "bf16", False, "bf16", "bf16", "none", "bf16"),
}


def _of(stack: Stack) -> Phrase:
    """What a stack does by itself."""
    return phrase("assumed.default-of", of=stack.id)


class Filler:
    """Reads one table of the form: a stated value through the spelling table, or a default noted as assumed."""

    def __init__(self, prefix: str, form: Any, table: Spellings, problems: list[Problem], assumed: list[Assumed]):
        self.prefix, self.form, self.table, self.problems, self.assumed = prefix, form, table, problems, assumed

    def number(self, name: str, default: Any, why: Said) -> Any:
        """A stated number, or the default."""
        value = getattr(self.form, name, None) if self.form is not None else None
        if value is None:
            self.assumed.append(Assumed(f"{self.prefix}{name}", default, why))
            return default
        return value

    def choice(self, name: str, default: str, why: Said) -> str:
        """A stated name in its canonical spelling, or the default."""
        value = getattr(self.form, name, None) if self.form is not None else None
        if value is None:
            self.assumed.append(Assumed(f"{self.prefix}{name}", default, why))
            return default
        field = f"{self.prefix}{name}"
        word = str(value).lower() if isinstance(value, bool) else str(value)
        return choose(field, word, self.table.get(field, {}), self.problems) or default


def filled_recipe(
    form: CaseForm, model: Model, stack: Stack, table: Spellings, problems: list[Problem], assumed: list[Assumed]
) -> Recipe:
    """The recipe with every open field filled."""
    given = form.recipe or RecipeForm()
    fill = Filler("recipe.", given, table, problems, assumed)
    with_peft = given.peft is not None
    task = fill.choice("task", (given.peft.method or "lora") if given.peft else "pretrain", Phrase("assumed.unnamed"))
    if with_peft and task not in ("lora", "qlora"):
        problems.append(Problem("recipe.task", phrase("problem.peft-without-task", task=task), "lora"))
    peft = _peft(given, task, table, problems, assumed) if task in ("lora", "qlora") or with_peft else None
    precision = _precision(given, stack, peft, table, problems, assumed)
    checkpointing = fill.choice("checkpointing", "none", Phrase("assumed.frameworks"))
    every = given.checkpointing_args.k if given.checkpointing_args and given.checkpointing_args.k else 1
    if checkpointing == "every-k" and every == 1:
        assumed.append(Assumed("recipe.checkpointing_args.k", 1, Phrase("assumed.every-layer")))
    loss = fill.choice("loss", stack.loss, _of(stack))
    chunked = loss.startswith("chunked")
    return Recipe(
        framework=stack.id,
        task=task,
        seq_len=fill.number("seq_len", min(4096, model.max_positions), Phrase("assumed.seq-len")),
        precision=precision,
        optimizer=fill.choice("optimizer", "adamw", Phrase("assumed.optimizer")),
        optimizer_impl=fill.choice("optimizer_impl", stack.optimizer_impl, _of(stack)),
        checkpointing=checkpointing,
        checkpoint_every=every if checkpointing == "every-k" else 1,
        attention=fill.choice("attention", "sdpa", Phrase("assumed.attention")),
        loss=loss,
        loss_chunks=fill.number("loss_chunks", 8, phrase("assumed.default-of", of="torchtitan")) if chunked else 1,
        global_batch=given.global_batch,
        tokens=given.tokens,
        dropout=given.dropout,
        allocator=fill.choice("allocator", "native", phrase("assumed.default-of", of="torch")),
        peft=peft,
    )


def _precision(
    given: RecipeForm,
    stack: Stack,
    peft: Peft | None,
    table: Spellings,
    problems: list[Problem],
    assumed: list[Assumed],
) -> Precision:
    stated = given.precision if isinstance(given.precision, PrecisionForm) else PrecisionForm(preset=given.precision)
    default = "autocast-bf16" if peft else stack.precision
    fill = Filler("recipe.precision.", stated, {**table, "recipe.precision.preset": table.get("recipe.precision", {})},
                  problems, assumed)  # fmt: skip
    preset = fill.choice("preset", default, _of(stack))
    params, compute, autocast, grads, reduce, master, state = PRESETS[preset]
    low = grads or stack.grads_16bit
    if peft:
        params, grads, reduce, master, state = peft.base_dtype, "fp32", "fp32", "none", "fp32"
        low = "fp32"
    quiet = Filler("recipe.precision.", stated, table, problems, [])
    return Precision(
        preset=preset,
        params=quiet.choice("params", params, "") if not peft else params,
        compute=quiet.choice("compute", compute, ""),
        autocast=autocast,
        grads=quiet.choice("grads", low, ""),
        grad_reduce=quiet.choice("grad_reduce", reduce or low, ""),
        master=quiet.choice("master", master, ""),
        optimizer_state=quiet.choice("optimizer_state", state, ""),
    )


def _peft(given: RecipeForm, task: str, table: Spellings, problems: list[Problem], assumed: list[Assumed]) -> Peft:
    fill = Filler("recipe.peft.", given.peft, table, problems, assumed)
    method = fill.choice("method", "qlora" if task == "qlora" else "lora", Phrase("assumed.from-task"))
    packed = "qlora" in (task, method)
    return Peft(
        method=method,
        rank=fill.number("rank", 16, Phrase("assumed.rank")),
        targets=_targets(given, table, problems, assumed),
        base_dtype=fill.choice("base_dtype", "nf4-dq" if packed else "bf16", Phrase("assumed.method")),
        adapter_dtype=fill.choice("adapter_dtype", "fp32", phrase("assumed.default-of", of="PEFT")),
    )


def _targets(given: RecipeForm, table: Spellings, problems: list[Problem], assumed: list[Assumed]) -> tuple[str, ...]:
    stated = given.peft.targets if given.peft else None
    if stated is None:
        assumed.append(Assumed("recipe.peft.targets", "all-linear", Phrase("assumed.targets")))
        return PEFT_TARGETS
    words = stated.split(",") if isinstance(stated, str) else stated
    field = "recipe.peft.targets"
    named = [choose(field, str(w), table.get(field, {}), problems) for w in words]
    if not words:
        problems.append(Problem(field, Phrase("problem.no-targets"), "all-linear"))
    groups = {"all-linear": PEFT_TARGETS, "attention": ("q", "k", "v", "o")}
    return tuple(dict.fromkeys(t for n in named if n for t in groups.get(n, (n,))))


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
    offload = Filler("plan.offload.", given.offload, table, problems, [])
    params = offload.choice("params", "none", "")
    states = offload.choice("optimizer", "cpu" if params == "cpu" else "none", "")
    return Plan(
        data_parallel=kind,
        zero=zero,
        dp_replicate=replicate,
        dp_shard=shard,
        tp=tp,
        sequence_parallel=_sequence_parallel(given, tp, stack, assumed),
        cp=cp,
        pp=pp,
        ep=given.ep or 1,
        schedule=(fill if pp > 1 or given.schedule else quiet).choice("schedule", "1f1b", Phrase("assumed.schedule")),
        reshard_after_forward=given.reshard_after_forward if given.reshard_after_forward is not None else pp == 1,
        micro_batch=micro,
        accumulation=_accumulation(recipe, replicate * shard, micro, pp, problems, assumed),
        offload=Offload(params, states),
    )


def _data_parallel(given: PlanForm, fill: Filler, stack: Stack, ranks: int) -> tuple[str, int]:
    """Which data parallelism, and its ZeRO stage."""
    wanted = given.dp_shard or given.dp_replicate or ranks
    if given.zero is not None and given.data_parallel is None:
        kind = {0: "ddp" if ranks > 1 else "none", 3: stack.data_parallel}.get(given.zero, "zero")
        if kind == "none" and given.zero:
            kind = "zero"
        return kind, given.zero
    default = stack.data_parallel if wanted > 1 else "none"
    kind = fill.choice("data_parallel", default, _of(stack) if wanted > 1 else Phrase("assumed.one-replica"))
    if kind in ("none", "ddp"):
        return kind, given.zero or 0
    if kind == "fsdp2":
        return kind, 3 if given.zero is None else given.zero
    return kind, fill.number("zero", stack.zero if stack.data_parallel == "zero" else 3, _of(stack))


def _ways(given: PlanForm, kind: str, zero: int, gpus: int, inside: int, assumed: list[Assumed]) -> tuple[int, int]:
    """dp_replicate and dp_shard; what is open takes the ranks that are left."""
    sharding = kind == "fsdp2" or (kind == "zero" and zero > 0)
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
        assumed.append(Assumed("plan.sequence_parallel", stack.sequence_parallel, _of(stack)))
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
