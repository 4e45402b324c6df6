"""What torchtitan's code decides by date, against its published runs and its layers on meta tensors."""

from __future__ import annotations

from typing import Any

import pytest

from planner import cases
from planner.step import activations as act
from planner.step.evaluate import evaluate
from planner.step.setting import Stage, setting

GIB = 2**30
SIXTEEN = {
    "model_type": "decoder", "hidden_size": 2048, "num_hidden_layers": 27, "num_attention_heads": 16,
    "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_experts": 64, "experts_per_token": 6,
    "shared_intermediate_size": 2816, "first_k_dense": 1, "vocab_size": 102400, "q_lora_rank": None,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip


def raw(framework: str, model: Any = "llama-3-8b", gpus: int = 8, plan: Any = None, **recipe: Any) -> dict[str, Any]:
    return {
        "cluster": {"gpu": "h100-sxm", "gpus": gpus}, "model": model,
        "recipe": {"framework": framework, "seq_len": 4096, **recipe},
        "plan": {"data_parallel": "fsdp2", **(plan or {})},
    }  # fmt: skip


def memory(*args: Any, **more: Any) -> Any:
    return evaluate(cases.case(raw(*args, **more))).memory


def reserved(*args: Any, **more: Any) -> float:
    return float(memory(*args, **more).reserved) / GIB


def test_the_experts_backward_is_that_of_the_layer_on_meta_tensors() -> None:
    """torchtitan's MoE on torch's meta device (score after the experts, permuted and padded): 26.5 bytes for each
    routed channel at the multiplication with the scores, 25.8 without the layer's output and its gradient."""
    case = cases.case(raw("torchtitan", model=SIXTEEN, checkpointing="full"))
    here = setting(case, Stage())
    group = next(g for g in here.groups if g.spec.mlp.kind == "moe")
    experts = [op for op in group.ops if op.name in ("dispatch", "up", "activation", "down", "combine")]
    shared = [op for op in group.ops if op.name.startswith("shared_")]
    combine = experts[-1]
    alive = [k for op in (*experts[:-1], *shared) for k in op.saved] + list(combine.working)
    unit = 6 * 2048
    assert sum(float(k.value) for k in alive) / unit == pytest.approx(25.8, rel=0.03)


def test_exchanges_of_experts_are_kept_since_september_2025() -> None:
    """Pull request 1672 prints 70.02 and 74.53 GiB; its log runs 4,080 tokens a GPU and step."""
    more: dict[str, Any] = {"model": SIXTEEN, "checkpointing": "selective-op", "plan": {"ep": 4}}
    before, after = (reserved(f"torchtitan@{day}", **more) for day in ("2025-09-05", "2025-09-06"))
    assert after - before == pytest.approx(74.53 - 70.02, rel=0.15)


def test_a_loss_by_chunks_takes_the_head_by_chunks_since_april_2026() -> None:
    """Commit bcc09297a (August 2026): 174.49 GiB on four GB200, 3.5 % less here; whole logits would be 10 % more."""
    more: dict[str, Any] = {
        "loss": "chunked-ce", "compile": True, "checkpointing": "selective-op", "seq_len": 2048, "gpus": 4,
        "plan": {"micro_batch": 32}, "allocator": "expandable",
    }  # fmt: skip
    case = raw("torchtitan@2026-08-05", **more)
    case["cluster"]["gpu"] = "gb200"
    assert float(evaluate(cases.case(case)).memory.reserved) / GIB == pytest.approx(174.49, rel=0.04)
    assert cases.case(case).recipe.loss == "chunked-linear-ce"
    older = cases.case(raw("torchtitan@2026-02", **more))
    assert older.recipe.loss == "chunked-ce"


def test_four_bit_products_are_not_on_the_list_of_what_is_kept() -> None:
    case = raw("torchtitan", checkpointing="selective-op", precision={"gemm": "nvfp4"})
    wide = raw("torchtitan", checkpointing="selective-op")
    kept = [
        sum(float(act.tensors(here, g).kept) for g in here.groups)
        for here in (setting(cases.case(one), Stage()) for one in (case, wide))
    ]
    assert kept[0] < 0.45 * kept[1]


def test_muon_has_one_state_on_matrices_and_adams_two_on_the_rest() -> None:
    adam, muon = (
        evaluate(cases.case(raw("pytorch", optimizer=name, gpus=1, plan={"data_parallel": "none"}))).memory.states
        for name in ("adamw", "muon")
    )
    width = 4
    outside = 2 * 128256 * 4096 + 65 * 4096
    assert float(muon.optimizer) == pytest.approx(float(adam.optimizer) / 2 + width * outside, rel=1e-6)


def test_a_pipeline_of_fsdp2_keeps_whole_gradients_until_its_last_micro_batch() -> None:
    """torch/distributed/pipelining/stage.py turns FSDP2's gradient synchronisation off before the last one."""
    plan = {"pp": 4, "dp_shard": 2, "micro_batch": 1}
    case = cases.case({**raw("torchtitan", plan=plan), "recipe": {
        "framework": "torchtitan", "seq_len": 4096, "global_batch": 16, "checkpointing": "full",
    }})  # fmt: skip
    here = setting(case, Stage(1, 0, 0))
    assert float(here.ways_passing.value) == 1
    alone = cases.case({**raw("torchtitan", plan={**plan, "pp": 1, "dp_shard": 8}), "recipe": {
        "framework": "torchtitan", "seq_len": 4096, "global_batch": 64, "checkpointing": "full",
    }})  # fmt: skip
    assert float(setting(alone, Stage()).ways_passing.value) == 8
