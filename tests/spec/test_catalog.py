"""The catalogue's files say what they should, in figures that can be read and with sources that are known."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from planner import units
from planner.errors import BadInput, PlannerError, UnknownPreset
from planner.quantity import Formula, Quantity, value_of
from planner.spec import catalog

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "planner" / "data"
GIB, MIB, GB = 2.0**30, 2.0**20, 1e9


def read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


HARDWARE = {path.stem: read(path) for path in sorted((DATA / "hardware").glob("*.toml"))}
NODES = {path.stem: read(path) for path in sorted((DATA / "nodes").glob("*.toml"))}
PRICES = [row for path in sorted((DATA / "prices").glob("*.toml")) for row in read(path).get("price", [])]
SOURCES = read(ROOT / "planner" / "sources.toml")
DTYPES = {"fp32", "tf32", "fp16", "bf16", "fp8", "fp4"}

# field -> SI unit, and the range outside which a figure of today is a slip of unit
HARDWARE_FIGURES = {
    "memory_nominal": ("B", 16 * GB, 300 * GB),
    "memory_smi": ("B", 15 * GIB, 300 * GIB),
    "memory_torch": ("B", 15 * GIB, 300 * GIB),
    "driver_reserved": ("B", 100 * MIB, 2 * GIB),
    "hbm_bandwidth": ("B/s", 0.3e12, 10e12),
    "link_bandwidth": ("B/s", 50e9, 1e12),
    "link_bandwidth_p2p": ("B/s", 20e9, 1e12),
    "pcie_bandwidth": ("B/s", 15e9, 130e9),
    "power": ("W", 70, 1500),
}
NODE_FIGURES = {
    "ram": ("B", 500 * GIB, 5000 * GIB),
    "disk": ("B", 1e12, 100e12),
    "network": ("B/s", 10e9, 1e12),
    "power": ("W", 5e3, 15e3),
}
HARDWARE_WORDS = {"id", "name", "vendor", "arch", "form_factor", "memory_type", "link", "read_on", "notes"}
HARDWARE_REST = {
    "aliases",
    "reference_node",
    "sm_or_cu",
    "pcie_gen",
    "sources",
    "unconfirmed",
    "peak",
    "measured_matmul",
}
NODE_WORDS = {"id", "accelerator", "cpu", "cores", "nics", "read_on", "notes"}
NODE_REST = {"aliases", "count", "rack_units", "sources", "unconfirmed"}


@pytest.fixture
def afresh() -> Iterator[None]:
    """Nothing remembered of the files before the test, nor after it."""
    remembered = (catalog._ids, catalog._record, catalog._names, catalog._accelerator, catalog._node, catalog._prices)
    for cache in remembered:
        cache.cache_clear()
    yield
    for cache in remembered:
        cache.cache_clear()


def quantities(record: object) -> dict[str, Quantity]:
    """Every Quantity of an accelerator or node by the name of its field, and peaks as peak.<dtype>."""
    fields = {name: getattr(record, name) for name in record.__slots__}  # type: ignore[attr-defined]
    peaks = fields.pop("peak", {})
    fields |= {f"peak.{dtype}": rate for dtype, rate in peaks.items()}
    return {name: value for name, value in fields.items() if isinstance(value, Quantity)}


def sources_of(quantity: Quantity) -> set[str | None]:
    """The source of a Quantity and of everything it was made from."""
    inputs = [part for part in quantity.inputs.values() if isinstance(part, Quantity)]
    return {quantity.source}.union(*(sources_of(part) for part in inputs))


# The files


def test_the_catalogue_is_complete() -> None:
    assert (len(HARDWARE), len(NODES), len(PRICES)) == (54, 28, 60)
    assert (len(catalog.accelerators()), len(catalog.nodes()), len(catalog.prices())) == (54, 28, 60)


@pytest.mark.parametrize("records", [HARDWARE, NODES], ids=["hardware", "nodes"])
def test_an_id_is_its_files_name_and_typed_as_the_catalogue_compares_it(records: dict[str, Any]) -> None:
    assert [record["id"] for record in records.values()] == list(records)
    assert [catalog.spelling(id) for id in records] == list(records)


@pytest.mark.parametrize("records", [HARDWARE, NODES], ids=["hardware", "nodes"])
def test_no_two_files_answer_to_one_spelling(records: dict[str, Any]) -> None:
    spelled = Counter(
        catalog.spelling(name) for id, record in records.items() for name in (id, *record.get("aliases", ()))
    )
    assert [name for name, times in spelled.items() if times > 1] == []


@pytest.mark.parametrize("id", HARDWARE)
def test_hardware_figures_have_units_and_plausible_sizes(id: str) -> None:
    record = HARDWARE[id]
    assert set(record) <= {*HARDWARE_FIGURES, *HARDWARE_WORDS, *HARDWARE_REST}
    for field, (si, low, high) in HARDWARE_FIGURES.items():
        if field in record:
            assert low <= units.parse(record[field], si, field) <= high, field
    for table in ("peak", "measured_matmul"):
        assert set(record.get(table, {})) <= DTYPES
        for dtype, rate in record.get(table, {}).items():
            assert 10e12 <= units.parse(rate, "flop/s", dtype) <= 20e15, (table, dtype)
    assert all(isinstance(record[key], str) and record[key] for key in HARDWARE_WORDS & set(record))
    assert record["name"] in record["aliases"] or catalog.spelling(record["name"]) == id


@pytest.mark.parametrize("id", NODES)
def test_node_figures_have_units_and_plausible_sizes(id: str) -> None:
    record = NODES[id]
    assert set(record) <= {*NODE_FIGURES, *NODE_WORDS, *NODE_REST}
    for field, (si, low, high) in NODE_FIGURES.items():
        if field in record:
            assert low <= units.parse(record[field], si, field) <= high, field
    assert all(isinstance(record[key], str) and record[key] for key in NODE_WORDS & set(record))
    assert record["accelerator"] in HARDWARE
    assert record["count"] in (4, 8)


@pytest.mark.parametrize("id", HARDWARE)
def test_unconfirmed_names_fields_of_hardware(id: str) -> None:
    of_tables = {f"{table}.{dtype}" for table in ("peak", "measured_matmul") for dtype in HARDWARE[id].get(table, {})}
    known = {"all", "sm_or_cu", *HARDWARE_FIGURES, *of_tables}
    assert set(HARDWARE[id].get("unconfirmed", [])) <= known


@pytest.mark.parametrize("id", NODES)
def test_unconfirmed_names_fields_of_nodes(id: str) -> None:
    assert set(NODES[id].get("unconfirmed", [])) <= {"all", "cpu", "cores", "nics", "rack_units", *NODE_FIGURES}


@pytest.mark.parametrize("record", [*HARDWARE.values(), *NODES.values()], ids=lambda record: record["id"])
def test_a_record_names_known_sources_and_its_day(record: dict[str, Any]) -> None:
    assert record["sources"]
    assert set(record["sources"]) <= set(SOURCES)
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", record["read_on"])


def test_what_was_only_remembered_is_unconfirmed_in_every_field() -> None:
    vague = {"remembered", "inferred-dgx-h100"}
    records = [r for r in (*HARDWARE.values(), *NODES.values()) if vague & set(r["sources"])]
    assert len(records) == 3
    assert all(record["unconfirmed"] == ["all"] for record in records)


@pytest.mark.parametrize("key", SOURCES)
def test_a_source_says_what_and_where(key: str) -> None:
    source = SOURCES[key]
    assert {"title"} <= set(source) <= {"title", "authors", "year", "where", "read_on"}
    assert all(text for text in source.values())


def test_prices_are_dated_sourced_and_add_up() -> None:
    for row in PRICES:
        assert row["accelerator"] in HARDWARE
        assert row["source"] in SOURCES
        assert re.fullmatch(r"\d{4}(-\d{2}(-\d{2})?)?", row["date"])
        whole, each = (units.parse(row[key], "USD/s") * units.HOUR for key in ("price", "price_per_gpu"))
        assert whole / row["count"] == pytest.approx(each, abs=6e-4), row["sku"]  # sources round to 0.001 USD


def test_price_ranges_hold_every_price_that_is_not_spot() -> None:
    ranges = {id: ends for id, ends in read(DATA / "prices" / "ranges.toml").items() if isinstance(ends, dict)}
    assert set(ranges) == {"a100-sxm-80", "h100-sxm", "h200-sxm", "b200", "b300"}
    for id, ends in ranges.items():
        low, high = (units.parse(ends[end], "USD/s") * units.HOUR for end in ("low", "high"))
        seen = [price.usd_per_gpu_hour for price in catalog.prices(id) if "spot" not in price.kind]
        assert low - 0.005 <= min(seen) < max(seen) <= high + 0.005
        assert (min(seen), max(seen)) == (pytest.approx(low, abs=0.005), pytest.approx(high, abs=0.005))


def test_every_prior_is_a_figure_or_a_word_with_a_source() -> None:
    priors = read(DATA / "hardware_priors.toml")
    assert priors["source"] in SOURCES
    for name, table in priors.items():
        for key, figure in table.items() if isinstance(table, dict) else ():
            text = figure["value"] if isinstance(figure, dict) else figure
            if isinstance(figure, dict):
                assert figure["source"] in SOURCES
            if key in ("where", "validity", "runs"):
                continue
            si = "B" if text.endswith("iB") else "B/s" if text.endswith("B/s") else "1"
            assert units.parse(text, si, f"{name}.{key}") > 0


# What is loaded


@pytest.mark.parametrize("record", [*catalog.accelerators(), *catalog.nodes()], ids=lambda record: record.id)
def test_every_quantity_is_positive_si_and_sourced(record: object) -> None:
    for name, quantity in quantities(record).items():
        assert float(quantity) > 0, name
        assert quantity.unit in {"B", "B/s", "flop/s", "W"}, name
        assert sources_of(quantity) <= set(SOURCES), name


SPOTS = [
    # id, torch or usable MiB, smi MiB, hbm GB/s, link GB/s, W, dense TFLOP/s
    ("h100-sxm", 81090, 81559, 3350, 450, 700, {"tf32": 494.5, "fp16": 989, "bf16": 989, "fp8": 1979}),
    ("a100-sxm-80", 81150, 81920, 2039, 300, 400, {"fp32": 19.5, "tf32": 156, "bf16": 312}),
    ("h200-sxm", 143156, 143771, 4800, 450, 700, {"bf16": 989, "fp8": 1979}),
    ("b200", 182642, 183359, 8000, 900, 1000, {"bf16": 2250, "fp8": 4500, "fp4": 9000}),
    ("l40s", 45589, 46068, 864, None, 350, {"bf16": 362, "fp8": 733}),
    ("mi300x", None, 196592, 5300, 448, 750, {"bf16": 1307, "fp8": 2610}),
    ("rtx-4090", None, 24564, 1008, None, 450, {"bf16": 165.2, "fp8": 330.3}),
    ("v100-sxm-32", None, 32768, 900, 150, 300, {"fp16": 125}),
]


@pytest.mark.parametrize(("id", "usable", "total", "hbm", "link", "power", "peaks"), SPOTS, ids=[s[0] for s in SPOTS])
def test_figures_are_those_of_the_tables(
    id: str, usable: int | None, total: int, hbm: int, link: int | None, power: int, peaks: dict[str, float]
) -> None:
    gpu = catalog.accelerator(id)
    assert gpu.memory_total is not None
    assert float(gpu.memory_total) == total * MIB
    if usable is not None:
        assert float(gpu.memory_usable) == usable * MIB
    assert value_of(gpu.hbm_bandwidth or 0) == hbm * 1e9
    assert (float(gpu.link_bandwidth) if gpu.link_bandwidth else None) == (link and link * 1e9)
    assert value_of(gpu.power or 0) == power
    assert {dtype: float(gpu.peak[dtype]) for dtype in peaks} == {d: pytest.approx(p * 1e12) for d, p in peaks.items()}


def test_an_h100_is_79_19_gib_of_its_80_gb() -> None:
    gpu = catalog.accelerator("h100-sxm")
    assert round(units.gib(float(gpu.memory_usable)), 2) == 79.19
    assert float(gpu.memory_nominal) == 80e9
    assert gpu.vendor_is_nvidia


def test_a_v100_has_no_bf16() -> None:
    assert "bf16" not in catalog.accelerator("v100-sxm-16").peak


@pytest.mark.parametrize("gpu", catalog.accelerators(), ids=lambda gpu: gpu.id)
def test_peaks_are_dense(gpu: Any) -> None:
    """A lone sparse figure is 4 times bf16, or twice fp16; against a sparse peak no measured rate reaches half."""
    if {"fp8", "bf16"} <= set(gpu.peak):
        assert float(gpu.peak["fp8"]) <= 2.1 * float(gpu.peak["bf16"])
    if {"fp16", "bf16"} <= set(gpu.peak) and gpu.id != "gaudi3":  # whose fp16 runs at the rate of tf32
        assert float(gpu.peak["fp16"]) == float(gpu.peak["bf16"])
    for dtype, rate in HARDWARE[gpu.id].get("measured_matmul", {}).items():
        assert 0.5 <= units.parse(rate, "flop/s") / float(gpu.peak[dtype]) <= 1, dtype


@pytest.mark.parametrize("gpu", catalog.accelerators(), ids=lambda gpu: gpu.id)
def test_usable_memory_stays_within_the_total(gpu: Any) -> None:
    usable = float(gpu.memory_usable)
    assert usable < 1.01 * 0.988 * GIB * float(gpu.memory_nominal) / GB
    if gpu.memory_total is not None:
        assert usable <= float(gpu.memory_total) - 400 * MIB


def test_usable_memory_of_an_unknown_part_is_0_988_gib_per_gb() -> None:
    gpu = catalog.accelerator("mi325x")
    assert float(gpu.memory_usable) == pytest.approx(0.988 * GIB * 256)
    assert isinstance(gpu.memory_usable.formula, Formula)
    assert gpu.memory_usable.formula.name == "usable_memory"


@pytest.mark.parametrize(
    ("id", "seen"),
    # totals torch printed in public out-of-memory messages
    [("a100-sxm-40", 39.49), ("l4", 22.03), ("rtx-4090", 23.52), ("rtx-5090", 31.36), ("gb200", 184.31)],
)
def test_usable_memory_agrees_with_what_torch_was_seen_to_print(id: str, seen: float) -> None:
    gpu = catalog.accelerator(id)
    assert "memory_torch" not in HARDWARE[id]
    assert units.gib(float(gpu.memory_usable)) == pytest.approx(seen, rel=0.004)


def test_the_driver_keeps_its_reserve_where_size_alone_would_promise_too_much() -> None:
    assert float(catalog.accelerator("l4").memory_usable) == (23034 - 470) * MIB
    assert float(catalog.accelerator("b300").memory_usable) == (275040 - 720) * MIB
    assert float(catalog.accelerator("h20").memory_usable) == pytest.approx(0.988 * GIB * 96)


def test_an_unconfirmed_figure_says_so_and_no_other_does() -> None:
    a30 = quantities(catalog.accelerator("a30"))
    doubtful = {name for name, quantity in a30.items() if quantity.because == "unconfirmed"}
    assert doubtful == {"peak.fp32", "peak.tf32", "link_bandwidth", "hbm_bandwidth"}
    assert {q.because for q in quantities(catalog.accelerator("b100")).values()} == {"unconfirmed"}
    assert {q.because for q in quantities(catalog.accelerator("h100-sxm")).values()} == {None}
    assert catalog.accelerator("l40s").memory_usable.because == "unconfirmed"


def test_a_node_is_read_in_si() -> None:
    dgx = catalog.node("DGX H100")
    assert (dgx.id, dgx.accelerator, dgx.count, dgx.rack_units) == ("dgx-h100", "h100-sxm", 8, 8)
    figures = [float(value_of(q)) for q in (dgx.host_memory, dgx.disk, dgx.network_bandwidth, dgx.power) if q]
    assert figures == [2048 * GIB, 30.7e12, 400e9, 10200]
    assert catalog.node("aws-p6-b300.48xlarge").host_memory is None


def test_prices_are_found_by_any_spelling_and_in_usd_per_hour() -> None:
    found = catalog.prices("H100 SXM")
    assert len(found) == len([row for row in PRICES if row["accelerator"] == "h100-sxm"]) > 10
    azure = next(price for price in found if price.sku == "ND96isr_H100_v5")
    assert (azure.usd_per_hour, azure.usd_per_gpu_hour, azure.date) == (98.32, 12.29, "2026-11-09")
    assert catalog.prices("tpu-v4") == ()
    with pytest.raises(UnknownPreset):
        catalog.prices("h1000x")


# Names


@pytest.mark.parametrize(
    ("typed", "id"),
    [
        *[("h100", "h100-sxm"), ("H100-80GB", "h100-sxm"), ("H100 SXM5 80GB", "h100-sxm"), ("h100_sxm", "h100-sxm")],
        *[("NVIDIA H100 80GB HBM3", "h100-sxm"), ("h100 pcie", "h100-pcie"), ("A100", "a100-sxm-80")],
        *[("a100-80gb", "a100-sxm-80"), ("NVIDIA A100-SXM4-40GB", "a100-sxm-40"), ("h200", "h200-sxm")],
        *[("4090", "rtx-4090"), ("RTX 4090", "rtx-4090"), (" B200 ", "b200"), ("Mi300X", "mi300x")],
    ],
)
def test_users_spellings_are_known(typed: str, id: str) -> None:
    assert catalog.accelerator(typed).id == id


@pytest.mark.parametrize(("typed", "nearest"), [("h1000", "h100-sxm"), ("geforce 4091", "rtx-4090"), ("b2000", "b200")])
def test_an_unknown_gpu_names_the_nearest(typed: str, nearest: str) -> None:
    with pytest.raises(UnknownPreset) as raised:
        catalog.accelerator(typed, field="--gpu")
    (problem,) = raised.value.problems
    assert (problem.field, problem.nearest) == ("--gpu", nearest)
    assert typed in problem.problem


@pytest.mark.parametrize("typed", ["", "qqqq", "../nodes/dgx-h100", "h100-sxm.toml/x", "/etc/passwd", "h100-sxm\0"])
def test_a_name_is_never_a_path(typed: str) -> None:
    with pytest.raises(UnknownPreset):
        catalog.accelerator(typed)


def test_an_exact_id_reads_its_own_file_only(afresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    reader: Callable[[Path], dict[str, Any]] = catalog._read
    monkeypatch.setattr(catalog, "_read", lambda path: opened.append(path.stem) or reader(path))
    catalog.accelerator("h100-sxm")
    assert opened == ["h100-sxm"]
    catalog.accelerator("h100")
    assert len(opened) == len(HARDWARE)  # an alias needs every file, each once
    assert catalog.accelerator("h100-sxm") is catalog.accelerator("h100")


def test_a_file_that_lacks_fields_names_them_all(afresh: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / "x1.toml").write_text('id = "x1"\nname = "X"\nvendor = "V"\nmemory_nominal = "8 GB"\n')
    monkeypatch.setattr(catalog, "DATA", tmp_path)
    with pytest.raises(BadInput) as raised:
        catalog.accelerator("x1")
    missing = {problem.field.split(": ")[1] for problem in raised.value.problems}
    assert missing == {"arch", "form_factor", "peak", "sources", "read_on"}


# Clusters


def test_a_node_brings_its_gpus_and_host_memory() -> None:
    one, four = catalog.cluster(node="dgx-h100"), catalog.cluster(node="BM.GPU.H200.8", nodes=4)
    assert (one.accelerator.id, one.gpus, one.gpus_per_node, one.node) == ("h100-sxm", 8, 8, "dgx-h100")
    assert (four.accelerator.id, four.gpus, four.gpus_per_node) == ("h200-sxm", 32, 8)
    assert four.host_memory is not None
    assert float(four.host_memory) == 3072 * GIB
    assert catalog.cluster(node="dgx-h100", gpus=24, gpu="h100").gpus == 24


def test_a_part_of_one_node_may_be_used() -> None:
    part = catalog.cluster(node="dgx-h100", nodes=1, gpus=2)
    assert (part.gpus, part.gpus_per_node) == (2, 2)


@pytest.mark.parametrize(
    ("gpu", "gpus", "nodes", "shape"),
    [
        ("h100", 64, None, (64, 8)),
        ("h100", 4, None, (4, 4)),
        ("4090", None, None, (1, 1)),
        ("h100", None, 3, (24, 8)),
        ("gb200", 72, 18, (72, 4)),
        ("gb200", 72, 1, (72, 72)),
    ],
)
def test_gpus_are_grouped_by_eight_unless_nodes_say_otherwise(
    gpu: str, gpus: int | None, nodes: int | None, shape: tuple[int, int]
) -> None:
    made = catalog.cluster(gpu=gpu, gpus=gpus, nodes=nodes)
    assert (made.gpus, made.gpus_per_node) == shape
    assert made.node is None


@pytest.mark.parametrize(("gpu", "reference"), [("h100", "dgx-h100"), ("a100", "dgx-a100"), ("b200", "dgx-b200")])
def test_host_memory_of_eight_gpus_is_that_of_the_reference_node(gpu: str, reference: str) -> None:
    memory = catalog.cluster(gpu=gpu, gpus=16).host_memory
    assert memory is not None
    assert (float(memory), memory.because) == (2048 * GIB, f"as in {reference}, no node was named")


def test_an_assumed_host_memory_that_is_unconfirmed_says_both() -> None:
    memory = catalog.cluster(gpu="b300", gpus=8).host_memory
    assert memory is not None
    assert memory.because == "as in dgx-b300, no node was named (unconfirmed)"


@pytest.mark.parametrize(
    ("gpu", "gpus"), [("h100", 4), ("h100-pcie", 8), ("a100-40", 8), ("h100-sxm-96", 8), ("l4", 8)]
)
def test_host_memory_is_unknown_where_no_reference_node_fits(gpu: str, gpus: int) -> None:
    assert catalog.cluster(gpu=gpu, gpus=gpus).host_memory is None


def test_a_reference_node_holds_its_accelerator() -> None:
    named = {id: record["reference_node"] for id, record in HARDWARE.items() if "reference_node" in record}
    assert {id: NODES[node]["accelerator"] for id, node in named.items()} == {id: id for id in named}
    assert len(named) == 5


@pytest.mark.parametrize(
    ("asked", "problems"),
    [
        ({}, [("cluster.gpu", "h100-sxm")]),
        ({"gpus": 8}, [("cluster.gpu", "h100-sxm")]),
        ({"gpu": "h100", "gpus": 0}, [("cluster.gpus", "1")]),
        ({"gpu": "h100", "gpus": -8}, [("cluster.gpus", "1")]),
        ({"gpu": "h100", "gpus": 2.5}, [("cluster.gpus", "8")]),
        ({"gpu": "h100", "gpus": True}, [("cluster.gpus", "8")]),
        ({"gpu": "h100", "gpus": 12}, [("cluster.gpus", "16")]),
        ({"gpu": "h100", "gpus": 11}, [("cluster.gpus", "8")]),
        ({"gpu": "h100", "gpus": 10, "nodes": 4}, [("cluster.gpus", "8")]),
        ({"gpu": "h100", "gpus": 2, "nodes": 4}, [("cluster.gpus", "4")]),
        ({"gpu": "h100", "gpus": 1_000_008}, [("cluster.gpus", "1000000")]),
        ({"gpu": "h100", "gpus": 1_000_000, "nodes": 600_000}, [("cluster.gpus", "600000")]),
        ({"gpu": "h100", "nodes": 125_001}, [("cluster.nodes", "125000")]),
        ({"node": "dgx-h100", "nodes": 0}, [("cluster.nodes", "1")]),
        ({"node": "dgx-h100", "gpus": 12}, [("cluster.gpus", "16")]),
        ({"node": "dgx-h100", "gpus": 8, "nodes": 4}, [("cluster.gpus", "32")]),
        ({"node": "dgx-h100", "gpu": "a100"}, [("cluster.gpu", "h100-sxm")]),
        ({"node": "dgx-h10", "gpus": 12}, [("cluster.node", "dgx-h100")]),
        # several at once
        (
            {"node": "dgx-h100", "gpu": "a100", "gpus": 12, "nodes": 2},
            [("cluster.gpu", "h100-sxm"), ("cluster.gpus", "16")],
        ),
        (
            {"node": "dgx-h10", "gpu": "h1000", "gpus": 0, "nodes": -3},
            [("cluster.gpu", "h100-sxm"), ("cluster.gpus", "1"), ("cluster.node", "dgx-h100"), ("cluster.nodes", "1")],
        ),
    ],
    ids=str,
)
def test_a_malformed_cluster_names_every_problem_and_its_nearest_valid_value(
    asked: dict[str, Any], problems: list[tuple[str, str]]
) -> None:
    with pytest.raises(BadInput) as raised:
        catalog.cluster(**asked)
    assert sorted((p.field, p.nearest or "") for p in raised.value.problems) == problems


@pytest.mark.parametrize(
    ("nearest", "asked"), [(8, {"gpu": "h100", "gpus": 11}), (16, {"node": "dgx-h100", "gpus": 12})]
)
def test_the_nearest_valid_value_is_valid(nearest: int, asked: dict[str, Any]) -> None:
    with pytest.raises(PlannerError, match=f"Nearest valid value: {nearest}"):
        catalog.cluster(**asked)
    assert catalog.cluster(**asked | {"gpus": nearest}).gpus == nearest
