"""Remainders in vectors are those of numpy to the bit: small and large quotients, whole ones, and any bits at all."""

from __future__ import annotations

import platform
from functools import cache

import numpy as np
import pytest
from nacre.compiler.codegen.jit import Run, build_functions
from nacre.compiler.targets.target import parse_targets
from nacre.dialect.graph import Module
from nacre.dialect.types import F32, F64, Array, DType, TensorType
from operator_harness import build_function

SIZE = 1003
BITS = {F32: np.int32, F64: np.int64}


@cache
def divided(dtype: DType, cpu: str = "native") -> Run:
    type = TensorType(dtype, (SIZE,))
    function = build_function((type, type), lambda b, x: [b.remainder(*x), b.floor_divide(*x)])
    (target,) = parse_targets(cpu)
    return build_functions(Module("remainders", functions=(function,)), level=2, target=target)["f"]


def numbers(kind: str, dtype: DType) -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    x, y = (random.standard_normal(SIZE) for _ in range(2))
    if kind == "eighths":
        x, y = np.round(x * 100) / 8, np.round(y * 10) / 8
    if kind == "large":
        x = x * 1e6
    if kind == "nearly whole":
        y = (np.abs(y) + 1).astype(dtype.numpy)
        x = (random.integers(1, 1000, SIZE) * y).astype(dtype.numpy)
        x = np.where(random.random(SIZE) < 0.5, np.nextafter(x, dtype.numpy.type(0)), x)
    if kind == "any bits":
        ends = np.iinfo(BITS[dtype])
        x, y = (random.integers(ends.min, ends.max, SIZE, BITS[dtype]).view(dtype.numpy) for _ in range(2))
    return x.astype(dtype.numpy), y.astype(dtype.numpy)


@pytest.mark.parametrize("dtype", BITS, ids=str)
@pytest.mark.parametrize("kind", ["ordinary", "eighths", "large", "nearly whole", "any bits"])
def test_remainder_and_quotient_are_exact(kind: str, dtype: DType) -> None:
    compare(kind, dtype, "native")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="code for x86-64")
@pytest.mark.parametrize("dtype", BITS, ids=str)
def test_they_are_exact_without_a_fused_instruction(dtype: DType) -> None:
    compare("nearly whole", dtype, "x86-64-v2")


def compare(kind: str, dtype: DType, cpu: str) -> None:
    x, y = numbers(kind, dtype)
    with np.errstate(all="ignore"):
        expected = np.mod(x, y), np.floor_divide(x, y)
    for actual, wanted in zip(divided(dtype, cpu)([x, y]), expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)
        known = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(actual)[known], np.signbit(wanted)[known])
