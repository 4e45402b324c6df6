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
NORMS = ("norm1", "norm2")
EXPERTS = ("dispatch", "up", "activation", "down", "combine")


def by_operator(setting: Setting, group: Group) -> list[Quantity]:
    """Results that torchtitan's policy keeps besides the layer's input: every second matrix product and the attention.

    Products of experts run in a grouped kernel that is not on its list; communication results are left out.
    """
    products = [w for w in group.weights if w.linear and not w.expert and not w.name.endswith("bias")]
    results = [_result(setting, w) for w in products[::2]]
    kept = [k for op in group.ops if op.name == "attention" for k in op.saved if k.name in ATTENTION_RESULTS]
    return [*results, *kept]


def _result(setting: Setting, weight: Weight) -> Quantity:
    """The result of one matrix product on this rank; of a product that is summed over ranks it is whole."""
    summed = weight.name in ("o", "down", "shared_down", "router")
    tp: Like = 1 if summed or not weight.split else setting.case.plan.tp
    channels = P.local_channels(called=f"{weight.name}.result", channels=weight.cols, tp=tp)
    return A.kept(called=f"{weight.name}.result", channels=channels, width=setting.store.act)


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
        or ("core_attn" in modules and op.name == "attention" and name not in READ_BY_OTHERS)
        or ("mla_up_proj" in modules and name in RISEN)
        or ("layernorm" in modules and op.name in NORMS and name.endswith(".output"))
        or ("moe_act" in modules and moe and name.endswith("mlp.product"))
    )
