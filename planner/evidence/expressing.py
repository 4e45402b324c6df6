"""From a run record to a case: the record's statements in the words of a case file, then the case that they make.

Architecture, hardware, framework and settings decide. Nothing here reads a record's id, notes, source or the model's
name, and nothing reads what was measured. A tag is read only where it says that the architecture is of another kind.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner import cases
from planner.errors import BadInput
from planner.evidence import architecture, settings, spreading
from planner.evidence.reading import Reader
from planner.formulas import parameters as P
from planner.layers.model import parameters
from planner.quantity import value_of
from planner.spec import presets
from planner.spec.case import Assumed, Case
from planner.spec.huggingface import read_config
from planner.spec.model import Model


@dataclass(frozen=True, slots=True)
class Expressed:
    """A record as a case: the file form that states it, and the case with everything that was assumed."""

    form: dict[str, Any]
    case: Case


def form(record: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Assumed, ...]]:
    """The case-file form of a record, and what it takes for granted. Raises BadInput with every problem."""
    read = Reader(record)
    model = architecture.model(read)
    cluster = {k: v for k, v in architecture.cluster(read).items() if v is not None}
    layers = model.get("num_hidden_layers") if isinstance(model, dict) else None
    plan = spreading.plan(read, layers)
    recipe = settings.recipe(read)
    if isinstance(model, str) and plan.pop("ep", 1) > 1:
        read.note("parallel.ep", 1, "no-experts")
    batch = spreading.global_batch(read, plan)
    _world(read, cluster, plan)
    if read.problems:
        raise BadInput(read.problems)
    if batch:
        recipe["global_batch"] = batch
    if "gpu" not in cluster and "gpus" in cluster:
        cluster["gpu"] = "h100-sxm"
        read.note("gpu", "h100-sxm", "no-gpu")
    return {"cluster": cluster, "model": model, "recipe": recipe, "plan": plan}, tuple(read.assumed)


def _world(read: Reader, cluster: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """The plan must take as many GPUs as there are."""
    if "dp_replicate" not in plan and "dp_shard" not in plan:
        return
    names = ("dp_replicate", "dp_shard", "tp", "cp", "pp")
    world = functools.reduce(lambda so_far, name: so_far * int(plan.get(name) or 1), names, 1)
    if world != cluster.get("gpus"):
        read.contradiction("parallel", "world", gpus=cluster.get("gpus"), world=world)


def express(record: Mapping[str, Any]) -> Expressed:
    """The case of a record; raises BadInput where it cannot be expressed."""
    tree, noted = form(record)
    made = cases.case(tree, _model(json.dumps(tree["model"], sort_keys=True)), files=False)
    remarks = tuple(Assumed("model", remark) for remark in made.model.remarks)
    return Expressed(tree, replace(made, filled=(*noted, *remarks, *made.filled)))


@functools.lru_cache(maxsize=512)
def _model(text: str) -> Model:
    """The model of a form; records share theirs."""
    given = json.loads(text)
    if isinstance(given, str):
        return presets.model(given, files=False)
    total = given.pop("params_total", None)
    made = read_config(given, "record")
    return with_total(made, total) if total and made.unknown else made


def with_total(model: Model, params: float) -> Model:
    """The same model with what its known parts leave of a stated total in the layers that are not known."""
    strange = int(sum(np.sum(g.count) for g in model.groups if g.attention.kind == "unknown"))
    known = parameters(model)
    left = float(value_of(P.left_in_layers(known=known, params_total=params, unknown_layers=max(1, strange))))
    return replace(model, groups=tuple(
        replace(g, attention=replace(g.attention, params=int(left))) if g.attention.kind == "unknown" else g
        for g in model.groups
    ))  # fmt: skip
