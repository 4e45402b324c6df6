"""Runs the training step of a request under the recorder, and gives what was seen as plain data."""

from __future__ import annotations

import re
import resource
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor

from planner.trace.allocator import thin
from planner.trace.events import grains
from planner.trace.inside import device, spread
from planner.trace.inside.adapters import adapt
from planner.trace.inside.failure import CannotTrace
from planner.trace.inside.losses import Loss, loss_of
from planner.trace.inside.models import DTYPES, Built, build
from planner.trace.inside.recompute import checkpointing, offloading
from planner.trace.inside.recorder import Peak, Recorder, local

#: operations of the loss's backward
LOSS_BACKWARD = ("aten._log_softmax_backward_data.default", "aten.nll_loss_backward.default")

Tell = Callable[[str, float], None]


def trace(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """The trace of a request, as JSON-able data; `tell(stage, share)` reports progress. Raises CannotTrace."""
    started = time.monotonic()
    if request["semantics"] == "cuda":
        device.install({"eager": "math"}.get(request["attention"], request["attention"]))
    ranks = spread.mesh(request["spread"])
    tell("build", 0.1)
    # no fallback: it would run an operation that torch cannot fake on real tensors of the model's size
    mode = FakeTensorMode(allow_fallback_kernels=False) if request["fake"] else nullcontext()
    built = _built(request, mode)
    checkpointing(built, request["checkpointing"], bool(request["adapters"]))
    sizes, params = _sizes(built), sum(p.numel() for p in built.model.parameters())
    if ranks is not None:
        spread.shard(built, ranks, request)  # on the meta device and outside the fake mode, which meshes do not bear
    with mode:
        _materialise(built.model)
        run = _Run(request, built, ranks, sizes)
        tell("trace", 0.2)
        run.steps(tell)
        found = {"params": params, **run.report()}
    found["seconds"] = round(time.monotonic() - started, 3)
    found["memory_of_worker_gib"] = _most_memory() / 2**20
    return found


def _most_memory() -> int:
    """The most memory of this process in KiB. Linux lets getrusage start from what the parent had at the fork."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="ignore")
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    except (OSError, StopIteration, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _built(request: dict[str, Any], mode: Any) -> Built:
    """The model with its adapters: of known code on the meta device, a user's own under the fake mode itself."""
    if not request["fake"]:
        return _adapted(build(request), request)
    if request["model"].get("module"):
        with mode:
            return _adapted(build(request), request)
    with torch.device("meta"):
        return _adapted(build(request), request)


def _adapted(built: Built, request: dict[str, Any]) -> Built:
    if request["adapters"]:
        built.model = adapt(built.model, request["adapters"])
    built.model.train()
    return built


def _materialise(model: nn.Module) -> None:
    """Give what is on the meta device storage of its own; tied weights stay tied."""
    made: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and parameter.is_meta:
                if id(parameter) not in made:
                    made[id(parameter)] = nn.Parameter(_empty(parameter), parameter.requires_grad)
                module._parameters[name] = made[id(parameter)]  # type: ignore[assignment]
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_meta:
                module._buffers[name] = made.setdefault(id(buffer), _empty(buffer))


def _empty(like: torch.Tensor) -> torch.Tensor:
    if isinstance(like, DTensor):
        part, spec = _empty(like._local_tensor), like._spec
        return DTensor.from_local(
            part, spec.mesh, spec.placements, run_check=False, shape=like.shape, stride=like.stride()
        )
    return torch.empty(like.shape, dtype=like.dtype, device="cpu")


class _Run:
    """A model, its optimizer and the recorder over them."""

    def __init__(self, request: dict[str, Any], built: Built, ranks: Any, sizes: dict[str, dict[str, int]]):
        self.request, self.built, self.ranks, self.sizes = request, built, ranks, sizes
        self.model = built.model
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        if not self.trained:
            raise CannotTrace("model", "nothing-trains")
        groups = [{"params": group} for group in _by_kind(self.trained)]
        self.optimizer = optimizer(groups, request["optimizer"])
        self.loss: Loss = loss_of(request, built.kind)
        sharded = request["spread"]["kind"] == "fsdp2"
        tokens = request["micro_batch"] * request["seq_len"]
        self.recorder = Recorder(
            spread.local_vocab(built.vocab, request["spread"]), tokens, request["log"],
            counters_on_host=request["optimizer"]["impl"] != "fused", sharded=sharded,
            split=request["spread"]["tp"] > 1,
        )  # fmt: skip
        self.head = _head(built)
        self.saved: dict[str, int] = {}
        self.live_after_forward = 0

    def steps(self, tell: Tell) -> None:
        """All steps; what is reported is the last one, the log holds all."""
        recorder, request = self.recorder, self.request
        batches = [self.built.batch(request["micro_batch"], request["seq_len"]) for _ in range(request["accumulation"])]
        with recorder:
            recorder.attach(self.model)
            self.model = spread.replicated(self.built, self.ranks, request)
            for batch in batches:
                for value in batch.values():
                    if isinstance(value, torch.Tensor):
                        recorder.tag(value, "inputs")
            # torch's DDP rearranges its buckets in a second forward, reading values that a fake tensor lacks
            ddp = isinstance(self.model, nn.parallel.DistributedDataParallel)
            if ddp:
                self._make_states()
            for i in range(1 if ddp else request["steps"]):
                recorder.forget()
                recorder.mark(f"step:{i + 1}")
                self._step(batches)
                tell("trace", 0.2 + 0.75 * (i + 1) / request["steps"])

    def _step(self, batches: list[dict[str, Any]]) -> None:
        recorder, request = self.recorder, self.request
        autocast = request["autocast"]
        for i, batch in enumerate(batches):
            self._communicate(last=i == len(batches) - 1)
            recorder.start("forward")
            with (
                offloading(recorder, request["offload_activations"]),
                torch.autocast("cpu", DTYPES[autocast or "bf16"], enabled=autocast is not None),
                self._parallel_loss(),
            ):
                loss, output = self.loss(self.model, batch)
            held = [output] if request["keeps_logits"] else []
            del output
            self.saved = self._kept_by_layer()
            self.live_after_forward = recorder.total
            recorder.start("backward")
            with self._parallel_loss():
                (loss / len(batches) if len(batches) > 1 else loss).backward()
            del loss
            held.clear()
            recorder.tag_gradients(self.trained)
        if request["clip"]:
            recorder.start("clip")
            for group in _by_kind(self.trained):
                torch.nn.utils.clip_grad_norm_(group, 1.0)
        self._optimize()
        recorder.start("end")

    def _make_states(self) -> None:
        """The optimizer's states, made by a step on gradients of zero."""
        for parameter in self.trained:
            parameter.grad = torch.zeros_like(parameter)
        self._optimize()

    def _optimize(self) -> None:
        recorder = self.recorder
        recorder.start("optimizer")
        self.optimizer.step()
        for state in self.optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    recorder.tag(value, "optimizer_states")
        self.optimizer.zero_grad(set_to_none=True)

    def _communicate(self, last: bool) -> None:
        """Gradients are reduced with the last micro-batch only where the request says that the loop waits."""
        if not self.request["spread"]["waits"]:
            return
        if hasattr(self.model, "set_requires_gradient_sync"):
            self.model.set_requires_gradient_sync(last)
        elif isinstance(self.model, nn.parallel.DistributedDataParallel):
            self.model.require_backward_grad_sync = last

    def _parallel_loss(self) -> Any:
        if self.request["spread"]["tp"] == 1:
            return nullcontext()
        from torch.distributed.tensor.parallel import loss_parallel

        return loss_parallel()

    # Results

    def _kept_by_layer(self) -> dict[str, int]:
        """Bytes that the forward of each layer left for the backward."""
        found: Counter[str] = Counter()
        for entry in self.recorder.live.values():
            if entry.phase == "forward" and entry.category in ("activations", "weight_copies", "host"):
                found[_layer_of(entry.module, self.built.layer_names)] += grains(entry.size)
        return dict(found)

    def report(self) -> dict[str, Any]:
        """The reported step as plain data; sizes in bytes of this rank."""
        recorder = self.recorder
        top = max(recorder.peaks.values(), key=lambda p: p.size)
        optimizer_states = Counter[str]()
        names = {id(p): n for n, p in self.model.named_parameters()}
        for parameter, state in self.optimizer.state.items():
            layer = _layer_of(names.get(id(parameter), ""), self.built.layer_names)
            optimizer_states[layer] += sum(_bytes(v) for v in state.values() if isinstance(v, torch.Tensor))
        return {
            "peak_bytes": top.size,
            "peak": self._peak(top),
            "phases": {name: self._peak(peak) for name, peak in recorder.peaks.items()},
            "host_peak_bytes": recorder.host_peak,
            "after_forward_bytes": self.live_after_forward,
            "trainable": sum(p.numel() for p in self.trained),
            "layers": self._layers(optimizer_states),
            "flops": dict(recorder.flops),
            "flops_unknown": sorted(recorder.unknown_flops),
            "operations": recorder.operations,
            "timeline": thin(recorder.points),
            "log": {"events": recorder.events, "labels": list(recorder.labels)} if self.request["log"] else None,
            "model_class": type(self.built.model).__name__,
        }

    def _peak(self, peak: Peak) -> dict[str, Any]:
        return {
            "bytes": peak.size, "op": peak.op, "module": peak.module, "phase": peak.phase, "moment": self._moment(peak),
            "operation": peak.index, "by_category": peak.by_category,
        }  # fmt: skip

    def _moment(self, peak: Peak) -> str:
        """The moment of the step, in the planner's words."""
        if peak.phase != "backward":
            return "forward" if peak.phase == "forward" else "optimizer"
        if peak.op in LOSS_BACKWARD or (peak.module and peak.module.endswith(self.head)):
            return "loss"
        return "backward" if _layer_of(peak.module, self.built.layer_names) else "root_reduce"

    def _layers(self, states: Counter[str]) -> list[dict[str, Any]]:
        rows = []
        for name in (*self.built.layer_names, ""):
            size = self.sizes.get(name, {"params": 0, "bytes": 0, "trained_bytes": 0})
            rows.append({
                "layer": name or "outside", "params": size["params"], "weights_bytes": size["bytes"],
                "gradients_bytes": size["trained_bytes"], "optimizer_states_bytes": states.get(name, 0),
                "saved_bytes": self.saved.get(name, 0),
            })  # fmt: skip
        return rows


def _by_kind(parameters: list[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Distributed and plain parameters apart: tensor parallel leaves norms plain, and torch does not mix them."""
    kinds: dict[Any, list[nn.Parameter]] = {}
    for parameter in parameters:
        kind = parameter.device_mesh if isinstance(parameter, DTensor) else None
        kinds.setdefault(kind, []).append(parameter)
    return list(kinds.values())


def _head(built: Built) -> str:
    """The name of the module that makes the logits; a space where there is none."""
    if built.kind == "titan":
        return "output"
    model = built.model.get_base_model() if hasattr(built.model, "get_base_model") else built.model
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    return next((name for name, module in model.named_modules() if module is head and head is not None), " ")


def _layer_of(module: str, layers: list[str]) -> str:
    """The layer that a module path is in, or "" outside every layer. Wrappers put words in front."""
    if not layers:
        return ""
    found = re.search(rf"(?:^|\.)({re.escape(layers[0].rpartition('.')[0])}\.\d+)(?:\.|$)", module)
    return found[1] if found else ""


def _sizes(built: Built) -> dict[str, dict[str, int]]:
    """Whole parameters and bytes of each layer, before anything is spread."""
    found: dict[str, dict[str, int]] = {}
    for name, parameter in built.model.named_parameters():
        row = found.setdefault(_layer_of(name, built.layer_names), {"params": 0, "bytes": 0, "trained_bytes": 0})
        row["params"] += parameter.numel()
        row["bytes"] += parameter.numel() * parameter.element_size()
        row["trained_bytes"] += parameter.numel() * parameter.element_size() * int(parameter.requires_grad)
    return found


def _bytes(tensor: torch.Tensor) -> int:
    part = local(tensor)
    return part.numel() * part.element_size()


def optimizer(trained: list[dict[str, Any]], stated: dict[str, Any]) -> torch.optim.Optimizer:
    """torch's own optimizer of that name and implementation."""
    how = {"fused": {"fused": True}, "foreach": {"foreach": True}, "for-loop": {"foreach": False}}[stated["impl"]]
    match stated["name"]:
        case "adamw":
            return torch.optim.AdamW(trained, lr=1e-4, **how)
        case "adam":
            return torch.optim.Adam(trained, lr=1e-4, **how)
        case "sgd":
            return torch.optim.SGD(trained, lr=1e-3, **how)
        case "sgd-momentum":
            return torch.optim.SGD(trained, lr=1e-3, momentum=0.9, **how)
    raise CannotTrace("recipe.optimizer", "no-optimizer", name=stated["name"])

