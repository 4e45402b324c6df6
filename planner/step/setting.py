"""From a case to what one rank of one pipeline stage holds: tokens, widths, weights. The start of every answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.calibration.coefficients import priors
from planner.formulas import activations as A
from planner.formulas import parameters as P
from planner.formulas import states as S
from planner.formulas import temporaries as T
from planner.i18n import Phrase
from planner.layers import block
from planner.layers import model as M
from planner.layers.ops import Storage
from planner.quantity import Like, Quantity, given, pick, total, where
from planner.spec.case import Case
from planner.spec.plan import VOCAB_SCHEDULES
from planner.spec.recipe import CAST_WIDTH, WIDTH
from planner.spec.stack import Stack
from planner.step.groups import Group as Group
from planner.step.groups import Stage as Stage
from planner.step.groups import groups


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything the moments of a step are made from, for one rank of one stage. Widths in B/element or B/param."""

    case: Case
    stack: Stack
    stage: Stage
    store: Storage
    tokens: Quantity
    vocab: Quantity
    groups: tuple[Group, ...]
    embedding: Quantity
    head: Quantity
    rest: Quantity
    width: Like
    base_width: Like
    whole_width: Like
    gradient_width: Like
    whole_gradient_width: Like
    reduce_width: Like
    ways_weights: Quantity
    ways_gradients: Quantity
    ways_passing: Quantity
    ways_states: Quantity
    expert_ways: tuple[Quantity, Quantity, Quantity, Quantity]
    whole_saved: Quantity
    carried: Quantity
    trained: bool

    @property
    def sharded(self) -> bool:
        """Whether FSDP gathers and reshards groups of weights."""
        return self.case.plan.fully_sharded

    @property
    def logit_ways(self) -> Quantity:
        """Ranks that share the logits: those of tensor parallelism, and the stages where they share the vocabulary."""
        return P.vocab_ways(tp=self.case.plan.tp, stages=self.case.plan.vocab_stages)

    @property
    def has_logits(self) -> Any:
        """1 where this stage computes logits: the last, or every one."""
        return 1 if self.case.plan.schedule in VOCAB_SCHEDULES else self.stage.head

    @property
    def mixture(self) -> bool:
        """Whether any layer has experts."""
        return any(g.spec.mlp.kind in ("moe", "none") for g in self.groups)


def setting(case: Case, stage: Stage) -> Setting:
    """The setting of one stage of a case."""
    plan, recipe, stack = case.plan, case.recipe, case.stack
    store = storage(case)
    tokens = A.local_tokens(called="tokens", micro_batch=plan.micro_batch, seq_len=recipe.seq_len, cp=plan.cp)
    multiple = stack.vocab_multiple or 0
    vocab = P.padded_vocab(called="vocab", vocab=case.model.vocab, multiple=multiple, tp=plan.tp)
    embedding, head, rest = _outside(case, stage, vocab)
    fsdp = plan.fully_sharded
    mixed = engine_casts(case) if recipe.precision.autocast else 0
    params = pick(recipe.precision.params, WIDTH)
    whole = where(mixed, pick(recipe.precision.compute, WIDTH), params)
    grads = pick(recipe.precision.grads, WIDTH)
    stages = (("states", 1), ("gradients", 2), ("weights", 3))
    ways = [S.ways_at(called=f"ways_{n}", zero=plan.zero, stage=z, dp_shard=plan.dp_shard, cp=plan.cp)
            for n, z in stages]  # fmt: skip
    expert_ways = [
        S.expert_ways_at(called=f"expert_ways_{n}", zero=plan.zero, stage=z, dp_shard=plan.dp_shard, cp=plan.cp,
                         tp=plan.tp, ep=plan.ep, etp=plan.etp)
        for n, z in stages
    ]  # fmt: skip
    persistent = 1 if stack.persistent_grads else 0
    return Setting(
        case=case,
        stack=stack,
        stage=stage,
        store=store,
        tokens=tokens,
        vocab=vocab,
        groups=tuple(groups(case, stage, store)),
        embedding=embedding,
        head=head,
        rest=rest,
        width=params,
        base_width=pick(recipe.peft.base_dtype, WIDTH) if recipe.peft else params,
        whole_width=whole,
        gradient_width=grads,
        whole_gradient_width=whole if fsdp else grads,
        reduce_width=pick(recipe.precision.grad_reduce, WIDTH),
        ways_states=ways[0],
        ways_gradients=ways[1],
        ways_passing=_between(case, ways[1]),
        ways_weights=ways[2],
        expert_ways=(expert_ways[0], expert_ways[1], expert_ways[2], _between(case, expert_ways[1])),
        whole_saved=_whole_saved(case, embedding, head),
        carried=_carried(case, persistent),
        trained=recipe.peft is None,
    )


def _between(case: Case, ways: Quantity) -> Quantity:
    """Ranks that share gradients between micro-batches. FSDP2 in a pipeline reduces them with the last one only."""
    plan, whole = case.plan, case.stack.whole_accumulation and case.plan.data_parallel == "fsdp1"
    piped = np.greater(plan.pp, 1) if plan.data_parallel == "fsdp2" else False
    return S.ways_between(
        called="ways_between_microbatches", ways=ways, accumulation=plan.accumulation, whole=np.logical_or(whole, piped)
    )


def _carried(case: Case, persistent: int) -> Quantity:
    return T.gradients_carried(
        called="gradients_carried", accumulation=case.plan.accumulation, persistent=persistent,
        offloaded=gradients_leave(case),
    )


def storage(case: Case) -> Storage:
    """Widths and kernels of a layer's saved tensors."""
    recipe, plan, stack = case.recipe, case.plan, case.stack
    precision = recipe.precision
    mixed = engine_casts(case) if precision.autocast else 0
    casts = 1 if precision.autocast and recipe.peft is None else 0
    act = pick(precision.compute, WIDTH)
    stream = act if recipe.peft and not casts_base(case) else where(mixed, act, pick(precision.params, WIDTH))
    probability = case.model.dropout if recipe.dropout is None else recipe.dropout
    attention_probability = case.model.attention_dropout if recipe.dropout is None else recipe.dropout
    peft = recipe.peft
    fused = "fused" if recipe.compiled and stack.compiled_fuses else ""
    linear = stack.linear_loss_kernels if recipe.loss == "fused-linear-ce" else ""
    return Storage(
        act=act,
        stream=stream,
        autocast=where(mixed, 0, casts),
        kernels=fused or linear or stack.mlp_kernels,
        norm_kernels=fused or ("fused" if linear else stack.norm_kernels),
        mlp_tile=_mlp_tile(case),
        wide_norms=bool(precision.autocast) and (recipe.peft is not None or not np.all(mixed)),
        attention=attention_core(case),
        tp=plan.tp,
        sp=plan.sequence_parallel,
        etp=plan.etp,
        ring=plan.cp if plan.cp_comm == "p2p" else 1,
        gathered_input=stack.gathered_input,
        fused_softmax=stack.fused_softmax,
        weighted_experts=stack.weighted_experts,
        cast=CAST_WIDTH.get(precision.gemm) if stack.keeps_casts else None,
        wide_scores=stack.wide_scores,
        crowding=_crowding(case),
        trained=peft is None,
        dropout=probability > 0,
        attention_dropout=attention_probability > 0,
        adapted=adapted(case) if peft else frozenset(),
        rank=peft.rank if peft else 0,
        adapted_parts=frozenset(peft.targets) & FUSED_PARTS if peft and stack.fused_qkv else frozenset(),
        adapter_casts=_adapter_casts(case),
        adapter_keeps=peft.keeps if peft else "input",
        adapter_dropout=bool(peft) and stack.adapter_dropout and recipe.dropout != 0,
        prompted=peft is not None and peft.keeps in ("prompt", "scale"),
        scaled=peft is not None and peft.keeps == "scale",
        packed_inputs=packed(case) and stack.packed_inputs,
        adapter_act=(act if precision.autocast else pick(peft.adapter_dtype, WIDTH)) if peft else act,
    )


def packed(case: Case) -> bool:
    """Whether adapters sit on a base of less than 16 bits a weight."""
    peft = case.recipe.peft
    return peft is not None and WIDTH[peft.base_dtype] < WIDTH["bf16"]


def casts_base(case: Case) -> bool:
    """Whether autocast casts a frozen base that is wider than it computes: each linear keeps its cast weight."""
    peft, precision = case.recipe.peft, case.recipe.precision
    return peft is not None and bool(precision.autocast) and WIDTH[peft.base_dtype] > WIDTH[str(precision.compute)]


def _adapter_casts(case: Case) -> bool:
    """Whether an adapter makes a copy of its input: autocast, or a dtype other than the base computes in."""
    peft, precision = case.recipe.peft, case.recipe.precision
    return peft is not None and bool(precision.autocast or peft.adapter_dtype != precision.compute)


def _mlp_tile(case: Case) -> Like:
    """Share of the tokens that a tiled MLP takes at once: as many as the model is wide."""
    plan, recipe = case.plan, case.recipe
    if not recipe.tiled_mlp:
        return 1
    tokens = A.local_tokens(called="tokens", micro_batch=plan.micro_batch, seq_len=recipe.seq_len, cp=plan.cp)
    return A.tile_share(tokens=tokens, tile=case.model.hidden)


def _crowding(case: Case) -> Like:
    """How many tokens the fullest expert-parallel rank receives over the mean, where sizes follow the routing. Only in
    the layer at work: what all layers keep lies about the mean."""
    if not case.stack.ragged_experts or case.recipe.checkpointing == "none":
        return 1
    return A.crowding(ep=case.plan.ep, fullest=priors()["crowded_rank"].at())


def engine_casts(case: Case) -> Any:
    """Whether the sharding engine hands layers 16-bit weights, so that autocast has nothing left to copy."""
    plan = case.plan
    if plan.fully_sharded:
        return 1
    return np.equal(plan.zero, 3) if plan.data_parallel == "zero" else 0


def attention_core(case: Case) -> str:
    """Which attention really runs.

    SDPA takes flash in 16 bit. In fp32, and wherever the memory-efficient backend is asked for, grouped heads have
    no fused kernel: torch then silently takes the math backend, whose memory grows with the square of the sequence.
    SDPA has no soft cap, so such a model runs its own (eager) code; its sliding windows become masks ("sdpa").
    """
    wanted = case.recipe.attention
    attention = case.model.groups[0].attention
    if wanted == "eager" or (attention.softcap and wanted in ("sdpa", "mem-efficient")):
        return "eager"
    grouped = bool(np.any(attention.heads != attention.kv_heads))
    if case.recipe.precision.compute in ("fp32", "tf32") or wanted == "mem-efficient":
        return "math" if grouped else "mem-efficient"
    return "sdpa" if wanted == "sdpa" else "flash"


#: by name: whether it left the GPU, and whether gradients leave with the optimizer's states
OFFLOADED: dict[str, float] = {"none": 0, "cpu": 1, "nvme": 1, "paged": 1}
GRADIENTS_LEAVE: dict[str, float] = {"none": 0, "cpu": 1, "nvme": 1, "paged": 0}

def gradients_leave(case: Case) -> Any:
    """1 where a gradient is gone as soon as it is made: moved to the host, or used by a step inside the backward."""
    return 1 if case.recipe.optimizer_in_backward else pick(case.plan.offload.optimizer, GRADIENTS_LEAVE)


#: an adapter target and the fused weight that holds it
FUSED_PARTS = frozenset({"q", "k", "v"})
FUSED_TARGETS = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "gate_up", "up": "gate_up"}


def adapted(case: Case) -> frozenset[str]:
    """Names of the weights that carry an adapter, fused projections by the name of the fused one."""
    peft = case.recipe.peft
    if peft is None:
        return frozenset()
    names = {w.name for g in case.model.groups for w in block.weights(g, case.model.hidden) if w.linear}
    return frozenset(t if t in names else FUSED_TARGETS.get(t, t) for t in peft.targets) & names


def _whole_saved(case: Case, embedding: Quantity, head: Quantity) -> Quantity:
    """Embedding or head where they train whole beside adapters."""
    saved = case.recipe.peft.modules_to_save if case.recipe.peft else ()
    parts = [part for name, part in (("embedding", embedding), ("head", head)) if name in saved]
    if not parts:
        return given(0.0, "param", "whole_saved", because=Phrase("because.frozen"))
    return total("whole_saved", parts)


def _embeds(further: int, stage: Stage) -> Any:
    """Whether a stage holds the embedding: the first, and the last where it predicts further tokens."""
    return np.maximum(stage.embedding, stage.head) if further else stage.embedding


def _outside(case: Case, stage: Stage, vocab: Quantity) -> tuple[Quantity, Quantity, Quantity]:
    """Embedding, head and the rest outside the layers, as this stage holds them."""
    model, shared = case.model, case.plan.schedule in VOCAB_SCHEDULES
    tp = P.vocab_ways(tp=case.plan.tp, stages=case.plan.vocab_stages) if shared else case.plan.tp
    table = M.count("embedding", M.embedding(model, vocab), tp)
    own = M.count("head", M.head(model, vocab), tp)
    copy = P.tied_copy(called="tied_head_copy", params=table, pp=case.plan.pp, tied=model.tied)
    head = total("head", [own, copy])
    positions = P.on_stage(
        called="positions", params=M.count("positions", M.positions(model)), present=stage.embedding
    )
    norm = P.on_stage(called="final_norm", params=M.count("final_norm", M.final_norm(model)), present=stage.head)
    return (
        P.on_stage(called="embedding", params=table, present=1 if shared else _embeds(model.further, stage)),
        P.on_stage(called="head", params=head, present=1 if shared else stage.head),
        total("rest", [positions, norm]),
    )
