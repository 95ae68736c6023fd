"""The expectations of packed cases: exact values, allowed errors, and the places of NaN and infinities."""

from __future__ import annotations

import numpy as np
from chip.compare import NUMBER, Array, Expected, classes_of
from nacre.compiler.validate.judge import Expectation
from nacre.dialect.types import F64, DType
from operator_harness import Example

MORE_BITS = 12
"""The bits of an exact value beyond those of a result of its dtype, at least."""
SHORT_BITS = 16
"""The bits of an allowed error, in f32, that are 0."""


def shorten(exact: Array, allowed: Array, dtype: DType) -> tuple[Array, Array]:
    """Returns exact values whose last bits are 0, so that they take less space when they are compressed, and allowed
    errors that cover those changes. They are greater than the given errors by less than a part in 100, and by at most
    2^-12 of the distance of neighbouring numbers of the dtype."""
    rounded = exact
    if dtype is not F64:
        lost = 52 - round(-np.log2(dtype.epsilon)) - MORE_BITS
        bits = np.ascontiguousarray(exact).view(np.int64).reshape(exact.shape)
        cut = (bits + (1 << (lost - 1)) & -(1 << lost)).view(np.float64)
        rounded = np.where(np.isfinite(exact) & np.isfinite(cut), cut, exact)
    with np.errstate(all="ignore"):
        moved = np.where(np.isfinite(exact), np.abs(rounded - exact), 0)
        moved = moved if allowed.ndim else np.max(moved, initial=0)
        short = np.nextafter(np.asarray(allowed + moved, np.float32), np.float32(np.inf))
    above = (short.view(np.int32) + ((1 << SHORT_BITS) - 1) & -(1 << SHORT_BITS)).view(np.float32)
    return rounded, np.where(np.isfinite(above) & (short >= np.finfo(np.float32).tiny), above, short)


def expect_case(item: Example) -> tuple[Expected, ...]:
    """Returns the results of an operator's reference with the tolerance of the case."""
    made = []
    for type, array in zip(item.operator.check(item.types, item.case.attributes), item.expected, strict=True):
        dtype = type.dtype
        if not dtype.is_float:
            made.append(Expected(dtype.name, array.astype(dtype.numpy), np.zeros(())))
            continue
        exact = array.astype(np.float64)
        # What the dtype cannot hold is infinite in it.
        with np.errstate(over="ignore"):
            rounded = array.astype(dtype.numpy).astype(np.float64)
        exact = np.where(np.isfinite(rounded), exact, rounded)
        scale = np.max(np.abs(exact), where=np.isfinite(exact), initial=float(np.finfo(np.float16).tiny))
        allowed = item.case.tolerance * dtype.epsilon * item.case.terms**0.5 * scale
        made.append(Expected(dtype.name, *shorten(exact, np.asarray(allowed), dtype)))
    return tuple(made)


def expect_judged(expectation: Expectation) -> Expected:
    """Returns what a judge admits."""
    name, exact = expectation.dtype.name, expectation.exact
    allowed = np.asarray(expectation.allowed)
    if allowed.size and (allowed == allowed.flat[0]).all():
        allowed = allowed.reshape(-1)[0]
    if not expectation.dtype.is_float:
        return Expected(name, exact, np.asarray(allowed))
    exact, allowed = shorten(exact.astype(np.float64), allowed, expectation.dtype)
    classes = None if np.array_equal(expectation.classes, classes_of(exact)) else expectation.classes
    zeros = None if (expectation.zeros & 4).all() else expectation.zeros
    if classes is not None:
        assert (classes & (2 * NUMBER - 1)).all(), "an element without a class"
    return Expected(name, exact, allowed, classes, zeros)
