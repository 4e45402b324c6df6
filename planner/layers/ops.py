"""The two things a part of a block is described by: its weights, and its operations in forward order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from planner.formulas import activations as A
from planner.formulas import parameters as P
from planner.quantity import Like, Quantity

#: B an element
FP32 = 4


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter tensor of `rows` inputs and `cols` outputs (a vector has one row), `copies` times (experts).

    split   tensor parallelism divides it
    linear  a matrix product uses it: autocast casts it, quantisation packs it, an adapter can sit on it
    expert  it belongs to the experts that expert parallelism spreads
    """

    name: str
    rows: Like
    cols: Like
    copies: Like = 1
    split: bool = True
    linear: bool = True
    expert: bool = False


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of a layer.

    saved     what autograd keeps of it until its backward, B/token (a tensor that two operations share counts once)
    working   what lives at the heaviest instant of its own backward besides the saved tensors of earlier
              operations: its own saved tensors still needed, and temporaries; B/token. Empty: never the peak.
    makes_own the gradients of its own weights exist at that instant too
    """

    name: str
    weights: tuple[Weight, ...] = ()
    saved: tuple[Quantity, ...] = ()
    working: tuple[Quantity, ...] = ()
    makes_own: bool = False


@dataclass(frozen=True, slots=True)
class Storage:
    """How the stack stores a layer's tensors: widths in B/element, kernels by name, and how they are split.

    act             inputs of matrix products
    stream          the residual stream
    autocast        1 where torch.autocast casts on the fly, else 0
    kernels         for gated MLPs: "composed" (Hugging Face eager code), "fused" (Transformer Engine),
                    "in-place" (Liger) or "in-place-lora" (Unsloth)
    mlp_tile        share of the tokens that a tiled MLP takes at once; 1 where it is not tiled
    norm_kernels    "composed" or "fused" for RMSNorm
    attention       flash, mem-efficient, math or eager
    tp, sp          tensor-parallel ranks; 1 where norms and residual are split over them (sequence parallel)
    gathered_input  1 where the gathered input of a linear is kept whole (DTensor), 0 where it is gathered again
    trained         False where the base is frozen (adapters)
    dropout         whether residual dropout masks are kept; the same for attention probabilities
    etp, ring       ranks that share each expert; context-parallel ranks that hand keys and values round, else 1
    wide_norms      LayerNorm runs in fp32 on a 16-bit stream (autocast)
    fused_softmax   unfused attention keeps its softmax in the compute dtype alone
    cast            width of a linear's input as it keeps it, where that is a cast of its own; None: the tensor itself
    weighted_experts  routing weights are applied inside the experts
    wide_scores     routing weights are applied to fp32 copies of the experts' outputs
    crowding        tokens that a rank's experts receive over their mean, in a layer that is recomputed
    adapted         names of the weights that carry an adapter, its rank and the width its inputs are cast to
    adapted_parts   query, key and value as far as they carry one, where a stack fuses them by itself
    adapter_keeps   what the adapters' method keeps of a projection (recipe.METHODS)
    adapter_casts   an adapter casts its input; else it keeps the very tensor that it reads
    adapter_dropout each adapter drops out a part of its input, and keeps the rest and the mask
    prompted        queries look at a learned prompt too (LLaMA-Adapter)
    scaled          every linear has a trained scale and bias, and norms train (LLaMA-Adapter V2)
    packed_inputs   linears of a packed base keep their input (bitsandbytes before 0.43)
    """

    act: Any
    stream: Any
    autocast: Any
    kernels: str = "composed"
    norm_kernels: str = "composed"
    mlp_tile: Any = 1
    attention: str = "flash"
    tp: Any = 1
    sp: Any = 0
    gathered_input: Any = 1
    trained: bool = True
    dropout: bool = False
    attention_dropout: bool = False
    adapted: frozenset[str] = frozenset()
    rank: Any = 0
    adapter_act: Any = 4
    etp: Any = 1
    ring: Any = 1
    wide_norms: bool = False
    adapted_parts: frozenset[str] = frozenset()
    adapter_casts: bool = True
    adapter_keeps: str = "input"
    adapter_dropout: bool = False
    prompted: bool = False
    scaled: bool = False
    packed_inputs: bool = False
    fused_softmax: bool = False
    weighted_experts: bool = False
    wide_scores: bool = False
    crowding: Any = 1
    cast: Any = None

    @property
    def linear(self) -> Any:
        """Width of a linear's input as it is kept."""
        return self.act if self.cast is None else self.cast

    @property
    def inputs_kept(self) -> bool:
        """Whether a linear keeps its input, for the gradient of its weight or although nobody needs it."""
        return self.trained or self.packed_inputs


def rank_channels(names: Iterable[str], store: Storage) -> tuple[Quantity, ...]:
    """The r numbers a token between the two matrices of each adapter on `names`."""
    return tuple(
        A.kept(called=f"{n}.adapter_rank", channels=store.rank, width=store.adapter_act)
        for n in names
        if n in store.adapted
    )


def adapter_results(projections: Iterable[Weight], store: Storage) -> tuple[Quantity, ...]:
    """DoRA scales the results of base and adapter by a trained magnitude, and keeps both for its gradient."""
    if store.adapter_keeps != "results":
        return ()
    return tuple(
        A.kept(called=f"{w.name}.{of}_result", channels=P.local_channels(
            called=f"{w.name}.channels", channels=w.cols, tp=store.tp if w.split else 1), width=width)
        for w in projections if w.name in store.adapted
        for of, width in (("base", store.act), ("adapter", store.adapter_act))
    )  # fmt: skip


def dropout_mask(name: str, hidden: Like, store: Storage) -> tuple[Quantity, ...]:
    """One byte an element of the residual dropout mask, where dropout is on."""
    if not store.dropout:
        return ()
    ways = A.sequence_ways(tp=store.tp, sequence_parallel=store.sp)
    local = P.local_channels(called="dropout.channels", channels=hidden, tp=ways)
    return (A.kept(called=f"{name}.dropout_mask", channels=local, width=1),)


def unscaled(name: str, channels: Like, store: Storage) -> tuple[Quantity, ...]:
    """What a linear gives before a trained scale, which the scale's gradient needs."""
    return (A.kept(called=f"{name}.adapter_unscaled", channels=channels, width=store.act),) if store.scaled else ()


def adapter_inputs(readers: Iterable[str], channels: Like, store: Storage) -> tuple[Quantity, ...]:
    """What the adapters on linears that read one tensor keep of it: each its cast or what dropout left of it, with the
    mask; else the tensor itself, once."""
    reads = not store.trained and store.adapter_keeps not in ("sums", "none")
    names = [name for name in readers if name in store.adapted and reads]
    if not (store.adapter_casts or store.adapter_dropout):
        names = [] if store.inputs_kept else names[:1]
    kept = [A.kept(called=f"{name}.adapter_input", channels=channels, width=store.adapter_act) for name in names]
    dropped = names if store.adapter_dropout else []
    return (*kept, *(A.kept(called=f"{name}.adapter_mask", channels=channels, width=1) for name in dropped))
