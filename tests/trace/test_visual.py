"""The export as a snapshot: torch's own reader accepts it and adds up to our figures, the page's reader can read it.

The page itself (MemoryViz.js) is in no wheel of torch and takes d3 from elsewhere, so it is not run here. What it does
with a snapshot is done over: it reads the pickle opcode by opcode, and goes back from the end, undoing each action.
"""

from __future__ import annotations

import gzip
import json
import pickle
import pickletools
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.trace.allocator import Settings, replay
from planner.trace.events import Log
from planner.trace.visual import snapshot
from tests.trace.drawn import MIB, logs, written

pytestmark = [pytest.mark.oracle, pytest.mark.xdist_group("torch")]  # one process imports torch, once

DATA = Path(__file__).resolve().parents[1] / "data"

#: what unpickle() in MemoryViz.js knows, by the names of pickletools
OPCODES = {
    "APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT", "BINUNICODE", "DICT",
    "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LIST", "LONG1", "LONG_BINGET", "LONG_BINPUT", "MARK",
    "MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE", "PROTO", "SETITEM", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE",
    "TUPLE1", "TUPLE2", "TUPLE3",
}  # fmt: skip

SETTINGS = st.builds(
    lambda mode, capacity: Settings(mode, capacity and capacity * MIB, permanent=((9 * MIB, 0),)),
    st.sampled_from(["native", "expandable"]),
    st.one_of(st.none(), st.integers(20, 300)),
)


def read(written_bytes: bytes) -> dict[str, Any]:
    found: dict[str, Any] = pickle.loads(written_bytes)  # noqa: S301 - written a line before, by us
    return found


def viz() -> Any:
    from torch.cuda import _memory_viz

    return _memory_viz


def undone(content: dict[str, Any]) -> tuple[dict[int, int], dict[int, int]]:
    """What is mapped and what is allocated (address to size) before the first action, going back from the end."""
    mapped = {s["address"]: s["total_size"] for s in content["segments"]}
    blocks = {
        b["address"]: b["requested_size"]
        for s in content["segments"]
        for b in s["blocks"]
        if b["state"] == "active_allocated"
    }
    for action in reversed(content["device_traces"][0]):
        match action["action"]:
            case "alloc":
                assert blocks.pop(action["addr"]) == action["size"]
            case "free_completed":
                assert blocks.setdefault(action["addr"], action["size"]) == action["size"]
            case "segment_alloc" | "segment_map":
                start = max(address for address in mapped if address <= action["addr"])
                size = mapped.pop(start)
                end = action["addr"] + action["size"]
                assert end <= start + size
                if start < action["addr"]:
                    mapped[start] = action["addr"] - start
                if end < start + size:
                    mapped[end] = start + size - end
            case "segment_free" | "segment_unmap":
                join(mapped, action["addr"], action["size"])
    return mapped, blocks


def join(mapped: dict[int, int], address: int, size: int) -> None:
    """Add a stretch, made one with its neighbours."""
    size += mapped.pop(address + size, 0)
    before = max((a for a in mapped if a < address), default=None)
    if before is not None and before + mapped[before] == address:
        mapped[before] += size
    else:
        mapped[address] = size


@given(logs(), SETTINGS)
def test_the_pages_reader_knows_every_opcode(log: Log, settings: Settings) -> None:
    opcodes = list(pickletools.genops(snapshot(log, settings)))
    assert {opcode.name for opcode, *_ in opcodes} <= OPCODES
    numbers = [arg for opcode, arg, _ in opcodes if isinstance(arg, int) and opcode.name.startswith("LONG1")]
    assert all(0 <= number < 1 << 53 for number in numbers)  # exact in JavaScript


@given(logs(), SETTINGS)
def test_going_back_from_the_end_leaves_nothing(log: Log, settings: Settings) -> None:
    assert undone(read(snapshot(log, settings))) == ({}, {})


@given(logs(), SETTINGS)
def test_torch_adds_up_to_our_figures(log: Log, settings: Settings) -> None:
    reader = viz()
    content = read(snapshot(log, settings))
    found = replay(log, settings)
    told = dict(re.findall(r"^(segments|total_\w+): (.*)$", reader.segsum(content), re.MULTILINE))
    requested = sum(segment.requested for segment in found.segments)
    assert told["segments"] == str(len(found.segments))
    assert told["total_reserved"] == repr(reader.Bytes(found.reserved))
    assert told["total_allocated"] == repr(reader.Bytes(requested))
    assert told["total_free"].split(" ")[0] == repr(reader.Bytes(found.reserved - requested))
    assert sum(map(reader.calc_active, content["segments"])) == found.allocated


@given(logs(), SETTINGS)
def test_torch_reads_the_trace(log: Log, settings: Settings) -> None:
    text = viz().trace(read(snapshot(log, settings)))
    kinds = [kind for kind, *_ in log.events]
    found = replay(log, settings)
    if found.oom is None:
        assert len(re.findall(r"^\w+ = \w+\[\d+:.*\]$", text, re.MULTILINE)) == kinds.count(1) + 1
        assert len(re.findall(r"^del ", text, re.MULTILINE)) == kinds.count(-1)
    assert text.count("raise OutOfMemoryError") == (found.oom is not None)


@pytest.mark.parametrize("mode", ["native", "expandable"])
def test_torch_draws_all_its_plots(mode: str) -> None:
    reader = viz()
    data = snapshot(written(3, 30, -2, 15, (40, 1)), Settings(mode))
    assert "Active Memory Timeline" in reader.trace_plot(read(data))
    assert "Active Cached" in reader.trace_plot(read(data), plot_segments=True)
    assert "snapshot.pickle" in reader.trace_plot(read(data), filter_freed=True)
    assert "Allocator State History" in reader.segment_plot(read(data))
    lines = reader.memory(read(data), format_flamegraph=lambda text: text).splitlines()
    assert f"stream_0;active_allocated;layers.0:0:aten.mm {3 * MIB}" in lines
    assert f"stream_1;active_allocated;layers.0:4:aten.mm {40 * MIB}" in lines


def test_an_allocation_says_where_and_what_for() -> None:
    log = Log([(1, 1, 600, 0, 1), (0, 0, 0, 0, 0), (-1, 1, 0, 0, 0)], ["phase:end", "aten.mm|layers.3.mlp|activation"])
    content = read(snapshot(log, Settings(permanent=((MIB, 2),))))
    trace = content["device_traces"][0]
    frames = [{"name": "aten.mm", "filename": "layers.3.mlp", "line": 0}]
    assert [(a["action"], a["time_us"], a["stream"]) for a in trace] == [
        ("segment_alloc", 0, 2), ("alloc", 0, 2),
        ("segment_alloc", 0, 0), ("alloc", 0, 0), ("free_requested", 2, 0), ("free_completed", 2, 0),
    ]  # fmt: skip
    assert [a["frames"] == frames for a in trace] == [False, False, True, True, True, True]
    assert [a["category"] for a in trace if a["action"] == "alloc"] == ["unknown", "activation"]
    assert [(n["name"], n["time_us"]) for n in content["external_annotations"]] == [("phase:end", 1)]


def test_a_request_that_failed_ends_the_trace() -> None:
    content = read(snapshot(written(10, 200), Settings(capacity=100 * MIB)))
    last = content["device_traces"][0][-1]
    assert (last["action"], last["size"], last["device_free"]) == ("oom", 200 * MIB, 90 * MIB)
    assert last["frames"][0]["name"] == "aten.mm"


def test_the_settings_are_told_as_torch_tells_them() -> None:
    settings = Settings("expandable", roundup_power2_divisions=8, max_split_size=64 * MIB)
    told = read(snapshot(written(1), settings))["allocator_settings"]
    assert told["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True,max_split_size_mb:64,roundup_power2_divisions:8"
    assert told["expandable_segments"] is True
    assert read(snapshot(written(1)))["allocator_settings"]["max_split_size"] == -1


@pytest.mark.parametrize("mode", ["native", "expandable"])
def test_a_traced_step_is_drawn_whole(mode: str) -> None:
    with gzip.open(DATA / "log_llama3_8b_fsdp8.json.gz", "rt", encoding="utf-8") as file:
        log = Log.from_json(json.load(file)["log"])
    settings = Settings(mode)
    content = read(snapshot(log, settings))
    assert undone(content) == ({}, {})
    found = replay(log, settings)
    assert sum(s["total_size"] for s in content["segments"]) == found.reserved
    assert sum(s["allocated_size"] for s in content["segments"]) == found.allocated
