"""Open fields of a recipe, filled by the stack's defaults and listed as assumed. The plan's are in fill_plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.errors import Problem
from planner.i18n import Phrase, Said, phrase
from planner.spec.case import Assumed
from planner.spec.form import CaseForm, CheckpointingArgs, PrecisionForm, RecipeForm, choose, nearby
from planner.spec.model import Model
from planner.spec.recipe import CAST_WIDTH, METHODS, MODELS, PEFT_TARGETS, UNTARGETED, Peft, Precision, Recipe
from planner.spec.stack import Stack

Spellings = Mapping[str, dict[str, str]]

#: coefficients that widen the band: what the formulas have only something near to
APPROXIMATE = "formula_error_approximate"
ADAPTERS = "formula_error_adapters"
#: by field, where what is come near to has a spread of its own
APART = {"recipe.peft.method": ADAPTERS}

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


def of(stack: Stack) -> Phrase:
    """What a stack does by itself."""
    return phrase("assumed.default-of", of=stack.id)


def _allocator_of(stack: Stack) -> Phrase:
    """Who chose the allocator's mode: the stack where it sets one, else torch."""
    return of(stack) if stack.allocator != "native" else phrase("assumed.default-of", of="torch")


class Filler:
    """Reads one table of the form: a stated value through the spelling table, or a default noted as assumed."""

    def __init__(
        self, prefix: str, form: Any, table: Spellings, problems: list[Problem], assumed: list[Assumed],
        nearly: list[Assumed] | None = None,
    ):
        self.prefix, self.form, self.table, self.problems, self.assumed = prefix, form, table, problems, assumed
        self.nearly = assumed if nearly is None else nearly

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
        stated = choose(field, word, self.table.get(field, {}), self.problems)
        return self.modelled(field, stated) if stated else default

    def modelled(self, field: str, stated: str) -> str:
        """The value that the formulas know: the stated one, or the nearest, noted as assumed."""
        near = nearby().get(field, {}).get(stated)
        if near is None:
            return stated
        self.approximate(field, near, phrase("assumed.computed-as", stated=stated))
        return near

    def approximate(self, field: str, value: Any, why: Said) -> None:
        """Note that a field is only come near to, which widens the band."""
        self.nearly.append(Assumed(field, value, why, APART.get(field, APPROXIMATE)))


def filled_recipe(
    form: CaseForm, model: Model, stack: Stack, table: Spellings, problems: list[Problem], assumed: list[Assumed]
) -> Recipe:
    """The recipe with every open field filled."""
    given = form.recipe or RecipeForm()
    fill = Filler("recipe.", given, table, problems, assumed)
    peft, task = _task(given, fill, model, stack)
    precision = _precision(given, stack, peft, table, problems, assumed)
    loss = fill.choice("loss", stack.loss, of(stack))
    if loss == "chunked-ce" and stack.loss_chunks_head:
        loss = "chunked-linear-ce"
        assumed.append(Assumed("recipe.loss", loss, of(stack)))
    chunked = loss.startswith("chunked")
    trained, frozen = MODELS.get((given.task or "").strip().lower(), (1, 0))
    if given.compile:
        fill.approximate("recipe.compile", "true", Phrase("assumed.compiled"))
    seq_len = fill.number("seq_len", min(4096, model.max_positions), Phrase("assumed.seq-len")) + _virtual(given, model)
    return Recipe(
        framework=stack.id,
        task=task,
        seq_len=seq_len,
        precision=precision,
        optimizer=fill.choice("optimizer", stack.optimizer, Phrase("assumed.optimizer")),
        optimizer_impl=fill.choice("optimizer_impl", stack.optimizer_impl, of(stack)),
        attention=fill.choice("attention", stack.attention, Phrase("assumed.attention")),
        loss=loss,
        loss_chunks=_loss_chunks(given, fill, stack, seq_len) if chunked else 1,
        global_batch=given.global_batch,
        tokens=given.tokens,
        dropout=_dropout(given, model, stack, assumed),
        allocator=fill.choice("allocator", stack.allocator, _allocator_of(stack)),
        peft=peft,
        compiled=bool(given.compile),
        optimizer_in_backward=bool(given.optimizer_in_backward),
        tiled_mlp=bool(given.tiled_mlp),
        models_trained=trained - 1,
        models_beside=trained - 1 + (0 if peft else frozen),  # adapters off, their base is the reference
        keeps_logits=stack.keeps_outputs and not loss.endswith("linear-ce"),
        **_checkpointing(given, fill, stack),
    )


def _loss_chunks(given: RecipeForm, fill: Filler, stack: Stack, seq_len: Any) -> Any:
    """Chunks of a chunked loss: as many as the stack's chunk of tokens makes of a sequence, or as torchtitan has."""
    if stack.loss_chunk:
        return fill.number("loss_chunks", np.maximum(1, -(-seq_len // stack.loss_chunk)), of(stack))
    return fill.number("loss_chunks", 8, phrase("assumed.default-of", of="torchtitan"))


def _dropout(given: RecipeForm, model: Model, stack: Stack, assumed: list[Assumed]) -> float | None:
    """The probability of dropout: as stated, else the stack's for models of GPT's kind, else the model's (None)."""
    if given.dropout is not None or not stack.dropout or model.position != "learned":
        return given.dropout
    assumed.append(Assumed("recipe.dropout", stack.dropout, of(stack)))
    return stack.dropout


def _task(given: RecipeForm, fill: Filler, model: Model, stack: Stack) -> tuple[Peft | None, str]:
    """The adapters, where the task has some, and the task."""
    default = (given.peft.method or "lora") if given.peft else "pretrain"
    task = fill.choice("task", default, Phrase("assumed.unnamed")) if given.task or not given.peft else "lora"
    if given.peft and given.task is None:
        fill.assumed.append(Assumed("recipe.task", task, Phrase("assumed.unnamed")))
    stated = (given.task or "").strip().lower()
    if given.peft is not None and task not in ("lora", "qlora"):
        if stated not in MODELS:
            said = phrase("problem.peft-without-task", task=task)
            fill.problems.append(Problem("recipe.task", said, "lora"))
        task = "lora"
    if task not in ("lora", "qlora"):
        return None, task
    return _peft(given, task, model, stack, fill.table, fill.problems, fill.assumed), task


def _checkpointing(given: RecipeForm, fill: Filler, stack: Stack) -> dict[str, Any]:
    """The policy and what its arguments mean for it.

    every-k recomputes each k-th layer (torchtitan's selective "2"). Regions of several layers (Megatron's uniform
    method) are `full` with `layers`; its block method, the first layers of a stage, is partial-layers.
    """
    args = given.checkpointing_args or CheckpointingArgs()
    policy = fill.choice("checkpointing", stack.checkpointing, Phrase("assumed.frameworks"))
    inner = Filler("recipe.checkpointing_args.", args, fill.table, fill.problems, fill.assumed)
    method = inner.choice("method", "uniform", "") if args.method else "uniform"
    if policy == "full" and method == "block":
        policy = "partial-layers"
    found: dict[str, Any] = {"checkpointing": policy}
    match policy:
        case "every-k":
            found["checkpoint_every"] = inner.number("k", 1, Phrase("assumed.every-layer"))
        case "full":
            found["checkpoint_region"] = args.layers or 1
        case "partial-layers":
            found["checkpoint_most"] = inner.number("layers", 1, Phrase("assumed.one-layer"))
        case "selective-modules":
            found["recomputed"] = _modules(args, inner)
    return found


def _modules(args: CheckpointingArgs, fill: Filler) -> tuple[str, ...]:
    """What selective-modules recomputes; Megatron's default is the attention core."""
    field = "recipe.checkpointing_args.recompute"
    if not args.recompute:
        fill.assumed.append(Assumed(field, "core_attn", phrase("assumed.default-of", of="megatron-lm")))
        return ("core_attn",)
    named = [choose(field, word, fill.table.get(field, {}), fill.problems) for word in args.recompute]
    return tuple(dict.fromkeys(n for n in named if n))


def _precision(
    given: RecipeForm, stack: Stack, peft: Peft | None, table: Spellings, problems: list[Problem],
    assumed: list[Assumed],
) -> Precision:
    stated = given.precision if isinstance(given.precision, PrecisionForm) else PrecisionForm(preset=given.precision)
    default = "autocast-bf16" if peft and stack.precision != "bf16-pure" else stack.precision
    fill = Filler("recipe.precision.", stated, {**table, "recipe.precision.preset": table.get("recipe.precision", {})},
                  problems, assumed)  # fmt: skip
    preset = fill.choice("preset", default, of(stack))
    params, compute, autocast, grads, reduce, master, state = PRESETS[preset]
    low = grads or ("fp16" if compute == "fp16" and stack.main_gradients else stack.grads_16bit)
    if peft:
        params, grads, reduce, master, state = peft.base_dtype, "fp32", "fp32", "none", "fp32"
        if not autocast:  # nothing casts: the frozen base computes in the dtype it has
            compute = peft.base_dtype if peft.base_dtype in ("fp32", "bf16", "fp16") else "bf16"
        low = "fp32"
    quiet = Filler("recipe.precision.", stated, table, problems, [], assumed)
    low = quiet.choice("grads", low, "")
    gemm = (stated.gemm or "none") if stack.keeps_casts else "none"
    if gemm not in CAST_WIDTH:
        gemm = quiet.choice("gemm", "none", "")
        quiet.choice("fp8", "none", "")
    return Precision(
        preset=preset,
        params=quiet.choice("params", params, "") if not peft else params,
        compute=quiet.choice("compute", compute, ""),
        autocast=autocast,
        grads=low,
        grad_reduce=quiet.choice("grad_reduce", reduce or low, ""),
        master=quiet.choice("master", master, ""),
        optimizer_state=quiet.choice("optimizer_state", state, ""),
        gemm=gemm,
    )


def _peft(
    given: RecipeForm, task: str, model: Model, stack: Stack, table: Spellings, problems: list[Problem],
    assumed: list[Assumed],
) -> Peft:
    fill = Filler("recipe.peft.", given.peft, table, problems, assumed)
    method = fill.choice("method", "qlora" if task == "qlora" else "lora", Phrase("assumed.from-task"))
    packed = "qlora" in (task, method)
    count = given.peft.trainable_params if given.peft and method not in ("lora", "qlora") else None
    if method not in ("lora", "qlora"):
        assumed.append(Assumed("recipe.peft.method", method, Phrase("assumed.method-kept"), ADAPTERS))
    field = "recipe.peft.modules_to_save"
    words = (given.peft.modules_to_save if given.peft else None) or []
    saved = [choose(field, word, table.get(field, {}), problems) for word in words]
    prompted = METHODS[method] in ("prompt", "scale")
    return Peft(
        method=method,
        rank=0 if prompted else fill.number("rank", 16, Phrase("assumed.rank")),
        targets=() if METHODS[method] in UNTARGETED else _targets(given, table, problems, assumed),
        base_dtype=fill.choice("base_dtype", stack.packed_base if packed else "bf16", Phrase("assumed.method")),
        adapter_dtype=fill.choice("adapter_dtype", _adapter_dtype(given, stack), _adapters_of(stack)),
        modules_to_save=tuple(dict.fromkeys(n for n in saved if n)),
        each_layer=count / float(np.max(model.layers)) if count else None,
    )


def _virtual(given: RecipeForm, model: Model) -> int:
    """Tokens that prompt tuning puts before each sequence: it trains one vector of the model's width for each."""
    if given.peft is None or given.peft.method != "prompt_tuning":
        return 0
    return (given.peft.trainable_params or 0) // int(np.max(model.hidden))


def _adapter_dtype(given: RecipeForm, stack: Stack) -> str:
    """The dtype that adapters have unless told otherwise."""
    stated = given.precision.preset if isinstance(given.precision, PrecisionForm) else given.precision
    return "bf16" if stack.adapter_dtype == "base" and (stated or stack.precision) == "bf16-pure" else "fp32"


def _adapters_of(stack: Stack) -> Phrase:
    """Who chose the adapters' dtype: the stack where it sets one, else PEFT."""
    return of(stack) if stack.adapter_dtype != "fp32" else phrase("assumed.default-of", of="PEFT")


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
    groups = {"all-linear": PEFT_TARGETS, "attention": ("q", "k", "v", "o"), "mlp": ("gate", "up", "down")}
    return tuple(dict.fromkeys(t for n in named if n for t in groups.get(n, (n,))))
