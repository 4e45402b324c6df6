"""A model as a stack's own code writes it: the same weights and results, other tensors kept."""

from __future__ import annotations

from dataclasses import replace

from planner.spec.model import LayerGroup, Model
from planner.spec.stack import Stack


def as_coded(model: Model, stack: Stack) -> Model:
    """The model in the code of that stack; the model itself where the stack runs the publisher's code."""
    if not (stack.fused_qkv or stack.expands_heads or stack.parallel_layernorm or stack.wide_norms):
        return model
    return replace(model, groups=tuple(_group(group, stack) for group in model.groups))


def _group(group: LayerGroup, stack: Stack) -> LayerGroup:
    attention, norm = group.attention, group.norm
    if attention.kind == "gqa":
        fused = attention.fused_qkv or stack.fused_qkv
        attention = replace(attention, fused_qkv=fused, expanded=stack.expands_heads)
    plain = norm.kind == "layer" and norm.placement == "pre" and not group.mlp.gated and attention.rope
    if stack.parallel_layernorm and plain:
        norm = replace(norm, placement="parallel")
    if stack.wide_norms:
        norm = replace(norm, upcast_kept="fp32")
    return replace(group, attention=attention, norm=norm)
