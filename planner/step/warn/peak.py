"""Warnings about what makes the peak: logits, activations, attention, experts, the first step, evaluation, saving."""

from __future__ import annotations

from collections.abc import Iterator

from planner.formulas import activations as A
from planner.formulas import overheads as O
from planner.formulas import parameters as P
from planner.formulas import temporaries as T
from planner.i18n import Phrase
from planner.quantity import Like, Quantity, total, value_of
from planner.spec.recipe import WIDTH
from planner.step import activations as act
from planner.step.setting import Group, attention_core
from planner.step.states import all_params
from planner.step.warn.facts import FINE_TUNING, LOW_HEADROOM, Facts, above, share
from planner.step.warn.order import Warning, size, warning

#: share of the peak from which one part is said to decide it
DOMINATES = 0.33
#: losses that make all logits at once
WHOLE_LOGITS = ("full-logits", "fused-ce", "chunked-ce")
#: share of the card from which what sharding leaves decides alone
MOST = 0.5
#: share of the peak from which attention's scores are worth a word
SCORES = 0.1
#: share of the card from which one gathered layer is
GATHERED = 0.1
#: times its size from which a gathered layer counts as padded
PADDED = 1.05
#: evaluation batches that must fit before a run that keeps all their logits is safe to start
BATCHES = 20
#: what of a layer of experts grows with the tokens that are sent to this rank
ROUTED = ("dispatch", "up", "activation", "down", "combine")


def _logits(facts: Facts, width: Like) -> Quantity:
    here = facts.work
    return T.logits_bytes(
        called="logits", tokens=here.tokens, vocab=here.vocab, logit_width=width, tp=facts.case.plan.tp
    )


def _loss(facts: Facts) -> Iterator[Warning]:
    part = facts.parts.get("logits_and_loss")
    if facts.case.recipe.loss not in WHOLE_LOGITS or facts.roomy:
        return
    if part is not None and facts.most == "logits_and_loss" and facts.of_peak(part) >= DOMINATES:
        yield warning(
            "logits_dominate", loss=size(part), share=f"{facts.of_peak(part):.0%}",
            copy=size(_logits(facts, WIDTH["fp32"])), tokens=int(value_of(facts.work.tokens)),
            vocab=int(value_of(facts.work.vocab)),
        )  # fmt: skip


def _activations(facts: Facts) -> Iterator[Warning]:
    if not facts.tight:
        return
    plan, part = facts.case.plan, facts.parts.get("activations")
    if facts.case.recipe.checkpointing == "none" and part is not None and facts.of_peak(part) >= DOMINATES:
        yield warning("no_activation_checkpointing", kept=size(part), share=f"{facts.of_peak(part):.0%}")
    most = facts.of_card(facts.of_tokens) > MOST and above(facts.of_tokens, facts.states)
    if plan.zero and plan.dp_shard > 1 and not facts.fits and most:
        yield warning(
            "activations_not_sharded_by_dp", tokens=size(facts.of_tokens), usable=size(facts.memory.usable),
            states=size(facts.states), ways=plan.dp_shard,
        )  # fmt: skip


def _attention(facts: Facts) -> Iterator[Warning]:
    core, recipe, plan = attention_core(facts.case), facts.case.recipe, facts.case.plan
    if core == "math":
        yield warning("sdpa_math_fallback")
    if core != "eager":
        return
    heads = P.local_channels(called="heads", channels=facts.case.model.groups[0].attention.heads, tp=plan.tp)
    each = A.scores_kept(called="scores", heads=heads, seq_len=recipe.seq_len, width=facts.work.store.act)
    one = A.microbatch_bytes(called="scores", tokens=facts.work.tokens, per_token=each)
    kept = total("scores", [_while_kept(facts, group, one) for group in facts.work.groups])
    if facts.of_peak(kept) >= SCORES or facts.of_peak(one) >= SCORES:
        yield warning("eager_attention_quadratic", layer=size(one), seq_len=recipe.seq_len)


def _while_kept(facts: Facts, group: Group, each: Quantity) -> Quantity:
    """Bytes of one kind in all layers that are not recomputed."""
    return A.kept_after_forward(
        called=each.name, saved=each, checkpointed=0.0, layers=group.layers, **act.regions(facts.work)
    )


def _lengths(facts: Facts) -> Iterator[Warning]:
    """Fine-tuning data are of uneven length; the plan is for the longest."""
    uneven = facts.case.recipe.task in FINE_TUNING and facts.memory.verdict != "oom" and not facts.roomy
    if uneven and facts.of_peak(facts.of_tokens) >= DOMINATES:
        yield warning(
            "variable_length_peak", seq_len=facts.case.recipe.seq_len, tokens=size(facts.of_tokens),
            allocated=size(facts.memory.allocated),
        )  # fmt: skip


def _first_step(facts: Facts) -> Iterator[Warning]:
    """It fails only when the optimizer makes its states, which decide; DeepSpeed makes them before the first step."""
    held, usable = facts.memory.states, facts.memory.usable
    if facts.fits or facts.deepspeed or facts.case.plan.offload.optimizer != "none":
        return
    before = O.apart(a=facts.memory.device, b=held.optimizer)
    decide = facts.of_card(held.optimizer) > LOW_HEADROOM and not above(facts.of_tokens, facts.states)
    if decide and not above(before, usable):
        yield warning(
            "optimizer_states_created_at_first_step", states=size(held.optimizer), before=size(before),
            usable=size(usable),
        )  # fmt: skip


def _experts(facts: Facts) -> Iterator[Warning]:
    if all(group.mlp.kind != "moe" for group in facts.case.model.groups):
        return
    if facts.case.plan.ep > 1:
        yield from _imbalance(facts)
    if facts.case.plan.data_parallel == "fsdp2" and facts.ways > 1:
        yield from _gathered_experts(facts)


def _imbalance(facts: Facts) -> Iterator[Warning]:
    """A rank whose experts draw twice their share of the tokens keeps as much again."""
    extra = []
    for group in facts.work.groups:
        if group.spec.mlp.kind == "moe":
            routed = total("routed", [kept for op in group.ops if op.name in ROUTED for kept in op.saved])
            each = A.microbatch_bytes(called="routed", tokens=facts.work.tokens, per_token=routed)
            extra += [each, _while_kept(facts, group, each)]
    found = total("routed", extra)
    if facts.matters(found):
        yield warning("moe_imbalance", extra=size(found), headroom=size(facts.memory.headroom), ep=facts.case.plan.ep)


def _gathered_experts(facts: Facts) -> Iterator[Warning]:
    """Experts stacked in one tensor are cut into whole experts: with fewer than ranks the gathered one is padded."""
    ep = facts.case.plan.ep
    group = next(g for g in facts.work.groups if g.spec.mlp.kind == "moe")
    width = facts.work.whole_width if facts.work.trained else facts.work.base_width
    whole = T.gathered(called="experts", params=group.experts, param_width=width)
    stacked = facts.runs("hf-transformers", "pytorch") and ep == 1
    experts, ranks = group.spec.mlp.experts, facts.ways
    padded = O.padded_gather(size=whole, experts=experts, ranks=ranks) if stacked else whole
    if share(padded, whole) > PADDED or facts.of_card(padded) > GATHERED:
        yield warning("moe_layer_gather_peak", padded=size(padded), whole=size(whole), experts=experts, ranks=ranks)


def _evaluation(facts: Facts) -> Iterator[Warning]:
    """The Trainer keeps the logits of every evaluation batch on the GPU where metrics are computed from them."""
    if not facts.runs("hf-transformers") or facts.memory.verdict == "oom":
        return
    width = WIDTH["fp32"] if facts.case.recipe.precision.autocast else facts.work.store.act
    each = _logits(facts, width)
    batches = int(share(facts.free, each))
    if batches < BATCHES:
        yield warning("eval_accumulates_logits", each=size(each), free=size(facts.free), batches=batches)


def _saving(facts: Facts) -> Iterator[Warning]:
    """A plain loop that gathers a full state dict on the GPU."""
    if not facts.runs("pytorch") or not facts.case.plan.fully_sharded or facts.ways == 1:
        return
    params = all_params(facts.work)
    whole = T.gathered(called="full_state_dict", params=params, param_width=facts.work.base_width)
    if above(whole, facts.free):
        yield warning("full_state_dict_gather_on_gpu", whole=size(whole), free=size(facts.free))


def _images(facts: Facts) -> Iterator[Warning]:
    if any(isinstance(remark, Phrase) and remark.key == "model.text-part" for remark in facts.case.model.remarks):
        yield warning("image_tokens", seq_len=facts.case.recipe.seq_len)


CHECKS = (
    _loss, _activations, _attention, _lengths, _first_step, _experts, _evaluation, _saving, _images,
)  # fmt: skip
