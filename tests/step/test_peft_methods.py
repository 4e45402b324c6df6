"""What methods of the PEFT library keep, held against its published comparison and from first principles."""

from __future__ import annotations

import pytest

from planner import cases
from planner.quantity import value_of
from planner.spec.recipe import METHODS
from planner.step.evaluate import evaluate
from planner.units import GIB

LAYERS, HIDDEN, KV, TOKENS = 28, 3072, 1024, 4 * 768
QV = HIDDEN * (HIDDEN + KV)


def reserved(method: str, trainable: int, rank: int = 32, targets: str = "q,v") -> float:
    """GiB reserved by huggingface/peft method_comparison/MetaMathQA: Llama 3.2 3B, 4 sequences of up to 768 tokens."""
    found = evaluate(cases.case({
        "cluster": {"gpu": "l40s", "gpus": 1}, "model": "llama-3.2-3b",
        "recipe": {
            "framework": "peft", "task": "lora", "seq_len": 768,
            "peft": {"method": method, "rank": rank, "targets": targets.split(","), "trainable_params": trainable},
        },
        "plan": {"micro_batch": 4},
    }))  # fmt: skip
    return float(value_of(found.memory.reserved)) / GIB


#: method, trained parameters, rank, GiB printed (results/*.json of that comparison)
PUBLISHED = [
    ("lora", 9175040, 32, 20.76), ("lora", 18350080, 64, 21.00), ("dora", 9289728, 32, 22.85),
    ("fourierft", 56000, 32, 22.03), ("lokr", 2294656, 32, 21.97), ("miss", 7340032, 64, 18.88),
    ("oft", 8171520, 32, 20.80), ("vblora", 1212416, 4, 20.66), ("delora", 9175096, 32, 20.82),
]  # fmt: skip


@pytest.mark.parametrize(("method", "trainable", "rank", "printed"), PUBLISHED)
def test_published_comparison_of_methods(method: str, trainable: int, rank: int, printed: float) -> None:
    assert reserved(method, trainable, rank) == pytest.approx(printed, rel=0.015)


def test_an_update_as_large_as_the_weight_is_kept_in_fp32() -> None:
    more = reserved("fourierft", 9175040) - reserved("oft", 9175040)
    assert more * GIB == pytest.approx(4 * LAYERS * QV, rel=0.02)


def test_a_magnitude_keeps_the_results_of_base_and_adapter() -> None:
    more = reserved("dora", 9175040) - reserved("oft", 9175040)
    assert more * GIB == pytest.approx((2 + 4) * LAYERS * TOKENS * (HIDDEN + KV), rel=0.02)


def test_methods_beside_the_projections_keep_nothing_of_them() -> None:
    """Without adapters on projections the rank and targets that a case states do not matter."""
    some = [reserved("ptuning", 28382208, rank, targets) for rank, targets in ((8, "q"), (64, "q,k,v,o,gate,up,down"))]
    assert some[0] == some[1] < reserved("lora", 28382208)


def test_virtual_tokens_lengthen_the_sequence() -> None:
    vectors = 200
    found = cases.case({
        "cluster": {"gpu": "l40s", "gpus": 1}, "model": "llama-3.2-3b",
        "recipe": {"framework": "peft", "task": "lora", "seq_len": 768,
                   "peft": {"method": "prompt_tuning", "trainable_params": vectors * HIDDEN}},
    })  # fmt: skip
    assert found.recipe.seq_len == 768 + vectors


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"lora", "qlora"}))
def test_methods_that_were_not_traced_have_a_band_of_their_own(method: str) -> None:
    found = cases.case({
        "cluster": {"gpu": "l40s", "gpus": 1}, "model": "llama-3.2-3b",
        "recipe": {"framework": "peft", "peft": {"method": method}},
    })  # fmt: skip
    assert found.spreads == ("formula_error_adapters",)
