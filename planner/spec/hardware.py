"""Accelerators, nodes, clusters and prices, with SI values and the source of each figure."""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.quantity import Quantity
from planner.spec.model import Count


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One GPU or accelerator. Every figure is a Quantity that carries its source; None is unknown.

    memory_nominal  B, as sold (80 GB = 80e9 B)
    memory_usable   B, what torch sees on it (79.18 GiB on an H100 80 GB): stated, or 0.988 GiB per nominal GB
    memory_total    B, what nvidia-smi or rocm-smi prints, or None
    peak            flop/s dense by dtype name (fp32, tf32, fp16, bf16, fp8, fp4)
    hbm_bandwidth   B/s
    link_bandwidth  B/s per GPU, one direction (NVLink, xGMI), or None
    pcie_bandwidth  B/s per GPU, one direction, or None
    power           W, board limit, or None
    unconfirmed     the fields of this file that were only remembered, inferred or are disputed; ("all",) for all
    """

    id: str
    name: str
    vendor: str
    arch: str
    form_factor: str
    memory_nominal: Quantity
    memory_usable: Quantity
    memory_total: Quantity | None
    peak: dict[str, Quantity] = field(hash=False)
    hbm_bandwidth: Quantity | None = None
    link_bandwidth: Quantity | None = None
    pcie_bandwidth: Quantity | None = None
    power: Quantity | None = None
    sources: tuple[str, ...] = ()
    read_on: str = ""
    unconfirmed: tuple[str, ...] = ()
    notes: str = ""

    @property
    def vendor_is_nvidia(self) -> bool:
        return self.vendor == "NVIDIA"


@dataclass(frozen=True, slots=True)
class Node:
    """A server or cloud instance: accelerator id, how many, host memory in B (or None), and what else is stated."""

    id: str
    accelerator: str
    count: int
    host_memory: Quantity | None
    network_bandwidth: Quantity | None
    power: Quantity | None
    cpu: str | None
    cores: str | None
    disk: Quantity | None
    nics: str | None
    rack_units: int | None
    sources: tuple[str, ...] = ()
    unconfirmed: tuple[str, ...] = ()
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Price:
    """A price seen on a date. usd_per_gpu_hour in USD/h per GPU, whatever the shape sold."""

    provider: str
    sku: str
    accelerator: str
    count: int
    usd_per_hour: float
    usd_per_gpu_hour: float
    kind: str
    date: str
    source: str
    unconfirmed: bool


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a run is given: accelerators, how they are grouped, and each node's host memory (B, or None)."""

    accelerator: Accelerator
    gpus: Count
    gpus_per_node: int
    host_memory: Quantity | None = None
    node: str | None = None
