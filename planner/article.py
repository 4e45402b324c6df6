"""The founding article: its example as cases of the planner, and the audit of every figure it states.

The audit's rows are data/article/audit.toml; a row that names a live figure shows what the planner computes now.
The example is batch 32, 2,048 tokens, hidden 8,192, 40 layers, and for states 40e9 parameters, on 8 H100.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from planner import cases, i18n, paths
from planner.formulas import activations as A
from planner.formulas import thumb as F
from planner.formulas.temporaries import logits_bytes
from planner.i18n import Phrase
from planner.layers.model import parameters
from planner.quantity import Like, Quantity, given, total, value_of
from planner.search.largest import largest
from planner.spec import catalog, presets
from planner.spec.build import merged
from planner.spec.case import Case
from planner.spec.model import Model
from planner.step import activations as act
from planner.step.evaluate import evaluate
from planner.step.setting import Setting, Stage, setting
from planner.step.states import States, states
from planner.units import GIB

SOURCE = "founding-article"
CLUSTER: Mapping[str, Any] = MappingProxyType({"gpu": "h100-sxm", "gpus": 8})
WIDTH, LAYERS, BATCH, SEQ_LEN, PARAMS = 8192, 40, 32, 2048, 40e9
VERDICTS = ("sound", "approx", "wrong")

Changes = Mapping[str, Any]
#: stacks whose layers differ most in what they keep
FUSED: Changes = {"recipe.framework": "megatron-lm", "recipe.precision": "bf16-master"}
COMPOSED: Changes = {"recipe.framework": "hf-transformers", "recipe.precision": "bf16-pure"}
AUTOCAST: Changes = {"recipe.framework": "hf-transformers", "recipe.precision": "autocast-bf16"}
EAGER: Changes = {**COMPOSED, "recipe.attention": "eager"}
FP32: Changes = {"recipe.precision": "fp32"}
DEEPSPEED: Changes = {"recipe.framework": "deepspeed", "recipe.precision": "bf16-master", "plan.data_parallel": "zero"}

# The audit


@dataclass(frozen=True, slots=True)
class Row:
    """One figure or claim of the article, judged.

    section, scope   the article's section, and the promise it belongs to (S1 to S18)
    live             the name of a figure the planner computes, or ""; `expect` is what the text says of it, in `unit`
    """

    number: int
    section: str
    scope: str
    verdict: str
    words: Mapping[str, str]
    live: str = ""
    unit: str = ""
    expect: float | None = None
    rel_tol: float = 0.0

    def claim(self, language: str | None = None) -> str:
        """What the article says, in short."""
        return self.words[f"claim_{language or i18n.current()}"]

    def text(self, language: str | None = None) -> str:
        """What is right, and why."""
        return self.words[f"right_{language or i18n.current()}"]

    def note(self, language: str | None = None) -> str:
        """Where the planner's own formulas say something else than the audit did; mostly empty."""
        return self.words.get(f"note_{language or i18n.current()}", "")

    def figure(self) -> Quantity | None:
        """The live figure, in SI; None where the row has none."""
        return live(self.live) if self.live else None

    def shown(self) -> float | None:
        """The live figure in the row's own unit."""
        found = self.figure()
        return None if found is None else float(value_of(found)) / _PER.get(self.unit, 1.0)


#: the unit a row shows a figure in -> how many of the SI unit; others are SI
_PER = {"GiB": GIB, "GB": 1e9, "1e9 param": 1e9, "%": 1e-2}
_TEXT = ("claim_en", "claim_zh", "right_en", "right_zh", "note_en", "note_zh")


@functools.cache
def audit() -> tuple[Row, ...]:
    """Every row, in the article's order."""
    tree = tomllib.loads((paths.data() / "article" / "audit.toml").read_text(encoding="utf-8"))
    return tuple(_row(one) for one in tree["row"])


def _row(one: Mapping[str, Any]) -> Row:
    words = {k: one[k] for k in _TEXT if k in one}
    return Row(**{k: v for k, v in one.items() if k not in words}, words=MappingProxyType(words))


def tally() -> dict[str, int]:
    """Rows by verdict."""
    return {verdict: sum(row.verdict == verdict for row in audit()) for verdict in VERDICTS}


# The example


def example(changes: Changes, model: Model | None = None, gpus: int = 8) -> Case:
    """The article's example with some fields of a case stated."""
    base = {"cluster": {**CLUSTER, "gpus": gpus}, "recipe": {"seq_len": SEQ_LEN}}
    return cases.case(merged(base, changes), model or presets.shape(WIDTH, LAYERS))


def one_gpu(changes: Changes, batch: int = BATCH) -> Setting:
    """The example's layers with `batch` sequences together, as one GPU without sharding would hold them."""
    return setting(example({**changes, "plan.micro_batch": batch}, gpus=1), Stage())


def one_layer(changes: Changes, batch: int = BATCH) -> act.LayerTensors:
    """Saved tensors and input of one layer."""
    here = one_gpu(changes, batch)
    return act.tensors(here, here.groups[0])


def all_layers(changes: Changes, batch: int = BATCH) -> Quantity:
    """Saved tensors of all layers, none recomputed."""
    return F.thumb_layers(called="layers_saved", layer_bytes=one_layer(changes, batch).saved, layers=LAYERS)


def checkpointed(changes: Changes, every: Like, batch: int = BATCH) -> Quantity:
    """Most that the layers keep in the backward when only the input of every `every`-th layer is kept."""
    layer = one_layer(changes, batch)
    others = A.kept_in_backward(
        called="kept_by_layers", saved=layer.saved, checkpointed=layer.input, layers=LAYERS, done=0, region=every,
        every=1, most=LAYERS, recomputed=1,
    )  # fmt: skip
    return total("checkpointed", [others, layer.saved])


def attention_part(changes: Changes, *names: str) -> Quantity:
    """Some of the tensors that the attention of all layers keeps."""
    here = one_gpu(changes)
    parts = [kept for op in here.groups[0].ops for kept in op.saved if kept.name.removeprefix("attention.") in names]
    layer = A.microbatch_bytes(called="layer_attention", tokens=here.tokens, per_token=total("attention_part", parts))
    return F.thumb_layers(called="attention_saved", layer_bytes=layer, layers=LAYERS)


def logits(batch: int) -> Quantity:
    """The backward of the loss over whole logits, 12 B each, for a vocabulary of 128,256."""
    here = one_gpu(COMPOSED, batch)
    return logits_bytes(called="logits", tokens=here.tokens, vocab=here.vocab, logit_width=12, tp=1)


def held(changes: Changes, gpus: int = 8) -> tuple[States, Quantity]:
    """States of one rank of a model of about 40e9 parameters, and how many it has exactly."""
    case = example(changes, presets.model("40B"), gpus)
    return states(setting(case, Stage())), parameters(case.model)


def together(found: States, *names: str) -> Quantity:
    """All states, or those named."""
    parts = names or ("weights", "gradients", "master", "optimizer")
    return total("states", [getattr(found, name) for name in parts])


def per_card(changes: Changes, *names: str, gpus: int = 8, params: float = PARAMS) -> Quantity:
    """States of one card, wherever they live, for exactly `params` parameters: all, or those named."""
    found, own = held(changes, gpus)
    wanted = given(params, "param", "wanted_params", source=SOURCE)
    return F.scaled_to(called="states", size=together(found, *names), params=own, wanted_params=wanted)


def width(changes: Changes, *names: str, gpus: int = 1) -> Quantity:
    """B/param of the states of one card; unsharded on one GPU."""
    size = per_card(changes, *names, gpus=gpus)
    return F.per_parameter(size=size, params=given(PARAMS, "param", "params", source=SOURCE))


def zero(stage: int, changes: Changes = DEEPSPEED) -> Changes:
    """A case with that ZeRO stage."""
    return {**changes, "plan.data_parallel": "zero", "plan.zero": stage}


def largest_of(family: str) -> Quantity:
    """Parameters of the largest model of a recipe family on the article's 8 H100."""
    return given(_largest()[family], "param", "largest", because=Phrase("because.one-layer-more"))


@functools.cache
def _largest() -> dict[str, float]:
    return {one.regime.id: one.params for one in largest(CLUSTER)}


def overhead() -> Quantity:
    """What a card holds outside torch's tensors: CUDA context, NCCL and kernel workspaces."""
    memory = evaluate(example({**zero(3), "recipe.checkpointing": "full"}, presets.model("40B"))).memory
    return total("overhead", [memory.context, memory.nccl, memory.workspaces])


# Figures computed live


def adapters(task: str) -> Quantity:
    """The share of the states that adapters on a frozen base save, on one GPU."""
    fields = {"recipe.task": task, "recipe.framework": "hf-transformers"}
    return F.share_saved(a=together(held(fields, gpus=1)[0]), b=together(held(AUTOCAST, gpus=1)[0]))


def _saved_by_stage(stage: int) -> Quantity:
    """B/param that a ZeRO stage takes off a card, over the stage before."""
    less = F.difference(a=per_card(zero(stage - 1)), b=per_card(zero(stage)))
    return F.per_parameter(size=less, params=given(PARAMS, "param", "params", source=SOURCE))


def _growth() -> Quantity:
    """The third sequence's memory over the second's: 1 where memory is a line in the micro-batch."""
    fields = {**AUTOCAST, "plan.data_parallel": "fsdp2", "recipe.checkpointing": "full", "recipe.seq_len": 4096}
    made = [example({**fields, "plan.micro_batch": n}, presets.model("llama-3-8b")) for n in (1, 2, 3)]
    peaks = [evaluate(case).memory.allocated for case in made]
    return F.proportion(a=F.difference(a=peaks[2], b=peaks[1]), b=F.difference(a=peaks[1], b=peaks[0]))


def _peak_ratio(fast: str, slow: str) -> Quantity:
    peak = catalog.accelerator("h100-sxm").peak
    return F.proportion(a=peak[fast], b=peak[slow])


def _best_interval() -> Quantity:
    layer = one_layer(FUSED)
    return F.best_interval(layers=LAYERS, input=layer.input, saved=layer.saved)


def _usable(gpus: int) -> Quantity:
    memory = catalog.accelerator("h100-sxm").memory_usable
    return F.thumb_memory(called="usable", sold_memory=memory, sold_gpus=gpus)


LIVE: dict[str, Callable[[], Quantity]] = {
    "usable-card": lambda: _usable(1),
    "usable-node": lambda: _usable(8),
    "largest-fsdp2": lambda: largest_of("fsdp2-fp32"),
    "largest-zero-3": lambda: largest_of("zero3-16bit"),
    "largest-pure-16": lambda: largest_of("fsdp2-pure"),
    "weights-fp32": lambda: per_card(FP32, "weights", gpus=1),
    "gradients-fp32": lambda: per_card(FP32, "gradients", gpus=1),
    "moments-fp32": lambda: per_card(FP32, "optimizer", gpus=1),
    "width-fp32": lambda: width(FP32),
    "width-megatron": lambda: width(FUSED),
    "weights-autocast": lambda: width(AUTOCAST, "weights"),
    "gradients-autocast": lambda: width(AUTOCAST, "gradients"),
    "moments-and-master": lambda: width(DEEPSPEED, "optimizer", "master"),
    "master": lambda: width(DEEPSPEED, "master"),
    "example-params": lambda: parameters(presets.shape(WIDTH, LAYERS)),
    "layer-fused": lambda: one_layer(FUSED).saved,
    "layers-fused": lambda: all_layers(FUSED),
    "scores-eager": lambda: attention_part(EAGER, "softmax", "probabilities"),
    "logits": lambda: logits(4),
    "checkpointed-1": lambda: checkpointed(FUSED, 1),
    "checkpointed-5": lambda: checkpointed(FUSED, 5),
    "best-interval": _best_interval,
    "saved-zero-1": lambda: _saved_by_stage(1),
    "saved-zero-2": lambda: _saved_by_stage(2),
    "saved-zero-3": lambda: _saved_by_stage(3),
    "card-fp32-zero-1": lambda: per_card(zero(1, {**FP32, "recipe.framework": "deepspeed"})),
    "card-zero-0": lambda: per_card(zero(0)),
    "card-zero-1": lambda: per_card(zero(1)),
    "card-zero-2": lambda: per_card(zero(2)),
    "card-zero-3": lambda: per_card(zero(3)),
    "overhead": overhead,
    "growth": _growth,
    "doubled": lambda: F.proportion(a=one_layer(FUSED, 32).saved, b=one_layer(FUSED, 16).saved),
    "flash-saving": lambda: F.share_saved(a=one_layer(COMPOSED).saved, b=one_layer(EAGER).saved),
    "lora-saving": lambda: adapters("lora"),
    "weights-zero-2": lambda: per_card(zero(2), "weights"),
    "weights-zero-3": lambda: per_card(zero(3), "weights"),
    "gradients-zero-3": lambda: per_card(zero(3), "gradients"),
    "optimizer-zero-3": lambda: per_card(zero(3), "optimizer", "master"),
    "layers-two": lambda: all_layers(FUSED, 2),
    "checkpointed-two": lambda: checkpointed(FUSED, 1, 2),
    "bf16-to-tf32": lambda: _peak_ratio("bf16", "tf32"),
    "card-43": lambda: per_card(zero(3), params=43e9),
    "batch-tokens": lambda: one_gpu(FUSED).tokens,
}


@functools.cache
def live(name: str) -> Quantity:
    """A figure of the article's example as the planner computes it. Raises KeyError for no such figure."""
    return LIVE[name]()
