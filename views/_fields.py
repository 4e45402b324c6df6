"""The inputs as data: which fields of a case have a widget, and the way from widgets to the file form and back.

A widget's key is the field's dotted name, which is also its name in the link and after --set. A field that has no
widget stands in the text of "other fields", one `field = value` a line, so that no case loses anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from planner.errors import Problem
from planner.i18n import t
from planner.spec import catalog, presets
from planner.spec.build import build, merged, spellings
from planner.spec.form import CHOICES, choose
from planner.spec.stack import stacks
from views import _models

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A field with a widget. Its kind: choice, whole, switch (on, off) or several; `when` it is asked for."""

    name: str
    kind: str = "choice"
    when: Callable[[Values], bool] = lambda values: True
    step: int = 1

    @property
    def choices(self) -> tuple[str, ...]:
        """What it may hold, where that is a list."""
        if self.name == "plan.zero":
            return ("0", "1", "2", "3")
        return ("on", "off") if self.kind == "switch" else CHOICES.get(self.name, ())

    @property
    def label(self) -> str:
        """Its name for people."""
        return t(f"app.field.{self.name}")


def _adapters(values: Values) -> bool:
    return values.get("recipe.task") in ("lora", "qlora")


def _every_k(values: Values) -> bool:
    return values.get("recipe.checkpointing") == "every-k"


def _chunked(values: Values) -> bool:
    return str(values.get("recipe.loss")).startswith("chunked")


BASIC = (
    Field("recipe.task"),
    Field("recipe.peft.rank", "whole", _adapters),
    Field("recipe.peft.base_dtype", when=_adapters),
    Field("recipe.peft.targets", "several", _adapters),
    Field("recipe.seq_len", "whole", step=1024),
    Field("plan.micro_batch", "whole"),
    Field("recipe.precision"),
    Field("recipe.checkpointing"),
    Field("recipe.checkpointing_args.k", "whole", _every_k),
)
RECIPE = (
    Field("recipe.optimizer"),
    Field("recipe.optimizer_impl"),
    Field("recipe.attention"),
    Field("recipe.loss"),
    Field("recipe.loss_chunks", "whole", _chunked),
    Field("recipe.global_batch", "whole"),
    Field("recipe.allocator"),
)
PLAN = (
    Field("plan.data_parallel"),
    Field("plan.zero"),
    Field("plan.tp", "whole"),
    Field("plan.sequence_parallel", "switch"),
    Field("plan.pp", "whole"),
    Field("plan.reshard_after_forward", "switch"),
    Field("plan.dp_replicate", "whole"),
    Field("plan.dp_shard", "whole"),
    Field("plan.offload.optimizer"),
    Field("plan.offload.params"),
)
FIELDS = (*BASIC, *RECIPE, *PLAN)

#: the other widgets, whose values are never open, and what they hold at first
FIRST: dict[str, Any] = {
    "source": "name", "model": "llama-3-8b", "config": "", "hardware": "gpu", "cluster.gpu": "h100-sxm",
    "cluster.gpus": 8, "cluster.node": "dgx-h100", "cluster.nodes": None, "recipe.framework": "hf-transformers",
    "name": "", "set": "",
}  # fmt: skip
WIDE = {"recipe.peft.targets"}  # needs a row of its own
KEYS = (*FIRST, *(field.name for field in FIELDS))


def ids(name: str) -> list[str]:
    """The catalogue's names for a widget that chooses one."""
    match name:
        case "cluster.gpu":
            return [one.id for one in catalog.accelerators()]
        case "cluster.node":
            return [one.id for one in catalog.nodes()]
        case "recipe.framework":
            return list(stacks())
        case "model":
            return [one.name for one in presets.models()]
    return []


# From widgets to the file form.


def raw(values: Values) -> dict[str, Any]:
    """The file form that the widgets' values state; lines of "other fields" win."""
    changes: dict[str, Any] = {"name": values.get("name") or None, "model": _model(values)}
    cluster = ("cluster.node", "cluster.nodes") if values["hardware"] == "node" else ("cluster.gpu", "cluster.gpus")
    changes |= {name: values.get(name) for name in (*cluster, "recipe.framework")}
    changes |= {field.name: _stated(field, values) for field in FIELDS}
    others, _ = lines(values.get("set") or "")
    return merged({}, {name: value for name, value in changes.items() if value is not None} | others)


def _model(values: Values) -> Any:
    return _models.from_text(values.get("config") or "{}") if values["source"] == "config" else values.get("model")


def _stated(field: Field, values: Values) -> Any:
    """A field's value in the file form; None where it is open or not asked for."""
    value = values.get(field.name)
    if value in (None, "", []) or not field.when(values):
        return None
    if field.kind == "switch":
        return {"on": True, "off": False}.get(str(value), value)
    return int(value) if field.name == "plan.zero" and str(value).isdecimal() else value


def lines(text: str) -> tuple[dict[str, Any], list[Problem]]:
    """The fields that "other fields" states, and its lines that state none."""
    found: dict[str, Any] = {}
    problems = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if equals and name.strip():
            found[name.strip()] = _scalar(value.strip())
        else:
            problems.append(Problem("set", t("app.not_a_line", line=line[:60]), "recipe.allocator = expandable"))
    return found, problems


def _scalar(text: str) -> Any:
    """JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# From the file form to widgets.


def filled(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Every widget's value for a case in its file form; raises a PlannerError where it is not one.

    A case that breaks a rule can be shown: the page then says which.
    """
    stand_in = presets.shape(4096, 32) if _models.elsewhere(tree.get("model")) else None
    made = build(tree, stand_in, files=False)
    stated = dict(leaves(tree))
    found = {**FIRST, **{field.name: None for field in FIELDS}}
    found["source"], key, value = _models.to_widget(stated.pop("model", None))
    found[key] = value
    found["name"] = stated.pop("name", "")
    found["recipe.framework"] = made.stack.id
    stated.pop("recipe.framework", None)
    if made.cluster.node:
        nodes = stated.pop("cluster.nodes", None)
        found |= {"hardware": "node", "cluster.node": made.cluster.node, "cluster.nodes": nodes}
    else:
        gpu, gpus = made.cluster.accelerator.id, int(made.cluster.gpus)
        found |= {"hardware": "gpu", "cluster.gpu": gpu, "cluster.gpus": gpus}
        stated.pop("cluster.gpus", None)
    stated = {k: v for k, v in stated.items() if k not in ("cluster.gpu", "cluster.node")}
    found |= {field.name: _shown(field, stated[field.name]) for field in FIELDS if field.name in stated}
    asked = {field.name for field in FIELDS if field.when(found)}
    found |= {field.name: None for field in FIELDS if field.name not in asked}
    found["set"] = "\n".join(f"{name} = {_written(value)}" for name, value in stated.items() if name not in asked)
    return found


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """A case's stated fields, dotted; a precision's preset under the name of its widget."""
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if name == "schema" or value is None:
            continue
        if isinstance(value, Mapping) and name != "model":
            yield from leaves(value, f"{name}.")
        else:
            yield name.removesuffix(".preset") if name == "recipe.precision.preset" else name, value


def _shown(field: Field, value: Any) -> Any:
    """A stated value as its widget holds it."""
    match field.kind:
        case "switch":
            return "on" if value else "off"
        case "several":
            return [canonical(field.name, word) for word in (value.split(",") if isinstance(value, str) else value)]
        case "whole":
            return value
    return str(value) if field.name == "plan.zero" else canonical(field.name, value)


def canonical(name: str, value: Any, problems: list[Problem] | None = None) -> str:
    """A name in the spelling of the list it is from; notes a problem and keeps it where it is in no list."""
    word = str(value).lower() if isinstance(value, bool) else str(value)
    return choose(name, word, spellings().get(name, {}), [] if problems is None else problems) or word


def _written(value: Any) -> str:
    """A value for a line of "other fields": as JSON unless it is a word that cannot be mistaken for it."""
    return value if isinstance(value, str) and _scalar(value) == value else json.dumps(value, ensure_ascii=False)
