"""Floats of 8 bits in compiled code: every code is read, and every boundary between two rounded, as the reference does
it, at all levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kernel_harness import Written, run_kernels
from nacre.dialect.emitter import identity
from nacre.dialect.ops.support.conversion import cast_array
from nacre.dialect.types import BF16, F16, F32, F64, STORAGE, Array, DType, TensorType

WIDE = (F16, BF16, F32, F64)
LEVELS = (0, 2)


def cast_kernel(source: DType, target: DType, size: int) -> Written:
    def write(e: Any, x: Any) -> Sequence[Any]:
        return [e.map(TensorType(target, (size,)), [(x, identity(1))], lambda s, v: s.cast(v, target))]

    return Written([TensorType(source, (size,))], write)


def corners(source: DType, target: DType) -> Array:
    """Numbers of the source: all that lie at a boundary of the target, their neighbours, and random bits."""
    codes = np.arange(256, dtype=np.uint8).view(target.numpy).astype(np.float64)
    known = np.unique(codes[np.isfinite(codes)])
    near = np.concatenate([known, (known[1:] + known[:-1]) / 2]).astype(source.numpy)
    ups, downs = (np.nextafter(near, np.asarray(to, near.dtype)) for to in (np.inf, -np.inf))
    width = source.bytes
    random = np.random.default_rng(0).integers(0, 256, 100_000 * width, np.uint8).view(source.numpy)
    special = np.asarray([np.nan, np.inf, -np.inf, 0.0, -0.0, 464.0, 465.0, 61440.0, 3e38, 1e-45, 1e-310])
    with np.errstate(over="ignore"):
        return np.concatenate([near, ups, downs, random, special.astype(source.numpy)])


@pytest.mark.parametrize("level", LEVELS)
def test_every_code_is_read(level: int) -> None:
    codes = np.arange(256, dtype=np.uint8)
    pairs = [(source, target) for source in STORAGE for target in WIDE]
    run = run_kernels({f"{a}_{b}": cast_kernel(a, b, 256) for a, b in pairs}, level=level)
    for a, b in pairs:
        (actual,) = run[f"{a}_{b}"]([codes.view(a.numpy)])
        expected = codes.view(a.numpy).astype(b.numpy)
        assert np.array_equal(actual.astype(np.float64), expected.astype(np.float64), equal_nan=True), (a, b)
        known = ~np.isnan(expected)
        assert np.array_equal(np.signbit(actual)[known], np.signbit(expected)[known]), (a, b)


@pytest.mark.parametrize("level", LEVELS)
def test_numbers_are_rounded_as_by_the_reference(level: int) -> None:
    given = {(a, b): corners(a, b) for a in WIDE for b in STORAGE}
    run = run_kernels({f"{a}_{b}": cast_kernel(a, b, len(x)) for (a, b), x in given.items()}, level=level)
    for (a, b), x in given.items():
        (actual,) = run[f"{a}_{b}"]([x])
        with np.errstate(all="ignore"):
            expected = cast_array(x, b)
        nan = np.isnan(expected)
        assert np.array_equal(np.isnan(actual), nan), (a, b)
        assert np.array_equal(actual[~nan].view(np.uint8), expected[~nan].view(np.uint8)), (a, b)


@pytest.mark.parametrize("level", LEVELS)
def test_one_becomes_the_other(level: int) -> None:
    codes = np.arange(256, dtype=np.uint8)
    pairs = [(a, b) for a in STORAGE for b in STORAGE if a is not b]
    run = run_kernels({f"{a}_{b}": cast_kernel(a, b, 256) for a, b in pairs}, level=level)
    for a, b in pairs:
        x = codes.view(a.numpy)
        (actual,) = run[f"{a}_{b}"]([x])
        assert actual.dtype == b.numpy and ml_dtypes.finfo(actual.dtype).bits == 8
        assert np.array_equal(actual.astype(np.float32), cast_array(x, b).astype(np.float32), equal_nan=True)
