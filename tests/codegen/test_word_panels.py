"""Products of bytes and of bf16 whose words are split once for many rows: sizes around a tile, a stretch of the sum and
a block of rows, the largest sums, and the CPUs that take another schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from codegen.schedules import schedules
from codegen.test_tiler_dots import bfloat_layer, convolved, rescaled, summed_wider
from differential.directed import LEVELS, assert_right, case
from differential.maker import Graph
from differential.native import Level
from nacre.compiler.checking import read_model
from nacre.compiler.codegen.tiler.word_panels import FEWEST_KNOWN_ROWS, FEWEST_ROWS, MOST_WORDS
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from nacre.dialect.types import I32

NAME = "word panels"
LONG = 4 * MOST_WORDS
"""The steps of a stretch of bytes."""


def grouped(b: Any, x: Any, w: Any) -> Any:
    """Each group has a weight of its own."""
    return b.einsum(x, w, equation="bgk,gkn->gbn", into=I32)


def products() -> list[Graph]:
    rows = [{"M": m} for m in (0, 1, FEWEST_ROWS - 1, FEWEST_ROWS, 7, 96, 97, 203)]
    sizes = (
        (12, 1, 8, "u8", "i8"),
        (13, 35, 50, "i8", "i8"),
        (49, LONG, 17, "u8", "u8"),
        (96, LONG + 1, 48, "u8", "i8"),
        (97, LONG + 4, 100, "u8", "i8"),
        (101, 2 * LONG + 36, 9, "i8", "u8"),
        # Whole stretches, whose last word is incomplete.
        (13, 2 * LONG - 1, 9, "u8", "i8"),
        (13, LONG - 1, 9, "bf16", "bf16"),
        (13, 35, 50, "bf16", "bf16"),
        (49, LONG // 2, 17, "bf16", "bf16"),
        (97, LONG + 1, 100, "bf16", "bf16"),
        (100, LONG + 37, 9, "bf16", "bf16"),
    )
    return [
        *(case(f"{x}_{w}_{m}_{k}_{n}", summed_wider, f"{x}[{m}, {k}]", f"*{w}[{k}, {n}]") for m, k, n, x, w in sizes),
        case("rows", summed_wider, "u8[M, 36]", "*i8[36, 50]", sizes=rows),
        case("long_rows", summed_wider, f"u8[M, {3 * LONG}]", f"*i8[{3 * LONG}, 20]", sizes=rows),
        case(
            "rescaled",
            rescaled,
            "u8[M, 20]",
            "*i8[20, 55]",
            *["i32[55]", "f32[M, 1]", "f32[55]", "f32[55]"],
            sizes=rows,
        ),
        case("batches", summed_wider, "u8[B, 13, 36]", "*i8[36, 50]", sizes=[{"B": 0}, {"B": 1}, {"B": 8}]),
        case("rows_bf16", summed_wider, "bf16[M, 36]", "*bf16[36, 50]", sizes=rows),
        case("layer_bf16", bfloat_layer, f"bf16[M, {LONG}]", f"*bf16[{LONG}, 55]", "f32[55]", sizes=rows),
        case("batches_bf16", summed_wider, "bf16[B, 13, 37]", "*bf16[37, 50]", sizes=[{"B": 0}, {"B": 1}, {"B": 8}]),
        case("grouped", grouped, "u8[19, 3, 20]", "*i8[3, 20, 24]"),
    ]


def windows() -> list[Graph]:
    images = [{"B": 0}, {"B": 1}, {"B": 3}]
    return [
        case("conv_3x3", convolved(padding=1), "u8[2, 64, 7, 7]", "*i8[24, 64, 3, 3]"),
        case("conv_3x3_long", convolved(padding=1), f"u8[1, {LONG + 32}, 5, 7]", f"*i8[20, {LONG + 32}, 3, 3]"),
        case("conv_3x3_images", convolved(padding=1), "u8[B, 8, 5, 4]", "*i8[20, 8, 3, 3]", sizes=images),
        case("conv_stem", convolved(padding=3, stride=2), "u8[1, 3, 17, 18]", "*i8[20, 3, 7, 7]"),
        case("conv_rest", convolved(padding=1), "i8[1, 42, 6, 9]", "*i8[17, 42, 3, 3]"),
        case("conv_1x1_stride", convolved(stride=2), "u8[1, 36, 14, 14]", "*i8[33, 36, 1, 1]"),
        case("conv_bf16", convolved(padding=1), "bf16[2, 64, 7, 7]", "*bf16[24, 64, 3, 3]"),
        case("conv_bf16_stem", convolved(padding=3, stride=2), "bf16[1, 3, 17, 18]", "*bf16[20, 3, 7, 7]"),
        case("conv_groups", convolved(groups=2), "u8[1, 16, 9, 17]", "*i8[16, 8, 3, 3]"),
    ]


EVERY = (*LEVELS, Level(2, "x86-64-v2", quick=True))


@pytest.mark.parametrize("level", EVERY, ids=str)
@pytest.mark.parametrize("graphs", [products, windows])
def test_results(graphs: Any, level: Level) -> None:
    assert_right(graphs(), level)


PRODUCT = """language 1
dim B in 1..256
model product(x: u8[ROWS, 72]) -> i32[ROWS, 40] {
  param w: i8[72, 40]
  return matmul(x, w, into=i32)
}
"""


@pytest.mark.parametrize(
    ("rows", "cpu", "taken"),
    [
        (FEWEST_KNOWN_ROWS, "x86-64-v3", True),
        (FEWEST_KNOWN_ROWS, "x86-64-v2", True),
        (FEWEST_KNOWN_ROWS - 1, "x86-64-v3", False),
        ("B", "x86-64-v3", True),
        (64, "alderlake", False),
        (64, "x86-64-v4", False),
        (64, "x86-64-v4-vnni", False),
    ],
)
def test_the_schedule(rows: int | str, cpu: str, taken: bool) -> None:
    build = Build(read_model(PRODUCT.replace("ROWS", str(rows))), Options(targets=parse_targets(cpu)))
    program = build.generate(build.lower(build.optimize()))
    assert ((NAME,) in schedules(program)) == taken


LARGEST = """language 1
dim M in 1..200
model product(x: u8[M, STEPS], y: i8[M, STEPS]) -> unsigned: i32[M, 45], signed: i32[M, 45] {
  param w: i8[STEPS, 45]
  param v: i8[STEPS, 45]
  return matmul(x, w, into=i32), matmul(y, v, into=i32)
}
"""


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v2"])
@pytest.mark.parametrize("steps", [LONG, 4612])
def test_the_largest_sums(steps: int, cpu: str, tmp_path: Path) -> None:
    """Each product is the greatest or the least of two bytes; every second column alternates their signs."""
    w = np.full((steps, 45), -128, np.int8)
    w[:, ::3] = 127
    w[::2, ::2] = 127
    model = nacre.compile(
        LARGEST.replace("STEPS", str(steps)), tmp_path / "m.so", weights={"w": w, "v": w}, target=cpu, precision="f32"
    )
    for rows in (1, 4, 5, 103):
        x, y = np.full((rows, steps), 255, np.uint8), np.full((rows, steps), -128, np.int8)
        x[1::2, ::3], y[1::2, 1::2] = 0, 127
        unsigned, signed = model(x, y)
        np.testing.assert_array_equal(unsigned, x.astype(np.int64) @ w)
        np.testing.assert_array_equal(signed, y.astype(np.int64) @ w)
    assert np.abs(unsigned).max() == 255 * 128 * steps
