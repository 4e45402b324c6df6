"""The main terms behind an answer, read off the quantities themselves, and the works that they rest on."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from planner import explain, terms
from planner.i18n import t
from planner.quantity import Formula, Quantity, binding, value_of
from planner.report import words
from planner.report.document import Block, Section, Step, Steps, Table, Text
from planner.step.evaluate import Estimate

SOURCES = Path(__file__).resolve().parents[1].joinpath("sources.toml")
MOST_STEPS = 9
MOST_NAMED = 8


@functools.lru_cache(maxsize=1)
def sources() -> dict[str, dict[str, Any]]:
    """Every work and page that a figure or a formula may cite, by key."""
    return tomllib.loads(SOURCES.read_text(encoding="utf-8"))


def used(found: Estimate) -> list[str]:
    """Keys of the sources that an estimate and its hardware rest on, in order of first use."""
    keys: list[str] = []
    for root in _roots(found):
        keys += explain.references(root)
    return list(dict.fromkeys([*keys, *found.case.cluster.accelerator.sources]))


def _roots(found: Estimate) -> list[Quantity]:
    m = found.memory
    return [m.headroom, m.device, m.high, m.low, m.least, *m.moments.values(), found.host.needed, found.params]


def section(found: Estimate) -> Section:
    """How the numbers are made: the result, then each part of the device's memory."""
    number = {key: i for i, key in enumerate(used(found), 1)}
    m = found.memory
    result = [m.headroom, m.device, m.reserved, m.allocated, binding(m.allocated), m.high, m.low, m.least, m.usable]
    blocks: list[Block] = [Text(t("report.chain.text")), _steps(t("report.chain.result"), result, number)]
    shown = {_identity(q) for q in result}
    for kind, part in found.breakdown().items():
        terms = [q for q in _terms(part) if _identity(q) not in shown][:MOST_STEPS]
        shown |= {_identity(q) for q in terms}
        if terms:
            blocks.append(_steps(t(f"part.{kind}"), terms, number))
    return Section("chain", t("report.section.chain"), tuple(blocks))


def _identity(quantity: Quantity) -> tuple[str, float, str]:
    return quantity.name, float(value_of(quantity)), quantity.unit


def _terms(part: Quantity) -> Iterator[Quantity]:
    """What defines a part, each followed by its inputs that are formulas or cited; none twice, none of zero."""
    seen: set[tuple[str, float, str]] = set()
    for leaf in _leaves(part):
        for term in (leaf, *(i for i in _inputs(leaf) if _is_told(i))):
            if _identity(term) not in seen and value_of(term) != 0:
                seen.add(_identity(term))
                yield term


def _leaves(quantity: Quantity) -> Iterator[Quantity]:
    """Sums and choices opened, wrappers that hand on a value unchanged taken off."""
    bare = _bare(quantity)
    if bare.formula == "largest":
        yield from _leaves(binding(bare))
    elif bare.formula == "total" and bare.unit == "B":
        for part in _inputs(bare):
            yield from _leaves(part)
    else:
        yield bare


def _bare(quantity: Quantity) -> Quantity:
    while quantity.source == "definition":
        same = [i for i in _inputs(quantity) if i.unit == quantity.unit and value_of(i) == value_of(quantity)]
        if len(same) != 1:
            break
        quantity = same[0]
    return quantity


def _inputs(quantity: Quantity) -> list[Quantity]:
    return [i for i in quantity.inputs.values() if isinstance(i, Quantity)]


def _is_told(quantity: Quantity) -> bool:
    return quantity.formula is not None or quantity.source is not None


def _steps(title: str, quantities: list[Quantity], number: dict[str, int]) -> Steps:
    head = tuple(t(f"report.chain.{c}") for c in ("quantity", "formula", "value", "source"))
    return Steps(title, tuple(_step(q, number) for q in quantities), head)


def _step(quantity: Quantity, number: dict[str, int]) -> Step:
    made, keys = quantity.formula, [quantity.source] if quantity.source else []
    if isinstance(made, Formula):
        formula = f"{made.name} = {explain.expression(made)}"
        numbers = f"= {explain.expression(made, quantity.inputs)}"
    elif made:
        formula, numbers = t(f"report.chain.{_SUMS[made]}", count=len(quantity.inputs), parts=_parts(quantity)), ""
    else:
        formula, numbers = t("report.chain.fact"), quantity.because or ""
    cited = tuple(number[k] for k in keys if k in number)
    return Step(quantity.name, formula, numbers, words.value(quantity), cited, terms.beside(quantity.name))


_SUMS = {"total": "sum", "largest": "largest"}


def _parts(quantity: Quantity) -> str:
    """The largest parts of a sum by name and value."""
    parts = sorted(_inputs(quantity), key=lambda q: -abs(float(value_of(q))))
    parts = [q for q in parts if value_of(q) != 0]
    named = [f"{q.name} {words.value(q)}" for q in parts[:MOST_NAMED]]
    if rest := parts[MOST_NAMED:]:
        named.append(t("report.chain.more", count=len(rest)))
    return t("join.items").join(named)


def references(found: Estimate) -> Section:
    """The list of works, numbered as the chain numbers them."""
    rows = tuple(_reference(i, key) for i, key in enumerate(used(found), 1))
    head = tuple(t(f"report.references.{c}") for c in ("number", "work", "where", "read_on"))
    table = Table(t("report.references.caption"), head, rows, shape="references")
    return Section("references", t("report.section.references"), (Text(t("report.references.text")), table))


def _reference(number: int, key: str) -> tuple[str, ...]:
    source = sources().get(key)
    if source is None:
        return f"[{number}]", f"{key}: {t('report.references.unknown')}", "–", "–"
    by = ", ".join(str(source[f]) for f in ("authors", "year") if source.get(f))
    title = f"{source['title']} ({by})" if by else source["title"]
    return f"[{number}]", title, str(source.get("where", "–")), str(source.get("read_on", "–"))
