"""Training stacks as data: what a framework does by default that decides memory. One file a stack."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from planner.errors import unknown
from planner.i18n import current

FOLDER = Path(__file__).parent.parent / "data" / "stacks"


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack's habits. Sizes in elements or bytes as the field's name says.

    norm_kernels, mlp_kernels   "composed" (plain model code) or "fused"
    root_group          FSDP: "shared" (embedding, head and final norm gathered together, whole step) or
                        "separate" (each gathered when used)
    reshard_last        FSDP: the last layer is resharded after the forward like the others
    loss_inside_root    FSDP: the loss is computed inside the root module, so the next layer is prefetched before it
    keeps_last_hidden   the last hidden state is still referenced at the loss (autocast)
    gathered_input      sequence parallel: the gathered input of a linear is kept whole
    vocab_multiple      the vocabulary is padded to this multiple of tp; 0 leaves it
    persistent_grads    gradient buffers live for the whole run
    fused_wgrad         weight gradients are added into the buffer by the matrix product itself
    dummy_wgrads        one placeholder gradient a distinct weight shape stays cached (Transformer Engine)
    bucket_elements, bucket_copies   communication buckets of ZeRO 1 to 3
    live_elements, prefetch_elements   ZeRO-3: gathered parameters kept at once
    loss_bytes          B a logit of a loss path, [end of the forward, its backward], where it differs from the usual
    """

    id: str
    title: str
    source: str
    title_zh: str = ""
    aliases: tuple[str, ...] = ()
    notes: str = ""
    norm_kernels: str = "composed"
    mlp_kernels: str = "composed"
    root_group: str = "shared"
    reshard_last: bool = True
    loss_inside_root: bool = False
    keeps_last_hidden: bool = False
    gathered_input: bool = True
    vocab_multiple: int = 0
    persistent_grads: bool = False
    fused_wgrad: bool = False
    dummy_wgrads: bool = False
    ddp_bucket_copy: bool = True
    bucket_elements: float = 0.0
    bucket_copies: float = 0.0
    live_elements: float = 0.0
    prefetch_elements: float = 0.0
    allocator_kind: str = "one-stream"
    data_parallel: str = "fsdp2"
    zero: int = 3
    precision: str = "autocast-bf16"
    grads_16bit: str = "bf16"
    optimizer_impl: str = "fused"
    loss: str = "full-logits"
    sequence_parallel: bool = False
    loss_bytes: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def label(self) -> str:
        """Its title in the language in use."""
        return self.title_zh if current() == "zh" and self.title_zh else self.title


@functools.lru_cache(maxsize=1)
def stacks() -> dict[str, Stack]:
    """Every stack by id."""
    names = {f.name for f in fields(Stack)}
    found = {}
    for path in sorted(FOLDER.glob("*.toml")):
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        extra = sorted(set(raw) - names)
        if extra:
            raise ValueError(f"{path.name}: unknown fields {extra}")
        raw["aliases"] = tuple(raw.get("aliases", ()))
        found[path.stem] = Stack(id=path.stem, **raw)
    return found


def spelt(name: str) -> str:
    """A stack's name as it is compared: lower case, words joined by "-", without the version after "@"."""
    return re.sub(r"[\s_]+", "-", name.strip().lower().split("@")[0])


@functools.cache
def _by_name() -> dict[str, str]:
    """Every id and alias -> id."""
    return {spelt(a): one.id for one in stacks().values() for a in (*one.aliases, one.id)}


def known(name: str) -> Stack | None:
    """The stack of that id or alias, or None."""
    id = _by_name().get(spelt(name))
    return stacks()[id] if id else None


def stack(name: str, field: str = "recipe.framework") -> Stack:
    """The stack of that id or alias; raises UnknownPreset with the nearest name."""
    found = known(name)
    if found is None:
        raise unknown(field, name, stacks())
    return found
