"""What a dispatch-level trace cannot see or count by itself: temporaries inside kernels, and operations' flops.

Source of the temporaries: pytorch's flash attention backward (flash_api.cpp: the fp32 accumulator of the query's
gradient, the row sums, and with grouped heads whole-head gradients of key and value), its memory-efficient backward
(delta), its embedding backward (three index arrays, when there are more than 3,072 tokens).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten


def temporaries(func: Any, args: Any) -> list[int]:
    """Bytes of each block that the operation's CUDA kernel allocates and frees before it returns."""
    made = _TEMPORARIES.get(func._overloadpacket)
    return made(args) if made else []


def _up(value: int, multiple: int) -> int:
    return (value + multiple - 1) // multiple * multiple


def _flash_backward(args: Any) -> list[int]:
    query, key = args[1], args[2]
    batch, heads, length, width = query.shape
    kv_heads, kv_length = key.shape[1], key.shape[2]
    rows = _up(length, 128)
    sizes = [batch * rows * heads * _up(width, 32) * 4, batch * heads * rows * 4]
    if kv_heads != heads:
        sizes += [batch * kv_length * heads * width * query.element_size()] * 2
    return sizes


def _efficient_backward(args: Any) -> list[int]:
    batch, heads, length, _ = args[1].shape
    return [batch * heads * length * 4]


def _embedding_backward(args: Any) -> list[int]:
    indices = args[1].numel()
    return [indices * 8] * 3 if indices > 3072 else []


_TEMPORARIES: dict[Any, Callable[[Any], list[int]]] = {
    _aten._scaled_dot_product_flash_attention_backward: _flash_backward,
    _aten._scaled_dot_product_efficient_attention_backward: _efficient_backward,
    _aten.embedding_dense_backward: _embedding_backward,
}


def _grouped_mm(a: Any, b: Any, *rest: Any, out_val: Any = None, **more: Any) -> int:
    """[M, K] x [E, K, N], or for the weights' gradient [K, M] x [M, N]: 2 M K N either way."""
    return 2 * int(a.shape[-2]) * int(a.shape[-1]) * int(b.shape[-1])


#: floating point operations that torch's own registry lacks
FLOPS: dict[str, Callable[..., int]] = {"aten._grouped_mm": _grouped_mm}
