"""The parts of a sum, read from the very quantity that was summed: no second list of what memory is made of."""

from __future__ import annotations

from collections.abc import Iterator

from planner.quantity import Formula, Quantity, binding, total

#: by the first word of a part's name: the kind that people see it under, in the order it is stacked
PARTS: dict[str, tuple[str, ...]] = {
    "weights": ("weights", "weights_outside", "weights_linear", "weights_other", "adapters"),
    "gradients": (
        "gradients", "gradients_outside", "layer_gradients", "head_gradient", "new_gradients", "tied_gradients",
        "embedding_gradients", "root_gradients",
    ),
    "optimizer_states": ("optimizer_states", "master"),
    "activations": (
        "kept_by_layers", "held_gradients", "former_inputs", "final_norm_saved", "embedding_mask",
        "waiting_microbatches", "ids", "rope", "shared_mask", "last_hidden",
    ),
    "layer_at_work": ("working", "layer_input"),
    "logits_and_loss": ("loss_tensors", "kept_logits"),
    "weight_copies": ("weight_copies", "head_copy"),
    "gathered_weights": (
        "gathered_embedding", "gathered_root", "gathered_layer", "gathered_unsharded", "prefetched_layer",
        "gather_buffer",
    ),
    "buffers": ("reduce_input", "reduce_output", "zero_buckets", "ddp_buckets", "buckets", "dummy_wgrads"),
    "temporaries": (
        "foreach_copy", "forloop_copies", "fp32_gradient_slice", "fp32_gradients", "embedding_sort", "unpacked_weight",
    ),
    "cached_blocks": ("cached",),
    "workspaces": ("workspaces", "gemm_workspaces"),
    "cuda_context": ("context",),
    "nccl": ("nccl",),
}  # fmt: skip

_KIND = {name: kind for kind, names in PARTS.items() for name in names}


def kind(part: Quantity) -> str:
    """The kind a part is shown under; raises KeyError for a part that no kind claims."""
    name = part.name.split(" (")[0]
    return _KIND["working"] if name.endswith(".working") else _KIND[name]


def leaves(quantity: Quantity) -> Iterator[Quantity]:
    """The named parts of a sum; of a largest, the parts of what set it. Single values only."""
    if isinstance(quantity.formula, Formula) and quantity.formula.name == "where_layers":
        size = quantity.inputs["size"]
        if quantity.value and isinstance(size, Quantity):
            yield from leaves(size)
        return
    if quantity.name.split(" (")[0] in _KIND or quantity.formula not in ("total", "largest"):
        yield quantity
        return
    chosen = [binding(quantity)] if quantity.formula == "largest" else list(quantity.inputs.values())
    for part in chosen:
        yield from leaves(part)  # type: ignore[arg-type]


def breakdown(quantity: Quantity) -> dict[str, Quantity]:
    """The sum by kind, in stacking order; kinds with nothing in them are left out. Adds up to the quantity."""
    found: dict[str, list[Quantity]] = {}
    for leaf in leaves(quantity):
        found.setdefault(kind(leaf), []).append(leaf)
    sums = {k: total(k, found[k]) for k in PARTS if k in found}
    return {k: s for k, s in sums.items() if s.value != 0}
