"""16-bit floats: exact roundings, every bit pattern through operators, and code without single lanes."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import ml_dtypes
import nacre
import numpy as np
import pytest
from nacre.compiler.cli.main import run
from nacre.compiler.codegen.structured.body_nodes import Node
from nacre.compiler.codegen.tiler.halves import find_exact, is_bfloat
from nacre.compiler.targets.target import parse_targets
from nacre.dialect.types import Array

CPUS = ("x86-64", "x86-64-v3", "x86-64-v4", "znver4")


def number(text: str) -> Node:
    return Node("constant", "f32", text=f"{text} : f32")


def wide(type: str = "bf16") -> Node:
    return Node("arith.extf", "f32", (Node("read", type),))


def of(kind: str, *operands: Node) -> Node:
    return Node(kind, "f32", operands)


HALF, TENTH = number("5.000000e-01"), number("1.000000e-01")
CONDITION = Node("read", "i1", number=1)


@pytest.mark.parametrize(
    ("node", "exact"),
    [
        (of("arith.minimumf", of("arith.maximumf", wide(), HALF), number("0x7F800000")), True),
        (of("math.floor", of("arith.negf", wide())), True),
        (of("arith.select", CONDITION, wide(), number("-1.000000e+00")), True),
        (of("arith.maximumf", wide(), TENTH), False),
        (of("arith.minimumf", wide(), number("0x7F800001")), False),
        (of("arith.select", CONDITION, wide(), TENTH), False),
        (of("arith.addf", wide(), wide()), False),
        (of("math.floor", wide("f16")), False),
        (Node("read", "f32"), False),
    ],
)
def test_numbers_of_bf16_are_found(node: Node, exact: bool) -> None:
    assert is_bfloat(node) is exact
    rounded = find_exact(Node("arith.truncf", "bf16", (node,)))
    assert rounded.kind == ("upper" if exact else "arith.truncf")
    again = find_exact(of("arith.extf", rounded))
    assert (again is node) is exact


@pytest.mark.parametrize("type", ["bf16", "f16"])
def test_a_change_of_the_sign_is_one_of_a_bit(type: str) -> None:
    changed = find_exact(Node("arith.truncf", type, (of("arith.negf", wide(type)),)))
    assert (changed.kind, changed.type, changed.operands[0].kind) == ("arith.bitcast", type, "arith.xori")
    other = "bf16" if type == "f16" else "f16"
    assert find_exact(Node("arith.truncf", other, (of("arith.negf", wide(type)),))).kind != "arith.bitcast"


UNARY = ("-x", "abs(x)", "relu(x)", "clip(x, -0.1, 0.5)", "floor(x)", "ceil(x)", "round(x)", "trunc(x)", "sign(x)")
ROUNDED = ("x * x", "x + x[::-1]", "maximum(x, x[::-1])", "where(x[::-1] > 0.5, x, x[::-1])")
EXPRESSIONS = (*UNARY, *ROUNDED)


def model(dtype: str) -> str:
    results = ", ".join([f"{dtype}[65541]"] * len(EXPRESSIONS))
    return f"model m(x: {dtype}[65541]) -> {results} {{ return {', '.join(EXPRESSIONS)} }}"


def bits_of(values: Array) -> Array:
    """The bit patterns, with one for all NaNs; the sign of a zero is one of the bits."""
    words = np.ascontiguousarray(values).view(np.uint16)
    return np.where(np.isnan(values.astype(np.float32)), np.uint16(0x7FFF), words)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_every_bit_pattern_is_computed_as_the_reference_does(dtype: str, cpu: str, tmp_path: Path) -> None:
    if not parse_targets(cpu)[0].runs_here:
        pytest.skip(f"this CPU has not all of {cpu}")
    patterns = np.random.default_rng(0).permutation(np.arange(65536, dtype=np.uint16))
    x = np.concatenate([patterns, patterns[:5]]).view(ml_dtypes.bfloat16 if dtype == "bf16" else np.float16)
    expected = nacre.graph.read(model(dtype)).run(x)
    results = nacre.compile(model(dtype), tmp_path / "m.so", target=cpu)(x)
    for expression, actual, wanted in zip(EXPRESSIONS, results, expected, strict=True):
        np.testing.assert_array_equal(bits_of(actual), bits_of(wanted), err_msg=expression)


SINGLE = re.compile(r"v?(pextrw|pinsrw|roundss|rndscaless|maxss|cvtss2sd)$")


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_no_lane_is_computed_alone(dtype: str, cpu: str, tmp_path: Path) -> None:
    x, truth = f"x: {dtype}[65536]", "c: bool[65536]"
    uses = ("floor(x)", "round(x)", "maximum(x, y)", "relu(x)", "-x", "where(c, x, y)")
    text = "\n".join(
        f"model m{i}({x}, y: {dtype}[65536], {truth}) -> {dtype}[65536] {{ return {use} }}"
        for i, use in enumerate(uses)
    )
    (tmp_path / "m.nacre").write_text(text)
    output = tmp_path / "m.s"
    assert run(["compile", str(tmp_path / "m.nacre"), "--target", cpu, "--emit", "asm", "-o", str(output)]) == 0
    found = Counter(re.findall(r"^\t(\w+)", output.read_text(), re.MULTILINE))
    assert not {name: count for name, count in found.items() if SINGLE.match(name)}
    # Four vectors of one operand or two for each of the kernels that convert.
    widened = [name for name in found.elements() if name == "vcvtph2ps"]
    assert len(widened) == (0 if dtype == "bf16" else 4 * (1 + 1 + 2 + 1))
