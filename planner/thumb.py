"""The founding article's rules of thumb beside the planner's own answers to the same questions.

A rule computed by a formula takes the cluster at hand, by the size its GPUs are sold as. A rule about the article's
own example stays with that example on 8 H100, and so does the answer beside it. Words are in data/article/thumb.toml.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner import article, cases, explain, i18n, paths
from planner.article import AUTOCAST, BATCH, COMPOSED, DEEPSPEED, EAGER, FP32, FUSED, LAYERS, PARAMS, SEQ_LEN, WIDTH
from planner.formulas import thumb as F
from planner.i18n import Phrase
from planner.layers.model import parameters
from planner.quantity import Formula, Like, Quantity, given, value_of
from planner.search.largest import HIDDEN, Largest, largest
from planner.search.limits import micro_batch, trains
from planner.search.solve import largest_true
from planner.spec import catalog, presets
from planner.spec.build import merged
from planner.spec.case import Case
from planner.spec.hardware import Accelerator, Cluster
from planner.step.evaluate import evaluate
from planner.units import gib


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of thumb.

    rule    as the article computes or states it; `upper` is the other end where it states a range
    model   what the planner answers to the same question, None where it has no answer
    also    further answers by name: other recipes, other parts
    """

    key: str
    rule: Quantity
    model: Quantity | None
    upper: Quantity | None = None
    also: tuple[tuple[str, Quantity], ...] = ()

    @property
    def words(self) -> Mapping[str, Any]:
        """Its row of the table of words."""
        row: Mapping[str, Any] = table()["rule"][self.key]
        return row

    @property
    def unit(self) -> str:
        """What people read it in: param, GiB, B/param, sequence or 1."""
        return str(self.words["unit"])

    @property
    def scope(self) -> str:
        """The part of the article's promises it belongs to."""
        return str(self.words["scope"])

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of the audit that judge it, the first the one that judges its result."""
        return tuple(self.words["rows"])

    @property
    def verdict(self) -> str:
        """The audit's verdict of its result: sound, approx or wrong."""
        return next(row.verdict for row in article.audit() if row.number == self.rows[0])

    def title(self, language: str | None = None) -> str:
        """What it is about."""
        return str(self.words[f"title_{language or i18n.current()}"])

    def because(self, language: str | None = None) -> str:
        """Why the model says something else, or why it agrees, in one sentence."""
        return str(self.words[f"because_{language or i18n.current()}"])


@functools.cache
def table() -> dict[str, Any]:
    """Titles and sentences by rule, and names of further answers, in both languages."""
    return tomllib.loads((paths.data() / "article" / "thumb.toml").read_text(encoding="utf-8"))


def label(name: str, language: str | None = None) -> str:
    """The name of a further answer for people."""
    return str(table()["also"][name][language or i18n.current()])


def rules(cluster: Mapping[str, Any], found: list[Largest] | None = None) -> list[Rule]:
    """Every rule of the article for a cluster (the file form's `cluster`); `found` saves solving the largest again."""
    hardware = catalog.cluster(*(cluster.get(name) for name in ("gpu", "gpus", "node", "nodes")))
    by_family = {one.regime.id: one for one in found or largest(cluster)}
    made = [*_states(), *_capacity(hardware, cluster, by_family), *_activations(), *_checkpointing(), *_zero()]
    return [*made, _overhead(), *_batch(cluster, hardware.accelerator)]


# What a parameter costs


def _given(value: Like, unit: str, name: str) -> Quantity:
    return given(value, unit, name, source=article.SOURCE)


def _stated(value: float, name: str) -> Quantity:
    return given(value, "B", name, source=article.SOURCE, because=Phrase("because.stated"))


def param_bytes(weight: int, gradient: int, moments: int) -> Quantity:
    """Bytes of state for each parameter as the article adds them up; moments in fp32."""
    return F.thumb_param_bytes(
        weight_width=_given(weight, "B/param", "weight_width"), moment_width=_given(4, "B/param", "moment_width"),
        gradient_width=_given(gradient, "B/param", "gradient_width"), moments=_given(moments, "1", "moments"),
    )  # fmt: skip


def _states() -> list[Rule]:
    mixed = param_bytes(2, 2, 1)
    weights = F.thumb_state(params=_given(PARAMS, "param", "params"), param_width=_given(4, "B/param", "param_width"))
    master = F.thumb_master(bytes_per_param=mixed, master_share=_given(0.1, "1", "master_share"))
    recipes = {"deepspeed": DEEPSPEED, "megatron": FUSED, "pure-16": COMPOSED}
    also = tuple((name, article.width(changes)) for name, changes in recipes.items())
    return [
        Rule("state-fp32", weights, article.per_card(FP32, "weights", gpus=1)),
        Rule("bytes-fp32", param_bytes(4, 4, 2), article.width(FP32)),
        Rule("bytes-mixed", mixed, article.width(AUTOCAST), also=also),
        Rule("master-copy", master, article.width(DEEPSPEED, "master")),
    ]


# How large a model


#: further answers -> recipe families of `largest`
FAMILIES = {
    "zero-3": "zero3-16bit", "megatron": "megatron", "moments-16": "fsdp2-16bit-moments", "pure-16": "fsdp2-pure",
    "adam-8": "fsdp2-8bit", "offload": "zero3-offload",
}  # fmt: skip


def _capacity(hardware: Cluster, cluster: Mapping[str, Any], by_family: Mapping[str, Largest]) -> list[Rule]:
    gpus, card = _given(hardware.gpus, "1", "sold_gpus"), hardware.accelerator
    memory = F.thumb_memory(sold_memory=card.memory_nominal, sold_gpus=gpus)
    usable = F.thumb_memory(called="usable_memory", sold_memory=card.memory_usable, sold_gpus=gpus)
    fp32, mixed = (F.thumb_largest(all_memory=memory, bytes_per_param=param_bytes(*n)) for n in ((4, 4, 2), (2, 2, 1)))
    full = _solved(by_family["fsdp2-fp32"])
    also = tuple((name, _solved(by_family[family])) for name, family in FAMILIES.items())
    return [
        Rule("memory", memory, usable),
        Rule("largest-fp32", fp32, full, also=(("ddp", _unsharded(cluster, card)), *also[:2])),
        Rule("largest-mixed", mixed, full, also=also),
    ]


def _solved(one: Largest) -> Quantity:
    """Parameters of the largest model of a family; 0 where there is none."""
    if one.case is None:
        return given(0.0, "param", "parameters", because=one.limits[0])
    return parameters(one.case.model)


def _mixed(card: Accelerator) -> dict[str, Any]:
    """Autocast with full checkpointing and sequences of 4,096 tokens; in fp16 on a card without bf16."""
    fp16 = {"recipe.precision": "autocast-fp16"} if card.peak and "bf16" not in card.peak else {}
    return {**AUTOCAST, **fp16, "recipe.checkpointing": "full", "recipe.seq_len": 4096}


def _unsharded(cluster: Mapping[str, Any], card: Accelerator) -> Quantity:
    """The largest model when every card holds all states (DDP), with one sequence of 4,096 tokens a card."""
    raw = merged({"cluster": dict(cluster)}, {**_mixed(card), "plan.data_parallel": "ddp"})
    for hidden in HIDDEN:
        deepest = largest_true(functools.partial(_trains, raw, hidden), 8, 4096)
        if deepest * 512 >= hidden or (hidden == HIDDEN[-1] and deepest):
            return parameters(presets.shape(hidden, deepest))
    return given(0.0, "param", "parameters", because=Phrase("because.no-layer"))


def _trains(raw: Mapping[str, Any], hidden: int, layers: int) -> bool:
    return trains(cases.case(raw, presets.shape(hidden, layers)))


# The example: activations, checkpointing, sharding


def _activations() -> list[Rule]:
    batch, seq_len = _given(BATCH, "sequence", "batch"), _given(SEQ_LEN, "token/sequence", "seq_len")
    layers, hidden = _given(LAYERS, "layer", "layers"), _given(WIDTH, "channel", "hidden")
    act_width = _given(2, "B/element", "act_width")
    layer = F.thumb_layer(batch=batch, seq_len=seq_len, hidden=hidden, act_width=act_width)
    every = F.thumb_layers(layer_bytes=layer, layers=layers)
    bare = given(1, "B*head/score/layer", "score_width", source=article.SOURCE, because=Phrase("because.elements"))
    scores = F.thumb_attention(batch=batch, seq_len=seq_len, layers=layers, score_width=bare)
    stacks = {"composed": COMPOSED, "autocast": AUTOCAST}
    one, all_ = article.one_layer, article.all_layers
    parts = {"scores-16": (EAGER, "probabilities"), "flash": (COMPOSED, "logsumexp")}
    return [
        Rule("layer", layer, one(FUSED).saved, also=tuple((n, one(c).saved) for n, c in stacks.items())),
        Rule("layers", every, all_(FUSED), also=tuple((n, all_(c)) for n, c in stacks.items())),
        Rule(
            "attention", scores, article.attention_part(EAGER, "softmax", "probabilities"),
            also=tuple((name, article.attention_part(*how)) for name, how in parts.items()),
        ),
        Rule(
            "intermediates", _stated(50e9, "stated_low"), article.checkpointed(FUSED, 1), _stated(80e9, "stated_high"),
            also=(("none", all_(FUSED)), ("logits", article.logits(BATCH))),
        ),
    ]  # fmt: skip


def _checkpointing() -> list[Rule]:
    none, five = _stated(120e9, "stated_none"), _stated(45e9, "stated_five")
    real_none, real_five = article.all_layers(FUSED), article.checkpointed(FUSED, 5)
    also = tuple((f"every-{k}", article.checkpointed(FUSED, k)) for k in (1, 2, 4, 8))
    share = F.thumb_checkpoint_share(kept_bytes=five, all_bytes=none)
    return [
        Rule("checkpoint-none", none, real_none),
        Rule("checkpoint-5", five, real_five, also=also),
        Rule("checkpoint-share", share, F.thumb_checkpoint_share(kept_bytes=real_five, all_bytes=real_none)),
    ]


def _zero() -> list[Rule]:
    stated = {0: 80e9, 1: 55e9, 2: 40e9, 3: 25e9}
    return [
        Rule(f"zero-{stage}", _stated(size, f"stated_zero_{stage}"), article.per_card(article.zero(stage)))
        for stage, size in stated.items()
    ]


def _overhead() -> Rule:
    return Rule("overhead", _stated(2e9, "stated_overhead"), article.overhead())


# The largest batch


@dataclass(frozen=True, slots=True)
class BatchLaw:
    """Memory as fixed + per_sample x micro-batch, from the planner's peaks at micro-batches of 1 and 2.

    by_rule     (size as sold - fixed) / per_sample, as the article computes it
    by_model    the solver's answer, 0 where not even one sequence fits
    one_line    whether one phase sets the peak at 1, at 2 and at the answer; where not, the line bends between them
                and two points mislead
    """

    case: Case
    fixed: Quantity
    per_sample: Quantity
    by_rule: Quantity | None
    by_model: Quantity
    one_line: bool


def batch_law(case: Case) -> BatchLaw:
    """The article's formula for the largest micro-batch of a case, and the solver's answer."""
    one, two = (evaluate(cases.changed(case, {"plan.micro_batch": n}, case.model)) for n in (1, 2))
    first: dict[str, Any] = {"at_first": one.memory.allocated, "first_batch": 1}
    slope = F.two_point_slope(**first, at_second=two.memory.allocated, second_batch=2)
    fixed, card = F.two_point_fixed(**first, per_sample=slope), case.cluster.accelerator
    rule = None
    if float(value_of(slope)) > 0:  # not where the optimizer step is the peak at both: then no batch is too large
        rule = F.thumb_max_batch(card_memory=card.memory_nominal, fixed_bytes=fixed, per_sample=slope)
    found = micro_batch(case)
    phases = {e.memory.peak_phase for e in (one, two, found.estimate)}
    answer = given(found.value, "sequence", "micro_batch", because=found.limit)
    return BatchLaw(case, fixed, slope, rule, answer, len(phases) == 1)


#: models for the batch law: the first that shows it on the cluster
BATCH_MODELS = ("llama-3-8b", "llama-3.2-1b", "smollm2-135m")


def _batch(cluster: Mapping[str, Any], card: Accelerator) -> list[Rule]:
    """The rule for a run of 4,096 tokens with full checkpointing; if it can be, one whose line does not bend."""
    made = (cases.case(merged({"cluster": dict(cluster), "model": name}, _mixed(card))) for name in BATCH_MODELS)
    laws = [law for law in map(batch_law, filter(trains, made)) if law.by_rule is not None]
    shown = next((law for law in laws if law.one_line), laws[0] if laws else None)
    if shown is None or shown.by_rule is None:
        return []
    also = (("fixed", shown.fixed), ("per-sample", shown.per_sample))
    return [Rule("max-batch", shown.by_rule, shown.by_model, also=also)]


# As data


#: unit that people read -> the key of the contract's JSON
KEYS = {"param": "params", "GiB": "gib", "B/param": "bytes_per_param", "sequence": "micro_batch", "1": "share"}


def as_json(made: list[Rule]) -> list[dict[str, Any]]:
    """The rules in the shape of the command line's contract: parameters as counts, memory in GiB."""
    return [_plain(one) for one in made]


def _plain(one: Rule) -> dict[str, Any]:
    key, formula = KEYS[one.unit], one.rule.formula
    shown: dict[str, Any] = {"rule": one.key, "title": one.title(), key: _number(one.rule)}
    if one.upper is not None:
        shown[f"{key}_high"] = _number(one.upper)
    return {
        **shown,
        "unit": one.unit,
        "formula": explain.expression(formula) if isinstance(formula, Formula) else None,
        "with_numbers": explain.expression(formula, one.rule.inputs) if isinstance(formula, Formula) else None,
        "model": _number(one.model),
        "also": {name: _number(q) for name, q in one.also},
        "because": one.because(),
        "verdict": one.verdict,
        "about": str(one.words["about"]),
        "audit_rows": list(one.rows),
    }


def _number(quantity: Quantity | None) -> float | int | None:
    if quantity is None:
        return None
    value = float(value_of(quantity))
    if quantity.unit in ("B", "B/sequence"):
        return gib(value)
    return int(value) if value == int(value) else value
