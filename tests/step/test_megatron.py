"""What Megatron's golden runs and code show of one layer and one rank, claim by claim."""

from __future__ import annotations

from typing import Any

import pytest

from planner import cases
from planner.formulas import activations as A
from planner.quantity import value_of
from planner.spec.case import Case
from planner.step import breakdown as B
from planner.step import moments as M
from planner.step.memory import memory, stages
from planner.step.setting import setting
from planner.units import GIB

#: the 345M model of Megatron-LM's functional tests (tests/functional_tests/test_cases/gpt): hidden size 512, 12 layers
GPT = {
    "model_type": "decoder", "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12,
    "num_attention_heads": 8, "vocab_size": 50304, "max_position_embeddings": 1024, "gated_mlp": False,
    "norm": "layernorm", "position": "learned", "bias": "all", "tie_word_embeddings": True,
}  # fmt: skip
MOE = {**GPT, "num_experts": 8, "experts_per_token": 2, "moe_intermediate_size": 1024, "bias": "none"}
TOKENS = 4 * 1024


def _case(model: dict[str, Any] = GPT, gpu: str = "h100-sxm", recipe: Any = None, **plan: Any) -> Case:
    spread = {"data_parallel": "zero", "zero": 1, "dp_shard": 8, "micro_batch": 4, **plan}
    return cases.case({
        "cluster": {"gpu": gpu, "gpus": 8}, "model": model, "plan": spread,
        "recipe": {"framework": "megatron-lm", "seq_len": 1024, "precision": "bf16-master", **(recipe or {})},
    }, files=False)  # fmt: skip


def _saved(case: Case, last: bool = True) -> dict[str, float]:
    group = setting(case, stages(case)[-1 if last else 0]).groups[-1]
    return {kept.name: float(value_of(kept)) for op in group.ops for kept in op.saved}


def test_gpt_like_models_train_with_dropout_and_rotary_ones_without() -> None:
    """megatron/training/arguments.py: both probabilities are 0.1; recipes of Llama's kind set them to 0."""
    assert _saved(_case())["attention.dropout_mask"] == _saved(_case())["mlp.dropout_mask"] == 512
    assert "mlp.dropout_mask" not in _saved(_case({**GPT, "position": "rope"}))
    assert "mlp.dropout_mask" not in _saved(_case(recipe={"dropout": 0}))
    assert any(line.startswith("recipe.dropout: 0.1") for line in _case().assumed)


def test_unfused_attention_keeps_five_bytes_a_score_with_dropout() -> None:
    """Softmax (2), mask (1) and what is left of it (2): one kernel scales, masks and normalises in 16 bit."""
    scores = 8 * 1024
    case = _case(recipe={"attention": "eager"})
    (core,) = (op for op in setting(case, stages(case)[0]).groups[0].ops if op.name == "attention")
    beside = ("attention.query", "attention.expanded_key", "attention.expanded_value", "attention.output")
    assert sum(float(value_of(k)) for k in core.saved if k.name not in beside) == 5 * scores


@pytest.mark.parametrize(("attention", "measured"), [("te-auto", 1.965), ("eager", 3.837)])
def test_the_golden_runs_of_one_stage(attention: str, measured: float) -> None:
    """te_tp1_pp1_dist_optimizer: peak less what stays between steps, GiB (golden_values_dev_dgx_h100.json)."""
    case = _case(recipe={"attention": attention})
    parts = B.breakdown(memory(case).allocated)
    passing = sum(float(value_of(parts[kind])) for kind in ("activations", "logits_and_loss")) / GIB
    assert passing == pytest.approx(measured, rel=0.004)


def test_workspaces_are_among_what_is_allocated() -> None:
    """Steady 0.094 GiB above the states on one H100 stage: 3 x 32 MiB; with a grouped product of experts four more."""
    parts = B.breakdown(memory(_case()).allocated)
    assert float(value_of(parts["workspaces"])) == 3 * 2**25
    assert float(value_of(B.breakdown(memory(_case(MOE, ep=8)).allocated)["workspaces"])) == 7 * 2**25
    assert float(value_of(B.breakdown(memory(_case(gpu="a100-sxm-80")).allocated)["workspaces"])) == 3 * 2**23
    assert float(value_of(memory(_case()).workspaces)) == 0


def test_routing_weights_are_applied_inside_the_experts() -> None:
    """No output of an expert is kept; an activation without a gate keeps its result before the weights, too."""
    plain, gated = _saved(_case(MOE, ep=8)), _saved(_case({**MOE, "gated_mlp": True}, ep=8))
    assert "mlp.expert_output" not in plain
    assert "mlp.expert_output" not in gated
    assert plain["mlp.weighted_product"] == plain["mlp.product"]
    assert "mlp.weighted_product" not in gated


def test_linears_of_an_8_bit_recipe_keep_the_cast_of_their_input() -> None:
    fp8 = {"precision": {"preset": "bf16-master", "gemm": "fp8"}}
    wide, cast = _saved(_case()), _saved(_case(recipe=fp8))
    assert cast["norm1.output"] == wide["norm1.output"] / 2
    assert cast["mlp.product"] == wide["mlp.product"] / 2
    assert cast["attention.output_cast"] == 512
    assert cast["mlp.up"] == wide["mlp.up"]
    assert not _case(recipe=fp8).spreads  # a formula of its own: the band is not widened


def test_a_layer_for_a_further_token_lives_on_the_last_stage_alone() -> None:
    """Its losses keep their softmax in fp32 until the backward; the last stage holds an embedding for it."""
    plan = {"pp": 2, "dp_shard": 4}
    with_it, without = (_case({**GPT, "mtp_num_layers": n, "position": "rope"}, **plan) for n in (1, 0))
    first, last = stages(with_it)
    assert value_of(memory(with_it, first).allocated) == value_of(memory(without, first).allocated)
    losses = [float(value_of(B.breakdown(memory(c, last).allocated)["logits_and_loss"])) for c in (with_it, without)]
    assert losses[0] - losses[1] == TOKENS * 50304 * 4
    weights = [float(value_of(memory(c, last).states.weights)) for c in (with_it, without)]
    layer, projection = 12 * 512**2, 2 * 512**2
    assert weights[0] - weights[1] == pytest.approx(2 * (50304 * 512 + layer + projection), rel=0.001)


@pytest.mark.parametrize(("microbatches", "chunks"), [(4, 9), (5, 11)])
def test_an_interleaved_group_is_whole(microbatches: int, chunks: int) -> None:
    """schedules.py: the last of groups of p micro-batches may not be smaller, so five on four stages are one group."""
    plan = {"pp": 4, "schedule": "interleaved-1f1b", "virtual_stages": 3, "dp_shard": 2}
    case = _case(recipe={"global_batch": 8 * microbatches}, **plan)
    kept = setting(case, stages(case)[-1])
    assert case.plan.accumulation == microbatches
    assert kept.stage.index == 3
    flight = A.in_flight_interleaved(pp=4, stage=3, microbatches=microbatches, virtual_stages=3, layers=3)
    assert value_of(flight) == pytest.approx(chunks / 3)


@pytest.mark.parametrize(("schedule", "held"), [("1f1b", 8), ("1f1b-vocab-1", 10), ("1f1b-vocab-2", 9),
                                                ("1f1b-interlaced", 12)])  # fmt: skip
def test_a_split_vocabulary_is_on_every_stage_and_costs_micro_batches(schedule: str, held: float) -> None:
    """arXiv 2411.05288: p micro-batches on the first stage and one for each barrier, 1.5 p where interlaced."""
    plan = {"pp": 8, "dp_shard": 1, "schedule": schedule, "micro_batch": 1}
    case = _case({**GPT, "num_hidden_layers": 32, "tie_word_embeddings": False}, recipe={"global_batch": 128}, **plan)
    first, *_, last = (setting(case, stage) for stage in stages(case))
    split = schedule != "1f1b"
    assert value_of(first.head) == (50304 * 512 / 8 if split else 0)
    assert value_of(first.embedding) == 50304 * 512 / (8 if split else 1)
    assert value_of(first.embedding) - value_of(last.embedding) == (0 if split else 50304 * 512)
    step = M.step(first)
    each = sum(float(value_of(kept)) for kept in step.kept)
    assert float(value_of(step.waiting)) == pytest.approx(each * (held - 1))


def test_16_bit_gradients_get_fp32_copies_for_the_step() -> None:
    """distrib_optimizer.py _copy_model_grads_to_main_grads; fp32 gradients are used as they are."""
    for preset, copies in (("fp16-master", 4), ("bf16-master", 0)):
        precision = {"preset": preset, **({"grads": "fp16"} if copies else {})}
        case = _case(recipe={"precision": precision}, dp_shard=8)
        made = memory(case)
        params = float(value_of(made.states.weights)) / 2
        before = sum(float(value_of(s)) for s in (made.states.weights, made.states.gradients, made.states.master,
                                                  made.states.optimizer))  # fmt: skip
        more = float(value_of(made.moments["optimizer"])) - before
        assert more == pytest.approx(copies * params / 8 + 3 * 2**25, rel=0.1)


def test_fp16_gradients_stay_16_bit_and_bf16_ones_do_not() -> None:
    """megatron/training/arguments.py sets accumulate_allreduce_grads_in_fp32 with bf16 alone."""
    grads = [_case(recipe={"precision": preset}).recipe.precision.grads for preset in ("fp16-master", "bf16-master")]
    assert grads == ["fp16", "fp32"]


def test_latent_attention_drops_out_too() -> None:
    """te_tp2_pp2_mla (golden_values_dev_dgx_h100.json): mask and what is left of the scores, 3 bytes a score more."""
    mla = {**GPT, "q_lora_rank": 192, "kv_lora_rank": 64, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
           "v_head_dim": 16}  # fmt: skip
    cores = []
    for dropout in (0.1, 0):
        case = _case(mla, recipe={"attention": "eager", "dropout": dropout})
        ops = setting(case, stages(case)[0]).groups[0].ops
        cores.append(sum(float(value_of(k)) for op in ops if op.name == "attention" for k in op.saved))
    assert cores[0] - cores[1] == 3 * 8 * 1024


@pytest.mark.parametrize(("stage", "layers", "held"), [(0, 1, 11 - 7), (1, 2, 9), (3, 1, 5 - 1)])
def test_a_chunk_that_lacks_a_layer_holds_less(stage: int, layers: int, held: int) -> None:
    """Six layers, embedding and loss on four stages of two chunks (account_for_embedding_in_pipeline_split): what is in
    flight, in layers; the first stage's first chunk and the last one's last hold none."""
    flight = A.in_flight_interleaved(pp=4, stage=stage, microbatches=100, virtual_stages=2, layers=layers)
    assert float(value_of(flight)) * layers == pytest.approx(held)
