"""Recipes of stacks: chosen by date or release, built upon one another, every claim with the place it was read."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from planner.errors import UnknownPreset
from planner.evidence.predict import predict
from planner.spec import stack as S
from planner.spec.stack import Stack, known, stacks
from planner.spec.versions import version, within
from tests.evidence.samples import DENSE, changed

#: what a file says of itself and not of the stack
ABOUT = {"title", "title_zh", "source", "notes", "aliases", "based_on", "versions_of", "from", "until", "sources"}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("0.2.1", "0.2.1"), ("v4.46", "4.46"), ("2025-03", "2025-03-01"), ("9dec370 (2024-12-26)", "2024-12-26"),
        ("nightly 2024-12-23 (1963fc8)", "2024-12-23"), ("2023", "2023-01-01"), ("commit 23e00ed, TE 2.11", None),
        ("issue thread", None), ("067b021 snapshot", None), ("", None), (None, None),
    ],
)  # fmt: skip
def test_versions_are_read_as_people_write_them(text: str | None, read: str | None) -> None:
    assert (str(version(text)) if version(text) else None) == read


def test_a_range_holds_its_first_day_and_not_its_last() -> None:
    ends = (["2025-03-19", "0.1.0"], ["2025-07-01", "0.2.0"])
    held = {v: within(version(v), *ends) for v in ("2025-03-19", "2025-06", "2025-07-01", "0.1.0", "0.1.9", "0.2.0")}
    assert held == {
        "2025-03-19": True, "2025-06": True, "2025-07-01": False, "0.1.0": True, "0.1.9": True, "0.2.0": False,
    }  # fmt: skip
    assert not within(version("0.1.0"), ["2025-03-19"], [])


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("torchtitan", "torchtitan"), ("torchtitan@2024-12", "torchtitan-2024"),
        ("titan@2025-03-18", "torchtitan-2024"), ("torchtitan@2024-06-11", "torchtitan-2024h1"),
        ("torchtitan@2024-06-12", "torchtitan-2024q3"), ("torchtitan@2024-10-22", "torchtitan-2024"),
        ("torchtitan@2025-03-19", "torchtitan-2025q1"), ("torchtitan@0.1.0", "torchtitan-2025q1"),
        ("torchtitan@0.2.0", "torchtitan-2025q3"), ("torchtitan@2026-08-05", "torchtitan"),
        ("torchtitan@2025-07-01", "torchtitan-2025q1"), ("torchtitan@2025-08-22", "torchtitan-2025q3"),
        ("torchtitan@2025-11-15", "torchtitan-2025q4"), ("torchtitan@2026-03-13", "torchtitan-2026q1"),
        ("torchtitan@main", "torchtitan"),
        ("hf@4.45.2", "hf-transformers-4.45"), ("hf@4.46.3", "hf-transformers-4.48"),
        ("hf@4.49.0", "hf-transformers-4.53"), ("hf@4.57.1", "hf-transformers-4.57"), ("hf@5.1", "hf-transformers"),
        ("hf@2024-01", "hf-transformers-4.45"),
        ("trl@0.20", "trl-0.21"), ("trl@1.0.0", "trl-1.6"), ("trl", "trl"), ("megatron@2023-01", "megatron-lm"),
    ],
)  # fmt: skip
def test_the_version_after_the_at_sign_chooses_the_recipe(name: str, recipe: str) -> None:
    found = known(name)
    assert found is not None
    assert found.id == recipe


def test_ranges_of_a_stack_do_not_overlap_and_leave_no_gap() -> None:
    for name in {s.versions_of for s in stacks().values() if s.versions_of}:
        mine = [s for s in stacks().values() if s.versions_of == name]
        starts, ends = ({end for s in mine for end in side(s)} for side in (lambda s: s.since, lambda s: s.until))
        assert starts < ends, name
        assert len(ends) == 2 * len(mine), name


@pytest.mark.parametrize("id", sorted(stacks()))
def test_every_claim_says_where_it_was_read(id: str) -> None:
    """Whatever a file states of a stack has a line under [sources], and nothing else has."""
    raw = tomllib.loads((S.FOLDER / f"{id}.toml").read_text(encoding="utf-8"))
    assert set(raw.get("sources", {})) == set(raw) - ABOUT
    assert all(len(text) > 20 for text in raw["sources"].values())


def test_a_file_that_builds_upon_another_changes_only_what_it_states() -> None:
    below, above = stacks()["megatron-lm"], stacks()["megatron-bridge"]
    differ = {f.name for f in fields(Stack) if getattr(below, f.name) != getattr(above, f.name)}
    assert {"loss", "loss_impl"} <= differ
    about = {"id", "title", "title_zh", "source", "aliases", "notes", "based_on", "sources"}
    assert differ <= {*about, "loss", "loss_impl", "cast_weights"}


@pytest.mark.parametrize(
    ("name", "loss", "impl", "compiled", "per_logit"),
    [
        # Megatron-LM megatron/core/tensor_parallel/cross_entropy.py: in place on one fp32 copy beside the 16-bit logits
        ("megatron-lm", "full-logits", None, False, [6, 6]),
        ("megatron-lm", "fused-ce", None, False, [10, 10]),
        ("megatron-lm", "fused-ce", "te", False, [4, 4]),
        ("megatron-bridge", "fused-ce", None, False, [4, 4]),
        # transformers: fp32 logits and a shifted copy (4.45), the 16-bit ones too (4.46), labels shifted instead (4.49)
        ("hf@4.45.2", "full-logits", None, False, [12, 12]),
        ("hf@4.48.3", "full-logits", None, False, [14, 12]),
        ("hf@4.50", "full-logits", None, False, None),
        ("fms-acceleration", "fused-ce", None, False, [8, 8]),
        ("fsdp_qlora", "full-logits", None, False, [12, 16]),
        # torchtune: 16-bit logits of all chunks, and the fp32 log_softmax of each unless it is compiled
        ("torchtune", "chunked-ce", None, False, [6, 4]),
        ("torchtune", "chunked-ce", None, True, [2, 2]),
        ("torchtitan", "full-logits", None, True, [2, 4]),
        ("torchtitan@2024-12", "full-logits", None, True, None),
        ("unsloth", "fused-ce", None, False, [2, 2]),
        ("nanotron", "full-logits", None, False, [10, 6]),
    ],
)
def test_bytes_a_logit_of_each_loss_path(
    name: str, loss: str, impl: str | None, compiled: bool, per_logit: list[int] | None
) -> None:
    found = known(name)
    assert found is not None
    assert S.with_loss(found, impl, compiled=compiled).loss_bytes.get(loss) == per_logit


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("torchtitan@2024-12", "optimizer_impl", "foreach"), ("torchtitan@2024-12", "norm_kernels", "composed"),
        ("torchtitan@2025-05", "root_group", "shared"), ("torchtitan@2025-08", "exchange_kept", False),
        ("torchtitan@2025-10", "exchange_kept", True), ("torchtitan@2026-02", "loss_chunks_head", False),
        ("torchtitan@2026-06", "loss_chunks_head", True), ("torchtitan@2025-10", "compiled_drops_unread", True),
        ("torchtitan@2026-02", "compiled_drops_unread", False), ("graph-trainer", "every_product_kept", True),
        ("torchtitan", "root_group", "separate"),
        ("torchtitan", "allocator", "expandable"), ("torchtitan@2024-09", "allocator", "native"),
        ("hf@4.53", "optimizer_impl", "foreach"), ("hf", "optimizer_impl", "fused"), ("peft", "keeps_outputs", True),
        ("hf@4.57", "reentrant", True), ("hf@5.0", "reentrant", False), ("fms-acceleration", "data_parallel", "fsdp1"),
        ("llm-foundry", "keeps_outputs", True), ("llm-foundry", "optimizer_impl", "for-loop"),
        ("axolotl", "allocator", "expandable"), ("trl@0.20", "checkpointing", "none"),
        ("trl@1.0", "checkpointing", "full"), ("ms-swift", "checkpointing", "full"),
        ("megatron-swift", "checkpointing", "selective-modules"), ("fsdp_qlora", "packed_base", "nf4"),
        ("nanotron", "grads_16bit", "fp32"), ("torchtune", "precision", "bf16-pure"), ("litgpt", "loss", "chunked-ce"),
    ],
)  # fmt: skip
def test_what_decides_memory_in_each_stack(name: str, field: str, value: object) -> None:
    found = known(name)
    assert found is not None
    assert getattr(found, field) == value


def test_a_record_is_predicted_with_the_recipe_of_its_version() -> None:
    def recipe(**more: object) -> str:
        return predict(changed(DENSE, framework="torchtitan", **more)).expressed.case.stack.id

    assert recipe(version="9dec370 (2024-12-26)") == "torchtitan-2024"
    assert recipe(version="torchtitan 0.0.2") == "torchtitan-2024"
    assert recipe(version=None, torch="nightly 2025-05-01") == "torchtitan-2025q1"
    assert recipe(version=None, torch="2.7.0") == "torchtitan"
    assert recipe(version="f00d (2026-07)") == "torchtitan"


def test_an_open_version_is_listed_where_it_matters() -> None:
    open_ = {"version": None, "torch": None}
    told = {name: predict(changed(DENSE, framework=name, **open_)) for name in ("torchtitan", "nanotron")}
    noted = {name: any(line.startswith("version") for line in p.expressed.case.assumed) for name, p in told.items()}
    assert noted == {"torchtitan": True, "nanotron": False}


def test_a_plugin_that_changes_the_kernels_is_a_stack_of_its_own() -> None:
    args = {"plugin": "fms-acceleration", "trainer": "trl-sft"}
    found = predict(changed(DENSE, framework="hf-transformers", framework_args=args))
    assert found.expressed.case.stack.id == "fms-acceleration"
    other = predict(changed(DENSE, framework="hf-transformers", framework_args={"plugin": "nobody knows"}))
    assert other.expressed.case.stack.id.startswith("hf-transformers")


def test_an_unknown_field_of_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd.toml").write_text('title = "x"\nsource = "x"\nspeed = 3\n', encoding="utf-8")
    monkeypatch.setattr(S, "FOLDER", tmp_path)
    stacks.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"odd\.toml: unknown fields"):
            stacks()
    finally:
        monkeypatch.undo()
        stacks.cache_clear()


def test_a_wrong_name_with_a_version_is_told() -> None:
    with pytest.raises(UnknownPreset, match="torchtitan"):
        S.stack("torchtitn@2024-12")


def test_an_open_fsdp_is_the_frameworks_own() -> None:
    parallel = {"fsdp_impl": None}
    kinds = {
        name: predict(changed(DENSE, framework=name, parallel=parallel)).expressed.case.plan.data_parallel
        for name in ("fsdp_qlora", "torchtitan", "fms-acceleration", "nobody-knows")
    }
    assert kinds == {
        "fsdp_qlora": "fsdp1", "torchtitan": "fsdp2", "fms-acceleration": "fsdp1", "nobody-knows": "fsdp2",
    }  # fmt: skip
