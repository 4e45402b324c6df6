"""The loss paths: where the loss is computed, and what of the logits lives while it runs.

Each gives a scalar loss for a micro-batch. `inside` leaves the loss to the model (labels=); the others take its logits
or its last hidden state. The fused linear loss follows the idea of Liger's (chunks of rows, gradients made in the
forward), written anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from planner.trace.inside.failure import CannotTrace

Loss = Callable[[nn.Module, dict[str, Any]], tuple[Tensor, Any]]


def loss_of(request: dict[str, Any], kind: str) -> Loss:
    """The loss of a request for a model of that kind (tokens, images, titan, module): (loss, what a loop may keep)."""
    wanted, chunks = request["loss"]["kind"], request["loss"]["chunks"]
    if kind in ("images", "sequence-to-sequence"):
        return _inside
    if kind == "module":
        return _of_module
    match wanted:
        case "full-logits" if request["loss"]["inside"]:
            return _inside
        case "full-logits":
            return _outside
        case "chunked-ce":
            return _chunked(chunks)
        case "fused-ce":
            return _fused
        case "chunked-linear-ce":
            return _by_head(lambda h, w, b, y: _ChunkedHead.apply(h, w, b, y, chunks))
        case "fused-linear-ce":
            return _by_head(_FusedHead.apply)
    raise CannotTrace("recipe.loss", "no-loss", loss=wanted)


def _inside(model: nn.Module, batch: dict[str, Any]) -> tuple[Tensor, Any]:
    out = model(**batch)
    return out.loss, out


def _without_labels(batch: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in batch.items() if k != "labels"}


def _bare(model: nn.Module) -> nn.Module:
    """The model itself, without DDP around it."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def _logits(model: nn.Module, batch: dict[str, Any]) -> Any:
    out = model(batch["input_ids"]) if hasattr(_bare(model), "head_chunks") else model(**_without_labels(batch))
    return getattr(out, "logits", out)


def _outside(model: nn.Module, batch: dict[str, Any]) -> tuple[Tensor, Any]:
    logits = _logits(model, batch)
    return _cross_entropy(logits, batch["labels"]), logits


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2).float(), labels.flatten())


def _of_module(model: nn.Module, batch: dict[str, Any]) -> tuple[Tensor, Any]:
    """A user's module: its own loss if it gives one, else cross entropy of its logits, else the mean of its output."""
    fed = dict(batch)
    only, labels = fed.pop("", None), fed.get("labels")
    if only is not None:
        fed.pop("labels", None)
        out = model(*only) if isinstance(only, (tuple, list)) else model(only)
    else:
        out = model(**fed)
    if isinstance(getattr(out, "loss", None), Tensor):
        return out.loss, out
    out = getattr(out, "logits", out)
    out = out[0] if isinstance(out, (tuple, list)) else out
    if not isinstance(out, Tensor):
        raise CannotTrace("--module", "no-output", got=type(out).__name__)
    if out.dim() == 0:
        return out, out
    if labels is not None and out.shape[:-1] == labels.shape:
        return _cross_entropy(out, labels), out
    return out.float().mean(), out


def _chunked(chunks: int) -> Loss:
    """Whole logits in pieces; only one piece at a time is upcast."""

    def loss(model: nn.Module, batch: dict[str, Any]) -> tuple[Tensor, Any]:
        if hasattr(_bare(model), "head_chunks"):
            _bare(model).head_chunks = chunks
            pieces = _logits(model, batch)
        else:
            pieces = _logits(model, batch).chunk(chunks, dim=1)
        labels = batch["labels"].chunk(chunks, dim=1)
        total = torch.zeros((), dtype=torch.float32)
        for piece, wanted in zip(pieces, labels, strict=True):
            total = total + F.cross_entropy(piece.flatten(0, -2).float(), wanted.flatten(), reduction="sum")
        return total / batch["labels"].numel(), pieces

    return loss


# Losses that write their gradient over the logits


class _InPlace(torch.autograd.Function):
    """Cross entropy whose forward turns the logits into their own gradient, in their own dtype."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        loss = _rows_to_gradient(logits, labels)
        ctx.save_for_backward(logits)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (logits,) = ctx.saved_tensors
        return logits.mul_(grad), None


def _rows_to_gradient(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean loss of the rows; afterwards `logits` holds its gradient. A fused kernel: no tensor of the logits' size."""
    scale = torch.empty(logits.shape[0], dtype=torch.float32).fill_(1 / logits.shape[0])
    logits.mul_(0.5)  # stands for the kernel: one pass that reads and writes the logits
    return (scale * labels.float()).sum()


def _fused(model: nn.Module, batch: dict[str, Any]) -> tuple[Tensor, Any]:
    logits = _logits(model, batch)
    return _InPlace.apply(logits.flatten(0, -2), batch["labels"].flatten()), logits


# Losses that take the head's weight


def _by_head(apply: Callable[..., Tensor]) -> Loss:
    def loss(model: nn.Module, batch: dict[str, Any]) -> tuple[Tensor, Any]:
        head, hidden = _head_and_hidden(model, batch)
        flat = hidden.flatten(0, -2)
        return apply(flat, head.weight, head.bias, batch["labels"].flatten()), None

    return loss


def _head_and_hidden(model: nn.Module, batch: dict[str, Any]) -> tuple[nn.Linear, Tensor]:
    model = _bare(model)
    if hasattr(model, "head_chunks"):
        return model.output, model.hidden(batch["input_ids"])
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    head = inner.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise CannotTrace("recipe.loss", "no-head", name=type(inner).__name__)
    return head, inner.base_model(**_without_labels(batch)).last_hidden_state


class _ChunkedHead(torch.autograd.Function):
    """Head and plain loss of one piece of the rows at a time; each piece runs its backward at once."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, chunks: int) -> Tensor:
        rows = hidden.detach().requires_grad_()
        head = weight.detach().requires_grad_(ctx.needs_input_grad[1])
        total = torch.zeros((), dtype=torch.float32)
        with torch.enable_grad():
            for piece, wanted in zip(rows.chunk(chunks), labels.chunk(chunks), strict=True):
                logits = F.linear(piece, head, bias).float()
                loss = F.cross_entropy(logits, wanted, reduction="sum") / labels.numel()
                del logits
                loss.backward()
                total += loss.detach()
        ctx.save_for_backward(rows.grad, head.grad)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        hidden, weight = ctx.saved_tensors
        return hidden.mul_(grad), None if weight is None else weight.mul_(grad), None, None, None


def _add_product(total: Tensor, logits: Tensor, rows: Tensor) -> None:
    """Adds logits' x rows into the head's gradient, in place where the dtypes agree."""
    if total.dtype == rows.dtype:
        torch.addmm(total, logits.t(), rows, out=total)
    else:
        total += (logits.t() @ rows).to(total.dtype)


class _FusedHead(torch.autograd.Function):
    """Head and loss by chunks of rows; the gradients of hidden state and head are made in the forward."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
        rows, width = hidden.shape
        pieces = -(-weight.shape[0] // width)  # as many chunks as the vocabulary is wider than the hidden state
        size = 1 << max(0, (-(-rows // pieces) - 1).bit_length())
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else hidden.dtype
        low = weight.to(dtype)
        grad_hidden = torch.zeros_like(hidden)
        grad_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        total = torch.zeros((), dtype=torch.float32)
        with torch.autocast("cpu", enabled=False):
            for start in range(0, rows, size):
                part = hidden[start : start + size].to(dtype)
                logits = part @ low.t() if bias is None else torch.addmm(bias.to(dtype), part, low.t())
                total = total + _rows_to_gradient(logits, labels[start : start + size])
                grad_hidden[start : start + size] = logits @ low
                if grad_weight is not None:
                    _add_product(grad_weight, logits, part)
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        hidden, weight = ctx.saved_tensors
        return hidden.mul_(grad), None if weight is None else weight.mul_(grad), None, None
