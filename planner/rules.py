"""What makes a plan impossible, as named rules: over one case with reason and remedy, over arrays as a mask.

Rules run in order, each on what survived the ones before, so that a later one may divide by what an earlier one
made sound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.formulas import overheads as O
from planner.i18n import Phrase, Said, phrase
from planner.quantity import value_of
from planner.spec.case import Case
from planner.spec.model import LayerGroup


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: the field, why it cannot be, and the nearest value that can."""

    rule: str
    field: str
    because: Said
    nearest: Said | None


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on a case. `holds` works on arrays; `values` (for the phrase) and `nearest` are of a single case."""

    name: str
    field: str
    holds: Callable[[Case], Any]
    values: Callable[[Case], dict[str, Any]]
    nearest: Callable[[Case], Said | None]

    def because(self, case: Case) -> Phrase:
        """Why this case breaks it."""
        return phrase(f"rule.{self.name}", **self.values(case))


def violations(case: Case) -> list[Violation]:
    """Every rule that a single case breaks."""
    return [
        Violation(r.name, r.field, r.because(case), r.nearest(case)) for r in RULES if not np.all(r.holds(case))
    ]


def mask(case: Case) -> Any:
    """Which candidates of a case with arrays break no rule."""
    alive: Any = True
    for rule in RULES:
        alive = np.logical_and(alive, rule.holds(case))
    return alive


def divisor_near(number: int, wanted: int) -> int:
    """The divisor of `number` that is nearest to `wanted`, the smaller one on a tie."""
    wanted = max(1, wanted)
    top = min(number, 1_000_000)
    return min((d for d in range(1, top + 1) if number % d == 0), key=lambda d: (abs(d - wanted), d))


def _world(case: Case) -> Any:
    p = case.plan
    return value_of(
        O.world_size(dp_replicate=p.dp_replicate, dp_shard=p.dp_shard, tp=p.tp, cp=p.cp, pp=p.pp)
    )


def _nearest_world(case: Case) -> Said:
    p, gpus = case.plan, int(case.cluster.gpus)
    inside = int(p.tp) * int(p.cp) * int(p.pp)
    if gpus % inside == 0:
        axis = "dp_shard" if p.data_parallel == "zero" or p.fully_sharded else "dp_replicate"
        return f"{axis} = {gpus // inside}"
    enough = max(1, round(gpus / inside)) * inside
    return _or(f"tp x pp = {divisor_near(gpus, inside)}", f"cluster.gpus = {enough}")


def _or(one: Said, other: str) -> Phrase:
    """Either of two changes."""
    return phrase("near.either", one=one, other=other)


def _every(case: Case, test: Callable[[Any], Any]) -> Any:
    """A test that every group of layers must pass."""
    held: Any = True
    for group in case.model.groups:
        held = np.logical_and(held, test(group))
    return held


def _common(case: Case) -> int:
    heads = [int(np.max(g.attention.kv_heads)) for g in case.model.groups]
    return math.gcd(*heads, *(int(np.max(g.attention.heads)) for g in case.model.groups))


def _moe(case: Case) -> bool:
    return any(g.mlp.kind == "moe" or _hidden_experts(g) for g in case.model.groups)


def _experts(group: LayerGroup) -> Any:
    """Experts of a layer; a dense layer divides by anything."""
    return group.mlp.experts if group.mlp.kind == "moe" or _hidden_experts(group) else 0


def _hidden_experts(group: LayerGroup) -> bool:
    """Whether a layer that is not known has experts somewhere."""
    return group.mlp.kind == "none" and bool(np.any(np.greater(group.mlp.experts, 1)))


def _ranks_of_experts(case: Case) -> Any:
    """Ranks that experts may take theirs out of."""
    p = case.plan
    return value_of(O.world_size(dp_replicate=p.dp_replicate, dp_shard=p.dp_shard, tp=p.tp, cp=p.cp, pp=1))


RULES: tuple[Rule, ...] = (
    Rule(
        "world",
        "plan",
        lambda c: np.equal(_world(c), c.cluster.gpus),
        lambda c: {"world": _world(c), "gpus": c.cluster.gpus},
        _nearest_world,
    ),
    Rule(
        "expert-ranks",
        "plan.ep",
        lambda c: np.equal(np.mod(_ranks_of_experts(c), np.multiply(c.plan.ep, np.where(_moe(c), c.plan.etp, 1))), 0),
        lambda c: {"ep": c.plan.ep, "etp": c.plan.etp, "ranks": _ranks_of_experts(c)},
        lambda c: str(divisor_near(int(_ranks_of_experts(c)), int(c.plan.ep))),
    ),
    Rule(
        "experts",
        "plan.ep",
        lambda c: np.logical_or(
            np.equal(c.plan.ep, 1), _moe(c) and _every(c, lambda g: np.equal(np.mod(_experts(g), c.plan.ep), 0))
        ),
        lambda c: {"ep": c.plan.ep, "experts": max(int(np.max(g.mlp.experts)) for g in c.model.groups)},
        lambda c: str(divisor_near(max(int(np.max(g.mlp.experts)) for g in c.model.groups), int(c.plan.ep))),
    ),
    Rule(
        "heads",
        "plan.tp",
        lambda c: _every(c, lambda g: np.equal(np.mod(g.attention.heads, c.plan.tp), 0)),
        lambda c: {"heads": c.model.groups[0].attention.heads, "tp": c.plan.tp},
        lambda c: str(divisor_near(_common(c), int(c.plan.tp))),
    ),
    Rule(
        "kv-heads",
        "plan.tp",
        lambda c: _every(c, lambda g: np.equal(np.mod(g.attention.kv_heads, c.plan.tp), 0)),
        lambda c: {"heads": c.model.groups[0].attention.kv_heads, "tp": c.plan.tp},
        lambda c: str(divisor_near(_common(c), int(c.plan.tp))),
    ),
    Rule(
        "ffn",
        "plan.tp",
        lambda c: _every(c, lambda g: np.equal(np.mod(g.mlp.ffn, c.plan.tp), 0)),
        lambda c: {"ffn": c.model.groups[0].mlp.ffn, "tp": c.plan.tp},
        lambda c: str(divisor_near(int(np.max(c.model.groups[0].mlp.ffn)), int(c.plan.tp))),
    ),
    Rule(
        "sequence",
        "recipe.seq_len",
        lambda c: np.equal(np.mod(c.recipe.seq_len, np.where(c.plan.sequence_parallel, c.plan.tp, 1)), 0),
        lambda c: {"seq_len": c.recipe.seq_len, "tp": c.plan.tp},
        lambda c: str(max(1, int(c.recipe.seq_len) // int(c.plan.tp)) * int(c.plan.tp)),
    ),
    Rule(
        "layers",
        "plan.pp",
        lambda c: bool(c.plan.layer_split)
        | np.equal(np.mod(c.model.layers, np.multiply(c.plan.pp, c.plan.virtual_stages)), 0),
        lambda c: {"layers": c.model.layers, "pp": c.plan.pp, "chunks": c.plan.virtual_stages},
        lambda c: str(divisor_near(int(np.max(c.model.layers)), int(c.plan.pp))),
    ),
    Rule(
        "layer-split",
        "plan.layer_split",
        lambda c: not c.plan.layer_split
        or (np.equal(c.plan.pp, len(c.plan.layer_split)) & np.equal(c.model.layers, sum(c.plan.layer_split))
            & (min(c.plan.layer_split) >= 0)),
        lambda c: {"layers": c.model.layers, "pp": c.plan.pp, "split": str(list(c.plan.layer_split))},
        lambda c: None,
    ),
    Rule(
        "positions",
        "recipe.seq_len",
        lambda c: np.logical_or(c.model.position != "learned", np.less_equal(c.recipe.seq_len, c.model.max_positions)),
        lambda c: {"seq_len": c.recipe.seq_len, "positions": c.model.max_positions},
        lambda c: str(c.model.max_positions),
    ),
    Rule(
        "fsdp-stage",
        "plan.zero",
        lambda c: np.logical_or(not c.plan.fully_sharded, np.equal(c.plan.zero, 3)),
        lambda c: {"zero": c.plan.zero},
        lambda c: _or("3", "data_parallel = zero"),
    ),
    Rule(
        "ddp-stage",
        "plan.zero",
        lambda c: np.logical_or(c.plan.data_parallel not in ("ddp", "none"), np.equal(c.plan.zero, 0)),
        lambda c: {"kind": c.plan.data_parallel, "zero": c.plan.zero},
        lambda c: _or("0", "data_parallel = zero"),
    ),
    Rule(
        "replicas",
        "plan.data_parallel",
        lambda c: np.logical_or(
            c.plan.data_parallel != "none",
            np.logical_and(np.equal(c.plan.dp_replicate, 1), np.equal(c.plan.dp_shard, 1)),
        ),
        lambda c: {},
        lambda c: "ddp",
    ),
    Rule(
        "ddp-shard",
        "plan.dp_shard",
        lambda c: np.logical_or(c.plan.data_parallel != "ddp", np.equal(c.plan.dp_shard, 1)),
        lambda c: {},
        lambda c: _or(phrase("near.instead", field="dp_replicate"), "data_parallel = fsdp2"),
    ),
    Rule(
        "zero-pipeline",
        "plan.zero",
        lambda c: np.logical_or(
            c.plan.data_parallel != "zero", np.logical_or(np.equal(c.plan.pp, 1), np.less_equal(c.plan.zero, 1))
        ),
        lambda c: {"zero": c.plan.zero},
        lambda c: "1",
    ),
    Rule(
        "offload-needs-zero",
        "plan.offload",
        lambda c: np.logical_or(
            c.plan.data_parallel == "zero" or c.plan.fully_sharded,
            (c.plan.offload.optimizer in ("none", "paged")) & (c.plan.offload.params == "none"),
        ),
        lambda c: {"kind": c.plan.data_parallel},
        lambda c: "data_parallel = zero",
    ),
    Rule(
        "offload-params-stage",
        "plan.offload.params",
        lambda c: np.logical_or(
            c.plan.data_parallel != "zero", np.logical_or(c.plan.offload.params == "none", np.equal(c.plan.zero, 3))
        ),
        lambda c: {"zero": c.plan.zero},
        lambda c: "zero = 3",
    ),
    Rule(
        "fsdp-offload",
        "plan.offload.params",
        lambda c: not c.plan.fully_sharded or c.plan.offload.optimizer in (c.plan.offload.params, "paged"),
        lambda c: {},
        lambda c: "cpu",
    ),
    Rule(
        "eight-bit",
        "recipe.precision.optimizer_state",
        lambda c: c.recipe.precision.optimizer_state != "int8" or c.recipe.optimizer == "adamw8bit",
        lambda c: {"optimizer": c.recipe.optimizer},
        lambda c: "optimizer = adamw8bit",
    ),
    Rule(
        "no-bf16",
        "recipe.precision",
        lambda c: c.recipe.precision.compute != "bf16" or "bf16" in c.cluster.accelerator.peak
        or not c.cluster.accelerator.peak,
        lambda c: {"gpu": c.cluster.accelerator.name},
        lambda c: "autocast-fp16",
    ),
)  # fmt: skip
