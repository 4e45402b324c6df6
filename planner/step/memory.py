"""The memory of a case: allocated, reserved and device, their band, per stage and on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.calibration.coefficients import Coefficient, priors
from planner.formulas import overheads as O
from planner.i18n import Phrase, Said
from planner.quantity import Quantity, binding, given, largest, total, value_of
from planner.spec.case import Case
from planner.step import moments as M
from planner.step.loss import upcasts
from planner.step.pools import Pools, pools
from planner.step.setting import Setting, Stage, setting
from planner.step.spread import error, unseen
from planner.step.states import States, main_gradients

VERDICTS = ("oom", "edge", "fits")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on one rank of one stage.

    moments     by phase; the largest is `allocated`, torch's peak of allocated bytes
    reserved    torch's peak of reserved bytes: allocated, workspaces and cached blocks
    device      reserved, CUDA context and NCCL: what nvidia-smi shows as used by this process
    cached      blocks the allocator keeps; `unbounded` what it would keep on a card without end
    low, high   90 % band of device on this card
    ends        "low" and "high": how far the formulas may be off, cached blocks and workspaces at that end
    least       the least the run can do with
    usable      what torch sees on the card
    unknown     parts of the model without formulas: every figure is then a lower bound, the band open above
    """

    stage: Any
    states: States
    moments: dict[str, Quantity]
    allocated: Quantity
    workspaces: Quantity
    cached: Quantity
    unbounded: Quantity
    reserved: Quantity
    context: Quantity
    nccl: Quantity
    device: Quantity
    low: Quantity
    high: Quantity
    least: Quantity
    usable: Quantity
    headroom: Quantity
    verdict_code: Quantity
    ends: dict[str, tuple[Quantity, Quantity, Quantity]]
    unknown: tuple[Said, ...] = ()

    @property
    def verdict(self) -> str:
        """fits, edge or oom; single values only."""
        return VERDICTS[int(value_of(self.verdict_code))]

    @property
    def peak_phase(self) -> str:
        """The moment that sets the peak; single values only."""
        return binding(self.allocated).name


def memory(case: Case, stage: Stage | None = None) -> Memory:
    """Memory of one rank of `stage`; of the worst stage when none is named."""
    if stage is None:
        stage = worst_stage(case)
    work = M.step(setting(case, stage))
    found = M.moments(work)
    return _device(work, found, largest("allocated", found.values()))


def stages(case: Case) -> list[Stage]:
    """Every stage of the pipeline, single values."""
    *_, last = every = range(int(np.max(case.plan.pp)))
    return [Stage(i, int(i == 0), int(i == last)) for i in every]


def worst_stage(case: Case) -> Stage:
    """The stage with the largest device memory: all stages at once as arrays, then the worst by itself."""
    every = stages(case)
    if len(every) == 1:
        return every[0]
    return every[int(np.argmax(np.broadcast_to(value_of(all_stages(case).device), len(every))))]


def all_stages(case: Case) -> Memory:
    """The memory of every stage at once, each figure an array over stages (or one number where they are alike)."""
    every = stages(case)
    return memory(case, Stage(*(np.array([getattr(s, f) for s in every]) for f in ("index", "embedding", "head"))))


def _device(work: M.Step, found: dict[str, Quantity], allocated: Quantity) -> Memory:
    known, case = priors(), work.setting.case
    usable, wrong = case.cluster.accelerator.memory_usable, {end: error(case, end) for end in ("low", "high")}
    beside = {end: _workspaces(work.setting, end) for end in ENDS}
    workspaces, context = beside["value"], {end: known["context"].at(end) for end in ENDS}
    nccl = _nccl(case)
    pooled = pools(work, found) if work.setting.sharded else None
    free = unseen(allocated, {end: _cached(work, allocated, pooled, end) for end in ENDS})
    rest = {end: _rest(work.setting, allocated, end) for end in ENDS}
    outside = total("outside", [context["value"], nccl["value"]])
    cached = O.squeezed(
        called="cached", cached=free["value"], rest=rest["value"], allocated=allocated, outside=outside,
        workspaces=workspaces, usable=usable,
    )  # fmt: skip
    reserved = total("reserved", [allocated, workspaces, cached])
    device = total("device", [reserved, context["value"], nccl["value"]])

    def high(name: str, kept: dict[str, Quantity]) -> Quantity:
        expected = total(f"{name}_expected", [allocated, workspaces, kept["value"], context["value"], nccl["value"]])
        return O.upper_end(
            called=name, device=expected, allocated=allocated, error=wrong["high"], cached=kept["value"],
            cached_high=kept["high"], context=context["value"], context_high=context["high"], nccl=nccl["value"],
            nccl_high=nccl["high"],
        )  # fmt: skip

    upper = O.on_this_card(called="high", unbounded=high("unbounded", free), needed=high("needed", rest), usable=usable)
    low = O.lower_end(
        called="low", device=device, allocated=allocated, error=wrong["low"], cached=cached,
        cached_low=O.smaller(called="cached", a=cached, b=free["low"]), context=context["value"],
        context_low=context["low"], nccl=nccl["value"], nccl_low=nccl["low"],
    )  # fmt: skip
    least = O.least_needed(
        called="least", allocated=allocated, error=wrong["low"], rest=rest["low"],
        workspaces=beside["low"], context=context["low"], nccl=nccl["low"],
    )  # fmt: skip
    return Memory(
        stage=work.setting.stage, states=work.held, moments=found, allocated=allocated, workspaces=workspaces,
        cached=cached, unbounded=free["value"], reserved=reserved, context=context["value"], nccl=nccl["value"],
        device=device, low=low, high=upper, least=least, usable=usable,
        headroom=O.headroom(usable=usable, device=device),
        verdict_code=_verdict(case, upper, least, usable), unknown=case.model.unknown,
        ends={end: (wrong[end], free[end], beside[end]) for end in ("low", "high")},
    )  # fmt: skip


def _workspaces(here: Setting, end: str) -> Quantity:
    """Kernel workspaces besides what is counted as allocated; nothing where the stack's own are among that."""
    if here.stack.gemm_workspaces:
        return given(0.0, "B", "workspaces", because=Phrase("because.workspaces-allocated"))
    return priors()["workspaces"].at(end)


def _verdict(case: Case, high: Quantity, least: Quantity, usable: Quantity) -> Quantity:
    code = O.verdict_code(high=high, least=least, usable=usable)
    if not case.model.unknown:
        return code
    return O.verdict_of_known(called="verdict_code", verdict=code, unknown=1)


def band(memory: Memory, metric: str) -> tuple[Quantity, Quantity]:
    """The 90 % band of allocated, reserved or device memory of one stage."""
    if metric == "device":
        return memory.low, memory.high
    if metric == "allocated":
        low, high = (
            O.allocated_end(called=end, allocated=memory.allocated, error=memory.ends[end][0])
            for end in ("low", "high")
        )
        return low, high
    low, high = (_reserved_end(memory, end) for end in ("low", "high"))
    return low, high


def _reserved_end(memory: Memory, end: str) -> Quantity:
    error, cached, workspaces = memory.ends[end]
    side = {"low": -1, "high": 1}[end]
    free = memory.cached if end == "low" else memory.unbounded
    return O.reserved_end(
        called=end, allocated=memory.allocated, workspaces=memory.workspaces, cached=memory.cached, error=error,
        spread=O.apart(called="cached", a=cached, b=free), workspaces_end=workspaces, side=side,
    )  # fmt: skip


ENDS = ("low", "value", "high")


def _nccl(case: Case) -> dict[str, Quantity]:
    """NCCL's buffers: expected and both ends."""
    known, plan = priors(), case.plan
    world = O.world_size(dp_replicate=plan.dp_replicate, dp_shard=plan.dp_shard, tp=plan.tp, cp=plan.cp, pp=plan.pp)
    groups = O.communicators(
        world=world, dp_replicate=plan.dp_replicate, dp_shard=plan.dp_shard, tp=plan.tp, cp=plan.cp, pp=plan.pp,
        ep=plan.ep,
    )  # fmt: skip
    return {
        end: O.communicator_buffers(
            called="nccl", first=known["nccl"].at(end), more=known["nccl_more"].at(end), communicators=groups
        )
        for end in ENDS
    }


def _rest(here: Setting, allocated: Quantity, end: str) -> Quantity:
    """What stays cached when the allocator is squeezed."""
    return O.unavoidable_rest(called="cached", allocated=allocated, unavoidable=_unavoidable(here).at(end))


def _unavoidable(here: Setting) -> Coefficient:
    """How far the allocator can be squeezed: blocks of FSDP's several streams cannot take each other's place."""
    mode = "_expandable" if here.case.recipe.allocator == "expandable" else ""
    return priors()[f"unavoidable_{'fsdp' if here.sharded else 'one_stream'}{mode}"]


def _of_the_step(here: Setting, end: str) -> list[Quantity]:
    """Blocks of the optimizer's fp32 gradients, larger than any that activations leave behind."""
    share = priors()["step_pool"].at(end)
    return [O.step_pool(called="step_pool", size=size, part_cached=share) for size in main_gradients(here)]


def _cached(work: M.Step, allocated: Quantity, pooled: Pools | None, end: str) -> Quantity:
    """Cached blocks if the card had no end."""
    known, here = priors(), work.setting
    mode = "expandable" if here.case.recipe.allocator == "expandable" else "native"
    if here.stack.empties_cache:  # what is left is what torch cannot give back
        return _rest(here, allocated, end)
    if pooled is None:
        kind = "slack_megatron" if here.stack.allocator_kind == "megatron" else f"slack_one_stream_{mode}"
        free = O.cached_one_stream(called="cached", allocated=allocated, slack=known[kind].at(end))
        return total("cached", [free, *_of_the_step(here, end)])
    whole = "_logits" if mode == "native" and upcasts(here) else ""
    return O.cached_fsdp(
        called="cached", allocated=allocated, compute_pool=pooled.compute,
        slack=known[f"slack_fsdp_{mode}{whole}"].at(end),
        gather_pool=pooled.gather, reduce_pool=pooled.reduce, unavoidable=_unavoidable(here).at(),
    )  # fmt: skip
