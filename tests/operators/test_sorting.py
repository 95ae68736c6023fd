"""Rows in order: by counting, by radix and by selection, with ties, NaN, zeros of both signs and every width of key."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from nacre.compiler.codegen.jit import Run, build_functions
from nacre.dialect.dims import Symbol
from nacre.dialect.graph import Function, Module
from nacre.dialect.ops import OPERATORS
from nacre.dialect.ops.support.sorting import BLOCK, COUNTED, SLACK
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

SHORT, LONG = (COUNTED, COUNTED + 1), 700
"""Rows that are counted are at most so long; a long one has places of two bytes."""
DTYPES = (F16, BF16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, BOOL)
N = Symbol("n", low=0, high=1 << 20)
SELECTIONS = ((0, True), (3, True), (3, False), (50, True))


def sorting(name: str, dtype: DType, size: int, descending: bool) -> Function:
    type = TensorType(dtype, (2, size))
    return build_function((type,), lambda b, x: [b.argsort(*x, descending=descending)], name)


def selecting(name: str, k: int, largest: bool) -> Function:
    type = TensorType(F32, (2, N.size))
    return build_function((type,), lambda b, x: b.apply("top_k", x, {"k": k, "largest": largest}), name)


@cache
def functions(level: int) -> dict[str, Run]:
    made = [
        sorting(f"sort_{dtype}_{LONG}_{descending}", dtype, LONG, descending)
        for dtype in DTYPES
        for descending in (False, True)
    ]
    made += [sorting(f"sort_f32_{size}_True", F32, size, True) for size in SHORT]
    made += [selecting(f"top_{k}_{largest}", k, largest) for k, largest in SELECTIONS]
    return build_functions(Module("sorting", (N,), functions=tuple(made)), level=level)


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
        kind, dtype, size, descending = (*name.split("_"), "")[:4]
        if kind != "sort":
            continue
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


def test_a_row_along_another_axis() -> None:
    type = TensorType(F32, (3, 200, 2))
    function = build_function((type,), lambda b, x: [b.sort(*x, axis=1), *b.apply("top_k", x, {"k": 2, "axis": 1})])
    x = np.random.default_rng(0).standard_normal((3, 200, 2)).astype(np.float32)
    values, first, _ = build_functions(Module("axis", functions=(function,)), level=2)["f"]([x])
    np.testing.assert_array_equal(values, np.sort(x, axis=1))
    np.testing.assert_array_equal(first, -np.sort(-x, axis=1)[:, :2])
