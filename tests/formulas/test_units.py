"""Every formula, run once on counted units, comes out in the unit it declares.

Physical units alone see little (all is bytes), so tokens, channels, layers, micro-batches, heads, experts and sequences
are kinds of their own, as the glossary states for each input. Three readings are this test's, not pint's:

- a bare number in a sum, a comparison, a maximum or a minimum is so many of what stands beside it (layers - 1);
- nothing is nothing in any unit (0 x size, as formulas write the empty branch of a choice);
- 2 to the power of log2(x) is again an x (rounding up to a power of two).
"""

from __future__ import annotations

import ast
import copy
import inspect
import math
import random
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pint
import pytest

from planner.quantity import FORMULAS, Formula
from planner.terms import term

#: formulas that count on purpose what the units keep apart
EXCEPTIONS = {
    "rows_and_cols": "one statistic for each row and each column, counted as parameters: channels are read as params",
}

UNITS = pint.UnitRegistry(None)
for kind in ("B", "s", "USD", "token", "channel", "layer", "microbatch", "head", "expert", "sequence", "GB"):
    UNITS.define(f"{kind} = [{kind}_]")
UNITS.define("param = channel ** 2")
UNITS.define("element = token * channel")
UNITS.define("score = head * token ** 2 / sequence")


class WrongUnits(Exception):
    """Two things were added, compared or chosen between that are not of one unit."""


class Counted:
    """A number with counted units, under the three readings above."""

    def __init__(self, value: Any):
        self.q = value if isinstance(value, pint.Quantity) else UNITS.Quantity(value)

    def beside(self, other: Any) -> pint.Quantity:
        """`other` as something that can stand beside this in a sum."""
        if not isinstance(other, Counted):
            return UNITS.Quantity(other, self.q.units)
        if other.q.magnitude == 0:
            return UNITS.Quantity(0, self.q.units)
        if other.q.dimensionality != self.q.dimensionality:
            raise WrongUnits(f"{self.q.units} beside {other.q.units}")
        return other.q.to(self.q.units)

    def _sum(self, other: Any, sign: int) -> Counted:
        if isinstance(other, Counted) and self.q.magnitude == 0:
            return Counted(sign * other.q)
        return Counted(self.q + sign * self.beside(other))

    def __add__(self, other: Any) -> Counted:
        return self._sum(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Counted:
        return self._sum(other, -1)

    def __rsub__(self, other: Any) -> Counted:
        return Counted(self.beside(other) - self.q)

    def __mul__(self, other: Any) -> Counted:
        return Counted(self.q * bare(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Counted:
        return Counted(self.q / bare(other))

    def __rtruediv__(self, other: Any) -> Counted:
        return Counted(other / self.q)

    def __pow__(self, power: Any) -> Counted:
        exponent = bare(power)
        if isinstance(exponent, pint.Quantity):
            if not exponent.dimensionless:
                raise WrongUnits(f"to the power of {exponent.units}")
            exponent = exponent.to("").magnitude
        return Counted(self.q**exponent)

    def __rpow__(self, base: Any) -> Counted:
        if not self.q.dimensionless:
            raise WrongUnits(f"to the power of {self.q.units}")
        return Counted(base**self.q.to("").magnitude)

    def __neg__(self) -> Counted:
        return Counted(-self.q)

    def _compared(self, other: Any) -> tuple[float, float]:
        if isinstance(other, Counted) and self.q.magnitude == 0:
            return 0.0, other.q.magnitude
        return self.q.magnitude, self.beside(other).magnitude

    def __lt__(self, other: Any) -> bool:
        a, b = self._compared(other)
        return a < b

    def __le__(self, other: Any) -> bool:
        a, b = self._compared(other)
        return a <= b

    def __gt__(self, other: Any) -> bool:
        a, b = self._compared(other)
        return a > b

    def __ge__(self, other: Any) -> bool:
        a, b = self._compared(other)
        return a >= b


class Logarithm:
    """log2 of something counted; two to its power is counted in the same unit."""

    def __init__(self, value: float, unit: Any):
        self.value, self.unit = value, unit

    def __rpow__(self, base: float) -> Counted:
        return Counted(UNITS.Quantity(base**self.value, self.unit))


def bare(value: Any) -> Any:
    return value.q if isinstance(value, Counted) else value


def choose(pick: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    def chosen(a: Any, b: Any) -> Any:
        if not isinstance(a, Counted) and not isinstance(b, Counted):
            return a if pick(a, b) else b
        first = a if isinstance(a, Counted) else Counted(b.beside(a))
        second = first.beside(b)
        return first if pick(first.q.magnitude, second.magnitude) else Counted(second)

    return chosen


def where(condition: Any, a: Any, b: Any) -> Any:
    """Both branches must be of one unit; a branch that is zero is of any. A number that is not zero is a number."""
    holds = condition.q.magnitude if isinstance(condition, Counted) else condition
    branches = [x if isinstance(x, Counted) else Counted(float(x)) for x in (a, b)]
    sized = [x for x in branches if x.q.magnitude != 0]
    if len(sized) == 2:
        sized[0].beside(sized[1])
    taken = branches[0] if holds else branches[1]
    return taken if not sized or taken.q.magnitude else Counted(UNITS.Quantity(0.0, sized[0].q.units))


def ceil(a: Any) -> Any:
    if isinstance(a, Logarithm):
        return Logarithm(math.ceil(a.value), a.unit)
    if isinstance(a, Counted):
        return Counted(UNITS.Quantity(float(math.ceil(a.q.to_base_units().magnitude)), a.q.to_base_units().units))
    return float(math.ceil(a))


def log2(a: Any) -> Any:
    return Logarithm(math.log2(a.q.magnitude), a.q.units) if isinstance(a, Counted) else math.log2(a)


HELPERS = {
    "maximum": choose(lambda a, b: a >= b), "minimum": choose(lambda a, b: a <= b), "where": where, "ceil": ceil,
    "log2": log2, "sqrt": lambda a: a**0.5,
}  # fmt: skip


def inputs(made: Formula, draw: random.Random, flags: bool = False) -> dict[str, Counted]:
    """A number for each input, in the glossary's unit; `flags`: inputs without a unit are sometimes 0."""
    given = {}
    for name in made.parameters:
        unit, number = term(name).unit_in(made.name), float(draw.randint(2, 60))
        if unit == "1" and flags and draw.random() < 0.3:
            number = 0.0
        given[name] = Counted(UNITS.Quantity(number, "" if unit == "1" else unit))
    return given


def tree(made: Formula) -> ast.Module:
    """The formula's function alone, without its decorator."""
    code = ast.parse(textwrap.dedent(inspect.getsource(made.function)))
    code.body[0].decorator_list = []  # type: ignore[attr-defined]
    return code


def function(code: ast.Module) -> Callable[..., Any]:
    """The function of a syntax tree, with this test's helpers for the formulas' own."""
    space: dict[str, Any] = dict(HELPERS)
    exec(compile(ast.fix_missing_locations(code), "<formula>", "exec"), space)  # noqa: S102, our own code
    return space[code.body[0].name]  # type: ignore[attr-defined,no-any-return]


def agrees(made: Formula, run: Callable[..., Any], draws: int = 12) -> bool:
    """Whether what comes out has the declared unit, for several draws (a choice hides a branch's zero)."""
    draw = random.Random(made.name)  # noqa: S311, not a secret
    wanted = UNITS.Quantity(1.0, "" if made.unit == "1" else made.unit)
    for _ in range(draws):
        try:
            found = run(**inputs(made, draw, flags=True))
        except (WrongUnits, TypeError, pint.errors.PintError):
            return False
        except (ZeroDivisionError, OverflowError, ValueError):
            continue
        found = found if isinstance(found, Counted) else Counted(float(found))
        if isinstance(found.q.magnitude, complex) or found.q.magnitude == 0:
            continue
        if found.q.dimensionality != wanted.dimensionality:
            return False
    return True


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_a_formula_comes_out_in_its_declared_unit(name: str) -> None:
    made = FORMULAS[name]
    assert agrees(made, function(tree(made))) == (name not in EXCEPTIONS), EXCEPTIONS.get(name, made.unit)


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_counted_units_change_no_value(name: str) -> None:
    """The numbers that come out are those of the formula itself: nothing above bends what it computes."""
    made = FORMULAS[name]
    given = inputs(made, random.Random(name))  # noqa: S311, not a secret
    found = function(tree(made))(**given)
    value = found.q.to_base_units().magnitude if isinstance(found, Counted) else float(found)
    plain = made.function(**{k: v.q.to_base_units().magnitude for k, v in given.items()})
    assert value == pytest.approx(float(plain), rel=1e-12)


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_the_glossary_gives_a_formula_the_unit_it_declares(name: str) -> None:
    assert term(name).unit == FORMULAS[name].unit


SLIPS = {ast.Add: ast.Mult, ast.Sub: ast.Div, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult}


def slips(made: Formula) -> Iterator[tuple[str, ast.Module]]:
    """The formula with one operator wrong, for each of its operators but that of `0 * size`, nothing either way."""
    whole = tree(made)
    for place, node in enumerate(ast.walk(whole)):
        if isinstance(node, ast.BinOp) and not (isinstance(node.left, ast.Constant) and node.left.value == 0):
            wrong = copy.deepcopy(whole)
            at = list(ast.walk(wrong))[place]
            at.op = SLIPS[type(node.op)]()  # type: ignore[attr-defined]
            yield f"{made.name}: {ast.unparse(at)}", wrong


def test_most_slips_of_one_operator_change_the_unit() -> None:
    """How sharp the units are. What they cannot see (a share, a flag, a count without a kind) properties must."""
    every = [(said, agrees(FORMULAS[n], function(code))) for n in sorted(FORMULAS) for said, code in slips(FORMULAS[n])]
    missed = [said for said, unseen in every if unseen]
    assert len(every) > 100
    assert len(missed) / len(every) < 0.45, "\n".join(missed)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("state_bytes", "def state_bytes(params, param_width, ways):\n    return params + param_width / ways"),
        ("kept", "def kept(channels, width):\n    return channels / width"),
        ("waiting_kept", "def waiting_kept(bytes_each, in_flight):\n    return bytes_each - (in_flight - 1)"),
        ("input_kept_apart", "def f(channels, stream_width, upcast_width):\n    return channels + stream_width"),
        ("rope_tables", "def f(seq_len, head_dim, width, tables):\n    return seq_len * width * tables"),
        ("upper_end", "def f(device, allocated, error, **rest):\n    return device + sqrt(allocated * error)"),
    ],
)  # fmt: skip
def test_a_wrong_formula_is_seen(name: str, wrong: str) -> None:
    assert not agrees(FORMULAS[name], function(ast.parse(wrong)))
