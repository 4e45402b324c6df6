"""A framework is one data file: its name is recognised, its habits decide, and no Python is edited."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.evidence.predict import predict
from planner.spec import stack
from tests.evidence.samples import DENSE, changed

NEW = """
title = "A trainer of tomorrow"
source = "saved-tensor-traces"
aliases = ["tomorrow trainer"]
norm_kernels = "fused"
mlp_kernels = "fused"
root_group = "separate"
allocator_kind = "fsdp"
loss = "fused-ce"
"""
OLDER = """
title = "A trainer of tomorrow, as it was"
source = "saved-tensor-traces"
based_on = "tomorrow"
versions_of = "tomorrow"
until = ["2027-01", "2.0"]
norm_kernels = "composed"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for file in stack.FOLDER.glob("*.toml"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "tomorrow.toml").write_text(NEW, encoding="utf-8")
    (tmp_path / "tomorrow-1.toml").write_text(OLDER, encoding="utf-8")
    monkeypatch.setattr(stack, "FOLDER", tmp_path)
    _forget()
    yield tmp_path
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    stack.stacks.cache_clear()
    stack._by_name.cache_clear()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["tomorrow", "Tomorrow@2.1", "tomorrow trainer"])
def test_a_new_framework_is_one_file(name: str) -> None:
    found = predict(changed(DENSE, framework=name, loss=None))
    case = found.expressed.case
    assert case.stack.title == "A trainer of tomorrow"
    assert case.spreads == ()
    assert case.recipe.loss == "fused-ce"
    assert not any("framework" in line for line in case.assumed)


@pytest.mark.usefixtures("folder")
def test_its_habits_decide() -> None:
    other = predict(changed(DENSE, framework="pytorch", act_ckpt="none"))
    assert predict(changed(DENSE, framework="tomorrow", act_ckpt="none")).value < other.value


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("stated", "id"), [("1.9", "tomorrow-1"), ("2.0", "tomorrow"), ("c0ffee (2026-11)", "tomorrow-1")]
)
def test_an_older_version_is_one_more_file(stated: str, id: str) -> None:
    case = predict(changed(DENSE, framework="tomorrow", version=stated, loss=None)).expressed.case
    assert case.stack.id == id
    assert case.stack.mlp_kernels == "fused"  # of the file it builds upon
    assert case.stack.norm_kernels == ("composed" if id == "tomorrow-1" else "fused")
    assert case.spreads == ()
