"""Sums of products of codes with weights in blocks: sizes around those of blocks of rows, of tiles and of panels, for
CPUs with instructions for bytes and for CPUs without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from codegen.test_tiler_dots import EVERY
from differential.directed import assert_right, case
from differential.maker import Graph
from differential.native import Level

ROWS = [{"M": m} for m in (0, 1, 9, 70)]


def codes(bits: int, zero: int) -> Callable[..., Any]:
    return lambda b, x, *planes: b.block_dot(x, *planes, bits=bits, zero=zero)


def layer(b: Any, x: Any, weight: Any, scales: Any, rows: Any, bias: Any, other: Any) -> Any:
    """As a layer that quantizes while it runs goes on from the sums."""
    total = b.multiply(b.block_dot(x, weight, scales, bits=4, zero=128), rows)
    return b.add(other, b.gelu(b.add(total, bias)))


def normed(b: Any, x: Any, weight: Any, scales: Any, scale: Any) -> Any:
    """Rows that are read again as soon as they are there."""
    return b.layer_norm(b.block_dot(x, weight, scales, bits=4, zero=128), scale, axes=-1)


def graphs() -> list[Graph]:
    small = ("*u8[50, 3, 16]", "*f16[50, 3]")
    return [
        case("q4", codes(4, 128), "u8[M, 96]", *small, sizes=ROWS),
        case("q4_zeros", codes(4, 0), "u8[M, 96]", *small, "*u8[50, 3]", sizes=ROWS),
        case("q8", codes(8, 77), "u8[M, 128]", "*i8[100, 2, 64]", "*f16[100, 2]", sizes=ROWS),
        case("q8_zeros", codes(8, 128), "u8[M, 64]", "*u8[50, 2, 32]", "*f16[50, 2]", "*u8[50, 2]", sizes=ROWS),
        case("q4_vector", codes(4, 255), "u8[96]", *small),
        case("q4_one_row", codes(4, 128), "u8[1, 96]", *small),
        case("q4_many_rows", codes(4, 128), "u8[2, 65, 96]", *small),
        case("q4_one_column", codes(4, 128), "u8[M, 64]", "*u8[1, 2, 16]", "*f16[1, 2]", sizes=ROWS),
        case("q4_one_block", codes(4, 128), "u8[M, 32]", "*u8[33, 1, 16]", "*f16[33, 1]", sizes=ROWS),
        case("layer", layer, "u8[M, 96]", *small, "f32[M, 1]", "f32[50]", "f32[M, 50]", sizes=ROWS),
        case("normed", normed, "u8[M, 96]", *small, "f32[50]", sizes=ROWS),
    ]


@pytest.mark.parametrize("level", EVERY, ids=str)
def test_blocks(level: Level) -> None:
    assert_right(graphs(), level)
