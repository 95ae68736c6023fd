"""Products of bytes are added in 16 bits where no sum exceeds them, on CPUs that multiply bytes in pairs."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from codegen.test_lookups import HIGH, LOW, constant, less
from codegen.test_tiler_codes import graphs
from nacre.compiler.codegen.objects import CodeOptions, generate_objects
from nacre.compiler.codegen.structured.body_nodes import Node
from nacre.compiler.codegen.tiler.byte_pairs import MOST_WORDS, words_in_sum
from nacre.compiler.codegen.tiler.quantized_sums import _bytes
from nacre.compiler.codegen.tiler.single_row_bytes import MOST_VECTORS
from nacre.compiler.lower.module import lower_module
from nacre.compiler.lower.packing import PanelSizes
from nacre.compiler.targets.target import parse_targets
from nacre.dialect.types import TABLES

WHOLE = Node("bytes", "i32", text="whole")


def table(name: str) -> Node:
    return Node("bytes", "i32", text=" ".join(["low", *map(str, TABLES[name][0])]))


@pytest.mark.parametrize(
    ("bytes", "largest", "words"),
    [
        (_bytes(less(LOW, constant(8))), 8, 8),
        (_bytes(less(HIGH, constant(0))), 15, 4),
        (_bytes(less(LOW, constant(15))), 15, 4),
        (_bytes(less(HIGH, LOW)), 15, 4),
        (table("e2m1"), 12, 5),
        (table("nl"), 127, 0),
        (WHOLE, 128, 0),
    ],
)
def test_as_many_words_as_16_bits_hold(bytes: Node, largest: int, words: int) -> None:
    assert words_in_sum(bytes) == words
    assert words * 2 * 255 * largest <= 32767 < (words + 1) * 2 * 255 * largest
    assert MOST_WORDS * 2 * 128 <= 32767


@pytest.mark.parametrize(
    ("name", "target", "pairs", "halves"),
    [
        ("q4", "x86-64-v3", True, False),
        ("q4", "x86-64-v2", True, False),
        ("q4_zeros", "x86-64-v3", True, False),
        ("e2m1", "x86-64-v3", True, False),
        ("q4_one_row", "x86-64-v3", True, False),
        ("q4_64_one_row", "x86-64-v3", True, False),
        # Products with bytes, and with the uneven values up to 127, do not fit; the sums of these numbers do.
        ("nl", "x86-64-v3", True, True),
        ("q8", "x86-64-v3", True, True),
        ("q4", "x86-64-v4", False, True),
        ("q4", "alderlake", False, False),
        ("q4", "x86-64", False, True),
    ],
)
def test_products_are_added_in_16_bits(name: str, target: str, pairs: bool, halves: bool, tmp_path: Path) -> None:
    """Their results alone would not tell, since sums of halves are exact too, and slower."""
    (graph,) = (graph for graph in graphs() if graph.name == name)
    generate_objects(lower_module(graph.module, pack=PanelSizes()), CodeOptions(parse_targets(target)), tmp_path)
    (text,) = (path.read_text() for path in tmp_path.glob("*-tiled.mlir"))
    # Halves without a sign are masked by 255.
    assert ("pmadd.ub.sw" in text, "dense<255> : vector" in text) == (pairs, halves)


@pytest.mark.parametrize("name", ["q4_one_row", "q8_one_row", "q4_zeros_one_row", "q4_64_zeros_one_row"])
def test_a_single_row_takes_its_numbers_from_registers(name: str, tmp_path: Path) -> None:
    """A panel of 6 vectors is one tile, since the zero point of the row is common to all columns, and the sum of the
    row over a block is too."""
    (graph,) = (graph for graph in graphs() if graph.name == name)
    generate_objects(lower_module(graph.module, pack=PanelSizes()), CodeOptions(parse_targets("x86-64-v3")), tmp_path)
    (text,) = (path.read_text() for path in tmp_path.glob("*-tiled.mlir"))
    assert "memref.alloca" not in text
    assert text.count("arith.sitofp") >= MOST_VECTORS


def test_rows_are_split_once_for_a_panel(tmp_path: Path) -> None:
    """The columns are two panels of 48 and one of 4, and both sizes are written once. Two vectors hold a block of 64
    values of a row."""
    (graph,) = (graph for graph in graphs() if graph.name == "q8")
    generate_objects(lower_module(graph.module, pack=PanelSizes()), CodeOptions(parse_targets("x86-64-v3")), tmp_path)
    (text,) = (path.read_text() for path in tmp_path.glob("*-tiled.mlir"))
    assert text.count("arith.andi") == 2 * 2


MODEL = """language 1
dim M in 1..80
model products(x: f32[M, 128]) -> f32[M, 60] {
  param w: f32[60, 128]
  return x @ w.T
}
model one(x: f32[1, 128]) -> f32[1, 60] {
  param w: f32[60, 128]
  return x @ w.T
}
quantize products {
  weights "*" to DTYPE
  activations matmul to i8 dynamic
}
quantize one {
  weights "*" to DTYPE
  activations matmul to i8 dynamic
}
"""


@pytest.mark.parametrize(
    "dtype",
    [
        "q4[block 32]",
        "q4[block 64]",
        "q4[block 32, zero]",
        "q4[block 64, zero]",
        "q4[block 16, zero]",
        "q4[block 32, e2m1]",
        "q4[block 32, nl]",
        "q8[block 32]",
        "q8[block 128]",
    ],
)
@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v2"])
def test_the_largest_sums(dtype: str, target: str, tmp_path: Path) -> None:
    """Activations of 255 and 1, and weights that are the largest values of all steps of a block."""
    # One number of a block that is 0 makes the zero point of the others an end of their range.
    w = np.repeat(np.array([[-1.0], [1.0], [-1.0], [1.0]], np.float32), 128, axis=1)
    w[2:, ::16] = 0
    weights = {"w": np.concatenate([w, np.random.default_rng(0).standard_normal((56, 128)).astype(np.float32)])}
    text = MODEL.replace("DTYPE", dtype)
    plain = nacre.compile(text, tmp_path / "0.so", weights=weights, opt_level=0)
    tiled = nacre.compile(text, tmp_path / "2.so", weights=weights, target=target)
    for rows in (1, 3, 70):
        x = np.ones((rows, 128), np.float32)
        x[1::2] = -1
        expected = plain.entries["products"](x)
        np.testing.assert_allclose(tiled.entries["products"](x), expected, rtol=1e-5, atol=1e-4)
        assert np.abs(expected).max() > 127
        for row in (x[:1], x[1:2]) if rows > 1 else (x,):
            one = plain.entries["one"](row)
            np.testing.assert_allclose(tiled.entries["one"](row), one, rtol=1e-5, atol=1e-4)
