"""Rows in order by every method: with ties, NaN, zeros of both signs and every width of key."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from nacre.compiler.codegen.jit import Run, build_functions
from nacre.dialect.dims import Symbol
from nacre.dialect.graph import Function, Module
from nacre.dialect.ops import OPERATORS
from nacre.dialect.ops.support.row_order import choose_method
from nacre.dialect.ops.support.selecting import BLOCK, SLACK, Extraction, Selection
from nacre.dialect.ops.support.sorting import Counting, Method, Order, Radix
from nacre.dialect.types import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Array,
    DType,
    TensorType,
)
from operator_harness import build_function

SHORT, LONG = 96, 700
"""The length of a counted row, and of one in order by radix, whose indices have two bytes."""
DTYPES = (F16, BF16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, BOOL)
N = Symbol("n", low=0, high=1 << 20)
FEW = Symbol("few", low=0, high=100)
SELECTIONS = ((0, True), (3, True), (3, False), (50, True))


def sorting(name: str, dtype: DType, size: int, descending: bool) -> Function:
    type = TensorType(dtype, (2, size))
    return build_function((type,), lambda b, x: [b.argsort(*x, descending=descending)], name)


def selecting(name: str, k: int, largest: bool, dtype: DType = F32, n: Symbol = N) -> Function:
    type = TensorType(dtype, (2, n.size))
    return build_function((type,), lambda b, x: b.apply("top_k", x, {"k": k, "largest": largest}), name)


@cache
def functions(level: int) -> dict[str, Run]:
    made = [
        sorting(f"sort_{dtype}_{LONG}_{descending}", dtype, LONG, descending)
        for dtype in DTYPES
        for descending in (False, True)
    ]
    made += [sorting(f"sort_f32_{SHORT}_True", F32, SHORT, True)]
    made += [selecting(f"few_{dtype}", 5, dtype in (F32, I64, U8), dtype, FEW) for dtype in DTYPES]
    made += [selecting(f"top_{k}_{largest}", k, largest) for k, largest in SELECTIONS]
    return build_functions(Module("sorting", (N, FEW), functions=tuple(made)), level=level)


def elements(dtype: DType, size: int) -> Array:
    """Many ties, the ends of the dtype, and of floats what compares in its own way."""
    random = np.random.default_rng(size)
    if dtype is BOOL:
        return random.random((2, size)) < 0.5
    if dtype.is_float:
        values = np.round(random.standard_normal((2, size)) * 100) / 8
        special = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-7, -1e-7]
        chosen = random.choice(special, (2, size))
        return np.asarray(np.where(random.random((2, size)) < 0.2, chosen, values)).astype(dtype.numpy)
    ends = np.iinfo(dtype.numpy)
    large = random.integers(ends.min, ends.max, (2, size), dtype.numpy, endpoint=True)
    return np.asarray(
        np.where(random.random((2, size)) < 0.5, large, random.integers(0, 5, (2, size)).astype(dtype.numpy))
    )


@pytest.mark.parametrize("level", [0, 2])
def test_rows_are_in_the_order_of_the_reference(level: int) -> None:
    for name, function in functions(level).items():
        if not name.startswith("sort_"):
            continue
        _, dtype, size, descending = name.split("_")
        x = elements(next(d for d in DTYPES if str(d) == dtype), int(size))
        expected = OPERATORS["argsort"].reference(x, axis=-1, descending=descending == "True")
        np.testing.assert_array_equal(function([x])[0], expected, name)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_first_few_are_those_of_the_reference(selection: tuple[int, bool], level: int) -> None:
    k, largest = selection
    full = k + SLACK
    # Around a block, around the length at which the buffer is full, and rows that fill it again and again.
    for size in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, full - 1, full, full + 1, full + BLOCK, 5000):
        x = elements(F32, size)
        for rows in (x, np.sort(x, axis=-1), np.sort(x, axis=-1)[:, ::-1].copy(), np.zeros_like(x)):
            values, places = functions(level)[f"top_{k}_{largest}"]([rows])
            expected = OPERATORS["top_k"].reference(rows, k=k, axis=-1, largest=largest)
            np.testing.assert_array_equal(places, expected[1], f"{size}")
            # To the bit, so that the sign of a zero shows.
            np.testing.assert_array_equal(values.view(np.int32), expected[0].view(np.int32), f"{size}")


@pytest.mark.parametrize("level", [0, 2])
def test_extracted_elements_are_those_of_the_reference(level: int) -> None:
    for dtype in DTYPES:
        function, largest = functions(level)[f"few_{dtype}"], dtype in (F32, I64, U8)
        for size in (0, 1, 4, 5, 33, 100):
            x = elements(dtype, size)
            # The greatest elements alone: NaN, or the end of the dtype, whose key is the last one.
            ordered = OPERATORS["sort"].reference(x, axis=-1, descending=largest)
            for rows in (x, np.repeat(ordered[:, -1:], size, 1), np.zeros_like(x)):
                expected = OPERATORS["top_k"].reference(rows, k=5, axis=-1, largest=largest)
                values, indices = function([rows])
                np.testing.assert_array_equal(indices, expected[1], f"{dtype} {size}")
                assert values.tobytes() == expected[0].tobytes(), (dtype, size)


@pytest.mark.parametrize(
    ("length", "k", "method"),
    [(64, 64, Counting), (1000, 1000, Radix), (64, 8, Extraction), (1000, 50, Extraction), (32000, 50, Selection)],
)
def test_the_method_fits_the_sizes(length: int, k: int, method: type[Method]) -> None:
    assert type(choose_method(Order(F32, length, True), k)) is method


def test_a_row_along_another_axis() -> None:
    type = TensorType(F32, (3, 200, 2))
    function = build_function((type,), lambda b, x: [b.sort(*x, axis=1), *b.apply("top_k", x, {"k": 2, "axis": 1})])
    x = np.random.default_rng(0).standard_normal((3, 200, 2)).astype(np.float32)
    values, first, _ = build_functions(Module("axis", functions=(function,)), level=2)["f"]([x])
    np.testing.assert_array_equal(values, np.sort(x, axis=1))
    np.testing.assert_array_equal(first, -np.sort(-x, axis=1)[:, :2])
