"""`im2col` keeps convolutions with weights that are arguments, their transposes, and gradients of their weights."""

import random
from collections import Counter

import pytest
from convolution_nets import BATCH, DIM_VALUES, HEIGHT, arguments, largest_error, load, run_net
from nacre.compiler.codegen.jit import build_functions
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.ops.support.windows import conv_geometry
from nacre.dialect.parser import parse_module
from nacre.dialect.types import F32, F64, TensorType
from nacre.passes.manager import Context
from nacre.passes.pass_list import parse_pipeline

ANY_SIZE = "im2col{row=100,channels=1}"


def convolution_and_gradients(seed: int) -> Module:
    """A convolution, the transpose of it, and the gradient of its weight, in random geometry."""
    pick, rank = random.Random(seed).choice, (1, 2, 2, 3)[seed % 4]
    kernel = tuple(pick([1, 2, 3]) for _ in range(rank))
    window = {
        "stride": tuple(pick([1, 1, 2]) for _ in range(rank)),
        "padding": tuple((pick([0, 1]), pick([0, 2])) for _ in range(rank)),
        "dilation": pick([1, 1, 2]),
    }
    spatial = (HEIGHT.size, *(pick([7, 10]) for _ in range(rank - 1)))
    inputs, outputs = pick([1, 3, 9]), pick([2, 17])
    counts = conv_geometry("conv", spatial, kernel, window).counts
    x = Value("x", TensorType(F32, (BATCH.size, inputs, *spatial)))
    g = Value("g", TensorType(F32, (BATCH.size, outputs, *counts)))
    weight = Value("weight", TensorType(F32, (outputs, inputs, *kernel)))
    biases = [Value(f"b{size}", TensorType(F32, (size,))) for size in (outputs, inputs)] if pick([True, False]) else []
    b = Builder(OPERATORS)
    results = (
        b.apply(f"conv{rank}d", [x, weight, *biases[:1]], window)[0],
        b.apply(f"conv_transpose{rank}d", [g, weight, *biases[1:]], window)[0],
        b.conv_weight_gradient(x, g, kernel=kernel, **window),
    )
    function = Function("main", (x, g, weight, *biases), tuple(b.nodes), results, ("y", "dx", "dw"))
    return Module("convolution", (BATCH, HEIGHT), (), (function,))


def rewrite(module: Module, passes: str) -> Module:
    (step,) = parse_pipeline(passes)
    return step.run(module, Context())


def operators(module: Module) -> Counter[str]:
    return Counter(node.op for node in module.functions[0].body)


@pytest.mark.parametrize("seed", range(8))
def test_results_are_the_same(seed: int) -> None:
    module = convolution_and_gradients(seed)
    after = rewrite(module, ANY_SIZE)
    left = operators(after)
    assert left["matmul"] == 3 and left["im2col"] == 2 and left["col2im"] == 1, left
    assert not any(name.startswith("conv") for name in left), left
    assert largest_error(run_net(module, F64), run_net(after, F64)) < 1e-12
    if seed < 4:
        compiled = build_functions(after, level=2, load=load)["main"]
        actual = [r for dims in DIM_VALUES for r in compiled(arguments(module, dims))]
        # Sums of up to 2 * 20 * 10 products in f32: the largest error of these seeds is 6.4e-7.
        assert largest_error(run_net(module, F64), actual) < 2e-6


def test_long_rows_and_few_channels_stay() -> None:
    module = convolution_and_gradients(1)
    for passes in ("im2col{row=2,channels=1}", "im2col{row=100,channels=64}"):
        assert operators(rewrite(module, passes)) == operators(module)


@pytest.mark.parametrize(
    ("weight", "groups"),
    [("%w", 2), ('parameter() {name = "p"}', 1)],
    ids=["groups", "known"],
)
def test_groups_and_known_weights_stay(weight: str, groups: int) -> None:
    each = 8 // groups
    first = "" if weight == "%w" else f"%k = {weight} : f32[8, {each}, 3, 3]"
    text = f"""
    module test
    param "p" : f32[8, {each}, 3, 3]
    func main(%x: f32[2, 8, 4, 4], %w: f32[8, {each}, 3, 3]) -> (f32[2, 8, 2, 2]) {{
      {first}
      %1 = conv2d(%x, {"%k" if first else "%w"}) {{groups = {groups}}} : f32[2, 8, 2, 2]
      return %1
    }}
    """
    module = parse_module(text)
    assert operators(rewrite(module, ANY_SIZE)) == operators(module)
