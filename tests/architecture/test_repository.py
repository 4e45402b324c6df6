"""The repository stands alone: nothing in it leans on one machine, one registry or a folder beside it."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w./~-])/(?:work|root)/"),
    "a registry's host": re.compile(r"pypi\.org|pythonhosted\.org|registry\.npmjs|deb\.debian\.org|archive\.ubuntu"),
    "the folder shared/": re.compile(r"\.\./shared\b|(?<![\w.-])shared/(?:[a-z_]+/)?[a-z_]+\.(?:md|jsonl?|toml|txt)\b"),
}


def text_files() -> list[Path]:
    """Every text file that is tracked or about to be; all of them where there is no git."""
    git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, check=False)
    if listed.returncode == 0:
        paths = [ROOT / name.decode() for name in listed.stdout.split(b"\0") if name]
    else:
        made = {".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "out", "build", "dist"}
        paths = [p for p in ROOT.rglob("*") if not made & set(p.relative_to(ROOT).parts)]
    return [p for p in paths if p.is_file() and b"\0" not in p.read_bytes()[:8192]]


def leans(text: str) -> list[tuple[int, str]]:
    """(line, what it leans on) of each forbidden mention."""
    return sorted(
        (text.count("\n", 0, found.start()) + 1, f"{what}: {found.group()}")
        for what, pattern in FORBIDDEN.items()
        for found in pattern.finditer(text)
    )


def test_no_file_names_a_machine_a_registry_or_the_folder_beside() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {what}"
        for path in text_files()
        if path != Path(__file__).resolve()
        for line, what in leans(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("cd /work/main", True),
        ('open("/root/.cache")', True),
        ("--index-url https://pypi.org/simple", True),
        ('Path("../shared/evidence")', True),
        ("read shared/physics/models.md", True),
        ("https://example.com/work/paper.pdf", False),
        ("shared/local attention", False),
        ("docs/shared/x", False),
    ],
)
def test_the_rule_itself(text: str, wrong: bool) -> None:
    assert bool(leans(text)) == wrong


def test_a_wheel_needs_what_the_app_needs_but_torch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pinned = [line.split("==")[0] for line in lines if line and not line.startswith("#")]
    loose = [re.split("[>=]", name)[0] for name in project["dependencies"]]
    assert loose == [name for name in pinned if name not in ("torch", "transformers", "peft")]
