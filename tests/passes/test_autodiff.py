"""Gradients of whole graphs against finite differences in float64: random graphs, branches and loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from nacre.compiler.readers.language.elaborate import load_module
from nacre.dialect.differentiate import GradientError
from nacre.dialect.graph import Module, Parameter, walk
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.parser import parse_module
from nacre.dialect.printer import collect_constants, print_module
from nacre.dialect.types import F32, F64, Array
from nacre.dialect.verifier import verify
from nacre.passes.autodiff.differentiate import with_gradients
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline
from random_graphs import DIM_VALUES, random_array, random_module

STEP = 1e-6
GRAPHS = 200


class Slopes:
    """The derivative of a function's first result along one random direction, by finite differences and by gradients.

    `parameters` are by name, in float64.
    """

    def __init__(self, module: Module, entry: str, wanted: list[str], parameters: Mapping[str, Array]) -> None:
        self.module, self.entry, self.wanted, self.parameters = module, entry, wanted, dict(parameters)
        self.differentiated = with_gradients(module, entry, wanted)
        verify(self.differentiated)
        self.arguments = [a.name for a in module.function(entry).arguments]

    def run(self, module: Module, values: Mapping[str, Array]) -> tuple[Array, ...]:
        def load(parameter: Parameter) -> Array:
            return values[parameter.name]

        return Interpreter(module, load, precision=F64).run(self.entry, [values[n] for n in self.arguments])

    def compare(self, given: Mapping[str, Array], seed: int) -> tuple[float, float, float]:
        """Returns the slope by gradients, and those of the function on both sides of the point."""
        values = self.parameters | dict(given)
        rng = np.random.default_rng(seed)
        direction = {name: rng.standard_normal(values[name].shape) for name in self.wanted}
        count = len(self.module.function(self.entry).outputs)
        results = self.run(self.differentiated, values)
        gradients = dict(zip(self.wanted, results[count:], strict=True))
        slope = sum(float(np.sum(gradients[name] * direction[name])) for name in self.wanted)
        at, above, below = (
            float(self.run(self.module, values | {n: values[n] + step * d for n, d in direction.items()})[0])
            for step in (0.0, STEP, -STEP)
        )
        return slope, (above - at) / STEP, (at - below) / STEP


def check(slopes: Slopes, given: Mapping[str, Array], seed: int = 0, tolerance: float = 1e-6) -> None:
    slope, right, left = slopes.compare(given, seed)
    assert slope == pytest.approx((right + left) / 2, rel=tolerance, abs=tolerance)


def read(text: str) -> Module:
    return load_module("language 1\n" + text, text=True).module


def make(rng: np.random.Generator, **shapes: tuple[int, ...]) -> dict[str, Array]:
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


# --- random graphs ---


def with_loss(module: Module) -> tuple[Module, list[str]]:
    """The module with a scalar of all float results in front, and the names of its float arguments and parameters."""
    function = module.function("main")
    b = Builder(OPERATORS, "loss_")
    total = b.scalar(0.0, F64)
    for result in function.results:
        if result.type.dtype in (F32, F64) and 0 not in result.type.shape:
            total = b.add(total, b.cast(b.mean(b.tanh(result)), dtype=F64))
    changed = replace(function, body=(*function.body, *b.nodes), results=(total, *function.results), result_names=())
    read = {str(n.attribute("name")) for n in function.body if n.op == "parameter" and not n.inputs}
    wanted = [a.name for a in function.arguments if a.type.dtype.is_float]
    wanted += [p.name for p in module.parameters if p.name in read and p.type.dtype.is_float]
    return replace(module, functions=(changed,)), wanted


def test_random_graphs() -> None:
    kinks, moved = 0, 0
    for seed in range(GRAPHS):
        module, wanted = with_loss(random_module(5000 + seed, exact=False, tame=True))
        rng = np.random.default_rng(seed)
        parameters = {}
        for p in module.parameters:
            shape = p.type.concrete({})
            for at in np.ndindex(*p.counts):
                parameters[p.at(at).name] = random_array(shape, p.type.dtype, rng, True).astype(
                    np.float64 if p.type.dtype.is_float else p.type.dtype.numpy
                )
        slopes = Slopes(module, "main", wanted, parameters)
        dims = DIM_VALUES[seed % 2]
        arguments = module.function("main").arguments
        given = {a.name: random_array(a.type.concrete(dims), a.type.dtype, rng, True) for a in arguments}
        given = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in given.items()}
        slope, right, left = slopes.compare(given, seed)
        scale = max(1.0, abs(right), abs(left))
        if abs(right - left) > 1e-4 * scale:
            # The point is a kink, such as the maximum of a value and itself: a gradient is any slope between.
            kinks += 1
            assert min(right, left) - 1e-4 * scale <= slope <= max(right, left) + 1e-4 * scale, seed
            continue
        moved += abs(slope) > 1e-3
        assert abs(slope - (right + left) / 2) <= 1e-5 * scale, (seed, slope, right, left)
    assert kinks <= GRAPHS // 10, kinks
    assert moved >= GRAPHS // 2, moved


# --- regions ---

CELL = """
dim T in 0..64
block Cell<i, h>(x: f32[2, i], s: f32[2, h]) -> f32[2, h] {
  param w: f32[h, i]
  param u: f32[h, h]
  return tanh(x @ w.T + s @ u.T)
}
"""


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_a_recurrent_network(steps: int) -> None:
    text = (
        CELL
        + """
    model m(x: f32[2, T, 3], s: f32[2, 4]) -> loss: f32 {
      use cell = Cell<3, 4>
      y = scan t in 0..T with s = s { s = cell(x[:, t], s) } collect s
      return sum(y * y) + sum(sin(s))
    }"""
    )
    rng = np.random.default_rng(0)
    weights = {"cell.w": rng.standard_normal((4, 3)), "cell.u": rng.standard_normal((4, 4))}
    slopes = Slopes(read(text), "m", ["x", "s", "cell.w", "cell.u"], weights)
    check(slopes, make(rng, x=(2, steps, 3), s=(2, 4)))


def test_slices_at_other_offsets_and_of_other_axes() -> None:
    text = """
    dim T in 1..64
    model m(x: f32[2, T, 3], y: f32[T, 2]) -> loss: f32 {
      z = scan t in 0..T with a = 0.0 {
        a = a * 0.5 + sum(x[:, t] * x[:, 0]) + sum(sin(y[t])) + sum(y[t] * y[t])
      } collect a
      w = scan t in 1..T with b = a { b = b + sum(x[:, t - 1]) * sum(x[:, t]) }
      return sum(z) + b
    }"""
    rng = np.random.default_rng(1)
    check(Slopes(read(text.replace("w = scan", "scan")), "m", ["x", "y"], {}), make(rng, x=(2, 5, 3), y=(5, 2)))


def test_slices_of_every_axis() -> None:
    """The gradients are stacked, and a cycle of axes brings them to their axis."""
    text = """
    dim T in 1..64
    model m(x: f32[T, 2, 3, 4], y: f32[2, T, 3, 4], z: f32[2, 3, T, 4], w: f32[2, 3, 4, T]) -> loss: f32 {
      scan t in 0..T with a = 0.0 {
        a = a * 0.5 + sum(sin(x[t]) * y[:, t] * cos(z[:, :, t]) * w[:, :, :, t])
      }
      return a * a
    }"""
    rng = np.random.default_rng(2)
    given = make(rng, x=(5, 2, 3, 4), y=(2, 5, 3, 4), z=(2, 3, 5, 4), w=(2, 3, 4, 5))
    check(Slopes(read(text), "m", ["x", "y", "z", "w"], {}), given)


@pytest.mark.parametrize("steps", [0, 1, 3, 6])
def test_a_value_that_reaches_others_iterations_later(steps: int) -> None:
    text = """
    dim T in 0..64
    model m(x: f32[T]) -> loss: f32 {
      scan t in 0..T with a = 0.5, b = 0.25, c = 1.0, d = 1.0 {
        d = d + sin(c) * c
        c = c + cos(b) * b
        b = b + a * a
        a = a * 0.5 + sin(x[t])
      }
      return d
    }"""
    rng = np.random.default_rng(4)
    check(Slopes(read(text), "m", ["x"], {}), make(rng, x=(steps,)))


def test_a_loop_in_a_loop_in_a_branch() -> None:
    text = """
    dim T in 3..9
    model m(x: f32[T, 3], c: bool) -> loss: f32 {
      y = if c {
        a = zeros((3,))
        scan t in 0..T with a = a {
          scan s in 0..3 with a = a { a = sin(a + x[t]) * x[s] }
        }
        sum(a)
      } else { if mean(x) > 0 { sum(x * x) } else { sum(exp(x)) } }
      return y * y
    }"""
    rng = np.random.default_rng(2)
    slopes = Slopes(read(text), "m", ["x"], {})
    for seed, flag in enumerate((True, False, False, False)):
        check(slopes, make(rng, x=(4, 3)) | {"c": np.asarray(flag)}, seed)


def test_a_branch_that_reads_nothing_has_the_gradient_0() -> None:
    text = "model m(x: f32[3], c: bool) -> loss: f32 { return if c { sum(x) } else { zeros(()) } }"
    module = with_gradients(read(text), "m", ["x"])
    for flag, expected in ((True, 1.0), (False, 0.0)):
        _, gradient = Interpreter(module, lambda p: np.zeros(0)).run("m", [np.ones(3, np.float32), np.asarray(flag)])
        np.testing.assert_array_equal(gradient, np.full(3, expected, np.float32))


def test_gathers_and_broadcasts() -> None:
    text = """
    model m(table: f32[5, 3], ids: i64[4], x: f32[4, 1], c: f32) -> loss: f32 {
      y = mean(softmax(embedding(table, ids) * x + c) @ table.T)
      return y + sum(take_along_axis(table[:4], ids[:, None] % 3, axis=1))
    }"""
    rng = np.random.default_rng(3)
    given = make(rng, table=(5, 3), x=(4, 1), c=()) | {"ids": np.array([0, 4, 4, 1])}
    check(
        Slopes(read(text), "m", ["table", "x", "c"], {}),
        given,
    )


def test_assigned_slices() -> None:
    """At numbers, at a size, at a scalar known at run time, and in a loop."""
    text = """
    dim T in 1..9
    model m(x: f32[4, T + 3], y: f32[4, 2], at: i64) -> loss: f32 {
      z = sin(x)
      z[1, 1:3] = y[0] * y[1]
      z[1:3, T:T+2] = y[:2] * z[:2, :2]
      z[:, at:at+2] = y * z[:, :2]
      z[at] = z[0] * z[1]
      scan t in 0..T with z = z { z[:, t] = z[:, t] * z[:, t + 1] }
      return sum(z * z)
    }"""
    slopes = Slopes(read(text), "m", ["x", "y"], {})
    for number, (steps, at) in enumerate(((1, 0), (4, 2), (4, -3))):
        check(slopes, make(np.random.default_rng(number), x=(4, steps + 3), y=(4, 2)) | {"at": np.asarray(at)}, number)


def test_second_derivatives() -> None:
    """The gradient of the sum of a gradient, through a loop: its slope by finite differences of the first gradient."""
    text = """
    dim T in 1..64
    model m(x: f32[T, 3], s: f32[3]) -> loss: f32 {
      scan t in 0..T with s = s { s = sin(s * x[t]) }
      return sum(s * s)
    }"""
    first = with_gradients(read(text), "m", ["x", "s"])
    function = first.function("m")
    b = Builder(OPERATORS, "second_")
    total = b.add(b.sum(b.square(function.results[1])), b.sum(function.results[2]))
    changed = replace(function, body=(*function.body, *b.nodes), results=(total,), result_names=("loss",))
    rng = np.random.default_rng(4)
    check(Slopes(replace(first, functions=(changed,)), "m", ["x", "s"], {}), make(rng, x=(4, 3), s=(3,)))


def test_unneeded_gradients_are_not_computed() -> None:
    text = """
    model m(x: f32[2, 3], w: f32[3, 4], v: f32[4]) -> loss: f32, mean: f32 {
      h = sin(x) @ w
      return sum(tanh(h) * v), mean(cosh(h))
    }"""
    module = with_gradients(read(text), "m", ["v"])
    ops = [node.op for node in module.function("m").body]
    assert "cos" not in ops and ops.count("matmul") == 1 and "sinh" not in ops, ops


@pytest.mark.parametrize(
    "body",
    [
        "return sum(sin(x @ w) * exp(x @ w))",
        "y = if c { sum(sin(x @ w) * exp(x @ w)) } else { sum(x) }\n return y",
        "scan t in 0..T with h = x { h = sin(h @ w) * exp(h @ w) }\n return sum(h)",
    ],
    ids=["function", "branch", "loop"],
)
def test_equal_values_are_differentiated_once(body: str) -> None:
    """The product is written twice: its gradients by x and by w are two products more, and not four."""
    text = f"dim T in 0..9\n model m(x: f32[2, 3], w: f32[3, 3], c: bool, n: f32[T]) -> loss: f32 {{ {body} }}"
    slopes = Slopes(read(text), "m", ["x", "w"], {})
    check(slopes, make(np.random.default_rng(6), x=(2, 3), w=(3, 3), n=(3,)) | {"c": np.asarray(True)})
    recomputed = 0 if body.startswith("return") else 1
    products = [n for n in walk(slopes.differentiated.function("m").body) if n.op in ("matmul", "einsum")]
    assert len(products) == 2 + recomputed + 2


def test_a_parameter_that_is_read_twice() -> None:
    text = """
    block Twice(x: f32[3]) -> f32[3] { param weight: f32[3]
      return x * weight }
    model m(x: f32[3]) -> loss: f32 { use twice = Twice
      return sum(sin(twice(x)) + twice(cos(x))) }"""
    weight = np.array([0.5, -1.0, 2.0])
    check(Slopes(read(text), "m", ["x", "twice.weight"], {"twice.weight": weight}), {"x": np.array([0.1, 0.2, 0.3])})


def test_loops_without_gradients_keep_nothing() -> None:
    text = """
    dim T in 1..64
    model m(x: f32[T], w: f32) -> loss: f32 {
      scan t in 0..T with a = 0.0 { a = a + x[t] }
      return a * w
    }"""
    module = with_gradients(read(text), "m", ["w"])
    assert [len(n.outputs) for n in walk(module.function("m").body) if n.op == "scan"] == [1]


def test_a_loop_of_unknown_length_is_refused() -> None:
    text = "model m(x: f32) -> loss: f32 { while x < 10 with x = x { x = x * 2 }\n return x }"
    with pytest.raises(GradientError, match="while") as error:
        with_gradients(read(text), "m", ["x"])
    assert error.value.node.span is not None and error.value.node.span.line == 2


def test_the_text_of_a_differentiated_graph_reads_back_and_passes_keep_it() -> None:
    text = (
        CELL
        + """
    model m(x: f32[2, T, 3], s: f32[2, 4]) -> loss: f32 {
      use cell = Cell<3, 4>
      scan t in 0..T with s = s { s = cell(x[:, t], s) }
      return sum(s * s)
    }"""
    )
    module = with_gradients(read(text), "m", ["x", "cell.w"])
    printed = print_module(module)
    assert print_module(parse_module(printed, constants=collect_constants(module))) == printed
    rng = np.random.default_rng(0)
    weights = {"cell.w": rng.standard_normal((4, 3)), "cell.u": rng.standard_normal((4, 4))}
    arguments = [*make(rng, x=(2, 5, 3), s=(2, 4)).values()]
    after = PassManager(parse_pipeline("canonicalize,hoist-invariants,batch-scanned,cse,dce,fuse,dce")).run(module)
    before, result = (
        Interpreter(each, lambda p: weights[p.name], precision=F64).run("m", arguments) for each in (module, after)
    )
    for a, b in zip(before, result, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
