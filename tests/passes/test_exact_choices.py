"""Limits of passes at their last number, and choices that no result shows: which nodes a pass takes, and which not."""

from __future__ import annotations

from collections import Counter

import pytest
from nacre.dialect.graph import Module, walk
from nacre.dialect.parser import parse_module
from nacre.passes.layout.winograd import shared_blocks
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline
from nacre.passes.simplify import unroll_repeat

REPEATS = """module test

func main(%x: f32[4]) -> (f32[4]) {
  %1 = repeat(%x) {count = 3} : f32[4] do (%i: i64, %h: f32[4]) {
    %2 = exp(%h) : f32[4]
    yield %2
  }
  %3 = repeat(%1) {count = 2} : f32[4] do (%j: i64, %k: f32[4]) {
    %4 = exp(%k) : f32[4]
    yield %4
  }
  return %3
}
"""

CONVOLUTION = """module test

param "w" : f32[{0}, 3, 3, 3]

func main(%x: f32[1, 3, 9, 9]) -> (f32[1, {0}, 7, 7]) {{
  %w = parameter() {{name = "w"}} : f32[{0}, 3, 3, 3]
  %1 = conv2d(%x, %w) : f32[1, {0}, 7, 7]
  return %1
}}
"""


def after(text: str, passes: str) -> Counter[str]:
    """How often each operator is in the graph after the passes."""
    module: Module = PassManager(parse_pipeline(passes)).run(parse_module(text))
    return Counter(node.op for function in module.functions for node in walk(function.body))


@pytest.mark.parametrize(("most", "loops"), [(10, 0), (9, 1), (6, 1), (5, 1), (4, 1), (3, 2)])
def test_loops_are_unrolled_up_to_the_last_node(most: int, loops: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three copies of a loop and the node in it are 6, two copies of the other one 4."""
    monkeypatch.setattr(unroll_repeat, "MOST_NODES", most)
    assert after(REPEATS, "unroll-repeat")["repeat"] == loops


@pytest.mark.parametrize(("channels", "is_moved"), [(7, False), (8, True), (9, True)])
def test_convolutions_of_eight_channels_move(channels: int, is_moved: bool) -> None:
    assert (after(CONVOLUTION.format(channels), "channels-last")["transpose"] > 0) == is_moved


TWO_WEIGHTS = """module test

param "w" : f32[3, 3, 32, 32]
param "v" : f32[3, 3, 32, 32]

func one(%x: f32[1, 34, 34, 32]) -> (f32[1, 30, 30, 32]) {
  %w = parameter() {name = "w"} : f32[3, 3, 32, 32]
  %1 = conv2d(%x, %w) {layout = "channels_last"} : f32[1, 32, 32, 32]
  %v = parameter() {name = "v"} : f32[3, 3, 32, 32]
  %2 = conv2d(%1, %v) {layout = "channels_last"} : f32[1, 30, 30, 32]
  return %2
}

func two(%x: f32[1, 26, 26, 32]) -> (f32[1, 24, 24, 32]) {
  %w = parameter() {name = "v"} : f32[3, 3, 32, 32]
  %1 = conv2d(%x, %w) {layout = "channels_last"} : f32[1, 24, 24, 32]
  return %1
}
"""
ADDED = 4 * 32 * 32 * (36 - 9)
"""The bytes that a stored transform of one of these weights adds."""


@pytest.mark.parametrize(("stored", "spare"), [(0, ADDED - 1), (1, 0), (1, ADDED - 1), (2, 0), (3, 0)])
def test_each_weight_of_each_function_takes_its_bytes(stored: int, spare: int) -> None:
    """Weights with one name in two functions, and two weights of one function, are counted apart."""
    passes = f"winograd{{blocks=1,shared-blocks=1000,most-bytes={stored * ADDED + spare}}}"
    assert after(TWO_WEIGHTS, passes)["winograd_input"] == stored


@pytest.mark.parametrize(
    ("batch", "height", "blocks", "training"),
    # Images of 12 by 8 elements have 3 by 2 blocks. Of 1 to 16 rows of blocks, four count, or half in a training step.
    [("1", "12", 6, 6), ("5", "12", 30, 30), ("B", "12", 18, 36), ("1", "H", 8, 17), ("B", "H", 24, 147)],
)
def test_blocks_that_share_a_transform(batch: str, height: str, blocks: int, training: int) -> None:
    type = f"f32[{batch}, {height}, 8, 32]"
    text = f"""module test

dim B in 3..9
dim H in 1..64

param "w" : f32[3, 3, 32, 32]

func main(%x: {type}) -> ({type}) {{
  %w = parameter() {{name = "w"}} : f32[3, 3, 32, 32]
  %1 = conv2d(%x, %w) {{padding = 1, layout = "channels_last"}} : {type}
  return %1
}}
"""
    node = parse_module(text).functions[0].body[-1]
    assert (shared_blocks(node), shared_blocks(node, changes=True)) == (blocks, training)


@pytest.mark.parametrize(("dtype", "op", "joins"), [("i8", "cast", True), ("f16", "cast", True), ("f32", "abs", False)])
def test_operands_of_an_epilogue_that_become_wider_join_it(dtype: str, op: str, joins: bool) -> None:
    """An operand of the same width is computed before: the product waits for it otherwise."""
    attributes = "{dtype = f32} " if op == "cast" else ""
    text = f"""module test

func main(%x: f32[8, 4], %y: f32[4, 6], %z: {dtype}[8, 6]) -> (f32[8, 6]) {{
  %1 = {op}(%z) {attributes}: f32[8, 6]
  %2 = matmul(%x, %y) : f32[8, 6]
  %3 = add(%2, %1) : f32[8, 6]
  return %3
}}
"""
    (function,) = PassManager(parse_pipeline("fuse")).run(parse_module(text)).functions
    assert [node.op for node in function.body] == (["fusion"] if joins else [op, "fusion"])


TWICE = """module test

param "w" : f32[6, 5]
param "v" : f32[3, 4]

func main(%x: f32[4, 6]) -> (f32[4, 5], f32[3, 6], f32[4, 5]) {
  %w = parameter() {name = "w"} : f32[6, 5]
  %v = parameter() {name = "v"} : f32[3, 4]
  %1 = matmul(%x, %w) : f32[4, 5]
  %2 = matmul(%v, %x) : f32[3, 6]
  %3 = matmul(%x, %w) : f32[4, 5]
  return %1, %2, %3
}
"""


def test_a_value_is_quantized_once_for_each_axis_that_is_summed() -> None:
    """Its rows have scales of their own for one product, and its columns for another."""
    module: Module = PassManager(parse_pipeline("quantize-activations")).run(parse_module(TWICE))
    scales = [node.output.type.shape for node in module.functions[0].body if node.op == "max"]
    assert scales == [(4, 1), (1, 6)]
