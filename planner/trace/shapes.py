"""A trace as plain data, in the shape of the command line's contract. GiB of one GPU."""

from __future__ import annotations

from typing import Any

from planner.cases import stated
from planner.trace.allocator import Oom
from planner.trace.answer import Traced
from planner.units import gib


def as_json(traced: Traced) -> dict[str, Any]:
    """The answer of `planner trace --json`."""
    found, same, peak = traced.found, traced.comparison, traced.found["peak"]
    return {
        "peak_gib": gib(found["peak_bytes"]),
        "peak_phase": peak["moment"],
        "peak_op": peak["op"],
        "peak_module": peak["module"],
        "by_category_gib": {k: gib(v) for k, v in peak["by_category"].items()},
        "phases_gib": {k: gib(v["bytes"]) for k, v in found["phases"].items()},
        "closed_form_gib": None if same.closed is None else gib(same.closed),
        "closed_form_phase": same.closed_moment,
        "difference": same.difference,
        "terms": [
            {
                "term": one.name, "traced_gib": gib(one.traced),
                "closed_form_gib": None if one.closed is None else gib(one.closed),
                "difference_gib": None if one.difference is None else gib(one.difference),
            }
            for one in same.terms
        ],
        **replayed(traced),
        "host_peak_gib": gib(found["host_peak_bytes"]),
        "params": found["params"],
        "trainable": found["trainable"],
        "layers": [layer(one) for one in found["layers"]],
        "flops": found["flops"],
        "timeline_gib": [[at, gib(size)] for at, size in found["timeline"]],
        "operations": found["operations"],
        "model_class": found["model_class"],
        "seconds": found["seconds"],
        "from_cache": bool(found.get("from_cache")),
        "worker_gib": found["memory_of_worker_gib"],
        "versions": found["versions"],
        "notes": [str(note) for note in traced.notes],
        "scope": "per GPU, rank 0",
        "case": stated(traced.case),
    }  # fmt: skip


def layer(row: dict[str, Any]) -> dict[str, Any]:
    """One layer: whole weights, gradients and states; what its forward saved on this GPU."""
    return {
        "layer": row["layer"], "params": row["params"], "weights_gib": gib(row["weights_bytes"]),
        "gradients_gib": gib(row["gradients_bytes"]), "optimizer_states_gib": gib(row["optimizer_states_bytes"]),
        "saved_gib": gib(row["saved_bytes"]),
    }  # fmt: skip


def grouped(layers: list[dict[str, Any]]) -> list[tuple[str, str, dict[str, Any]]]:
    """(first name, last name, a row) of each run of layers that hold the same."""
    found: list[tuple[str, str, dict[str, Any]]] = []
    for row in layers:
        held = {k: v for k, v in row.items() if k != "layer"}
        name = str(row["layer"])
        if found and {k: v for k, v in found[-1][2].items() if k != "layer"} == held and name != "outside":
            found[-1] = (found[-1][0], name, found[-1][2])
        else:
            found.append((name, name, row))
    return found


def replayed(traced: Traced) -> dict[str, Any]:
    """What the allocator makes of the log; nulls where it was not asked."""
    played = traced.replay
    if played is None:
        return {"allocator": None, "reserved_gib": None, "fragmentation_gib": None, "capacity_gib": None, "fits": None,
                "retries": None, "oom": None, "reserved_after_steps_gib": []}  # fmt: skip
    steps = [m for m in played.marks if m.name == "phase:end"]
    return {
        "allocator": traced.mode,
        "reserved_gib": gib(played.max_reserved),
        "fragmentation_gib": gib(played.fragmentation),
        "capacity_gib": None if traced.capacity is None else gib(traced.capacity),
        "fits": None if traced.capacity is None else played.oom is None,
        "retries": played.retries,
        "oom": None if played.oom is None else _oom(played.oom),
        "reserved_after_steps_gib": [gib(m.reserved) for m in steps],
    }


def _oom(oom: Oom) -> dict[str, Any]:
    return {
        "op": oom.op, "module": oom.module, "requested_gib": gib(oom.requested), "tried_gib": gib(oom.tried),
        "allocated_gib": gib(oom.allocated), "reserved_gib": gib(oom.reserved), "free_gib": gib(oom.free),
        "reserved_but_unallocated_gib": gib(oom.unallocated),
    }  # fmt: skip
