"""Assertions about sizes. One that restricts a dim gives the dim new bounds, a divisor, or the size that it equals, so
that each call of the artifact checks it:

    arg0_0 >= 4                     dim arg0_0 in 4..
    arg0_0 - arg0_0//2*2 == 0       dim arg0_0 multiple 2
    arg1_0 == arg0_0 + 1            the second argument is f32[arg0_0 + 1]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NoReturn

from .....dialect.dims import (
    DimError,
    FloorDiv,
    Poly,
    Size,
    Symbol,
    add,
    bounds,
    ceil_divide,
    divide_exactly,
    multiply,
    substitute,
    symbols,
)
from .....dialect.graph import Constant, Node, Value
from .use import Use


class DimsRestricted(Exception):  # noqa: N818  # it is not an error: the file is read again
    """An assertion holds for these values of dims alone."""

    def __init__(self, values: Mapping[str, Size]) -> None:
        super().__init__(values)
        self.values = values


def assert_sizes(use: Use) -> None:
    """Checks the condition of `shape_assertion`. Raises DimsRestricted if it holds for some values of the dims."""
    condition = use.x
    if condition.array is not None:
        if not bool(condition.array):
            use.fail(f"asserts a relation of dims that does not hold{_reason(use)}", code="failed-assertion")
        return
    found = _relation(use, condition.value)
    if found is None:
        _refuse(use, "asserts a relation that is computed in a call")
    relation, left, right = found
    values = _restrict(relation, add(left, multiply(-1, right)))
    if values is None:
        _refuse(
            use, f"asserts `{left} {_SIGNS[relation]} {right}`, which no bound, divisor or equality of a dim states"
        )
    raise DimsRestricted(values)


def _refuse(use: Use, message: str) -> NoReturn:
    use.fail(f"{message}{_reason(use)}", code="data-dependent")


def _reason(use: Use) -> str:
    text = " ".join(str(use.record.attributes.get("error_message", "")).split())
    return f": {text}" if text else ""


_SIGNS: Mapping[str, str] = {"equal": "==", "greater_equal": ">=", "greater": ">", "less_equal": "<=", "less": "<"}


def _relation(use: Use, value: Value | None) -> tuple[str, Size, Size] | None:
    """Returns the comparison of two sizes that makes a value."""
    writer = use.g
    nodes = {output: node for node in (*writer.prologue, *writer.builder.nodes) for output in node.outputs}
    node = nodes.get(value) if value is not None else None
    if node is None or node.op not in _SIGNS:
        return None
    left, right = (_size(nodes, each) for each in node.inputs)
    return None if left is None or right is None else (node.op, left, right)


def _size(nodes: Mapping[Value, Node], value: Value) -> Size | None:
    """Returns the size that a scalar holds."""
    node = nodes.get(value)
    if node is None:
        return None
    if node.op == "cast":
        return _size(nodes, node.inputs[0])
    if node.op == "size_value":
        size = node.attribute("size")
        return size if isinstance(size, (int, Poly)) else None
    stored = node.attribute("value") if node.op == "constant" else None
    return int(stored.array.item()) if isinstance(stored, Constant) and stored.array is not None else None


def _restrict(relation: str, difference: Size) -> Mapping[str, Size] | None:
    """Returns values of dims for which the difference of two sizes is in the relation to zero."""
    rules: Mapping[str, Callable[[Size], Mapping[str, Size] | None]] = {
        "equal": lambda x: _multiple(x) or _multiple(multiply(-1, x)) or _equal(x),
        "greater_equal": _bounded,
        "greater": lambda x: _bounded(add(x, -1)),
        "less_equal": lambda x: _bounded(multiply(-1, x)),
        "less": lambda x: _bounded(add(multiply(-1, x), -1)),
    }
    try:
        values = rules[relation](difference)
        low, high = (0, 0) if values is None else bounds(substitute(difference, values))
    except DimError:
        return None
    holds = {"equal": low == high == 0, "greater_equal": low >= 0, "greater": low > 0}
    holds |= {"less_equal": high <= 0, "less": high < 0}
    return values if holds[relation] else None


def _multiple(difference: Size) -> Mapping[str, Size] | None:
    """Returns dim s as a multiple of d, for the difference s - d * (s // d)."""
    for symbol in symbols(difference):
        for atom in _quotients(difference, symbol):
            d = atom.denominator
            remainder = add(symbol.size, multiply(-1, multiply(d, Poly(((((atom, 1),), 1),)))))
            if isinstance(d, int) and symbol.multiple == 1 and remainder == difference:
                low = ceil_divide(symbol.low, d)
                assert isinstance(low, int), low
                return {symbol.name: replace(symbol, low=low * d, multiple=d).size}
    return None


def _quotients(size: Size, symbol: Symbol) -> list[FloorDiv]:
    atoms = [atom for monomial, _ in size.terms for atom, _ in monomial] if isinstance(size, Poly) else []
    return [atom for atom in atoms if isinstance(atom, FloorDiv) and atom.numerator == symbol.size]


def _equal(difference: Size) -> Mapping[str, Size] | None:
    """Returns a dim as the size that makes the difference zero: the dim that the others restrict least."""
    for symbol in sorted(symbols(difference), key=lambda each: each.name, reverse=True):
        without = substitute(difference, {symbol.name: 0})
        factor = divide_exactly(add(difference, multiply(-1, without)), symbol.size)
        if factor not in (1, -1) or symbol in symbols(without):
            continue
        other = multiply(-factor, without)
        if bounds(other)[0] >= symbol.low and bounds(other)[1] <= symbol.high:
            return {symbol.name: other}
    return None


def _bounded(difference: Size) -> Mapping[str, Size] | None:
    """Returns the only dim of a difference with the bounds that keep it from being negative."""
    found = list(symbols(difference))
    if len(found) != 1:
        return None
    (symbol,) = found
    rest = substitute(difference, {symbol.name: 0})
    factor = divide_exactly(add(difference, multiply(-1, rest)), symbol.size)
    if not isinstance(factor, int) or not isinstance(rest, int) or factor == 0:
        return None
    if factor > 0:
        return {symbol.name: replace(symbol, low=max(symbol.low, -(rest // factor))).size}
    return {symbol.name: replace(symbol, high=min(symbol.high, rest // -factor)).size}
