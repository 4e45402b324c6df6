"""Multi-head latent attention: queries and keys rise from a narrow latent; a part of each head carries the position."""

from __future__ import annotations

from planner.formulas import activations as A
from planner.formulas import parameters as P
from planner.layers import norm as N
from planner.layers.attention_gqa import cast_output
from planner.layers.ops import FP32, Op, Storage, Weight, dropout_mask
from planner.quantity import Like, Quantity
from planner.spec.model import Attention, Norm


def _widths(attention: Attention) -> tuple[Quantity, Quantity, Quantity]:
    """Channels of all queries (or keys), of what rises from the key and value latent, and of all values."""
    q = P.head_width(called="query_width", heads=attention.heads, head_dim=attention.head_dim)
    both = P.latent_head(called="key_value_head", head_dim=attention.head_dim, rope_dim=attention.rope_dim,
                         value_dim=attention.value_dim)  # fmt: skip
    risen = P.head_width(called="key_value_width", heads=attention.heads, head_dim=both)
    return q, risen, P.head_width(called="value_width", heads=attention.heads, head_dim=attention.value_dim)


def weights(attention: Attention, hidden: Like) -> tuple[Weight, ...]:
    """Down to the latents and up from them; queries may come straight from the hidden state."""
    q, risen, v = _widths(attention)
    down = P.latent_width(called="latent_width", rank=attention.kv_rank, rope_dim=attention.rope_dim)
    query: tuple[Weight, ...]
    if attention.q_rank:
        query = (Weight("q_a", hidden, attention.q_rank, split=False), Weight("q_b", attention.q_rank, q))
    else:
        query = (Weight("q", hidden, q),)
    key = (Weight("kv_a", hidden, down, split=False), Weight("kv_b", attention.kv_rank, risen))
    return (*query, *key, Weight("o", v, hidden))


def norms(attention: Attention, norm: Norm) -> tuple[Weight, ...]:
    """The norms of the latents."""
    query = N.weights(norm, "q_a_norm", attention.q_rank) if attention.q_rank else ()
    return (*query, *N.weights(norm, "kv_a_norm", attention.kv_rank))


def readers(attention: Attention) -> tuple[str, ...]:
    """The linears that read the norm's output."""
    return ("q_a" if attention.q_rank else "q", "kv_a")


def ops(attention: Attention, norm: Norm, hidden: Like, seq_len: Like, store: Storage) -> list[Op]:
    """From the latents to the output projection, in forward order."""
    named = {w.name: w for w in weights(attention, hidden)}
    out = (named.pop("o"),)
    made = [Op("qkv", tuple(named.values()))]
    if attention.q_rank:
        made.append(N.op(norm, "q_a_norm", attention.q_rank, store, ("q_b",), store.act))
    made.append(N.op(norm, "kv_a_norm", attention.kv_rank, store, ("kv_b",), store.act))
    made.append(_core(attention, seq_len, store))
    made.append(Op("o", out, dropout_mask("attention", hidden, store)))
    return made


def _core(attention: Attention, seq_len: Like, store: Storage) -> Op:
    """Queries and keys put together from both parts; the value is a view of what rose from the latent and keeps it."""
    q, risen, v = (P.local_channels(called=w.name, channels=w, tp=store.tp) for w in _widths(attention))
    heads = P.local_channels(called="local_heads", channels=attention.heads, tp=store.tp)
    shared = P.local_channels(
        called="rope_channels", channels=attention.rope_dim,
        tp=A.sequence_ways(tp=store.tp, sequence_parallel=store.sp),
    )  # fmt: skip
    kept = [
        A.kept(called="attention.query", channels=q, width=store.act),
        A.kept(called="attention.key", channels=q, width=store.act),
        A.kept(called="attention.value", channels=risen, width=store.act),
        A.kept(called="attention.rope", channels=shared, width=store.act),
    ]
    gradients = [A.kept(called=f"attention.{c.name}_gradient", channels=c, width=store.act) for c in (q, q, risen, v)]
    output = A.kept(called="attention.output", channels=v, width=store.act)
    if store.attention in ("eager", "math"):
        wide: Like = store.act if store.fused_softmax else FP32
        softmax = A.scores_kept(called="attention.softmax", heads=heads, seq_len=seq_len, width=wide)
        lost = A.scores_kept(called="attention.score_gradient", heads=heads, seq_len=seq_len, width=wide)
        read = A.kept(called="attention.output", channels=v, width=store.linear)
        dropped = [
            A.scores_kept(called=f"attention.{n}", heads=heads, seq_len=seq_len, width=w)
            for n, w in (("dropout_mask", 1), ("dropped_probabilities", store.act)) if store.attention_dropout
        ]
        return Op("attention", (), (*kept, read, softmax, *dropped), (*kept, output, softmax, lost, *gradients))
    sums = A.logsumexp_kept(called="attention.logsumexp", heads=heads, width=FP32, seq_len=seq_len, block=1)
    inside = A.kept(called="attention.query_gradient", channels=q, width=FP32)
    kept.append(output)
    return Op("attention", (), (*kept, sums, *cast_output(v, store)), (*kept, sums, *gradients, inside))
