"""Formulas compute, wiring connects, views show: no arithmetic outside formulas/ (rule 2 of the design)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("planner/layers/**/*.py", "planner/step/**/*.py", "views/**/*.py", "planner/report/content.py")

ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult)
JOINS = (ast.Add, ast.Mult, ast.Mod)  # what text and lists do: "a" + b, [0] * n, "%s" % x
DISPLAYS = (ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.DictComp)
MAKERS = ("str", "list", "tuple", "dict", "sorted")


def is_text_or_list(node: ast.expr) -> bool:
    """Seen from the source alone: a string, list, tuple or dict, a call that makes one, or a sum with one in it."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, JOINS) and (is_text_or_list(node.left) or is_text_or_list(node.right))
    match node:
        case ast.Constant(value=str()) | ast.Call(func=ast.Attribute(attr="join")):
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in MAKERS
        case _:
            return isinstance(node, DISPLAYS)


def sums(source: str) -> list[tuple[int, str]]:
    """(line, code) of each piece of arithmetic; an outer sum is told once, not again for each of its parts."""
    found: list[tuple[int, str]] = []

    def visit(node: ast.AST) -> None:
        match node:
            case ast.BinOp(op=op) if isinstance(op, ARITHMETIC) and not is_text_or_list(node):
                found.append((node.lineno, ast.unparse(node)))
                return
            case ast.AugAssign(op=op, value=value) if isinstance(op, ARITHMETIC):
                if not (isinstance(op, JOINS) and is_text_or_list(value)):
                    found.append((node.lineno, ast.unparse(node)))
                    return
            case _:
                pass
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(source))
    return found


def test_wiring_views_and_report_content_hold_no_arithmetic() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} {code}"
        for place in PLACES
        for path in sorted(ROOT.glob(place))
        for line, code in sums(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "make it a formula:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    "code",
    [
        *("a + b", "a - 1", "2 * a", "a / b", "a // b", "a % b", "a ** 2", "a + f(b + c) + d"),
        *("x += 1", "x -= y", "f(a * b)", "[a * b]", 'f"{a / b}"', "[*a][0] + b", "sum(a) + b"),
    ],
)
def test_arithmetic_is_seen(code: str) -> None:
    assert len(sums(code)) == 1


@pytest.mark.parametrize(
    "code",
    [
        *('"a" + b', 'a + "b" + c', '"%s" % a', 'f"{a}" + b', '", ".join(a) + b', "str(a) + b"),
        *("[*a] + b", "(1, 2) + a", "[0] * n", "x += [a]", "x += tuple(a)", "a | b", "-1", "a < b"),
    ],
)
def test_joining_text_and_lists_is_not_arithmetic(code: str) -> None:
    assert sums(code) == []
