"""A fake trace against a real step on the CPU, whose allocations torch's own profiler counts: equal to 0.1 %."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracles.traced import apart, trace

SMALL = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4, "num_attention_heads": 8}
LLAMA = {"model_type": "llama", **SMALL, "num_key_value_heads": 4, "vocab_size": 1024, "tie_word_embeddings": False}

#: (what, configuration, sequences, tokens, checkpointing)
MODELS: dict[str, tuple[dict[str, Any], int, int, str]] = {
    "llama": (LLAMA, 2, 256, "none"),
    "llama, recomputed": (LLAMA, 2, 256, "full"),
    "llama, tied, a wide vocabulary": ({**LLAMA, "vocab_size": 32000, "tie_word_embeddings": True}, 1, 64, "none"),
    "llama, a wide vocabulary": ({**LLAMA, "vocab_size": 32000}, 2, 128, "none"),
    "qwen2": ({**LLAMA, "model_type": "qwen2"}, 2, 256, "none"),
    "qwen3": ({**LLAMA, "model_type": "qwen3", "head_dim": 32}, 2, 256, "none"),
    "mistral": ({**LLAMA, "model_type": "mistral", "sliding_window": None}, 2, 256, "none"),
    "olmo2": ({**LLAMA, "model_type": "olmo2"}, 2, 256, "full"),
    "gpt_neox": (
        {"model_type": "gpt_neox", **SMALL, "vocab_size": 1024, "attention_dropout": 0.0, "hidden_dropout": 0.0},
        2, 256, "none",
    ),
    "gpt2": (
        {"model_type": "gpt2", "n_embd": 256, "n_layer": 4, "n_head": 8, "vocab_size": 1024, "resid_pdrop": 0.0,
         "embd_pdrop": 0.0, "attn_pdrop": 0.0},
        2, 256, "none",
    ),
}  # fmt: skip


def real(which: str) -> int:
    """Peak of live bytes of the second real step: what is held before it, and the profiler's allocations."""
    import torch
    import transformers
    from torch.profiler import ProfilerActivity, profile

    config, batch, length, checkpointing = MODELS[which]
    torch.set_num_threads(1)
    made = transformers.AutoConfig.for_model(**config)
    made.use_cache = False
    model = transformers.AutoModelForCausalLM.from_config(made, dtype=torch.float32, attn_implementation="sdpa")
    model.train()
    if checkpointing == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, made.vocab_size, (batch, length))

    def step() -> None:
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        del loss
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()
    states = [v for state in optimizer.state.values() for v in state.values()]
    held = [*model.parameters(), *model.buffers(), *states, ids]
    live = peak = sum(one.numel() * one.element_size() for one in held)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def fake(which: str) -> int:
    """Peak of the fake trace of the same step, with this machine's own operations."""
    config, batch, length, checkpointing = MODELS[which]
    found = trace({
        "model": {"code": "transformers", "config": config}, "seq_len": length, "micro_batch": batch, "accumulation": 1,
        "params_dtype": "fp32", "autocast": None, "mixed": None, "dropout": None, "attention": "flash",
        "checkpointing": checkpointing, "offload_activations": False, "keeps_logits": False, "clip": True,
        "loss": {"kind": "full-logits", "inside": True, "chunks": 1}, "optimizer": {"name": "adamw", "impl": "fused"},
        "spread": {"kind": "none", "replicate": 1, "shard": 1, "tp": 1, "sequence_parallel": False,
                   "reshard": "always", "root": "shared", "waits": False},
        "adapters": None, "semantics": "cpu", "fake": True, "steps": 2, "log": False,
    })  # fmt: skip
    return int(found["peak_bytes"])


@pytest.mark.oracle
def test_a_fake_trace_equals_a_real_step() -> None:
    assert len(MODELS) == 10
    measured, traced = list(apart(real, MODELS)), list(apart(fake, MODELS))
    off = {w: f / r - 1 for w, r, f in zip(MODELS, measured, traced, strict=True)}
    assert all(abs(size) < 0.001 for size in off.values()), off
