"""Answers as tables in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape as _markup
from rich.table import Column, Table

from planner import explain, thumb
from planner.answers import in_gib
from planner.errors import PlannerError
from planner.evidence import table as evidence
from planner.evidence.accuracy import Accuracy, LeftOut
from planner.evidence.records import Line
from planner.i18n import said, t
from planner.quantity import Quantity, value_of
from planner.search.largest import Largest
from planner.search.limits import Limit
from planner.search.remedies import Remedy, path, remedies
from planner.step.evaluate import Estimate
from planner.units import count_text, gib

out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)
COLOURS = {"fits": "green", "edge": "yellow", "oom": "red"}


def _table(*heads: str, pad_edge: bool = True) -> Table:
    """A table without lines. Long cells go on in the next line: Chinese has no spaces to break at, and none is cut."""
    return Table(*(Column(head, overflow="fold") for head in heads), box=None, pad_edge=pad_edge)


#: what a terminal takes for commands: C0 and C1 controls but line feed and tab, and marks that turn the direction
_CONTROLS = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)])


def escape(text: str) -> str:
    """A text that comes from a user, as text: no markup, no terminal commands."""
    return _markup(text.translate(_CONTROLS))


def verdict(found: Estimate) -> str:
    """The verdict with headroom and band, one line."""
    m = found.memory
    colour = COLOURS[found.overall]
    low = f"{in_gib(m.low):.1f}"
    band = t("show.at_least", low=low) if m.unknown else f"{low} … {in_gib(m.high):.1f}"
    return (
        f"[bold {colour}]{found.headline}[/]{t('join.colon')}"
        + t("show.headroom" if in_gib(m.headroom) >= 0 else "app.fit.lacking",
            headroom=f"{abs(in_gib(m.headroom)):.1f}", usable=f"{in_gib(m.usable):.1f}",
            device=f"{in_gib(m.device):.1f}", band=band)
    )  # fmt: skip


def fit(found: Estimate) -> None:
    """The answer of `fit`."""
    case, memory = found.case, found.memory
    gpu = f"{case.cluster.gpus} x {case.cluster.accelerator.name}"
    params = count_text(float(value_of(found.params)))
    out.print(escape(t("show.question", model=case.model.name, params=params, gpu=gpu)))
    out.print(verdict(found))
    out.print(
        t("show.peak", phase=t("phase." + memory.peak_phase), allocated=f"{in_gib(memory.allocated):.3f}",
          reserved=f"{in_gib(memory.reserved):.1f}")
    )  # fmt: skip
    table = _table(t("show.part"), t("show.gib"), pad_edge=False)
    table.columns[1].justify = "right"
    for name, part in found.breakdown().items():
        table.add_row(t("part." + name), f"{in_gib(part):.3f}")
    table.add_row(t("show.device"), f"{in_gib(memory.device):.3f}", style="bold")
    out.print(table)
    _stages(found)
    _host(found)
    out.print(t("show.time_open"))
    _warnings(found)
    if found.verdict != "fits":
        _remedies(found)
    out.print(escape(t("show.assumed", assumed=t("join.items").join(case.assumed))), style="dim")


def _warnings(found: Estimate) -> None:
    for warning in found.warnings:
        line = t("show.warning", code=warning.code, because=warning.because, remedy=warning.remedy)
        out.print(escape(line), style="yellow")


def _stages(found: Estimate) -> None:
    stages = found.stages()
    if len(stages) < 2:
        return
    table = _table(t("show.stage"), t("show.allocated_gib"), t("show.device_gib"), t("show.peak_phase"))
    for one in stages:
        row = (f"{in_gib(one.allocated):.2f}", f"{in_gib(one.device):.2f}", t("phase." + one.peak_phase))
        table.add_row(str(one.stage.index), *row)
    out.print(table)


def _host(found: Estimate) -> None:
    host = found.host
    if len(held := [name for name, part in host.parts.items() if in_gib(part)]) > 1:
        moment = max(host.moments, key=lambda name: in_gib(host.moments[name]))
        parts = t("join.list").join(f"{t('host_part.' + name)} {in_gib(host.parts[name]):.0f} GiB" for name in held)
        out.print(t("show.host_parts", moment=t("host_moment." + moment), parts=parts))
    if host.capacity is None:
        out.print(t("show.host_open", needed=f"{in_gib(host.needed):.0f}"))
        return
    out.print(
        t("show.host", needed=f"{in_gib(host.needed):.0f}", capacity=f"{in_gib(host.capacity):.0f}",
          verdict=t("verdict." + str(host.verdict)))
    )  # fmt: skip


def _remedies(found: Estimate) -> None:
    single = remedies(found)[:6]
    if single:
        out.print(t("show.remedies"), style="bold")
    for one in single:
        out.print(escape("  " + _remedy(one)))
    together = path(found)
    if len(together) > 1:
        out.print(escape(t("show.together", changes=" + ".join(r.title for r in together))))
    elif not together:
        out.print(t("show.no_path"))


def _remedy(one: Remedy) -> str:
    fields = " ".join(f"--set {k}={v}" for k, v in one.changes.items() if v is not None and not isinstance(v, dict))
    verdict_ = t("verdict." + one.estimate.verdict)
    return t("show.remedy", title=one.title, saved=f"{gib(one.saved):.1f}", verdict=verdict_, set=fields)


def largest(found: list[Largest]) -> None:
    """The answer of `largest`."""
    first = next((f for f in found if f.case), None)
    if first and first.case:
        cluster = first.case.cluster
        out.print(escape(t("show.largest_on", gpus=cluster.gpus, gpu=cluster.accelerator.name)))
    columns = ("regime", "recipe", "params", "sure", "shape", "binding")
    table = _table(*(t(f"show.{c}") for c in columns))
    for one in found:
        model = one.case.model if one.case else None
        layers = f"{int(model.layers)} x {int(model.hidden)}" if model else "-"
        table.add_row(
            one.regime.regime, one.title, count_text(one.params) if model else "-",
            count_text(one.comfortable) if one.comfortable else "-", layers, one.binding,
        )  # fmt: skip
    out.print(table)
    out.print(t("show.largest_note"), style="dim")
    out.print(t("show.time_open"))


def rules(made: list[thumb.Rule]) -> None:
    """Rules of thumb, what the model says to the same question, and why."""
    table = _table(*(t(f"show.{c}") for c in ("rule", "rule_says", "model_says", "because")))
    for one in thumb.as_json(made):
        says, model = (_said(one[thumb.KEYS[one["unit"]]], one["unit"]), _said(one["model"], one["unit"]))
        table.add_row(escape(one["title"]), says, model, escape(one["because"]))
    out.print(table)


def _said(value: Any, unit: str) -> str:
    """A rule's figure with its unit."""
    if value is None:
        return "-"
    if unit == "param":
        return count_text(float(value))
    return f"{float(value):.4g}" + ("" if unit == "1" else f" {unit}")


def limit(name: str, found: Limit) -> None:
    """The answer of `batch` and `sequence`."""
    out.print(t(f"show.{name}", value=found.value, comfortable=found.comfortable, binding=found.binding))
    out.print(verdict(found.estimate))
    _warnings(found.estimate)


def explanation(quantity: Quantity, depth: int) -> None:
    """The answer of `explain`."""
    out.print(escape(explain.text(quantity, depth)))
    out.print(escape(t("show.sources", sources=", ".join(explain.references(quantity)))))


#: columns of the catalogue that only its JSON has
HIDDEN = {"sources", "source", "notes", "aliases"}
HIDDEN_RECIPES = {
    "based_on", "versions_of", "from", "until", "loss_bytes", "claims", "zero", "data_parallel",
}  # fmt: skip


def catalog(what: str, rows: list[dict[str, Any]]) -> None:
    """The answer of `catalog`."""
    hidden = HIDDEN | (HIDDEN_RECIPES if what == "recipes" else set())
    columns = [c for c in rows[0] if c not in hidden]
    table = _table(*(t(f"catalog.{c}") for c in columns))
    for row in rows:
        table.add_row(*(escape(_cell(row[c])) for c in columns))
    out.print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "?"
    if isinstance(value, float):
        return f"{value:.5g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def accuracy(found: Accuracy, without: dict[str, list[LeftOut]], unread: Sequence[Line] = ()) -> None:
    """The answer of `evidence`."""
    for name, some in found.splits.items():
        heads = ("rows", "groups", "error", "by_repository", "bias", "p90", "band", "half_width")
        lines = _table(t(f"evidence.{name}"), *(t(f"evidence.{h}") for h in heads))
        lines.columns[0].no_wrap = True
        for line in evidence.rows_of(some):
            lines.add_row(*map(escape, line))
        if name == "framework" and found.errors:
            lines.add_row(*evidence.rows_of({t("evidence.all"): found.errors})[0], style="bold")
        out.print(lines)
    for sentence in evidence.sentences(found):
        out.print(escape(sentence))
    if unread:
        first = unread[0]
        out.print(escape(t("evidence.unread", n=len(unread), line=first.number, problem=said(first.problem))))
    for key, some_left in without.items():
        out.print(t(f"evidence.without_{key}"), style="bold")
        lines = _table(t(f"evidence.{key}"), t("evidence.rows"), t("evidence.error_with"), t("evidence.error_without"))
        lines.columns[0].no_wrap = True
        for one in some_left:
            left = f"{one.mape:.1%}" if one.coefficients else t("evidence.nothing_fitted")
            lines.add_row(escape(one.name), str(one.n), f"{one.mape_with:.1%}", left)
        out.print(lines)


def written(files: list[str]) -> None:
    """What `report` wrote."""
    for file in files:
        out.print(escape(t("show.written", file=file)))


def problems(error: PlannerError) -> None:
    """What is wrong with the input, one line a problem."""
    for problem in error.problems:
        err.print(escape(str(problem)), style="red")
