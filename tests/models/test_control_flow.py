"""Loops and branches that run at call time: the interpreter and the compiled code agree, at all levels."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacre.compiler.api import compile as compile_model
from nacre.compiler.readers.language import load_module
from nacre.compiler.validate.inputs import ORDINARY, SPECIAL
from nacre.compiler.validate.model_calls import Trials
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.graph import Module
from nacre.dialect.interpreter import IndexRangeError, Interpreter
from nacre.dialect.parser import parse_module
from nacre.dialect.printer import print_module
from nacre.dialect.verifier import verify
from nacre.runtime.library import OutOfRangeError

Arrays = tuple[Any, ...]
Draw = Callable[[np.random.Generator], list[Arrays]]
LEVELS = (0, 1, 2)


def normal(r: np.random.Generator, *shape: int) -> Any:
    return r.standard_normal(shape).astype(np.float32)


MODELS: dict[str, tuple[str, Draw]] = {
    "while: Newton's method for square roots": (
        """
        dim N in 1..9
        model m(x: f32[N], start: f32[N]) -> f32[N], i64 {
          while max(abs(y * y - x)) > 1e-4 with y = start, n = 0 {
            y = (y + x / y) / 2
            n = n + 1
          }
          return y, n
        }""",
        lambda r: [(np.abs(normal(r, n)) + 0.5, np.ones(n, np.float32)) for n in (1, 5, 9)],
    ),
    "if: every outcome, also of a chain": (
        """
        dim N in 0..9
        model m(x: f32[N], c: bool, d: bool) -> f32[N], f32, f32[N] {
          y = if c { sin(x) } else if d {
            z = cos(x)
            z + z
          } else { x }
          k, w = if d { (1.5, x) } else { (sum(x), y) }
          return y, k, w
        }""",
        lambda r: [(normal(r, n), np.bool_(c), np.bool_(d)) for n in (0, 1, 5) for c in (0, 1) for d in (0, 1)],
    ),
    "scan in if, scan in scan": (
        """
        dim N in 1..9
        dim T in 0..7
        model m(x: f32[T, N], w: f32[N, N], c: bool) -> f32[T, N], f32[N], f32[N] {
          s = zeros([N], f32)
          y, last = if c {
            ys = scan t in 0..T with h = s {
              h = tanh(h @ w + x[t])
            } collect h
            (ys, h)
          } else { (x * 2, s) }
          scan t in 0..T with a = s, b = s + 1 {
            scan u in 0..3 with q = a { q = q * 0.5 + x[t] * cast(u, f32) }
            a, b = b, q
          }
          return y, last, a + b
        }""",
        lambda r: [
            (normal(r, t, n), normal(r, n, n) / 3, np.bool_(c)) for n in (1, 5) for t in (0, 1, 7) for c in (0, 1)
        ],
    ),
    "carried values change places, several are collected": (
        """
        dim T in 0..7
        model m(a: f32[3], b: f32[3], x: f32[3, T, 2]) -> f32[3], f32[3], f32[T, 3], f32[T, 3], f32[T], i64[T] {
          p, q, r, n = scan t in 0..T with a = a, b = b, k = 0 {
            a, b = b, a * 2
            k = k + 1
          } collect a, b, sum(x[:, t]), t * 2 + k
          return a, b, p, q, r, n
        }""",
        lambda r: [(normal(r, 3), normal(r, 3), normal(r, 3, t, 2)) for t in (0, 1, 2, 7)],
    ),
    "a range that does not begin at 0": (
        """
        dim T in 0..7
        model m(x: f32[T]) -> f32[3], f32, f32[T, 3] {
          y = scan t in 1..T + 1 with a = zeros([3], f32), last = 0.0 {
            last = x[t - 1] + cast(t, f32)
            a = a + last
          } collect [1.0, 2.0, 3.0] * last
          return a, last, y
        }""",
        lambda r: [(normal(r, t),) for t in (0, 1, 2, 7)],
    ),
    "an index is checked in every iteration": (
        """
        dim T in 0..7
        model m(x: f32[5], i: i64[T], c: bool) -> f32 {
          scan t in 0..T with a = 0.0 { a = a + if_chosen(x, i[t], c) }
          return a
        }
        block if_chosen(x: f32[5], i: i64, c: bool) -> f32 {
          return if c { gather(x, i) } else { 1.0 }
        }""",
        lambda r: [(normal(r, 5), r.integers(0, n, t), np.bool_(c)) for t in (0, 1, 5) for n in (5, 9) for c in (0, 1)],
    ),
    "a carried tensor is updated in part": (
        """
        dim T in 0..7
        model m(x: f32[T, 4], k: f32[8, 4]) -> f32[8, 4], f32[T] {
          y = scan t in 0..T with k = k { k = dynamic_update_slice(k, x[t][None, :], t, 0) } collect sum(k)
          return k, y
        }""",
        lambda r: [(normal(r, t, 4), normal(r, 8, 4)) for t in (0, 1, 7)],
    ),
    "a tensor from before the loops is read in all iterations": (
        """
        dim N in 0..9
        dim T in 0..5
        model m(x: f32[T, N], w: f32[N, N]) -> f32[T, N], f32[N] {
          s = softmax(w @ w)
          y = scan t in 0..T with h = sum(w, axis=0) {
            a = softmax((h + s @ x[t])[None, :] @ w)
            scan u in 0..2 with k = a { k = softmax(k @ s) @ w }
            h = softmax(k)[0] + cos(h)
          } collect h * 2
          return y, h
        }""",
        lambda r: [(normal(r, t, n), normal(r, n, n)) for n in (1, 5, 9) for t in (0, 1, 5)],
    ),
    "carried values are constants, arguments, or stay": (
        """
        model m(x: f32[2], y: f32[2], c: bool) -> f32[2], f32[2], f32[2], bool {
          scan t in 0..3 with a = x, b = y, d = x, go = c {
            a = [1.0, 2.0]
            b = x
            go = not go
          }
          return a, b, d, go
        }""",
        lambda r: [(normal(r, 2), normal(r, 2), np.bool_(c)) for c in (0, 1)],
    ),
}


def results_of(call: Callable[..., Any], arguments: Arrays) -> Any:
    try:
        results = call(*arguments)
    except (OutOfRangeError, IndexRangeError):
        return "an index is out of range"
    results = results if isinstance(results, (tuple, list)) else (results,)
    return [np.asarray(result) for result in results]


@pytest.mark.parametrize("name", MODELS)
def test_compiled_loops_agree_with_the_interpreter(name: str, tmp_path: Path) -> None:
    text, draw = MODELS[name]
    module = load_module(text, text=True).module
    verify(module)
    assert print_module(parse_module(print_module(module))) == print_module(module)
    interpreter = Interpreter(module, lambda parameter: pytest.fail(f"there is no {parameter}"))
    cases = draw(np.random.default_rng(0))
    expected = [results_of(lambda *a: interpreter.run("m", a), case) for case in cases]
    for level in LEVELS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of kernels that are plain loops
            model = compile_model(text, tmp_path / f"{level}.so", opt_level=level)
        for case, right in zip(cases, expected, strict=True):
            found = results_of(model, case)
            assert (found == right) if isinstance(right, str) else len(found) == len(right), (level, found)
            for a, b in zip(found, right, strict=True) if not isinstance(right, str) else ():
                np.testing.assert_allclose(a, b, rtol=3e-5, atol=3e-6, err_msg=f"level {level}")


COUNTED = """
model m(x: f32[3]) -> f32[3], i64 {
  while max(x) > 0.5 and n < 40 with x = x, n = 0 { x = x * 0.5; n = n + 1 }
  return x, n
}
"""


def changed(graph: Module, old: str, new: str) -> Module:
    text = print_module(graph)
    assert text.count(old) == 1, (old, text)
    return parse_module(text.replace(old, new))


def test_calls_that_end_check_a_while() -> None:
    graph = load_module(COUNTED, text=True).module
    trials = Trials(graph, lambda parameter: pytest.fail(f"there is no {parameter}"))
    assert {trial.kind for trial in trials.trials} >= {ORDINARY, SPECIAL}
    assert trials.find_wrong(graph) is None
    wrong = trials.find_wrong(changed(graph, "constant<i64, 40>", "constant<i64, 2>"))
    assert wrong is not None and wrong.difference.different
    endless = changed(graph, "constant<i64, 1>", "constant<i64, 0>")
    wrong = trials.find_wrong(changed(endless, "multiply(", "divide("))
    assert wrong is not None and "`while` does not end within" in wrong.difference.message


def test_calls_that_do_not_end_are_left_out(tmp_path: Path) -> None:
    text = COUNTED.replace(" and n < 40", "")
    graph = load_module(text, text=True).module
    kinds = [trial.kind for trial in Trials(graph, lambda parameter: pytest.fail(f"there is no {parameter}")).trials]
    assert ORDINARY in kinds and kinds.count(SPECIAL) < 2  # one of the two has an infinity
    compile_model(text, tmp_path / "m.so", check_passes=True)
    with pytest.raises(DiagnosticError, match="this `while` does not end within 1024 iterations in any of"):
        compile_model(text.replace("max(x) > 0.5", "n >= 0"), tmp_path / "m.so", check_passes=True)
