"""From a Hugging Face config.json, which anyone may have written, to a Model: all problems at once, never a traceback.

What comes in is bounded first (size, depth), then checked key by key through pydantic, then key against key.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from planner.errors import BadInput, Problem, UnsupportedArchitecture, json_error, nearest
from planner.i18n import Phrase, Said, phrase, t
from planner.spec.architectures import ACTIVATIONS, ARCHITECTURES, Architecture, Published
from planner.spec.decoder import DECODER
from planner.spec.model import Model
from planner.spec.outside import KIND as OUTSIDE_KIND
from planner.spec.outside import OUTSIDE, keys_of, word_of

MAX_BYTES = 1_000_000
MAX_DEPTH = 20

#: configurations with several parts, and the architecture of the part that is read
MULTIMODAL = {"gemma3": "gemma3_text"}

#: where other such configurations keep their text part, and what its kinds are as models of their own
TEXT_PARTS = ("text_config", "llm_config", "language_config")
TEXT_KINDS = {
    "qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text",
}  # fmt: skip

#: every architecture by model_type: published ones, and a decoder by its parts
KNOWN: dict[str, Architecture] = {**ARCHITECTURES, "decoder": DECODER, OUTSIDE_KIND: OUTSIDE}

_EXAMPLE = '{"model_type": "llama", "hidden_size": 4096, ...}'

#: keys whose null means "none" in transformers rather than "the default"
_NULL_IS_NONE = {
    "num_key_value_heads", "head_dim", "n_inner", "sliding_window", "attn_logit_softcapping", "final_logit_softcapping",
}  # fmt: skip
#: keys that decide the number of parameters: where the default of one is used, the model says so
_SHAPE = ("num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")
#: a width, and the heads that share it
_WIDTHS = {"hidden_size": "num_attention_heads", "n_embd": "n_head"}
_ACTIVATION = ("hidden_activation", "activation_function", "hidden_act")


@dataclass(frozen=True, slots=True)
class _Found:
    """The part of a configuration to read: its architecture, its keys, where it stands, and what was assumed."""

    kind: str
    keys: dict[str, Any]
    where: str
    remarks: tuple[Said, ...] = ()
    guessed: bool = False


def read_config(given: str | bytes | Mapping[str, Any], name: str | None = None, field: str = "model") -> Model:
    """The model that a config.json describes; raises BadInput or UnsupportedArchitecture naming `field`.key."""
    published = _bounded(given, field)
    found = _find(published, field)
    made = _checked(found)
    shape = KNOWN[found.kind].build(made)
    stated = published.get("_name_or_path")
    title = name or (stated[:200] if isinstance(stated, str) and stated else t("model.unnamed", kind=found.kind))
    remarks = (*found.remarks, *_defaults_used(made), *shape.remarks)
    return replace(shape, name=title, family=found.kind, remarks=remarks, config=Published(_finite(published)))


# What may come in.


def _bounded(given: str | bytes | Mapping[str, Any], field: str) -> dict[str, Any]:
    """The JSON object, at most 1 MB of text and 20 levels deep."""
    text = given if isinstance(given, str | bytes) else _as_text(given, field)
    if len(text) > MAX_BYTES:
        raise _bad(field, phrase("problem.config.large", most=MAX_BYTES), Phrase("near.config-size"))
    try:
        plain = text.decode("utf-8") if isinstance(text, bytes) else text
        tree = json.loads(plain.removeprefix("\ufeff"))
    except UnicodeDecodeError:
        raise _bad(field, Phrase("problem.config.not-utf8"), _EXAMPLE) from None
    except RecursionError:
        raise _bad(field, Phrase("problem.config.deep"), phrase("near.levels", levels=MAX_DEPTH)) from None
    except json.JSONDecodeError as error:
        at = {"line": error.lineno, "column": error.colno}
        problem = phrase("problem.config.not-json", error=json_error(error), **at)
        raise _bad(field, problem, _EXAMPLE) from None
    except ValueError:
        raise _bad(field, Phrase("problem.config.digits"), Phrase("near.shorter-number")) from None
    if not isinstance(tree, dict):
        raise _bad(field, phrase("problem.config.object", value=_shown(tree)), _EXAMPLE)
    if _too_deep(tree):
        raise _bad(field, Phrase("problem.config.deep"), phrase("near.levels", levels=MAX_DEPTH))
    return tree


def _as_text(given: Mapping[str, Any], field: str) -> str:
    """A mapping as JSON, so that it meets the same bounds as a file."""
    try:
        return json.dumps(dict(given))
    except RecursionError:
        raise _bad(field, Phrase("problem.config.deep-object"), phrase("near.levels", levels=MAX_DEPTH)) from None
    except (TypeError, ValueError):
        raise _bad(field, Phrase("problem.config.not-plain"), _EXAMPLE) from None


def _too_deep(tree: Any) -> bool:
    level = [tree]
    for _ in range(MAX_DEPTH):
        children = (v.values() if isinstance(v, dict) else v for v in level)
        level = [value for inside in children for value in inside if isinstance(value, dict | list)]
    return bool(level)


def _finite(tree: Any) -> Any:
    """The same tree with null for NaN and infinities, which JSON does not have."""
    if isinstance(tree, dict):
        return {key: _finite(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_finite(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


# Which architecture it is.


def _find(published: dict[str, Any], field: str) -> _Found:
    kind = published.get("model_type")
    if kind is None:
        return _guess(published, field)
    if not isinstance(kind, str):
        raise _bad(f"{field}.model_type", phrase("problem.config.not-name", value=_shown(kind)), "llama")
    if kind in MULTIMODAL:
        text, where = published.get("text_config"), f"{field}.text_config"
        if not isinstance(text, dict):
            raise _bad(where, phrase("problem.config.text-part", kind=kind), Phrase("near.text-config"))
        beside = ARCHITECTURES[MULTIMODAL[kind]].config.model_fields.keys() & published.keys()
        text = {**text, **{key: published[key] for key in beside}}  # where overrides are written, and newer files tie
        return _Found(MULTIMODAL[kind], text, where, (phrase("model.text-part", kind=kind),))
    if kind not in KNOWN and (inner := _text_inside(kind, published, field)):
        return inner
    if kind not in KNOWN and (word := word_of(kind, published)):
        return _Found(OUTSIDE_KIND, keys_of(kind, published, word), field)
    if kind not in KNOWN:
        close = nearest(kind[:100], ARCHITECTURES) or ", ".join(sorted(ARCHITECTURES))
        problem = phrase("problem.config.architecture", value=_shown(kind))
        raise UnsupportedArchitecture(Problem(f"{field}.model_type", problem, close))
    return _Found(kind, published, field)


def _text_inside(kind: str, published: dict[str, Any], field: str) -> _Found | None:
    """The text part of a configuration of several parts, where it is of a kind that can be read."""
    name = next((key for key in TEXT_PARTS if isinstance(published.get(key), dict)), None)
    if name is None:
        return None
    text = dict(published[name])
    stated = text.get("model_type")
    if isinstance(stated, str):
        text["model_type"] = TEXT_KINDS.get(stated, stated)
    if "tie_word_embeddings" in published:
        text.setdefault("tie_word_embeddings", published["tie_word_embeddings"])
    found = _find(text, f"{field}.{name}")
    return replace(found, remarks=(phrase("model.text-part", kind=kind), *found.remarks))


def text_part(published: Mapping[str, Any]) -> dict[str, Any]:
    """What of a published configuration the planner reads, as a configuration of its own: a multimodal one's text."""
    found = _find(dict(published), "model")
    return {**found.keys, "model_type": found.kind} if found.kind != published.get("model_type") else dict(published)


def _guess(published: dict[str, Any], field: str) -> _Found:
    """Without a model_type: what `architectures` names, else Llama-like."""
    names = published.get("architectures")
    first = names[0] if isinstance(names, list) and names else None
    by_class = {f"{kind.replace('_', '')}forcausallm": kind for kind in ARCHITECTURES}
    kind = by_class.get(first.lower()) if isinstance(first, str) else None
    note = phrase("model.guessed", kind=kind) if kind else Phrase("model.guessed-llama")
    return _Found(kind or "llama", published, field, (note,), guessed=True)


# Key by key, then key against key.


def _checked(found: _Found) -> Any:
    """The keys as the architecture's pydantic model; raises BadInput with every problem there is."""
    architecture = KNOWN[found.kind]
    schema = architecture.config
    keys, written = dict(found.keys), {}
    # The other spelling wins where both are there, as in transformers: it is what an override is written in.
    for other, own in architecture.spellings:
        if other in keys:
            keys[own], written[own] = keys.pop(other), other
    optional = {k for k, f in schema.model_fields.items() if not f.is_required() and k not in _NULL_IS_NONE}
    keys = {k: v for k, v in keys.items() if k in schema.model_fields and not (v is None and k in optional)}
    wrong: dict[str, tuple[Said, str]] = {}
    made = None
    try:
        made = schema.model_validate(keys)
    except ValidationError as error:
        for entry in error.errors(include_url=False, include_context=False):
            key = str(entry["loc"][0])
            wrong.setdefault(key, _said(entry["type"], keys.get(key), _schema(schema)[key]))
    defaults = {k: f.default for k, f in schema.model_fields.items() if not f.is_required()}
    sound = {k: v for k, v in {**defaults, **keys}.items() if k not in wrong and v is not None}
    problems = {k: (what, _fitting(k, close, sound)) for k, (what, close) in wrong.items()}
    problems.update(_conflicts(sound))
    listed = [Problem(f"{found.where}.{written.get(k, k)}", *about) for k, about in problems.items()]
    if listed and found.guessed:
        said = phrase("problem.config.missing-type", kind=found.kind)
        listed.insert(0, Problem(f"{found.where}.model_type", said, found.kind))
    if listed:
        raise BadInput(listed)
    return made


def _conflicts(sound: dict[str, Any]) -> dict[str, tuple[Said, str]]:
    """Problems between keys that are each right by themselves."""
    found: dict[str, tuple[Said, str]] = {}
    act = next((key for key in _ACTIVATION if key in sound), None)
    if act and sound[act] not in ACTIVATIONS:
        close = nearest(sound[act][:100], ACTIVATIONS) or ", ".join(ACTIVATIONS)
        found[act] = (phrase("problem.config.activation", value=_shown(sound[act])), close)
    heads, kv = sound.get("num_attention_heads"), sound.get("num_key_value_heads")
    if heads and kv and heads % kv:
        close = _fitting("num_key_value_heads", str(kv), sound)
        found["num_key_value_heads"] = (phrase("problem.config.uneven-heads", heads=heads, kv_heads=kv), close)
    for wide, many in _WIDTHS.items():
        hidden, heads = sound.get(wide), sound.get(many)
        if hidden and heads and not sound.get("head_dim") and hidden % heads:
            problem = phrase("problem.config.no-multiple", hidden=hidden, many=many, heads=heads)
            found[wide] = (problem, _fitting(wide, str(hidden), sound))
    experts, chosen = sound.get("num_experts", sound.get("num_local_experts")), sound.get("num_experts_per_tok")
    if experts and chosen and chosen > experts:
        found["num_experts_per_tok"] = (phrase("problem.config.experts", chosen=chosen, experts=experts), str(experts))
    return found


def _fitting(key: str, close: str, sound: dict[str, Any]) -> str:
    """The value nearest to `close` that also goes with the keys that are right."""
    if not close.isdecimal() or key not in (*_WIDTHS, *_WIDTHS.values(), "num_key_value_heads"):
        return close
    wanted, kv = int(close), sound.get("num_key_value_heads")
    if heads := sound.get(_WIDTHS.get(key, "")):
        return close if sound.get("head_dim") else str(max(1, round(wanted / heads)) * heads)
    if key == "num_key_value_heads":
        allowed = _divisors(sound.get("num_attention_heads"))
    else:
        hidden = next((sound[wide] for wide, many in _WIDTHS.items() if many == key and wide in sound), None)
        allowed = [] if sound.get("head_dim") else [n for n in _divisors(hidden) if n % (kv or 1) == 0]
        wanted = max(1, round(wanted / (kv or 1))) * (kv or 1)
    return str(min(allowed, key=lambda n: abs(n - wanted), default=wanted))


def _divisors(number: int | None) -> list[int]:
    small = [n for n in range(1, math.isqrt(number or 0) + 1) if (number or 0) % n == 0]
    return sorted({*small, *((number or 0) // n for n in small)})


def _defaults_used(made: BaseModel) -> tuple[Said, ...]:
    used = [f"{key} {value}" for key in _SHAPE
            if key not in made.model_fields_set and (value := getattr(made, key, None)) is not None]  # fmt: skip
    return (phrase("model.defaults", used=", ".join(used)),) if used else ()


# What is said of a problem.


@functools.cache
def _schema(config: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """For each key its JSON type, bounds, default and examples."""
    properties = config.model_json_schema()["properties"]
    return {key: {**stated.get("anyOf", [{}])[0], **stated} for key, stated in properties.items()}


def _said(kind: str, value: Any, schema: dict[str, Any]) -> tuple[Said, str]:
    """The problem and the nearest valid value."""
    close = _nearest(value, schema)
    if kind == "missing":
        return Phrase("problem.config.missing"), close
    if kind in ("greater_than_equal", "greater_than"):
        key, least = ("near.at-least", schema["minimum"]) if "minimum" in schema else ("near.above", 0)
        least = phrase(key, value=least)
        return phrase("problem.config.too-small", value=_shown(value), least=least), close
    if kind == "less_than_equal":
        return phrase("problem.config.too-large", value=_shown(value), most=schema["maximum"]), close
    return phrase("problem.not-a", value=_shown(value), needed=Phrase(f"needed.{schema['type']}")), close


def _nearest(value: Any, schema: dict[str, Any]) -> str:
    number = _number(value) if schema["type"] in ("integer", "number") else None
    if number is not None and "minimum" in schema:
        low, high = schema["minimum"], schema["maximum"]
        inside = low if number <= low else high if number >= high else number
        return str(round(inside) if schema["type"] == "integer" else inside)
    if schema["type"] == "boolean" and str(value).lower() in ("true", "1", "false", "0"):
        return "true" if str(value).lower() in ("true", "1") else "false"
    usual = schema["default"] if "default" in schema else schema["examples"][0]
    return usual if isinstance(usual, str) else json.dumps(usual)


def _number(value: Any) -> int | float | None:
    """The number someone meant: 4096, 4096.0, "4096", "4,096"; None when there is none."""
    if isinstance(value, str) and len(value) < 40:
        try:
            value = float(value.replace(",", ""))
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    return value


def _shown(value: Any) -> Said:
    """A value for a message: short whatever it is."""
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:37] + "...")
    if isinstance(value, dict | list):
        return Phrase("value.object" if isinstance(value, dict) else "value.list")
    if isinstance(value, int) and value.bit_length() > 64:
        return Phrase("value.long-number")
    return json.dumps(value)


def _bad(field: str, problem: Said, close: Said | None) -> BadInput:
    return BadInput(Problem(field, problem, close))
