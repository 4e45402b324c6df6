"""A trace as tables in the terminal."""

from __future__ import annotations

from planner.i18n import t
from planner.show import _table, err, escape, out
from planner.trace.answer import Traced
from planner.trace.request import STEPS
from planner.trace.run import Progress
from planner.trace.shapes import grouped
from planner.units import gib


def progress() -> Progress | None:
    """Says on the terminal how far a trace is; nothing where nobody watches."""
    if not err.is_terminal:
        return None
    return lambda stage, share: err.print(f"{t(f'trace.stage.{stage}')} {share:.0%}", end="\r")


def trace(traced: Traced) -> None:
    """The answer of `trace`."""
    found, same, peak = traced.found, traced.comparison, traced.found["peak"]
    module = t("join.list") + peak["module"] if peak["module"] else ""
    moment = t(f"trace.moment.{peak['moment']}")
    out.print(escape(t("trace.show.headline", peak=_gib(same.traced), moment=moment, op=peak["op"], module=module)))
    if same.closed is not None and same.difference is not None:
        out.print(t("trace.show.closed", closed=_gib(same.closed), difference=round(same.difference, 3) + 0.0))
    for note in traced.notes:
        out.print(escape(str(note)))
    _terms(traced)
    _replay(traced)
    _layers(traced)
    phases = t("join.list").join(f"{t(f'trace.flops.{k}')} {v:.4g}" for k, v in found["flops"].items() if v)
    if phases:
        out.print(t("trace.show.flops", phases=phases))
    versions = found["versions"]
    out.print(
        t(
            "trace.show.seconds", operations=found["operations"], seconds=f"{found['seconds']:.1f}",
            torch=versions.get("torch", "?"), transformers=versions.get("transformers", "-"),
        )
    )  # fmt: skip
    if found.get("from_cache"):
        out.print(t("trace.show.cached"))


def _gib(size: float) -> str:
    return f"{gib(size):.3f}"


def _signed(size: float) -> str:
    """A difference in GiB with its sign; nothing is "-0.000"."""
    return f"{round(gib(size), 3) + 0.0:+.3f}"


def _terms(traced: Traced) -> None:
    same = traced.comparison
    known = same.closed is not None
    heads = [t("trace.show.term"), t("trace.show.traced")]
    table = _table(*heads, *([t("trace.show.formula"), t("trace.show.apart")] if known else []), pad_edge=False)
    for one in same.terms:
        cells = [t(f"trace.term.{one.name}"), _gib(one.traced)]
        if one.closed is not None and one.difference is not None:
            cells += [_gib(one.closed), _signed(one.difference)]
        table.add_row(*cells)
    total = [t("trace.term.total"), _gib(same.traced)]
    if same.closed_then is not None:
        total += [_gib(same.closed_then), _signed(same.closed_then - same.traced)]
    table.add_row(*total, style="bold")
    out.print(table)


def _replay(traced: Traced) -> None:
    played = traced.replay
    if played is None:
        return
    out.print(
        t(
            "trace.show.reserved", mode=t(f"trace.mode.{traced.mode}"), steps=STEPS, reserved=_gib(played.max_reserved),
            fragmentation=_gib(played.fragmentation),
        )
    )  # fmt: skip
    if traced.capacity is None:
        return
    capacity = _gib(traced.capacity)
    if played.oom is None:
        out.print(t("trace.show.fits", capacity=capacity, retries=played.retries))
        return
    oom = played.oom
    out.print(
        t(
            "trace.show.oom", capacity=capacity, op=oom.op, tried=_gib(oom.tried), free=_gib(oom.free),
            idle=_gib(oom.unallocated),
        )
    )  # fmt: skip


def _layers(traced: Traced) -> None:
    """Layers as a table; of equal neighbours the first stands for all."""
    table = _table(
        *(t(f"trace.show.{c}") for c in ("layer", "params", "weights", "gradients", "states", "saved")), pad_edge=False
    )
    for first, last, row in grouped(traced.found["layers"]):
        name = first if first == last else f"{first} … {last.rsplit('.', 1)[-1]}"
        sizes = [_gib(row[f"{k}_bytes"]) for k in ("weights", "gradients", "optimizer_states", "saved")]
        table.add_row(escape(t("trace.show.outside") if name == "outside" else name), f"{row['params']:,}", *sizes)
    out.print(table)
    out.print(t("trace.show.whole"))
