"""A trace's answer on the page: figures, memory over the step, terms, allocator, layers, and what to take away."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

from planner import i18n
from planner.charts import trace as charts
from planner.i18n import t
from planner.spec.case import Case
from planner.trace import shapes
from planner.trace.answer import MODES, Traced
from planner.trace.compare import Term
from planner.trace.request import STEPS
from planner.units import gib
from views import _frame
from views._text import plain, speak
from views._tracing import Answer

TABS = ("terms", "replay", "layers", "about")


def mode(case: Case) -> str:
    """The allocator's mode: chosen on the page, else the case's own."""
    found = st.session_state.get(_segments(case), case.recipe.allocator)
    return found if found in MODES else case.recipe.allocator


def _segments(case: Case) -> str:
    """Key of the selector: a case with another allocator begins with its own."""
    return f"trace-segments-{case.recipe.allocator}"


def show(found: Answer, fresh: bool) -> None:
    """The whole answer; `fresh` when it was traced in this session."""
    traced, same, peak = found.free, found.free.comparison, found.free.found["peak"]
    left, right = st.columns([3, 2], vertical_alignment="center")
    left.markdown(f"#### {t('app.trace.title')}")
    with right:
        _downloads(found)
    module = f"{t('join.list')}{peak['module']}" if peak["module"] else ""
    st.markdown(plain(t("trace.show.headline", peak=_size(same.traced), moment=t(f"trace.moment.{peak['moment']}"),
                        op=peak["op"], module=module)))  # fmt: skip
    _figures(found)
    for note in traced.notes:
        st.info(plain(note))
    tabs = st.tabs([t(f"app.trace.tab.{name}") for name in TABS], key="trace-tabs", on_change="rerun")
    for name, tab in zip(TABS, tabs, strict=True):
        if tab.open:
            with tab:
                _tab(name, found, fresh)


def _tab(name: str, found: Answer, fresh: bool) -> None:
    """What stands in a tab; it is made only while that tab is open."""
    match name:
        case "terms":
            _terms(found.free)
        case "replay":
            _replay(found)
        case "layers":
            _layers(found.free)
        case "about":
            _about(found.free, fresh)


def _size(size: float) -> str:
    return f"{gib(size):.3f}"


def _figures(found: Answer) -> None:
    """The key figures of the trace."""
    same, played, within = found.free.comparison, found.free.replay, found.within.replay
    shown = {"peak": f"{_size(same.traced)} GiB"}
    if same.closed is not None:
        shown |= {"closed": f"{_size(same.closed)} GiB", "difference": f"{same.difference:+z.2%}"}
    if played is not None and within is not None:
        fits = t("app.trace.fits" if within.oom is None else "app.trace.oom")
        shown |= {"reserved": f"{_size(played.max_reserved)} GiB", "unused": f"{_size(played.fragmentation)} GiB",
                  "room": fits}  # fmt: skip
    usable = gib(float(found.free.case.cluster.accelerator.memory_usable.value))
    about = {"steps": STEPS, "room": f"{gib(found.room):.1f}", "usable": f"{usable:.1f}"}
    with st.grid(6, gap="xsmall", min_column_width=150):
        for name, value in shown.items():
            st.metric(t(f"app.trace.{name}"), value, help=t(f"app.trace.{name}_help", **about), border=True)


def _terms(traced: Traced) -> None:
    """Memory over the step, and what it is made of at the peak beside the formulas."""
    left, right = st.columns(2)
    with left:
        _frame.chart("chart_trace", charts.timeline_spec(_frame.dark()), charts.timeline_rows(traced.found),
                     charts.timeline_alt(traced.found))  # fmt: skip
    same = traced.comparison
    total = Term("total", same.traced, same.closed_then)
    rows = pd.DataFrame([_term(one) for one in (*same.terms, total)])
    columns = {"term": st.column_config.TextColumn(t("trace.show.term"))}
    for name, kind in (("traced", "%.3f"), ("formula", "%.3f"), ("apart", "%+.3f")):
        columns[name] = st.column_config.NumberColumn(t(f"trace.show.{name}"), format=kind)
    right.dataframe(rows.dropna(axis="columns", how="all"), hide_index=True, width="stretch", height="content",
                    column_config=columns, key="trace-terms")  # fmt: skip


def _term(one: Term) -> dict[str, Any]:
    return {
        "term": t(f"trace.term.{one.name}"), "traced": gib(one.traced),
        "formula": None if one.closed is None else gib(one.closed),
        "apart": None if one.difference is None else round(gib(one.difference), 3),
    }  # fmt: skip


def _replay(found: Answer) -> None:
    """What the allocator makes of the log, in either mode of segments."""
    traced, played, within = found.free, found.free.replay, found.within.replay
    if played is None or within is None:
        return
    own = traced.case.recipe.allocator
    st.segmented_control(t("app.trace.segments"), MODES, default=own, required=True, key=_segments(traced.case),
                         format_func=lambda name: t(f"trace.mode.{name}"), persist_state="session")  # fmt: skip
    said = [t("trace.show.reserved", mode=t(f"trace.mode.{traced.mode}"), steps=STEPS,
              reserved=_size(played.max_reserved), fragmentation=_size(played.fragmentation))]  # fmt: skip
    capacity, oom = _size(found.room), within.oom
    if oom is None:
        said.append(t("trace.show.fits", capacity=capacity, retries=within.retries))
    else:
        said.append(t("trace.show.oom", capacity=capacity, op=oom.op, tried=_size(oom.tried), free=_size(oom.free),
                      idle=_size(oom.unallocated)))  # fmt: skip
    st.markdown(plain(t("join.sentences").join(said)))
    _frame.chart("chart_replay", charts.replay_spec(_frame.dark()), charts.replay_rows(played, found.room, oom),
                 charts.replay_alt(played, found.room))  # fmt: skip


def _layers(traced: Traced) -> None:
    """Layer by layer; of equal neighbours one row stands for all."""
    rows = []
    for first, last, row in shapes.grouped(traced.found["layers"]):
        name = first if first == last else f"{first} … {last.rsplit('.', 1)[-1]}"
        rows.append({**shapes.layer(row), "layer": t("trace.show.outside") if name == "outside" else name})
    columns = {
        "layer": st.column_config.TextColumn(t("trace.show.layer")),
        "params": st.column_config.NumberColumn(t("trace.show.params"), format="localized"),
    }
    shown = (("weights", "weights"), ("gradients", "gradients"), ("optimizer_states", "states"), ("saved", "saved"))
    for name, label in shown:
        columns[f"{name}_gib"] = st.column_config.NumberColumn(t(f"trace.show.{label}"), format="%.3f")
    st.dataframe(pd.DataFrame(rows), hide_index=True, width="stretch", height="content", column_config=columns,
                 key="trace-layers")  # fmt: skip
    st.caption(t("trace.show.whole"))


def _about(traced: Traced, fresh: bool) -> None:
    """Floating point operations by phase, and what the trace was made with."""
    found, versions = traced.found, traced.found["versions"]
    rows = [{"phase": t(f"trace.flops.{name}"), "flops": float(n)} for name, n in found["flops"].items() if n]
    st.dataframe(
        pd.DataFrame(rows, columns=["phase", "flops"]), hide_index=True, width=420, height="content", key="trace-flops",
        column_config={
            "phase": st.column_config.TextColumn(t("app.trace.phase")),
            "flops": st.column_config.NumberColumn(t("app.trace.flops"), format="scientific"),
        },
    )  # fmt: skip
    if found["host_peak_bytes"]:
        st.markdown(t("app.trace.host", host=_size(found["host_peak_bytes"])))
    st.markdown(plain(t(
        "trace.show.seconds", operations=found["operations"], seconds=f"{found['seconds']:.1f}",
        torch=versions.get("torch", "?"), transformers=versions.get("transformers", "-"),
    )))  # fmt: skip
    if not fresh:
        st.caption(t("trace.show.cached"))


def _downloads(found: Answer) -> None:
    """The figures and the snapshot, each made when it is clicked."""
    language = speak()
    with st.container(horizontal=True, horizontal_alignment="right", gap="small"):
        st.download_button(t("app.trace.json"), _figures_file(found.within, language), "headroom-trace.json",
                           "application/json", key="save-trace", on_click="ignore",
                           help=t("app.trace.json_help"))  # fmt: skip
        if found.free.found.get("log"):
            st.download_button(t("app.trace.visual"), _snapshot(found.free), "headroom-memory.pickle",
                               "application/octet-stream", key="save-visual", on_click="ignore",
                               help=t("app.trace.visual_help"))  # fmt: skip


def _figures_file(traced: Traced, language: str) -> Callable[[], str]:
    def write() -> str:
        i18n.use(language)
        return json.dumps(shapes.as_json(traced), ensure_ascii=False, indent=2)

    return write


def _snapshot(traced: Traced) -> Callable[[], bytes]:
    def write() -> bytes:
        from planner.trace import visual

        log = traced.log
        return visual.snapshot(log, traced.settings()) if log is not None else b""

    return write
