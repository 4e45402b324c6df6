"""Selective checkpointing: what a layer keeps under a policy by operator (torchtitan) or by module (Megatron)."""

from __future__ import annotations

from planner.formulas import activations as A
from planner.formulas import parameters as P
from planner.layers.ops import Op, Weight
from planner.quantity import Like, Quantity
from planner.step.setting import Group, Setting

#: tensors of the attention's operation that other operations read: recomputing its core does not free them
READ_BY_OTHERS = ("attention.query", "attention.key", "attention.value", "attention.output")
#: what rises from the latents, where they are recomputed
RISEN = ("attention.query", "attention.key", "attention.value")
ATTENTION_RESULTS = ("attention.output", "attention.logsumexp")
#: products whose results are summed over tensor-parallel ranks
SUMMED = ("o", "down")
NORMS = ("norm1", "norm2", "norm_shared")
EXPERTS = ("dispatch", "up", "activation", "down", "combine")


def by_operator(setting: Setting, group: Group) -> list[Quantity]:
    """Results that torchtitan's policy keeps besides the layer's input: every second matrix product, the attention, and
    under sequence parallelism what reduces the sums of the tensor-parallel ranks.

    Products of experts run in a grouped kernel that is not on its list, and 4-bit ones in kernels of their own. Eager
    code keeps the results of the last product too, which nothing in the layer reads; a compiled layer keeps less.
    """
    products = [w for w in group.weights if w.linear and not w.expert and not w.name.endswith("bias")]
    unread = ("down",) if setting.case.recipe.compiled and setting.stack.compiled_drops_unread else ()
    listed = products if setting.stack.every_product_kept else products[::2]
    if setting.case.recipe.precision.gemm != "none":
        listed = products[-1:]
    results = [_result(setting, w) for w in listed if w.name not in unread]
    summed = [_scattered(setting, w) for w in products if w.name in SUMMED and w.name not in unread]
    attention = [k for op in group.ops if op.name == "attention" for k in op.saved if k.name in ATTENTION_RESULTS]
    return [*results, *summed, *_exchanged(setting, group), *attention]


def _result(setting: Setting, weight: Weight) -> Quantity:
    """The result of one matrix product on this rank; of a product that is summed over ranks it is whole."""
    summed = weight.name in (*SUMMED, "shared_down", "router")
    tp: Like = 1 if summed or not weight.split else setting.case.plan.tp
    channels = P.local_channels(called=f"{weight.name}.result", channels=weight.cols, tp=tp)
    return A.kept(called=f"{weight.name}.result", channels=channels, width=setting.store.act)


def _exchanged(setting: Setting, group: Group) -> list[Quantity]:
    """What the two all-to-alls of expert parallelism bring: routed tokens, and their outputs."""
    if group.spec.mlp.kind != "moe" or not setting.stack.exchange_kept:
        return []
    store, mlp = setting.store, group.spec.mlp
    routed = P.head_width(called="routed", heads=mlp.experts_per_token, head_dim=setting.case.model.hidden)
    routed = A.routed_share(called="routed", channels=routed, tp=store.tp, etp=store.etp)
    each = A.kept(called="exchanged", channels=routed, width=store.act)
    return [A.where_split(called="exchanged", size=each, ways=setting.case.plan.ep) for _ in range(2)]


def _scattered(setting: Setting, weight: Weight) -> Quantity:
    """This rank's tokens of a sum over tensor-parallel ranks, where they are scattered."""
    store = setting.store
    ways = A.sequence_ways(tp=store.tp, sequence_parallel=store.sp)
    channels = P.local_channels(called=f"{weight.name}.scattered", channels=weight.cols, tp=ways)
    size = A.kept(called=f"{weight.name}.scattered", channels=channels, width=store.act)
    return A.where_split(called=f"{weight.name}.scattered", size=size, ways=ways)


def without_modules(setting: Setting, group: Group) -> list[Quantity]:
    """Saved tensors of a layer without those of the modules that are recomputed."""
    modules = frozenset(setting.case.recipe.recomputed)
    moe = group.spec.mlp.kind == "moe"
    return [k for op in group.ops for k in op.saved if not _recomputed(op, k.name, modules, moe=moe)]


def _recomputed(op: Op, name: str, modules: frozenset[str], moe: bool) -> bool:
    """Whether a saved tensor belongs to a module that is recomputed."""
    inside = {"moe" if moe else "mlp": op.name in EXPERTS, "shared_experts": op.name.startswith("shared_")}
    if moe and "moe" in modules and op.name.startswith("shared_"):
        return True
    return (
        any(name_ in modules and held for name_, held in inside.items())
        or ("core_attn" in modules and op.name == "attention" and name not in _read_by_others(op))
        or ("mlp" in modules and not moe and name == "norm2.output")  # the norm is fused into the projection
        or ("mla_up_proj" in modules and name in RISEN)
        or ("layernorm" in modules and op.name in NORMS and name.endswith(".output"))
        or ("moe_act" in modules and moe and name.endswith(("mlp.product", "mlp.weighted_product")))
    )


def _read_by_others(op: Op) -> tuple[str, ...]:
    """Tensors of the attention that others keep; its output is not where the projection keeps a cast of it."""
    cast = [kept.name for kept in op.saved if kept.name == "attention.output_cast"]
    return (*READ_BY_OTHERS[:-1], *cast) if cast else READ_BY_OTHERS
