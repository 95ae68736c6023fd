"""Tiles of a matrix unit: sums of products of bytes, of bfloats, and of bfloats with quantized weights that are rounded
to bf16. Numbers of rows around the height of a tile and of a work item, and parts of the sum.

Where this CPU lacks AMX, the instructions are emulated.
"""

from __future__ import annotations

from typing import Any

from differential.directed import assert_right, case
from differential.emulated import tile_for
from differential.maker import Graph
from differential.native import Level, lower
from nacre.compiler.codegen.objects import CodeOptions
from nacre.compiler.lower.parts import MATRIX_TILE
from nacre.compiler.targets.target import parse_targets
from nacre.dialect.types import F32, I32

AMX = Level(2, "sapphirerapids", quick=True)
ROWS = [{"M": m} for m in (0, 1, 7, 16, 17, 33, 64, 130)]
"""Fewer than a tile, a whole one, several, and more than a work item of 64 rows."""


def product(b: Any, x: Any, w: Any) -> Any:
    return b.matmul(x, w, into=I32 if x.type.dtype.bits == 8 else F32)


def residual(b: Any, x: Any, w: Any, bias: Any, other: Any) -> Any:
    return b.add(other, b.relu(b.add(product(b, x, w), bias)))


def quantized(bits: int) -> Any:
    def multiply(b: Any, x: Any, codes: Any, scales: Any, *zeros: Any) -> Any:
        return b.block_matmul(x, codes, scales, *zeros, bits=bits, rounded=x.type.dtype.name)

    return multiply


def graphs() -> list[Graph]:
    bytes = [
        case(f"bytes_{x}_{w}", product, f"{x}[M, 128]", f"*{w}[128, 80]", sizes=ROWS)
        for x in ("u8", "i8")
        for w in ("i8", "u8")
    ]
    return [
        *bytes,
        case("bfloats", product, "bf16[M, 96]", "*bf16[96, 64]", sizes=ROWS),
        case("bfloats_epilogue", residual, "bf16[M, 32]", "*bf16[32, 48]", "f32[48]", "f32[M, 48]", sizes=ROWS),
        case("q4", quantized(4), "bf16[M, 96]", "*u8[64, 3, 16]", "*f16[64, 3]", sizes=[*ROWS, {"M": 520}]),
        case("q4_zeros", quantized(4), "bf16[M, 64]", "*u8[16, 2, 16]", "*f16[16, 2]", "*u8[16, 2]", sizes=ROWS),
        # Two parts of 512 steps.
        case("q8", quantized(8), "bf16[M, 1024]", "*i8[32, 32, 32]", "*f32[32, 32]", sizes=ROWS[:5]),
    ]


def test_tiles_are_right() -> None:
    assert_right(graphs(), AMX)


def test_every_product_is_in_tiles() -> None:
    """The tests above would pass without tiles too."""
    options = CodeOptions(parse_targets(AMX.cpu), 2, quick=True, visible=True)
    tiled = tile_for([kernel for graph in graphs() for kernel in lower([graph], AMX).kernels], options)
    schedules = [each.report.schedules for each in tiled.values()]
    assert schedules and all(MATRIX_TILE in found for found in schedules), schedules
