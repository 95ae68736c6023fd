"""Slices that a loop reads where they are: those that are consecutive in memory, and no others."""

from __future__ import annotations

import pytest
from nacre.compiler.lower.nodes import Input
from nacre.compiler.lower.scanned import scanned_slice
from nacre.compiler.lower.storage import Sliced
from nacre.dialect.graph import Node, Value
from nacre.dialect.types import F32, I64, TensorType

X, T = ("x", "t")


def slice_of(shape: tuple[int, ...], axis: int, *, count: int = 5, mode: str = "clamp") -> object:
    x, t = Value(X, TensorType(F32, shape)), Value(T, TensorType(I64, ()))
    rest = Value("y", TensorType(F32, (*shape[:axis], *shape[axis:][1:])))
    return scanned_slice(Node("gather", (x, t), (rest,), (("axis", axis), ("mode", mode))), {X: Input(3)}, {T: count})


@pytest.mark.parametrize(("shape", "axis"), [((5, 2, 3), 0), ((1, 5, 6), 1), ((1, 1, 5, 6), 2), ((1, 5, 6), -2)])
def test_a_consecutive_slice_is_read_where_it_is(shape: tuple[int, ...], axis: int) -> None:
    assert slice_of(shape, axis) == Sliced(Input(3), T, 24)


@pytest.mark.parametrize(("shape", "axis"), [((2, 5, 3), 1), ((1, 2, 5, 3), 2), ((2, 1, 5, 3), 2), ((3, 5), -1)])
def test_a_slice_along_an_inner_axis_is_not(shape: tuple[int, ...], axis: int) -> None:
    assert slice_of(shape, axis) is None


def test_the_loop_must_end_with_the_axis() -> None:
    assert slice_of((5, 6), 0, count=6) is None and slice_of((5, 6), 0, mode="error") is None
    assert slice_of((5, 6), 0, count=4) == Sliced(Input(3), T, 24)
