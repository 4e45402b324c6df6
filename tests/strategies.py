"""Legal cases in the file form, drawn by Hypothesis: models, GPUs, stacks, precision, plans, losses, adapters."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from planner import cases
from planner.errors import BadInput
from planner.spec import presets
from planner.spec.case import Case
from planner.spec.form import CHOICES
from planner.spec.recipe import ATTENTION, LOSSES, OPTIMIZER_IMPLS, PEFT_TARGETS, STATES

Raw = dict[str, Any]

MODELS = (
    "llama-3-8b", "llama-3.2-1b", "llama-2-7b", "llama-3-70b", "qwen2.5-0.5b", "qwen2.5-7b", "qwen3-8b",
    "qwen3-30b-a3b", "mixtral-8x7b", "gemma-2-9b", "gemma-3-4b", "mistral-7b", "phi-3-mini", "olmo-2-7b", "olmo-1b",
    "gpt-neox-20b", "pythia-1b", "gpt2", "gpt2-xl", "500M", "40B",
)  # fmt: skip
DENSE_SMALL = ("llama-3.2-1b", "qwen2.5-0.5b", "pythia-1b", "gpt2")
GPUS = ("h100-sxm", "h200-sxm", "a100-sxm-80", "a100-sxm-40", "b200", "rtx-4090", "mi300x", "l40s")
FRAMEWORKS = ("pytorch", "hf-transformers", "torchtitan", "deepspeed", "megatron-lm")
PRECISIONS = ("fp32", "tf32", "autocast-bf16", "autocast-fp16", "bf16-master", "fp16-master", "bf16-pure")


def _divisors(number: int, most: int) -> list[int]:
    return [n for n in range(1, most + 1) if number % n == 0]


@st.composite
def recipes(draw: st.DrawFn, max_positions: int, adapters: bool = True) -> Raw:
    """A recipe; the sequence is a multiple of 64, and within the model's table of positions."""
    lengths = [n for n in (64, 128, 1024, 2048, 4096, 8192, 16384) if n <= max_positions]
    task = draw(st.sampled_from(["pretrain", "full-ft", "lora", "qlora"] if adapters else ["pretrain"]))
    recipe: Raw = {
        "framework": draw(st.sampled_from(FRAMEWORKS)),
        "task": task,
        "seq_len": draw(st.sampled_from(lengths)),
        "optimizer": draw(st.sampled_from(sorted(STATES))),
        "optimizer_impl": draw(st.sampled_from(OPTIMIZER_IMPLS)),
        "checkpointing": draw(st.sampled_from(CHOICES["recipe.checkpointing"])),
        "attention": draw(st.sampled_from(ATTENTION)),
        "loss": draw(st.sampled_from(LOSSES)),
        "allocator": draw(st.sampled_from(["native", "expandable"])),
        "precision": draw(st.sampled_from(PRECISIONS)),
    }
    if recipe["checkpointing"] == "every-k":
        recipe["checkpointing_args"] = {"k": draw(st.integers(1, 5))}
    if recipe["loss"].startswith("chunked"):
        recipe["loss_chunks"] = draw(st.integers(1, 32))
    if task in ("lora", "qlora"):
        recipe["precision"] = draw(st.sampled_from(["autocast-bf16", "bf16-pure"]))
        targets = st.lists(st.sampled_from(PEFT_TARGETS), min_size=1, unique=True)
        recipe["peft"] = {"rank": draw(st.sampled_from([1, 8, 64])), "targets": draw(targets)}
    return recipe


@st.composite
def plans(draw: st.DrawFn, heads: int, layers: int, recipe: Raw) -> tuple[Raw, int]:
    """A plan and how many GPUs it takes."""
    tp = draw(st.sampled_from(_divisors(heads, 8)))
    pp = draw(st.sampled_from(_divisors(layers, 4)))
    kind = draw(st.sampled_from(["none", "ddp", "zero", "fsdp2"]))
    replicate, shard, zero = 1, 1, 0
    if kind == "ddp":
        replicate = draw(st.sampled_from([1, 2, 8]))
    elif kind == "zero":
        zero = draw(st.integers(0, 1 if pp > 1 else 3))
        replicate = draw(st.sampled_from([1, 2]))
        shard = draw(st.sampled_from([1, 2, 8, 64])) if zero else 1
    elif kind == "fsdp2":
        zero, replicate = 3, draw(st.sampled_from([1, 2]))
        shard = draw(st.sampled_from([1, 2, 8, 64]))
    plan: Raw = {
        "data_parallel": kind, "zero": zero, "dp_replicate": replicate, "dp_shard": shard, "tp": tp, "pp": pp,
        "micro_batch": draw(st.sampled_from([1, 2, 3, 8])),
        "sequence_parallel": draw(st.booleans()),
        "reshard_after_forward": draw(st.booleans()),
    }  # fmt: skip
    if kind == "fsdp2" and draw(st.booleans()):
        plan["offload"] = {"params": "cpu", "optimizer": "cpu"}
    if kind == "zero" and draw(st.booleans()):
        params = draw(st.sampled_from(["none", "cpu"])) if zero == 3 else "none"
        plan["offload"] = {"optimizer": "cpu", "params": params}
    accumulation = draw(st.sampled_from([1, 2, 4 * pp]))
    recipe["global_batch"] = replicate * shard * plan["micro_batch"] * accumulation
    return plan, replicate * shard * tp * pp


@st.composite
def raw_cases(draw: st.DrawFn, models: tuple[str, ...] = MODELS, adapters: bool = True, pipeline: bool = True) -> Raw:
    """A case in the file form that breaks no rule; what a rule forbids all the same is drawn again."""
    name = draw(st.sampled_from(models))
    shape = presets.model(name)
    recipe = draw(recipes(shape.max_positions, adapters))
    kv = int(np.gcd.reduce([np.gcd(int(g.attention.kv_heads), int(g.mlp.ffn)) for g in shape.groups]))
    layers = int(np.gcd.reduce([int(g.count) for g in shape.groups])) if pipeline else 1
    plan, world = draw(plans(kv, layers, recipe))
    return {
        "cluster": {"gpu": draw(st.sampled_from(GPUS)), "gpus": world}, "model": name, "recipe": recipe, "plan": plan,
    }  # fmt: skip


def legal_cases(**how: Any) -> st.SearchStrategy[Case]:
    """Cases of `raw_cases` that every rule lets through."""
    return raw_cases(**how).map(_made).filter(lambda c: c is not None)  # type: ignore[return-value]


def _made(raw: Raw) -> Case | None:
    try:
        return cases.case(raw)
    except BadInput:
        return None


#: any JSON, with what strangers put into it
json_trees = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**25), 10**25) | st.floats() | st.text(max_size=20)
    | st.sampled_from(["llama-3-8b", "h100-sxm", "fsdp2", "nan", "1e308", "-1", "0", "", "../..", "{", "40B"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
