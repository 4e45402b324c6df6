"""The cases that reports are made of here: one a verdict, a pipeline, adapters."""

from __future__ import annotations

import datetime
from typing import Any

DATE = datetime.date(2026, 11, 30)

CASES: dict[str, dict[str, Any]] = {
    "fits": {"model": "llama-3.1-8b", "cluster": {"gpu": "h100-sxm", "gpus": 8}},
    "edge": {
        "model": "llama-3-8b",
        "cluster": {"gpu": "h100-sxm", "gpus": 2},
        "recipe": {"framework": "pytorch", "seq_len": 8192, "checkpointing": "full"},
    },
    "too much": {"model": "llama-3-8b", "cluster": {"gpu": "h100-sxm", "gpus": 2}, "recipe": {"seq_len": 8192}},
    "pipeline": {
        "model": "llama-3.1-70b",
        "cluster": {"gpu": "h100-sxm", "gpus": 16},
        "recipe": {"framework": "megatron-lm"},
        "plan": {"tp": 4, "pp": 4},
    },
    "adapters": {
        "model": "llama-3-8b",
        "cluster": {"gpu": "a100-sxm-80", "gpus": 1},
        "recipe": {"task": "lora", "framework": "hf"},
    },
}
