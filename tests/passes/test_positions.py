"""Masks that compare sums of positions: sums that reach the last integer of a dtype, and sums beyond it."""

from __future__ import annotations

import pytest
from nacre.dialect.dims import Symbol
from nacre.dialect.types import I8, U8, DType
from nacre.passes.simplify.mask_rules import _Positions

T = Symbol("T", 0, 100).size


@pytest.mark.parametrize(
    ("terms", "constant", "dtype", "fits"),
    [
        ((), 127, I8, True), ((), 128, I8, False), ((), -128, I8, True), ((), -129, I8, False),
        ((), 0, U8, True), ((), -1, U8, False), ((), 255, U8, True), ((), 256, U8, False),
        # A positive factor has its least value at position 0, and a negative one its greatest.
        (((1, 1, 9),), -128, I8, True), (((1, 1, 9),), -129, I8, False),
        (((1, -1, 9),), 127, I8, True), (((1, -1, 9),), 128, I8, False),
        (((1, 1, 9),), 119, I8, True), (((1, 1, 9),), 120, I8, False),
        (((1, -1, 9),), -120, I8, True), (((1, -1, 9),), -121, I8, False),
        (((1, 2, 9), (2, -3, 5)), 111, I8, True), (((1, 2, 9), (2, -3, 5)), 112, I8, False),
        (((1, 2, 9), (2, -3, 5)), -116, I8, True), (((1, 2, 9), (2, -3, 5)), -117, I8, False),
        # An axis of no elements has no position, and one of symbolic size counts with its greatest one.
        (((1, 50, 0), (2, 1, 1)), 127, I8, True),
        (((1, 1, T),), 28, I8, True), (((1, 1, T),), 29, I8, False),
    ],
)  # fmt: skip
def test_range(terms: tuple[tuple[int, int, int], ...], constant: int, dtype: DType, fits: bool) -> None:
    assert _Positions(terms, constant).fits(dtype) == fits
