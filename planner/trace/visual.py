"""A replay as a memory snapshot of torch: https://pytorch.org/memory_viz draws it, torch/cuda/_memory_viz.py reads it.

A snapshot holds the state at the end (segments, made of blocks) and all that led there (one list of actions a device).
An allocation's frames are its label: the op, in the module, at the line of its number in the log. The log begins with
what lives before the step, so the drawing is complete from the start. Times are the events' numbers: in order, and
not to scale. The format is a pickle; one is written here and none is ever read.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from planner.trace.allocator import replay
from planner.trace.blocks import Action, Block, Settings
from planner.trace.events import Log
from planner.trace.native import Segment

#: the newest that every version of the page's reader understands
PROTOCOL = 4

#: what the page calls a block of no category
UNKNOWN = "unknown"

Entry = dict[str, Any]
Frames = list[Entry]


def snapshot(log: Log, settings: Settings | None = None) -> bytes:
    """The replay of `log` as a snapshot: saved as a .pickle, it can be dropped on the page."""
    settings = settings or Settings()
    actions: list[Action] = []
    segments = replay(log, settings, actions.append).segments
    living: dict[int, Frames] = {}
    content = {
        "device_traces": [list(_trace(log, actions, living))],
        "segments": [_segment(segment, settings, living) for segment in segments],
        "allocator_settings": _settings(settings),
        "external_annotations": [
            {"name": name, "stage": "START", "device": 0, "time_us": event} for event, name in log.marks()
        ],
    }
    return pickle.dumps(content, protocol=PROTOCOL)


def _trace(log: Log, actions: list[Action], living: dict[int, Frames]) -> Iterator[Entry]:
    """Everything the allocator did, in order. `living` holds the frames of what is allocated, by address."""
    for action in actions:
        frames = living.get(action.address) if action.name.startswith("free") else None
        if frames is None:
            frames = _frames(log, action)
        entry: Entry = {
            "action": action.name,
            "device_free" if action.name == "oom" else "addr": action.address,
            "size": action.size,
            "stream": action.stream,
            "time_us": max(action.event, 0),
            "frames": frames,
        }
        if action.name == "alloc":
            living[action.address] = frames
            entry["category"] = (log.label(action.label)[2] if action.label >= 0 else "") or UNKNOWN
        elif action.name == "free_completed":
            del living[action.address]
        yield entry


def _frames(log: Log, action: Action) -> Frames:
    """The stack that stands for a request: one frame. A permanent allocation has no request in the log."""
    op, module = log.label(action.label)[:2] if action.label >= 0 else ("permanent", "")
    return [{"name": op, "filename": module, "line": max(action.event, 0)}]


def _segment(segment: Segment, settings: Settings, living: dict[int, Frames]) -> Entry:
    return {
        "device": 0,
        "address": segment.address,
        "total_size": segment.size,
        "allocated_size": segment.allocated,
        "active_size": segment.allocated,  # no free waits for another stream
        "requested_size": segment.requested,
        "stream": segment.stream,
        "segment_type": "small" if segment.small else "large",
        "segment_pool_id": (0, 0),  # outside CUDA graphs
        "is_expandable": settings.mode == "expandable",
        "frames": [],
        "blocks": [_block(block, living) for block in segment.blocks],
    }


def _block(block: Block, living: dict[int, Frames]) -> Entry:
    return {
        "address": block.address,
        "size": block.size,
        "requested_size": block.requested,
        "state": "active_allocated" if block.allocated else "inactive",
        "frames": living[block.address] if block.allocated else [],
    }


def _settings(settings: Settings) -> Entry:
    """The settings under the names that torch gives them; -1 is no limit."""
    divisions = settings.roundup_power2_divisions
    return {
        "PYTORCH_CUDA_ALLOC_CONF": _configuration(settings),
        "max_split_size": -1 if settings.max_split_size is None else settings.max_split_size,
        "garbage_collection_threshold": 0.0,
        "expandable_segments": settings.mode == "expandable",
        "roundup_power2_divisions": {">": divisions} if divisions > 1 else {},
    }


def _configuration(settings: Settings) -> str:
    """What PYTORCH_ALLOC_CONF says to get these settings."""
    said = []
    if settings.mode == "expandable":
        said.append("expandable_segments:True")
    if settings.max_split_size is not None:
        said.append(f"max_split_size_mb:{settings.max_split_size >> 20}")
    if settings.roundup_power2_divisions > 1:
        said.append(f"roundup_power2_divisions:{settings.roundup_power2_divisions}")
    return ",".join(said)
