"""Gives fake CPU tensors the operations that a CUDA build of torch would run, by torch's public registration only.

Five things differ between the builds at the level that a trace sees: which attention kernel runs, which operations
autocast sends to fp32, fused RMSNorm (composed on the CPU), the dtype of layer norm's statistics, and dropout (one
operation with a mask of one byte an element). Each is registered
through torch.library for the CPU key, in the worker process and nowhere else, so the trace needs no GPU, no CUDA
build and no patch. Equality with traces on fake CUDA tensors is a test (tests/oracles/test_same_as_cuda.py).

Left out: fp16 softmax keeps one transient fp32 copy that CUDA fuses.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.library import Library

_aten = torch.ops.aten
_HALF = (torch.bfloat16, torch.float16)

#: operations that CUDA autocast runs in fp32 (docs: "CUDA Ops that can autocast to float32"), as far as models use them
FP32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh",
    "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm",
    "group_norm", "cosine_similarity", "nll_loss", "nll_loss2d", "kl_div", "l1_loss", "smooth_l1_loss", "mse_loss",
    "huber_loss", "binary_cross_entropy_with_logits", "cdist", "logsumexp", "norm.Scalar", "norm.ScalarOpt_dim",
)  # fmt: skip
#: operations whose result CUDA autocast makes fp32 unless a dtype is asked for
FP32_BY_DTYPE = (
    "softmax.int", "log_softmax.int", "cumsum", "cumprod", "prod", "sum", "sum.dim_IntList", "linalg_vector_norm",
)  # fmt: skip
#: operations that only CPU autocast touches
UNTOUCHED = ("cross_entropy_loss",)

_libraries: list[Library] = []


def install(attention: str) -> None:
    """Register the CUDA build's behaviour; `attention` is flash, mem-efficient, cudnn or math. Once a process."""
    library = Library("aten", "IMPL")  # torch keeps registrations as long as this lives
    _libraries.append(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _attention(library, attention)
        _norms(library)
        library.impl("dropout", _dropout, "AutogradCPU", allow_override=True)
        _autocast(library)
        # torch has no meta kernel for it, and would run it on real tensors of the same sizes; it works in place
        library.impl("_fused_sgd_", lambda *given, **named: None, "Meta")


# Attention


def _attention(library: Library, backend: str) -> None:
    def attend(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        return _route(backend, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)

    for dispatch in ("AutogradCPU", "CPU"):
        library.impl("scaled_dot_product_attention", attend, dispatch, allow_override=True)


def chosen(backend: str, half: bool, masked: bool, grouped: bool) -> str:
    """The kernel that torch takes: flash needs 16 bit and no mask, the memory-efficient one has no grouped heads."""
    if backend == "flash" and (masked or not half):
        backend = "mem-efficient"
    return "math" if backend == "mem-efficient" and grouped else backend


def _route(
    backend: str, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, causal: bool,
    scale: float | None, gqa: bool,
) -> Tensor:  # fmt: skip
    grouped = gqa and query.size(-3) != key.size(-3)
    kernel = chosen(backend, query.dtype in _HALF, mask is not None, grouped)
    if kernel == "flash":
        return _flash(query, key, value, dropout, causal, scale)
    keeps = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    if kernel == "cudnn":
        return _aten._scaled_dot_product_cudnn_attention(
            query, key, value, mask, keeps, dropout, causal, scale=scale
        )[0]
    if grouped:
        times = query.size(-3) // key.size(-3)
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    if kernel == "mem-efficient":
        mask = _float_mask(mask, query, key)
        return _aten._scaled_dot_product_efficient_attention(
            query, key, value, mask, keeps, dropout, causal, scale=scale
        )[0]
    return _aten._scaled_dot_product_attention_math(query, key, value, mask, dropout, causal, None, scale=scale)[0]


def _flash(query: Tensor, key: Tensor, value: Tensor, dropout: float, causal: bool, scale: float | None) -> Tensor:
    width = query.size(-1)
    scale = scale if scale is not None else width**-0.5
    if short := -width % 8:
        query, key, value = (torch.nn.functional.pad(t, (0, short)) for t in (query, key, value))
    out = _aten._scaled_dot_product_flash_attention(query, key, value, dropout, causal, scale=scale)[0]
    return out[..., :width] if short else out


def _float_mask(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """As torch prepares a mask: in the query's dtype, its rows padded to a multiple of 16, expanded over heads."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        zero = torch.zeros((), dtype=query.dtype)
        mask = torch.where(mask, zero, torch.full((), float("-inf"), dtype=query.dtype))
    if short := -mask.size(-1) % 16:
        mask = torch.nn.functional.pad(mask, (0, short))[..., : key.size(-2)]
    return mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))


def _dropout(x: Tensor, probability: float, train: bool) -> Tensor:
    if not train or probability == 0 or x.numel() == 0:
        return x
    return _aten.native_dropout(x, probability, train)[0]


# Norms


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: list[int], weight: Tensor | None, eps: float | None) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            out, rstd = _aten._fused_rms_norm.default(x, shape, weight, eps)
        ctx.save_for_backward(x, rstd, weight)
        ctx.shape = shape
        ctx.mark_non_differentiable(rstd)
        return out, rstd

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> Any:
        x, rstd, weight = ctx.saved_tensors
        wanted = [True, weight is not None and ctx.needs_input_grad[2]]
        dx, dw = _aten._fused_rms_norm_backward.default(grad, x, ctx.shape, rstd, weight, wanted)
        return dx, None, dw, None


class _LayerNorm(torch.autograd.Function):
    """Layer norm whose mean and rstd are fp32, as on CUDA; on the CPU they have the input's dtype."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: list[int], weight: Any, bias: Any, eps: float) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            out, mean, rstd = _aten.native_layer_norm.default(x, shape, weight, bias, eps)
            if mean.dtype != torch.float32:
                mean, rstd = mean.float(), rstd.float()
        ctx.save_for_backward(x, mean, rstd, weight, bias)
        ctx.shape = shape
        ctx.mark_non_differentiable(mean, rstd)
        return out, mean, rstd

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
        x, mean, rstd, weight, bias = ctx.saved_tensors
        wanted = [ctx.needs_input_grad[0], ctx.needs_input_grad[2], ctx.needs_input_grad[3]]
        dx, dw, db = _aten.native_layer_norm_backward.default(grad, x, ctx.shape, mean, rstd, weight, bias, wanted)
        return dx, None, dw, db, None


def _norms(library: Library) -> None:
    def rms(x: Tensor, shape: list[int], weight: Tensor | None, eps: float | None) -> Any:
        return _RmsNorm.apply(x, shape, weight, eps)

    def layer(x: Tensor, shape: list[int], weight: Any, bias: Any, eps: float) -> Any:
        return _LayerNorm.apply(x, shape, weight, bias, eps)

    library.impl("_fused_rms_norm", rms, "AutogradCPU", allow_override=True)
    library.impl("native_layer_norm", layer, "AutogradCPU", allow_override=True)


# Autocast


def _autocast(library: Library) -> None:
    for name in FP32:
        library.impl(name, _in_fp32(_operation(name)), "AutocastCPU", allow_override=True)
    for name in FP32_BY_DTYPE:
        library.impl(name, _to_fp32(_operation(name)), "AutocastCPU", allow_override=True)
    for name in UNTOUCHED:
        library.impl(name, torch.library.fallthrough_kernel, "AutocastCPU", allow_override=True)


def _operation(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(_aten, packet), overload or "default")


def _without_autocast() -> Any:
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU))


def _widened(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype in _HALF else value


def _in_fp32(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            return op(*map(_widened, args), **{k: _widened(v) for k, v in kwargs.items()})

    return kernel


def _to_fp32(op: Any) -> Callable[..., Any]:
    names = [a.name for a in op._schema.arguments]
    place = names.index("dtype")
    keyword = op._schema.arguments[place].kwarg_only

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            asked = kwargs.get("dtype") if keyword or len(args) <= place else args[place]
            if asked is None and args[0].dtype in _HALF:
                if keyword or len(args) <= place:
                    kwargs["dtype"] = torch.float32
                else:
                    args = (*args[:place], torch.float32, *args[place + 1 :])
            return op(*args, **kwargs)

    return kernel
