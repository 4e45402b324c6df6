"""Memory per GPU as charts: what fills it at the peak, how it changes over a step, and stage by stage.

Rows are made from `answers.fit`. Every bar is labelled in words; colour only groups.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import altair as alt
import pandas as pd

from planner import i18n
from planner.charts import theme
from planner.i18n import t

#: what kind of memory a part is, in the order of the legend
GROUPS: dict[str, tuple[str, ...]] = {
    "states": ("weights", "gradients", "optimizer_states"),
    "activations": ("activations", "layer_at_work", "logits_and_loss"),
    "transient": ("weight_copies", "gathered_weights", "buffers", "temporaries"),
    "overhead": ("cached_blocks", "workspaces", "cuda_context", "nccl"),
}
_GROUP = {part: group for group, parts in GROUPS.items() for part in parts}
_COLOURS = {"states": "blue", "activations": "orange", "transient": "violet", "overhead": "grey"}
MOST_LABELLED_STAGES = 16


def _base() -> alt.Chart:
    return alt.Chart(alt.NamedData(theme.ROWS))


def _y() -> alt.Y:
    return alt.Y("label:N", title=None, sort=alt.EncodingSortField(field="order", op="min"),
                 axis=alt.Axis(labelLimit=190, grid=False))  # fmt: skip


def breakdown_spec(dark: bool = False) -> dict[str, Any]:
    """Device memory at the peak, part after part as a staircase, the sum with its 90 % band against the card's end."""
    return copy.deepcopy(_breakdown(i18n.current(), dark))


@functools.cache
def _breakdown(language: str, dark: bool) -> dict[str, Any]:
    c, base = theme.colours(dark), _base()
    names = [t(f"chart.group.{g}") for g in _COLOURS]
    colour = alt.Color(
        "group:N",
        scale=alt.Scale(domain=[*names, t("show.device")], range=[*(c[v] for v in _COLOURS.values()), c["sum"]]),
        legend=alt.Legend(title=None, orient="bottom", values=names, symbolType="square", columns=4),
    )
    outline = alt.condition("datum.role === 'total'", alt.value(c["ink"]), alt.value(None))
    bars = base.mark_bar(height={"band": 0.72}, strokeWidth=1).encode(
        x=theme.gib_axis(t("chart.breakdown.axis")).field("start_gib").type("quantitative"),
        x2="end_gib:Q", y=_y(), color=colour, stroke=outline, tooltip=_tips("label", "value", "share"),
    )  # fmt: skip
    layers = theme.on_card(base, "total", [bars, *_band(base, dark)], _values(base, dark, ("after", "before")), dark)
    return theme.finish(layers, t("chart.breakdown.title"), 23, dark)


def _band(base: alt.Chart, dark: bool) -> list[alt.Chart]:
    """The 90 % band over the sum's bar, as an interval with ends."""
    c = theme.colours(dark)
    one = base.transform_filter(alt.FieldEqualPredicate(field="role", equal="total"))
    tips = [
        alt.Tooltip("low_gib:Q", title=t("chart.low"), format=".1f"),
        alt.Tooltip("high_gib:Q", title=t("chart.high"), format=".1f"),
    ]
    line = one.mark_rule(color=c["ink"], strokeWidth=2.5).encode(x="low_gib:Q", x2="high_gib:Q", y=_y(), tooltip=tips)
    ends = [
        one.mark_tick(color=c["ink"], thickness=2.5, height=11).encode(x=f"{end}:Q", y=_y())
        for end in ("low_gib", "high_gib")
    ]
    return [line, *ends]


def _values(base: alt.Chart, dark: bool, places: tuple[str, ...] = ("after",)) -> list[alt.Chart]:
    """Each bar's number: after its end (or from the start of the sum's), or before its start where no room is left."""
    ink = theme.colours(dark)["ink"]
    return [
        base.transform_filter(alt.FieldEqualPredicate(field="place", equal=place))
        .mark_text(
            align="left" if place == "after" else "right", dx=6 if place == "after" else -6, color=ink, fontSize=11
        )
        .encode(x="text_gib:Q", y=_y(), text="text:N")
        for place in places
    ]


def _tips(name: str, value: str, share: str | None = None) -> list[alt.Tooltip]:
    found = [
        alt.Tooltip(f"{name}:N", title=t("chart.part")),
        alt.Tooltip(f"{value}_gib:Q", title=t("show.gib"), format=".3f"),
    ]
    return [*found, alt.Tooltip(f"{share}:Q", title=t("chart.share"), format=".1%")] if share else found


def breakdown_rows(fit: dict[str, Any]) -> pd.DataFrame:
    """One row a part in stacking order, where it starts and ends in GiB, and the sum last."""
    end = theme.domain(fit["usable_gib"], fit["device_gib"], fit["mem_high_gib"] or 0.0)
    rows, start = [], 0.0
    for name, value in fit["breakdown_gib"].items():
        row = _stair(t(f"part.{name}"), t(f"chart.group.{_GROUP[name]}"), start, value, end, fit["usable_gib"])
        rows.append({**row, "part": name, "role": "part", "share": value / fit["device_gib"]})
        start += value
    rows.append(_total(fit, end))
    card = {"usable_gib": fit["usable_gib"], "usable_label": theme.usable_label(fit["usable_gib"]), "domain_gib": end}
    whole = [{"order": i, "low_gib": None, "high_gib": None, **row, **card} for i, row in enumerate(rows)]
    return pd.DataFrame(whole).astype({"low_gib": float, "high_gib": float})


def _stair(label: str, group: str, start: float, value: float, end: float, usable: float) -> dict[str, Any]:
    """One part; its number stands after the bar, before it where the axis or the card's end is in the way."""
    stop, wide = start + value, 0.09 * end
    in_the_way = stop > 0.8 * end or stop < usable < stop + wide
    fits_after = start < wide or not in_the_way
    return {
        "label": label, "group": group, "start_gib": start, "end_gib": stop, "value_gib": value,
        "text": theme.gib_text(value), "place": "after" if fits_after else "before",
        "text_gib": stop if fits_after else start,
    }  # fmt: skip


def _total(fit: dict[str, Any], end: float) -> dict[str, Any]:
    device, low = fit["device_gib"], fit["mem_low_gib"]
    high = end if fit["mem_high_gib"] is None else fit["mem_high_gib"]  # open above: to the axis's end
    band = f"{theme.gib_text(low)} – {'' if fit['mem_high_gib'] is None else theme.gib_text(high)}"
    within = low > 0.45 * end
    bar = _stair(t("show.device"), t("show.device"), 0.0, device, end, fit["usable_gib"])
    return {
        **bar, "part": "device", "role": "total", "share": 1.0,
        "low_gib": low, "high_gib": high, "text": t("chart.total", value=theme.gib_text(device), band=band),
        "place": "after", "text_gib": 0.0 if within else high,
    }  # fmt: skip


def breakdown_alt(fit: dict[str, Any]) -> str:
    """What the breakdown shows, in a sentence."""
    parts = fit["breakdown_gib"]
    biggest = sorted(parts, key=lambda name: -parts[name])[:2]
    high = "…" if fit["mem_high_gib"] is None else theme.gib_text(fit["mem_high_gib"])
    named = [f"{t('part.' + name)} {theme.gib_text(parts[name])} GiB" for name in biggest]
    return t(
        "chart.breakdown.alt", device=theme.gib_text(fit["device_gib"]), usable=theme.gib_text(fit["usable_gib"]),
        low=theme.gib_text(fit["mem_low_gib"]), high=high,
        verdict=t("verdict." + fit["verdict"]), biggest=", ".join(named),
    )  # fmt: skip


def moments_spec(dark: bool = False) -> dict[str, Any]:
    """Allocated memory at each moment of a step, in order, the peak marked."""
    return copy.deepcopy(_bars("moments", i18n.current(), dark))


def stages_spec(dark: bool = False) -> dict[str, Any]:
    """Device memory of each pipeline stage, the worst marked."""
    return copy.deepcopy(_bars("stages", i18n.current(), dark))


@functools.cache
def _bars(name: str, language: str, dark: bool) -> dict[str, Any]:
    c, base = theme.colours(dark), _base()
    top = alt.condition("datum.most", alt.value(c["orange"]), alt.value(c["blue"]))
    bars = base.mark_bar(height={"band": 0.72}).encode(
        x=theme.gib_axis(t(f"chart.{name}.axis")).field("value_gib").type("quantitative"),
        y=_y(), color=top, tooltip=_tips("label", "value"),
    )  # fmt: skip
    layers = theme.on_card(base, "most", [bars], _values(base, dark), dark)
    return theme.finish(layers, t(f"chart.{name}.title"), 26 if name == "moments" else 20, dark)


def _bar_rows(fit: dict[str, Any], named: list[tuple[str, float]], mark: str, most_labelled: int) -> pd.DataFrame:
    end = theme.domain(fit["usable_gib"], *(value for _, value in named), room=0.2)
    top = max(range(len(named)), key=lambda i: named[i][1])
    rows = []
    for i, (label, value) in enumerate(named):
        text = theme.gib_text(value) + (f" · {mark}" if i == top else "")
        rows.append({
            "label": label, "order": i, "value_gib": value, "most": i == top, "role": "most" if i == top else "other",
            "text": text if i == top or len(named) <= most_labelled else "", "text_gib": value,
            "place": "after", "usable_gib": fit["usable_gib"],
            "usable_label": theme.usable_label(fit["usable_gib"]), "domain_gib": end,
        })  # fmt: skip
    return pd.DataFrame(rows)


def moments_rows(fit: dict[str, Any]) -> pd.DataFrame:
    """One row a moment: allocated GiB, and which is the peak."""
    named = [(t(f"phase.{name}"), value) for name, value in fit["moments_gib"].items()]
    return _bar_rows(fit, named, t("chart.moments.peak"), len(named))


def moments_alt(fit: dict[str, Any]) -> str:
    """What the moments show, in a sentence."""
    moments = fit["moments_gib"]
    least = min(moments, key=lambda name: moments[name])
    return t(
        "chart.moments.alt", phase=t("phase." + fit["peak_phase"]), allocated=theme.gib_text(fit["allocated_gib"]),
        least=t(f"phase.{least}"), at_least=theme.gib_text(moments[least]),
    )  # fmt: skip


def stages_rows(fit: dict[str, Any]) -> pd.DataFrame:
    """One row a pipeline stage: device GiB, and which is the worst."""
    named = [(t("chart.stages.stage", stage=one["stage"]), one["device_gib"]) for one in fit["stages"]]
    return _bar_rows(fit, named, t("chart.stages.worst"), MOST_LABELLED_STAGES)


def stages_alt(fit: dict[str, Any]) -> str:
    """What the stages show, in a sentence."""
    by_memory = sorted(fit["stages"], key=lambda one: one["device_gib"])
    least, most = by_memory[0], by_memory[-1]
    return t(
        "chart.stages.alt", worst=most["stage"], most=theme.gib_text(most["device_gib"]), best=least["stage"],
        least=theme.gib_text(least["device_gib"]), usable=theme.gib_text(fit["usable_gib"]),
    )  # fmt: skip
