"""The model among the inputs: a name, a size, or a config.json; what must be fetched is fetched only when asked."""

from __future__ import annotations

import functools
import json
from typing import Any

from planner import units
from planner.errors import BadInput, Problem
from planner.i18n import t
from planner.spec import hub, presets
from planner.spec.catalog import spelling
from planner.spec.huggingface import read_config

#: characters of a configuration that the page and its link hold
MOST = 20_000


@functools.cache
def _known() -> frozenset[str]:
    """Every spelling of the catalogue's models."""
    return frozenset(
        spelling(alias) for one in presets.models() for alias in (*one.aliases, one.hf_id, one.name) if alias
    )


def elsewhere(model: Any) -> str | None:
    """The Hugging Face id whose config.json would have to be fetched to know this model, or None."""
    name = model.get("name") if isinstance(model, dict) and "model_type" not in model else model
    if not isinstance(name, str):
        return None
    wanted = name.strip()
    if spelling(wanted[:200]) in _known() or units.parse_count(wanted.removeprefix("-")) is not None:
        return None
    return wanted if hub.looks_like_id(wanted) else None


def from_text(text: str) -> Any:
    """A held configuration as the file form has it; a catalogue name with changed fields stays an object."""
    plain = text.strip().removeprefix("\ufeff")
    tree = _tree(plain)
    if isinstance(tree, dict) and "name" in tree and "model_type" not in tree:
        return tree
    return plain if plain.startswith("{") else "{" + plain  # never a name: the planner says that it is no JSON


def to_widget(model: Any) -> tuple[str, str, str]:
    """Which widget shows a stated model: source, key and value."""
    if isinstance(model, str) and not model.lstrip().startswith("{"):
        return "name", "model", model
    text = model if isinstance(model, str) else json.dumps(model, ensure_ascii=False)
    return "config", "config", compact(text)


def for_file(model: Any) -> Any:
    """A stated model as a case file shows it: a configuration as an object, not as text in quotes."""
    return _tree(model) or model if isinstance(model, str) and model.startswith("{") else model


def _tree(text: str) -> Any:
    """The JSON in a text, NaN and infinities as null; None where it is none."""
    try:
        return json.loads(text, parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        return None


def is_config(tree: Any) -> bool:
    """Whether a JSON object is a Hugging Face configuration rather than a case."""
    return isinstance(tree, dict) and not {"model", "cluster", "recipe", "plan", "schema"} & set(tree)


def checked(text: str | bytes, name: str | None = None) -> str:
    """The text of a configuration that the planner can read, compact; raises a PlannerError with every problem."""
    read_config(text, name)
    return compact(text.decode("utf-8-sig") if isinstance(text, bytes) else text, name)


def compact(text: str, name: str | None = None) -> str:
    """The same configuration without spaces and, where it is long, without its tables of labels."""
    tree = _tree(text.removeprefix("\ufeff"))
    if not isinstance(tree, dict):
        return text
    if name and not tree.get("_name_or_path"):
        tree["_name_or_path"] = name
    short = _short(tree)
    if len(short) > MOST:
        short = _short({k: v for k, v in tree.items() if not k.endswith(("2label", "2id"))})
    if len(short) > MOST:
        raise BadInput(Problem("model", t("app.config_long", characters=len(short)), t("app.config_most", most=MOST)))
    return short


def _short(tree: Any) -> str:
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":"))


def fetched(id: str) -> str:
    """The config.json of a Hugging Face id, compact: the one place of the app that asks another machine."""
    return checked(hub.huggingface_config(id), id)
