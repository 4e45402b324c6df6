"""Warnings about combinations: legal by every rule, and yet they hang, are refused, or do nothing."""

from __future__ import annotations

from collections.abc import Iterator

from planner.formulas import activations as A
from planner.formulas import overheads as O
from planner.quantity import value_of
from planner.spec.stack import known
from planner.step.warn.facts import Facts, above
from planner.step.warn.order import Warning, table, warning

#: what DeepSpeed's ZeRO takes without being told that it may; and what it has an optimizer on the CPU for
TESTED = ("adam", "adamw", "lion")

#: checkpointing that may run through torch's reentrant implementation
WHOLE_LAYERS = ("full", "every-k", "partial-layers")


def _recipe(facts: Facts) -> Iterator[Warning]:
    recipe, longest = facts.case.recipe, facts.case.model.max_positions
    if above(recipe.seq_len, longest):
        yield warning("beyond_trained_length", seq_len=recipe.seq_len, positions=longest)
    if recipe.precision.preset == "bf16-pure" and recipe.precision.master == "none" and recipe.peft is None:
        yield warning("no_master_weights")
    if recipe.optimizer_in_backward and facts.case.plan.accumulation > 1:
        yield warning("fused_backward_optimizer_no_grad_accum", accumulation=facts.case.plan.accumulation)
    frozen = recipe.peft is not None and "embedding" not in recipe.peft.modules_to_save
    if frozen and facts.runs("pytorch", "peft") and recipe.checkpointing in WHOLE_LAYERS:
        yield warning("lora_reentrant_needs_input_grads", checkpointing=recipe.checkpointing)


def _parallel(facts: Facts) -> Iterator[Warning]:
    plan, per_node = facts.case.plan, facts.case.cluster.gpus_per_node
    if plan.tp > per_node:
        yield warning("tp_across_nodes", tp=plan.tp, per_node=per_node)
    if plan.pp > 1 and plan.accumulation < plan.pp:
        yield warning("pp_needs_microbatches", microbatches=plan.accumulation, pp=plan.pp)
    if plan.pp == 1 and plan.schedule != "1f1b":
        yield warning("vpp_needs_pp", schedule=plan.schedule)
    if plan.sequence_parallel and plan.tp == 1:
        yield warning("meg_sp_needs_tp")
    if plan.cp > 1:
        yield from _context(facts)


def _context(facts: Facts) -> Iterator[Warning]:
    """The sequence must divide into the ranks' parts: two each on a ring, which balances the causal mask."""
    plan, seq_len = facts.case.plan, facts.case.recipe.seq_len
    split = A.sequence_ways(tp=plan.tp, sequence_parallel=plan.sequence_parallel)
    parts = O.sequence_parts(cp=plan.cp, balanced=int(plan.cp_comm == "p2p"), ways=split)
    whole = int(value_of(O.next_multiple(seq_len=seq_len, sequence_step=parts)))
    if whole != seq_len:
        yield warning("cp_seq_multiple", seq_len=seq_len, parts=int(value_of(parts)), nearest=whole)


def _engine(facts: Facts) -> Iterator[Warning]:
    """What DeepSpeed refuses or must be told."""
    plan, optimizer = facts.case.plan, facts.case.recipe.optimizer
    if not facts.deepspeed:
        return
    if plan.offload.optimizer in ("cpu", "nvme") and optimizer not in TESTED:
        yield warning("ds_offload_needs_cpu_adam", optimizer=optimizer)
    elif optimizer not in TESTED:
        yield warning("ds_untested_optimizer_flag", optimizer=optimizer)
    if plan.zero == 3 and plan.ep > 1:
        yield warning("ds_native_moe_zero3", ep=plan.ep)


def _release(facts: Facts) -> Iterator[Warning]:
    """A release that is known to be bad, named as framework@version."""
    named = str((facts.case.stated.get("recipe") or {}).get("framework") or "")
    name, _, version = named.partition("@")
    for row in table()["release"]:
        if version.strip() == row["version"] and known(name) == known(row["framework"]):
            yield warning("known_bad_version", release=f"{row['framework']}=={row['version']}", fixed=row["fixed"])


CHECKS = (_recipe, _parallel, _engine, _release)
