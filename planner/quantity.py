"""Numbers that remember where they come from.

A `Quantity` has a name, a value, a unit, and the formula and inputs that made it. It has no operators:
the only ways to make one are `given` (a fact or a choice, with its source or reason), a `@formula`,
`total` and `largest`. The value is a number or a NumPy array, so the same call serves one case and a search.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Union

import numpy as np

from planner.i18n import Said, said

Number = int | float | np.ndarray
Like = Union["Quantity", int, float, np.ndarray]

#: every formula of the product by its name
FORMULAS: dict[str, Formula] = {}


class Quantity:
    """A value with a name, a unit and a history. Build it by `given`, a formula, `total` or `largest`."""

    __slots__ = ("formula", "inputs", "name", "reason", "source", "unit", "value")

    def __init__(
        self,
        name: str,
        value: Number,
        unit: str,
        inputs: dict[str, Like] | None = None,
        formula: Formula | str | None = None,
        source: str | None = None,
        because: Said | None = None,
    ):
        self.name = name
        self.value = value
        self.unit = unit
        self.inputs = inputs or {}
        self.formula = formula
        self.source = source
        self.reason = because

    @property
    def because(self) -> str | None:
        """Its reason in the language in use."""
        return said(self.reason)

    def __repr__(self) -> str:
        return f"<{self.name} = {self.value} {self.unit}>"

    def __float__(self) -> float:
        return float(self.value)


def value_of(like: Like) -> Number:
    """The bare number or array of a Quantity or of a number."""
    return like.value if isinstance(like, Quantity) else like


def given(
    value: Like, unit: str, name: str, source: str | None = None, because: Said | None = None
) -> Quantity:
    """A fact with its source, or a choice with its reason."""
    return Quantity(name, value_of(value), unit, {}, None, source, because)


class Formula:
    """A pure function of named numbers, with the unit of its result and the work it comes from."""

    def __init__(self, function: Callable[..., Any], unit: str, source: str):
        self.function = function
        self.__wrapped__ = function
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self.unit = unit
        self.source = source
        self.parameters = tuple(inspect.signature(function).parameters)

    def __call__(self, called: str | None = None, because: Said | None = None, **inputs: Like) -> Quantity:
        bare = {k: v.value if isinstance(v, Quantity) else v for k, v in inputs.items()}
        return Quantity(
            called or self.name, self.function(**bare), self.unit, inputs, self, self.source, because
        )

    def __repr__(self) -> str:
        return f"<formula {self.name} [{self.unit}]>"


def formula(unit: str, source: str) -> Callable[[Callable[..., Any]], Formula]:
    """Declare a formula: the unit of its result and the key of its source in sources.toml."""

    def declare(function: Callable[..., Any]) -> Formula:
        made = Formula(function, unit, source)
        if FORMULAS.setdefault(made.name, made).function.__module__ != function.__module__:
            raise TypeError(f"two formulas are named {made.name}")
        return made

    return declare


def _gather(parts: Iterable[Quantity]) -> dict[str, Like]:
    """Parts by name; a name that occurs again is numbered, so that no part is lost. All have one unit."""
    named: dict[str, Like] = {}
    unit = None
    for part in parts:
        name, again = part.name, 2
        while name in named:
            name, again = f"{part.name} ({again})", again + 1
        named[name] = part
        if unit is not None and unit != part.unit:
            raise TypeError(f"parts of different units: {part.name} is in {part.unit}, others in {unit}")
        unit = part.unit
    return named


def total(name: str, parts: Iterable[Quantity], because: Said | None = None) -> Quantity:
    """The sum of parts of one unit."""
    named = _gather(parts)
    sum_: Any = 0.0
    for part in named.values():
        sum_ = sum_ + value_of(part)
    return Quantity(name, sum_, _unit(named), named, "total", None, because)


def largest(name: str, parts: Iterable[Quantity], because: Said | None = None) -> Quantity:
    """The largest of parts of one unit, element by element where they are arrays."""
    named = _gather(parts)
    value = functools.reduce(maximum, [part.value for part in named.values()])  # type: ignore[union-attr]
    return Quantity(name, value, _unit(named), named, "largest", None, because)


def binding(quantity: Quantity) -> Quantity:
    """Of a `largest`, the part that set it (the last, when several do). Single values only."""
    return max(reversed(quantity.inputs.values()), key=lambda part: float(value_of(part)))  # type: ignore[return-value]


def _unit(named: dict[str, Like]) -> str:
    return next(iter(named.values())).unit  # type: ignore[union-attr]


# The functions a formula may use, each for a number or an array. On single numbers they stay out of NumPy,
# which costs a microsecond a call.


_ARRAY = np.ndarray


def maximum(a: Any, b: Any) -> Any:
    """The larger of two."""
    if isinstance(a, _ARRAY) or isinstance(b, _ARRAY):
        return np.maximum(a, b)
    return a if a >= b else b


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two."""
    if isinstance(a, _ARRAY) or isinstance(b, _ARRAY):
        return np.minimum(a, b)
    return a if a <= b else b


def where(condition: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, else `b`."""
    if isinstance(condition, _ARRAY):
        return np.where(condition, a, b)
    return a if condition else b


def ceil(a: Any) -> Any:
    """The next whole number."""
    return np.ceil(a) if isinstance(a, _ARRAY) else float(-(-a // 1))


def sqrt(a: Any) -> Any:
    """The square root."""
    return np.sqrt(a) if isinstance(a, _ARRAY) else float(a**0.5)


def log2(a: Any) -> Any:
    """The logarithm to the base 2."""
    return np.log2(a) if isinstance(a, _ARRAY) else math.log2(a)


def pick(choice: Any, table: Mapping[str, float]) -> Any:
    """A name looked up in a small table; an array of names gives an array of numbers."""
    if isinstance(choice, str):
        return table[choice]
    return np.array([table[str(name)] for name in np.ravel(choice)]).reshape(np.shape(choice))
