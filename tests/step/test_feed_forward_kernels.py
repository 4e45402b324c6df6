"""Feed-forwards whose backward writes over what it kept, and those that take the tokens tile by tile."""

from __future__ import annotations

from typing import Any

import pytest

from planner import cases
from planner.layers import mlp
from planner.layers.ops import Storage
from planner.quantity import total, value_of
from planner.spec.model import Mlp
from planner.step.evaluate import evaluate

H, F = 64, 256
SWIGLU = Mlp(kind="dense", ffn=F, gated=True, activation="swiglu")


def widths(kernels: str, tile: float = 1, trained: bool = True, adapted: frozenset[str] = frozenset()) -> Any:
    """Saved and, at the heaviest instant, working tensors of the feed-forward: B a token over 2 f."""
    store = Storage(act=2, stream=2, autocast=0, kernels=kernels, mlp_tile=tile, trained=trained, adapted=adapted)
    made = mlp.ops(SWIGLU, H, store)
    saved = [float(value_of(kept)) for op in made for kept in op.saved]
    working = max(float(value_of(total("working", op.working))) for op in made if op.working)
    return sum(saved) / (2 * F), working / (2 * F)


def test_liger_keeps_three_tensors_and_makes_one_more() -> None:
    """LigerSiLUMulFunction keeps gate and up, the down projection their product; one gradient is not in place."""
    assert widths("composed") == (4, 6)
    assert widths("fused") == (3, 5)
    assert widths("in-place") == (3, 4)


def test_unsloth_recomputes_what_the_down_adapter_reads() -> None:
    """LoRA_MLP keeps gate and up alone; the gradient of the product becomes the product, then both gradients."""
    down = frozenset({"down"})
    assert widths("in-place-lora", trained=False, adapted=down)[1] == 3
    liger, unsloth = (widths(k, trained=False, adapted=down)[0] for k in ("in-place", "in-place-lora"))
    assert liger - unsloth == 2  # the fp32 copy that the adapter of `down` casts: 4 B an element of f


def test_a_tile_holds_its_share_and_the_input_gradient() -> None:
    kept, working = widths("composed", tile=1 / 8)
    assert kept == 0
    assert working == pytest.approx((6 + 0) / 8 + H / F)


def peak(seq: int, tiled: bool) -> float:
    return float(evaluate(cases.case({
        "cluster": {"gpu": "h100-sxm", "gpus": 8}, "model": "llama-3.1-8b",
        "recipe": {"framework": "arctictraining", "seq_len": seq, "loss": "fused-linear-ce", "tiled_mlp": tiled},
        "plan": {"data_parallel": "zero", "zero": 3, "cp": 8, "cp_comm": "a2a", "micro_batch": 1},
    })).memory.allocated)  # fmt: skip


def test_tiles_save_memory_at_long_sequences_alone() -> None:
    """With one tile nothing changes but the gradient of the input; with many the layers' own tensors shrink."""
    assert peak(800_000, True) < 0.9 * peak(800_000, False)
    assert peak(1024, True) == pytest.approx(peak(1024, False), rel=0.05)
