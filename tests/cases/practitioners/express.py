"""From a practitioner's configuration to the product's answer, by the code that answers run records."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import planner
from planner import answers
from planner.errors import PlannerError
from planner.evidence.expressing import express
from planner.spec import presets
from planner.spec.case import Case
from planner.step.evaluate import Estimate

HERE = Path(__file__).parent
Raw = dict[str, Any]
CASES: list[Raw] = [json.loads(line) for line in (HERE / "cases.jsonl").read_text(encoding="utf-8").splitlines()]
RESTATED: dict[str, Raw] = tomllib.loads((HERE / "restated.toml").read_text(encoding="utf-8"))
#: what a check calls a field -> where the record has it
OFFLOADS = {"offload_optimizer": "optimizer", "offload_params": "params", "offload_activations": "activations"}


def joined(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Raw:
    """A record with some fields changed; tables are joined."""
    made = dict(base)
    for name, value in changes.items():
        if name in OFFLOADS:
            word = {False: "none", True: "cpu"}.get(value, value)
            made["offload"] = {**(made.get("offload") or {}), OFFLOADS[name]: word}
        elif name == "offload" and value == "none":
            made["offload"] = None
        elif isinstance(value, Mapping) and isinstance(made.get(name), Mapping):
            made[name] = joined(made[name], value)
        else:
            made[name] = value
    return made


def _single(value: Any, name: str = "") -> Any:
    """The first of several variants; lists that are lists stay."""
    if isinstance(value, list) and name not in ("targets", "modules_to_save", "inferred", "rows", "tags"):
        return value[0] if value else None
    if isinstance(value, Mapping):
        return {k: _single(v, k) for k, v in value.items()}
    return value


def record(of: Raw, at: Mapping[str, Any] | None = None) -> Raw:
    """The run record of a case's configuration, with what its situation states, at some other values."""
    set_ = RESTATED.get(of["id"], {}).get("set", {})
    made = _single(joined(joined(of["config"], set_), at or {}))
    for value in (at or {}).values():
        made = _single(joined(made, RESTATED.get(of["id"], {}).get("when", {}).get(str(value), {})))
    named = of["config"].get("model")
    if isinstance(named, list):  # a check may call a variant by a part of its name
        made["model"] = next((one for one in named if str(made.get("model")) in one), made.get("model"))
    if "model" in (at or {}):
        made["arch"] = None
    made = {k: v for k, v in made.items() if k != "measured"}
    return _with_architecture(made)


def _with_architecture(made: Raw) -> Raw:
    """The architecture that the model's public name stands for, where the configuration has none or a part of one."""
    arch = made.get("arch") or {}
    if {"hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers"} <= arch.keys():
        return made
    name = re.sub(r"\s*(\(.*\)|x4)", "", str(made.get("model") or "")).strip().lower()
    try:
        model = presets.model(name, files=False)
    except PlannerError:
        return made
    if model.config:
        return {**made, "arch": {**answers.shape(model), **{k: v for k, v in arch.items() if v is not None}}}
    size = made.get("params_total") or float(re.sub(r"b$", "", name)) * 1e9
    return {**made, "arch": None, "params_total": size}


def case_of(of: Raw, at: Mapping[str, Any] | None = None) -> Case:
    return express(record(of, at)).case


def estimate(of: Raw, at: Mapping[str, Any] | None = None) -> Estimate:
    return planner.evaluate(case_of(of, at))
