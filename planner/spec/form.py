"""The file form of a case: what may stand in it, with types and limits. The outside edge; inside are dataclasses.

Every field may be left open. Unknown fields are refused, so that a misspelt one is not lost in silence.
"""

from __future__ import annotations

import functools
import tomllib
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from planner import paths
from planner.errors import Problem, nearest
from planner.i18n import Phrase, Said, phrase
from planner.spec.plan import (
    CP_COMM,
    DATA_PARALLEL,
    OFFLOAD,
    OFFLOAD_ACTIVATIONS,
    OFFLOAD_OPTIMIZER,
    VOCAB_SCHEDULES,
)
from planner.spec.recipe import (
    ATTENTION,
    BASE_DTYPES,
    CHECKPOINTING,
    LOSSES,
    METHODS,
    MODULES,
    OPTIMIZER_IMPLS,
    PEFT_TARGETS,
    PRECISIONS,
    SAVED_MODULES,
    STATES,
    TASKS,
)

SCHEMA = "headroom.case/1"
_LIMITS = ConfigDict(extra="forbid", strict=True, frozen=True)
MOST_TOKENS = 10**8
MOST_RANKS = 10**6


class ClusterForm(BaseModel):
    """Hardware: a GPU and how many, or a node and how many."""

    model_config = _LIMITS
    gpu: str | None = None
    gpus: int | None = None
    node: str | None = None
    nodes: int | None = None
    host_gib: float | int | None = Field(default=None, gt=0, le=10**6)


class PrecisionForm(BaseModel):
    """A preset, and parts that differ from it."""

    model_config = _LIMITS
    preset: str | None = None
    params: str | None = None
    compute: str | None = None
    grads: str | None = None
    grad_reduce: str | None = None
    master: str | None = None
    optimizer_state: str | None = None
    gemm: str | None = None
    fp8: str | bool | None = None


class PeftForm(BaseModel):
    """Adapters."""

    model_config = _LIMITS
    method: str | None = None
    rank: int | None = Field(default=None, ge=1, le=65536)
    targets: list[str] | str | None = None
    base_dtype: str | None = None
    adapter_dtype: str | None = None
    modules_to_save: list[str] | None = None
    trainable_params: int | None = Field(default=None, ge=1, le=10**13)


class CheckpointingArgs(BaseModel):
    """Arguments of a checkpointing policy."""

    model_config = _LIMITS
    k: int | None = Field(default=None, ge=1, le=10000)
    layers: int | None = Field(default=None, ge=1, le=10000)
    recompute: list[str] | None = None
    save: list[str] | None = None
    method: str | None = None


class RecipeForm(BaseModel):
    """The training recipe."""

    model_config = _LIMITS
    framework: str | None = None
    task: str | None = None
    seq_len: int | None = Field(default=None, ge=1, le=MOST_TOKENS)
    global_batch: int | None = Field(default=None, ge=1, le=10**9)
    tokens: int | float | None = Field(default=None, gt=0, le=1e18)
    precision: PrecisionForm | str | None = None
    optimizer: str | None = None
    optimizer_impl: str | None = None
    optimizer_in_backward: bool | None = None
    checkpointing: str | bool | None = None
    checkpointing_args: CheckpointingArgs | None = None
    attention: str | None = None
    loss: str | None = None
    loss_chunks: int | None = Field(default=None, ge=1, le=10**6)
    loss_impl: str | None = None
    tiled_mlp: bool | None = None
    dropout: float | int | None = Field(default=None, ge=0, lt=1)
    compile: bool | None = None
    allocator: str | None = None
    peft: PeftForm | None = None


class OffloadForm(BaseModel):
    """What lives in host memory."""

    model_config = _LIMITS
    params: str | None = None
    optimizer: str | None = None
    activations: str | None = None


class PlanForm(BaseModel):
    """The parallel plan."""

    model_config = _LIMITS
    data_parallel: str | None = None
    zero: int | None = Field(default=None, ge=0, le=3)
    dp_replicate: int | None = Field(default=None, ge=1, le=MOST_RANKS)
    dp_shard: int | None = Field(default=None, ge=1, le=MOST_RANKS)
    tp: int | None = Field(default=None, ge=1, le=MOST_RANKS)
    sequence_parallel: bool | None = None
    cp: int | None = Field(default=None, ge=1, le=MOST_RANKS)
    cp_comm: str | None = None
    pp: int | None = Field(default=None, ge=1, le=MOST_RANKS)
    ep: int | None = Field(default=None, ge=1, le=MOST_RANKS)
    etp: int | None = Field(default=None, ge=1, le=MOST_RANKS)
    schedule: str | None = None
    virtual_stages: int | None = Field(default=None, ge=1, le=1000)
    layer_split: list[int] | None = Field(default=None, min_length=1, max_length=10_000)
    reshard_after_forward: bool | None = None
    reshard_last_block: bool | None = None
    micro_batch: int | None = Field(default=None, ge=1, le=10**7)
    offload: OffloadForm | None = None


class CaseForm(BaseModel):
    """A whole case."""

    model_config = _LIMITS
    schema_: str | None = Field(default=None, alias="schema")
    name: str | None = Field(default=None, max_length=200)
    cluster: ClusterForm | None = None
    model: str | dict[str, Any] | None = None
    recipe: RecipeForm | None = None
    plan: PlanForm | None = None


#: enumerated fields and what they may hold
CHOICES: dict[str, tuple[str, ...]] = {
    "recipe.task": TASKS,
    "recipe.precision": PRECISIONS,
    "recipe.precision.preset": PRECISIONS,
    "recipe.precision.params": ("fp32", "bf16", "fp16", "fp8", "int8"),
    "recipe.precision.compute": ("fp32", "tf32", "bf16", "fp16"),
    "recipe.precision.grads": ("fp32", "bf16", "fp16"),
    "recipe.precision.grad_reduce": ("fp32", "bf16", "fp16"),
    "recipe.precision.master": ("none", "fp32", "bf16"),
    "recipe.precision.optimizer_state": ("fp32", "bf16", "fp16", "int8", "int4"),
    "recipe.precision.gemm": ("none", "nvfp4"),
    "recipe.precision.fp8": ("none",),
    "recipe.optimizer": tuple(STATES),
    "recipe.optimizer_impl": OPTIMIZER_IMPLS,
    "recipe.checkpointing": CHECKPOINTING,
    "recipe.checkpointing_args.method": ("uniform", "block"),
    "recipe.checkpointing_args.recompute": MODULES,
    "recipe.attention": ATTENTION,
    "recipe.loss": LOSSES,
    "recipe.allocator": ("native", "expandable"),
    "recipe.peft.method": tuple(METHODS),
    "recipe.peft.base_dtype": BASE_DTYPES,
    "recipe.peft.adapter_dtype": ("fp32", "bf16", "fp16"),
    "recipe.peft.targets": (*PEFT_TARGETS, "all-linear", "attention", "mlp"),
    "recipe.peft.modules_to_save": SAVED_MODULES,
    "plan.data_parallel": tuple(d for d in DATA_PARALLEL if d != "megatron-fsdp"),
    "plan.schedule": ("1f1b", "interleaved-1f1b", *VOCAB_SCHEDULES),
    "plan.cp_comm": tuple(c for c in CP_COMM if c != "all_gather"),
    "plan.offload.params": OFFLOAD,
    "plan.offload.optimizer": OFFLOAD_OPTIMIZER,
    "plan.offload.activations": OFFLOAD_ACTIVATIONS,
}


@functools.cache
def nearby() -> dict[str, dict[str, str]]:
    """By field, values that are accepted and have no formula yet, and the nearest that has one."""
    return tomllib.loads((paths.data() / "nearest.toml").read_text(encoding="utf-8"))


def validated(raw: Any) -> tuple[CaseForm | None, list[Problem]]:
    """The form of a raw case, or every problem of its shape."""
    try:
        return CaseForm.model_validate(raw), []
    except ValidationError as error:
        return None, [_problem(one) for one in error.errors(include_url=False)]


def _problem(one: Any) -> Problem:
    where = [str(p) for p in one["loc"] if str(p) not in _UNION_TAGS]
    field = ".".join(where) or "case"
    context = one.get("ctx") or {}
    shown = _shown(one)
    match one["type"]:
        case "extra_forbidden":
            return Problem(field, Phrase("problem.no-field"), _nearest_field(field))
        case "greater_than_equal" | "greater_than":
            return Problem(field, phrase("problem.too-small", value=shown), _bound(context, 1))
        case "less_than_equal" | "less_than":
            return Problem(field, phrase("problem.too-large", value=shown), _bound(context, -1))
        case "int_type" | "int_from_float" | "int_parsing":
            return Problem(field, phrase("problem.not-whole", value=shown), _whole(one.get("input")))
        case "string_too_long":
            most = context.get("max_length")
            return Problem(field, phrase("problem.too-long", value=shown), phrase("near.characters", most=most))
        case kind:
            needed = Phrase(f"needed.{_NEEDED.get(kind, 'other')}")
            return Problem(field, phrase("problem.not-a", value=shown, needed=needed))


#: pydantic's name of an error -> what is needed there, a key of the table `needed`
_NEEDED = {
    "string_type": "text", "string_unicode": "text", "bool_type": "boolean", "bool_parsing": "boolean",
    "float_type": "number", "float_parsing": "number", "finite_number": "number", "list_type": "list",
    "dict_type": "table", "model_type": "table", "model_attributes_type": "table",
}  # fmt: skip


_UNION_TAGS = {"PrecisionForm", "str", "bool", "float", "int", "list[str]", "dict[str,any]", "constrained-str"}


def _shown(one: Any) -> str:
    text = repr(one.get("input"))
    return text if len(text) <= 60 else text[:57] + "..."


def _bound(context: dict[str, Any], step: int) -> Said | None:
    for key in ("ge", "le"):
        if key in context:
            return str(context[key])
    for key in ("gt", "lt"):
        if key in context:
            return phrase("near.above" if step > 0 else "near.below", value=context[key])
    return None


def _whole(value: Any) -> str | None:
    try:
        return str(max(1, round(float(value))))
    except (TypeError, ValueError, OverflowError):
        return None


def fields(model: type[BaseModel] = CaseForm, prefix: str = "") -> list[str]:
    """Every field that `--set` can name, dotted."""
    found = []
    for name, info in model.model_fields.items():
        label = f"{prefix}{info.alias or name}"
        found.append(label)
        for option in (info.annotation, *get_args(info.annotation)):
            if isinstance(option, type) and issubclass(option, BaseModel):
                found += fields(option, f"{label}.")
    return found


def _nearest_field(field: str) -> str | None:
    same = [f for f in fields() if f.rpartition(".")[0] == field.rpartition(".")[0]]
    return nearest(field, same) or (same[0] if same else None)




def choose(field: str, value: str, table: dict[str, str], problems: list[Problem]) -> str | None:
    """The canonical value of an enumerated field, through the spelling table; notes a problem otherwise.

    It may be one that has no formula yet: see `nearby`.
    """
    choices = (*CHOICES[field], *nearby().get(field, ()))
    word = value.strip().lower()
    word = table.get(word, word)
    if word in choices:
        return word
    close = nearest(word, choices)
    problems.append(Problem(field, phrase("problem.unknown", word=repr(value)), close or ", ".join(choices)))
    return None
