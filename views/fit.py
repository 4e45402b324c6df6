"""Does it fit: the verdict and what it rests on, for the run that the inputs state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

import planner
from planner import answers
from planner.charts import memory as charts
from planner.i18n import t
from planner.search.remedies import Remedy, path
from planner.step.evaluate import Estimate
from planner.units import count_text, gib
from views import _chain, _files, _frame, _inputs, _verify
from views._downloads import downloads
from views._text import plain, problem_list

MOST_REMEDIES = 6
TABS = ("parts", "chain", "assumed", "open")


def page() -> None:
    """The whole page."""
    asked = _inputs.asked()
    if asked.case is None:
        st.markdown(f"#### {t('app.fit.title')}")
        st.error(problem_list(t("app.fit.problems", count=len(asked.problems)), asked.problems))
        st.info(t("app.fit.kept"))
        _verify.aside()
        return
    found = planner.evaluate(asked.case)
    fit = answers.fit(found)
    head(found)
    verdict(found, fit)
    figures(fit)
    rows = charts.breakdown_rows(fit)
    pictures(fit, rows)
    if found.verdict != "fits":
        help_it(found)
    notes(found)
    details(found, fit, rows)
    _verify.show(found.case)


def head(found: Estimate) -> None:
    """The question in a line, and what can be taken away."""
    cluster = found.case.cluster
    gpu = f"{cluster.gpus} × {cluster.accelerator.name}"
    params = count_text(float(found.params))
    left, right = st.columns([3, 2], vertical_alignment="center")
    question = t("show.question", model=plain(found.case.model.name), params=params, gpu=plain(gpu))
    left.markdown(f"#### {question}")
    with right:
        downloads(found)


def verdict(found: Estimate, fit: dict[str, Any]) -> None:
    """Whether it fits, in words, with headroom, band, the peak and what it is made of."""
    high = fit["mem_high_gib"]
    low = f"{fit['mem_low_gib']:.1f}"
    band = t("show.at_least", low=low) if high is None else f"{low} … {high:.1f}"
    left = fit["headroom_gib"]
    headroom = t("show.headroom" if left >= 0 else "app.fit.lacking", headroom=f"{abs(left):.1f}", band=band,
                 usable=f"{fit['usable_gib']:.1f}", device=f"{fit['device_gib']:.1f}")  # fmt: skip
    parts = fit["breakdown_gib"]
    biggest = max(parts, key=parts.__getitem__)
    peak = t("app.fit.binding", phase=t("phase." + fit["peak_phase"]), part=t("part." + biggest),
             gib=f"{parts[biggest]:.1f}")  # fmt: skip
    box: dict[str, Callable[..., Any]] = {"fits": st.success, "edge": st.warning, "oom": st.error}
    box[found.overall](t("app.fit.verdict", verdict=found.headline, headroom=headroom, peak=peak))


def figures(fit: dict[str, Any]) -> None:
    """The key figures; what this version does not answer stands open."""
    host = f"{fit['host_gib_per_node']:.0f} GiB"
    shown = {
        "device": f"{fit['device_gib']:.1f} GiB", "headroom": f"{fit['headroom_gib']:.1f} GiB",
        "allocated": f"{fit['allocated_gib']:.1f} GiB", "reserved": f"{fit['reserved_gib']:.1f} GiB",
        "params": count_text(fit["params"]), "host": host, "time": t("app.unanswered"), "cost": t("app.unanswered"),
    }  # fmt: skip
    with st.grid(4, gap="xsmall", min_column_width=150):
        for name, value in shown.items():
            st.metric(t(f"app.number.{name}"), value, help=t(f"app.number_help.{name}"), border=True)


def pictures(fit: dict[str, Any], rows: pd.DataFrame) -> None:
    """What fills the card at the peak, and how memory changes over a step; with a pipeline, each stage."""
    dark = _frame.dark()
    left, right = st.columns([3, 2])
    with left:
        _frame.chart("chart_breakdown", charts.breakdown_spec(dark), rows, charts.breakdown_alt(fit))
    with right:
        _frame.chart("chart_moments", charts.moments_spec(dark), charts.moments_rows(fit), charts.moments_alt(fit))
        if len(fit["stages"]) > 1:
            _frame.chart("chart_stages", charts.stages_spec(dark), charts.stages_rows(fit), charts.stages_alt(fit))


def help_it(found: Estimate) -> None:
    """Changes that free memory, each evaluated, each one click away."""
    single, together = planner.remedies(found)[:MOST_REMEDIES], path(found)
    st.markdown(f"#### {t('app.fit.remedies')}")
    if len(together) > 1:
        titles = " + ".join(one.title for one in together)
        _remedy("together", t("show.together", changes=titles), together[-1])
    for one in single:
        _remedy(one.key, one.title, one)
    if not together:
        st.markdown(t("show.no_path"))


def _remedy(key: str, title: str, one: Remedy) -> None:
    headroom = f"{answers.in_gib(one.estimate.memory.headroom):.1f}"
    after = t("app.fit.after", verdict=t("verdict." + one.estimate.verdict), headroom=headroom,
              saved=f"{gib(one.saved):.1f}")  # fmt: skip
    button, text = st.columns([1, 7], vertical_alignment="center")
    button.button(t("app.fit.apply"), key=f"apply-{key}", on_click=_files.fill,
                  args=(planner.stated(one.estimate.case),), width="stretch")  # fmt: skip
    text.markdown(f"**{plain(title)}** {after}" if key != "together" else f"**{plain(title)}**")


def notes(found: Estimate) -> None:
    """Warnings beside the answer."""
    for warning in found.warnings:
        st.warning(t("join.sentences").join((plain(warning.because), plain(warning.remedy))))


def details(found: Estimate, fit: dict[str, Any], rows: pd.DataFrame) -> None:
    """The table, the chain behind each number, what was assumed, and what is open."""
    tabs = st.tabs([t(f"app.tab.{name}") for name in TABS], key="details", on_change="rerun")
    for name, tab in zip(TABS, tabs, strict=True):
        if tab.open:
            with tab:
                _detail(name, found, fit, rows)


def _detail(name: str, found: Estimate, fit: dict[str, Any], rows: pd.DataFrame) -> None:
    """What stands in a tab; it is made only while that tab is open."""
    match name:
        case "parts":
            _parts(fit, rows)
        case "chain":
            _chain.show(found)
        case "assumed":
            st.markdown("\n".join(f"- {plain(line)}" for line in found.case.assumed))
        case "open":
            st.markdown(t("app.fit.open"))


def _parts(fit: dict[str, Any], rows: pd.DataFrame) -> None:
    st.dataframe(
        rows[["label", "value_gib", "share"]], hide_index=True, width="stretch", height="content",
        column_config={
            "label": st.column_config.TextColumn(t("show.part")),
            "value_gib": st.column_config.NumberColumn(t("show.gib"), format="%.3f"),
            "share": st.column_config.NumberColumn(t("app.fit.share"), format="percent"),
        },
    )  # fmt: skip
    if fit["host_capacity_gib"] is None:
        st.caption(t("show.host_open", needed=f"{fit['host_gib_per_node']:.0f}"))
    else:
        st.caption(t("show.host", needed=f"{fit['host_gib_per_node']:.0f}", capacity=f"{fit['host_capacity_gib']:.0f}",
                     verdict=t(f"verdict.{fit['host_verdict']}")))  # fmt: skip


page()
