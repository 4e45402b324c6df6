"""Largest model: what the GPUs of the inputs can train, one answer for each recipe family."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import streamlit as st

from planner import i18n
from planner.charts import largest as charts
from planner.errors import PlannerError
from planner.i18n import t
from planner.units import count_text
from views import _families, _files, _frame, _inputs
from views._text import plain, problem_list

FIT = "views/fit.py"


def page() -> None:
    """The whole page."""
    asked = _inputs.asked()
    st.markdown(f"#### {t('app.largest.title')}")
    stated = _families.held(asked.raw)
    hold = st.toggle(t("app.largest.hold"), key="hold", disabled=not stated, help=t("app.largest.hold_help"),
                     **_inputs.KEPT)  # fmt: skip
    chosen = stated if hold else {}
    if chosen:
        fields = ", ".join(f"{name} = {value}" for name, value in chosen.items())
        st.caption(t("app.largest.held", fields=plain(fields)))
    try:
        found = _families.answer(json.dumps(asked.raw.get("cluster") or {}), json.dumps(chosen), i18n.current())
    except PlannerError as error:
        st.error(problem_list(t("app.fit.problems", count=len(error.problems)), error.problems))
        return
    explanation(found)
    rows = charts.rows(found["answer"])
    _frame.chart("chart_largest", charts.spec(_frame.dark()), rows, charts.alt_text(found["answer"]))
    table(found)
    st.caption(t("show.largest_note"))
    st.caption(t("show.time_open"))


def explanation(found: dict[str, Any]) -> None:
    """The answer in two sentences."""
    rows = found["answer"]["regimes"]
    able = [one for one in rows if one["params"]]
    if not able:
        st.warning(t("app.largest.none"))
        return
    first, best = able[0], max(able, key=lambda one: one["params"])
    st.info(
        t(
            "app.largest.text", gpus=plain(found["gpus"]), first=first["recipe"],
            sure=_size(first["params_comfortable"]), most=_size(first["params"]), binding=first["binding"],
            best=best["recipe"], best_most=_size(best["params"]), best_binding=best["binding"],
        )
    )  # fmt: skip


def _size(params: float) -> str:
    return count_text(params) if params else t("app.largest.nothing")


def table(found: dict[str, Any]) -> None:
    """Every family with its shape, plan and limit; a row can be opened on the other page."""
    rows = found["answer"]["regimes"]
    opens = [t("app.largest.open") if case else "" for case in found["cases"]]
    shown = pd.DataFrame([{"open": label, **_row(one)} for label, one in zip(opens, rows, strict=True)])
    text, number = st.column_config.TextColumn, st.column_config.NumberColumn
    st.dataframe(
        shown, hide_index=True, width="stretch", height="content", key="largest_table",
        column_config={
            "open": st.column_config.ButtonColumn(t("app.largest.open_in"), on_click=open_row, args=(found["cases"],),
                                                  key="open_row", width=66),
            "recipe": text(t("show.recipe"), width=208), "sure": text(t("app.largest.sure"), width=70),
            "most": text(t("show.params"), width=70), "shape": text(t("app.largest.shape"), width=84),
            "plan": text(t("app.largest.plan"), width=112), "binding": text(t("show.binding"), width=206),
            "headroom": number(t("app.largest.headroom"), format="%.1f", width=66, help=t("app.largest.headroom_help")),
            "device": number(t("app.largest.device"), format="%.1f", width=68, help=t("app.largest.device_help")),
            "host": number(t("app.largest.host"), format="%.0f", width=66, help=t("app.largest.host_help")),
        },
        alt=charts.alt_text(found["answer"]),
    )  # fmt: skip


def _row(one: dict[str, Any]) -> dict[str, Any]:
    shape, plan = one["shape"] or {}, one["plan"] or {}
    return {
        "recipe": one["recipe"],
        "sure": _size(one["params_comfortable"]),
        "most": _size(one["params"]),
        "shape": t("app.largest.shape_of", **shape) if shape else "",
        "plan": _plan(plan) if plan else "",
        "binding": one["binding"],
        "headroom": one["headroom_gib"],
        "device": one["device_gib"],
        "host": one["host_gib_per_node"],
    }


def _plan(plan: dict[str, Any]) -> str:
    """The plan in a few words: what shards, over how many, and the other axes where they are used."""
    kind = {"zero": f"ZeRO-{plan['zero']}", "fsdp2": "FSDP2", "ddp": "DDP"}.get(plan["data_parallel"], "1 GPU")
    ways = max(plan["dp_shard"], plan["dp_replicate"])
    axes = [f"{axis} {plan[axis]}" for axis in ("tp", "pp") if plan[axis] > 1]
    offload = [t("app.largest.offload")] if "cpu" in plan["offload"].values() else []
    return ", ".join([f"{kind} × {ways}" if ways > 1 else kind, *axes, *offload])


def open_row(cases: list[dict[str, Any] | None]) -> None:
    """Callback of a row's button: its case becomes the inputs, on the page that answers it in full."""
    click = st.session_state.get("open_row")
    case = cases[click["row"]] if click and click["row"] < len(cases) else None
    if case and (values := _files.fill(case)):
        # the widgets on the page write their own back; with no parameters named at all Streamlit would refuse
        st.switch_page(FIT, query_params=_files.unshown(values))


page()
