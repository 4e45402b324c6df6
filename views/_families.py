"""What "Largest model" shows: the recipe families' answers on a cluster as plain data, kept for the next visit."""

from __future__ import annotations

import json
from typing import Any

import streamlit as st

import planner
from planner import answers, i18n
from planner.errors import BadInput, Problem
from planner.i18n import t
from planner.search.largest import Largest
from planner.spec import presets
from planner.spec.build import merged
from planner.units import count_text

#: the fields that may hold for every family: they leave each its precision, optimizer and sharding
HELD = (
    "recipe.seq_len", "recipe.checkpointing", "recipe.checkpointing_args", "recipe.attention", "recipe.loss",
    "recipe.loss_chunks", "recipe.optimizer_impl", "recipe.allocator",
)  # fmt: skip


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
        raise BadInput(Problem("cluster", t("app.largest.cluster"), '{"gpu": "h100-sxm", "gpus": 8}'))
    found = planner.largest_model(wanted, json.loads(stated))
    first = next((one.case for one in found if one.case), None)
    return {
        "answer": answers.largest(found),
        "cases": [case_of(one) for one in found],
        "gpus": first and f"{first.cluster.gpus} × {first.cluster.accelerator.name}",
    }


def case_of(one: Largest) -> dict[str, Any] | None:
    """What a row states as a case: its size where a size gives that very shape, else its shape."""
    if one.case is None:
        return None
    size, shape = count_text(one.params), answers.shape(one.case.model)
    exact = answers.shape(presets.model(size, files=False)) == shape
    about = {k: v for k, v in shape.items() if v is not None}
    model = size if exact else {"model_type": "llama", **about, "max_position_embeddings": presets.POSITIONS}
    return merged(one.case.stated, {"model": model})
