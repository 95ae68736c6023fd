"""Index notation against numpy: reductions, sums of indices, conditions, gathered indices, gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import permutations
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.readers.language.elaborate import load_module
from nacre.compiler.tools.gradients import test_gradients as check_gradients
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.graph import walk
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.types import F64, Array
from nacre.passes.autodiff.differentiate import with_gradients

Reference = Callable[[Array, Array, Array, Array], Array]


def _shifted(x: Array, steps: int) -> Array:
    y = np.zeros_like(x)
    if steps < x.shape[1]:
        y[:, steps:] = x[:, : x.shape[1] - steps]
    return y


CASES: Mapping[str, tuple[str, Reference]] = {
    "y[b, o] = sum(i) x[b, i] * w[o, i]": ("f32[B, 5]", lambda x, w, v, ids: x @ w.T),
    "y[o, b] = sum(i) 2 * x[b, i] * w[o, i]": ("f32[5, B]", lambda x, w, v, ids: 2 * w @ x.T),
    "y = sum(b, i) x[b, i] * x[b, i] * w[0, i]": ("f32", lambda x, w, v, ids: (x * x * w[0]).sum()),
    "y[b] = max(i) abs(x[b, i]) + w[1, i]": ("f32[B]", lambda x, w, v, ids: (np.abs(x) + w[1]).max(1)),
    "y[b, o] = min(i) (x[b, i] - w[o, i])": ("f32[B, 5]", lambda x, w, v, ids: (x[:, None] - w).min(2)),
    "y[o] = prod(i) w[o, i]": ("f32[5]", lambda x, w, v, ids: w.prod(1)),
    "y[b] = sum(i, k) x[b, i] if v[k] > 0 else 1": (
        "f32[B]",
        lambda x, w, v, ids: sum(x.sum(1) if e > 0 else 0 * x[:, 0] + x.shape[1] for e in v),
    ),
    "y[b, i] = sum(k) x[b, i + k] * v[k]": (
        "f32[B, N-2]",
        lambda x, w, v, ids: sum(x[:, k : x.shape[1] - 2 + k] * v[k] for k in range(3)),
    ),
    "y[b, i] = sum(k) (x[b, i + k - 1] * v[k] if i + k > 0 and i + k <= N else 0)": (
        "f32[B, N]",
        lambda x, w, v, ids: np.stack([np.convolve(row, v[::-1], "same") for row in x] or [x[:0]]).reshape(x.shape),
    ),
    "y[b, i] = x[b, i - 2] if i >= 2 else 0": ("f32[B, N]", lambda x, w, v, ids: _shifted(x, 2)),
    "y[t, i] = w[ids[t], i] * cast(i, f32)": ("f32[4, N]", lambda x, w, v, ids: w[ids] * np.arange(w.shape[1])),
    "y[t] = w[ids[t], ids[t] - ids[t] + 1]": ("f32[4]", lambda x, w, v, ids: w[ids, 1]),
    "y[i] = v[i] * v[2 - i]": ("f32[3]", lambda x, w, v, ids: v * v[::-1]),
    "y[b, i] = x[b, i - 1] * v[0] if i * i > 0 and ids[0] < 1 else v[1]": (
        "f32[B, N]",
        lambda x, w, v, ids: np.where(np.arange(x.shape[1]) > 0, v[0] * _shifted(x, 1), v[1]),
    ),
    "y[t, i] = w[ids[t] + 3, i] if ids[t] < 2 else v[0]": (
        "f32[4, N]",
        lambda x, w, v, ids: np.stack([w[k + 3] if k < 2 else v[0] + 0 * w[0] for k in ids]),
    ),
    "y[b, i] = x[b, N - 1 - i]": ("f32[B, N]", lambda x, w, v, ids: x[:, ::-1]),
    "y[i] = sum(b) x[b, N - 1 - 2 * i]": ("f32[(N + 1)//2]", lambda x, w, v, ids: x[:, ::-2].sum(0)),
    "y[k] = w[2 - k, 2 * k - k] + v[k]": ("f32[3]", lambda x, w, v, ids: w[[2, 1, 0], [0, 1, 2]] + v),
}


def source() -> str:
    models = (
        f"model m{number}(x: f32[B, N], w: f32[5, N], v: f32[3], ids: i64[4]) -> {type} {{\n  {line}\n  return y\n}}\n"
        for number, (line, (type, _)) in enumerate(CASES.items())
    )
    return "language 1\ndim B in 0..64\ndim N in 3..64\n" + "".join(models)


@pytest.mark.parametrize("level", [0, 2])
def test_compiled(level: int, tmp_path: Path) -> None:
    model = nacre.compile(source(), tmp_path / "m.so", opt_level=level)
    for rows, columns in ((0, 3), (1, 5), (7, 33)):
        rng = np.random.default_rng(rows)
        x, w, v = (rng.standard_normal(s).astype(np.float32) for s in ((rows, columns), (5, columns), (3,)))
        ids = np.array([0, 4, 2, 2])
        for number, (line, (_, reference)) in enumerate(CASES.items()):
            expected = reference(x, w, v, ids)
            found = model.entries[f"m{number}"](x, w, v, ids)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=line)
    with pytest.raises(nacre.NacreError, match="index 5 is out of range"):
        gathered = next(n for n, line in enumerate(CASES) if "w[ids[t], i]" in line)
        model.entries[f"m{gathered}"](x, w, v, np.array([0, 5, 0, 0]))


AXES = ["".join(order) for order in permutations("bik")]
"""Two of them are cycles, which are not their own inverse."""
PERMUTED = """language 1
model f(x: f32[3, 3, 3], u: f32[3, 3, 3]) -> f32[3, 3, 3] {{
  y[{result}] = {term}
  return y
}}
"""


@pytest.mark.parametrize("operand", AXES)
@pytest.mark.parametrize("result", AXES)
def test_three_axes_in_every_order(result: str, operand: str) -> None:
    """All sizes are equal: a wrong order has a shape that fits."""
    rng = np.random.default_rng(0)
    x, u = (rng.standard_normal((3, 3, 3)).astype(np.float32) for _ in range(2))
    places = {name: ", ".join(name) for name in AXES}
    terms = {
        f"x[{places[operand]}]": np.einsum(f"{operand}->{result}", x),
        f"exp(x[{places[operand]}]) + u[b, i, k]": (
            np.einsum(f"{operand}->{result}", np.exp(x)) + np.einsum(f"bik->{result}", u)
        ),
        f"sum(j) x[{places[operand]}] * u[j, b, b]": (
            np.einsum(f"{operand}->{result}", x)
            * np.einsum("jbb->b", u).reshape([3 if n == "b" else 1 for n in result])
        ),
    }
    for term, expected in terms.items():
        module = load_module(PERMUTED.format(result=places[result], term=term), text=True).module
        (found,) = Interpreter(module, lambda _: np.zeros(0)).run("f", (x, u))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=term)


def test_gradients() -> None:
    outcomes = check_gradients(load_module(source(), text=True).module, lambda _: np.zeros(0))
    assert len(outcomes) == len(CASES)
    assert [outcome.detail for outcome in outcomes if not outcome.passed] == []


GUARDED = """language 1
dim N in 2..64
model wrong(x: f32[N]) -> f32[N] {
  y[i] = x[i - 1] if i >= 0 else 0
  return y
}
model f(x: f32[N], w: f32[N]) -> f32 {
  y[i] = w[i] / x[i + 1] if not (i >= N - 1) else w[0]
  return sum(y)
}
"""


def test_guards() -> None:
    """A selected access is inside, or the call fails; the gradient of one that is not selected is 0."""
    module = load_module(GUARDED, text=True).module
    with pytest.raises(DiagnosticError, match="index -4 is out of range for an axis of size 3"):
        Interpreter(module, lambda _: np.zeros(0)).run("wrong", [np.ones(3, np.float32)])
    checks = {node.attribute("mode") for node in walk(module.function("f").body) if node.op == "gather"}
    assert checks == {"clamp"}
    x, w = np.random.default_rng(0).standard_normal((2, 5))
    x[0] = 0
    derived = with_gradients(module, "f", ["x", "w"])
    _, dx, dw = Interpreter(derived, lambda _: np.zeros(0), precision=F64).run("f", [x, w])
    np.testing.assert_allclose(dx, [0, *(-w[:-1] / x[1:] ** 2)])
    np.testing.assert_allclose(dw, [*(1 / x[1:]), 0] + np.eye(5)[0])


def test_a_sum_of_products_is_a_contraction() -> None:
    module = load_module(source(), text=True).module
    kinds = {node.op for node in walk(module.functions[0].body)}
    assert kinds == {"einsum"}
