"""Symbolic sizes of a program, as sizes of the graph.

PyTorch writes sizes as expressions of SymPy. Their symbols have ranges, which become those of the dims.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....dialect.dims import (
    INFINITY,
    DimError,
    Size,
    Symbol,
    bounds,
    divide_exactly,
    floor_divide,
    maximum,
    minimum,
    product,
)


@dataclass(slots=True)
class Sizes:
    """The dims of a program. By symbol, `names` are the names that the author of the program chose, and `ranges` the
    bounds."""

    names: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    dims: dict[str, Symbol] = field(default_factory=dict)
    bound: bool = False  # all arguments have been read: no further dim may appear
    limits: Mapping[str, Size] = field(default_factory=dict)  # bounds of the sizes that depend on data
    found: dict[str, Size] = field(default_factory=dict)  # sizes that depend on data that are known
    is_deciding: bool = False

    def of(self, value: Any) -> Size:
        """Returns an `int` or a `SymInt` as a size. Raises DimError for an unsupported expression."""
        if isinstance(value, int):
            return int(value)
        return self._read(value.node.expr)

    def bind(self, described: Sequence[Any], shape: Sequence[Size]) -> None:
        """Gives the symbols of a shape that depends on data the sizes that are found, as those of a constant mask."""
        for size, known in zip(described, shape, strict=True):
            if not isinstance(size, int) and size.node.expr.is_Symbol and str(size.node.expr) not in self.dims:
                self.found[str(size.node.expr)] = known

    def decide(self, expression: Any) -> bool | None:
        """Returns True if a comparison holds for all values of the dims, False if it holds for none, None otherwise."""
        kind = type(expression).__name__
        if kind in ("BooleanTrue", "BooleanFalse"):
            return kind == "BooleanTrue"
        if kind not in _COMPARISONS:
            return None
        self.is_deciding = True
        try:
            low, high = bounds(self._read(expression.args[0]) - self._read(expression.args[1]))
        finally:
            self.is_deciding = False
        return _COMPARISONS[kind](low, high)

    def _symbol(self, name: str) -> Size:
        if name in self.found:
            return self.found[name]
        if name in self.limits:
            limit = self.limits[name]
            if not self.is_deciding:
                return limit
            # A condition holds for every number of elements up to the bound.
            return Symbol(name, 0, limit if isinstance(limit, int) else bounds(limit)[1]).size
        if name not in self.dims:
            if self.bound:
                raise DimError(f"the size `{name}` is computed from data in a call")
            low, high = self.ranges.get(name, (0, INFINITY))
            word = re.sub(r"\W+", "_", self.names.get(name, name), flags=re.ASCII).strip("_") or name
            taken = {symbol.name for symbol in self.dims.values()}
            chosen, number = word, 1
            while chosen in taken:
                number += 1
                chosen = f"{word}_{number}"
            self.dims[name] = Symbol(chosen, max(low, 0), min(high, INFINITY))
        return self.dims[name].size

    def _read(self, expression: Any) -> Size:
        kind = type(expression).__name__
        if expression.is_Integer:
            return int(expression)
        if expression.is_Symbol:
            return self._symbol(str(expression))
        if kind == "Mul":
            return self._product(expression)
        parts = [self._read(part) for part in expression.args] if kind in _RULES else []
        if kind == "Pow" and isinstance(parts[1], int) and parts[1] < 0:
            raise DimError(f"the size {expression} is a fraction")
        if kind in _RULES:
            return _RULES[kind](*parts)
        raise DimError(f"the size {expression} has no equivalent: {kind}")

    def _product(self, expression: Any) -> Size:
        """Returns a product. Its constant factor may be a fraction, as in s/2, if the product is always an integer."""
        above, below = expression.as_numer_denom()
        if below == 1:
            return product(self._read(part) for part in expression.args)
        found = divide_exactly(self._read(above), self._read(below))
        if found is None:
            raise DimError(f"the size {expression} may be a fraction")
        return found


def _modulo(left: Size, right: Size) -> Size:
    return left - floor_divide(left, right) * right


def _power(base: Size, exponent: Size) -> Size:
    assert isinstance(exponent, int), exponent
    return product([base] * exponent)


def _fold(function: Callable[[Size, Size], Size], parts: tuple[Size, ...]) -> Size:
    result = parts[0]
    for part in parts[1:]:
        result = function(result, part)
    return result


def _sum(*parts: Size) -> Size:
    return _fold(lambda a, b: a + b, parts)


def _decided(true: bool, false: bool) -> bool | None:
    return True if true else False if false else None


_COMPARISONS: Mapping[str, Callable[[int, int], bool | None]] = {
    "Equality": lambda low, high: _decided(low == high == 0, low > 0 or high < 0),
    "Unequality": lambda low, high: _decided(low > 0 or high < 0, low == high == 0),
    "GreaterThan": lambda low, high: _decided(low >= 0, high < 0),
    "StrictGreaterThan": lambda low, high: _decided(low > 0, high <= 0),
    "LessThan": lambda low, high: _decided(high <= 0, low > 0),
    "StrictLessThan": lambda low, high: _decided(high < 0, low >= 0),
}
"""Rules for the bounds of the difference of both sides, by the class of a comparison."""

_RULES: Mapping[str, Callable[..., Size]] = {
    "Add": _sum,
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": floor_divide,
    "CleanDiv": floor_divide,
    "CeilDiv": lambda x, y: floor_divide(x + y - 1, y),
    "Mod": _modulo,
    "PythonMod": _modulo,
    "ModularIndexing": lambda x, y, z: _modulo(floor_divide(x, y), z),
    "Max": lambda *parts: _fold(maximum, parts),
    "Min": lambda *parts: _fold(minimum, parts),
    "Identity": lambda x: x,
}
"""Rules by the class of an expression."""
