"""Settings as people write them in one go: a framework with its engine and version, FSDP's strategy, an optimizer
with where its states live.

`"LLaMA-Factory/DeepSpeed 0.16.3"` is a framework and the engine that shards; `"full_shard auto_wrap"` is what the
Trainer's `--fsdp` takes; `"paged_adamw_8bit"` is bitsandbytes' optimizer whose states the driver pages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from planner.spec.build import spellings
from planner.spec.form import nearby
from planner.spec.stack import known, spelt

#: words that name who shards the states, not whose code runs the model
ENGINES = {"fsdp1": "fsdp1", "fsdp2": "fsdp2", "fsdp": "fsdp", "deepspeed": "zero", "zero": "zero"}
#: FSDP's strategies (torch's ShardingStrategy, as the Trainer writes them): ZeRO stage, whether inside a node only
STRATEGIES = {
    "full_shard": (3, False), "shard_grad_op": (2, False), "no_shard": (0, False), "hybrid_shard": (3, True),
    "hybrid_shard_zero2": (2, True), "full": (3, False), "fully_shard": (3, False),
}  # fmt: skip

_PARTS = re.compile(r"\s*(?:[/,+&]|\bwith\b|\bon\b)\s*")
_ENGINE = re.compile(r"^(fsdp[12]?|deepspeed|zero)(?:-?([0-3]))?$", re.IGNORECASE)
_VERSION = re.compile(r"^v?\d+(?:\.\d+|\.x)+$")
#: words of a name that say nothing of its code
_EMPTY = ("fork", "main", "recipe", "example", "examples", "script", "docs")


@dataclass(frozen=True, slots=True)
class Named:
    """What a framework's text says: whose code, which release ("" where none), and who shards at which ZeRO stage."""

    name: str
    version: str = ""
    engine: str = ""
    stage: int | None = None


def named(text: str) -> Named:
    """The parts of a framework's name; the text itself where nothing in it is known."""
    if _found(text) or "@" in text:
        return Named(text)
    code = release = engine = ""
    stage = None
    for part in _PARTS.split(text):
        kept = []
        said = ""
        for word in part.split():
            shards = _ENGINE.match(word)
            if shards:
                engine = engine or ENGINES[shards[1].lower()]
                stage = int(shards[2]) if shards[2] else stage
            elif _VERSION.match(word):
                said = word
            elif word.lower() not in _EMPTY:
                kept.append(word)
        own = _found(" ".join(kept)) or next((one for one in map(_found, kept) if one), "")
        if own and not code:
            code, release = own, said
        elif own and said and nearby()["recipe.framework"].get(code) == own:
            code, release = own, said  # what the first is built upon, with a release: a recipe of its own
    return Named(code or ("deepspeed" if engine == "zero" else "pytorch" if engine else text), release, engine, stage)


def _found(words: str) -> str:
    """The framework that some words mean: with a recipe of its own, or built upon one that has."""
    word = spelt(words)
    word = spellings().get("recipe.framework", {}).get(word, word)
    stack = known(word)
    if stack:
        return stack.id
    return word if word in nearby()["recipe.framework"] else ""


def strategy(text: str) -> tuple[int, bool] | None:
    """ZeRO stage of FSDP's strategy, and whether it shards inside a node only; None where the text is none."""
    words = (word.strip().lower().replace("-", "_") for word in re.split(r"[\s,]+", text))
    return next((STRATEGIES[word] for word in words if word in STRATEGIES), None)


@dataclass(frozen=True, slots=True)
class Stepped:
    """An optimizer's text: its name, whether the driver pages its states, whether each weight steps in the backward."""

    name: str
    paged: bool = False
    in_backward: bool = False


def optimizer(text: str) -> Stepped:
    """The parts of an optimizer's text."""
    plain = re.sub(r"\([^)]*\)", " ", text).lower()
    backward = bool(re.search(r"in[_ -]?(?:bwd|backward)|fused[_ ]backward|layer-?wise", plain))
    words = [w for w in re.split(r"[\s+]+", plain) if w and not re.search(r"bwd|backward|optimizer|layer-?wise", w)]
    words = [w for w in words if w not in ("distributed", "with", "fused", "cpu", "paged")]
    name = words[0] if words else plain.strip()
    return Stepped(re.sub(r"^paged_|_paged$", "", name), "paged" in plain, backward)
