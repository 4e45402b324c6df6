"""The catalogue as rows of plain data, with sources and what is unconfirmed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.errors import unknown
from planner.i18n import t
from planner.layers.model import parameters
from planner.quantity import Quantity, value_of
from planner.spec import catalog, presets
from planner.spec.stack import Stack, stacks
from planner.units import gib


def _value(quantity: Quantity | None, per: float = 1.0) -> float | None:
    return None if quantity is None else float(value_of(quantity)) / per


def gpus() -> list[dict[str, Any]]:
    """Accelerators: memory in GB as sold and GiB as torch sees it, dense TFLOP/s, GB/s per GPU in one direction."""
    return [
        {
            "id": a.id,
            "name": a.name,
            "vendor": a.vendor,
            "memory_gb": _value(a.memory_nominal, 1e9),
            "usable_gib": gib(float(value_of(a.memory_usable))),
            "bf16_tflops": _value(a.peak.get("bf16"), 1e12),
            "hbm_gb_s": _value(a.hbm_bandwidth, 1e9),
            "link_gb_s": _value(a.link_bandwidth, 1e9),
            "power_w": _value(a.power),
            "unconfirmed": list(a.unconfirmed),
            "sources": list(a.sources),
            "read_on": a.read_on,
        }
        for a in catalog.accelerators()
    ]


def nodes() -> list[dict[str, Any]]:
    """Nodes: host memory in GiB, network in GB/s per node in one direction, power in kW."""
    return [
        {
            "id": n.id,
            "gpu": n.accelerator,
            "gpus": n.count,
            "host_gib": None if n.host_memory is None else gib(float(value_of(n.host_memory))),
            "network_gb_s": _value(n.network_bandwidth, 1e9),
            "power_kw": _value(n.power, 1e3),
            "unconfirmed": list(n.unconfirmed),
            "sources": list(n.sources),
        }
        for n in catalog.nodes()
    ]


def models() -> list[dict[str, Any]]:
    """Models with their parameters, exact."""
    found = []
    for preset in presets.models():
        model = presets.model(preset.name)
        found.append(
            {
                "id": preset.name,
                "title": preset.title,
                "hf_id": preset.hf_id,
                "params": int(value_of(parameters(model))),
                "layers": int(model.layers),
                "hidden": int(model.hidden),
                "vocab": int(model.vocab),
                "source": preset.source,
            }
        )
    return found


def recipes() -> list[dict[str, Any]]:
    """Training stacks: what each does by default, of which versions, what it builds upon, the source of each claim."""
    return [
        {
            "id": s.id,
            "title": s.label,
            "versions": versions(s),
            "based_on": s.based_on,
            "versions_of": s.versions_of,
            "from": list(s.since),
            "until": list(s.until),
            "data_parallel": s.data_parallel,
            "zero": s.zero,
            "precision": s.precision,
            "optimizer_impl": s.optimizer_impl,
            "loss": s.loss,
            "loss_bytes": {name: list(pair) for name, pair in s.loss_bytes.items()},
            "claims": {name: getattr(s, name) for name in s.sources if name != "loss_bytes"},
            "aliases": list(s.aliases),
            "source": s.source,
            "sources": dict(s.sources),
            "notes": s.notes,
        }
        for s in stacks().values()
    ]


def versions(stack: Stack) -> str:
    """The versions that a recipe is of, in words; a stack's newest recipe where it has older ones."""
    if not stack.versions_of:
        older = any(s.versions_of == stack.id for s in stacks().values())
        return t("catalog.newest") if older else ""
    first, last = ("/".join(ends) for ends in (stack.since, stack.until))
    if not first:
        return t("catalog.until", until=last)
    return t("catalog.range", since=first, until=last)


def prices() -> list[dict[str, Any]]:
    """Prices seen, in USD per GPU-hour, each with its date and source."""
    return [
        {
            "provider": p.provider,
            "sku": p.sku,
            "gpu": p.accelerator,
            "usd_per_gpu_hour": p.usd_per_gpu_hour,
            "kind": p.kind,
            "date": p.date,
            "source": p.source,
            "unconfirmed": p.unconfirmed,
        }
        for p in catalog.prices()
    ]


_LISTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "gpus": gpus, "nodes": nodes, "models": models, "recipes": recipes, "prices": prices,
}  # fmt: skip


def rows(what: str) -> list[dict[str, Any]]:
    """The rows of one list of the catalogue; raises UnknownPreset for no such list."""
    if what not in _LISTS:
        raise unknown("catalog", what, _LISTS)
    return _LISTS[what]()
