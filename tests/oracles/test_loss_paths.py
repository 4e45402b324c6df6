"""Bytes a logit of the loss paths that recipes state, measured: the same steps in torch on the CPU, storages counted.

Written after the source that each recipe names; two sequences, since a copy that shifts one sequence is no copy.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from planner.spec.stack import known, with_loss

torch = pytest.importorskip("torch")
F = pytest.importorskip("torch.nn.functional")
dispatch = pytest.importorskip("torch.utils._python_dispatch")

BATCH, TOKENS, VOCAB, HIDDEN, CHUNKS = 2, 128, 4096, 8, 16
LOGITS = BATCH * TOKENS * VOCAB
#: what transformers' model code holds now: 16-bit logits, fp32 and log_softmax; then log_softmax and two gradients
USUAL = (10, 12)
HOLDS_THE_OUTPUT = ("peft", "fsdp_qlora", "litgpt")


class Live(dispatch.TorchDispatchMode):  # type: ignore[misc, name-defined]
    """Counts the bytes of every storage from the operation that makes it to the end of its life."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, int] = {}
        self.now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for one in out if isinstance(out, list | tuple) else (out,):
            if isinstance(one, torch.Tensor):
                self._made(one.untyped_storage())
        return out

    def _made(self, storage: Any) -> None:
        key = storage._cdata
        if key not in self.alive:
            self.alive[key] = storage.nbytes()
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self.now -= self.alive.pop(key, 0)


def measured(path: Callable[..., Any], *, kept: bool) -> tuple[float, float]:
    """B a logit at the end of the forward and in the backward; `kept`: the loop holds on to the model's output."""
    hidden = torch.randn(BATCH, TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    head, labels = torch.randn(VOCAB, HIDDEN, dtype=torch.bfloat16), torch.randint(VOCAB, (BATCH, TOKENS))
    with Live() as live:
        loss, output = path(hidden, head, labels)
        if not kept:
            del output
        gc.collect()
        forward, live.peak = live.peak, live.now
        loss.backward()
    return forward / LOGITS, live.peak / LOGITS


def _shifted(logits: Any, labels: Any) -> Any:
    moved = logits[..., :-1, :].contiguous()
    return F.cross_entropy(moved.view(-1, VOCAB), labels[..., 1:].reshape(-1))


def transformers_4_45(hidden: Any, head: Any, labels: Any) -> tuple[Any, Any]:
    logits = F.linear(hidden, head).float()
    return _shifted(logits, labels), logits


def transformers_4_46(hidden: Any, head: Any, labels: Any) -> tuple[Any, Any]:
    def loss(logits: Any) -> Any:
        logits = logits.float()
        return _shifted(logits, labels)

    logits = F.linear(hidden, head)
    return loss(logits), logits


def transformers_4_49(hidden: Any, head: Any, labels: Any) -> tuple[Any, Any]:
    def loss(logits: Any) -> Any:
        logits = logits.float()
        return F.cross_entropy(logits.view(-1, VOCAB), F.pad(labels, (0, 1), value=-100)[..., 1:].reshape(-1))

    logits = F.linear(hidden, head)
    return loss(logits), logits


class InPlace(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """Megatron's: softmax and gradient overwrite one fp32 copy; `apart` makes a second one first (nanotron)."""

    @staticmethod
    def forward(ctx: Any, logits: Any, labels: Any, apart: Any) -> Any:
        softmax = logits.float()
        most = softmax.max(-1)[0].unsqueeze(-1)
        softmax = softmax - most if apart else softmax.sub_(most)
        picked = softmax.view(-1, VOCAB)[torch.arange(BATCH * TOKENS), labels.view(-1)].clone()
        total = softmax.exp_().sum(-1)
        softmax.div_(total.unsqueeze(-1))
        ctx.save_for_backward(softmax, labels)
        return torch.log(total) - picked.view_as(labels)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        softmax, labels = ctx.saved_tensors
        softmax.view(-1, VOCAB)[torch.arange(BATCH * TOKENS), labels.view(-1)] -= 1
        return softmax.mul_(grad.unsqueeze(-1)), None, None


def megatron(hidden: Any, head: Any, labels: Any) -> tuple[Any, Any]:
    logits = F.linear(hidden, head)
    return InPlace.apply(logits, labels, 0).mean(), logits


def nanotron(hidden: Any, head: Any, labels: Any) -> tuple[Any, Any]:
    logits = F.linear(hidden, head)
    return InPlace.apply(logits.float(), labels, 1).mean(), logits


class Overwritten(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """A kernel that keeps the logits it was given and writes the gradient into them."""

    @staticmethod
    def forward(ctx: Any, logits: Any) -> Any:
        ctx.save_for_backward(logits)
        return logits[:, 0].float()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return ctx.saved_tensors[0]


def fms(hidden: Any, head: Any, labels: Any) -> tuple[Any, Any]:
    """With a transformers before 4.46, whose model makes the fp32 logits itself."""
    logits = F.linear(hidden, head).float()
    return Overwritten.apply(logits[..., :-1, :].contiguous().view(-1, VOCAB)).sum(), logits


def unsloth(hidden: Any, head: Any, labels: Any) -> tuple[Any, Any]:
    logits = F.linear(hidden, head)
    return Overwritten.apply(logits.view(-1, VOCAB)).sum(), logits


def litgpt(hidden: Any, head: Any, labels: Any) -> tuple[Any, Any]:
    """Fabric casts the outputs to fp32 while the loop's variable still holds the logits of the pass before."""
    before = torch.empty(BATCH, TOKENS, VOCAB)
    narrow = [F.linear(part, head) for part in hidden.chunk(CHUNKS, 1)]
    logits = [part.float() for part in narrow]
    del before, narrow
    pairs = zip(logits, labels.chunk(CHUNKS, 1), strict=True)
    return sum(F.cross_entropy(x.reshape(-1, VOCAB), y.reshape(-1), reduction="sum") for x, y in pairs), logits


def torchtune(hidden: Any, head: Any, labels: Any) -> tuple[Any, Any]:
    logits = [F.linear(part, head) for part in hidden.chunk(CHUNKS, 1)]
    flat = [x.reshape(-1, VOCAB) for x in logits]
    pairs = zip(flat, labels.chunk(CHUNKS, 1), strict=True)
    return sum(F.cross_entropy(x.float(), y.reshape(-1), reduction="sum") for x, y in pairs), logits


@pytest.mark.parametrize(
    ("stack", "loss", "path"),
    [
        ("hf@4.45.2", "full-logits", transformers_4_45), ("hf@4.48.3", "full-logits", transformers_4_46),
        ("hf@5.24", "full-logits", transformers_4_49), ("peft", "full-logits", transformers_4_49),
        ("fsdp_qlora", "full-logits", transformers_4_45), ("fms-acceleration", "full-logits", transformers_4_46),
        ("fms-acceleration", "fused-ce", fms), ("unsloth", "fused-ce", unsloth),
        ("megatron-lm", "full-logits", megatron), ("nanotron", "full-logits", nanotron),
        ("litgpt", "chunked-ce", litgpt), ("torchtune", "chunked-ce", torchtune),
    ],
)  # fmt: skip
def test_a_recipe_states_what_its_loss_holds(stack: str, loss: str, path: Callable[..., Any]) -> None:
    found = known(stack)
    assert found is not None
    forward, backward = with_loss(found, None, compiled=False).loss_bytes.get(loss, USUAL)
    backward += 2 if found.keeps_outputs else 0  # the output's 16-bit logits
    near = 0.7 if loss == "chunked-ce" else 0.1  # one chunk of tokens at work besides
    found_here = measured(path, kept=stack in HOLDS_THE_OUTPUT)
    assert found_here == (pytest.approx(forward, abs=near), pytest.approx(backward, abs=near))
