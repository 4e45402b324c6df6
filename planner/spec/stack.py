"""Training stacks as data: what a framework does by default that decides memory. One file a stack.

A file may build upon another (`based_on`) and change a few fields, and may be what a stack was in a range of versions
(`versions_of`, `from`, `until`). `[sources]` says of each field where it was read or measured.
"""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from planner.errors import unknown
from planner.i18n import current
from planner.spec.versions import Version, version, within

FOLDER = Path(__file__).parent.parent / "data" / "stacks"


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack's habits. Sizes in elements or bytes as the field's name says.

    norm_kernels, mlp_kernels   "composed" (plain model code), "fused", or a gated MLP whose backward overwrites what it
                        kept: "in-place" (Liger), "in-place-lora" (Unsloth: adapters recompute the product too)
    linear_loss_kernels what norms and MLPs run where the head and its loss are one; "" as without
    root_group          FSDP: "shared" (embedding, head and final norm gathered together, whole step) or
                        "separate" (each gathered when used)
    tensor_parallel     "torch" (DTensor: its loss on split logits, its embedding's whole gradient) or "megatron"
    head_in_chunks      a loss by chunks takes the head by chunks too
    reshard_last        FSDP: the last layer is resharded after the forward like the others
    loss_inside_root    FSDP: the loss is computed inside the root module, so the next layer is prefetched before it
    keeps_last_hidden   the last hidden state is still referenced at the loss (autocast)
    gathered_input      sequence parallel: the gathered input of a linear is kept whole
    vocab_multiple      the vocabulary is padded to this multiple of tp; 0 leaves it
    persistent_grads    gradient buffers live for the whole run
    fused_wgrad         weight gradients are added into the buffer by the matrix product itself
    dummy_wgrads        one placeholder gradient a distinct weight shape stays cached (Transformer Engine)
    own_engine          it shards ZeRO's states itself; other stacks run under DeepSpeed's engine
    bucket_elements, bucket_copies   communication buckets of ZeRO 1 to 3
    live_elements, prefetch_elements   ZeRO-3: gathered parameters kept at once
    loss_bytes          B a logit of a loss path, [end of the forward, its backward], where it differs from the usual;
                        "chunk" is that of the one chunk at work; "fused-ce.te" is the path under that implementation
                        (`loss_impl`)
    empties_cache       the training loop gives cached blocks back every few steps
    keeps_outputs       the training loop still refers to the 16-bit logits while the loss runs backward
    packed_base         how a 4-bit base is stored, where only 4 bits are stated
    packed_head         the head is packed with the layers' weights
    packed_inputs       linears of a packed base keep their input
    unpacked_copies     how often an unpacked weight exists at once
    adapter_dtype       dtype of adapters unless told otherwise; "base": that of the frozen weights that compute
    adapter_dropout     adapters drop out a part of their input
    keeps_graph         the loop still holds the last pass's logits, and with them its graph, through the next forward
    mixed_units         FSDP1: frozen and trained weights share a flat parameter, which has a gradient for all of it
    whole_accumulation  FSDP1: between micro-batches gradients stay whole on each rank (no_sync)
    fused_qkv, expands_heads, parallel_layernorm   model code of its own: one projection for query, key and value;
                        grouped keys and values copied for each query head; models with LayerNorm, rotary positions and
                        no gate have parallel blocks
    wide_norms          RMSNorm multiplies by its weight in fp32
    loss_chunk          tokens of a sequence in one chunk of a chunked loss; 0 for a number of chunks
    reentrant           layers are recomputed by torch's reentrant checkpointing
    fused_softmax       unfused attention keeps its softmax in the compute dtype alone (one kernel with scale and mask)
    weighted_experts    routing weights are applied inside the experts, before the projection out, not to their outputs
    keeps_casts         linears of an 8-bit recipe keep their input as they cast it
    cast_weights        cast weights that stay beside the 16-bit ones: copies of each, in the recipe's width
    main_gradients      16-bit gradients get fp32 copies for the optimizer step
    dropout             probability of dropout where none is stated, for models with learned positions
    gemm_workspaces, grouped_workspaces   matrix product workspaces that torch's allocator holds; more of them where
                        experts run as one grouped product
    loss_chunks_head    a loss by chunks takes the head chunk by chunk, logits are never whole; `loss_sums_wide`: and
                        adds up the gradients of hidden state and head in fp32
    wide_scores         routing weights are applied to fp32 copies of the experts' outputs
    ragged_experts      what an expert-parallel rank receives follows the routing, without a capacity or dropping
    compiled_drops_unread   operator-wise checkpointing of compiled layers keeps no result that nothing there reads
    compiled_fuses      compiled code keeps what fused kernels keep; not where a graph is only traced and run as it is
    every_product_kept  operator-wise checkpointing keeps every matrix product instead of every second one
    exchange_kept       operator-wise checkpointing keeps what the all-to-alls of experts bring
    allocator_one_node  the launcher that sets the allocator's mode is that of a single node
    allocator, attention, optimizer, checkpointing, loss_impl    what it runs with unless told otherwise
    based_on            the stack whose fields this file changes
    versions_of, since, until   the stack this was, from and before a date, a release or both
    sources             by field: where it was read or measured
    """

    id: str
    title: str
    source: str
    title_zh: str = ""
    aliases: tuple[str, ...] = ()
    notes: str = ""
    norm_kernels: str = "composed"
    mlp_kernels: str = "composed"
    linear_loss_kernels: str = ""
    root_group: str = "shared"
    reshard_last: bool = True
    loss_inside_root: bool = False
    tensor_parallel: str = "torch"
    head_in_chunks: bool = False
    keeps_last_hidden: bool = False
    gathered_input: bool = True
    vocab_multiple: int = 0
    persistent_grads: bool = False
    fused_wgrad: bool = False
    dummy_wgrads: bool = False
    ddp_bucket_copy: bool = True
    own_engine: bool = False
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
    keeps_outputs: bool = False
    empties_cache: bool = False
    allocator: str = "native"
    loss_chunks_head: bool = False
    loss_sums_wide: bool = False
    wide_scores: bool = False
    ragged_experts: bool = False
    exchange_kept: bool = False
    every_product_kept: bool = False
    compiled_fuses: bool = True
    compiled_drops_unread: bool = False
    allocator_one_node: bool = False
    attention: str = "sdpa"
    optimizer: str = "adamw"
    checkpointing: str = "none"
    loss_impl: str = ""
    packed_base: str = "nf4"
    packed_head: bool = False
    packed_inputs: bool = False
    unpacked_copies: int = 1
    adapter_dtype: str = "fp32"
    adapter_dropout: bool = False
    keeps_graph: bool = False
    mixed_units: bool = False
    whole_accumulation: bool = False
    fused_qkv: bool = False
    expands_heads: bool = False
    parallel_layernorm: bool = False
    wide_norms: bool = False
    loss_chunk: int = 0
    reentrant: bool = False
    fused_softmax: bool = False
    weighted_experts: bool = False
    main_gradients: bool = False
    keeps_casts: bool = False
    cast_weights: int = 0
    dropout: float = 0.0
    gemm_workspaces: int = 0
    grouped_workspaces: int = 0
    based_on: str = ""
    versions_of: str = ""
    since: tuple[str, ...] = ()
    until: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict, hash=False)
    loss_bytes: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def label(self) -> str:
        """Its title in the language in use."""
        return self.title_zh if current() == "zh" and self.title_zh else self.title


#: what a file that builds upon another does not take from it
OWN = ("aliases", "notes", "versions_of", "from", "until", "sources", "title_zh")
#: loss paths over whole logits, whose bytes a logit a file may state
_PATHS = ("full-logits", "fused-ce", "chunked-ce", "chunk", "chunked-linear-ce")
_TUPLES = ("aliases", "since", "until")


@functools.lru_cache(maxsize=1)
def stacks() -> dict[str, Stack]:
    """Every stack by id."""
    files = {p.stem: tomllib.loads(p.read_text(encoding="utf-8")) for p in sorted(FOLDER.glob("*.toml"))}
    return {id: _stack(id, _whole(id, files)) for id in files}


def _whole(id: str, files: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A file with what it takes from the one it builds upon; tables are joined."""
    own = files[id]
    if "based_on" not in own:
        return own
    below = {k: v for k, v in _whole(own["based_on"], files).items() if k not in OWN}
    return {**below, **own, "loss_bytes": {**below.get("loss_bytes", {}), **own.get("loss_bytes", {})}}


def _stack(id: str, raw: dict[str, Any]) -> Stack:
    named = {"since" if k == "from" else k: v for k, v in raw.items()}
    extra = sorted(set(named) - {f.name for f in fields(Stack)})
    if extra:
        raise ValueError(f"{id}.toml: unknown fields {extra}")
    for name in _TUPLES:
        value = named.get(name, ())
        named[name] = (value,) if isinstance(value, str) else tuple(value)
    return Stack(id=id, **named)


def lineage(stack: Stack) -> tuple[str, ...]:
    """A stack's id and those of the stacks that it builds upon."""
    below = stacks().get(stack.based_on)
    return (stack.id, *(lineage(below) if below else ()))


def of_version(found: Stack, wanted: Version | None) -> Stack:
    """What a stack was at a version; the stack itself, which is the newest, where no file says otherwise."""
    if wanted is None:
        return found
    older = (s for s in stacks().values() if s.versions_of == found.id)
    return next((s for s in older if within(wanted, s.since, s.until)), found)


def versioned(name: str) -> bool:
    """Whether an id or alias is of a stack with recipes for older versions."""
    id = _by_name().get(spelt(name))
    return any(s.versions_of == id for s in stacks().values()) if id else False


def with_loss(found: Stack, impl: str | None, *, compiled: bool) -> Stack:
    """The stack with the loss paths of compiled code ("full-logits.compiled") or an implementation ("fused-ce.te")."""
    marks = ("compiled",) * compiled + tuple(m for m in (impl or found.loss_impl,) if m)
    own = {name: found.loss_bytes[f"{name}.{mark}"] for mark in marks for name in _PATHS
           if f"{name}.{mark}" in found.loss_bytes}  # fmt: skip
    return replace(found, loss_bytes={**found.loss_bytes, **own}) if own else found


def stated_version(name: str) -> Version | None:
    """The version after the "@" of a stack's name."""
    return version(name.partition("@")[2])


def spelt(name: str) -> str:
    """A stack's name as it is compared: lower case, words joined by "-", without the version after "@"."""
    return re.sub(r"[\s_]+", "-", name.strip().lower().split("@")[0])


@functools.cache
def _by_name() -> dict[str, str]:
    """Every id and alias -> id."""
    return {spelt(a): one.id for one in stacks().values() for a in (*one.aliases, one.id)}


def known(name: str) -> Stack | None:
    """The stack of that id or alias, at the version after an "@"; or None."""
    id = _by_name().get(spelt(name))
    return of_version(stacks()[id], stated_version(name)) if id else None


def stack(name: str, field: str = "recipe.framework") -> Stack:
    """The stack of that id or alias; raises UnknownPreset with the nearest name."""
    found = known(name)
    if found is None:
        raise unknown(field, name, stacks())
    return found
