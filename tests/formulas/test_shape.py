"""What a formula may be made of, that its text on screen says what it computes, that its source is known and used."""

from __future__ import annotations

import ast
import inspect
import json
import math
import re
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner import explain
from planner.quantity import FORMULAS, Formula, formula, where
from planner.step.breakdown import PARTS
from planner.terms import FOLDER, label, term, terms

ROOT = Path(__file__).resolve().parents[2]
PLANNER = ROOT / "planner"
NAMES = sorted(FORMULAS)

CALLS = {"where", "maximum", "minimum", "ceil", "sqrt", "log2"}
MAY = (
    ast.FunctionDef, ast.arguments, ast.arg, ast.Assign, ast.Return, ast.Expr, ast.Name, ast.Load, ast.Store,
    ast.Constant, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.UnaryOp, ast.USub, ast.Compare, ast.Gt,
    ast.GtE, ast.Lt, ast.LtE, ast.Eq, ast.NotEq, ast.Call,
)  # fmt: skip
#: a literal other than 0, 1 and 2 is an input with a name, a unit and a source, unless it is part of a structure
STRUCTURE = {
    ("layers_done", 3): "the last of the four places in the backward",
    ("pick_by_mode", 4): "the width of fp32, which tells the modes apart",
}


def code(made: Formula) -> ast.FunctionDef:
    found = ast.parse(textwrap.dedent(inspect.getsource(made.function))).body[0]
    assert isinstance(found, ast.FunctionDef)
    found.decorator_list = []
    return found


def complaints(tree: ast.FunctionDef) -> list[str]:
    """What in a formula's code a formula may not have."""
    said, body = [], tree.body[1:] if ast.get_docstring(tree) else tree.body
    if not ast.get_docstring(tree):
        said.append("has no docstring")
    if not body or not isinstance(body[-1], ast.Return) or not all(isinstance(b, ast.Assign) for b in body[:-1]):
        said.append("is not named steps and one return")
    arguments = tree.args
    if arguments.defaults or arguments.kw_defaults or arguments.vararg or arguments.kwarg or arguments.posonlyargs:
        said.append("takes more than plain keyword inputs")
    own = {a.arg for a in arguments.args}
    for step in body[:-1]:
        if isinstance(step, ast.Assign) and isinstance(step.targets[0], ast.Name):
            if step.targets[0].id in own:
                said.append(f"writes over {step.targets[0].id}")
            own.add(step.targets[0].id)
    for node in (n for part in body for n in ast.walk(part)):
        match node:
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in CALLS:
                pass
            case ast.Call():
                said.append(f"calls {ast.unparse(node)}")
            case ast.Compare(ops=[_]):
                pass
            case ast.Compare():
                said.append(f"chains {ast.unparse(node)}")
            case ast.Constant(value=value) if isinstance(value, bool) or not isinstance(value, int | float):
                said.append(f"holds {value!r}")
            case ast.Name(id=name) if name not in own | CALLS:
                said.append(f"reads {name}, which is no input")
            case _ if not isinstance(node, MAY):
                said.append(f"has {type(node).__name__}")
            case _:
                pass
    return said


def literals(tree: ast.FunctionDef) -> set[float]:
    body = tree.body[1:]
    return {n.value for part in body for n in ast.walk(part) if isinstance(n, ast.Constant)}  # type: ignore[misc]


@pytest.mark.parametrize("name", NAMES)
def test_a_formula_holds_only_what_a_formula_may(name: str) -> None:
    assert complaints(code(FORMULAS[name])) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_number_that_is_a_fact_is_an_input(name: str) -> None:
    facts = literals(code(FORMULAS[name])) - {0, 1, 2}
    assert facts == {n for f, n in STRUCTURE if f == name}


@pytest.mark.parametrize(
    "text",
    [
        'def f(a):\n    return a',
        'def f(a):\n    "x"\n    a = a + 1\n    return a',
        'def f(a):\n    "x"\n    if a > 1:\n        return a\n    return 2 * a',
        'def f(a):\n    "x"\n    return a // 2',
        'def f(a):\n    "x"\n    return abs(a)',
        'def f(a):\n    "x"\n    return a * WIDTH',
        'def f(a, b=2):\n    "x"\n    return a * b',
        'def f(a):\n    "x"\n    return a if a > 1 else 1',
        'def f(a):\n    "x"\n    return where(0 < a < 1, a, 1)',
        'def f(a):\n    "x"\n    return a * True',
        'def f(a):\n    "x"\n    return a.max()',
    ],
)  # fmt: skip
def test_what_a_formula_may_not_hold_is_seen(text: str) -> None:
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.FunctionDef)
    assert complaints(tree)


# What is shown is what is computed.

SHOWN = {"×": "*", "÷": "/", "−": "-", "^": "**", "≥": ">=", "≤": "<=", "≠": "!=", " = ": " == "}
WORDS = {"max": max, "min": min, "ceil": math.ceil, "sqrt": math.sqrt, "log2": math.log2}


def read(text: str, **values: Any) -> float:
    """The displayed text, worked out by Python alone."""
    for sign, python in SHOWN.items():
        text = text.replace(sign, python)
    return float(eval(text, {"__builtins__": {}}, {**WORDS, **values}))  # noqa: S307, our own formulas


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=12)
def test_the_text_on_screen_gives_the_value(name: str, data: st.DataObject) -> None:
    made = FORMULAS[name]
    whole = st.integers(0, 3) | st.integers(0, 5000)  # figures show whole numbers whole
    values = {p: data.draw(whole, label=p) for p in made.parameters}
    try:
        value = float(made.function(**values))
    except (ZeroDivisionError, OverflowError, ValueError):
        assume(False)
    assert read(explain.expression(made), **values) == pytest.approx(value, rel=1e-12)
    assert read(explain.expression(made, dict(values))) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_formula_has_a_text_and_latex_that_name_its_inputs(name: str) -> None:
    made = FORMULAS[name]
    text, tex = explain.expression(made), explain.latex(made)
    assert set(re.findall(r"[A-Za-z_]\w*", text)) >= set(made.parameters)
    for parameter in made.parameters:
        assert parameter.replace("_", r"\_") in tex
    for opening, closing in ("{}", "()"):
        assert tex.count(opening) == tex.count(closing), tex
    assert tex.count(r"\left") == tex.count(r"\right")
    assert tex.count(r"\begin") == tex.count(r"\end")
    for sign in "×÷−≥≤≠":
        assert sign not in tex


def test_the_text_keeps_brackets_where_they_matter() -> None:
    @formula("1", source="definition")
    def shape_of_brackets(a, b, c):  # type: ignore[no-untyped-def]
        """Every way two operators can nest."""
        left = (a - b) - c + (a / b) / c
        right = a - (b - c) + a / (b / c) + a * (b + c) + (a + b) * c + a / (b * c) - (a + b)
        return left + right + (a - b) ** 2 + 2 ** (b - c) + where(a > b, a - 1, b) * c

    try:
        made = FORMULAS.pop("shape_of_brackets")
        values = {"a": 7, "b": 3, "c": 2}
        assert read(explain.expression(made), **values) == pytest.approx(shape_of_brackets.function(**values))
    finally:
        FORMULAS.pop("shape_of_brackets", None)


# Sources.

SOURCES = tomllib.loads((PLANNER / "sources.toml").read_text(encoding="utf-8"))


def stated(tree: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """(key, text) of every text in a data file."""
    match tree:
        case dict():
            for name, value in tree.items():
                yield from stated(value, name)
        case list():
            for value in tree:
                yield from stated(value, key)
        case str():
            yield key, tree
        case _:
            pass


def data_files() -> list[Path]:
    return sorted((PLANNER / "data").rglob("*.toml"))


def cited_in_data() -> dict[str, str]:
    """Source key -> a file that cites it. A model's source is an address, read in tests/spec."""
    found = {}
    for path in data_files():
        for key, text in stated(tomllib.loads(path.read_text(encoding="utf-8"))):
            if key in ("source", "sources"):
                found[text] = str(path.relative_to(ROOT))
    return found


def cited_in_code() -> dict[str, str]:
    """Source key -> a place that cites it: a decorator, `given(source=)`, or a figure's maker."""
    found = {}
    for path in sorted(PLANNER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.keyword(arg="source", value=ast.Constant(value=str(key), lineno=line)):
                    found[key] = f"{path.relative_to(ROOT)}:{line}"
    return found


#: texts under `source=` that are no key: a model that is made, not cited
NO_KEY = {"a shape made from a size", ""}


def test_every_source_that_is_cited_is_known() -> None:
    cited = {**cited_in_code(), **cited_in_data(), **{f.source: n for n, f in FORMULAS.items()}}
    unknown = {key: where_ for key, where_ in cited.items() if key not in SOURCES and key not in NO_KEY}
    assert not unknown


def test_every_source_is_cited() -> None:
    cited = {**cited_in_code(), **cited_in_data()}
    places = {key: where_ for path in data_files() for key, where_ in _mentions(path)}
    unused = sorted(set(SOURCES) - set(cited) - set(places))
    assert not unused


def _mentions(path: Path) -> list[tuple[str, str]]:
    """Keys that a data file names in its notes ("agrees with silybench-prices")."""
    text = json.dumps(tomllib.loads(path.read_text(encoding="utf-8")), default=str)
    return [(key, str(path)) for key in SOURCES if re.search(rf"(?<![\w-]){re.escape(key)}(?![\w-])", text)]


def test_every_formula_is_called() -> None:
    """One that nothing calls is neither tested by an answer nor read by anyone."""
    called = set()
    for path in [*PLANNER.rglob("*.py"), ROOT / "app.py", *(ROOT / "views").rglob("*.py")]:
        if not path.exists():
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called.add(node.func.attr)
            elif isinstance(node, ast.Name):
                called.add(node.id)
    assert not sorted(set(FORMULAS) - called)


# The glossary.


def words_in_code() -> set[str]:
    """Every text constant in the code, which is where quantities get their names."""
    found = set()
    for path in PLANNER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def test_every_formula_input_part_and_moment_is_in_the_glossary() -> None:
    inputs = {p for made in FORMULAS.values() for p in made.parameters}
    parts = {name for kind, names in PARTS.items() for name in (kind, *names)}
    assert sorted((inputs | parts | set(FORMULAS)) - set(terms())) == []


def test_every_row_is_in_use() -> None:
    inputs = {p for made in FORMULAS.values() for p in made.parameters}
    parts = {name for kind, names in PARTS.items() for name in (kind, *names)}
    assert sorted(set(terms()) - inputs - parts - set(FORMULAS) - words_in_code()) == []
    wrong = {(t.name, f) for t in terms().values() for f in t.units if t.name not in FORMULAS[f].parameters}
    assert not wrong


@pytest.mark.parametrize("name", sorted(terms()))
def test_a_row_says_unit_english_and_chinese(name: str) -> None:
    row = term(name)
    assert row.unit
    assert row.en
    assert row.en[0].isupper() or row.en.split()[0] in ("torch", "fp32")
    assert re.search(r"[一-鿿]", row.zh) or row.zh in ("NCCL",)
    assert re.fullmatch(r"1|([A-Za-z]+)([*/][a-zA-Z]+([*][*]2)?)*", row.unit), row.unit


def test_a_name_is_said_in_the_readers_language() -> None:
    assert label("gradients") == "Gradients"
    assert label("gradients", "zh") == "梯度"
    assert label("tp", "zh") == "张量并行度（TP）"
    assert label("weights (2)") == "Weights"
    assert label("norm1.input") == "norm1.input"
    assert label("something_new", "zh") == "something new"


def test_a_name_has_one_row() -> None:
    rows = [name for path in FOLDER.glob("*.toml") for name in tomllib.loads(path.read_text(encoding="utf-8"))]
    assert len(rows) == len(set(rows)) == len(terms())
