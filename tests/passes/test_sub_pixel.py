"""Transposed convolutions by their phases: compiled, against the interpreter in float64."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from convolution_nets import largest_error, load
from nacre.compiler.codegen.jit import build_functions
from nacre.dialect.dims import Symbol
from nacre.dialect.graph import Function, Module, Node, Parameter, Value, walk
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import BF16, F32, F64, TensorType
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline

BATCH, HEIGHT = Symbol("N", 0, 3), Symbol("H", 4, 9)
DIMS = ({"N": 2, "H": 7}, {"N": 1, "H": 4}, {"N": 0, "H": 5})
LAST = "sub-pixel,channels-last,canonicalize,fold-constants,dce,fold-parameters,canonicalize,cse,dce,fuse"
FIRST = "sub-pixel{channels=1000},canonicalize,fold-constants,dce,fuse"

CASES: tuple[tuple[int, tuple[int, ...], dict[str, Any]], ...] = (
    (2, (12, 8, 4, 4), {"stride": 2, "padding": 1}),
    (2, (12, 8, 2, 2), {"stride": 2}),
    (2, (12, 8, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    (2, (12, 4, 5, 3), {"stride": (3, 2), "padding": (1, 2, 0, 1), "groups": 2}),
    (2, (12, 9, 2, 1), {"stride": 3, "output_padding": 4}),
    (2, (12, 8, 3, 3), {"stride": 1, "padding": 1, "dilation": 2}),
    (1, (12, 4, 3), {"stride": 2, "dilation": 4}),
    (1, (12, 1, 32), {"stride": 8, "padding": 12}),
    (1, (12, 3, 7), {"stride": 4, "output_padding": 5}),
    (1, (12, 8, 3), {"stride": 2, "padding": 2}),
    (3, (12, 3, 2, 3, 2), {"stride": 2}),
)
LEFT: tuple[tuple[int, tuple[int, ...], dict[str, Any]], ...] = (
    # Channels one by one, taps apart that reach several phases, and nothing left of the first window.
    (2, (12, 1, 4, 4), {"stride": 2, "groups": 12}),
    (2, (12, 8, 2, 2), {"stride": 2, "dilation": 3}),
    (2, (12, 8, 2, 2), {"stride": 2, "padding": 2}),
)


def module_of(cases: Any, dtype: Any = F32) -> Module:
    """One result for each case; every other one has a bias."""
    b = Builder(OPERATORS)
    arguments, parameters, results = [], [], []

    def parameter(*shape: int) -> Value:
        made = Parameter(f"p{len(parameters)}", TensorType(dtype, shape))
        parameters.append(made)
        output = b.fresh(made.type)
        b.nodes.append(Node("parameter", (), (output,), (("name", made.name),)))
        return output

    for number, (rank, weight, attributes) in enumerate(cases):
        x = Value(f"x{number}", TensorType(dtype, (BATCH.size, 12, HEIGHT.size, *(5, 2)[: rank - 1])))
        bias = [parameter(weight[1] * attributes.get("groups", 1))] if number % 2 == 0 else []
        arguments.append(x)
        results += b.apply(f"conv_transpose{rank}d", [x, parameter(*weight), *bias], attributes)
    function = Function("main", tuple(arguments), tuple(b.nodes), tuple(results))
    return Module("m", (BATCH, HEIGHT), tuple(parameters), (function,))


def operators(module: Module) -> Counter[str]:
    return Counter(node.op for node in walk(module.functions[0].body))


def after(module: Module, passes: str) -> Module:
    return PassManager(parse_pipeline(passes)).run(module)


# Sums of 12 times up to 9 products; those of bfloats are rounded once, to 8 bits, the bias included.
@pytest.mark.parametrize(("passes", "dtype", "bound"), [(LAST, F32, 1e-6), (FIRST, F32, 1e-6), (LAST, BF16, 2**-8)])
def test_phases_compute_the_same(passes: str, dtype: Any, bound: float) -> None:
    module = module_of(CASES, dtype)

    def stored(parameter: Parameter) -> Any:
        return load(parameter).astype(dtype.numpy)

    changed = after(module, passes)
    # In 16 bits, phases that are the bias alone stay with the others.
    kept = operators(changed)["conv_transpose2d"] + operators(changed)["conv_transpose1d"]
    assert kept == (0 if dtype is F32 else 1)
    compiled = build_functions(changed, level=2, load=stored)["main"]
    for dims in DIMS:
        rng = np.random.default_rng(3)
        given = [rng.normal(size=v.type.concrete(dims)).astype(dtype.numpy) for v in module.functions[0].arguments]
        expected = Interpreter(module, stored, precision=F64).run("main", given)
        for number, (wanted, found) in enumerate(zip(expected, compiled(given), strict=True)):
            assert largest_error([wanted], [found]) <= bound, (number, CASES[number], dims)


def test_no_product_is_with_a_zero_between_elements() -> None:
    """One convolution where the kernel is whole strides, and otherwise one for each number of taps."""
    counts = [operators(after(module_of([case]), LAST)) for case in CASES[:3]]
    assert [count["conv2d"] for count in counts] == [1, 1, 4]


def test_others_stay() -> None:
    left = operators(after(module_of(LEFT), LAST))
    assert left["conv_transpose2d"] == len(LEFT)
