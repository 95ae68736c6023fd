"""Running sums and products along any axis: vectors of columns, squares of rows, scalars; on watched memory."""

from __future__ import annotations

import warnings
from typing import Any

import nacre
import numpy as np
import pytest
from differential.directed import LEVELS, assert_right, case
from differential.maker import Graph
from differential.native import Level

LENGTHS = [{"L": n} for n in (1, 3, 8, 9, 31, 64, 65)]


def running(axis: int, op: str = "cumsum", **attributes: Any) -> Any:
    return lambda b, x: b.apply(op, [x], {"axis": axis, **attributes})[0]


def decayed(b: Any, decay: Any, x: Any) -> Any:
    return b.linear_recurrence(decay, x, axis=-1)


def graphs() -> list[Graph]:
    return [
        case("outer", running(0), "f32[5, L]", sizes=LENGTHS),
        case("middle", running(1, exclusive=True), "f32[3, L, 37]", sizes=LENGTHS),
        case("rows", running(1), "f32[L, 37]", sizes=LENGTHS),
        case("steps", running(1, exclusive=True), "f32[19, L]", sizes=LENGTHS),
        case("single", running(0), "f32[L]", sizes=LENGTHS),
        case("reverse", running(1, reverse=True), "f32[17, L]", sizes=LENGTHS),
        case("product", running(-1, "cumprod"), "f64[9, 21]"),
        case("bf16", running(-1), "bf16[16, L]", sizes=LENGTHS),
        case("f16", running(0, exclusive=True), "f16[6, 40]"),
        case("i8", running(1), "i8[33, 40]"),
        case("i64", running(0), "i64[7, 11]"),
        case("recurrence", decayed, "f32[17, L]", "f32[17, L]", sizes=LENGTHS),
    ]


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_scans(level: Level) -> None:
    assert_right(graphs(), level)


def test_a_row_alone_has_the_same_bits() -> None:
    text = "dim B in 1..64\nmodel f(x: f32[B, 100]) -> f32[B, 100] { return cumsum(x, axis=1) }\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error", nacre.NacreWarning)
        model = nacre.compile(text)
    x = np.random.default_rng(0).standard_normal((21, 100)).astype(np.float32)
    together = model(x)
    assert all(np.array_equal(model(x[i : i + 1])[0], together[i]) for i in range(21))


def test_zeros_keep_their_sign() -> None:
    """As numpy has it: a sum of -0.0 alone is -0.0, and the sum of nothing is 0.0."""
    x = np.full((2, 3), -0.0, np.float32)
    for exclusive, sign in (("false", True), ("true", False)):
        text = f"model f(x: f32[2, 3]) -> f32[2, 3] {{ return cumsum(x, axis=1, exclusive={exclusive}) }}\n"
        assert np.signbit(nacre.compile(text)(x))[:, 0].all() == sign


@pytest.mark.parametrize("expression", ["sort(x, axis=1)", "sort(x, axis=0, descending=true)", "cumprod(x, axis=0)"])
def test_sequences_are_no_reason_to_warn(expression: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", nacre.NacreWarning)
        model = nacre.compile(f"model order(x: f32[3, 130]) -> f32[3, 130] {{ return {expression} }}\n")
    assert model(np.ones((3, 130), np.float32)).shape == (3, 130)
