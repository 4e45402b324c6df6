"""Models by name: a preset of planner/data/models, a config.json (path or text), a Hugging Face id, a size as "40B"."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from planner import errors, paths, units
from planner.errors import BadInput, PlannerError, Problem
from planner.i18n import Phrase, phrase
from planner.spec.catalog import spelling
from planner.spec.huggingface import MAX_BYTES, read_config
from planner.spec.model import Attention, Count, LayerGroup, Mlp, Model, Norm

# Names


@dataclass(frozen=True, slots=True)
class Preset:
    """A model of the catalogue: the file's name, a title for people, and the other names it answers to."""

    name: str
    title: str
    hf_id: str
    aliases: tuple[str, ...]
    source: str


def models() -> list[Preset]:
    """Every model of the catalogue, by name."""
    return [_preset(name) for name in sorted(_files())]


def model(name: str, field: str = "model", files: bool = True) -> Model:
    """The model that `name` means; `files=False` reads no path, for names that come from a stranger."""
    wanted = str(name).strip()
    if wanted.startswith("{"):
        return read_config(wanted, None, field)
    if preset := _spellings().get(spelling(wanted[:200])):
        return _model(preset)
    if files and (path := _path(wanted, field)):
        return _from_file(path, field)
    if (params := units.parse_count(wanted.removeprefix("-"))) is not None:
        return shape_for(-params if wanted.startswith("-") else params, field)
    from planner.spec import hub  # loads an HTTP client, which most runs never need

    if hub.looks_like_id(wanted):
        made = read_config(hub.huggingface_config(wanted, field), wanted, field)
        return replace(made, source=hub.address(wanted))
    raise _unknown(wanted, field)


def _unknown(wanted: str, field: str) -> PlannerError:
    """The error for a name that is none of these; proposes the preset whose spelling is nearest."""
    known = _spellings()
    close = errors.nearest(wanted[:100], known)
    return errors.unknown(field, wanted[:100], [known[close]] if close else list(_files()))


@functools.cache
def _files() -> dict[str, dict[str, Any]]:
    """Each configuration as published, by the name of its file."""
    found = sorted((paths.data() / "models").glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in found}


@functools.cache
def _preset(name: str) -> Preset:
    about = _files()[name].get("_headroom", {})
    id = about.get("hf_id", "")
    return Preset(name, about.get("title", name), id, tuple(about.get("aliases", ())), about.get("source", id or name))


@functools.cache
def _spellings() -> dict[str, str]:
    """Every spelling -> preset name."""
    every = [(alias, p.name) for p in models() for alias in (*p.aliases, p.hf_id, p.name) if alias]
    return {spelling(alias): name for alias, name in every}


@functools.cache
def _model(name: str) -> Model:
    published = {key: value for key, value in _files()[name].items() if key != "_headroom"}
    return replace(read_config(published, name), source=_preset(name).source)


def _path(name: str, field: str) -> Path | None:
    """The config.json that a path means, or None when `name` is not a path."""
    try:
        path = Path(name).expanduser()
        path = path / "config.json" if path.is_dir() and name else path
        if path.is_file():
            return path
    except (OSError, ValueError, RuntimeError):
        return None
    if name.endswith(".json") or name.startswith(("/", "./", "../", "~")):
        raise BadInput(Problem(field, phrase("problem.no-file", path=repr(name[:200])), Phrase("near.config-path")))
    return None


def _from_file(path: Path, field: str) -> Model:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        problem = phrase("problem.unreadable", path=repr(str(path)), because=errors.system(error))
        raise BadInput(Problem(field, problem, Phrase("near.config-path"))) from None
    name = path.parent.name if path.name == "config.json" else path.stem
    return replace(read_config(text, name or None, field), source=path.name)


# Sizes

VOCAB = 128_256
POSITIONS = 131_072
SMALLEST, LARGEST = 1e6, 1e15
#: between these sizes the width is fixed and the depth solved for
WIDTH, WIDTH_FROM, WIDTH_TO = 8192, 20e9, 150e9
#: widths to choose from elsewhere; from 1,024 on heads of 128 come in eights
LADDER = (
    64, 128, 256, 512, 768, 1024, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 10_240, 12_288, 14_336, 16_384, 20_480,
    24_576, 32_768, 40_960, 49_152, 65_536, 81_920, 98_304, 131_072, 163_840, 196_608, 262_144,
)  # fmt: skip
#: vocabulary and whether the head is tied, the usual first: the others only where the usual is most of the model
VOCABULARIES = ((VOCAB, False), (VOCAB, True), (32_000, True), (4_096, True))
#: hidden / layers of Llama 3: 128 (8B), 102 (70B), 130 (405B)
ASPECT = 128
#: what a plausible shape may be: hidden / layers, share of the embeddings, distance from the size asked for
USUAL = (48, 272, 0.55, 0.03)
LENIENT = (8, 600, 0.75, 0.10)


def shape(hidden: Count, layers: Count, vocab: int = VOCAB, tied: bool = False) -> Model:
    """A Llama-like model of that width and depth: heads of 128 (64 below 1,024), 8 key/value heads, FFN 3.5 x hidden.

    Both may be arrays. Where 8 does not divide the heads, there are as many key/value heads as do.
    """
    if np.any(np.less(hidden, 64)) or np.any(np.mod(hidden, 64)):
        raise BadInput(Problem("model.hidden_size", Phrase("problem.width"), str(WIDTH)))
    head = np.where(np.less(hidden, 1024) | (np.mod(hidden, 128) > 0), 64, 128)
    heads = hidden // head
    ffn = (hidden * 7 // 2 + 128) // 256 * 256
    att = Attention(_whole(heads), _whole(np.gcd(heads, 8)), _whole(head))
    group = LayerGroup(layers, att, Mlp(_whole(ffn)), Norm())
    return Model("llama-like", "llama", hidden, (group,), vocab, tied, POSITIONS, source="a shape made from a size")


def _whole(value: Any) -> Count:
    """A NumPy number as a Python one; an array as it is."""
    return int(value) if np.ndim(value) == 0 else value


def shape_for(params: float, field: str = "model") -> Model:
    """A plausible Llama-like model of about `params` parameters, which says in `notes` what it is."""
    if not SMALLEST <= params <= LARGEST:
        near = "1000T" if params > LARGEST else "1M"
        raise BadInput(Problem(field, phrase("problem.size", params=f"{params:g}"), near))
    if WIDTH_FROM <= params <= WIDTH_TO:
        chosen = (WIDTH, _depth(params, WIDTH, VOCAB, tied=False), VOCAB, False)
    else:
        chosen = _plausible(params)
    return _described(shape(*chosen), params)


Shape = tuple[int, int, int, bool]


def _plausible(params: float) -> Shape:
    """Width, depth, vocabulary and tying: of the first vocabulary that allows a plausible shape, the usual aspect."""
    for bounds in (USUAL, LENIENT):
        for vocab, tied in VOCABULARIES:
            made = [(h, _depth(params, h, vocab, tied=tied), vocab, tied) for h in LADDER]
            if fitting := [s for s in made if _is_plausible(s, params, bounds)]:
                return min(fitting, key=lambda s: abs(math.log(s[0] / s[1] / ASPECT)))
    every = [(h, _depth(params, h, v, tied=t), v, t) for v, t in VOCABULARIES for h in LADDER]
    return min(every, key=lambda s: _distance(s, params))


def _is_plausible(made: Shape, params: float, bounds: tuple[float, float, float, float]) -> bool:
    hidden, layers, vocab, tied = made
    low, high, share, distance = bounds
    embeddings, _ = _line(hidden, vocab, tied)
    aspect = low <= hidden / layers <= high
    return aspect and layers > 1 and embeddings <= share * params and _distance(made, params) <= distance


def _distance(made: Shape, params: float) -> float:
    """How far from the size asked for, as a share of it."""
    hidden, layers, vocab, tied = made
    outside, layer = _line(hidden, vocab, tied)
    return abs(outside + layer * layers - params) / params


def _depth(params: float, hidden: int, vocab: int, tied: bool) -> int:
    outside, layer = _line(hidden, vocab, tied)
    return max(1, round((params - outside) / layer))


@functools.cache
def _line(hidden: int, vocab: int, tied: bool) -> tuple[float, float]:
    """Parameters outside the layers and of one layer, from models of one and two layers."""
    from planner.layers.model import parameters  # above spec in the tree; needed only for bare sizes

    one, two = np.ravel(parameters(shape(hidden, np.array([1, 2]), vocab, tied)).value)
    return float(2 * one - two), float(two - one)


def _described(made: Model, params: float) -> Model:
    """The same model with its name, and its shape in words."""
    from planner.layers.model import parameters  # as above

    group, total = made.groups[0], int(parameters(made).value)
    att, one = group.attention, group.count == 1
    note = phrase(
        "model.shape-one" if one else "model.shape", size=units.count_text(params), layers=group.count,
        hidden=made.hidden, heads=att.heads, head_dim=att.head_dim, kv_heads=att.kv_heads, ffn=group.mlp.ffn,
        vocab=made.vocab, tied=Phrase("model.tied" if made.tied else "model.untied"), total=total,
    )  # fmt: skip
    smaller = phrase("model.small-vocabulary", usual=VOCAB)
    remarks = (note,) if (made.vocab, made.tied) == VOCABULARIES[0] else (note, smaller)
    return replace(made, name=units.count_text(params), remarks=remarks)
