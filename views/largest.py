"""Largest model: what the GPUs of the inputs can train, one answer for each recipe family."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import streamlit as st

import planner
from planner import answers, i18n
from planner.charts import largest as charts
from planner.errors import BadInput, PlannerError
from planner.i18n import t
from planner.spec import presets
from planner.spec.build import merged
from planner.units import count_text
from views import _files, _inputs
from views._text import plain, problem_list

#: the fields that may hold for every family: they leave each its precision, optimizer and sharding
HELD = (
    "recipe.seq_len", "recipe.checkpointing", "recipe.checkpointing_args", "recipe.attention", "recipe.loss",
    "recipe.loss_chunks", "recipe.optimizer_impl", "recipe.allocator",
)  # fmt: skip
FIT = "views/fit.py"


def page() -> None:
    """The whole page."""
    asked = _inputs.asked()
    st.subheader(t("app.largest.title"), anchor=False)
    stated = held(asked.raw)
    hold = st.toggle(t("app.largest.hold"), key="hold", disabled=not stated, help=t("app.largest.hold_help"),
                     **_inputs.KEPT)  # fmt: skip
    chosen = stated if hold else {}
    if chosen:
        fields = ", ".join(f"{name} = {value}" for name, value in chosen.items())
        st.caption(t("app.largest.held", fields=plain(fields)))
    try:
        found = answer(json.dumps(asked.raw.get("cluster") or {}), json.dumps(chosen), i18n.current())
    except PlannerError as error:
        st.error(problem_list(t("app.fit.problems", count=len(error.problems)), error.problems))
        return
    explanation(found)
    st.vega_lite_chart(charts.rows(found["answer"]), charts.spec(st.context.theme.type == "dark"), key="chart_largest",
                       alt=charts.alt_text(found["answer"]))  # fmt: skip
    table(found)
    st.caption(t("show.largest_note"))
    st.caption(t("show.time_open"))


def held(raw: dict[str, Any]) -> dict[str, Any]:
    """The stated fields that may hold for every family, dotted."""
    recipe = raw.get("recipe")
    stated = recipe if isinstance(recipe, dict) else {}
    return {name: stated[part] for name in HELD if (part := name.removeprefix("recipe.")) in stated}


@st.cache_data(max_entries=64, show_spinner=False)
def answer(cluster: str, stated: str, language: str) -> dict[str, Any]:
    """The answer on a cluster with some fields held, and what each row states, as plain data; both keys are JSON."""
    i18n.use(language)
    wanted = json.loads(cluster)
    if not isinstance(wanted, dict):
        raise BadInput(planner.Problem("cluster", t("app.largest.cluster"), '{"gpu": "h100-sxm", "gpus": 8}'))
    found = planner.largest_model(wanted, json.loads(stated))
    first = next((one.case for one in found if one.case), None)
    return {
        "answer": answers.largest(found),
        "cases": [_case(one) for one in found],
        "gpus": first and f"{first.cluster.gpus} × {first.cluster.accelerator.name}",
    }


def _case(one: Any) -> dict[str, Any] | None:
    """What a row states as a case: its size where a size gives that very shape, else its shape."""
    if one.case is None:
        return None
    size, shape = count_text(one.params), answers.shape(one.case.model)
    exact = answers.shape(presets.model(size, files=False)) == shape
    about = {k: v for k, v in shape.items() if v is not None}
    model = size if exact else {"model_type": "llama", **about, "max_position_embeddings": presets.POSITIONS}
    return merged(one.case.stated, {"model": model})


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
    shown = pd.DataFrame([_row(one) for one in rows])
    shown["open"] = [t("app.largest.open") if case else "" for case in found["cases"]]
    number = st.column_config.NumberColumn
    st.dataframe(
        shown, hide_index=True, width="stretch", height="content", key="largest_table",
        column_config={
            "recipe": t("show.recipe"), "sure": t("show.sure"), "most": t("show.params"),
            "shape": t("app.largest.shape"), "plan": t("app.largest.plan"), "binding": t("show.binding"),
            "headroom": number(t("app.largest.headroom"), format="%.1f"),
            "device": number(t("app.largest.device"), format="%.1f"),
            "host": number(t("app.largest.host"), format="%.0f"),
            "open": st.column_config.ButtonColumn(t("app.largest.open_in"), on_click=open_row, args=(found["cases"],),
                                                  key="open_row"),
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
    if case and _files.fill(case):
        st.switch_page(FIT)


page()
