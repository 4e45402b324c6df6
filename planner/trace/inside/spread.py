"""Spreads a model over a fake process group of any size: DDP, FSDP2, tensor and sequence parallel, as torch does it.

This rank is rank 0. Collectives move nothing; what they allocate is what the real ones allocate, except NCCL's own
buffers, which no allocator sees.
"""

from __future__ import annotations

import fnmatch
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from planner.trace.inside.failure import CannotTrace
from planner.trace.inside.models import DTYPES, Built

TITAN_PLAN = {"wq": "colwise", "wk": "colwise", "wv": "colwise", "wo": "rowwise", "w1": "colwise", "w3": "colwise",
              "w2": "rowwise"}  # fmt: skip


def mesh(stated: dict[str, Any]) -> DeviceMesh | None:
    """A device mesh of the request's ranks, or None for one rank. To be made outside any fake mode."""
    ways = {"replicate": stated["replicate"], "shard": stated["shard"], "tp": stated["tp"]}
    world = ways["replicate"] * ways["shard"] * ways["tp"]
    if world == 1:
        return None
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    kept = {name: n for name, n in ways.items() if n > 1}
    return init_device_mesh("cpu", tuple(kept.values()), mesh_dim_names=tuple(kept))


def shard(built: Built, ranks: DeviceMesh, request: dict[str, Any]) -> None:
    """Split the model's weights over the ranks, in place: first tensor parallel, then FSDP2."""
    stated = request["spread"]
    if stated["tp"] > 1:
        tensor_parallel(built, ranks["tp"], request)
    if (data := _data_axes(ranks)) and stated["kind"] == "fsdp2":
        fully_shard(built, ranks[data], request)


def replicated(built: Built, ranks: DeviceMesh | None, request: dict[str, Any]) -> nn.Module:
    """The model under DDP where the request says so. Its gradients stay as they are: nothing is on the wire."""
    if ranks is None or request["spread"]["kind"] != "ddp" or not (data := _data_axes(ranks)):
        return built.model
    model = nn.parallel.DistributedDataParallel(
        built.model, process_group=ranks[data[0]].get_group(), init_sync=False, gradient_as_bucket_view=False
    )
    model.register_comm_hook(None, _already_reduced)
    return model


def _already_reduced(state, bucket):  # type: ignore[no-untyped-def]  # torch checks annotations by identity
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def _data_axes(ranks: DeviceMesh) -> tuple[str, ...]:
    return tuple(n for n in ("replicate", "shard") if n in (ranks.mesh_dim_names or ()))


# FSDP2


def fully_shard(built: Built, ranks: DeviceMesh, request: dict[str, Any]) -> None:
    """Each layer a group, then the root (or embedding and head as groups of their own)."""
    from torch.distributed.fsdp import MixedPrecisionPolicy
    from torch.distributed.fsdp import fully_shard as as_group

    stated = request["spread"]
    options: dict[str, Any] = {"mesh": ranks}
    if mixed := request["mixed"]:
        options["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=DTYPES[mixed["params"]], reduce_dtype=DTYPES[mixed["reduce"]]
        )
    last = len(built.layers) - 1
    outside = _outside(built.model, stated["root"])
    for module in outside[:1]:
        as_group(module, reshard_after_forward=stated["reshard"] != "never", **options)
    for i, layer in enumerate(built.layers):
        again = stated["reshard"] == "always" or (stated["reshard"] == "unless-last" and i < last)
        as_group(layer, reshard_after_forward=again, **options)
    if len(outside) > 1:
        as_group(outside[1:], reshard_after_forward=stated["reshard"] == "always", **options)
    as_group(built.model, **options)


def _outside(model: nn.Module, root: str) -> list[nn.Module]:
    """Embedding, final norm and head where the stack makes groups of them (torchtitan); nothing where it does not."""
    if root != "separate":
        return []
    if hasattr(model, "tok_embeddings"):
        return [] if model.shape.tied else [model.tok_embeddings, model.norm, model.output]
    table, head = model.get_input_embeddings(), model.get_output_embeddings()
    return [] if head is None or head.weight is table.weight else [table, head]


# Tensor parallel


def tensor_parallel(built: Built, ranks: DeviceMesh, request: dict[str, Any]) -> None:
    """Linears split by columns and rows after the model's own plan; with sequence parallel as torchtitan does it."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor import parallel as P

    layer_plan = _layer_plan(built)
    sequence = request["spread"]["sequence_parallel"]
    made: dict[str, Any] = {}
    for name, how in layer_plan.items():
        if how == "colwise":
            made[name] = P.ColwiseParallel()
        elif how == "rowwise":
            made[name] = P.RowwiseParallel(output_layouts=Shard(1)) if sequence else P.RowwiseParallel()
    if sequence:
        made |= _sequence(built.layers[0], layer_plan)
    for layer in built.layers:
        P.parallelize_module(layer, ranks, dict(made))
    table, norm, head = _ends(built.model)
    split = Shard(1) if sequence else Replicate()
    P.parallelize_module(
        built.model,
        ranks,
        {
            table: P.RowwiseParallel(input_layouts=Replicate(), output_layouts=split),
            **({norm: P.SequenceParallel()} if sequence else {}),
            head: P.ColwiseParallel(input_layouts=split, output_layouts=Shard(-1), use_local_output=False),
        },
    )


def _layer_plan(built: Built) -> dict[str, str]:
    """Module of a layer -> colwise or rowwise, from the plan that the model publishes."""
    first, prefix = built.layers[0], built.layer_names[0]
    inside = [n for n, m in first.named_modules() if isinstance(m, nn.Linear)]
    if built.kind == "titan":
        return {n: TITAN_PLAN[n.rsplit(".", 1)[-1]] for n in inside}
    plan = dict(getattr(built.model, "tp_plan", None) or getattr(built.model.config, "base_model_tp_plan", None) or {})
    found = {}
    for name in inside:
        full = f"{prefix}.{name}"
        for pattern, how in plan.items():
            if fnmatch.fnmatch(full, pattern) or fnmatch.fnmatch(full, f"*.{pattern}"):
                found[name] = how
    if not found or any(how not in ("colwise", "rowwise") for how in found.values()):
        raise CannotTrace("plan.tp", "no-plan", name=type(built.model).__name__)
    return found


def _sequence(layer: nn.Module, plan: dict[str, str]) -> dict[str, Any]:
    """Norms on split sequences; attention and MLP gather them and give them back split."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor import parallel as P

    made: dict[str, Any] = {}
    parents = {n.rsplit(".", 1)[0] for n in plan}
    for name, module in layer.named_children():
        if name in parents:
            made[name] = _gathering(Shard(1), Replicate())
        elif not list(module.children()) and "norm" in name.lower():
            made[name] = P.SequenceParallel()
    return made


def _gathering(split: Any, whole: Any) -> Any:
    """Gathers the hidden state, however it is passed; positions and masks are left alone."""
    from torch.distributed.tensor import parallel as P

    class Gather(P.PrepareModuleInput):
        def _prepare_input_fn(self, inputs: Any, ranks: DeviceMesh) -> Any:
            if not inputs:
                return inputs
            return (self._prepare_input_arg(inputs[0], ranks, split, whole), *inputs[1:])

        def _prepare_input_kwarg_fn(self, inputs: Any, keywords: Any, ranks: DeviceMesh) -> Any:
            keywords = dict(keywords)
            if not inputs and "hidden_states" in keywords:
                keywords["hidden_states"] = self._prepare_input_arg(keywords["hidden_states"], ranks, split, whole)
            return self._prepare_input_fn(inputs, ranks), keywords

    return Gather(
        input_layouts=split, desired_input_layouts=whole, input_kwarg_layouts={"hidden_states": split},
        desired_input_kwarg_layouts={"hidden_states": whole},
    )  # fmt: skip


def _ends(model: nn.Module) -> tuple[str, str, str]:
    """Names of embedding, final norm and head."""
    if hasattr(model, "tok_embeddings"):
        return "tok_embeddings", "norm", "output"
    names = {id(m): n for n, m in model.named_modules()}
    table, head = model.get_input_embeddings(), model.get_output_embeddings()
    base = model.base_model
    norm = next((m for n, m in base.named_children() if "norm" in n.lower() or n == "ln_f"), None)
    if head is None or norm is None:
        raise CannotTrace("plan.tp", "no-ends", name=type(model).__name__)
    return names[id(table)], names[id(norm)], names[id(head)]


def local_vocab(vocab: int, stated: dict[str, Any]) -> frozenset[int]:
    """Widths that logits may have on this rank."""
    return frozenset({vocab, -(-vocab // stated["tp"])}) if vocab else frozenset()
