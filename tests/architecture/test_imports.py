"""Who may import whom: downward only, and each heavy library in its own corner. Read off the syntax trees."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Chapter -> layer; the longest name that fits decides. A chapter imports itself and what lies below it.
LAYERS = {
    "planner.errors": 0, "planner.i18n": 0, "planner.paths": 0, "planner.units": 0,
    "planner.quantity": 1, "planner.terms": 1,
    "planner.formulas": 2, "planner.spec": 2, "planner.calibration": 2, "planner.calibration.coefficients": 2,
    "planner.layers": 3, "planner.rules": 3, "planner.step": 3,
    "planner.spec.presets": 3, "planner.spec.build": 3,  # a bare size is solved with the parameter formulas
    "planner.cases": 4,
    "planner.calibration.fit": 4, "planner.calibration.probe": 4, "planner.calibration.record": 4,
    "planner.evidence": 4, "planner.explain": 4, "planner.search": 4, "planner.trace": 4,
    "planner": 5,  # planner/__init__.py, the public surface
    "planner.answers": 5, "planner.article": 5, "planner.listing": 5, "planner.reference": 5, "planner.thumb": 5,
    "planner.show": 6, "planner.show_trace": 6,
    "planner.charts": 6, "planner.diagnose": 6, "planner.export": 6, "planner.jobs": 6, "planner.lint": 6,
    "planner.report": 6, "planner.store": 6,
    "planner.__main__": 7, "planner.cli": 7, "views": 7, "app": 7,
}  # fmt: skip

# Within one layer, who may import whom besides itself.
SIDEWAYS = {
    ("planner.units", "planner.errors"),
    ("planner.errors", "planner.i18n"),
    ("planner.units", "planner.i18n"),
    ("planner.spec", "planner.formulas"),
    ("planner.spec.presets", "planner.layers"),
    ("planner.spec.build", "planner.spec.presets"),
    ("planner.search", "planner.cases"),
    ("planner.evidence", "planner.cases"),
    ("planner.answers", "planner"),
    ("planner.answers", "planner.thumb"),
    ("planner.thumb", "planner.article"),
    ("planner.spec", "planner.calibration.coefficients"),
    ("planner.step", "planner.layers"),
    ("planner.step", "planner.rules"),
    ("planner.calibration.fit", "planner.calibration.record"),
    ("planner.report", "planner.charts"),
    ("planner.show_trace", "planner.show"),
    ("planner.trace", "planner.cases"),
    ("planner.__main__", "planner.cli"),
    ("app", "views"),
}

# Library -> the chapters that may import it.
CORNERS = {
    "streamlit": ("app", "views"),
    "altair": ("planner.charts",),
    "vl_convert": ("planner.charts", "planner.report"),
    "jinja2": ("planner.report", "planner.export"),
    "weasyprint": ("planner.report", "planner.export"),
    "torch": ("planner.trace.worker", "planner.trace.inside", "planner.calibration.probe"),
    "transformers": ("planner.trace.inside",),
    "peft": ("planner.trace.inside",),
    "typer": ("planner.cli", "planner.__main__"),
}
PANDAS_FROM = 4  # layer


def modules() -> dict[str, Path]:
    """Every module of ours that exists now, by its dotted name."""
    files = [ROOT / "app.py", *ROOT.glob("planner/**/*.py"), *ROOT.glob("views/**/*.py")]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in files
        if path.exists()
    }


def within(module: str, chapter: str) -> bool:
    return module == chapter or module.startswith(chapter + ".")


def chapter_of(module: str) -> str | None:
    """The chapter of LAYERS that a module belongs to; `planner` itself holds only its __init__."""
    found = [c for c in LAYERS if module == c or (c != "planner" and within(module, c))]
    return max(found, key=len, default=None)


def imported(tree: ast.AST, module: str, is_package: bool, known: set[str]) -> list[tuple[int, str]]:
    """(line, dotted name) of each import; `from planner import units` counts as planner.units."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                above = parts[: len(parts) - node.level + is_package]
                base = ".".join([*above, *([base] if base else [])])
            for alias in node.names:
                deeper = f"{base}.{alias.name}"
                found.append((node.lineno, deeper if deeper in known else base))
    return found


def ours(name: str) -> bool:
    return name.split(".")[0] in ("app", "views", "planner")


def complaint(module: str, name: str) -> str | None:
    """Why `module` may not import `name`, or None."""
    chapter = chapter_of(module)
    if chapter is None:
        return "is in no layer: add its chapter to LAYERS"
    library = name.split(".")[0]
    if not ours(name):
        if library in CORNERS and not any(within(module, corner) for corner in CORNERS[library]):
            return f"imports {library}, which belongs to {', '.join(CORNERS[library])}"
        if library == "pandas" and LAYERS[chapter] < PANDAS_FROM:
            return f"imports pandas below layer {PANDAS_FROM}"
        if chapter == "planner.formulas" and library not in ("numpy", "__future__"):
            return f"imports {library}: a formula needs numpy and planner.quantity only"
        return None
    if module in ("planner.calibration.probe", "planner.trace.worker"):
        return f"imports {name}: it runs alone" if module.endswith("probe") else None
    other = chapter_of(name)
    if other is None:
        return f"imports {name}, which is in no layer: add its chapter to LAYERS"
    if chapter == "planner.formulas" and other not in ("planner.formulas", "planner.quantity"):
        return f"imports {name}: a formula needs numpy and planner.quantity only"
    if chapter == other == "views" and not name.removeprefix("views").startswith("._") and name != "views":
        return f"imports {name}: a page does not import a page"
    if other == chapter or LAYERS[other] < LAYERS[chapter] or (chapter, other) in SIDEWAYS:
        return None
    return f"imports {name}: layer {LAYERS[chapter]} to layer {LAYERS[other]}"


def test_imports_go_downward_and_libraries_stay_in_their_corner() -> None:
    files = modules()
    wrong = []
    for module, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = imported(tree, module, path.name == "__init__.py", set(files))
        for line, name in names or [(1, "__future__")]:
            if why := complaint(module, name):
                wrong.append(f"{path.relative_to(ROOT)}:{line} {why}")
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("module", "name", "allowed"),
    [
        ("planner.step.memory", "planner.layers.ops", True),
        ("planner.layers.ops", "planner.step.memory", False),
        ("planner.layers.mlp", "planner.formulas.parameters", True),
        ("planner.formulas.states", "planner.units", False),
        ("planner.formulas.states", "math", False),
        ("planner.spec.case", "planner.calibration.coefficients", True),
        ("planner.spec.case", "planner.calibration.fit", False),
        ("planner.report.content", "planner.charts.memory", True),
        ("planner.charts.memory", "planner.report.content", False),
        ("planner.diagnose.advise", "planner.search.solve", True),
        ("planner", "planner.step.evaluate", True),
        ("planner.step.evaluate", "planner", False),
        ("planner", "planner.report", False),
        ("planner.calibration.probe", "torch", True),
        ("planner.calibration.probe", "planner.units", False),
        ("planner.trace.compare", "torch", False),
        ("planner.spec.case", "pandas", False),
        ("planner.search.sweep", "pandas", True),
        ("planner.charts.memory", "streamlit", False),
        ("views.fit", "streamlit", True),
        ("views.fit", "altair", False),
        ("views.fit", "views._inputs", True),
        ("views.fit", "views.speed", False),
        ("app", "views.fit", True),
        ("planner.cli", "views.fit", False),
        ("planner.cli", "planner.report.render", True),
        ("planner.somewhere", "numpy", False),
    ],
)
def test_the_rule_itself(module: str, name: str, allowed: bool) -> None:
    assert (complaint(module, name) is None) == allowed


def test_imports_are_read_in_every_spelling() -> None:
    source = "import a.b\nfrom planner import units, Case\nfrom .. import errors\ndef f():\n    from .x import y\n"
    found = imported(ast.parse(source), "planner.spec.case", False, {"planner.units", "planner.errors"})
    names = [(1, "a.b"), (2, "planner"), (2, "planner.units"), (3, "planner.errors"), (5, "planner.spec.x")]
    assert sorted(found) == names


def test_import_planner_loads_nothing_heavy() -> None:
    heavy = {"streamlit", "altair", "torch", "weasyprint", "pandas", "transformers", "jinja2"}
    code = f"import sys, planner; print(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
