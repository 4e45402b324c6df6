"""The largest model that a cluster trains, one answer for each recipe family."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner import cases
from planner.errors import BadInput, Problem
from planner.i18n import Phrase, Said, has, phrase, t
from planner.layers.model import parameters
from planner.quantity import value_of
from planner.search.limits import binding_of, fits, trains
from planner.search.solve import largest_true
from planner.spec import presets
from planner.spec.build import build, merged
from planner.spec.case import Case
from planner.spec.hardware import Cluster
from planner.spec.model import Model
from planner.step.evaluate import Estimate, evaluate
from planner.units import gib

REGIMES = Path(__file__).parent.parent / "data" / "regimes.toml"
HIDDEN = (8192, 6144, 4096, 3072, 2048, 1536, 1024, 768, 512)
TOKENS = 4096
MOST_LAYERS = 2**20


@dataclass(frozen=True, slots=True)
class Regime:
    """A recipe family: its id, its kind, the fields of a case that make it, and whether tp fills the node."""

    id: str
    regime: str
    changes: dict[str, Any]
    tensor_parallel_node: bool


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest model of one family.

    params       of the largest whose expected memory is within the card (and the host's), 0 where none is
    comfortable  of the largest whose verdict is `fits`
    """

    regime: Regime
    params: float
    comfortable: float
    case: Case | None
    estimate: Estimate | None
    limits: tuple[Said, ...]

    @property
    def binding(self) -> str:
        """What sets the limit, in words; where the plan is not legal, everything that is wrong with it."""
        return " ".join(str(one) for one in self.limits)

    @property
    def title(self) -> str:
        """The family in words; on one GPU without the sharding it does not need."""
        one = self.case is not None and int(self.case.cluster.gpus) == 1 and has(f"regime.{self.regime.id}-one")
        return t(f"regime.{self.regime.id}{'-one' if one else ''}")


@functools.lru_cache(maxsize=1)
def regimes() -> tuple[Regime, ...]:
    """The families, in the order they are shown."""
    rows = tomllib.loads(REGIMES.read_text(encoding="utf-8"))["regime"]
    return tuple(Regime(r["id"], r["regime"], r["changes"], r.get("tensor_parallel_node", False)) for r in rows)


def largest(cluster: Mapping[str, Any], stated: Mapping[str, Any] | None = None) -> list[Largest]:
    """One answer for each family on a cluster (the file form's `cluster`).

    `stated` are dotted fields that hold for all families (a sequence length, another loss). The shape is the
    contract's: head size 128, 8 key/value heads, FFN 3.5 x hidden, vocabulary 128,256 untied, 4,096 tokens per GPU,
    full checkpointing, hidden 8,192 with the depth solved for (less for small answers).
    """
    form = build({"cluster": dict(cluster)}, presets.shape(HIDDEN[0], 1)).cluster  # a wrong cluster is told at once
    _check_stated(cluster, stated or {})
    return [_one(regime, cluster, form, dict(stated or {})) for regime in regimes()]


def _check_stated(cluster: Mapping[str, Any], stated: Mapping[str, Any]) -> None:
    """What is stated for all families must be sound by itself; the model is what is asked for."""
    model = sorted(name for name in stated if name.partition(".")[0] == "model")
    if model:
        raise BadInput(Problem(model[0], phrase("problem.largest-model"), "fit"))
    cases.case(merged({"cluster": dict(cluster)}, {"recipe.precision": "fp32", **stated}), presets.shape(HIDDEN[0], 8))


def _one(regime: Regime, cluster: Mapping[str, Any], machine: Cluster, stated: dict[str, Any]) -> Largest:
    base = {"recipe.checkpointing": "full", "recipe.seq_len": TOKENS, "plan.micro_batch": 1}
    changes = {**base, **_fitted(regime, machine), **stated}
    raw = merged({"cluster": dict(cluster)}, changes)
    at = functools.partial(_at, raw)
    try:
        at(presets.shape(HIDDEN[-1], 8))
    except BadInput as error:
        return Largest(regime, 0.0, 0.0, None, None, tuple(p.what for p in error.problems))
    hidden = next((h for h in HIDDEN if _depth(at, h, trains) * 512 >= h), HIDDEN[-1])
    depth, sure = _depth(at, hidden, trains), _depth(at, hidden, fits)
    if not depth:
        found = evaluate(at(presets.shape(hidden, 1)))
        return Largest(regime, 0.0, 0.0, None, None, (binding_of(found),))
    case = at(presets.shape(hidden, depth))
    beyond = evaluate(at(presets.shape(hidden, depth + 1)))
    certain = _params(at(presets.shape(hidden, sure)).model) if sure else 0.0
    found = evaluate(case)
    binding = _host_open(found) if regime.regime == "offload" and found.host.capacity is None else binding_of(beyond)
    return Largest(regime, _params(case.model), certain, case, found, (binding,))


def _host_open(found: Estimate) -> Phrase:
    """Offload to a node whose memory nobody stated: how much it would have to have."""
    return phrase("binding.host_open", needed=f"{gib(float(value_of(found.host.needed))):.0f}")


#: what a GPU without bf16 trains in instead
FP16 = {"autocast-bf16": "autocast-fp16", "bf16-master": "fp16-master"}


def _fitted(regime: Regime, machine: Cluster) -> dict[str, Any]:
    """The family's fields on this cluster: tp inside the node, nothing sharded on one GPU, fp16 where bf16 is not."""
    changes = dict(regime.changes)
    if regime.tensor_parallel_node:
        tp = math.gcd(8, machine.gpus_per_node)
        changes |= {"plan.tp": tp, "plan.micro_batch": tp}  # 4,096 tokens per GPU, not per group
    if int(machine.gpus) == 1 and changes.get("plan.data_parallel") == "fsdp2":
        changes["plan.data_parallel"] = "none"
    peak = machine.accelerator.peak
    if peak and "bf16" not in peak:
        precision = changes.get("recipe.precision", "autocast-bf16")
        changes["recipe.precision"] = FP16.get(precision, precision) if isinstance(precision, str) else precision
        if regime.regime == "lora":
            changes["recipe.peft.base_dtype"] = "fp16"
    return changes


def _at(raw: Mapping[str, Any], model: Model) -> Case:
    return cases.case(raw, model)


def _depth(at: functools.partial[Case], hidden: int, holds: Callable[[Case], bool]) -> int:
    """The most layers of that width; 0 where one is too much or the plan is not legal for that width."""

    def answer(layers: int) -> bool:
        try:
            return holds(at(presets.shape(hidden, layers)))
        except BadInput:
            return False

    return largest_true(answer, 32, MOST_LAYERS)


def _params(model: Model) -> float:
    return float(value_of(parameters(model)))
