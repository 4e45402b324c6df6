"""Builds the model to trace: from a Hugging Face configuration, as torchtitan-like code, or from a user's module."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import torch
from torch import Tensor, nn

from planner.trace.inside.failure import CannotTrace

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(slots=True)
class Built:
    """A model, its layers in order, its vocabulary, and how it is fed.

    `batch(micro_batch, seq_len)` makes one micro-batch; `logits(model, batch)` runs it without a loss.
    """

    model: nn.Module
    layers: list[nn.Module]
    layer_names: list[str]
    vocab: int
    kind: str
    batch: Callable[[int, int], dict[str, Any]]


def build(request: dict[str, Any]) -> Built:
    """The model of a request, on whatever device and mode is active. Raises CannotTrace with the reason."""
    stated = request["model"]
    dtype = DTYPES[request["params_dtype"]]
    if module := stated.get("module"):
        return _users(module)
    if stated["code"] == "titan":
        return _titan(stated, dtype, request)
    return _transformers(stated["config"], dtype, request)


# Hugging Face


def _transformers(published: dict[str, Any], dtype: torch.dtype, request: dict[str, Any]) -> Built:
    import transformers

    _not_tracing()
    config = _config(transformers, published, request)
    model_class = _class(transformers, published, config)
    attention = "eager" if request["attention"] == "eager" else "sdpa"
    try:
        model = model_class._from_config(config, dtype=dtype, attn_implementation=attention)
    except (ValueError, ImportError) as error:
        if "scaled_dot_product_attention" not in str(error):
            raise CannotTrace("model", "unbuildable", kind=config.model_type, error=error) from error
        model = model_class._from_config(config, dtype=dtype, attn_implementation="eager")
    names, layers = _layers(model)
    batches = _batches(model_class, config, request["spread"]["sequence_parallel"])
    return Built(model, layers, names, _vocab(config), _feeding(model_class.__name__), batches)


def _not_tracing() -> None:
    """transformers takes fake tensors for tracing and would then build masks that a real run leaves out."""
    from transformers import masking_utils

    if not hasattr(masking_utils, "is_tracing") or not hasattr(masking_utils, "find_packed_sequence_indices"):
        raise CannotTrace("model", "masks", version=metadata.version("transformers"))
    masking_utils.is_tracing = lambda tensor=None: False
    masking_utils.find_packed_sequence_indices = lambda position_ids: None  # of a batch that is not packed


def _config(transformers: Any, published: dict[str, Any], request: dict[str, Any]) -> Any:
    kept = {k: v for k, v in published.items() if not k.startswith("_") and k not in NOT_OF_THE_MODEL}
    kind = kept.pop("model_type", None)
    if not isinstance(kind, str) or kind not in transformers.CONFIG_MAPPING:
        raise CannotTrace("model.model_type", "unknown-type", kind=kind, version=transformers.__version__)
    try:
        config = transformers.AutoConfig.for_model(kind, **kept)
    except Exception as error:  # validators of configurations have errors of their own without a common base
        raise CannotTrace("model", "refused", error=_last_line(error)) from error
    config.use_cache = False
    for name in DROPOUTS if request["dropout"] is not None else ():
        if isinstance(getattr(config, name, None), (int, float)):
            setattr(config, name, request["dropout"])
    return config


def _last_line(error: Exception) -> str:
    """The last line that says something: validators of configurations put the reason there."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


#: keys of a published configuration that are about files and code, not about the model
NOT_OF_THE_MODEL = frozenset({
    "architectures", "auto_map", "torch_dtype", "dtype", "transformers_version", "quantization_config", "use_cache",
    "attn_implementation", "name_or_path",
})  # fmt: skip
#: how configurations name the probabilities that one `dropout` replaces
DROPOUTS = (
    "resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout", "hidden_dropout", "dropout",
    "hidden_dropout_prob", "attention_probs_dropout_prob", "embd_dropout", "resid_dropout",
)  # fmt: skip
#: what a class is for, by how its name ends, and how it is fed
FED = {
    "ForCausalLM": "tokens", "LMHeadModel": "tokens", "ForMaskedLM": "tokens", "ForPreTraining": "tokens",
    "ForImageClassification": "images", "ForConditionalGeneration": "sequence-to-sequence",
}  # fmt: skip


def _class(transformers: Any, published: dict[str, Any], config: Any) -> Any:
    """The class that the configuration names, if transformers itself has it; else its causal language model."""
    named = published.get("architectures")
    for name in named if isinstance(named, list) else []:
        found = getattr(transformers, name, None) if isinstance(name, str) and name.isidentifier() else None
        known = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel) and _feeding(name)
        if known and getattr(found, "config_class", None) is type(config):
            return found
    masked = () if getattr(config, "is_decoder", False) else (transformers.MODEL_FOR_MASKED_LM_MAPPING,)
    for mapping in (
        *masked, transformers.MODEL_FOR_CAUSAL_LM_MAPPING, transformers.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
        transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    ):  # fmt: skip
        if type(config) in mapping:
            return mapping[type(config)]
    raise CannotTrace("model.model_type", "no-class", kind=config.model_type)


def _feeding(name: str) -> str:
    return next((fed for end, fed in FED.items() if name.endswith(end)), "")


def _vocab(config: Any) -> int:
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return int(getattr(text, "vocab_size", 0) or getattr(config, "num_labels", 0) or 0)


def _layers(model: nn.Module) -> tuple[list[str], list[nn.Module]]:
    """The longest list of equal modules: the layers of every architecture in transformers."""
    lists = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.ModuleList) and len(m)]
    if not lists:
        return [], []
    outer = [(n, m) for n, m in lists if not any(n.startswith(f"{o}.") for o, _ in lists if o != n)]
    name, found = max(outer, key=lambda one: (sum(p.numel() for p in one[1].parameters()), len(one[1])))
    return [f"{name}.{i}" for i in range(len(found))], list(found)


def _batches(model_class: Any, config: Any, positions: bool) -> Callable[[int, int], dict[str, Any]]:
    """`positions` are stated where the hidden state is split by tokens, whose length then says nothing."""
    fed = _feeding(model_class.__name__)

    def tokens(micro_batch: int, seq_len: int) -> dict[str, Any]:
        ids = torch.randint(0, _vocab(config), (micro_batch, seq_len))
        batch = {"input_ids": ids, "labels": ids}
        return batch | {"position_ids": torch.arange(seq_len)[None]} if positions else batch

    def images(micro_batch: int, seq_len: int) -> dict[str, Any]:
        size = config.image_size if isinstance(config.image_size, (list, tuple)) else [config.image_size] * 2
        pixels = torch.randn(micro_batch, config.num_channels, *size)
        return {"pixel_values": pixels, "labels": torch.randint(0, config.num_labels, (micro_batch,))}

    def both_sides(micro_batch: int, seq_len: int) -> dict[str, Any]:
        ids = torch.randint(0, _vocab(config), (micro_batch, seq_len))
        return {"input_ids": ids, "decoder_input_ids": ids, "labels": ids}

    if fed == "images":
        return images
    if fed == "sequence-to-sequence":
        return both_sides
    if not fed:
        raise CannotTrace("model", "not-fed", name=model_class.__name__)
    return tokens


# torchtitan-like code


def _titan(stated: dict[str, Any], dtype: torch.dtype, request: dict[str, Any]) -> Built:
    from planner.trace.inside.titan import Decoder, Shape

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        model = Decoder(Shape(**stated["shape"], fused_norm=stated["fused_norm"]))
    finally:
        torch.set_default_dtype(before)
    vocab = stated["shape"]["vocab"]

    def tokens(micro_batch: int, seq_len: int) -> dict[str, Any]:
        ids = torch.randint(0, vocab, (micro_batch, seq_len))
        return {"input_ids": ids, "labels": ids}

    names = [f"layers.{i}" for i in range(len(model.layers))]
    return Built(model, list(model.layers), names, vocab, "titan", tokens)


# A user's own module


def _users(named: str) -> Built:
    """`package.module:constructor`, called without arguments: a module, or a module and the batch it is fed."""
    place, _, attribute = named.partition(":")
    try:
        constructor = getattr(importlib.import_module(place), attribute)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise CannotTrace("--module", "no-module", name=named, error=error) from error
    if not callable(constructor):
        raise CannotTrace("--module", "not-callable", name=named, got=type(constructor).__name__)
    with contextlib.suppress(ValueError):  # what is written in C may not tell its arguments
        try:
            inspect.signature(constructor).bind()
        except TypeError as error:
            raise CannotTrace("--module", "arguments", name=named, error=error) from error
    made = constructor()
    model, batch = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(model, nn.Module):
        raise CannotTrace("--module", "not-a-module", name=named, got=type(made).__name__)
    names, layers = _layers(model)
    vocab = max((m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding)), default=0)

    def given(micro_batch: int, seq_len: int) -> dict[str, Any]:
        if batch is not None:
            return dict(batch) if isinstance(batch, dict) else {"": batch}
        if not vocab:
            raise CannotTrace("--module", "no-embedding", name=named)
        ids: Tensor = torch.randint(0, vocab, (micro_batch, seq_len))
        return {"": ids, "labels": ids}

    return Built(model, layers, names, vocab, "module", given)
