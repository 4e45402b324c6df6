"""What the code of LitGPT, torchtune and fsdp_qlora keeps, claim by claim; published peaks they print."""

from __future__ import annotations

from typing import Any

import pytest

from planner import cases
from planner.quantity import value_of
from planner.spec.case import Case
from planner.step import breakdown as B
from planner.step.memory import memory, stages
from planner.step.setting import setting
from planner.units import GIB

#: hidden size 256, 4 heads; what LitGPT 0.5.3's own code saves of a layer, by saved-tensor hooks around litgpt.lora.GPT
LLAMA = {
    "model_type": "decoder", "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4,
    "num_attention_heads": 4, "vocab_size": 512, "max_position_embeddings": 256, "gated_mlp": True,
    "norm": "rmsnorm", "position": "rope", "bias": "none", "tie_word_embeddings": False,
}  # fmt: skip
NEOX = {**LLAMA, "intermediate_size": 1024, "gated_mlp": False, "norm": "layernorm"}
QV = {"rank": 8, "targets": ["q", "v"]}


def _case(model: Any = "llama-3-8b", gpus: int = 1, micro: int = 1, batch: int | None = None, **recipe: Any) -> Case:
    plan = {"micro_batch": micro, **({"data_parallel": "fsdp1"} if gpus > 1 else {})}
    stated = {"framework": "litgpt", "task": "lora", "seq_len": 512, "precision": "bf16-pure", "peft": QV, **recipe}
    if batch:
        stated["global_batch"] = batch
    return cases.case({
        "cluster": {"gpu": "h100-sxm", "gpus": gpus}, "model": model, "recipe": stated, "plan": plan
    }, files=False)  # fmt: skip


def _gib(case: Case) -> float:
    return float(memory(case).allocated) / GIB


def _saved(case: Case) -> dict[str, float]:
    group = setting(case, stages(case)[0]).groups[-1]
    return {kept.name: float(value_of(kept)) for op in group.ops for kept in op.saved}


@pytest.mark.parametrize(
    ("model", "hidden_sizes"),
    [(LLAMA, 46.31), ({**LLAMA, "num_key_value_heads": 2}, 41.30), (NEOX, 30.28)],
    ids=["llama", "grouped", "neox"],
)
def test_a_layer_keeps_what_litgpts_code_saves(model: dict[str, Any], hidden_sizes: float) -> None:
    """B a token over the hidden size, less the mask of dropout, which CUDA keeps in one byte and the traced CPU in two,
    and index tables that grow with no token (0.08)."""
    traced = hidden_sizes - 1 - 0.08
    assert sum(_saved(_case(model, seq_len=256)).values()) / 256 == pytest.approx(traced, rel=0.005)


PUBLISHED = [
    ("llama-2-7b", "lora", 2, 19.77), ("llama-2-7b", "qlora", 2, 13.68), ("llama-3-8b", "lora", 1, 19.73),
    ("llama-3-8b", "qlora", 2, 17.4), ("mistral-7b", "lora", 2, 20.66), ("mistral-7b", "qlora", 2, 14.29),
]  # fmt: skip


@pytest.mark.parametrize(("model", "task", "micro", "gb"), PUBLISHED)
def test_published_peaks_of_litgpt(model: str, task: str, micro: int, gb: float) -> None:
    """Lightning-AI/litgpt config_hub/finetune/README.md: GB of torch.cuda.max_memory_allocated, 512 tokens."""
    peft = {"rank": 32, "targets": ["q", "v"]}
    offload = {"optimizer": "adamw8bit"} if task == "qlora" else {}
    found = _gib(_case(model, micro=micro, task=task, peft=peft, batch=8, **offload))
    assert found * GIB / 1e9 == pytest.approx(gb, rel=0.015)


def test_packed_linears_keep_their_inputs_through_the_next_forward() -> None:
    """bitsandbytes 0.42 MatMul4Bit: ctx.tensors = (A, B); the loop's logits hold the graph that these hang on."""
    now, first = (_case(framework=f"litgpt@{when}", task="qlora") for when in ("2024-10-01", "2023-10-20"))
    assert _saved(now)["norm2.output"] == 2 * 4096
    assert memory(now).peak_phase == "forward"
    held = B.breakdown(memory(now).allocated)["activations"].value - B.breakdown(memory(first).allocated)[
        "activations"
    ].value  # fmt: skip
    inputs = 32 * 512 * (3 * 2 * 4096 + 2 * 14336)
    assert held == pytest.approx(inputs, rel=0.02)


def test_gradients_stay_whole_while_fsdp1_accumulates_without_synchronising() -> None:
    """torch FSDP.no_sync; frozen weights share a block's flat parameter with adapters and have a gradient too."""
    once, twice = (_case("llama-2-7b", gpus=2, batch=batch, checkpointing="full") for batch in (2, 4))
    layers = 32 * 202_383_360
    assert _gib(twice) - _gib(once) > (layers * 2 - layers) / GIB
    kept = setting(twice, stages(twice)[0])
    assert value_of(kept.ways_passing) == 1
    assert value_of(kept.ways_gradients) == 2


def test_llama_adapter_trains_what_lit_gpt_counted() -> None:
    """tutorials/resource-tables.md names 1,229,760 trained parameters of Llama 2 7B, in 30 of its 32 layers."""
    prompt = _case("llama-2-7b", peft={"method": "llama-adapter"})
    group = setting(prompt, stages(prompt)[0]).groups[0]
    assert 30 * float(value_of(group.trained)) == 1_229_760
    scaled = _saved(_case("llama-2-7b", peft={"method": "llama-adapter-v2"}))
    more = {name: size for name, size in scaled.items() if name.endswith("unscaled")}
    assert sum(more.values()) == 2 * (3 * 4096 + 4096 + 2 * 11008 + 4096)


def test_torchtune_sums_the_heads_gradient_by_chunks() -> None:
    """torchtune README, Llama 3.2 3B packed to 4,096, batch 2: 23.1 GiB with the optimizer in the backward."""
    full = {
        "framework": "torchtune", "task": "full-ft", "seq_len": 4096, "optimizer_in_backward": True,
        "checkpointing": "full", "compile": True, "loss": "chunked-ce",
    }  # fmt: skip
    assert _gib(_case("llama-3.2-3b", micro=2, peft=None, **full)) == pytest.approx(23.1, rel=0.02)


def test_a_frozen_fp32_base_is_cast_by_each_chunk_of_the_head() -> None:
    """Autocast caches no copy of a weight that needs no gradient: each of 4 chunks of 128 tokens holds its own."""
    mixed = {"precision": "autocast-bf16", "peft": {**QV, "base_dtype": "fp32"}}
    parts = B.breakdown(memory(_case("llama-2-7b", **mixed)).allocated)
    head = 32000 * 4096 * 2
    layers = 32 * 202_375_168 * 2
    assert float(parts["weight_copies"].value) == pytest.approx(layers + 4 * head, rel=0.01)
