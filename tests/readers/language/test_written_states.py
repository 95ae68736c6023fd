"""Graphs with states, loops and branches as model text: the text reads back as a graph that computes the same bits."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.cli.main import run as command
from nacre.compiler.graph_passes import GRAPH_PASSES
from nacre.compiler.readers.language import load_module
from nacre.compiler.readers.language.model_writer import write_model
from nacre.compiler.validate.inputs import made_up
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.graph import Module
from nacre.dialect.interpreter import Interpreter, load_parameter
from nacre.dialect.parser import parse_module
from nacre.dialect.states import initial_values, stateless
from nacre.dialect.types import BOOL, Array, TensorType
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline

TEXTS = {
    "a cache of two blocks, and a counter": """
        dim T in 0..4
        dim S in 0..9
        block Cache(k: f32[T, 4], at: i64) -> f32[S, 4] {
          state rows: f32[S, 4]
          rows[at:at+T] = k
          rows[at:at+T, 1:3] = k[:, 1:3] * 2
          return rows
        }
        model put(x: f32[T, 4]) -> first: f32[S, 4], second: f32[S, 4], length: i64 {
          state length: i64 = 1
          use cache[2] = Cache
          before = cache[0](x, length)
          length = length + T
          return before, cache[1](x + 1, length - T), length
        }
        model length() -> i64 {
          state length: i64 = 1
          return length
        }""",
    "old and new values are results": """
        model f(x: f32[3]) -> f32[3], f32[3], f32[3], f32[3] {
          state a: f32[2, 3] = [1, 2, 3]
          state b: f32[3] = zeros([3], f32) + 0.5
          before = a[0]
          a[1] = x
          middle = a[0] + a[1]
          old = b
          b = b + middle
          a = a * 2
          a[0, 1:2] = 7
          return before, middle, old, b
        }""",
    "states that are exchanged": """
        model f(x: f32) -> f32, f32 {
          state a: f32 = 1
          state b: f32 = 2
          state same: f32 = 3
          a, b = b, a
          return a + x, b + same
        }""",
    "an initial value of parameters and of a checkpoint": """
        model f(x: f32[3]) -> f32[2, 3] {
          param w: f32[3]
          state a: f32[2, 3] = w * 2 + 1
          state b: f32[3] from "start"
          a = a + x + w
          b = b + x
          return a * b
        }""",
    "states before and after a loop": """
        dim T in 0..5
        model f(x: f32[T, 3], c: bool) -> f32[T, 3], f32[3] {
          state h: f32[3]
          y = scan t in 0..T with k = h { k = tanh(k + x[t]) } collect k
          h = if c { k * 2 } else { h }
          while max(abs(h)) > 1 with n = 0, h = h { h = h * 0.5; n = n + 1 }
          return y, h
        }""",
}
PASSES = {"graph": "", "-O2": GRAPH_PASSES[2]}


def run(module: Module, name: str, dims: dict[str, int]) -> list[tuple[bytes, ...]]:
    """Returns the results and the states of three calls, one after another."""
    function, rng = module.function(name), np.random.default_rng(0)

    def draw(type: TensorType) -> Array:
        numbers = rng.standard_normal(type.concrete(dims))
        return np.asarray(numbers > 0 if type.dtype == BOOL else numbers).astype(type.dtype.numpy)

    values: tuple[Array, ...] = initial_values(module, function, dims, lambda p: load_parameter(p, made_up))
    found = []
    for _ in range(3):
        inputs = [draw(argument.type) for argument in function.inputs]
        results = Interpreter(module, made_up).run(function, [*inputs, *values], dims)
        values = results[len(function.outputs) :]
        found.append(tuple(result.tobytes() for result in results))
    return found


BLOCKS = {
    "layers with caches": """
        dim T in 1..4
        dim S in 4..9
        block Mix<n>(x: f32[T, n]) -> f32[T, n] {
          param weight: f32[n, n] from "{path}.w"
          state total: f32[n] = weight[0] * 2 + 1
          state count: i64 from "{path}.count"
          count = count + T
          total = total + sum(x, axis=0)
          return x @ weight + total / cast(count, f32)
        }
        block Layer<n>(x: f32[T, n], at: i64) -> f32[T, n], f32[S, n] {
          use first, second = Mix<n>
          param offset: f32[n] from "h.{i+1}.offset"
          state rows: f32[S, n]
          rows[at:at+T] = x
          y = first(second(first(x)) + offset)
          return y, rows
        }
        model step(x: f32[T, 3], at: i64) -> f32[T, 3], f32[S, 3] {
          use layer[3] = Layer<3>
          x, rows = layer[0](x, at)
          repeat i in 1..3 { x, rows = layer[i](x, at) }
          return x, rows
        }
        model last(x: f32[T, 3], at: i64) -> f32[T, 3] {
          use layer[3] = Layer<3>
          y, _rows = layer[2](x * 2, at)
          return y
        }""",
    "a state that is exchanged for an argument": """
        block Delay(x: f32[3], y: f32[3]) -> f32[3] {
          state before: f32[3] = 7
          z = before + y
          before = x
          return z * 2
        }
        model f(x: f32[3]) -> f32[3] {
          use delay = Delay
          return delay(x * 3, x)
        }""",
    "initial values of random numbers, and of a parameter twice": """
        block Weighted(x: f32[3]) -> f32[3] {
          param scale: f32[3]
          state weight: f32[3] = 0.5 * random_normal((3,), 7)
          state total: f32[3] = scale + scale * scale
          total = total + x * weight
          return total
        }
        model f(x: f32[3]) -> f32[3], f32[3] {
          use first, second = Weighted
          return first(x), second(x + 1)
        }""",
    "a block for its state alone": """
        block Count(x: f32[3]) -> f32 {
          state total: f32[3]
          total = total + x
          return sum(x)
        }
        model f(x: f32[3]) -> f32[3] {
          use inputs, twice = Count
          _n = inputs(x)
          _m = twice(x)
          _o = twice(x * 2)
          return x + 1
        }""",
}


@pytest.mark.parametrize("name", [*BLOCKS, *TEXTS])
def test_states_stay_in_their_blocks(name: str) -> None:
    module = load_module((BLOCKS | TEXTS)[name], text=True).module
    text = write_model(module, blocks=True)
    after = load_module(text, text=True).module
    assert [(s.name, s.type) for s in after.states] == [(s.name, s.type) for s in module.states]
    assert {(p.name, p.key) for p in after.parameters} == {(p.name, p.key) for p in module.parameters}
    for dims in ({"T": 1, "S": 9}, {"T": 2, "S": 9}):
        for function in module.functions:
            assert run(module, function.name, dims) == run(after, function.name, dims), text


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("name", TEXTS)
def test_states_come_back(name: str, passes: str) -> None:
    module = load_module(TEXTS[name], text=True).module
    before = PassManager(parse_pipeline(PASSES[passes])).run(module) if PASSES[passes] else module
    text = write_model(before)
    after = load_module(text, text=True).module
    assert [(s.name, s.type) for s in after.states] == [(s.name.replace(".", "_"), s.type) for s in module.states]
    for dims in ({"T": 0, "S": 9}, {"T": 1, "S": 9}, {"T": 2, "S": 9}):
        for function in module.functions:
            assert run(before, function.name, dims) == run(after, function.name, dims), text


def test_a_part_of_an_argument_is_written_without_a_state() -> None:
    module = stateless(load_module(TEXTS["a cache of two blocks, and a counter"], text=True).module)
    text = write_model(module)
    after = load_module(text, text=True).module
    assert "dynamic_update_slice" in text and not after.states
    given = [np.ones((2, 4), np.float32), np.int64(3), *np.zeros((2, 9, 4), np.float32)]
    dims = {"T": 2, "S": 9}
    expected, found = (Interpreter(m, made_up).run("put", given, dims) for m in (module, after))
    assert [x.tobytes() for x in found] == [x.tobytes() for x in expected]


def test_a_saved_training_step_is_written_with_its_initial_values(tmp_path: Path) -> None:
    """Random numbers use each value several times: nested calls would be longer than a source may be."""
    (tmp_path / "step.nacre").write_text("""
        train step(x: f32[5, 4], y: f32[5, 3], lr: f32) -> loss: f32 {
          param weight: f32[3, 4] = 0.1 * random_normal((3, 4), 1) * random_normal((3, 4), 2)
          loss = mean(square(x @ weight.T - y))
          minimize loss with adam(lr=lr)
        }""")
    sample = nacre.graph.read(tmp_path / "step.nacre")
    sample.save(tmp_path / "saved.nacre")
    text = (tmp_path / "saved.nacre").read_text()
    assert len(text) < 10_000 and "InitialValue()" in text
    found, expected = (
        [x.tobytes() for x in initial_values(m, m.function("step"), {}, lambda p: load_parameter(p, made_up))]
        for m in (load_module(text, text=True).module, sample.module)
    )
    assert found == expected and len(found) > 1


def test_a_loop_in_the_written_form_is_written_alike() -> None:
    text = "model f(x: f32) -> f32 { while x > 1 with x = x { x = x / 2 }\n  return x\n}"
    once = write_model(load_module(text, text=True).module)
    twice = write_model(load_module(once, text=True).module)
    assert once.count("> 1.0") == twice.count("> 1.0") == 2 and "goes_on = v1" in once


def test_inexpressible_states() -> None:
    text = """
        module m
        dim T in 0..4
        func f(%x: f32, %y: f32[T]) -> (f32) {
          %1 = scan(%x) {carried = 1, count = T - 2} : f32 do (%t: i64, %a: f32) { yield %a }
          return %1
        }"""
    with pytest.raises(DiagnosticError, match="a `scan` over T - 2 iterations, which may be negative"):
        write_model(parse_module(text))


def test_a_saved_model_has_the_same_code(tmp_path: Path) -> None:
    """The object of the kernels and entries is the same; descriptions have other names of values and lines."""
    text = """
        block Cell<n>(x: f32[n]) -> f32[n] {
          param w: f32[n] from "k.{i}.w"
          state h: f32[n]
          h = tanh(h + x * w)
          return h
        }
        model f(x: f32[5]) -> f32[5] {
          use cell[2] = Cell<5>
          return cell[1](cell[0](cell[0](x)))
        }"""
    weights = {f"k.{i}.w": np.arange(5, dtype=np.float32) + i for i in range(2)}
    (tmp_path / "first.nacre").write_text(text)
    nacre.graph.read(tmp_path / "first.nacre").save(tmp_path / "second.nacre")
    assert (tmp_path / "second.nacre").read_text().count("cell[0](") == 2
    np.savez(tmp_path / "w.npz", **weights)
    for name in ("first", "second"):
        arguments = ["--checkpoint", str(tmp_path / "w.npz"), "--emit", "obj", "-o", str(tmp_path / f"{name}.o")]
        assert command(["compile", str(tmp_path / f"{name}.nacre"), *arguments]) == 0
    code, again = ((tmp_path / f"{name}.o").read_bytes() for name in ("first", "second"))
    assert len(code) > 1000 and code == again
