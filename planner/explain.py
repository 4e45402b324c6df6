"""A quantity and what made it, as text, Markdown, LaTeX or plain data, read off the formula's own code."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from planner import terms
from planner.i18n import t
from planner.quantity import FORMULAS, Formula, Like, Quantity, value_of

_OPERATORS: dict[type[ast.AST], tuple[str, int]] = {
    ast.Add: (" + ", 1), ast.Sub: (" − ", 1), ast.Mult: (" × ", 2), ast.Div: (" ÷ ", 2), ast.Pow: ("^", 3),
}  # fmt: skip
_COMPARE = {ast.Gt: ">", ast.GtE: "≥", ast.Lt: "<", ast.LtE: "≤", ast.Eq: "=", ast.NotEq: "≠"}
_CALLS = {"maximum": "max", "minimum": "min", "where": "if", "ceil": "ceil", "sqrt": "sqrt", "log2": "log2"}


@functools.cache
def returned(formula: Formula) -> ast.expr:
    """The expression a formula returns, its named steps put in."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(formula.function))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise TypeError(f"{formula.name} is not a function")
    steps: dict[str, ast.expr] = {}
    for line in tree.body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            steps[line.targets[0].id] = _Put(steps).visit(line.value)
        if isinstance(line, ast.Return) and line.value is not None:
            return _Put(steps).visit(line.value)  # type: ignore[no-any-return]
    raise TypeError(f"{formula.name} returns nothing")


class _Put(ast.NodeTransformer):
    """Puts named steps in for their names."""

    def __init__(self, steps: dict[str, ast.expr]):
        self.steps = steps

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.steps.get(node.id, node)


def expression(formula: Formula, numbers: dict[str, Like] | None = None) -> str:
    """A formula as a line of text, with names or with the given numbers in their place."""
    return _text(returned(formula), numbers, 0)


def _text(node: ast.expr, numbers: dict[str, Like] | None, outer: int) -> str:
    match node:
        case ast.BinOp():
            sign, rank = _OPERATORS[type(node.op)]
            right_rank = rank + 1 if isinstance(node.op, ast.Sub | ast.Div) else rank
            line = f"{_text(node.left, numbers, rank)}{sign}{_text(node.right, numbers, right_rank)}"
            return f"({line})" if rank < outer else line
        case ast.Name():
            if numbers is None or node.id not in numbers:
                return node.id
            return figure(value_of(numbers[node.id]))
        case ast.Constant():
            return figure(node.value)
        case ast.Compare():
            left = _text(node.left, numbers, 0)
            return f"{left} {_COMPARE[type(node.ops[0])]} {_text(node.comparators[0], numbers, 0)}"
        case ast.UnaryOp():
            return f"−{_text(node.operand, numbers, 3)}"
        case ast.Call() if isinstance(node.func, ast.Name):
            inside = [_text(a, numbers, 0) for a in node.args]
            if node.func.id == "where":
                return f"({inside[1]} if {inside[0]} else {inside[2]})"
            return f"{_CALLS[node.func.id]}({', '.join(inside)})"
    raise TypeError(f"a formula may not contain {ast.dump(node)}")


def latex(formula: Formula) -> str:
    """A formula in LaTeX."""
    return _latex(returned(formula), 0)


def _latex(node: ast.expr, outer: int) -> str:
    match node:
        case ast.BinOp(op=ast.Div()):
            return rf"\frac{{{_latex(node.left, 0)}}}{{{_latex(node.right, 0)}}}"
        case ast.BinOp(op=ast.Pow()):
            return f"{{{_latex(node.left, 3)}}}^{{{_latex(node.right, 0)}}}"
        case ast.BinOp():
            _, rank = _OPERATORS[type(node.op)]
            sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: r"\cdot "}[type(node.op)]
            line = f"{_latex(node.left, rank)} {sign} {_latex(node.right, rank + int(isinstance(node.op, ast.Sub)))}"
            return rf"\left({line}\right)" if rank < outer else line
        case ast.Name():
            return _name(node.id)
        case ast.Constant():
            return str(node.value)
        case ast.Compare():
            sign = {">": ">", "≥": r"\ge", "<": "<", "≤": r"\le", "=": "=", "≠": r"\ne"}[_COMPARE[type(node.ops[0])]]
            return f"{_latex(node.left, 0)} {sign} {_latex(node.comparators[0], 0)}"
        case ast.UnaryOp():
            return f"-{_latex(node.operand, 3)}"
        case ast.Call() if isinstance(node.func, ast.Name):
            return _latex_call(node.func.id, [_latex(a, 0) for a in node.args])
    raise TypeError(f"a formula may not contain {ast.dump(node)}")


def _name(name: str) -> str:
    return r"\mathrm{" + name.replace("_", r"\_") + "}"


def _latex_call(name: str, inside: list[str]) -> str:
    match name:
        case "where":
            return (
                rf"\begin{{cases}}{inside[1]} & \text{{{t('explain.if')} }} {inside[0]}\\"
                rf"{inside[2]} & \text{{{t('explain.else')}}}\end{{cases}}"
            )
        case "ceil":
            return rf"\left\lceil {inside[0]} \right\rceil"
        case "sqrt":
            return rf"\sqrt{{{inside[0]}}}"
        case _:
            shown = {"maximum": r"\max", "minimum": r"\min", "log2": r"\log_2"}[name]
            return rf"{shown}\left({', '.join(inside)}\right)"


def figure(value: Any) -> str:
    """A number for a line of text: whole numbers whole, others to four figures, an array by its ends."""
    if getattr(value, "ndim", 0):
        return f"[{figure(value.min())} … {figure(value.max())}]"
    if isinstance(value, bool):
        return "1" if value else "0"
    number = float(value)
    if number == int(number) and abs(number) < 1e7:
        return str(int(number))
    return f"{number:.4g}"


def line(quantity: Quantity) -> str:
    """One quantity on one line: value, unit, formula, numbers, source or reason."""
    words = terms.beside(quantity.name)
    shown = f"{quantity.name} ({words})" if words else quantity.name
    head = f"{shown} = {figure(quantity.value)} {quantity.unit}"
    made = quantity.formula
    if isinstance(made, Formula):
        head += f" ⟵ {made.name} = {expression(made, quantity.inputs)}"
    elif made:
        head += f" ⟵ {t(f'explain.{made}', count=len(quantity.inputs))}"
    tail = [f"[{quantity.source}]"] if quantity.source else []
    tail += [f"({quantity.because})"] if quantity.because else []
    return " ".join([head, *tail])


def text(quantity: Quantity, depth: int = 20, indent: int = 0) -> str:
    """The whole chain as an indented tree; what was shown before is not repeated."""
    return "\n".join(_lines(quantity, depth, indent, set()))


def _lines(quantity: Quantity, depth: int, indent: int, seen: set[int]) -> Iterator[str]:
    yield f"{'  ' * indent}{line(quantity)}"
    if depth == 0 or id(quantity) in seen:
        return
    seen.add(id(quantity))
    for part in quantity.inputs.values():
        if isinstance(part, Quantity):
            yield from _lines(part, depth - 1, indent + 1, seen)


def tree(quantity: Quantity, depth: int = 20) -> dict[str, Any]:
    """The chain as plain data: name, label for people, value, unit, formula, expression, source, because, inputs."""
    made = quantity.formula
    return {
        "name": quantity.name,
        "label": terms.beside(quantity.name),
        "value": _plain(quantity.value),
        "unit": quantity.unit,
        "formula": made.name if isinstance(made, Formula) else made,
        "expression": expression(made) if isinstance(made, Formula) else None,
        "with_numbers": expression(made, quantity.inputs) if isinstance(made, Formula) else None,
        "source": quantity.source,
        "because": quantity.because,
        "inputs": [_input(n, v, depth) for n, v in quantity.inputs.items()] if depth else [],
    }


def _input(name: str, value: Like, depth: int) -> dict[str, Any]:
    if isinstance(value, Quantity):
        return {"as": name, **tree(value, depth - 1)}
    return {"as": name, "name": name, "value": _plain(value), "unit": None, "inputs": []}


def _plain(value: Any) -> Any:
    if getattr(value, "ndim", 0):
        return value.tolist()
    number = float(value)
    return int(number) if number == int(number) and not isinstance(value, float) else number


def walk(quantity: Quantity) -> Iterator[Quantity]:
    """Every quantity in the chain, each once."""
    seen: set[int] = set()
    todo = [quantity]
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        todo += [p for p in one.inputs.values() if isinstance(p, Quantity)]


def references(quantity: Quantity) -> list[str]:
    """Keys of the sources a number rests on, in order of first use."""
    return list(dict.fromkeys(q.source for q in walk(quantity) if q.source))


def find(quantity: Quantity, name: str) -> Quantity | None:
    """The first quantity of that name in the chain."""
    return next((q for q in walk(quantity) if q.name == name), None)


def names(quantity: Quantity) -> list[str]:
    """Names of the quantities in the chain."""
    return sorted({q.name for q in walk(quantity)})


def all_formulas() -> list[Formula]:
    """Every formula, by name."""
    return [FORMULAS[name] for name in sorted(FORMULAS)]
