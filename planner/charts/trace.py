"""A trace as charts: live memory operation by operation, and what the allocator makes of the log of all steps.

Rows are made from a worker's answer and from replays. A peak is a point with its words beside it, so that colour only
repeats what is written.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from planner import i18n
from planner.charts import theme
from planner.i18n import t
from planner.trace.allocator import Oom, Replay
from planner.units import gib

HEIGHT = 240
#: pixels around a chart: Chinese titles stand taller than their font says
PADDING = {"top": 4, "left": 0, "right": 2, "bottom": 0}
#: the card's end is drawn where what is reserved reaches that share of it; a small trace would else be a flat line
NEAR = 0.4
#: past that share of the x axis a text stands before its point, else after it
LATE = 0.55
_TOP = 1.15
KINDS = ("allocated", "reserved")


def timeline_spec(dark: bool = False) -> dict[str, Any]:
    """Live memory over the operations of one step, the highest point of each phase marked, the peak in words."""
    return copy.deepcopy(_timeline(i18n.current(), dark))


@functools.cache
def _timeline(language: str, dark: bool) -> dict[str, Any]:
    c, base = theme.colours(dark), alt.Chart(alt.NamedData(theme.ROWS))
    x, y = _x("at", t("chart.trace.operation")), _y(t("chart.trace.live"))
    tips = [alt.Tooltip("at:Q", title=t("chart.trace.operation"), format=",d"), _tip("live_gib", t("chart.trace.live"))]
    area = _only(base, "point").mark_area(
        interpolate="step-after", color=c["blue"], opacity=0.3, line={"color": c["blue"], "strokeWidth": 1.5}
    ).encode(x=x, y=y.field("live_gib").type("quantitative"), tooltip=tips)  # fmt: skip
    tops = (
        base.transform_filter(alt.FieldOneOfPredicate(field="role", oneOf=["phase", "peak"]))
        .mark_point(filled=True, size=45, opacity=1, color=c["orange"])
        .encode(x="at:Q", y="live_gib:Q", tooltip=[alt.Tooltip("label:N", title=t("chart.part")), *tips])
    )
    return _finish([area, tops, _air(base), *_words(base, "peak", "live_gib", c["ink"])], t("chart.trace.title"), dark)


def timeline_rows(found: Mapping[str, Any]) -> pd.DataFrame:
    """One row a point of the timeline, one a phase at its highest, and one for the peak. `at` is an operation."""
    top = found["peak"]
    end = max(found["operations"], 1)
    rows = [_row("point", at, size) for at, size in found["timeline"]]
    rows += [_row("phase", one["operation"], one["bytes"], t(f"trace.flops.{name}"))
             for name, one in found["phases"].items() if one["operation"] != top["operation"]]  # fmt: skip
    text = t("chart.trace.peak", value=_size(top["bytes"]), moment=t(f"trace.moment.{top['moment']}"))
    rows.append({**_row("peak", top["operation"], top["bytes"], text), "place": _place(top["operation"], end)})
    return _frame(rows, found["peak_bytes"])


def timeline_alt(found: Mapping[str, Any]) -> str:
    """What the timeline shows, in a sentence."""
    top = found["peak"]
    phases = t("join.list").join(
        f"{t(f'trace.flops.{name}')} {_size(one['bytes'])} GiB" for name, one in found["phases"].items()
    )
    moment = t(f"trace.moment.{top['moment']}")
    return t("chart.trace.alt", value=_size(top["bytes"]), moment=moment, at=top["operation"],
             operations=found["operations"], phases=phases)  # fmt: skip


def _row(role: str, at: int, live: int, label: str = "", place: str = "") -> dict[str, Any]:
    return {"role": role, "at": at, "live_gib": gib(live), "label": label, "place": place}


def replay_spec(dark: bool = False) -> dict[str, Any]:
    """Allocated and reserved memory over the log of all steps: where steps begin, the peak, the card's end if near."""
    return copy.deepcopy(_replay(i18n.current(), dark))


@functools.cache
def _replay(language: str, dark: bool) -> dict[str, Any]:
    c, base = theme.colours(dark), alt.Chart(alt.NamedData(theme.ROWS))
    names = {kind: t(f"chart.trace.{kind}") for kind in KINDS}
    colour = alt.Scale(domain=list(names.values()), range=[c["blue"], c["orange"]])
    legend = alt.Legend(title=None, orient="bottom", symbolType="square", symbolOpacity=1)
    x, y = _x("at", t("chart.trace.event")), _y(t("chart.trace.axis"))
    tips = [alt.Tooltip("at:Q", title=t("chart.trace.event"), format=",d"),
            *(_tip(f"{kind}_gib", name) for kind, name in names.items())]  # fmt: skip
    points = _only(base, "point")
    area = points.mark_area(interpolate="step-after", opacity=0.45, line=True).encode(
        x=x, y=y.field("allocated_gib").type("quantitative"), tooltip=tips,
        color=alt.Color("allocated:N", scale=colour, legend=legend),
    )  # fmt: skip
    line = points.mark_line(interpolate="step-after", strokeWidth=2).encode(
        x="at:Q", y="reserved_gib:Q", color=alt.Color("reserved:N", scale=colour, legend=legend), tooltip=tips
    )
    words = [*_card(base, c), *_failed(base, c), *_words(base, "peak", "reserved_gib", c["ink"])]
    return _finish([area, line, *_steps(base, c), _air(base), *words], t("chart.trace.replay"), dark)


def _steps(base: alt.Chart, c: dict[str, str]) -> list[alt.Chart]:
    """Where a step begins, with its number, and where each of its phases does."""
    tips = [alt.Tooltip("label:N", title=t("chart.trace.mark"))]
    step = _only(base, "step")
    return [
        _only(base, "phase").mark_rule(strokeDash=[2, 4], opacity=0.5, aria=False).encode(
            x="at:Q", color=alt.value(c["soft"]), tooltip=tips
        ),
        step.mark_rule(opacity=0.9, aria=False).encode(x="at:Q", color=alt.value(c["soft"]), tooltip=tips),
        step.mark_text(align="left", dx=4, fontSize=10).encode(
            x="at:Q", y=alt.value(4), text="label:N", color=alt.value(c["ink"])
        ),
    ]  # fmt: skip


def _card(base: alt.Chart, c: dict[str, str]) -> list[alt.Chart]:
    """The end of what the allocator may have, as a rule with its words (a rule without rows is none to a reader)."""
    one = _only(base, "card")
    rule = one.mark_rule(strokeDash=[5, 3], strokeWidth=1.5, aria=False).encode(
        y="reserved_gib:Q", color=alt.value(c["ink"])
    )
    words = one.mark_text(align="right", baseline="bottom", dx=-2, dy=-3, fontSize=11).encode(
        x="at:Q", y="reserved_gib:Q", text="label:N", color=alt.value(c["ink"])
    )
    return [rule, words]


def _failed(base: alt.Chart, c: dict[str, str]) -> list[alt.Chart]:
    """The request that found no memory."""
    cross = _only(base, "oom").mark_point(shape="cross", angle=45, size=110, filled=True, opacity=1, aria=False)
    return [
        cross.encode(x="at:Q", y="reserved_gib:Q", color=alt.value(c["ink"])),
        *_words(base, "oom", "reserved_gib", c["ink"]),
    ]


def replay_rows(played: Replay, room: int, oom: Oom | None = None) -> pd.DataFrame:
    """One row a point, one a mark of the log, one for the peak, and one for the card's end where it is near.

    `oom` is the request that failed when the log was held to `room`.
    """
    rows = [_point("point", *one) for one in played.timeline]
    end = max((row["at"] for row in rows), default=1)
    for mark in played.marks:
        kind, _, name = mark.name.partition(":")
        key = f"trace.flops.{name}"
        label = t("chart.trace.step", number=name) if kind == "step" else t(key) if i18n.has(key) else name
        if name != "end":
            rows.append({**_point(kind, mark.event, mark.allocated, mark.reserved), "label": label})
    at, _, reserved = max(played.timeline, key=lambda point: point[2])
    text = t("chart.trace.most", value=_size(reserved))
    rows.append({**_point("peak", at, 0, reserved), "label": text, "place": _place(at, end)})
    if near := reserved > NEAR * room:
        text = t("chart.trace.room", value=theme.gib_text(gib(room)))
        rows.append({**_point("card", end, 0, room), "label": text})
    if oom is not None:
        at = max(oom.event, 0)
        rows.append({**_point("oom", at, 0, room), "label": t("chart.trace.oom"), "place": _place(at, end)})
    return _frame(rows, max(reserved, room if near else 0))


def replay_alt(played: Replay, room: int) -> str:
    """What the replay shows, in a sentence."""
    return t("chart.trace.replay_alt", reserved=_size(played.max_reserved), allocated=_size(played.max_allocated),
             room=theme.gib_text(gib(room)))  # fmt: skip


def _point(role: str, at: int, allocated: int, reserved: int) -> dict[str, Any]:
    return {"role": role, "at": at, "allocated_gib": gib(allocated), "reserved_gib": gib(reserved), "label": "",
            "place": ""}  # fmt: skip


# What both share


def _only(base: alt.Chart, role: str) -> alt.Chart:
    return base.transform_filter(alt.FieldEqualPredicate(field="role", equal=role))


def _x(field: str, title: str) -> alt.X:
    return alt.X(f"{field}:Q", title=title, scale=alt.Scale(nice=False), axis=alt.Axis(tickCount=6, format=",d",
                 grid=False))  # fmt: skip


def _y(title: str) -> alt.Y:
    return alt.Y(title=title, scale=alt.Scale(zero=True, nice=False), axis=alt.Axis(tickCount=5))


def _air(base: alt.Chart) -> alt.Chart:
    """Nothing to see: it keeps room for words above the highest point."""
    air: alt.Chart = _only(base, "air").mark_point(opacity=0, aria=False).encode(x="at:Q", y="end_gib:Q")
    return air


def _tip(field: str, title: str) -> alt.Tooltip:
    return alt.Tooltip(f"{field}:Q", title=title, format=".3f")


def _words(base: alt.Chart, role: str, value: str, ink: str) -> list[alt.Chart]:
    """A point's words, after it or, late on the axis, before it."""
    return [
        _only(base, role)
        .transform_filter(alt.FieldEqualPredicate(field="place", equal=place))
        .mark_text(align="left" if place == "after" else "right", dx=7 if place == "after" else -7, dy=-8, fontSize=11)
        .encode(x="at:Q", y=f"{value}:Q", text="label:N", color=alt.value(ink))
        for place in ("after", "before")
    ]


def _place(at: int, end: int) -> str:
    return "before" if at > LATE * end else "after"


def _size(size: float) -> str:
    """GiB with three digits behind the point where the whole is small."""
    found = gib(size)
    return f"{found:.1f}" if found >= 10 else f"{found:.3f}"


def _frame(rows: list[dict[str, Any]], top: float) -> pd.DataFrame:
    names = {kind: t(f"chart.trace.{kind}") for kind in KINDS}
    return pd.DataFrame([{**row, **names} for row in [*rows, {**rows[0], "role": "air", "end_gib": gib(top) * _TOP}]])


def _finish(layers: list[alt.Chart], title: str, dark: bool) -> dict[str, Any]:
    return {**theme.finish(layers, title, 1, dark), "height": HEIGHT, "padding": PADDING}
