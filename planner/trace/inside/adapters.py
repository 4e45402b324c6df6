"""Adapters on a frozen base, through PEFT itself, and a stand-in for a base packed to 4 bits.

The stand-in keeps what bitsandbytes keeps (half a byte a weight and its block scales), unpacks a weight for each matrix
product in either direction and saves nothing for the weight's gradient. Its figures are derived, not measured on
bitsandbytes: kernels that unpack inside the product would need less.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from planner.trace.inside.failure import CannotTrace

_FUSED = ("qkv_proj", "query_key_value", "c_attn")
#: our names of projections -> what model code calls them
PROJECTIONS = {
    "q": ("q_proj", "query", "wq", *_FUSED), "k": ("k_proj", "key", "wk", *_FUSED),
    "v": ("v_proj", "value", "wv", *_FUSED), "o": ("o_proj", "out_proj", "wo", "attention.dense", "attn.c_proj"),
    "gate": ("gate_proj", "w1", "gate_up_proj"),
    "up": ("up_proj", "fc1", "dense_h_to_4h", "c_fc", "w3", "gate_up_proj"),
    "down": ("down_proj", "fc2", "dense_4h_to_h", "mlp.c_proj", "w2"),
}  # fmt: skip


def adapt(model: nn.Module, stated: dict[str, Any]) -> nn.Module:
    """The model with the adapters of a request; its base is frozen."""
    try:
        import peft
    except ImportError as error:
        raise CannotTrace("recipe.peft", "no-peft", install="pip install peft") from error
    if stated["packed"]:
        pack(model, stated["packed"], stated["double_quant"])
    config = peft.LoraConfig(
        task_type="CAUSAL_LM", r=stated["rank"], lora_alpha=2 * stated["rank"], target_modules=_targets(model, stated),
        use_dora=stated["method"] == "dora",
    )  # fmt: skip
    return peft.get_peft_model(model, config, autocast_adapter_dtype=stated["adapter_dtype"] == "fp32")


def _targets(model: nn.Module, stated: dict[str, Any]) -> str | list[str]:
    if stated["targets"] == "all-linear":
        return "all-linear"
    wanted = {name for target in stated["targets"] for name in PROJECTIONS.get(target, ())}
    linears = [n for n, m in model.named_modules() if isinstance(m, nn.Linear) or type(m).__name__ == "Conv1D"]
    chosen = sorted(name for name in wanted if any(n.endswith(f".{name}") for n in linears))
    if not chosen:
        names = sorted({n.rsplit(".", 1)[-1] for n in linears})
        raise CannotTrace("recipe.peft.targets", "no-targets", names=", ".join(names))
    return chosen


class Packed(nn.Linear):
    """A linear whose frozen weight is packed: 4 bits a value, a scale a block of 64 (itself packed if `double`)."""

    def __init__(self, like: nn.Linear, double: bool):
        nn.Module.__init__(self)
        self.in_features, self.out_features = like.in_features, like.out_features
        self.dtype = like.weight.dtype
        size = like.weight.numel()
        packed = torch.empty((size + 1) // 2, 1, dtype=torch.uint8)
        self.weight = nn.Parameter(packed, requires_grad=False)
        blocks = -(-size // 64)
        self.register_buffer("absmax", torch.empty(blocks, dtype=torch.uint8 if double else torch.float32))
        if double:
            self.register_buffer("absmax_of_absmax", torch.empty(-(-blocks // 256), dtype=torch.float32))
        self.bias = like.bias
        if self.bias is not None:
            self.bias.requires_grad_(requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        compute = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else self.dtype
        return _PackedProduct.apply(x.to(compute), self.weight, self.out_features, self.in_features).clone()


class _PackedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, packed: Tensor, rows: int, columns: int) -> Tensor:
        ctx.save_for_backward(packed)
        ctx.sizes = rows, columns
        return torch.nn.functional.linear(x, _unpacked(packed, rows, columns, x.dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (packed,) = ctx.saved_tensors
        rows, columns = ctx.sizes
        return grad @ _unpacked(packed, rows, columns, grad.dtype), None, None, None


def _unpacked(packed: Tensor, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(rows, columns, dtype=dtype, device=packed.device)


def pack(model: nn.Module, kind: str, double: bool) -> None:
    """Pack every linear of the layers; embedding, norms and head stay as they are."""
    if kind not in ("nf4", "nf4-dq"):
        raise CannotTrace("recipe.peft.base_dtype", "no-stand-in", kind=kind)
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and child is not head:
                setattr(parent, name, Packed(child, double))
