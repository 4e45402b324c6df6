"""Context, expert and interleaved parallelism, uneven stages, selective checkpointing, what leaves the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner import cases
from planner.errors import BadInput
from planner.formulas import activations as A
from planner.formulas import parameters as P
from planner.formulas import states as S
from planner.layers.model import parameters
from planner.quantity import value_of
from planner.spec.build import merged
from planner.step import activations as act
from planner.step.memory import Memory, memory, stages
from planner.step.setting import Stage, setting

GIB = 2**30
TITAN: dict[str, Any] = {
    "model": "llama-3-8b", "cluster": {"gpu": "h100-sxm", "gpus": 8},
    "recipe": {"framework": "torchtitan", "seq_len": 8192, "precision": "autocast-bf16"},
    "plan": {"data_parallel": "fsdp2", "dp_shard": 8},
}  # fmt: skip
MEGATRON: dict[str, Any] = {
    "model": "mixtral-8x7b", "cluster": {"gpu": "h100-sxm", "gpus": 64},
    "recipe": {"framework": "megatron-lm", "seq_len": 4096, "checkpointing": "full"},
    "plan": {"data_parallel": "zero", "zero": 1, "tp": 2, "dp_shard": 32},
}  # fmt: skip


def of(base: dict[str, Any], **changes: Any) -> Memory:
    return memory(cases.case(merged(base, {k.replace("__", "."): v for k, v in changes.items()})))


def allocated(base: dict[str, Any], **changes: Any) -> float:
    return float(of(base, **changes).allocated)


# Selective checkpointing


def test_torchtitans_policy_keeps_what_a_trace_of_its_code_shows() -> None:
    """63,616 B a token and layer of Llama 3 8B in bf16: input, q, v, gate, down, the attention and its sums."""
    case = cases.case(merged(TITAN, {"recipe.checkpointing": "selective-op"}))
    here = setting(case, Stage())
    layer = act.tensors(here, here.groups[0])
    assert float(layer.kept) / float(here.tokens) == pytest.approx(63_616)


def test_a_policy_keeps_more_than_full_checkpointing_and_less_than_none() -> None:
    full, op, none = (allocated(TITAN, recipe__checkpointing=p) for p in ("full", "selective-op", "none"))
    assert full < op < none


def test_each_second_layer_keeps_half() -> None:
    kept = {p: _kept(p, k) for p, k in (("none", 1), ("full", 1), ("every-k", 2), ("every-k", 1))}
    assert kept["every-k"] == pytest.approx(kept["full"])
    assert _kept("every-k", 2) == pytest.approx((kept["none"] + kept["full"]) / 2)


def _kept(policy: str, k: int) -> float:
    args = {"recipe.checkpointing_args": {"k": k}} if policy == "every-k" else {}
    case = cases.case(merged(TITAN, {"recipe.checkpointing": policy, **args}))
    here = setting(case, Stage())
    return float(act.kept_by_layers(here, here.groups[0], act.tensors(here, here.groups[0])))


def test_regions_of_several_layers_and_some_layers_of_a_stage() -> None:
    args = {"recipe.checkpointing": "full", "recipe.checkpointing_args": {"layers": 4, "method": "uniform"}}
    uniform = cases.case(merged(TITAN, args)).recipe
    assert (uniform.checkpointing, uniform.checkpoint_region) == ("full", 4)
    args["recipe.checkpointing_args"] = {"layers": 4, "method": "block"}
    block = cases.case(merged(TITAN, args)).recipe
    assert (block.checkpointing, block.checkpoint_most) == ("partial-layers", 4)
    some = [
        allocated(TITAN, recipe__checkpointing="partial-layers", recipe__checkpointing_args={"layers": n})
        for n in (1, 8, 32)
    ]
    assert some == sorted(some, reverse=True)
    assert some[-1] == pytest.approx(allocated(TITAN, recipe__checkpointing="full"))


@pytest.mark.parametrize("modules", [["mlp"], ["layernorm"], ["core_attn"], ["mlp", "layernorm", "core_attn"]])
def test_recomputed_modules_leave_the_rest(modules: list[str]) -> None:
    base = merged(TITAN, {"recipe.attention": "eager", "recipe.framework": "megatron-lm", "plan.zero": 3})
    none = allocated(base, recipe__checkpointing="none")
    args = {"recompute": modules}
    fewer = allocated(base, recipe__checkpointing="selective-modules", recipe__checkpointing_args=args)
    assert allocated(base, recipe__checkpointing="full") < fewer < none


def test_offloaded_activations_leave_one_input() -> None:
    on, off = (of(TITAN, recipe__checkpointing="full", plan__offload={"activations": w}) for w in ("none", "cpu"))
    inputs = 32 * 8192 * 4096 * 2
    assert float(on.moments["forward"]) - float(off.moments["forward"]) == pytest.approx(inputs * 31 / 32)


def test_offloaded_activations_never_count_more_layers_than_there_are() -> None:
    for layers in (1, 2, 8):
        held = A.kept_on_gpu(size=800, layers=layers, recomputed=1, offloaded=1)
        assert float(held) == 800 / layers
        assert float(A.kept_on_gpu(size=800, layers=layers, recomputed=0, offloaded=1)) == 0
        assert float(A.kept_on_gpu(size=800, layers=layers, recomputed=0, offloaded=0)) == 800


# Context parallelism


def test_context_parallelism_divides_tokens_and_shares_states() -> None:
    """Twice the sequence over two ranks of a ring: the same tokens on each, and states over all of them."""
    one = of(TITAN, cluster__gpus=8, plan__dp_shard=8)
    two = of(TITAN, plan__dp_shard=4, plan__cp=2, recipe__seq_len=16_384)
    assert float(two.states.weights) == pytest.approx(float(one.states.weights))
    assert float(two.moments["loss"]) == pytest.approx(float(one.moments["loss"]), rel=1e-3)


def test_a_ring_holds_a_neighbours_keys_and_values() -> None:
    ring, ulysses = (
        A.ring_buffers(kv_channels=1024, width=2, tensors=4, cp=cp) for cp in (2, 1)
    )
    assert (float(ring), float(ulysses)) == (8192, 0)


# Experts


@pytest.mark.parametrize(
    ("ep", "etp", "ways"), [(1, 2, 32), (8, 1, 8), (8, 2, 4), (2, 1, 32)]
)
def test_expert_states_are_shared_by_the_ranks_that_experts_leave(ep: int, etp: int, ways: int) -> None:
    """Megatron: 6 + 12/N bytes, with N = dp x cp x t / (ep x etp) for experts."""
    found = S.expert_ways_at(zero=1, stage=1, dp_shard=32, cp=1, tp=2, ep=ep, etp=etp)
    assert float(found) == ways


def test_a_mixture_over_more_expert_ranks_needs_less() -> None:
    sizes = [allocated(MEGATRON, plan__ep=ep, plan__etp=1) for ep in (2, 4, 8)]
    assert sizes == sorted(sizes, reverse=True)
    weights = [float(of(MEGATRON, plan__ep=ep, plan__etp=1).states.weights) for ep in (2, 8)]
    experts = 32 * 8 * 3 * 4096 * 14336 * 2
    assert weights[0] - weights[1] == pytest.approx(experts / 2 - experts / 8)


def test_experts_must_divide() -> None:
    with pytest.raises(BadInput, match="8 experts are not divisible"):
        cases.case(merged(MEGATRON, {"plan.ep": 16, "plan.etp": 1}))
    with pytest.raises(BadInput, match="do not divide"):
        cases.case(merged(MEGATRON, {"plan.ep": 3}))
    with pytest.raises(BadInput, match="1 experts"):
        cases.case(merged(TITAN, {"plan.ep": 2}))


def test_shared_experts_are_weights_that_every_token_passes() -> None:
    parts = {
        "model_type": "decoder", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 4,
        "num_attention_heads": 8, "vocab_size": 32000, "num_experts": 8, "experts_per_token": 2,
        "moe_intermediate_size": 512,
    }  # fmt: skip
    without, with_ = (
        of(TITAN, model={**parts, "shared_intermediate_size": width}, plan__dp_shard=8) for width in (0, 1024)
    )
    more = 4 * 3 * 1024 * 1024 * 4 / 8
    assert float(with_.states.weights) - float(without.states.weights) == pytest.approx(more)
    assert float(with_.allocated) > float(without.allocated)


# Latent attention

DEEPSEEK_V3 = {
    "model_type": "decoder", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
    "vocab_size": 129_280, "intermediate_size": 18_432, "num_experts": 256, "experts_per_token": 8,
    "moe_intermediate_size": 2048, "shared_intermediate_size": 2048, "first_k_dense": 3, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip


def test_deepseek_v3_has_671e9_parameters() -> None:
    """671,026,404,352 of the main model, less the score-correction biases of 58 routers, which are buffers."""
    case = cases.case({"model": DEEPSEEK_V3})
    assert value_of(parameters(case.model)) == 671_026_404_352


def test_latent_attention_keeps_what_the_published_shape_gives() -> None:
    """DeepSeek V3 in bf16 with fused kernels: 234 kB a token and layer with the norm before it."""
    case = cases.case({"model": DEEPSEEK_V3, "recipe": {"framework": "megatron-lm"}})
    here = setting(case, Stage())
    kept = [k for op in here.groups[0].ops[:6] for k in op.saved]
    names = [op.name for op in here.groups[0].ops[:6]]
    assert names == ["norm1", "qkv", "q_a_norm", "kv_a_norm", "attention", "o"]
    assert sum(float(k) for k in kept) == pytest.approx(234e3, rel=0.005)


# Pipelines


@pytest.mark.parametrize(("pp", "v", "held"), [(4, 2, 5.5), (8, 4, 9.75)])
def test_an_interleaved_first_stage_holds_more_micro_batches(pp: int, v: int, held: float) -> None:
    """Narayanan et al. 2021: 1 + (p - 1)/(p v) times what 1F1B holds on the first stage."""
    found = A.in_flight_interleaved(pp=pp, stage=0, microbatches=64, virtual_stages=v, layers=v)
    assert float(found) == pytest.approx(held)
    assert held == pytest.approx(pp * (1 + (pp - 1) / (pp * v)))


@pytest.mark.parametrize("split", [(), (10, 10, 10, 2), (8, 8, 8, 8), (0, 16, 16, 0)])
def test_every_layer_lies_on_one_stage(split: tuple[int, ...]) -> None:
    changes: dict[str, Any] = {"plan.pp": 4, "plan.dp_shard": 2, "plan.data_parallel": "zero", "plan.zero": 1}
    if split:
        changes["plan.layer_split"] = list(split)
    case = cases.case(merged(TITAN, changes))
    held = [float(setting(case, stage).groups[0].layers) for stage in stages(case)]
    assert held == list(split or (8, 8, 8, 8))


def test_a_group_lies_where_its_layers_are() -> None:
    starts, ends = np.array([0, 8, 16]), np.array([8, 16, 24])
    first = value_of(P.stage_layers(layers=3, before=0, start=starts, end=ends))
    rest = value_of(P.stage_layers(layers=21, before=3, start=starts, end=ends))
    assert list(first) == [3, 0, 0]
    assert list(rest) == [5, 8, 8]


def test_a_split_must_add_up() -> None:
    base = merged(TITAN, {"plan.pp": 4, "plan.dp_shard": 2, "plan.data_parallel": "zero", "plan.zero": 1})
    with pytest.raises(BadInput, match="layer_split"):
        cases.case(merged(base, {"plan.layer_split": [8, 8, 8, 9]}))
    with pytest.raises(BadInput, match="do not split evenly"):
        cases.case(merged(base, {"plan.pp": 8, "plan.dp_shard": 1, "plan.schedule": "interleaved-1f1b",
                                 "plan.virtual_stages": 3}))  # fmt: skip


# What leaves the GPU, and what trains beside adapters


def test_paged_states_leave_and_gradients_stay() -> None:
    one = {"plan": {"data_parallel": "none"}, "cluster": {"gpu": "h100-sxm", "gpus": 1}, "model": "llama-3.2-1b"}
    kept, paged = (of(one, plan__offload={"optimizer": w}) for w in ("none", "paged"))
    states = float(kept.states.optimizer)
    assert float(kept.moments["optimizer"]) - float(paged.moments["optimizer"]) == pytest.approx(states)


def test_a_step_inside_the_backward_keeps_no_gradients() -> None:
    one = {"plan": {"data_parallel": "none"}, "cluster": {"gpu": "h100-sxm", "gpus": 1}, "model": "llama-3.2-1b"}
    after, inside = (of(one, recipe__optimizer_in_backward=w) for w in (False, True))
    gradients = float(after.states.gradients)
    assert float(after.moments["optimizer"]) - float(inside.moments["optimizer"]) == pytest.approx(gradients)
    assert float(inside.allocated) <= float(after.allocated)


def test_weights_that_train_whole_beside_adapters_bring_copy_gradient_and_states() -> None:
    lora = {"model": "llama-3-8b", "recipe": {"task": "lora", "precision": "autocast-bf16"}}
    plain, head = (of(lora, recipe__peft={"modules_to_save": m}) for m in ([], ["lm_head"]))
    size = 128_256 * 4096
    assert float(head.states.weights) - float(plain.states.weights) == pytest.approx(4 * size)
    assert float(head.states.optimizer) - float(plain.states.optimizer) == pytest.approx(8 * size)
    assert float(head.states.gradients) - float(plain.states.gradients) == pytest.approx(4 * size)
