"""`batch-last` keeps convolutions in every geometry, and only rewrites those that it makes faster."""

import random

import numpy as np
import pytest
from convolution_nets import largest_error
from nacre.compiler.codegen.jit import build_functions
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.parser import parse_module
from nacre.dialect.types import F32, F64, Array, TensorType
from nacre.passes.manager import Context
from nacre.passes.pass_list import parse_pipeline


def convolution(seed: int) -> Module:
    """A convolution of a few images in random geometry."""
    pick, rank = random.Random(seed).choice, 1 + seed % 2
    groups = pick([1, 1, 2])
    x = Value("x", TensorType(F32, (pick([2, 5, 17]), 2 * groups, *(pick([6, 9]) for _ in range(rank)))))
    kernel = tuple(pick([1, 2, 3]) for _ in range(rank))
    weight = Value("weight", TensorType(F32, (3 * groups, 2, *kernel)))
    bias = [Value("bias", TensorType(F32, (3 * groups,)))] if pick([True, False]) else []
    b = Builder(OPERATORS)
    padding = pick([0, 1, "same", tuple((pick([0, 1]), pick([0, 2])) for _ in range(rank))])
    stride = tuple(pick([1, 1, 2]) for _ in range(rank))
    given = {"padding": padding, "stride": stride, "dilation": pick([1, 1, 2]), "groups": groups}
    (result,) = b.apply(f"conv{rank}d", [x, weight, *bias], given)
    function = Function("main", (x, weight, *bias), tuple(b.nodes), (result,), ("y",))
    return Module("convolution", (), (), (function,))


def rewrite(module: Module, passes: str) -> Module:
    (step,) = parse_pipeline(passes)
    return step.run(module, Context())


def arguments(module: Module) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=v.type.concrete({})).astype(np.float32) for v in module.functions[0].arguments]


def parameters(_: object) -> Array:
    raise AssertionError("there are no parameters")


@pytest.mark.parametrize("seed", range(12))
def test_results_are_the_same(seed: int) -> None:
    module = convolution(seed)
    after = rewrite(module, "batch-last{gain=0,work=0,channels=100}")
    (wider,) = (node.op for node in after.functions[0].body if node.op.startswith("conv"))
    assert wider == f"conv{2 + seed % 2}d" and len(after.functions[0].body) > 1
    given = arguments(module)
    expected = Interpreter(module, parameters, precision=F64).run("main", given)
    assert largest_error(expected, Interpreter(after, parameters, precision=F64).run("main", given)) < 1e-12
    if seed < 4:
        actual = build_functions(after, level=2, load=parameters)["main"](given)
        # Sums of at most 2 * 9 products in f32.
        assert largest_error(expected, actual) < 1e-6


@pytest.mark.parametrize(
    ("x", "weight", "changes"),
    [
        ("64, 16, 8, 8", "6, 16, 5, 5", True),
        ("64, 16, 8, 8", "8, 16, 5, 5", False),  # eight channels fill half a vector where they are last
        ("64, 16, 12, 12", "6, 16, 5, 5", False),  # rows of 16 results fill a vector
        ("5, 16, 8, 8", "6, 16, 5, 5", False),  # five images do not
        ("64, 1, 8, 8", "6, 1, 3, 3", False),  # the transpositions take longer
        ("N, 16, 8, 8", "6, 16, 5, 5", False),  # images of an unknown number
    ],
)
def test_only_convolutions_that_gain_change(x: str, weight: str, changes: bool) -> None:
    images, results = x.split(",")[0], weight.split(",")[0]
    size = int(x.split(",")[-1]) + 2 * 4 - int(weight.split(",")[-1]) + 1
    y = f"{images}, {results}, {size}, {size}"
    module = parse_module(
        f"module m\n\ndim N in 1..99\n\nfunc main(%x: f32[{x}], %w: f32[{weight}]) -> (f32[{y}]) {{\n"
        f"  %y = conv2d(%x, %w) {{padding = 4}} : f32[{y}]\n  return %y\n}}\n"
    )
    assert (rewrite(module, "batch-last") != module) == changes


def test_transposed_convolutions_stay() -> None:
    module = parse_module(
        "module m\n\nfunc main(%x: f32[64, 16, 8, 8], %w: f32[16, 6, 5, 5]) -> (f32[64, 6, 12, 12]) {\n"
        "  %y = conv_transpose2d(%x, %w) : f32[64, 6, 12, 12]\n  return %y\n}\n"
    )
    assert rewrite(module, "batch-last") == module
