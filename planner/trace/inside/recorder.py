"""Sees every operation of a step, every storage it makes and every storage that dies, in program order.

From that follow the live bytes by category at any moment, the peak and its operation, the log that an allocator can
replay, and floating point operations by phase. It stands above torch's fake mode and patches nothing; FSDP's resized
storages are noticed by looking at those few that FSDP ever resizes, at each operation.

What it cannot see: memory that a kernel allocates inside one operation. `kernels.temporaries` lists the known ones.
"""

from __future__ import annotations

import sys
import weakref
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch._guards import active_fake_mode
from torch.distributed.tensor import DTensor, _sharding_prop
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from planner.trace.events import grains
from planner.trace.inside import kernels

#: operations that say what a buffer of FSDP2 is: operation -> (argument position or name, category)
FSDP_BUFFERS = {
    "fsdp::all_gather_copy_in": (1, "gathered_weights"),
    "fsdp::split_with_sizes_copy": ("out", "gathered_weights"),
    "fsdp::chunk_cat": ("out", "buffers"),
}
_WAIT = torch.ops._c10d_functional.wait_tensor.default
#: the file in which DTensor works out shardings
_PLANNING = _sharding_prop.__file__
_COPY = torch.ops.aten._to_copy.default


def local(tensor: Tensor) -> Tensor:
    """The part of a distributed tensor that this rank holds."""
    while isinstance(tensor, DTensor):
        tensor = tensor._local_tensor
    return tensor


@dataclass(slots=True)
class Live:
    """A storage that is alive: bytes, category, and where it came from."""

    number: int
    size: int
    category: str
    op: str
    module: str
    phase: str
    ref: Any


@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes alive at once: when, in which operation of which module, and what they were."""

    size: int
    op: str
    module: str
    phase: str
    index: int
    by_category: dict[str, int]


class Recorder(TorchDispatchMode):
    """Records a training step; sizes in bytes, rounded to 512 B where they are summed.

    `vocab` are the widths that logits may have and `tokens` the rows: tensors of that last width with at least an
    eighth of the rows are counted as logits and loss. `counters_on_host`: the optimizer's step counts are host tensors,
    as torch has them unless it is fused. `sharded`: under FSDP2, whose flat buffers carry no name; `split`: under
    tensor parallel.
    """

    def __init__(
        self, vocab: frozenset[int], tokens: int, log: bool, *, counters_on_host: bool = False, sharded: bool = False,
        split: bool = False,
    ):  # fmt: skip
        super().__init__()
        self.vocab, self.tokens, self.log = vocab, tokens, log
        self.counters_on_host, self.sharded = counters_on_host, sharded
        self.distributed, self.sharded_only = sharded or split, sharded and not split
        self.live: dict[int, Live] = {}
        self.total = 0
        self.host_total = self.host_peak = 0
        self.by_category: Counter[str] = Counter()
        self.phase = "build"
        self.peaks: dict[str, Peak] = {}
        self.flops: Counter[str] = Counter()
        self.unknown_flops: set[str] = set()
        self.events: list[tuple[int, int, int, int, int]] = []
        self.labels: dict[str, int] = {}
        self.points: list[tuple[int, int]] = []
        self.operations = 0
        self.modules: list[str] = []
        self._numbers = 0
        self._sequence: list[int] = [0]
        self._sequence_module: list[str] = [""]
        self._watched: dict[int, Live] = {}
        self._streams: dict[int, int] = {}
        self._stream_refs: list[Any] = []
        self._host = 0
        self._fake: Any = None
        self._hooked: dict[int, weakref.ref[Tensor]] = {}
        self._stream()

    # What the run tells.

    def start(self, phase: str) -> None:
        """From here on operations belong to `phase`."""
        self.phase = phase
        self.mark(f"phase:{phase}")

    def forget(self) -> None:
        """Start peaks, counts and points anew: what follows is the step that is reported."""
        self.peaks, self.operations = {}, 0
        self.flops.clear()
        self.points.clear()
        self.host_peak = self.host_total

    def mark(self, name: str) -> None:
        """Note a place in the log."""
        if self.log:
            self.events.append((0, 0, 0, 0, self._label(name)))

    def tag(self, tensor: Tensor, category: str) -> None:
        """Say what a tensor is; a storage not seen before is taken in."""
        storage = local(tensor).untyped_storage()
        entry = self.live.get(storage._cdata)
        if entry is None:
            self._take(local(tensor), "given", category)
        else:
            self._retag(entry, category)

    def is_activation(self, tensor: Tensor) -> bool:
        """Whether a tensor's storage is an activation of the forward, and not a weight, a buffer or an input."""
        entry = self.live.get(local(tensor).untyped_storage()._cdata)
        return entry is not None and entry.category == "activations"

    @contextmanager
    def host(self) -> Iterator[None]:
        """What is made inside lives in host memory and is counted apart."""
        self._host += 1
        try:
            yield
        finally:
            self._host -= 1

    def attach(self, model: nn.Module) -> None:
        """Take in a model's tensors, and follow which module runs."""
        for parameter in model.parameters():
            self.tag(parameter.data if not isinstance(parameter, DTensor) else parameter, "weights")
        for buffer in model.buffers():
            self.tag(buffer, "buffers_of_model")
        for name, module in model.named_modules():
            module.register_forward_pre_hook(self._entering(name), prepend=True)
            module.register_forward_hook(self._leaving, always_call=True)

    def tag_gradients(self, parameters: list[nn.Parameter]) -> None:
        """What has become a gradient."""
        for parameter in parameters:
            if parameter.grad is not None:
                self.tag(parameter.grad, "gradients")

    # What happens.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim" or func.namespace == "profiler":
            return func(*args, **kwargs)
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        if self._watched:
            self._look_at_watched()
        out = args[0] if func is _WAIT else func(*args, **kwargs)
        if not self._only_planned():
            self._record(func, args, kwargs, out)
        return out

    def _only_planned(self) -> bool:
        """Whether DTensor is working out a sharding on tensors of the whole size: not an operation of the step."""
        if active_fake_mode() is not self._fake:
            return True
        if not self.distributed or (self.phase in ("forward", "backward") and self.sharded_only):
            return False
        frame: FrameType | None = sys._getframe(2)
        for _ in range(60):
            if frame is None:
                return False
            if frame.f_code.co_filename == _PLANNING:
                return True
            frame = frame.f_back
        return False

    def _record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        self.operations += 1
        name = str(func)
        self._count_flops(func, args, kwargs, out)
        category = self._copy_of_weight(args[0]) if func is _COPY else None
        if isinstance(out, Tensor):
            self._take(out, name, category)
        elif isinstance(out, (tuple, list)):
            for one in out:
                if isinstance(one, Tensor):
                    self._take(one, name, category)
        if func.namespace == "fsdp":
            self._fsdp(func._schema.name, args, kwargs)
        extra = self._inside_kernel(func, args, name)
        self._measure(name, extra)

    def _take(self, tensor: Tensor, op: str, category: str | None) -> None:
        """A tensor came out of an operation: if its storage is new, it is an allocation."""
        if tensor.device.type == "meta":
            return
        storage = local(tensor).untyped_storage()
        key = storage._cdata
        if key in self.live:
            return
        self._numbers += 1
        ref = weakref.ref(storage, lambda gone: self._died(key, gone))
        kind = "host" if self._host else category or self._kind(tensor, op)
        module = self.modules[-1] if self.modules else ""
        entry = Live(self._numbers, storage.nbytes(), kind, op, module, self.phase, ref)
        self.live[key] = entry
        self._add(entry)

    def _kind(self, tensor: Tensor, op: str) -> str:
        """What a new tensor is, as far as its phase and shape tell."""
        if self._is_logits(tensor):
            return "logits_and_loss"
        if self.sharded and op == "aten.empty.memory_format" and tensor.dim() == 1:
            return "buffers"
        if self.phase == "forward":
            return "activations"
        if self.phase == "backward":
            return "layer_at_work"
        if self.phase == "build":
            return "buffers"  # DDP's buckets
        if self.phase == "optimizer" and self.counters_on_host and tensor.dim() == 0:
            return "host"
        return "temporaries"

    def _is_logits(self, tensor: Tensor) -> bool:
        wide = tensor.dim() > 1 and tensor.shape[-1] in self.vocab and self.phase in ("forward", "backward")
        return wide and tensor.numel() * 8 >= tensor.shape[-1] * self.tokens

    def _copy_of_weight(self, source: Any) -> str | None:
        """Autocast copies a weight once a forward."""
        if self.phase not in ("forward", "backward") or not isinstance(source, Tensor):
            return None
        entry = self.live.get(source.untyped_storage()._cdata)
        return "weight_copies" if entry is not None and entry.category == "weights" else None

    def _died(self, key: int, gone: Any) -> None:
        entry = self.live.get(key)
        if entry is None or entry.ref is not gone:
            return  # its place was taken by another
        del self.live[key]
        self._watched.pop(key, None)
        self._remove(entry)

    def _add(self, entry: Live) -> None:
        size = grains(entry.size)
        if entry.category == "host":
            self.host_total += size
            self.host_peak = max(self.host_peak, self.host_total)
            return
        self.total += size
        self.by_category[entry.category] += size
        if self.log and entry.size:
            label = self._label(f"{entry.op}|{entry.module}|{entry.category}")
            self.events.append((1, entry.number, entry.size, self._stream(), label))

    def _remove(self, entry: Live) -> None:
        size = grains(entry.size)
        if entry.category == "host":
            self.host_total -= size
            return
        self.total -= size
        self.by_category[entry.category] -= size
        if self.log and entry.size:
            self.events.append((-1, entry.number, entry.size, 0, 0))

    def _retag(self, entry: Live, category: str) -> None:
        if entry.category not in (category, "host"):
            size = grains(entry.size)
            self.by_category[entry.category] -= size
            self.by_category[category] += size
            entry.category = category

    # FSDP2 keeps a storage object and empties it: such storages change size without an operation.

    def _fsdp(self, name: str, args: Any, kwargs: Any) -> None:
        if name not in FSDP_BUFFERS:
            return
        place, category = FSDP_BUFFERS[name]
        value = kwargs.get(place) if isinstance(place, str) else args[place]
        for tensor in value if isinstance(value, (list, tuple)) else [value]:
            if not isinstance(tensor, Tensor):
                continue
            storage = local(tensor).untyped_storage()
            entry = self.live.get(storage._cdata)
            if entry is None:
                continue
            self._retag(entry, category)
            if name == "fsdp::split_with_sizes_copy":
                self._watched[storage._cdata] = entry

    def _look_at_watched(self) -> None:
        for entry in list(self._watched.values()):
            storage = entry.ref()
            if storage is not None and (size := storage.nbytes()) != entry.size:
                self._resized(entry, size)

    def _resized(self, entry: Live, size: int) -> None:
        self._remove(entry)
        entry.size = size
        if size:
            self._numbers += 1
            entry.number = self._numbers
        self._add(entry)

    # Peak, flops, log.

    def _measure(self, op: str, extra: int) -> None:
        total = self.total + extra
        peak = self.peaks.get(self.phase)
        if peak is None or total > peak.size:
            found = {k: v for k, v in self.by_category.items() if v}
            if extra:
                found["inside_kernels"] = extra
            self.peaks[self.phase] = Peak(total, op, self.where(), self.phase, self.operations, found)
        self.points.append((self.operations, total))

    def where(self) -> str:
        """The module at work; in the backward, the one whose forward made the running node."""
        if self.modules:
            return self.modules[-1]
        node = torch._C._current_autograd_node() if self.phase == "backward" else None
        if node is None:
            return ""
        place = bisect_right(self._sequence, node._sequence_nr()) - 1
        return self._sequence_module[max(0, place)]

    def _count_flops(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        packet = func._overloadpacket
        count = flop_registry.get(packet) or kernels.FLOPS.get(str(packet))
        if count is None:
            return
        phase = "recompute" if self.phase == "backward" and self.modules else self.phase
        try:
            self.flops[phase] += count(*args, **kwargs, out_val=out)
        except (TypeError, ValueError, IndexError, AssertionError):
            self.unknown_flops.add(str(packet))

    def _inside_kernel(self, func: Any, args: Any, name: str) -> int:
        sizes = kernels.temporaries(func, args)
        if not sizes:
            return 0
        if self.log:
            label = self._label(f"{name}|{self.where()}|inside_kernels")
            first = self._numbers + 1
            self._numbers += len(sizes)
            self.events += [(1, first + i, size, self._stream(), label) for i, size in enumerate(sizes)]
            self.events += [(-1, first + i, size, 0, 0) for i, size in reversed(list(enumerate(sizes)))]
        return sum(grains(s) for s in sizes)

    def _label(self, text: str) -> int:
        return self.labels.setdefault(text, len(self.labels))

    def _stream(self) -> int:
        """A number for the stream in use; 0 is the default stream."""
        current = torch.cpu.current_stream()
        found = self._streams.get(id(current))
        if found is None:
            found = self._streams[id(current)] = len(self._streams)
            self._stream_refs.append(current)
        return found

    # Which module runs.

    def _entering(self, name: str) -> Callable[..., None]:
        def enter(module: nn.Module, inputs: Any) -> None:
            self.modules.append(name)
            if self.phase == "forward":
                self._note_sequence()
            for parameter in module._parameters.values():
                if parameter is not None and parameter.requires_grad:
                    self._hook(parameter)

        return enter

    def _hook(self, parameter: Tensor) -> None:
        """Learn when this parameter's gradient is there. FSDP's whole parameters appear in the first forward."""
        known = self._hooked.get(id(parameter))
        if (known is not None and known() is parameter) or isinstance(parameter, DTensor):
            return
        self._hooked[id(parameter)] = weakref.ref(parameter)
        parameter.register_post_accumulate_grad_hook(self._accumulated)

    def _leaving(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if self.modules:
            self.modules.pop()
        if self.phase == "forward":
            self._note_sequence()

    def _note_sequence(self) -> None:
        self._sequence.append(torch.autograd._get_sequence_nr())
        self._sequence_module.append(self.modules[-1] if self.modules else "")

    def _accumulated(self, parameter: Tensor) -> None:
        if parameter.grad is not None:
            self.tag(parameter.grad, "gradients")

    def __enter__(self) -> Any:
        self._fake = active_fake_mode()
        return super().__enter__()
