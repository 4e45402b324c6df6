"""The head and the loss: logits, their upcast and gradients, by loss path."""

from __future__ import annotations

import numpy as np

from planner.formulas import activations as A
from planner.formulas import parameters as P
from planner.formulas import states as S
from planner.formulas import temporaries as T
from planner.i18n import Phrase
from planner.quantity import Like, Quantity, given, total
from planner.spec.recipe import WIDTH
from planner.step.activations import LayerTensors
from planner.step.setting import Setting, casts_base
from planner.step.states import head_packed

#: B a logit at the end of the forward and in the backward of the loss
FULL = (10.0, 12.0)
FUSED = (4.0, 4.0)
#: what torch's loss on logits split over ranks keeps besides
SPLIT = 4.0
#: by chunks over whole logits: 16-bit logits (dropped after the forward) and the fp32 log softmax of every chunk
CHUNKED_WHOLE = (6.0, 4.0)
#: and of the one chunk at work: its fp32 copy, then the two gradients of its loss
CHUNK = (4.0, 8.0)


def forward(setting: Setting) -> Quantity:
    """The loss at the end of the forward."""
    return _here(setting, _bytes(setting, 0))


def backward(setting: Setting) -> Quantity:
    """The loss in its own backward."""
    return _here(setting, _bytes(setting, 1))


def before(setting: Setting) -> Quantity:
    """At the head's last piece: the logits so far, and where the loop holds the last pass's those in fp32."""
    width = T.held_logits(
        called="logit_width", act_width=setting.store.act, held_width=WIDTH["fp32"], held=int(setting.stack.keeps_graph)
    )
    size = T.logits_bytes(
        called="loss_tensors", tokens=setting.tokens, vocab=setting.vocab, logit_width=width,
        tp=setting.logit_ways,
    )  # fmt: skip
    return _here(setting, size)


def unpacked_head(setting: Setting) -> list[Quantity]:
    """A packed head, unpacked for its matrix product."""
    if not head_packed(setting):
        return []
    return [T.unpacked_weight(
        called="unpacked_weight", params=setting.head, param_width=setting.store.act,
        copies=setting.stack.unpacked_copies,
    )]  # fmt: skip


def chunks_left(setting: Setting) -> Quantity:
    """Where the head runs by chunks too: gradients of the logits of the chunks still to come."""
    size = T.chunks_left(
        called="loss_tensors", tokens=setting.tokens, vocab=setting.vocab, chunks=setting.case.recipe.loss_chunks,
        grad_width=setting.store.act, tp=setting.logit_ways,
    )  # fmt: skip
    return _here(setting, size)


def logits_gradient(setting: Setting) -> Quantity:
    """The gradient of the logits in the compute dtype, which the head's backward starts from."""
    size = T.logits_bytes(
        called="logits_gradient", tokens=setting.tokens, vocab=setting.vocab, logit_width=setting.store.act,
        tp=setting.logit_ways,
    )  # fmt: skip
    return _here(setting, size)


def whole_logits(setting: Setting) -> list[Quantity]:
    """The logits as the head makes them: whole, or those of one chunk where the loss takes the head by chunks."""
    match setting.case.recipe.loss:
        case "chunked-linear-ce":
            return [_here(setting, total("loss_tensors", [_chunk(setting, setting.store.act)]))]
        case "fused-linear-ce":
            return [_here(setting, total("loss_tensors", [_liger(setting)]))]
        case _:
            return [logits_gradient(setting)]


def _here(setting: Setting, size: Quantity) -> Quantity:
    return P.on_stage_bytes(called="loss_tensors", size=size, present=setting.has_logits)


def per_logit(setting: Setting) -> tuple[float, float]:
    """B a logit of the whole-logits part of this loss path."""
    own = setting.stack.loss_bytes.get(setting.case.recipe.loss)
    if own:
        return float(own[0]), float(own[1])
    return {"full-logits": FULL, "fused-ce": FUSED, "chunked-ce": CHUNKED_WHOLE}.get(
        setting.case.recipe.loss, (0.0, 0.0)
    )


def upcasts(setting: Setting) -> bool:
    """Whether whole 16-bit logits are copied to fp32 and dropped before the loss runs backward."""
    narrow = bool(np.all(np.less(setting.store.act, WIDTH["fp32"])))
    return setting.case.recipe.loss == "full-logits" and per_logit(setting)[1] >= FULL[1] and narrow


def _chunk_width(setting: Setting, which: int) -> Like:
    """B a logit of the one chunk at work, where chunks are taken of whole logits."""
    width = float(setting.stack.loss_bytes.get("chunk", CHUNK)[which])
    if which == 0 and width == CHUNK[0]:
        return T.chunk_upcast_width(
            called="logit_width", act_width=setting.store.act, upcast_width=width,
            micro_batch=setting.case.plan.micro_batch,
        )  # fmt: skip
    return width


def _bytes(setting: Setting, which: int) -> Quantity:
    recipe, tp = setting.case.recipe, setting.logit_ways
    width: Like = per_logit(setting)[which]
    if which == 0 and recipe.loss == "full-logits" and width == FULL[0]:
        width = T.forward_loss_width(called="logit_width", act_width=setting.store.act, upcast_width=4)
    if which == 0 and recipe.loss == "chunked-ce" and width == CHUNKED_WHOLE[0]:
        width = T.chunked_loss_width(called="logit_width", act_width=setting.store.act, upcast_width=4)
    if recipe.loss == "full-logits" and setting.stack.tensor_parallel == "torch":
        width = T.split_loss_width(called="logit_width", logit_width=width, extra=SPLIT, tp=tp)
    whole = T.logits_bytes(called="logits", tokens=setting.tokens, vocab=setting.vocab, logit_width=width, tp=tp)
    match recipe.loss:
        case "chunked-ce":
            capped = [_capped(setting)] if setting.case.model.logit_softcap else []
            return total("loss_tensors", [whole, _chunk(setting, _chunk_width(setting, which)), *capped])
        case "chunked-linear-ce":
            chunk = _chunk(setting, float(width or FULL[1]))
            return total("loss_tensors", [chunk, *_hidden_gradient(setting), *_early_head_gradient(setting)])
        case "fused-linear-ce":
            return total("loss_tensors", [_liger(setting), *_hidden_gradient(setting), *_early_head_gradient(setting)])
        case _:
            more = [_capped(setting)] if setting.case.model.logit_softcap else _further(setting)
            return total("loss_tensors", [whole, *more]) if more else whole


def _further(setting: Setting) -> list[Quantity]:
    """What the losses of further tokens, computed before, keep for their backward."""
    if not setting.case.model.further:
        return []
    width = T.kept_loss_width(
        called="logit_width", logit_width=per_logit(setting)[0], act_width=setting.store.act, upcast_width=4
    )
    each = T.logits_bytes(
        called="further_logits", tokens=setting.tokens, vocab=setting.vocab, logit_width=width,
        tp=setting.logit_ways,
    )  # fmt: skip
    return [A.held_losses(called="further_logits", size=each, losses=setting.case.model.further)]


def _capped(setting: Setting) -> Quantity:
    """The tanh of the logits that a soft cap keeps for its backward."""
    return T.logits_bytes(
        called="capped_logits", tokens=setting.tokens, vocab=setting.vocab, logit_width=setting.store.act,
        tp=setting.logit_ways,
    )  # fmt: skip


def _chunk(setting: Setting, width: Like = FULL[1]) -> Quantity:
    return T.chunk_logits(
        called="chunk", tokens=setting.tokens, vocab=setting.vocab, logit_width=width,
        chunks=setting.case.recipe.loss_chunks, tp=setting.logit_ways,
    )  # fmt: skip


def _liger(setting: Setting) -> Quantity:
    rows = T.liger_rows(tokens=setting.tokens, vocab=setting.vocab, hidden=setting.case.model.hidden)
    return T.logits_bytes(
        called="chunk", tokens=rows, vocab=setting.vocab, logit_width=setting.store.act, tp=setting.logit_ways
    )


def _hidden_gradient(setting: Setting) -> list[Quantity]:
    """The gradient of the last hidden state, made chunk by chunk while the loss runs."""
    wide = setting.stack.loss_sums_wide
    hidden = A.kept(
        called="hidden_gradient", channels=setting.case.model.hidden, width=WIDTH["fp32"] if wide else setting.store.act
    )
    made = [A.microbatch_bytes(called="hidden_gradient", tokens=setting.tokens, per_token=hidden)]
    if wide:  # the chunks of the hidden state are copies of it
        copy = A.kept(called="hidden_chunks", channels=setting.case.model.hidden, width=setting.store.act)
        made.append(A.microbatch_bytes(called="hidden_chunks", tokens=setting.tokens, per_token=copy))
    return made


def _early_head_gradient(setting: Setting) -> list[Quantity]:
    """The head's gradient, which a fused or chunked head makes already in the forward."""
    if not setting.trained:
        return []
    made = [whole_head(setting, setting.whole_gradient_width)]
    if setting.stack.loss_sums_wide:  # beside the fp32 sum of the chunks so far
        made.append(whole_head(setting, WIDTH["fp32"]))
    return made


def _head_weights(setting: Setting) -> Quantity:
    """Parameters of the head, which are the embedding's where they are tied."""
    return P.embedding_or_head(
        called="head_weights", embedding=setting.embedding, head=setting.head, tied=setting.case.model.tied
    )


def whole_head(setting: Setting, width: Like) -> Quantity:
    """The head's gradient on this rank before anything is sharded, `width` B/param."""
    return S.state_bytes(called="head_gradient", params=_head_weights(setting), param_width=width, ways=1)


def by_chunks(setting: Setting) -> bool:
    """Whether the head itself runs by chunks of tokens, as torchtitan's did."""
    return setting.case.recipe.loss == "chunked-ce" and setting.stack.head_in_chunks


def head_copy(setting: Setting) -> Quantity:
    """Autocast's low-precision copy of the head."""
    base = casts_base(setting.case)
    size = T.weight_copies(
        called="head_copy", params=_head_weights(setting), act_width=setting.store.act,
        autocast=1 if base else setting.store.autocast,
    )  # fmt: skip
    if not (base and by_chunks(setting)):
        return size
    return T.chunk_casts(called="head_copy", size=size, chunks=setting.case.recipe.loss_chunks)


def last_hidden(setting: Setting, layer: LayerTensors) -> list[Quantity]:
    """The last hidden state where the stack still holds it at the end of an autocast forward."""
    if not (setting.stack.keeps_last_hidden and np.any(setting.store.autocast)):
        return []
    held = P.on_stage_bytes(called="last_hidden", size=layer.input, present=setting.store.autocast)
    return [P.on_stage_bytes(called="last_hidden", size=held, present=setting.stage.head)]


def outputs(setting: Setting) -> Quantity:
    """16-bit logits that the training loop still references while the loss runs backward."""
    if not setting.case.recipe.keeps_logits:
        return given(0.0, "B", "kept_logits", because=Phrase("because.logits-dropped"))
    kept = T.logits_bytes(
        called="kept_logits", tokens=setting.tokens, vocab=setting.vocab, logit_width=setting.store.act,
        tp=setting.logit_ways,
    )  # fmt: skip
    return _here(setting, kept)
