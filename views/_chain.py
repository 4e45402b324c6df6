"""The chain behind a number: its formula, the numbers in it, and where each of them comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import streamlit as st

from planner import explain, reference, terms
from planner.i18n import t
from planner.quantity import Formula, Quantity
from planner.report import chain
from planner.step.evaluate import Estimate
from planner.units import gib
from views._text import plain

LEVELS = (1, 2, 3, 4, 6)
#: one level deeper
INDENT = "\u2003"


def show(found: Estimate) -> None:
    """Choose a number and see the whole chain."""
    numbers = roots(found)
    name = st.selectbox(t("app.chain.choose"), list(numbers), format_func=_label, key="chain", persist_state="session")
    root = numbers.get(name) or found.memory.device
    inside, depth = st.columns([2, 1], vertical_alignment="bottom")
    part = inside.selectbox(t("app.chain.inside"), explain.names(root), index=None, key="chain_inside",
                            placeholder=t("app.chain.inside_none"), help=t("app.chain.inside_help"))  # fmt: skip
    levels = depth.segmented_control(t("app.chain.levels"), LEVELS, default=3, required=True, key="chain_levels",
                                     persist_state="session")  # fmt: skip
    chosen = explain.find(root, part) if part else root
    one(chosen or root, int(levels or LEVELS[0]))


def one(quantity: Quantity, levels: int) -> None:
    """One number: formula in mathematical notation, with its values, its chain as a table, and the sources."""
    made = quantity.formula
    words = terms.beside(quantity.name)
    name = f"**{plain(quantity.name)}** ({plain(words)})" if words else f"**{plain(quantity.name)}**"
    st.markdown(f"{name} = {plain(shown(quantity.value, quantity.unit))}")
    if isinstance(made, Formula):
        st.latex(reference.latex(made))
        name = t("page_rules.open", name=made.name)
        st.page_link("views/formulas.py", label=name, query_params={"formula": made.name})
        st.code(f"{made.name} = {explain.expression(made, quantity.inputs)}", language=None, wrap_lines=True)
        st.caption(plain(made.__doc__ or ""))
    elif made:
        st.caption(t(f"app.chain.{made}", parts=len(quantity.inputs)))
    if quantity.because:
        st.caption(plain(quantity.because))
    table = pd.DataFrame(rows(explain.tree(quantity, levels)))
    columns = {c: st.column_config.TextColumn(t(f"app.chain.column.{c}"), width=width) for c, width in COLUMNS.items()}
    st.dataframe(table, hide_index=True, width="stretch", height="content" if len(table) < 14 else 480,
                 column_config=columns, alt=t("app.chain.alt", name=quantity.name))  # fmt: skip
    sources(explain.references(quantity))


#: columns of the chain's table, and how wide they are
COLUMNS = {"quantity": 220, "label": 140, "value": 96, "formula": 240, "numbers": 240, "source": 100, "because": 120}


def rows(tree: dict[str, Any], indent: str = "") -> Iterator[dict[str, str]]:
    """A chain as rows, depth first; a quantity's inputs stand below it, one step in."""
    made = tree.get("formula")
    yield {
        "quantity": indent + str(tree["name"]),
        "label": tree.get("label") or "",
        "value": shown(tree["value"], tree["unit"]),
        "formula": tree.get("expression") or (t(f"app.chain.{made}_row") if made else ""),
        "numbers": tree.get("with_numbers") or "",
        "source": tree.get("source") or "",
        "because": tree.get("because") or "",
    }
    for part in tree["inputs"]:
        yield from rows(part, indent + str(INDENT))


def shown(value: Any, unit: str | None) -> str:
    """A value for people: bytes as GiB, everything else to four figures with its unit."""
    if isinstance(value, list):
        return f"{len(value)} × {unit}"
    if unit == "B" and abs(value) >= 1e6:
        return f"{gib(value):,.3f} GiB"
    return explain.figure(value) if unit in (None, "1") else f"{explain.figure(value)} {unit}"


def roots(found: Estimate) -> dict[str, Quantity]:
    """The numbers of the page that can be opened, by key."""
    memory = found.memory
    numbers = {
        "device": memory.device, "headroom": memory.headroom, "high": memory.high, "low": memory.low,
        "allocated": memory.allocated, "reserved": memory.reserved, "usable": memory.usable,
        "least": memory.least, "verdict": memory.verdict_code, "params": found.params, "host": found.host.needed,
    }  # fmt: skip
    numbers |= {f"part.{name}": part for name, part in found.breakdown().items()}
    return numbers | {f"phase.{name}": moment for name, moment in memory.moments.items()}


def _label(key: str) -> str:
    kind, _, name = key.partition(".")
    return t(f"app.chain.{kind}_of", name=t(key)) if name else t(f"app.number.{key}")


def sources(keys: list[str]) -> None:
    """The works and pages that a number rests on."""
    known = chain.sources()
    listed = [f"- **{plain(key)}**: {_work(known.get(key, {}))}" for key in keys]
    if listed:
        st.markdown("\n".join([f"**{t('app.chain.sources')}**\n", *listed]))


def _work(source: dict[str, Any]) -> str:
    said = [source.get(part) for part in ("authors", "title", "year", "where")]
    return plain(". ".join(str(part) for part in said if part) or t("app.chain.unlisted"))

