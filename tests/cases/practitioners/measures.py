"""Which figure of the product a metric of the cases means. GB are 10^9 B, GiB 2^30."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from planner.errors import PlannerError
from planner.layers.model import parameters
from planner.quantity import value_of
from planner.search import limits
from planner.spec.catalog import accelerator
from planner.step import hosting
from planner.step.activations import tensors
from planner.step.evaluate import Estimate
from planner.step.setting import setting
from planner.units import GIB
from tests.cases.practitioners.express import RESTATED, Raw, case_of, estimate

GB = 1e9
At = Mapping[str, Any] | None


def b(quantity: Any) -> float:
    return float(value_of(quantity))


def measured(of: Raw, name: str, at: At = None, key: str = "") -> list[float]:
    """The figures that a metric may mean: one, or several where the source does not say which it printed."""
    stated = RESTATED.get(of["id"], {})
    variant = stated.get("variants", {}).get(key) if stated.get("only", name) == name else None
    at = {**(at or {}), **(variant or {})}
    for pattern, measure in MEASURES:
        if re.fullmatch(pattern, name):
            return measure(of, at, name, key)
    raise AssertionError(f"no measure for {name}")


def _peak(of: Raw, at: Mapping[str, Any], name: str, key: str) -> list[float]:
    """allocated, reserved and device where the source does not say which of them it printed."""
    m = estimate(of, at).memory
    metric = str(of["config"].get("measured", {}).get("mem_metric"))
    kinds = {"max_allocated": [m.allocated], "max_reserved": [m.reserved], "nvidia-smi": [m.device]}
    unit = GIB if "gib" in name else GB
    return [b(one) / unit for one in kinds.get(metric, [m.allocated, m.reserved, m.device])]


def _host(of: Raw, at: Mapping[str, Any], name: str, key: str) -> list[float]:
    found = estimate(of, at).host
    unit = {"tb": 1e12, "gib": GIB}.get(name.split("_")[1], GB)
    steady = found.moments["training"]  # what the sources reckon with: neither loading nor saving
    return [b(one) / unit for one in (steady, found.low, found.needed, found.high)]


def _states(of: Raw, at: Mapping[str, Any], name: str, key: str) -> list[float]:
    held = estimate(of, at).memory.states
    unit = GIB if "gib" in name else GB
    return [sum(b(x) for x in (held.weights, held.gradients, held.master, held.optimizer)) / unit]


def _params(of: Raw, at: Mapping[str, Any], name: str, key: str) -> list[float]:
    return [b(parameters(case_of(of, at).model)) / 1e9]


def _usable(of: Raw, at: Mapping[str, Any], name: str, key: str) -> list[float]:
    return [b(accelerator(of["config"]["gpu"]).memory_usable) / GIB]


def _kept(of: Raw, at: Mapping[str, Any]) -> float:
    case = case_of(of, {**at, "offload": "none"})
    found = estimate(of, {**at, "offload": "none"})
    here = setting(case, found.memory.stage)
    return sum(b(tensors(here, g).kept) * b(g.layers) for g in here.groups)


def _freed(of: Raw, at: Mapping[str, Any], name: str, key: str) -> list[float]:
    """What the inputs of all checkpointed layers take, which offload moves."""
    return [_kept(of, at) / (GIB if "gib" in name else GB)]


def _saving(of: Raw, at: Mapping[str, Any], name: str, key: str) -> list[float]:
    with_, without = (_peak(of, {**at, "offload_activations": word}, "gb", "") for word in ("cpu", "none"))
    return [1 - a / z for a, z in zip(with_, without, strict=True)]


def _offload_ratio(of: Raw, at: Mapping[str, Any], name: str, key: str) -> list[float]:
    return [1 - one for one in _saving(of, at, name, key)]


def _ratio(of: Raw, at: Mapping[str, Any], name: str, key: str) -> list[float]:
    """Of the two variants that the case restates."""
    variants = list(RESTATED[of["id"]]["variants"].values())
    part = RESTATED[of["id"]].get("part")
    a, z = (_part(estimate(of, {**at, **v}), part) if part else _peak(of, {**at, **v}, "gb", "")[0] for v in variants)
    return [a / z]


def _part(found: Estimate, names: list[str]) -> float:
    parts = found.breakdown()
    return sum(b(parts[name]) for name in names if name in parts)


def _delta(of: Raw, at: Mapping[str, Any], name: str, key: str) -> list[float]:
    first, second = list(RESTATED[of["id"]]["variants"].values())
    a, z = (_peak(of, {**at, **v}, "gb", "") for v in (first, second))
    return [x - y for x, y in zip(a, z, strict=True)]


def _logits(of: Raw, at: Mapping[str, Any], name: str, key: str) -> list[float]:
    case = case_of(of, at)
    here = setting(case, estimate(of, at).memory.stage)
    return [b(here.tokens) * b(here.vocab) * 4 / GIB]


def _checkpoint(of: Raw, at: Mapping[str, Any], name: str, key: str) -> list[float]:
    """Whole copies of the weights on a node while every rank loads, as the warning counts them."""
    case = case_of(of, at)
    ranks = case.cluster.gpus_per_node
    models = 1 + int(value_of(case.recipe.models_beside))
    copies = 2 if "2_copies" in RESTATED.get(of["id"], {}).get("counts", "") else 1
    unit = 1e12 if "_tb" in name else GB
    one = b(hosting.checkpoint(case))
    return [one / unit, one * models * ranks * copies / unit]


def _largest_batch(of: Raw, at: Mapping[str, Any], name: str, key: str) -> list[float]:
    found = limits.micro_batch(case_of(of, at))
    return [float(found.value), float(found.comfortable)]


def _fewest(of: Raw, at: Mapping[str, Any], name: str, key: str) -> list[float]:
    """The fewest GPUs, by whole nodes above one, that the card's expected memory takes."""
    counts = [*range(1, 9), *range(16, 1025, 8)]
    for gpus in counts:
        try:
            found = estimate(of, {**at, "n_gpus": gpus, "gpus_per_node": min(gpus, 8)})
        except PlannerError:
            continue  # not a world of that plan
        if b(found.memory.headroom) >= 0:
            return [float(gpus)]
    return [float("inf")]


def _floor(of: Raw, at: Mapping[str, Any], name: str, key: str) -> list[float]:
    """Fewest cards that hold the states alone; where the optimizer left, what stays on the card."""
    found = estimate(of, {**at, "n_gpus": 1, "gpus_per_node": 1})
    held = found.memory.states
    resident = sum(b(one) for one in held.resident)
    gradients = 0 if b(held.gradients) == 0 else b(held.gradients)
    return [-(-(resident + gradients) // b(found.memory.usable))]


def _by_key(of: Raw, at: Mapping[str, Any], name: str, key: str) -> list[float]:
    return _fewest(of, at, name, key) if key.startswith(("practical", "mixed", "pure")) else _floor(of, at, name, key)


def _one_over_other(of: Raw, at: Mapping[str, Any], name: str, key: str) -> list[float]:
    """Of the variants that the case restates; without any, with offload over without."""
    return (_ratio if RESTATED.get(of["id"], {}).get("variants") else _offload_ratio)(of, at, name, key)


Measure = Callable[[Raw, Mapping[str, Any], str, str], list[float]]
MEASURES: list[tuple[str, Measure]] = [
    (r"peak_saving_fraction.*", _saving), (r"peak_(?:reserved_|allocated_)?(?:gb|gib)(?:_per_gpu)?", _peak),
    (r"host_(?:gb|tb)_load.*|extra_host_.*|host_gb_conversion", _checkpoint), (r"host_.*", _host),
    (r"states_.*", _states), (r"params_b", _params), (r".*_total_gib|usable_gib", _usable),
    (r"freed_.*|checkpoint_inputs_gib", _freed), (r"ratio_fp8_over_bf16|mem_ratio", _one_over_other),
    (r"ratio_.*", _ratio), (r"delta_.*", _delta), (r"logits_gib.*", _logits), (r"max_micro_batch", _largest_batch),
    (r"min_gpus.*", _by_key),
]  # fmt: skip
