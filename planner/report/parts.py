"""The sections of a report that tell the case: what was asked, assumed, and known of the hardware. Plain data only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner import answers
from planner.i18n import t
from planner.quantity import Quantity
from planner.report import attached, words
from planner.report.document import Block, Listing, Points, Section, Table, Text
from planner.spec.case import Case
from planner.spec.catalog import UNCONFIRMED
from planner.step.evaluate import Estimate


def case(found: Estimate) -> Section:
    """Every field that the answer rests on, and whether it was stated, assumed or derived."""
    of, none = found.case, t("report.none")
    shape = [(k, words.plain(v, none)) for k, v in answers.shape(of.model).items() if v is not None]
    params = [("parameters", words.count(found.params.value))]
    model = Table(t("report.case.model"), _head(2), (("name", of.model.name), *params, *shape), shape="fields")
    return Section(
        "case", t("report.section.case"),
        (
            Text(t("report.case.text")), _fields("cluster", _cluster(of), of), model,
            _fields("recipe", answers.recipe(of), of), _fields("plan", answers.plan(of), of),
        ),
    )  # fmt: skip


def _head(columns: int) -> tuple[str, ...]:
    return tuple(t(f"report.case.{c}") for c in ("field", "value", "origin")[:columns])


def _cluster(of: Case) -> dict[str, Any]:
    cluster = of.cluster
    return {
        "gpu": f"{cluster.accelerator.id} ({cluster.accelerator.name})",
        "gpus": cluster.gpus,
        "gpus_per_node": cluster.gpus_per_node,
        "node": cluster.node,
    }


def _fields(name: str, tree: dict[str, Any], of: Case) -> Table:
    stated, assumed, none = set(_stated(of.stated)), {a.field for a in of.filled}, t("report.none")
    rows = tuple(
        (field, words.plain(value, none), t(f"report.case.{_origin(f'{name}.{field}', stated, assumed)}"))
        for field, value in flat(tree)
    )
    return Table(t(f"report.case.{name}"), _head(3), rows, shape="fields")


def _origin(field: str, stated: set[str], assumed: set[str]) -> str:
    if field in assumed:
        return "assumed"
    upward = [field[:at] for at, letter in enumerate(field) if letter == "."]
    return "stated" if field in stated or stated.intersection(upward) else "derived"


def _stated(tree: dict[str, Any]) -> Iterator[str]:
    for field, value in flat(tree):
        if value is not None:
            yield field


def flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a tree, dotted."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def assumptions(found: Estimate) -> Section:
    """What was filled in, what every answer assumes, and what the verdicts mean."""
    filled = tuple((f"{a.field}:", a.filled) for a in found.case.filled)
    said: tuple[tuple[str, str], ...] = filled or (("", t("report.assumptions.filled_none")),)
    general = tuple(("", t(f"report.assumptions.{k}")) for k in ("training", "balanced", "band", "derived"))
    verdicts = tuple(("", t(f"report.assumptions.{k}")) for k in ("fits", "edge", "oom"))
    blocks: tuple[Block, ...] = (
        Points(t("report.assumptions.filled"), said),
        Points(t("report.assumptions.general"), general),
        Points(t("report.assumptions.verdicts"), verdicts),
    )
    return Section("assumptions", t("report.section.assumptions"), blocks)


def unanswered() -> Section:
    """What the report does not say."""
    points = tuple(("", t(f"report.open.{k}")) for k in ("time", "cost", "network", "quality"))
    return Section("open", t("report.section.open"), (Text(t("report.open.text")), Points("", points)))


def hardware(found: Estimate) -> Section:
    """What is known of the accelerator and the node, marked where it is used and where it is unconfirmed."""
    cluster = found.case.cluster
    a = cluster.accelerator
    named: dict[str, Quantity | None] = {
        "memory_nominal": a.memory_nominal, "memory_usable": a.memory_usable, "memory_total": a.memory_total,
        "hbm_bandwidth": a.hbm_bandwidth, "link_bandwidth": a.link_bandwidth, "pcie_bandwidth": a.pcie_bandwidth,
        "power": a.power,
    }  # fmt: skip
    rows = [_fact(name, t(f"report.hardware.{name}"), q, "memory_usable") for name, q in named.items() if q]
    rows += [_fact("peak", t("report.hardware.peak", dtype=dtype), q, "") for dtype, q in a.peak.items()]
    if cluster.host_memory is not None:
        label = t("report.hardware.host_memory")
        rows.append(_fact("host_memory", label, cluster.host_memory, "host_memory"))
    head = tuple(t(f"report.hardware.{c}") for c in ("fact", "value", "used", "state"))
    note = t("report.hardware.read_on", date=a.read_on, sources=", ".join(a.sources))
    caption = t("report.hardware.caption", gpu=a.name)
    table = Table(caption, head, tuple(rows), numeric=(1,), shape="facts", note=note)
    return Section("hardware", t("report.section.hardware"), (Text(t("report.hardware.text")), table))


def _fact(name: str, label: str, quantity: Quantity, used: str) -> tuple[str, ...]:
    if quantity.reason is None:
        state = t("report.hardware.confirmed")
    elif quantity.reason == UNCONFIRMED:
        state = t("report.hardware.unconfirmed")
    else:
        state = t("report.hardware.inferred", because=quantity.because)
    return label, words.fact(name, quantity), t("report.yes" if name == used else "report.no"), state


def file(of: dict[str, Any]) -> Section:
    """The case letter by letter, for a reader who has the page alone."""
    listing = Listing(attached.text(of))
    return Section("file", t("report.section.file"), (Text(t("report.file.text")), listing))
