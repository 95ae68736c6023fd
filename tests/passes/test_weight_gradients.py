"""`channels-last` keeps gradients of weights of any geometry, with the same bits for any number of threads."""

import random

import numpy as np
import pytest
from convolution_nets import BATCH, DIM_VALUES, HEIGHT, arguments, largest_error, load, run_net
from nacre.compiler.codegen.jit import build_functions
from nacre.compiler.tools.explorer.graph import Graph
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.ops.support.windows import conv_geometry
from nacre.dialect.types import F32, F64, TensorType
from nacre.passes.manager import Context
from nacre.passes.pass_list import parse_pipeline


def weight_gradient(seed: int) -> Module:
    pick, rank = random.Random(seed).choice, (1, 2, 2, 3)[seed % 4]
    groups, kernel = pick([1, 1, 2]), tuple(pick([1, 2, 3]) for _ in range(rank))
    window = {
        "stride": tuple(pick([1, 1, 2]) for _ in range(rank)),
        "padding": tuple((pick([0, 1]), pick([0, 2])) for _ in range(rank)),
        "dilation": pick([1, 1, 2]),
    }
    spatial = (HEIGHT.size, *(pick([7, 10]) for _ in range(rank - 1)))
    x = Value("x", TensorType(F32, (BATCH.size, groups * pick([1, 3, 9]), *spatial)))
    counts = conv_geometry("conv_weight_gradient", spatial, kernel, window).counts
    g = Value("g", TensorType(F32, (BATCH.size, groups * pick([8, 17, 33]), *counts)))
    b = Builder(OPERATORS)
    results = (b.conv_weight_gradient(x, g, kernel=kernel, groups=groups, **window), b.relu(x))
    return Module("gradient", (BATCH, HEIGHT), (), (Function("main", (x, g), tuple(b.nodes), results, ("w", "y")),))


def channels_last(module: Module) -> Module:
    context = Context()
    (step,) = parse_pipeline("channels-last")
    after = step.run(module, context)
    assert {r.rule for r in context.rewrites} == {"conv_weight_gradient"}
    return after


@pytest.mark.parametrize("seed", range(12))
def test_weight_gradients_are_the_same(seed: int) -> None:
    module = weight_gradient(seed)
    after = channels_last(module)
    expected = run_net(module, F64)
    assert largest_error(expected, run_net(after, F64)) < 1e-12
    compiled = build_functions(after, level=2, load=load)["main"]
    # Sums of up to 2 * 8 * 100 products in f32.
    assert largest_error(expected, [r for dims in DIM_VALUES for r in compiled(arguments(module, dims))]) < 1e-4


def test_any_number_of_threads_gives_the_same_bits(tmp_path) -> None:
    module = weight_gradient(1)
    results = []
    for threads in (1, 2):
        model = Graph(module, "main").compile(tmp_path / f"{threads}.so", threads=threads)
        results.append(model(*arguments(module, {"N": 3, "H": 14})))
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)
