"""The catalogue: accelerators, nodes and prices as files of planner/data, and clusters made of them.

A name is a file's id or one of its `aliases`; case does not matter, and a space or "_" reads as "-".
Usable memory is the total torch was seen to print (`memory_torch`). Where none was seen it is 0.988 GiB per nominal GB,
and never more than the nvidia-smi or rocm-smi total (`memory_smi`) less the driver's reserve.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from planner import errors, units
from planner.errors import BadInput, PlannerError, Problem
from planner.formulas import capacity
from planner.i18n import Phrase, phrase
from planner.quantity import Quantity, given
from planner.spec.hardware import Accelerator, Cluster, Node, Price

DATA = Path(__file__).resolve().parents[1] / "data"
UNCONFIRMED = Phrase("because.unconfirmed")
MOST_GPUS = 1_000_000
GPUS_PER_NODE = 8  # of a data-centre server, where no node is named
_SIZE = re.compile(r"(?:gpu-|unknown-)?(\d{1,4}(?:\.\d+)?)-?gb")  # a card known by its size alone

REQUIRED = {
    "hardware": ("id", "name", "vendor", "arch", "form_factor", "memory_nominal", "peak", "sources", "read_on"),
    "nodes": ("id", "accelerator", "count", "sources", "read_on"),
}

Record = dict[str, Any]
Found = TypeVar("Found")


# Files


def _read(path: Path) -> Record:
    with path.open("rb") as file:
        return tomllib.load(file)


@cache
def _ids(folder: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (DATA / folder).glob("*.toml")))


@cache
def _record(folder: str, id: str) -> Record:
    """One file as read; raises BadInput with everything that is missing from it."""
    record = _read(DATA / folder / f"{id}.toml")
    if missing := [key for key in REQUIRED[folder] if not record.get(key)]:
        raise BadInput(Problem(f"data/{folder}/{id}.toml: {key}", Phrase("problem.key-missing")) for key in missing)
    return record


def spelling(name: str) -> str:
    """A name as the catalogue compares it: "H100 SXM" and "h100_sxm" are both "h100-sxm"."""
    return re.sub(r"[\s_]+", "-", str(name).strip().lower())


@cache
def _names(folder: str) -> dict[str, str]:
    """Every spelling of a folder's records -> id. Reads all its files."""
    aliases = {spelling(alias): id for id in _ids(folder) for alias in _record(folder, id).get("aliases", ())}
    return aliases | {id: id for id in _ids(folder)}


def _resolve(folder: str, name: str, field: str) -> str:
    """The id that `name` means; an exact id reads no file. Unknown: UnknownPreset with the nearest id."""
    wanted = spelling(name)
    if wanted in _ids(folder):
        return wanted
    names = _names(folder)
    if wanted in names:
        return names[wanted]
    close = errors.nearest(wanted, names)
    raise errors.unknown(field, str(name), [names[close]] if close else _ids(folder))


# Figures


def _doubtful(record: Record, field: str) -> bool:
    return not {"all", field}.isdisjoint(record.get("unconfirmed", ()))


def _quantity(record: Record, field: str, text: str, si: str, called: str | None = None) -> Quantity:
    """A written figure as a Quantity in `si` that carries the record's first source, and whether it is unconfirmed."""
    value = units.parse(text, si, f"{record['id']}.{field}")
    because = UNCONFIRMED if _doubtful(record, field) else None
    return given(value, si, called or field, source=record["sources"][0], because=because)


def _figure(record: Record, field: str, si: str, called: str | None = None) -> Quantity | None:
    """The figure a record states under `field`, or None where it states none."""
    return _quantity(record, field, record[field], si, called) if field in record else None


@cache
def _prior(field: str, unit: str) -> Quantity:
    """What is assumed of usable memory where a part's file says nothing."""
    prior = _read(DATA / "hardware_priors.toml")["usable_memory"][field]
    return given(units.parse(prior["value"], "B", field), unit, field, source=prior["source"])


def _usable(record: Record, nominal: Quantity, total: Quantity | None) -> Quantity:
    """What torch sees, in B: as stated, else by size, and within the printed total where that is known."""
    stated = _figure(record, "memory_torch", "B", "memory_usable")
    if stated is not None:
        return stated
    because = UNCONFIRMED if _doubtful(record, "memory_nominal") else Phrase("because.no-total")
    size = given(units.gb(nominal.value), "GB", "nominal_gb", nominal.source, nominal.reason)  # type: ignore[arg-type]
    per_gb = _prior("per_nominal_gb", "B/GB")
    by_size = capacity.usable_memory("memory_usable", because, nominal_gb=size, per_gb=per_gb)
    if total is None:
        return by_size
    reserved = _figure(record, "driver_reserved", "B") or _prior("driver_reserved", "B")
    return capacity.usable_memory_within("memory_usable", because, expected=by_size, total=total, reserved=reserved)


# Accelerators, nodes, prices


def accelerator(name: str, field: str = "cluster.gpu") -> Accelerator:
    """The accelerator of that id or alias, or any card of a size ("80 GB"); `field` is named in the error otherwise."""
    return by_size(name) or _accelerator(_resolve("hardware", name, field))


def by_size(name: str) -> Accelerator | None:
    """A card of which only the size is known, "gpu-80gb": what torch sees of it is estimated; its rates are unknown."""
    found = _SIZE.fullmatch(spelling(name))
    return _by_size(found.group(1)) if found and float(found.group(1)) > 0 else None


@cache
def _by_size(size: str) -> Accelerator:
    nominal = given(float(size) * units.UNITS["GB"][0], "B", "memory_nominal", because=Phrase("because.size-alone"))
    count = given(float(size), "GB", "nominal_gb", because=Phrase("because.size-alone"))
    usable = capacity.usable_memory(
        "memory_usable", Phrase("because.size-alone"), nominal_gb=count, per_gb=_prior("per_nominal_gb", "B/GB")
    )
    return Accelerator(
        id=f"gpu-{size}gb", name=f"GPU, {size} GB", vendor="", arch="", form_factor="", memory_nominal=nominal,
        memory_usable=usable, memory_total=None, peak={}, unconfirmed=("all",),
    )  # fmt: skip


@cache
def _accelerator(id: str) -> Accelerator:
    record = _record("hardware", id)
    nominal = _quantity(record, "memory_nominal", record["memory_nominal"], "B")
    total = _figure(record, "memory_smi", "B", "memory_total")
    return Accelerator(
        id=id,
        name=record["name"],
        vendor=record["vendor"],
        arch=record["arch"],
        form_factor=record["form_factor"],
        memory_nominal=nominal,
        memory_usable=_usable(record, nominal, total),
        memory_total=total,
        peak={d: _quantity(record, f"peak.{d}", text, "flop/s") for d, text in record["peak"].items()},
        hbm_bandwidth=_figure(record, "hbm_bandwidth", "B/s"),
        link_bandwidth=_figure(record, "link_bandwidth", "B/s"),
        pcie_bandwidth=_figure(record, "pcie_bandwidth", "B/s"),
        power=_figure(record, "power", "W"),
        sources=tuple(record["sources"]),
        read_on=record["read_on"],
        unconfirmed=tuple(record.get("unconfirmed", ())),
        notes=record.get("notes", ""),
    )


def accelerators() -> tuple[Accelerator, ...]:
    """Every accelerator, by id."""
    return tuple(_accelerator(id) for id in _ids("hardware"))


def node(name: str, field: str = "cluster.node") -> Node:
    """The node of that id or alias; `field` is named in the error when there is none."""
    return _node(_resolve("nodes", name, field))


@cache
def _node(id: str) -> Node:
    record = _record("nodes", id)
    return Node(
        id=id,
        accelerator=record["accelerator"],
        count=record["count"],
        host_memory=_figure(record, "ram", "B", "host_memory"),
        network_bandwidth=_figure(record, "network", "B/s", "network_bandwidth"),
        power=_figure(record, "power", "W"),
        cpu=record.get("cpu"),
        cores=record.get("cores"),
        disk=_figure(record, "disk", "B"),
        nics=record.get("nics"),
        rack_units=record.get("rack_units"),
        sources=tuple(record["sources"]),
        unconfirmed=tuple(record.get("unconfirmed", ())),
        notes=record.get("notes", ""),
    )


def nodes() -> tuple[Node, ...]:
    """Every node, by id."""
    return tuple(_node(id) for id in _ids("nodes"))


def prices(accelerator: str | None = None) -> tuple[Price, ...]:
    """Every price seen, or those of one accelerator (id or alias), oldest file first."""
    if accelerator is None:
        return _prices()
    id = _resolve("hardware", accelerator, "cluster.gpu")
    return tuple(price for price in _prices() if price.accelerator == id)


@cache
def _prices() -> tuple[Price, ...]:
    rows = [row for path in sorted((DATA / "prices").glob("*.toml")) for row in _read(path).get("price", ())]
    return tuple(
        Price(
            provider=row["provider"],
            sku=row["sku"],
            accelerator=row["accelerator"],
            count=row["count"],
            usd_per_hour=_usd_per_hour(row["price"], f"{row['sku']}.price"),
            usd_per_gpu_hour=_usd_per_hour(row["price_per_gpu"], f"{row['sku']}.price_per_gpu"),
            kind=row["kind"],
            date=row["date"],
            source=row["source"],
            unconfirmed=row.get("unconfirmed", False),
        )
        for row in rows
    )


def _usd_per_hour(text: str, field: str) -> float:
    """A price in USD/h; rounded to 1e-6 USD so that the way through USD/s leaves no trace."""
    return round(units.parse(text, "USD/s", field) * units.HOUR, 6)


# Clusters


def cluster(
    gpu: str | None = None, gpus: int | None = None, node: str | None = None, nodes: int | None = None
) -> Cluster:
    """The cluster that is asked for, with what is left open filled in; BadInput holds every problem at once.

    A node brings its accelerator, count and host memory: one node, unless `gpus` or `nodes` says more; fewer `gpus`
    than it holds are a part of one. Without a node it is one GPU, or `gpus` in nodes of 8, or of gpus / nodes.
    """
    problems: list[Problem] = []
    machine = _found(problems, _node, "nodes", node, "cluster.node")
    sized = by_size(gpu) if gpu else None
    part = sized or _found(problems, _accelerator, "hardware", gpu, "cluster.gpu")
    if gpu is None and node is None:
        problems.append(Problem("cluster.gpu", Phrase("problem.no-gpu"), "h100-sxm"))
    if machine and part and part.id != machine.accelerator:
        said = phrase("problem.other-gpu", gpu=part.id, node=machine.id)
        problems.append(Problem("cluster.gpu", said, machine.accelerator))
    counts = [_is_count(problems, "cluster.gpus", gpus), _is_count(problems, "cluster.nodes", nodes)]
    total = per_node = 0
    if all(counts) and (machine or node is None):
        total, per_node = _shape(problems, gpus, nodes, machine)
    if problems:
        raise BadInput(problems)
    chosen = _accelerator(machine.accelerator) if machine else part
    assert chosen is not None  # noqa: S101 - without either there was a problem above
    memory = machine.host_memory if machine else None if sized else _reference_memory(chosen.id, per_node)
    return Cluster(chosen, total, per_node, memory, machine.id if machine else None)


def _found(
    problems: list[Problem], load: Callable[[str], Found], folder: str, name: str | None, field: str
) -> Found | None:
    """The record called `name`; None where no name was given, or where none is known, which is then a problem."""
    if name is None:
        return None
    try:
        return load(_resolve(folder, name, field))
    except PlannerError as error:
        problems.extend(error.problems)
        return None


def _is_count(problems: list[Problem], field: str, count: Any) -> bool:
    """Whether a count is left open or a whole number from 1 to the most a plan may have; else notes the problem."""
    if count is None:
        return True
    if isinstance(count, bool) or not isinstance(count, int):
        problems.append(Problem(field, phrase("problem.not-whole", value=repr(count)), "8"))
    elif count < 1:
        problems.append(Problem(field, phrase("problem.less-than-one", count=count), "1"))
    elif count > MOST_GPUS:
        problems.append(Problem(field, phrase("problem.too-many-gpus", count=count, most=MOST_GPUS), str(MOST_GPUS)))
    else:
        return True
    return False


def _shape(problems: list[Problem], gpus: int | None, nodes: int | None, machine: Node | None) -> tuple[int, int]:
    """GPUs in all and GPUs in each node; notes the problem where the two cannot be had together."""
    held = machine.count if machine else GPUS_PER_NODE
    if gpus is None:
        gpus = 1 if machine is None and nodes is None else held * (nodes or 1)
        if gpus > MOST_GPUS:
            said = phrase("problem.too-many-nodes", nodes=nodes, held=held, most=MOST_GPUS)
            problems.append(Problem("cluster.nodes", said, str(MOST_GPUS // held)))
    if machine is None and nodes is not None:
        if gpus % nodes:
            said = phrase("problem.uneven-nodes", gpus=gpus, nodes=nodes)
            problems.append(Problem("cluster.gpus", said, str(_multiple(gpus, nodes))))
        return gpus, gpus // nodes
    if machine is not None and nodes is not None and gpus != held * nodes and not (nodes == 1 and gpus < held):
        said = phrase("problem.contradicts", gpus=gpus, nodes=nodes, node=machine.id, held=held)
        problems.append(Problem("cluster.gpus", said, str(held * nodes)))
    elif gpus > held and gpus % held:
        said = phrase("problem.part-node" if machine else "problem.part-node-open", gpus=gpus, held=held)
        problems.append(Problem("cluster.gpus", said, str(_multiple(gpus, held))))
    return gpus, min(gpus, held)


def _multiple(count: int, of: int) -> int:
    """The multiple of `of` nearest to `count`, from one to the most a plan may have."""
    return max(1, min(round(count / of), MOST_GPUS // of)) * of


@cache
def _reference_memory(id: str, per_node: int) -> Quantity | None:
    """Host memory, in B, of the well-known node made of this accelerator, when the cluster's nodes are of its size."""
    name = _record("hardware", id).get("reference_node")
    reference = _node(name) if name else None
    if reference is None or reference.host_memory is None or reference.count != per_node:
        return None
    memory, because = reference.host_memory, phrase("because.as-in", node=reference.id)
    if memory.reason:
        because = phrase("because.as-in-but", node=reference.id, because=memory.reason)
    return given(memory.value, memory.unit, memory.name, memory.source, because)
