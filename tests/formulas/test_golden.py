"""What the cited pages say, to their last printed figure."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from planner import cases
from planner.formulas import activations as A
from planner.formulas import overheads as O
from planner.formulas import parameters as P
from planner.formulas import states as S
from planner.formulas import temporaries as T
from planner.quantity import total
from planner.spec.recipe import STATES, WIDTH
from planner.step import activations as act
from planner.step import states
from planner.step.setting import Setting, Stage, setting

GB = 1e9


def of(raw: dict[str, Any]) -> Setting:
    """The setting of the first stage of a case in the file form."""
    return setting(cases.case(raw), Stage())


# ZeRO (Rajbhandari et al., arXiv 1910.02054v3): figure 1 and table 1: 7.5B parameters on 64 GPUs, K = 12.


@pytest.mark.parametrize(("zero", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_figure_1(zero: int, gigabytes: float) -> None:
    widths = {1: (12, "optimizer"), 2: (2, "gradients"), 3: (2, "weights")}
    parts = [
        S.state_bytes(
            called=name, params=7.5e9, param_width=width, ways=S.ways_at(zero=zero, stage=stage, dp_shard=64, cp=1)
        )
        for stage, (width, name) in widths.items()
    ]
    assert float(total("states", parts)) / GB == pytest.approx(gigabytes, abs=0.05)


@pytest.mark.parametrize(
    ("ways", "per_stage"),
    [(1, (120, 120, 120)), (4, (52.5, 41.3, 30)), (16, (35.6, 21.6, 7.5)), (64, (31.4, 16.6, 1.88)),
     (256, (30.4, 15.4, 0.47)), (1024, (30.1, 15.1, 0.12))],
)  # fmt: skip
def test_zero_table_1(ways: int, per_stage: tuple[float, ...]) -> None:
    """Memory per device of a 7.5B model, by data-parallel degree: P_os, P_os+g, P_os+g+p."""
    for zero, gigabytes in enumerate(per_stage, 1):
        sizes = [
            float(S.state_bytes(params=7.5e9, param_width=w, ways=S.ways_at(zero=zero, stage=s, dp_shard=ways, cp=1)))
            for s, w in ((1, 12), (2, 2), (3, 2))
        ]
        assert sum(sizes) / GB == pytest.approx(gigabytes, abs=0.06)


# Megatron-LM, docs/source/api-guide/dist_optimizer.md: theoretical bytes a parameter with bf16 weights and fp32
# gradients: 18 without the distributed optimizer, 6 + 12/d with it.


@pytest.mark.parametrize(("zero", "ways"), [(0, 1), (1, 2), (1, 8), (1, 64)])
def test_megatron_keeps_18_or_6_and_12_over_d_bytes_a_parameter(zero: int, ways: int) -> None:
    kind = {"data_parallel": "zero", "zero": 1, "dp_shard": ways} if zero else {"data_parallel": "ddp"}
    here = of(
        {
            "cluster": {"gpu": "h100-sxm", "gpus": ways if zero else 2}, "model": "llama-3-8b",
            "recipe": {"framework": "megatron-lm"}, "plan": kind,
        }
    )  # fmt: skip
    held = states.states(here)
    bytes_ = sum(float(q) for q in (held.weights, held.gradients, held.master, held.optimizer))
    assert bytes_ / float(states.all_params(here)) == pytest.approx(6 + 12 / ways, rel=1e-12)


# Korthikanti et al. (arXiv 2205.05198), equation 1 and section 4.1: a GPT layer keeps s b h (34 + 5 a s / h) bytes in
# 16 bit, of which flash attention leaves out the second term. Our layer keeps besides: the statistics of two LayerNorms
# (16) and the log-sum-exp of attention (4 a). Traced with plain GPT-2 XL: 54,516.


def layer(model: Any, **recipe: Any) -> float:
    here = of({"cluster": {"gpu": "h200-sxm", "gpus": 1}, "model": model, "recipe": {"seq_len": 1024, **recipe}})
    return float(act.saved_per_token(here.groups[0]))


def test_a_gpt_layer_keeps_34_bytes_an_element() -> None:
    found = layer({"name": "gpt2-xl", "activation_function": "gelu"}, framework="pytorch", precision="bf16-pure")
    h, a = 1600, 25
    assert found == 34 * h + 16 + 4 * a == 54_516


def test_attention_that_keeps_its_scores_keeps_five_a_s_more() -> None:
    """Softmax output and its dropped copy at 2 B, and a mask of 1 B: 5 a s b a token, as in the paper."""
    model = {"name": "gpt2-xl", "activation_function": "gelu"}
    wide = {"framework": "pytorch", "precision": "bf16-pure", "attention": "eager"}
    a, s, h = 25, 1024, 1600
    found = layer(model, **wide)
    assert found == 34 * h + 16 + 5 * a * s == 182_416


# One layer of real model code, traced op by op (docs/explanation/memory.md): bytes a token.


@pytest.mark.parametrize(
    ("model", "precision", "seq_len", "bytes_"),
    [
        ("llama-3-8b", "bf16-pure", 8192, 200_840),
        ("llama-3-8b", "autocast-bf16", 8192, 241_800),
        ("llama-3-8b", "fp32", 2048, 655_368),
        ("llama-2-7b", "fp32", 4096, 340_104),
        ("qwen2.5-7b", "bf16-pure", 4096, 225_400),
        ("mixtral-8x7b", "bf16-pure", 4096, 348_412),
        ("gpt2-xl", "bf16-pure", 1024, 92_916),
        ("gpt2-xl", "autocast-bf16", 1024, 137_716),
    ],
)
def test_a_traced_layer(model: str, precision: str, seq_len: int, bytes_: int) -> None:
    assert layer(model, framework="hf-transformers", precision=precision, seq_len=seq_len) == bytes_


def test_autocast_copies_every_linear_weight_of_a_layer() -> None:
    here = of(
        {
            "cluster": {"gpu": "h200-sxm", "gpus": 1}, "model": "llama-3-8b",
            "recipe": {"framework": "hf-transformers", "precision": "autocast-bf16"},
        }
    )  # fmt: skip
    assert float(act.tensors(here, here.groups[0]).copies) == pytest.approx(436.2e6, rel=1e-3)


# LoRA (Hu et al., arXiv 2106.09685): r (in + out) parameters an adapted matrix. PEFT prints 41,943,040 trainable
# parameters for Llama-3-8B, r = 16, all linear layers.


def test_lora_on_llama_3_8b() -> None:
    here = of(
        {
            "cluster": {"gpu": "h100-sxm", "gpus": 1}, "model": "llama-3-8b",
            "recipe": {"framework": "hf-transformers", "task": "lora", "peft": {"rank": 16, "targets": "all-linear"}},
        }
    )  # fmt: skip
    assert float(states.trained_params(here)) == 41_943_040
    assert float(P.adapter_params(rank=16, rows=4096, cols=1024, copies=1)) == 16 * (4096 + 1024)


def test_qlora_stores_a_parameter_in_half_a_byte_and_its_constants() -> None:
    """QLoRA (Dettmers et al., arXiv 2305.14314), section 3: constants of 0.5 bit a parameter, quantised again 0.127."""
    assert WIDTH["nf4"] * 8 == 4 + 0.5
    assert WIDTH["nf4-dq"] * 8 == pytest.approx(4 + 8 / 64 + 32 / (64 * 256))
    assert WIDTH["nf4-dq"] == pytest.approx(0.516, abs=5e-4)


def test_adam_keeps_two_states_and_its_8_bit_kind_a_quarter_of_them() -> None:
    """Kingma and Ba, algorithm 1; bitsandbytes: blocks of 256 with an fp32 maximum each."""
    assert float(S.optimizer_width(states=STATES["adamw"], state_width=WIDTH["fp32"])) == 8
    assert float(S.optimizer_width(states=STATES["adamw8bit"], state_width=WIDTH["int8"])) == 2 * (1 + 4 / 256)


# Pipelines (Narayanan et al., arXiv 2104.04473, section 2.2): 1F1B holds at most as many micro-batches as stages.


@pytest.mark.parametrize(
    ("pp", "stage", "microbatches", "held"), [(4, 0, 16, 4), (4, 3, 16, 1), (8, 2, 64, 6), (8, 0, 3, 3)]
)
def test_1f1b_holds_a_micro_batch_for_each_stage_from_here_on(
    pp: int, stage: int, microbatches: int, held: int
) -> None:
    assert float(A.in_flight_1f1b(pp=pp, stage=stage, microbatches=microbatches)) == held


def test_ddp_keeps_a_second_copy_of_the_gradients() -> None:
    """torch 2.13 DistributedDataParallel: without gradient_as_bucket_view buckets are as large as all gradients."""
    assert float(S.ddp_buckets(params=8.03e9, param_width=4, replicas=8)) == 4 * 8.03e9
    assert float(S.ddp_buckets(params=8.03e9, param_width=4, replicas=1)) == 0


@pytest.mark.parametrize(
    ("tokens", "vocab", "hidden"), [(8192, 128_256, 4096), (4096, 32_000, 4096), (1000, 151_936, 896), (16, 256, 64)]
)
def test_liger_chunks_tokens_as_its_source_does(tokens: int, vocab: int, hidden: int) -> None:
    """Liger-Kernel ops/fused_linear_cross_entropy.py: next_power_of_2(cdiv(BT, cdiv(V, H)))."""
    factor = -(-vocab // hidden)
    rows = 1 << (-(-tokens // factor) - 1).bit_length()
    assert float(T.liger_rows(tokens=tokens, vocab=vocab, hidden=hidden)) == min(rows, tokens)


def test_liger_takes_256_rows_of_llama_3_at_8192_tokens() -> None:
    assert float(T.liger_rows(tokens=8192, vocab=128_256, hidden=4096)) == 256


def test_megatron_pads_the_vocabulary_to_128_times_tp() -> None:
    """Megatron-LM --make-vocab-size-divisible-by 128: GPT-2's 50,257 becomes 50,304 (tp 1) and 51,200 (tp 8)."""
    assert [float(P.padded_vocab(vocab=50_257, multiple=128, tp=t)) for t in (1, 2, 8)] == [50_304, 50_432, 51_200]
    assert float(P.padded_vocab(vocab=50_257, multiple=0, tp=8)) == 50_257


def test_whole_logits_cost_twelve_bytes_each() -> None:
    """Traced: fp32 log-softmax kept, its gradient, the loss's gradient: 11.7 GiB of Llama-3-8B at 8,192 tokens."""
    found = float(T.logits_bytes(tokens=8192, vocab=128_256, logit_width=12, tp=1))
    assert found / 2**30 == pytest.approx(11.7, abs=0.05)


def test_the_verdict_by_its_definition() -> None:
    codes = O.verdict_code(high=np.array([79.0, 81, 99]), least=np.array([60.0, 70, 90]), usable=79.18)
    assert list(codes.value) == [2, 1, 0]
    assert float(O.verdict_code(high=79.18, least=1, usable=79.18)) == 2  # at most usable
    assert float(O.verdict_code(high=80, least=79.18, usable=79.18)) == 1  # not above usable


def test_the_band_of_independent_causes_is_the_root_of_their_squares() -> None:
    high = O.upper_end(
        device=100, allocated=50, error=0.06, cached=4, cached_high=8, context=1, context_high=1, nccl=1, nccl_high=1
    )
    assert float(high) == 100 + math.hypot(3, 4)
