"""Activation checkpointing and offload of saved activations, as the stacks do them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from planner.trace.inside.failure import CannotTrace
from planner.trace.inside.models import Built

_aten = torch.ops.aten
#: what torchtitan's selective policy keeps beside every second matrix product
KEPT = (
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_efficient_attention.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
)


def checkpointing(built: Built, policy: str, adapters: bool) -> None:
    """Wrap the layers by that policy: none, full (a layer a region) or selective-op (torchtitan's)."""
    if policy == "none":
        return
    if policy == "full" and hasattr(built.model, "gradient_checkpointing_enable"):
        if adapters:
            built.model.enable_input_require_grads()
        built.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return
    if policy not in ("full", "selective-op"):
        raise CannotTrace("recipe.checkpointing", "no-policy", policy=policy)
    for layer in built.layers:
        _wrap(layer, _selective if policy == "selective-op" else None)


def _wrap(layer: nn.Module, context: Callable[[], Any] | None) -> None:
    inner = layer.forward
    options: dict[str, Any] = {"use_reentrant": False}
    if context is not None:
        options["context_fn"] = context

    def forward(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(inner, *args, **options, **kwargs)

    layer.forward = forward  # type: ignore[method-assign]


def _selective() -> Any:
    counts = {False: 0, True: 0}

    def decide(ctx: Any, func: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        product = func == _aten.mm.default
        if product:
            counts[ctx.is_recompute] += 1
        keep = func in KEPT or (product and counts[ctx.is_recompute] % 2 == 1)
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(decide)


def offloading(recorder: Any, wanted: bool) -> AbstractContextManager[Any]:
    """Saved tensors go to host memory in the forward and come back for the backward; weights stay."""
    if not wanted:
        return nullcontext()

    def pack(tensor: Tensor) -> Any:
        if not recorder.is_activation(tensor):
            return tensor
        with recorder.host():
            return _Away(torch.empty_like(tensor).copy_(tensor))

    def unpack(kept: Any) -> Tensor:
        return kept.tensor.clone() if isinstance(kept, _Away) else kept

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


class _Away:
    """A tensor in host memory."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor):
        self.tensor = tensor
