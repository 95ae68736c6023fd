"""Sums of products of codes with weights in blocks: sizes around those of blocks of rows, of tiles and of panels, for
CPUs with instructions for bytes and for CPUs without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from codegen.test_tiler_dots import EVERY
from differential.directed import assert_right, case
from differential.maker import Graph
from differential.native import Level
from nacre.compiler.codegen.objects import CodeOptions, generate_objects
from nacre.compiler.lower.module import lower_module
from nacre.compiler.lower.packing import PanelSizes
from nacre.compiler.targets.target import parse_targets
from nacre.dialect.ops.support.block_planes import Planes, dequantize_planes
from nacre.dialect.types import BLOCK_DTYPES, F32, TABLES, TensorType

ROWS = [{"M": m} for m in (0, 1, 9, 70)]


NL, E2M1 = ({"table": TABLES[name][0]} for name in ("nl", "e2m1"))


def codes(bits: int, zero: int, **table: Any) -> Callable[..., Any]:
    return lambda b, x, *planes: b.block_dot(x, *planes, bits=bits, zero=zero, **table)


def floats(bits: int, **table: Any) -> Callable[..., Any]:
    return lambda b, x, *planes: b.block_matmul(x, *planes, bits=bits, **table)


def dequantized(b: Any, indices: Any, scales: Any) -> Any:
    """Rows that an index selects are dequantized so."""
    dtype = BLOCK_DTYPES["q4[block 32, e2m1]"]
    return dequantize_planes(b, Planes(TensorType(dtype, (8, 96)), indices, scales), F32)


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
        case("q4_floats", floats(4), "f32[M, 96]", *small, sizes=ROWS),
        case("q4_floats_zeros", floats(4), "f32[M, 96]", *small, "*u8[50, 3]", sizes=ROWS),
        case("q8_floats", floats(8), "f32[M, 64]", "*i8[33, 2, 32]", "*f16[33, 2]", sizes=ROWS),
        case("nl", codes(4, 128, **NL), "u8[M, 96]", *small, sizes=ROWS),
        case("e2m1", codes(4, 37, **E2M1), "u8[M, 96]", "*u8[50, 3, 16]", "*bf16[50, 3]", sizes=ROWS),
        case("nl_one_row", codes(4, 0, **NL), "u8[1, 96]", "*u8[33, 3, 16]", "*f16[33, 3]"),
        case("nl_floats", floats(4, **NL), "f32[M, 96]", *small, sizes=ROWS),
        case("e2m1_floats", floats(4, **E2M1), "f32[M, 96]", "*u8[50, 3, 16]", "*bf16[50, 3]", sizes=ROWS),
        case("nl_rounded", floats(4, rounded="bf16", **NL), "bf16[M, 64]", "*u8[48, 2, 16]", "*f16[48, 2]", sizes=ROWS),
        case("q8_rounded", floats(8, rounded="bf16"), "bf16[M, 64]", "*i8[33, 2, 32]", "*f16[33, 2]", sizes=ROWS),
        case("q4_halves", floats(4, rounded="f16"), "f16[M, 96]", *small, "*u8[50, 3]", sizes=ROWS),
        case("e2m1_rows", dequantized, "u8[8, 3, 16]", "bf16[8, 3]"),
        case("q8_one_row", codes(8, 128), "u8[1, 128]", "*i8[100, 2, 64]", "*f16[100, 2]"),
        case("q4_64_one_row", codes(4, 128), "u8[1, 128]", "*u8[50, 2, 32]", "*f16[50, 2]"),
        case("nl_signed_row", codes(4, 128, **NL), "u8[1, 96]", *small),
        case("q4_zeros_one_row", codes(4, 128), "u8[1, 96]", *small, "*u8[50, 3]"),
        case("q4_64_zeros_one_row", codes(4, 128), "u8[1, 128]", "*u8[50, 2, 32]", "*f16[50, 2]", "*u8[50, 2]"),
        case("layer", layer, "u8[M, 96]", *small, "f32[M, 1]", "f32[50]", "f32[M, 50]", sizes=ROWS),
        case("normed", normed, "u8[M, 96]", *small, "f32[50]", sizes=ROWS),
    ]


@pytest.mark.parametrize("level", EVERY, ids=str)
def test_blocks(level: Level) -> None:
    assert_right(graphs(), level)


@pytest.mark.parametrize("graph", graphs()[:3], ids=lambda graph: graph.name)
def test_blocks_take_the_instruction_for_bytes(graph: Graph, tmp_path: Path) -> None:
    """Their results alone would not tell: a sum of other steps has the same value, and is slower."""
    options = CodeOptions(parse_targets("x86-64-v4-vnni-bf16"))
    generate_objects(lower_module(graph.module, pack=PanelSizes()), options, tmp_path)
    assert any("vpdpbusd" in path.read_text() for path in tmp_path.glob("*-tiled.mlir"))


@pytest.mark.parametrize(
    ("name", "target", "instruction"),
    [
        ("nl", "x86-64-v4", "avx512.pshuf.b.512"),
        ("nl_one_row", "x86-64-v3", "avx2.pshuf.b"),
        ("nl_floats", "x86-64-v4", "permvar.sf.512"),
        ("e2m1_floats", "x86-64-v3", "avx2.pshuf.b"),
        ("nl_rounded", "x86-64-v2", "ssse3.pshuf.b.128"),
        ("e2m1_floats", "aarch64-linux-gnu", "neon.tbl1.v16i8"),
    ],
)
def test_values_of_a_table_are_looked_up(name: str, target: str, instruction: str, tmp_path: Path) -> None:
    (graph,) = (graph for graph in graphs() if graph.name == name)
    generate_objects(lower_module(graph.module, pack=PanelSizes()), CodeOptions(parse_targets(target)), tmp_path)
    assert any(instruction in path.read_text() for path in tmp_path.glob("*-tiled.mlir"))


@pytest.mark.parametrize(
    ("name", "vectors", "products", "rounding"),
    [
        ("nl_rounded", 3, 2, "arith.cmpf uno"),
        ("q8_rounded", 3, 1, "arith.cmpf uno"),
        ("q4_halves", 4, 2, "arith.truncf"),
    ],
)
def test_rows_share_rounded_numbers(name: str, vectors: int, products: int, rounding: str, tmp_path: Path) -> None:
    """The vectors of a panel, and the products of a step of the sum, are rounded at one place, for all tiles of rows.
    To round them again for each tile takes as long as its products. Rounding to bf16 by integers compares each vector
    once."""
    (graph,) = (graph for graph in graphs() if graph.name == name)
    generate_objects(lower_module(graph.module, pack=PanelSizes()), CodeOptions(parse_targets("x86-64-v4")), tmp_path)
    (text,) = (path.read_text() for path in tmp_path.glob("*-tiled.mlir"))
    assert text.count(rounding) == vectors * products


@pytest.mark.parametrize("name", ["nl", "e2m1_floats"])
def test_a_cpu_without_the_instruction_is_tiled_too(name: str, tmp_path: Path) -> None:
    (graph,) = (graph for graph in graphs() if graph.name == name)
    generate_objects(lower_module(graph.module, pack=PanelSizes()), CodeOptions(parse_targets("x86-64")), tmp_path)
    (text,) = (path.read_text() for path in tmp_path.glob("*-tiled.mlir"))
    assert "pshuf" not in text and "arith.select" in text


MODEL = """language 1
dim M in 1..200
model products(x: f32[M, 416]) -> f32[M, 50], f32[M, 33] {
  param first: f32[50, 416]
  param second: f32[33, 416]
  return x @ first.T, x @ second.T
}
quantize products {
  weights "first" to q4[block 32, zero]
  weights "second" to q8[block 32]
}
"""


def test_products_of_floats(tmp_path: Path) -> None:
    """Block-quantized weights with float activations, for few and many rows."""
    rng = np.random.default_rng(7)
    weights = {name: rng.standard_normal((n, 416)).astype(np.float32) for name, n in (("first", 50), ("second", 33))}
    plain, tiled = (
        nacre.compile(MODEL, tmp_path / f"{level}.so", weights=weights, opt_level=level) for level in (0, 2)
    )
    for rows in (1, 9, 64, 131):
        x = rng.standard_normal((rows, 416)).astype(np.float32)
        for weight, expected, result in zip(weights.values(), plain(x), tiled(x), strict=True):
            # Roundings relative to the sum of the terms' magnitudes, as in `validate/tolerance.py`.
            most = np.abs(x) @ np.abs(weight).T * np.finfo(np.float32).eps * (1 + 0.3 * np.sqrt(416))
            assert (np.abs(result - expected) <= most).all(), rows
