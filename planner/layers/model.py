"""The whole model: parameters of the embedding, the layers and the head, whole or on one tensor-parallel rank."""

from __future__ import annotations

from collections.abc import Iterable

from planner.formulas import parameters as P
from planner.i18n import Phrase
from planner.layers import block
from planner.layers import norm as N
from planner.layers.ops import Weight
from planner.quantity import Like, Quantity, given, total
from planner.spec.model import Model


def count(name: str, weights: Iterable[Weight], tp: Like = 1, ep: Like = 1, etp: Like = 1) -> Quantity:
    """Parameters of some weights on one rank: tensor parallelism divides those it splits, experts have own ranks.

    An expert's vectors that are not split are divided all the same (less than one part in a thousand of it).
    """
    parts = []
    for w in weights:
        params = P.weight_params(called=w.name, rows=w.rows, cols=w.cols, copies=w.copies)
        if w.expert:
            params = P.expert_params(called=w.name, params=params, ep=ep, etp=etp)
        elif w.split:
            params = P.local_params(called=w.name, params=params, tp=tp)
        parts.append(params)
    return total(name, parts) if parts else given(0.0, "param", name, because=Phrase("because.none-in-model"))


def embedding(model: Model, vocab: Like) -> tuple[Weight, ...]:
    """The token embedding."""
    return (Weight("embedding", vocab, model.hidden, linear=False),)


def head(model: Model, vocab: Like) -> tuple[Weight, ...]:
    """The output projection; no weight of its own where it is tied to the embedding."""
    bias = (Weight("head.bias", 1, vocab),) if model.head_bias else ()
    return bias if model.tied else (Weight("head", model.hidden, vocab), *bias)


def positions(model: Model) -> tuple[Weight, ...]:
    """The table of learned positions, where the model has one."""
    table = Weight("positions", model.max_positions, model.hidden, split=False, linear=False)
    return (table,) if model.position == "learned" else ()


def final_norm(model: Model) -> tuple[Weight, ...]:
    """The norm before the head."""
    return N.weights(model.groups[-1].norm, "final_norm", model.hidden)


def parameters(model: Model) -> Quantity:
    """All parameters of the model as published, a tied head counted once.

    Works for arrays of layers or widths. Leaves out buffers (rotary tables, attention masks).
    """
    layers = [
        P.layers_params(
            called=f"layers_{i}",
            layers=group.count,
            params=count(f"layer_{i}", block.weights(group, model.hidden)),
        )
        for i, group in enumerate(model.groups)
    ]
    outside = [
        count("embedding", embedding(model, model.vocab)),
        count("head", head(model, model.vocab)),
        count("final", [*positions(model), *final_norm(model)]),
    ]
    return total("parameters", [*outside, *layers])
