"""Passes over tensors whose sizes are all equal: a wrong axis has a shape that fits, and shows in numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from nacre.dialect.graph import Constant, Function, Module, Node, Parameter, Value
from nacre.dialect.interpreter import Interpreter, load_parameter
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.ops.support.layouts import FIRST, FIRST_TO_LAST, LAST
from nacre.dialect.parser import parse_module
from nacre.dialect.types import F32, F64, I8, U8, Array, DType, TensorType
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline

ORDERS = list(permutations(range(3)))
"""Two of them, the 3-cycles, are not their own inverse."""


class Graph:
    """A function of one argument that is being written; parameters have random data."""

    def __init__(self, dtype: DType, *shape: int) -> None:
        self.b = Builder(OPERATORS, "v")
        self.argument = Value("x", TensorType(dtype, shape))
        self.data: dict[str, Array] = {}
        self.rng = np.random.default_rng(0)

    def parameter(self, *shape: int, dtype: DType = F32) -> Value:
        name = f"p{len(self.data)}"
        drawn = self.rng.integers(0, 100, shape) if dtype.is_integer else self.rng.uniform(0.5, 2, shape)
        self.data[name] = np.asarray(drawn).astype(dtype.numpy)
        value = self.b.fresh(TensorType(dtype, shape))
        self.b.nodes.append(Node("parameter", (), (value,), (("name", name),)))
        return value

    def constant(self, array: Any) -> Value:
        return self.b.apply("constant", (), {"value": Constant(np.asarray(array))})[0]

    def module(self, result: Value) -> Module:
        parameters = tuple(
            Parameter(n, TensorType(F32 if a.dtype == np.float32 else I8, a.shape)) for n, a in self.data.items()
        )
        function = Function("f", (self.argument,), tuple(self.b.nodes), (result,), ("r",))
        return Module("m", (), parameters, (function,))

    def check(self, result: Value, passes: str, *, changes: bool = True, tolerance: float = 1e-10) -> None:
        """The result before and after the passes, which change the graph, or do not."""
        before = self.module(result)
        manager = PassManager(parse_pipeline(passes))
        after = manager.run(before)
        assert bool(manager.context.rewrites) == changes
        x = np.asarray(self.rng.integers(0, 50, self.argument.type.shape)).astype(self.argument.type.dtype.numpy)
        wide = F64 if tolerance else None
        one, two = (
            Interpreter(m, lambda p: self.data[p.name], precision=wide).run(m.functions[0], [x])[0]
            for m in (before, after)
        )
        if tolerance:
            np.testing.assert_allclose(two, one, rtol=tolerance)
        else:
            assert np.array_equal(one, two)


# fold-batch-norm

N = 3
CONTRACTIONS: dict[str, Callable[[Graph], Value]] = {
    "matmul": lambda g: g.b.matmul(g.argument, g.parameter(N, N)),
    **{
        f"conv{rank}d {layout}": lambda g, rank=rank, layout=layout: g.b.apply(  # type: ignore[misc]
            f"conv{rank}d", [g.argument, g.parameter(*(N,) * (rank + 2))], {"padding": 1, "layout": layout}
        )[0]
        for rank in (1, 2, 3)
        for layout in (FIRST, LAST, FIRST_TO_LAST)
    },
    **{
        f"conv_transpose{rank}d": lambda g, rank=rank: g.b.apply(  # type: ignore[misc]
            f"conv_transpose{rank}d", [g.argument, g.parameter(*(N,) * (rank + 2))], {"padding": 1}
        )[0]
        for rank in (1, 2, 3)
    },
}


def rank_of(name: str) -> int:
    return 2 if name == "matmul" else int(name.split("d")[0][-1]) + 2


def channels(name: str, rank: int) -> tuple[int, ...]:
    """The shape that is broadcast along the channels of the result."""
    last = name == "matmul" or LAST in name or FIRST_TO_LAST in name
    return (N,) if last else (N, *(1,) * (rank - 2))


@pytest.mark.parametrize("op", ["multiply", "divide"])
@pytest.mark.parametrize("name", CONTRACTIONS)
def test_scales_go_into_the_channels_of_a_weight(name: str, op: str) -> None:
    rank = rank_of(name)
    g = Graph(F32, *(N,) * rank)
    y = CONTRACTIONS[name](g)
    scaled = g.b.apply(op, [y, g.parameter(*channels(name, rank))])[0]
    g.check(scaled, "fold-batch-norm")


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_scales_along_another_axis_stay(name: str) -> None:
    rank = rank_of(name)
    g = Graph(F32, *(N,) * rank)
    y = CONTRACTIONS[name](g)
    shape = [1] * rank
    shape[0] = N
    g.check(g.b.multiply(y, g.parameter(*shape)), "fold-batch-norm", changes=False)


# winograd

FRAMES: Sequence[dict[str, Any]] = [
    {},
    {"value": 1.5},
    {"value": -0.25},
    {"mode": "edge"},
    {"mode": "reflect"},
]


@pytest.mark.parametrize("frame", FRAMES, ids=str)
@pytest.mark.parametrize("size", [4, 5, 7])
def test_winograd_keeps_the_border_of_padding(size: int, frame: dict[str, Any]) -> None:
    g = Graph(F32, 1, size, size, 3)
    padded = g.b.pad(g.argument, widths=((0, 0), (1, 1), (1, 1), (0, 0)), **frame)
    y = g.b.conv2d(padded, g.parameter(3, 3, 3, 3), layout=LAST)
    # The results are as large as sums of 27 products; the matrices of the transform are exact in f64.
    g.check(y, "winograd{channels=1,blocks=0}", tolerance=1e-9)


# Permutations


@pytest.mark.parametrize("second", ORDERS)
@pytest.mark.parametrize("first", ORDERS)
def test_two_transposes(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    g = Graph(F32, N, N, N)
    y = g.b.transpose(g.b.exp(g.b.transpose(g.argument, axes=first)), axes=second)
    g.check(y, "canonicalize", changes=(0, 1, 2) in (first, second), tolerance=0)
    g = Graph(F32, N, N, N)
    g.check(g.b.transpose(g.b.transpose(g.argument, axes=first), axes=second), "canonicalize", tolerance=0)


@pytest.mark.parametrize("second", ORDERS[1:])
@pytest.mark.parametrize("first", ORDERS[1:])
def test_two_transposes_around_a_new_axis(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    g = Graph(F32, N, N, N)
    spread = g.b.unsqueeze(g.b.transpose(g.argument, axes=first), axes=(1,))
    old = [0, 2, 3]
    around = [old[axis] for axis in second]
    g.check(g.b.transpose(spread, axes=(around[0], 1, *around[1:])), "canonicalize", tolerance=0)


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("order", ORDERS[1:])
def test_codes_that_are_transposed_keep_their_scales(order: tuple[int, ...], axis: int) -> None:
    """A scale and a zero point for each place along an axis move with it."""
    g = Graph(I8, N, N, N)
    shape = [1] * 3
    shape[axis] = N
    numbers = g.b.dequantize(g.argument, g.parameter(*shape), g.parameter(*shape, dtype=I8))
    g.check(g.b.transpose(numbers, axes=order), "qdq-propagation", tolerance=0)


@pytest.mark.parametrize("operand", ORDERS, ids=str)
@pytest.mark.parametrize("result", ORDERS, ids=str)
def test_sums_of_codes_take_the_axes_of_the_result(operand: tuple[int, ...], result: tuple[int, ...]) -> None:
    """Scales, and the sums that a zero point is multiplied by, have the axes of the result."""
    left, right = "".join("abc"[i] for i in operand), "".join("abd"[i] for i in result)
    g = Graph(I8, N, N, N)
    scales = powers(1, -2, 0).reshape([N if label == "a" else 1 for label in left])
    numbers = g.b.dequantize(g.argument, g.constant(scales))
    scale, zero = g.constant(powers(-1)), g.constant(np.asarray([3], np.int8))
    weights = g.b.dequantize(g.parameter(N, N, dtype=I8), scale, zero)
    y = g.b.einsum(numbers, weights, equation=f"{left},dc->{right}")
    g.check(y, "qdq-propagation", tolerance=1e-12)


SCANNED = """module scanned

func main(%x: f32[3, 3, 3, 3], %w: f32[3, 3]) -> (f32[3, 3, 3, 3]) {
  %y = scan() {carried = 0, count = 3} : f32[3, 3, 3, 3] do (%t: i64) {
    %slice = gather(%x, %t) {axis = AXIS, mode = "clamp"} : f32[3, 3, 3]
    %0 = matmul(%slice, %w) : f32[3, 3, 3]
    yield %0
  }
  return %y
}
"""


@pytest.mark.parametrize("axis", range(4))
def test_slices_of_an_inner_axis_are_taken_from_a_transpose(axis: int) -> None:
    """The axis of a loop moves to the front, and the others keep their order: a cycle, behind the second axis."""
    module = parse_module(SCANNED.replace("AXIS", str(axis)))
    manager = PassManager(parse_pipeline("batch-scanned"))
    after = manager.run(module)
    rng = np.random.default_rng(axis)
    x, w = rng.standard_normal((N, N, N, N)), rng.standard_normal((N, N))
    one, two = (Interpreter(m, load_parameter, precision=F64).run(m.functions[0], [x, w])[0] for m in (module, after))
    assert manager.context.rewrites
    np.testing.assert_allclose(one, np.moveaxis(x, axis, 0) @ w, rtol=1e-10)
    np.testing.assert_allclose(two, one, rtol=1e-10)


# Codes


def powers(*exponents: int) -> Any:
    return np.asarray([2.0**e for e in exponents], np.float32)


GIVEN = (powers(-1), np.asarray([3], np.int8))
OTHERS: dict[str, tuple[Any, Any, DType]] = {
    "the same": (*GIVEN, I8),
    "another scale": (powers(1), GIVEN[1], I8),
    "another zero point": (GIVEN[0], np.asarray([4], np.int8), I8),
    "no zero point": (GIVEN[0], None, I8),
    "another dtype": (GIVEN[0], np.asarray([3], np.uint8), U8),
    "scales in another order": (powers(1, -1, 0), GIVEN[1], I8),
}


@pytest.mark.parametrize("name", OTHERS)
def test_codes_of_codes(name: str) -> None:
    """`quantize(dequantize(q))` is `q` where both have one scale, one zero point and one dtype."""
    scale, zero, dtype = OTHERS[name]
    g = Graph(I8, 5, N)
    first = powers(-1, 1, 0) if name == "scales in another order" else GIVEN[0]
    numbers = g.b.dequantize(g.argument, g.constant(first), g.constant(GIVEN[1]))
    zeros = [] if zero is None else [g.constant(zero)]
    result = g.b.quantize(numbers, g.constant(scale), *zeros, dtype=dtype)
    g.check(result, "qdq-propagation", changes=name == "the same", tolerance=0)


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
def test_channels_that_come_last_are_transposed(order: tuple[int, ...]) -> None:
    g = Graph(F32, N, N, N, N)
    y = g.b.relu(g.b.conv2d(g.argument, g.parameter(N, N, N, N), padding=1))
    g.check(g.b.transpose(y, axes=order), "channels-last{channels=1}", tolerance=1e-10)


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
def test_channels_of_a_transposed_operand_come_last(order: tuple[int, ...]) -> None:
    """Both transposes become one."""
    g = Graph(F32, N, N, N, N)
    y = g.b.conv2d(g.b.transpose(g.argument, axes=order), g.parameter(N, N, N, N), padding=1)
    g.check(y, "channels-last{channels=1,direct=0}", tolerance=1e-10)


@pytest.mark.parametrize("widths", [(1, 0, 2, 0, 0, 1, 1, 3), ((1, 0), (2, 0), (0, 1), (1, 3))], ids=["flat", "pairs"])
def test_padding_between_convolutions_keeps_its_axes(widths: Any) -> None:
    g = Graph(F32, N, N, N, N)
    y = g.b.pad(g.b.conv2d(g.argument, g.parameter(N, N, N, N), padding=1), widths=widths)
    y = g.b.conv2d(y, g.parameter(N, N + 2, N, N), padding=1)
    g.check(y, "channels-last{channels=1}", tolerance=1e-10)


@pytest.mark.parametrize("shape", [s for rank in (1, 2, 3) for s in product((1, N), repeat=rank)], ids=str)
def test_operands_of_lower_rank_keep_their_axes(shape: tuple[int, ...]) -> None:
    """Channels last, an operand with an axis for the channels is transposed, although its shape stays as it is."""
    g = Graph(F32, N, N, N, N)
    y = g.b.conv2d(g.argument, g.parameter(N, N, N, N), padding=1)
    g.check(g.b.relu(g.b.subtract(y, g.parameter(*shape))), "channels-last{channels=1}", tolerance=1e-10)
