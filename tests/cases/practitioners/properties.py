"""Properties of the planner that a case states, one function a case, named by its id."""

from __future__ import annotations

from typing import Any

import planner
from planner import cases
from planner.layers import block
from planner.layers.ops import Storage
from planner.quantity import value_of
from planner.spec.model import Attention, LayerGroup, Mlp, Norm
from planner.step.evaluate import Estimate
from planner.step.memory import memory, stages
from planner.step.setting import setting

GIB = 2**30


def _fit(model: Any = "llama-3-8b", gpus: int = 8, plan: Any = None, **recipe: Any) -> Estimate:
    raw = {"model": model, "cluster": {"gpu": "h100-sxm", "gpus": gpus}, "recipe": recipe, "plan": plan or {}}
    return planner.evaluate(cases.case(raw))


def _b(quantity: Any) -> float:
    return float(value_of(quantity))


def mem_accelerate_ac_offload_short_vs_1m() -> None:
    """Offload of layer inputs moves the peak only where they set it; it never costs memory on the card."""
    for seq_len in (1024, 8192, 65536):
        moved, kept = (
            _fit("qwen3-0.6b", 8, {"data_parallel": "fsdp2", "offload": {"activations": where}}, seq_len=seq_len,
                 checkpointing="full", loss="chunked-linear-ce", task="full-ft")
            for where in ("cpu", "none")
        )  # fmt: skip
        assert _b(moved.memory.allocated) <= _b(kept.memory.allocated)


def calc_ds_zero3_gptj_2v4gpus() -> None:
    """With weights and states on the host hardly anything on the card depends on the number of cards."""
    offload = {"data_parallel": "zero", "zero": 3, "offload": {"params": "cpu", "optimizer": "cpu"}}
    two, four = (
        _b(_fit("pythia-6.9b", gpus, offload, checkpointing="full", seq_len=2048).memory.allocated) for gpus in (2, 4)
    )
    assert abs(four / two - 1) < 0.05


def calc_hf_train_memory_phase_formula() -> None:
    """With accumulation earlier micro-batches' gradients lie beside the activations; without, max() is a floor."""
    for batch, plan in ((4, {}), (None, {})):
        found = _fit("llama-3.2-1b", 1, plan, global_batch=batch, seq_len=2048, precision="fp32")
        held = found.memory.states
        fixed = _b(held.weights) + _b(held.optimizer)
        kept = sum(_b(part) for name, part in found.breakdown().items() if name == "activations")
        peak = _b(found.memory.allocated)
        if batch:
            assert peak >= fixed + _b(held.gradients) + kept
        assert peak >= fixed + max(_b(held.gradients), kept)


def calc_llamafactory_hardware_table() -> None:
    """States in all, not per card; the answer names sequence, batch, and what is sharded over how many ranks."""
    assert 105 <= 18 * 6.74 <= 130  # the rule of the table itself
    found = _fit("llama-2-7b", 1, precision="bf16-pure", task="full-ft")
    held = found.memory.states
    assert 52 <= (_b(held.weights) + _b(held.gradients) + _b(held.optimizer)) / 1e9 <= 64
    packed = _fit("llama-2-70b", 1, task="qlora")
    assert 33 <= _b(packed.memory.states.weights) / 1e9 <= 52
    from planner import answers

    told = answers.fit(found)
    assert told["scope"].startswith("per GPU")
    assert min(told["plan"]["dp_shard"], told["plan"]["micro_batch"], told["recipe"]["seq_len"]) > 0


def calc_llm_analysis_unshard_prefetch() -> None:
    """Under full sharding at least two whole layers of 16-bit weights are on the card in the backward."""
    for gpus in (8, 64):
        case = _fit("llama-3-70b", gpus, {"data_parallel": "fsdp2"}, checkpointing="full").case
        here = setting(case, stages(case)[0])
        layer = _b(here.groups[0].linear) * 2
        sharded = memory(case)
        gathered = _b(sharded.allocated) - sum(_b(one) for one in sharded.states.resident)
        assert gathered >= 2 * layer


def calc_llm_tools_activation_x4_and_kv() -> None:
    """Korthikanti's s b h (34 + 5 a s / h) of the GPT block with dropout, in bytes, without a KV cache."""
    h, a, s = 4096, 32, 2048
    group = LayerGroup(1, Attention(a, a, h // a, softmax_upcast=False, rope=False), Mlp(4 * h, gated=False,
                       activation="gelu"), Norm("layer"))  # fmt: skip
    store = Storage(act=2, stream=2, autocast=0, attention="eager", dropout=True, attention_dropout=True)
    kept = sum(_b(one) for op in block.ops(group, h, s, store) for one in op.saved)
    assert abs(kept / (h * (34 + 5 * a * s / h)) - 1) < 0.02
    assert not any("kv" in name and "cache" in name for name in _fit().breakdown())


def calc_megatron_moe_tp_divisor() -> None:
    """Experts are shared by etp x ep, dense weights by tp, norms and router by none."""
    from planner.layers import model as layers

    case = _fit("qwen3-30b-a3b", 16, {"tp": 4, "ep": 8, "etp": 1}, framework="megatron-lm").case
    group = case.model.groups[0]
    weights = block.weights(group, case.model.hidden)
    split = {"tp": 4, "ep": 8, "etp": 1}
    for weight in weights:
        here, whole = _b(layers.count("here", [weight], **split)), _b(layers.count("whole", [weight]))
        ways = 8 if weight.expert else 4 if weight.split else 1
        assert here * ways == whole, weight.name
    assert {w.name for w in weights if not w.split and not w.expert} >= {"router", "norm0.weight", "norm1.weight"}


def calc_megatron_uneven_pp() -> None:
    """The verdict is the heaviest stage's, which an even split of the layers would miss."""
    shape = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 4,
             "intermediate_size": 256, "vocab_size": 128}  # fmt: skip
    plan = {"pp": 4, "layer_split": [1, 2, 2, 3]}
    uneven, even = (
        _fit(shape, 4, one, framework="megatron-lm", seq_len=16) for one in (plan, {"pp": 4})
    )
    per_stage = [_b(memory(uneven.case, stage).device) for stage in stages(uneven.case)]
    assert _b(uneven.memory.device) == max(per_stage)
    assert uneven.memory.stage.index == 3
    assert _b(uneven.memory.states.weights) > 1.3 * _b(even.memory.states.weights) * 0.9


def sizing_rule_18x_under_75pct() -> None:
    """18 bytes a parameter under three quarters of the cards: 70.6B takes more than 21 cards of 80 GB, so 24 or 32."""
    plans = {ways: {"tp": 8, "pp": ways // 8} for ways in (16, 24, 32)}
    held = {}
    for ways, plan in plans.items():
        split = {"layer_split": [27, 27, 26]} if ways == 24 else {}
        found = _fit("llama-3-70b", ways, {**plan, **split}, framework="megatron-lm", seq_len=4096, task="pretrain")
        states = found.memory.states
        held[ways] = (_b(states.weights) + _b(states.gradients) + _b(states.master) + _b(states.optimizer)) / 80e9
    assert held[16] > 0.75
    assert held[32] < 0.75
