"""The recipe of a record: task, precision, optimizer, checkpointing, loss, adapters, in the words of a case file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from planner.evidence import wording
from planner.evidence.reading import Reader
from planner.spec.recipe import METHODS, MODELS
from planner.spec.stack import known, versioned
from planner.spec.versions import Version, version

#: what a record calls the implementation of an optimizer's step, and ours; other words leave it open
IMPLS = {"foreach": "foreach", "fused": "fused", "for-loop": "for-loop", "forloop": "for-loop"}
#: what an adapter sits on, by the names of canonical targets
TARGETS = {
    "q": ("q",), "k": ("k",), "v": ("v",), "qkv": ("q", "k", "v"), "o": ("o",), "gate": ("gate",), "up": ("up",),
    "down": ("down",), "mlp": ("gate", "up", "down"), "all-linear": ("all-linear",), "attention": ("q", "k", "v", "o"),
}  # fmt: skip
#: spellings of targets that frameworks and models use, where a record has no canonical ones
SPELT = {
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "output_proj": "o", "projection": "o", "query": "q",
    "key": "k", "value": "v", "c_attn": "qkv", "query_key_value": "qkv", "wqkv": "qkv", "attn.c_proj": "o",
    "gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w2": "up", "w3": "up", "dense": "o",
    "dense_h_to_4h": "up", "dense_4h_to_h": "down", "all linear": "all-linear", "all": "all-linear",
    "linear_qkv": "qkv", "linear_proj": "o", "linear_fc1": "up", "linear_fc2": "down",
}  # fmt: skip
#: whole weights that train beside adapters, by what models call them
WHOLE = {
    "embed_tokens": "embedding", "wte": "embedding", "embed": "embedding", "embedding": "embedding", "lm_head": "head",
    "head": "head", "output": "head",
}  # fmt: skip
ADAPTED = ("lora", "qlora")
FLOATS = ("fp32", "bf16", "fp16")
#: dtype of packed optimizer states -> the optimizer that has them
PACKED = {"int8": "adamw8bit", "int4": "adamw4bit"}


def recipe(read: Reader) -> dict[str, Any]:
    """Every field of the recipe that the record states."""
    record = read.record
    task = _task(read)
    peft = read.table("peft")
    adapted = task in ADAPTED or bool(peft)
    seq = read.count(record, "seq_len", least=0, most=10**8) or None
    found: dict[str, Any] = {
        "framework": _framework(read), "task": task, "seq_len": seq,
        "precision": _precision(read, adapted=adapted), "optimizer": _optimizer(read),
        "attention": read.word(record, "attention"), "loss": read.word(record, "loss"),
        "compile": read.flag(record, "compile") or None, "dropout": read.number(record, "dropout", 0, 0.999),
        "allocator": read.word(record, "allocator"),
    }  # fmt: skip
    found["tiled_mlp"] = read.flag(read.table("loss_args"), "tiled_mlp", "loss_args.")
    found["loss_impl"] = read.word(read.table("loss_args"), "via", "loss_args.")
    args = read.table("optimizer_args")
    found["optimizer_impl"] = IMPLS.get(str(args.get("impl")))
    text = read.word(record, "optimizer")
    stepped = bool(text and wording.optimizer(text).in_backward) or None
    found["optimizer_in_backward"] = read.flag(args, "in_backward", "optimizer_args.") or stepped
    found |= _checkpointing(read)
    if found["loss"] and found["loss"].startswith("chunked"):
        found["loss_chunks"] = _chunks(read, seq)
    if adapted:
        found["peft"] = _peft(read, peft, task)
    return {k: v for k, v in found.items() if v is not None}


def _framework(read: Reader) -> str | None:
    """The framework at the record's version; an open version is noted where it matters."""
    name = framework(read)
    if name and "@" not in name and versioned(name):
        read.note("version", name, "newest")
    return name


def framework(read: Reader) -> str | None:
    """The framework, its fork or the plugin that changes its kernels, at the version or date that the record states."""
    name: str | None = read.word(read.record, "framework")
    args = read.table("framework_args")
    plugin = read.word(args, "plugin", "framework_args.") or read.word(args, "fork", "framework_args.")
    if name is None:
        return None
    parts = wording.named(name)
    text = read.word(read.record, "version") or parts.version
    stated = version(text.removeprefix(name).strip()) or _dated(read.word(read.record, "torch"))
    name = parts.name
    trainer = read.word(read.table("framework_args"), "trainer", "framework_args.")
    if trainer and known(f"{name}-{trainer}"):
        name = f"{name}-{trainer}"
    if plugin and known(plugin):
        name = plugin
    elif args.get("peft") is True and not args.get("trainer"):
        name = "peft"  # adapters, and no trainer: a loop of its own
    return f"{name.partition('@')[0]}@{stated}" if stated else name


def _dated(torch: str | None) -> Version | None:
    """The day of a torch nightly; a release of torch is no version of the framework."""
    found = version(torch)
    return found if found and found.dated else None


def _task(read: Reader) -> str | None:
    task: str | None = read.word(read.record, "task")
    first = task.split()[0].lower() if task and task.split() else ""
    task = first if first in MODELS else task
    if task == "component":
        read.note("task", "pretrain", "component", near=True)
        return "pretrain"
    if task and read.table("peft") and task not in (*ADAPTED, *MODELS):
        read.note("task", "lora", "adapters-stated")
        return "lora"
    return task


def _optimizer(read: Reader) -> str | None:
    """The optimizer; Adam with packed states is one of its own."""
    text: str | None = read.word(read.record, "optimizer")
    name = wording.optimizer(text).name if text else None
    packed = PACKED.get(str(read.table("precision").get("optimizer_state")))
    return packed if packed and (name or "adamw").lower() in ("adam", "adamw") else name


def _chunks(read: Reader, seq: int | None) -> int | None:
    """Chunks of the loss, from the tokens of one chunk."""
    tokens = read.count(read.table("loss_args"), "chunk", "loss_args.", most=10**8)
    batch = read.count(read.record, "micro_batch", most=10**7)
    return max(1, math.ceil(seq * (batch or 1) / tokens)) if tokens and seq else None


def _precision(read: Reader, adapted: bool) -> dict[str, Any] | None:
    """Dtypes of each stored thing. The preset is only what decides whether autocast casts on the fly."""
    stated = read.table("precision")
    given = {k: read.word(stated, k, "precision.") for k in
             ("params", "compute", "grads", "grad_reduce", "optimizer_state", "master", "gemm")}  # fmt: skip
    params, compute = given["params"], given["compute"] or "bf16"
    if params is None:
        return None
    fp8 = stated.get("fp8")
    given["fp8"] = fp8 if isinstance(fp8, str) else None
    if stated.get("param_gather") == "fp8":  # weights gathered in 8 bit go into 8-bit products
        given["gemm"] = given["gemm"] or "fp8"
    given["gemm"] = given["gemm"] if given["gemm"] and given["gemm"] not in FLOATS else None
    casts = read.flag(stated, "autocast", "precision.") or (params == "fp32" and compute != "fp32")
    low = "fp16" if compute == "fp16" else "bf16"
    if adapted:
        given["params"] = None
        stack = known(framework(read) or "")
        wide = given["grads"] == "fp32" and not (stack and stack.precision == "bf16-pure")  # a loop without autocast
        given["preset"] = f"autocast-{low}" if casts or wide else "bf16-pure"
        given["grad_reduce"] = given["grad_reduce"] or given["grads"]
    elif casts and params == "fp32":
        given["preset"] = f"autocast-{low}"
    else:
        given["preset"] = "fp32" if params == "fp32" else ("fp16-master" if low == "fp16" else "bf16-master")
        given["optimizer_state"] = given["optimizer_state"] or (params if given["master"] == "none" else "fp32")
    if given["optimizer_state"] in PACKED:
        given["optimizer_state"] = None  # the optimizer says it
    return {k: v for k, v in given.items() if v is not None}


def _checkpointing(read: Reader) -> dict[str, Any]:
    policy = read.word(read.record, "act_ckpt")
    args = read.table("act_ckpt_args")
    method = args.get("method")
    found = {
        "k": read.count(args, "k", "act_ckpt_args.", most=10**4),
        "layers": read.count(args, "layers", "act_ckpt_args.", most=10**4),
        "recompute": read.words(args, "recompute", "act_ckpt_args."),
        "method": method if method in ("uniform", "block") else None,
    }
    stated = {k: v for k, v in found.items() if v is not None}
    return {"checkpointing": policy, "checkpointing_args": stated or None}


def _peft(read: Reader, peft: Mapping[str, Any], task: str | None) -> dict[str, Any]:
    method = read.word(peft, "method", "peft.")
    targets, whole = _targets(read, peft)
    precision = read.table("precision")
    adapters = precision.get("adapters") or precision.get("grads")
    base = read.word(peft, "base_dtype", "peft.") or precision.get("params")
    packed = "qlora" in (task, method)  # a record says nf4 of both kinds: then it is the framework's
    found = {
        "method": None if method in ADAPTED or method is None else method,
        "trainable_params": read.count(peft, "trainable_params", "peft.", most=10**13),
        "rank": read.count(peft, "rank", "peft.", most=65536),
        "targets": targets,
        "base_dtype": None if base == "nf4" and packed else base if isinstance(base, str) else None,
        "adapter_dtype": adapters if adapters in FLOATS else None,
        "modules_to_save": whole or None,
    }
    return {k: v for k, v in found.items() if v is not None}


def _targets(read: Reader, peft: Mapping[str, Any]) -> tuple[list[str] | None, list[str]]:
    """Projections with an adapter, and weights outside the layers that train whole."""
    named = read.words(peft, "targets_canonical", "peft.") or read.words(peft, "targets", "peft.") or []
    saved = read.words(peft, "modules_to_save", "peft.") or []
    found: list[str] = []
    whole = [WHOLE[s] for s in saved if s in WHOLE]
    for name in named:
        word = SPELT.get(name.lower(), name.lower())
        if word in TARGETS:
            found += TARGETS[word]
        elif WHOLE.get(word) == "embedding":
            whole += [] if METHODS.get(str(peft.get("method"))) == "none" else ["embedding"]  # some of its rows
        else:
            read.note("peft.targets", "left out", "no-target", stated=name[:40])
    return (list(dict.fromkeys(found)) or None), list(dict.fromkeys(whole))
