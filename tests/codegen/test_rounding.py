"""Codes are made of floats by the instruction that rounds and converts: what is recognised, and every corner of it."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.codegen.structured.body_nodes import Node
from nacre.compiler.codegen.tiler.rounding import find_nearest
from nacre.compiler.targets.target import parse_targets

X = Node("read", "f32")
ZERO = Node("constant", "f32", text="0.000000e+00 : f32")


def whole(number: Node, rounding: str = "math.roundeven") -> Node:
    return Node("arith.fptosi", "i32", (Node(rounding, "f32", (number,)),))


def known(number: Node, other: Node = ZERO) -> Node:
    equal = Node("arith.cmpf", "i1", (number, number), text="fastmath = #arith.fastmath<none>, predicate = 1 : i64")
    return Node("arith.select", "f32", (equal, number, other))


def kept(code: Node, type: str = "i8") -> Node:
    return Node("arith.trunci", type, (code,))


def test_the_rounded_value_is_found_below_an_addition() -> None:
    (plain,) = find_nearest(kept(whole(known(X)))).operands
    assert (plain.kind, plain.operands) == ("nearest", (X,))
    shift = Node("read", "i32", number=1)
    (total,) = find_nearest(kept(Node("arith.addi", "i32", (whole(X), shift)), "i16")).operands
    assert [o.kind for o in total.operands] == ["nearest", "read"]


@pytest.mark.parametrize(
    "node",
    [
        kept(whole(X), "i24"),
        kept(whole(X, "math.floor")),
        kept(Node("arith.fptosi", "i32", (X,))),
        Node("arith.extsi", "i64", (whole(X),)),
    ],
    ids=["upper bits are kept", "another rounding", "truncated", "wider"],
)
def test_nothing_else_is(node: Node) -> None:
    assert all(n.kind != "nearest" for n in find_nearest(node).walk())


def test_only_factors_that_are_zero_for_nan_are_left_out() -> None:
    one = Node("constant", "f32", text="1.000000e+00 : f32")
    (rounded,) = find_nearest(kept(whole(known(X, one)))).operands
    assert rounded.operands[0].kind == "arith.select"


SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, 128.5, -128.5, -129.0]
SPECIAL += [254.5, 255.5, 32766.5, 32767.5, -32768.5, 3e9, -3e9, 1e30, -1e30, 1e-40]
MODEL = """dim N in 0..64

model codes(
  x: f32[N, 29], row: f32[N, 1], high: i8[N, 1], shift: u8[29]
) -> i8[N, 29], u8[N, 29], i16[N, 29], u8[N, 29] {
  a = quantize(x, row, high)
  b = quantize(x, 1.0, shift, dtype=u8)
  c = quantize(x, row, dtype=i16)
  return a, b, c, cast(x, u8)
}
"""


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("rows", [0, 1, 7])
def test_codes_are_those_of_the_reference(cpu: str, rows: int, tmp_path: Path) -> None:
    if not parse_targets(cpu)[0].runs_here:
        pytest.skip(f"this CPU has not all of {cpu}")
    random = np.random.default_rng(rows)
    x = random.choice(np.asarray(SPECIAL, np.float32), (rows, 29))
    row = random.choice(np.asarray([1.0, 0.5, 3e-39, 1e30, 0.013], np.float32), (rows, 1))
    high = random.integers(-128, 128, (rows, 1), np.int8)
    shift = random.integers(0, 256, 29, np.uint8)
    expected = nacre.graph.read(MODEL).run(x, row, high, shift)
    for actual, wanted in zip(
        nacre.compile(MODEL, tmp_path / "m.so", target=cpu)(x, row, high, shift), expected, strict=True
    ):
        np.testing.assert_array_equal(actual, wanted)
