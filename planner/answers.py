"""Answers as plain data, in the shapes of the command line's contract. One place for commands, report and links."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from planner import __version__, thumb
from planner.cases import stated
from planner.i18n import said
from planner.quantity import Quantity, value_of
from planner.search.largest import Largest
from planner.search.limits import Limit
from planner.search.remedies import path, remedies
from planner.spec.case import Case
from planner.spec.model import Model
from planner.step.evaluate import Estimate
from planner.step.memory import Memory
from planner.units import gib


def in_gib(quantity: Quantity) -> float:
    """Bytes of a single value as GiB."""
    return gib(float(value_of(quantity)))


def fit(found: Estimate) -> dict[str, Any]:
    """Does this case fit: per GPU of the worst stage, in GiB."""
    memory, host = found.memory, found.host
    return {
        "verdict": found.verdict,
        "usable_gib": in_gib(memory.usable),
        "headroom_gib": in_gib(memory.headroom),
        "allocated_gib": in_gib(memory.allocated),
        "reserved_gib": in_gib(memory.reserved),
        "device_gib": in_gib(memory.device),
        "mem_low_gib": in_gib(memory.low),
        "mem_high_gib": None if memory.unknown else in_gib(memory.high),
        "unmodelled": [said(one) for one in memory.unknown],
        "least_gib": in_gib(memory.least),
        "peak_phase": memory.peak_phase,
        "moments_gib": {name: in_gib(q) for name, q in memory.moments.items()},
        "breakdown_gib": {name: in_gib(q) for name, q in found.breakdown().items()},
        "stages": [_stage(m) for m in found.stages()],
        "host_gib_per_node": in_gib(host.needed),
        "host_low_gib": in_gib(host.low),
        "host_high_gib": in_gib(host.high),
        "host_capacity_gib": in_gib(host.capacity) if host.capacity is not None else None,
        "host_verdict": host.verdict,
        "host_moments_gib": {name: in_gib(q) for name, q in host.moments.items()},
        "host_breakdown_gib": {name: in_gib(q) for name, q in host.parts.items()},
        "step_time_s": None,
        "tokens_per_s_per_gpu": None,
        "mfu": None,
        "days": None,
        "cost_usd": None,
        "warnings": [{"code": w.code, "because": w.because, "remedy": w.remedy} for w in found.warnings],
        "remedies": [_remedy(r) for r in remedies(found)] if found.verdict != "fits" else [],
        "together": [_remedy(r) for r in path(found)] if found.verdict != "fits" else [],
        "params": int(value_of(found.params)),
        "model": found.case.model.name,
        "shape": shape(found.case.model),
        "plan": plan(found.case),
        "recipe": recipe(found.case),
        "scope": "per GPU, worst pipeline stage",
        "assumed": list(found.case.assumed),
        "case": stated(found.case),
        "version": __version__,
    }


def _remedy(remedy: Any) -> dict[str, Any]:
    return {
        "change": remedy.key,
        "title": remedy.title,
        "set": {k: v for k, v in remedy.changes.items() if v is not None},
        "verdict": remedy.estimate.verdict,
        "saved_gib": gib(remedy.saved),
        "headroom_gib": in_gib(remedy.estimate.memory.headroom),
    }


def _stage(memory: Memory) -> dict[str, Any]:
    return {
        "stage": memory.stage.index,
        "verdict": memory.verdict,
        "allocated_gib": in_gib(memory.allocated),
        "device_gib": in_gib(memory.device),
        "headroom_gib": in_gib(memory.headroom),
        "peak_phase": memory.peak_phase,
    }


def shape(model: Model) -> dict[str, Any]:
    """A model's shape in the words of a Hugging Face configuration."""
    group = model.groups[0]
    return {
        "hidden_size": _int(model.hidden),
        "num_hidden_layers": _int(model.layers),
        "num_attention_heads": _int(group.attention.heads),
        "num_key_value_heads": _int(group.attention.kv_heads),
        "head_dim": _int(group.attention.head_dim),
        "intermediate_size": _int(group.mlp.ffn),
        "num_experts": _int(group.mlp.experts) if group.mlp.kind == "moe" else None,
        "experts_per_token": _int(group.mlp.experts_per_token) if group.mlp.kind == "moe" else None,
        "vocab_size": _int(model.vocab),
        "tie_word_embeddings": model.tied,
    }


def plan(case: Case) -> dict[str, Any]:
    """The parallel plan in the contract's names."""
    return _plain(dataclasses.asdict(case.plan))  # type: ignore[no-any-return]


def recipe(case: Case) -> dict[str, Any]:
    """The recipe in the contract's names."""
    named = dataclasses.asdict(case.recipe)
    return _plain({k: v for k, v in named.items() if k not in ("args", "keeps_logits")})  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def _int(value: Any) -> int:
    return int(value)


def largest(found: list[Largest], rules: list[thumb.Rule] | None = None) -> dict[str, Any]:
    """The largest model of each recipe family; memory per GPU in GiB, parameters as counts. Rules of thumb if given."""
    return {"regimes": [_regime(one) for one in found], "rules": thumb.as_json(rules or [])}


def _regime(one: Largest) -> dict[str, Any]:
    memory = one.estimate.memory if one.estimate else None
    return {
        "regime": one.regime.regime,
        "id": one.regime.id,
        "recipe": one.title,
        "params": int(one.params),
        "params_comfortable": int(one.comfortable),
        "verdict": memory.verdict if memory else "oom",
        "shape": shape(one.case.model) if one.case else None,
        "plan": plan(one.case) if one.case else None,
        "binding": one.binding,
        "headroom_gib": in_gib(memory.headroom) if memory else None,
        "device_gib": in_gib(memory.device) if memory else None,
        "allocated_gib": in_gib(memory.allocated) if memory else None,
        "mem_low_gib": in_gib(memory.low) if memory else None,
        "mem_high_gib": in_gib(memory.high) if memory else None,
        "usable_gib": in_gib(memory.usable) if memory else None,
        "host_gib_per_node": in_gib(one.estimate.host.needed) if one.estimate else None,
        "host_verdict": one.estimate.host.verdict if one.estimate else None,
        "days": None,
        "assumed": list(one.case.assumed) if one.case else [],
    }


def limit(name: str, found: Limit) -> dict[str, Any]:
    """The largest micro-batch (sequences) or longest sequence (tokens) of a case."""
    memory = found.estimate.memory
    return {
        name: found.value,
        f"{name}_comfortable": found.comfortable,
        "binding": found.binding,
        "verdict": memory.verdict if found.value else "oom",
        "mem_low_gib": in_gib(memory.low),
        "mem_high_gib": None if memory.unknown else in_gib(memory.high),
        "warnings": [{"code": w.code, "because": w.because, "remedy": w.remedy} for w in found.estimate.warnings],
        "headroom_gib": in_gib(memory.headroom),
        "device_gib": in_gib(memory.device),
        "usable_gib": in_gib(memory.usable),
        "case": stated(found.estimate.case),
    }
