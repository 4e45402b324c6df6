"""From a case to what the worker is asked to trace, as plain data; and what of a case no trace can show, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner.errors import BadInput, Problem
from planner.i18n import Phrase, Said, phrase
from planner.spec.case import Case
from planner.spec.huggingface import text_part
from planner.spec.model import Model

FORMAT = "headroom.trace/1"
STEPS = 3
OPTIMIZERS = ("adamw", "adam", "sgd", "sgd-momentum")
#: precision preset -> dtype of the weights, dtype under autocast
PRECISIONS = {
    "fp32": ("fp32", None), "tf32": ("fp32", None), "bf16-pure": ("bf16", None), "autocast-bf16": ("fp32", "bf16"),
    "autocast-fp16": ("fp32", "fp16"),
}  # fmt: skip
#: how torch is asked for attention -> the kernel that is traced (see inside.device.chosen)
KERNELS = {"mem-efficient": "mem-efficient", "cudnn": "cudnn", "eager": "eager"}
#: stacks whose model code is not transformers', and how well it can be shown
OWN_CODE = ("megatron-lm",)


def request(
    case: Case, steps: int = STEPS, log: bool = True, module: str | None = None, config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What the worker is asked. Raises BadInput with everything about the case that cannot be traced.

    `module` names a user's own constructor instead of the case's model; `config` is a configuration to trace that the
    closed forms do not know.
    """
    if problems := untraceable(case, own_model=module is not None):
        raise BadInput(problems)
    recipe, plan = case.recipe, case.plan
    params, autocast = PRECISIONS[recipe.precision.preset]
    if recipe.peft is not None:
        params = {"nf4": "bf16", "nf4-dq": "bf16"}.get(recipe.peft.base_dtype, recipe.peft.base_dtype)
    sharded = plan.data_parallel == "fsdp2"
    mixed = {"params": recipe.precision.compute, "reduce": recipe.precision.grad_reduce}
    engine = sharded and autocast is not None and recipe.peft is None
    return {
        "format": FORMAT,
        "model": {"module": module} if module else _model(case, config),
        "seq_len": int(recipe.seq_len),
        "micro_batch": int(plan.micro_batch),
        "accumulation": int(plan.accumulation),
        "params_dtype": params,
        "autocast": None if engine else autocast,
        "mixed": mixed if engine else None,
        "dropout": recipe.dropout,
        "attention": KERNELS.get(recipe.attention, "flash"),
        "checkpointing": policy(case),
        "offload_activations": _activations_offloaded(case),
        "loss": {
            "kind": recipe.loss, "chunks": int(recipe.loss_chunks),
            "inside": case.stack.loss_inside_root and int(plan.tp) == 1,
        },
        "keeps_logits": recipe.keeps_logits,
        "optimizer": {"name": recipe.optimizer, "impl": recipe.optimizer_impl},
        "clip": True,
        "spread": {
            "kind": plan.data_parallel if _ranks(case) > 1 else "none",
            "replicate": int(plan.dp_replicate), "shard": int(plan.dp_shard), "tp": int(plan.tp),
            "sequence_parallel": bool(plan.sequence_parallel), "reshard": _reshard(case),
            "root": case.stack.root_group, "waits": plan.data_parallel == "ddp",
        },
        "adapters": _adapters(case),
        "semantics": "cuda",
        "fake": True,
        "steps": steps,
        "log": log,
    }  # fmt: skip


def _ranks(case: Case) -> int:
    return int(case.plan.dp_replicate) * int(case.plan.dp_shard)


def _sharded(case: Case) -> bool:
    return case.plan.data_parallel == "fsdp2" or int(case.plan.tp) > 1


def _has_experts(case: Case) -> bool:
    return any(g.mlp.kind == "moe" for g in case.model.groups)


def _compute(case: Case) -> str:
    """Dtype in which the experts' product runs: autocast does not reach it, a sharding engine's casts do."""
    params, autocast = PRECISIONS.get(case.recipe.precision.preset, ("fp32", None))
    if case.recipe.peft is not None:
        return case.recipe.peft.base_dtype
    engine = case.plan.data_parallel == "fsdp2" and autocast is not None
    return case.recipe.precision.compute if engine else params


def _reshard(case: Case) -> str:
    """always, never, or unless-last where the stack leaves its last layer gathered."""
    if not case.plan.reshard_after_forward:
        return "never"
    return "always" if case.plan.reshard_last_block else "unless-last"


def _activations_offloaded(case: Case) -> bool:
    return bool(case.plan.offload.activations == "cpu")


def policy(case: Case) -> str:
    """The checkpointing policy as the user stated it, for a trace can show more policies than the formulas know."""
    recipe = case.stated.get("recipe")
    stated = recipe.get("checkpointing") if isinstance(recipe, dict) else None
    selective = isinstance(stated, str) and stated.strip().lower() in ("selective-op", "selective", "op")
    return "selective-op" if selective else str(case.recipe.checkpointing)


def _adapters(case: Case) -> dict[str, Any] | None:
    peft = case.recipe.peft
    if peft is None:
        return None
    everything = len(peft.targets) == 7
    packed = peft.base_dtype if peft.base_dtype not in ("fp32", "bf16", "fp16") else None
    return {
        "method": "dora" if peft.method == "dora" else "lora", "rank": int(peft.rank),
        "targets": "all-linear" if everything else list(peft.targets), "packed": packed,
        "double_quant": packed == "nf4-dq",
        "adapter_dtype": "base" if case.plan.data_parallel == "fsdp2" else peft.adapter_dtype,
    }  # fmt: skip


# The model


def _model(case: Case, config: Mapping[str, Any] | None) -> dict[str, Any]:
    if config is not None:
        return {"code": "transformers", "config": dict(config)}
    if case.stack.id.startswith("torchtitan") and plain(case.model) and case.recipe.peft is None:
        return {"code": "titan", "shape": _shape(case.model), "fused_norm": case.stack.norm_kernels == "fused"}
    return {"code": "transformers", "config": configuration(case.model, int(case.recipe.seq_len))}


def plain(model: Model) -> bool:
    """Whether a model is what our own torchtitan-like code shows: Llama's layers, all alike."""
    (group, *more) = model.groups
    attention, mlp = group.attention, group.mlp
    return (
        not more and group.norm.kind == "rms" and group.norm.placement == "pre" and mlp.kind == "dense" and mlp.gated
        and mlp.activation == "silu" and not mlp.bias and not attention.qkv_bias and not attention.out_bias
        and attention.qk_norm is None and attention.rope and not attention.softcap and attention.window is None
    )  # fmt: skip


def _shape(model: Model) -> dict[str, Any]:
    group = model.groups[0]
    return {
        "hidden": int(model.hidden), "layers": int(model.layers), "heads": int(group.attention.heads),
        "kv_heads": int(group.attention.kv_heads), "head_dim": int(group.attention.head_dim),
        "ffn": int(group.mlp.ffn), "vocab": int(model.vocab), "tied": bool(model.tied),
    }  # fmt: skip


def configuration(model: Model, seq_len: int) -> dict[str, Any]:
    """The model as a Hugging Face configuration: as published (its text part), or Llama's with the model's shape."""
    if model.config:
        found = text_part(dict(model.config))
        if model.position == "learned":
            name = "n_positions" if "n_positions" in found else "max_position_embeddings"
            found[name] = max(seq_len, int(model.max_positions))
        return found
    shape = _shape(model)
    return {
        "model_type": "llama", "hidden_size": shape["hidden"], "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"], "num_key_value_heads": shape["kv_heads"],
        "head_dim": shape["head_dim"], "intermediate_size": shape["ffn"], "vocab_size": shape["vocab"],
        "tie_word_embeddings": shape["tied"], "max_position_embeddings": int(model.max_positions),
    }  # fmt: skip


# What cannot be traced


def untraceable(case: Case, own_model: bool = False) -> list[Problem]:
    """Everything about a case that no trace can show, each with its reason and the nearest that one can."""
    return [
        Problem(field, phrase(f"trace.cannot.{name}", **(values(case) if values else {})), near)
        for name, field, holds, near, values in LIMITS
        if holds(case) and not (own_model and name in OF_THE_MODEL)
    ]


ADAPTERS = ("lora", "qlora", "dora")

Test = Callable[[Case], Any]
Values = Callable[[Case], dict[str, Any]]

#: name, field, when it cannot be traced, what can be, values for the phrase
LIMITS: tuple[tuple[str, str, Test, Said | None, Values | None], ...] = (
    ("pipeline", "plan.pp", lambda c: int(c.plan.pp) > 1, "1", None),
    ("context", "plan.cp", lambda c: int(c.plan.cp) > 1, "1", None),
    ("experts", "plan.ep", lambda c: int(c.plan.ep) > 1, "1", None),
    (
        "engine", "plan.data_parallel", lambda c: c.plan.data_parallel not in ("none", "ddp", "fsdp2"), "fsdp2",
        lambda c: {"kind": c.plan.data_parallel},
    ),
    (
        "offload", "plan.offload",
        lambda c: c.plan.offload.optimizer != "none" or c.plan.offload.params != "none", "none", None,
    ),
    (
        "precision", "recipe.precision",
        lambda c: c.recipe.precision.preset not in PRECISIONS or bool(_parts_apart(c)), "autocast-bf16",
        lambda c: {"preset": ", ".join(_parts_apart(c)) or c.recipe.precision.preset},
    ),
    (
        "optimizer", "recipe.optimizer", lambda c: c.recipe.optimizer not in OPTIMIZERS, "adamw",
        lambda c: {"optimizer": c.recipe.optimizer},
    ),
    (
        "checkpointing", "recipe.checkpointing", lambda c: policy(c) not in ("none", "full", "selective-op"), "full",
        lambda c: {"policy": policy(c)},
    ),
    (
        "region", "recipe.checkpointing_args.layers",
        lambda c: policy(c) == "full" and int(getattr(c.recipe, "checkpoint_region", 1)) > 1, "1", None,
    ),
    ("own-code", "recipe.framework", lambda c: c.stack.id in OWN_CODE, "hf-transformers",
     lambda c: {"framework": c.stack.id}),
    (
        "adapters", "recipe.peft.method", lambda c: c.recipe.peft and c.recipe.peft.method not in ADAPTERS, "lora",
        lambda c: {"method": c.recipe.peft.method if c.recipe.peft else ""},
    ),
    (
        "base", "recipe.peft.base_dtype", lambda c: c.recipe.peft and c.recipe.peft.base_dtype == "int8", "nf4", None,
    ),
    (
        "packed-sharded", "recipe.peft.base_dtype",
        lambda c: c.recipe.peft and c.recipe.peft.base_dtype.startswith("nf4") and _ranks(c) > 1, "bf16", None,
    ),
    (
        "fused-sgd", "recipe.optimizer_impl",
        lambda c: c.recipe.optimizer.startswith("sgd") and c.recipe.optimizer_impl == "fused" and _sharded(c),
        "foreach", None,
    ),
    (
        "experts-dtype", "recipe.precision", lambda c: _has_experts(c) and _compute(c) != "bf16", "bf16-pure", None,
    ),
    ("loss", "recipe.loss", lambda c: c.recipe.loss != "full-logits" and int(c.plan.tp) > 1, "full-logits", None),
)  # fmt: skip

#: limits that say something of the case's model or stack, which a module of the user's own replaces
OF_THE_MODEL = ("own-code",)


def _parts_apart(case: Case) -> list[str]:
    """Parts of the precision that were stated apart from the preset, which torch's own switches do not offer."""
    recipe = case.stated.get("recipe")
    stated = recipe.get("precision") if isinstance(recipe, dict) else None
    if not isinstance(stated, dict):
        return []
    allowed = {"preset", "grad_reduce"} if case.plan.data_parallel == "fsdp2" else {"preset"}
    return [f"{k} = {v}" for k, v in stated.items() if k not in allowed and v is not None]


def notes(case: Case) -> list[Phrase]:
    """What a reader should know of how this case is traced."""
    found = []
    if case.stack.id.startswith("torchtitan") and (case.recipe.peft is not None or not plain(case.model)):
        found.append(Phrase("trace.note.titan"))
    if case.stack.id == "deepspeed":
        found.append(Phrase("trace.note.deepspeed"))
    if case.recipe.peft is not None and case.recipe.peft.base_dtype.startswith("nf4"):
        found.append(Phrase("trace.note.packed"))
    if case.recipe.loss in ("fused-ce", "fused-linear-ce", "chunked-linear-ce"):
        found.append(Phrase("trace.note.fused"))
    return found
