"""From the file form to a Case: names resolved, open fields filled by the stack's defaults, every problem at once."""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.errors import BadInput, MissingDependency, NewerFormat, PlannerError, Problem
from planner.i18n import Phrase, phrase, t
from planner.quantity import given as fact
from planner.spec import catalog, presets
from planner.spec.case import Assumed, Case
from planner.spec.coded import as_coded
from planner.spec.fill import APPROXIMATE, filled_recipe
from planner.spec.fill_plan import filled_plan
from planner.spec.form import SCHEMA, CaseForm, nearby, validated
from planner.spec.hardware import Cluster
from planner.spec.huggingface import read_config
from planner.spec.model import Model
from planner.spec.stack import Stack, known, of_version, spelt, stack, stated_version, with_loss
from planner.units import GIB

DEFAULT_FRAMEWORK = "hf-transformers"
WITH_ZERO = "deepspeed"
#: what a framework that nobody described is treated as, and what that does to the band
PLAIN = "pytorch"
UNKNOWN_STACK = "formula_error_unknown_stack"
SPELLINGS = Path(__file__).parent.parent / "data" / "spellings.toml"


@functools.lru_cache(maxsize=1)
def spellings() -> dict[str, dict[str, str]]:
    """The visible table: by field, how people write a value and what we call it."""
    return tomllib.loads(SPELLINGS.read_text(encoding="utf-8"))


def build(raw: Mapping[str, Any], model: Model | None = None, files: bool = True) -> Case:
    """The case that `raw` (the file form) states.

    `model` replaces the stated one (a solver's candidate). `files=False` reads no path, for input from a stranger.
    Raises BadInput with all problems, NewerFormat for a file of a newer version.
    """
    _known_schema(raw)
    form, problems = validated(dict(raw))
    if form is None:
        raise BadInput(problems)
    assumed: list[Assumed] = []
    cluster = _cluster(form, problems, assumed)
    shape = model or _model(form, problems, assumed, files)
    chosen = _stack(form, assumed)
    if shape is None:
        raise BadInput(problems)
    if _wants_zero(form):
        chosen = _with_engine(chosen)
    chosen = _with_allocator(_loss_path(chosen, form), cluster)
    shape = as_coded(shape, chosen)
    recipe = filled_recipe(form, shape, chosen, spellings(), problems, assumed)
    plan = filled_plan(form, cluster, chosen, spellings(), recipe, problems, assumed)
    if problems or cluster is None or recipe is None or plan is None:
        raise BadInput(problems)
    return Case(cluster, shape, recipe, plan, chosen, form.name or "", tuple(assumed), _stated(raw))


def _loss_path(chosen: Stack, form: CaseForm) -> Stack:
    """The stack with the bytes a logit of the stated implementation of the loss, and of compiled code."""
    given = form.recipe
    return with_loss(chosen, given.loss_impl if given else None, compiled=bool(given and given.compile))


def _with_allocator(chosen: Stack, cluster: Cluster | None) -> Stack:
    """The stack with the allocator's mode of this hardware: ROCm builds have no expandable segments, and a launcher
    that asks for them may be that of one node only."""
    if cluster is None or chosen.allocator == "native":
        return chosen
    several = bool(np.any(np.greater(cluster.gpus, cluster.gpus_per_node)))
    native = cluster.accelerator.vendor == "AMD" or (chosen.allocator_one_node and several)
    return replace(chosen, allocator="native") if native else chosen


def _with_engine(chosen: Stack) -> Stack:
    """A stack under ZeRO: DeepSpeed's engine gathers, buckets and casts, whatever the model's code is.

    Megatron and nanotron bring a distributed optimizer of their own.
    """
    if chosen.own_engine:
        return chosen
    engine = stack(WITH_ZERO)
    kept = ("precision", "grads_16bit", "persistent_grads", "ddp_bucket_copy", "bucket_elements", "bucket_copies",
            "live_elements", "prefetch_elements", "allocator_kind")  # fmt: skip
    return replace(chosen, **{name: getattr(engine, name) for name in kept})


def _known_schema(raw: Mapping[str, Any]) -> None:
    """Refuse a file that a newer version wrote; version 1 is the first, so nothing is older yet."""
    said = raw.get("schema", SCHEMA)
    if said == SCHEMA:
        return
    head, _, version = str(said).rpartition("/")
    number = version.isascii() and version.isdecimal()
    if head == SCHEMA.rpartition("/")[0] and number and (len(version) > 9 or int(version) > 1):
        raise NewerFormat(Problem("schema", phrase("problem.newer", format=str(said)[:60], ours=SCHEMA), SCHEMA))
    raise BadInput([Problem("schema", phrase("problem.format", format=repr(said)), SCHEMA)])


def _stated(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What the user gave, without what was left open, as JSON can carry it."""
    return {k: _plain(v) for k, v in raw.items() if v is not None and k != "schema"}


def _plain(value: Any) -> Any:
    """A value without what no JSON file holds: a number that is not finite, half a surrogate pair."""
    match value:
        case dict():
            return {str(_plain(k)): _plain(v) for k, v in value.items()}
        case list():
            return [_plain(v) for v in value]
        case float() if not math.isfinite(value):
            return None
        case str():
            return value.encode("utf-8", "replace").decode("utf-8")
    return value


def _cluster(form: CaseForm, problems: list[Problem], assumed: list[Assumed]) -> Cluster | None:
    given = form.cluster
    try:
        if given is None or (given.gpu is None and given.node is None):
            assumed.append(Assumed("cluster", "h100-sxm", Phrase("assumed.cluster")))
            made = catalog.cluster("h100-sxm", given.gpus if given else None, None, given.nodes if given else None)
        else:
            made = catalog.cluster(given.gpu, given.gpus, given.node, given.nodes)
        if given and given.host_gib:
            made = replace(made, host_memory=fact(given.host_gib * GIB, "B", "host_memory"))
        return made
    except PlannerError as error:
        problems.extend(error.problems)
        return None


def _model(form: CaseForm, problems: list[Problem], assumed: list[Assumed], files: bool) -> Model | None:
    given = form.model
    try:
        if given is None:
            raise BadInput(Problem("model", Phrase("problem.no-model"), Phrase("near.model")))
        made = presets.model(given, files=files) if isinstance(given, str) else _from_dict(given, files)
    except MissingDependency:
        raise  # nothing in the input is wrong: this machine lacks something
    except PlannerError as error:
        problems.extend(error.problems)
        return None
    assumed.extend(Assumed("model", note) for note in made.remarks)
    return made


def _from_dict(given: dict[str, Any], files: bool) -> Model:
    """A Hugging Face configuration, or a named model with fields of its configuration changed."""
    name = given.get("name")
    if not isinstance(name, str) or "model_type" in given:
        return read_config({k: v for k, v in given.items() if k != "name"}, name if isinstance(name, str) else None)
    changes = {k: v for k, v in given.items() if k != "name"}
    base = presets.model(name, files=files)
    if not changes:
        return base
    if not base.config:
        raise BadInput(Problem("model", phrase("problem.no-config", name=repr(name)), "llama-3-8b"))
    return read_config({**dict(base.config), **changes}, t("model.changed", name=base.name))


def _stack(form: CaseForm, assumed: list[Assumed]) -> Stack:
    """The stack that the case names: by id or spelling, else the one it is built upon, else plain PyTorch."""
    named = form.recipe.framework if form.recipe else None
    if named is None:
        usual = WITH_ZERO if _wants_zero(form) else DEFAULT_FRAMEWORK
        assumed.append(Assumed("recipe.framework", usual, Phrase("assumed.unnamed")))
        return stack(usual)
    word = spelt(named)
    word = spellings().get("recipe.framework", {}).get(word, word)
    if found := known(word):
        return _at_version(found, named, assumed)
    shown = named.strip()[:40]
    if near := nearby().get("recipe.framework", {}).get(word):
        said = phrase("assumed.built-upon", stated=shown)
        assumed.append(Assumed("recipe.framework", near, said, APPROXIMATE))
        return stack(near)
    said = phrase("assumed.unknown-framework", stated=shown)
    assumed.append(Assumed("recipe.framework", PLAIN, said, UNKNOWN_STACK))
    return stack(PLAIN)


def _at_version(found: Stack, named: str, assumed: list[Assumed]) -> Stack:
    """What the stack was at the version after the "@"; noted where that is not its newest recipe."""
    wanted = stated_version(named)
    then = of_version(found, wanted)
    if then is not found:
        assumed.append(Assumed("recipe.framework", then.id, phrase("assumed.by-version", version=str(wanted))))
    return then


def _wants_zero(form: CaseForm) -> bool:
    """Whether the plan asks for what DeepSpeed is known for: its ZeRO, or states in host memory."""
    plan = form.plan
    if plan is None:
        return False
    leaves = (plan.offload.optimizer or "").lower() if plan.offload else ""
    return (plan.data_parallel or "").lower() in ("zero", "deepspeed") or leaves in ("cpu", "nvme")


def merged(stated: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A stated case with dotted fields put in; what is on the way is made a table where it must be one."""
    tree: dict[str, Any] = {k: _copied(v) for k, v in stated.items()}
    for dotted, value in changes.items():
        *path, last = dotted.split(".")
        here = tree
        for i, step in enumerate(path):
            inside = here.get(step)
            if not isinstance(inside, dict):
                inside = _as_table(".".join(path[: i + 1]), inside)
                here[step] = inside
            here = inside
        here[last] = value
    return tree


def _copied(value: Any) -> Any:
    return {k: _copied(v) for k, v in value.items()} if isinstance(value, dict) else value


def _as_table(field: str, value: Any) -> dict[str, Any]:
    """A plain value that becomes a table: a model's name, a precision's preset."""
    if value is None:
        return {}
    return {"model": {"name": value}, "recipe.precision": {"preset": value}}.get(field, {})
