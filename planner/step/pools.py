"""FSDP2's memory by stream. torch keeps a pool of blocks for each, and what one stream frees another cannot take.

Whole weights, gradients being reduced and everything the layers make are of the compute stream. Buffers of all-gathers
and what the reduce-scatters leave, the sharded gradients, are of two others; each pool keeps its own peak.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.calibration.coefficients import priors
from planner.formulas import activations as A
from planner.formulas import overheads as O
from planner.formulas import parameters as P
from planner.formulas import temporaries as T
from planner.i18n import Phrase
from planner.quantity import Formula, Quantity, given, largest, total
from planner.step import loss
from planner.step.moments import Step
from planner.step.setting import Setting

#: by the first word of a part's name: what is not of the compute stream
ELSEWHERE = frozenset({"gather_buffer", "prefetched_layer", "gradients", "gradients_outside", "reduce_output"})


@dataclass(frozen=True, slots=True)
class Pools:
    """What each stream's pool must hold at its own peak (B): computing, gathering, reducing."""

    compute: Quantity
    gather: Quantity
    reduce: Quantity


def pools(work: Step, found: dict[str, Quantity]) -> Pools:
    """The pools of a step whose moments are `found`."""
    compute = [_computing(moment) for name, moment in found.items() if name != "loss"]
    compute.append(total("loss", [_computing(found["loss"]), _hole(work.setting)]))
    return Pools(
        compute=total("compute_pool", [largest("compute", compute), *_uneven(work.setting)]),
        gather=O.gather_pool(
            root_gathered=work.gather.root, layer_gathered=work.gather.layer, ranks=work.setting.ways_weights
        ),
        reduce=total("reduce_pool", [work.stored]),
    )


def _uneven(setting: Setting) -> list[Quantity]:
    """Free blocks between what layers of experts keep: the routed tensors are large, and of another size each time."""
    mixed = [g for g in setting.groups if g.spec.mlp.kind == "moe"]
    if not mixed:
        return []
    kind = "expandable" if setting.case.recipe.allocator == "expandable" else "native"
    many = max(mixed, key=lambda g: float(np.max(g.spec.mlp.experts_per_token)))
    routed = P.head_width(
        called="routed", heads=many.spec.mlp.experts_per_token, head_dim=setting.case.model.hidden
    )
    share = A.routed_share(called="routed", channels=routed, tp=setting.store.tp, etp=setting.store.etp)
    each = A.microbatch_bytes(
        called="routed_copies", tokens=setting.tokens,
        per_token=A.kept(called="routed_copies", channels=share, width=setting.store.act),
    )  # fmt: skip
    return [O.uneven_blocks(called="uneven_blocks", size=each, times=priors()[f"uneven_experts_{kind}"].at())]


def _computing(moment: Quantity) -> Quantity:
    """A moment without what lives on other streams; the largest of several may then be another one."""
    if _name(moment) in ELSEWHERE:
        return given(0.0, "B", _name(moment), because=Phrase("because.other-stream"))
    if isinstance(moment.formula, Formula) and moment.formula.name == "where_layers":
        size = moment.inputs["size"]
        inner = _computing(size) if isinstance(size, Quantity) else size
        if inner is size:
            return moment
        return T.where_layers(called=moment.name, size=inner, layers=moment.inputs["layers"])
    if moment.formula not in ("total", "largest"):
        return moment
    whole = [part for part in moment.inputs.values() if isinstance(part, Quantity)]
    parts = [_computing(part) for part in whole]
    if all(mine is part for mine, part in zip(parts, whole, strict=True)):
        return moment
    joined = total if moment.formula == "total" else largest
    return joined(moment.name, parts)


def _name(part: Quantity) -> str:
    return part.name.split(" (")[0]


def _hole(setting: Setting) -> Quantity:
    """Where the 16-bit logits were: freed after their upcast, and too small for the fp32 tensors that come after."""
    if not loss.upcasts(setting) or np.all(setting.case.recipe.keeps_logits):
        return given(0.0, "B", "logits_hole", because=Phrase("because.no-upcast"))
    size = loss.logits_gradient(setting)
    return total("logits_hole", [size])
