"""The training recipe: task, batch, precision, optimizer, checkpointing, kernels. Values are the run records' own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from planner.spec.model import Count

#: bytes an element as stored; 4-bit kinds include their scales: nf4 one fp32 (or one fp8, doubly quantised) in 64, int4
#: (optimizer states) one fp32 in 128, GPTQ, AWQ and HQQ an fp16 scale and a packed zero point in 128
WIDTH: dict[str, float] = {
    "none": 0.0,
    "fp32": 4.0,
    "tf32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0 + 4.0 / 256,
    "nf4": 0.5 + 4.0 / 64,
    "nf4-dq": 0.5 + 1.0 / 64 + 4.0 / (64 * 256),
    "int4": 0.5 + 4.0 / 128,
    "gptq-int4": 0.5 + 2.5 / 128,
    "awq-int4": 0.5 + 2.5 / 128,
    "hqq-int4": 0.5 + 2.5 / 128,
}

#: bytes an element of a linear's input as it is kept for the weight's gradient, scales included (one in 32; one in 16)
CAST_WIDTH: dict[str, float] = {"fp8": 1.0, "mxfp8": 1.0 + 1.0 / 32, "nvfp4": 0.5 + 1.0 / 16}

#: state tensors an optimizer keeps for each trained parameter
STATES: dict[str, float] = {
    "adamw": 2.0, "adam": 2.0, "adamw8bit": 2.0, "adamw4bit": 2.0, "lion": 1.0, "sgd": 0.0, "sgd-momentum": 1.0,
    "adafactor": 0.0, "muon": 1.0,
}  # fmt: skip

PRECISIONS = ("fp32", "tf32", "autocast-bf16", "autocast-fp16", "bf16-master", "fp16-master", "bf16-pure")
TASKS = ("pretrain", "full-ft", "lora", "qlora")
#: models that an algorithm holds: how many it trains, and how many stand frozen beside them (TRL, verl, OpenRLHF)
MODELS = {"dpo": (1, 1), "grpo": (1, 1), "rl": (1, 1), "ppo": (2, 2)}
CHECKPOINTING = ("none", "full", "selective-op", "selective-modules", "every-k", "partial-layers")
#: what selective-modules can recompute (Megatron's names)
MODULES = ("core_attn", "layernorm", "mlp", "moe", "moe_act", "mla_up_proj", "shared_experts")
ATTENTION = ("sdpa", "flash", "flash2", "flash3", "cudnn", "te-auto", "mem-efficient", "eager")
LOSSES = ("full-logits", "fused-ce", "chunked-ce", "chunked-linear-ce", "fused-linear-ce")
OPTIMIZER_IMPLS = ("fused", "foreach", "for-loop")
BASE_DTYPES = ("fp32", "bf16", "fp16", "fp8", "int8", "nf4", "nf4-dq", "gptq-int4", "awq-int4", "hqq-int4")
SAVED_MODULES = ("embedding", "head")
PEFT_TARGETS = ("q", "k", "v", "o", "gate", "up", "down")


@dataclass(frozen=True, slots=True)
class Precision:
    """Dtype of each stored thing, by name.

    params           the weights the optimizer or the base keeps
    compute          inputs of matrix products
    autocast         the model stays in `params` and torch.autocast casts on the fly
    grads            gradients as stored; grad_reduce on the wire
    master           an fp32 copy of 16-bit weights, or "none" where `params` are the master
    optimizer_state  the optimizer's state tensors
    gemm             what matrix products run in where it is narrower than `compute` and decides what is kept
    """

    preset: str
    params: Any
    compute: Any
    autocast: bool
    grads: Any
    grad_reduce: Any
    master: Any
    optimizer_state: Any
    gemm: str = "none"


#: methods of the PEFT library, and what each keeps of a projection that it adapts: its input ("input", as LoRA); the
#: results of base and adapter too, which a magnitude scales ("results"); an update as large as the weight ("update");
#: sums of the input as narrow as the rank ("sums"); nothing, as it trains other things ("none"). LLaMA-Adapter has a
#: prompt in each layer's attention ("prompt"), its V2 also scales the results of every linear ("scale")
METHODS: dict[str, str] = {
    "lora": "input", "qlora": "input", "adalora": "input", "delora": "input", "gralora": "input", "oft": "input",
    "psoft": "input", "randlora": "input", "vblora": "input", "vera": "input", "dora": "results",
    "fourierft": "update", "loha": "update", "lokr": "update", "bone": "sums", "miss": "sums", "ln_tuning": "none",
    "prefixtuning": "none", "prompt_tuning": "none", "ptuning": "none", "ptuning-v2": "none",
    "trainable_tokens": "none", "llama-adapter": "prompt", "llama-adapter-v2": "scale",
}  # fmt: skip
#: kinds that sit on no projection in particular
UNTARGETED = ("none", "prompt", "scale")


@dataclass(frozen=True, slots=True)
class Peft:
    """Adapters on a frozen base: rank, which projections carry one, and how the base is stored.

    modules_to_save  weights outside the layers that train whole, each in a copy beside the frozen one
    each_layer       trained parameters of one layer where they are stated; else they follow from rank and targets
    """

    method: str
    rank: Count
    targets: tuple[str, ...]
    base_dtype: str
    adapter_dtype: str = "fp32"
    modules_to_save: tuple[str, ...] = ()
    each_layer: float | None = None

    @property
    def keeps(self) -> str:
        """What its method keeps of a projection."""
        return METHODS[self.method]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the model is trained.

    seq_len        tokens a sequence
    global_batch   sequences an optimizer step, or None (then one micro-batch a rank, see `Plan`)
    tokens         total training tokens, or None
    checkpoint_every  every-k: each k-th layer is recomputed
    checkpoint_region full: layers of one recomputed region (Megatron's uniform method; 1 = every layer)
    checkpoint_most   partial-layers: how many layers of a stage are recomputed
    recomputed        selective-modules: what is recomputed
    compiled          torch.compile around the model
    optimizer_in_backward  each weight is stepped as soon as it has its gradient, which is then freed
    loss_chunks    chunks of a chunked loss
    tiled_mlp      the feed-forward takes the tokens tile by tile and recomputes each in the backward (ALST)
    models_trained, models_beside  further models of this size that the algorithm trains; that it holds at all
    """

    framework: str
    task: str
    seq_len: Count
    precision: Precision
    optimizer: Any
    optimizer_impl: Any
    checkpointing: Any
    attention: str
    loss: str
    loss_chunks: Count
    global_batch: Count | None = None
    tokens: float | None = None
    dropout: float | None = None
    allocator: str = "native"
    peft: Peft | None = None
    checkpoint_every: Count = 1
    checkpoint_region: Count = 1
    checkpoint_most: Count = 1
    recomputed: tuple[str, ...] = ()
    compiled: bool = False
    optimizer_in_backward: bool = False
    tiled_mlp: bool = False
    keeps_logits: bool = False
    models_trained: Count = 0
    models_beside: Count = 0
    args: dict[str, Any] = field(default_factory=dict, hash=False)
