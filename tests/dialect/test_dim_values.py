"""Sizes are simplified when they are made: each means what it says, for every value of the dims in small ranges."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping

import pytest
from nacre.dialect.dims import (
    INFINITY,
    Size,
    Symbol,
    add,
    at_least,
    bounds,
    ceil_divide,
    divide_exactly,
    evaluate,
    floor_divide,
    maximum,
    minimum,
    multiply,
)

OPERATIONS: Mapping[str, tuple[Callable[[Size, Size], Size], Callable[[int, int], int]]] = {
    "add": (add, operator.add),
    "multiply": (multiply, operator.mul),
    "floor_divide": (floor_divide, operator.floordiv),
    "ceil_divide": (ceil_divide, lambda x, y: -(-x // y)),
    "minimum": (minimum, min),
    "maximum": (maximum, max),
}
RANGES = [(0, 4, 1), (1, 4, 1), (0, 3, 1), (4, 4, 1), (2, 9, 1), (0, 12, 4), (8, 16, 8)]
"""The least and greatest value of a dim, and what it is a multiple of: around the numbers that it is divided by."""


def values(symbol: Symbol) -> range:
    return range(-(-symbol.low // symbol.multiple) * symbol.multiple, int(symbol.high) + 1, symbol.multiple)


def operands(symbol: Symbol) -> Iterator[Size]:
    t = symbol.size
    yield from (t, t + 1, 2 * t, 3 * t + 1, t * t, add(multiply(-1, t), 9), floor_divide(t, 4), 4)


@pytest.mark.parametrize("range_of", RANGES, ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_one_dim(name: str, range_of: tuple[int, int, int]) -> None:
    make, expected = OPERATIONS[name]
    symbol = Symbol("T", *range_of)
    rights: list[Size] = [1, 2, 3, 4, 5, 8, 16, symbol.size + 1, symbol.size + 4]
    for left, right in itertools.product(operands(symbol), rights):
        size = make(left, right)
        low, high = bounds(size)
        for value in values(symbol):
            dims = {"T": value}
            wanted = expected(evaluate(left, dims), evaluate(right, dims))
            assert evaluate(size, dims) == wanted, (left, right, value)
            assert low <= wanted <= high, (left, right, value)


@pytest.mark.parametrize("name", OPERATIONS)
def test_two_dims(name: str) -> None:
    make, expected = OPERATIONS[name]
    t, s = Symbol("T", 0, 5), Symbol("S", 1, 4)
    lefts: list[Size] = [t.size, t.size * s.size, t.size + s.size, add(t.size, multiply(-1, s.size)), s.size]
    rights: list[Size] = [s.size, s.size + 1, 2 * s.size, s.size * s.size]
    for left, right in itertools.product(lefts, rights):
        size = make(left, right)
        for one, two in itertools.product(values(t), values(s)):
            dims = {"T": one, "S": two}
            wanted = expected(evaluate(left, dims), evaluate(right, dims))
            assert evaluate(size, dims) == wanted, (left, right, dims)


@pytest.mark.parametrize("range_of", RANGES, ids=str)
def test_known_facts_hold(range_of: tuple[int, int, int]) -> None:
    symbol = Symbol("T", *range_of)
    for left, right in itertools.product(operands(symbol), operands(symbol)):
        quotient = None if right == 0 else divide_exactly(left, right)
        known = at_least(left, right)
        for value in values(symbol):
            x, y = (evaluate(size, {"T": value}) for size in (left, right))
            assert not known or x >= y, (left, right, value)
            assert quotient is None or evaluate(quotient, {"T": value}) * y == x, (left, right, value)


def test_bounds_beyond_the_largest_number() -> None:
    """Parts of a size that leave the range of 64 bits have exact bounds: none is cut off before a subtraction or a
    division."""
    t, s = Symbol("T", 1, 1 << 40).size, Symbol("S", 1, INFINITY).size
    square = multiply(t, t)
    cube = multiply(square, t)
    for size in (add(square, -1), floor_divide(cube, 1 << 50), add(s, s), add(s, -1)):
        assert bounds(size)[1] == INFINITY, size
    assert bounds(add(multiply(s, t), multiply(-1, multiply(s, s)))) == (-INFINITY, INFINITY)
    assert bounds(floor_divide(square, 1 << 50)) == (0, 1 << 30)
    assert bounds(floor_divide(s, 4)) == (0, (1 << 61) - 1)
    assert bounds(floor_divide(cube, INFINITY + 1)) == (0, (1 << 58) - 1)
    assert bounds(minimum(add(cube, -1), 7)) == (0, 7)
    assert bounds(maximum(add(cube, -7), 7))[1] == INFINITY
    assert not at_least(1 << 61, floor_divide(cube, 2))
    assert evaluate(floor_divide(square, INFINITY + 1), {"T": 1 << 40}) == (1 << 80) // (INFINITY + 1)
