"""`repeat` with `collect`, over instances and lists, with inner bounds; comprehensions and assigned slices."""

import nacre
import numpy as np
import pytest
from compiled import results

HEADER = "dim B in 0..9\n"
LAYER = """
block Layer<n>(x: f32[B, n]) -> f32[B, n] {
  param weight: f32[n, n]
  return tanh(x @ weight)
}
"""


def rows(count: int, width: int = 4) -> np.ndarray:
    return np.random.default_rng(count).normal(size=(count, width)).astype(np.float32)


@pytest.mark.parametrize("batch", [0, 1, 5])
def test_collect_stacks_the_value_of_each_iteration(batch: int) -> None:
    text = HEADER + "model m(x: f32[B, 4]) -> f32[3, B, 4], f32[B, 4] {\n"
    text += "  y = repeat i in 1..4 { x = x * i } collect x\n  return y, x\n}\n"
    x = rows(batch)
    y, last = results(text, x)
    np.testing.assert_allclose(y, np.stack([x, 2 * x, 6 * x]), rtol=1e-6)
    np.testing.assert_allclose(last, 6 * x, rtol=1e-6)


def test_several_values_are_collected() -> None:
    text = HEADER + "model m(x: f32[B, 4]) -> bool[3, B, 4], i64[3] {\n"
    text += "  a, b = repeat i in 0..3 { x = x + i } collect x > 1, cast(i, i64) * 2\n  return a, b\n}\n"
    x = rows(2)
    a, b = results(text, x)
    np.testing.assert_array_equal(a, np.stack([x > 1, x + 1 > 1, x + 3 > 1]))
    np.testing.assert_array_equal(b, [0, 2, 4])


@pytest.mark.parametrize("count", [0, 1])
def test_a_loop_with_few_iterations_collects_as_many_slices(count: int) -> None:
    text = HEADER + f"model m(x: f32[B, 4]) -> f32[{count}, B, 4] {{\n"
    text += f"  y = repeat i in 0..{count} {{ z = x + i }} collect z\n  return y\n}}\n"
    assert results(text, rows(3)).shape == (count, 3, 4)


def test_instances_are_elements_and_have_a_number() -> None:
    text = HEADER + LAYER + "model m(x: f32[B, 4]) -> f32[3, B, 4] {\n  use layers[3] = Layer<4>\n"
    text += "  y = repeat layer in layers { x = layer(x) * len(layers) } collect x\n  return y\n}\n"
    weights = {f"layers.{i}.weight": rows(4 + i, 4)[:4] for i in range(3)}
    x = rows(2)
    found = results(text, x, weights=weights)
    for i in range(3):
        x = 3 * np.tanh(x @ weights[f"layers.{i}.weight"])
        np.testing.assert_allclose(found[i], x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loop", ["repeat i in 0..3 { x = layers[i](x) }", "repeat layer in layers { x = layer(x) }"])
def test_instances_may_differ(loop: str) -> None:
    text = (
        HEADER + "block Add<n>(x: f32[B, 4]) -> f32[B, 4] {\n  param weight: f32[n]\n  return x * n + sum(weight)\n}\n"
    )
    text += f"model m(x: f32[B, 4]) -> f32[B, 4] {{\n  use layers[i in 0..3] = Add<2**i>\n  {loop}\n  return x\n}}\n"
    weights = {f"layers.{i}.weight": rows(1, 2**i)[0] for i in range(3)}
    x = rows(5)
    expected = ((x + weights["layers.0.weight"].sum()) * 2 + weights["layers.1.weight"].sum()) * 4
    np.testing.assert_allclose(
        results(text, x, weights=weights), expected + weights["layers.2.weight"].sum(), rtol=1e-5, atol=1e-5
    )


def test_types_may_change_over_a_list() -> None:
    text = (
        HEADER + "model m(x: f32[B, 4]) -> f32[B, 1] {\n  repeat n in [3, 2, 1] { x = x[:, :n] * n }\n  return x\n}\n"
    )
    x = rows(2)
    np.testing.assert_allclose(results(text, x), 6 * x[:, :1], rtol=1e-6)


def test_the_bounds_of_an_inner_loop_depend_on_the_outer_one() -> None:
    text = HEADER + "model m(x: f32[B, 4]) -> f32[B, 4] {\n  total = x\n"
    text += "  repeat i in 0..4 {\n    last = i + 1\n    repeat j in i..last*2 { total = total + x * j }\n  }\n"
    text += "  return total\n}\n"
    x = rows(3)
    factor = 1 + sum(j for i in range(4) for j in range(i, 2 * (i + 1)))
    np.testing.assert_allclose(results(text, x), factor * x, rtol=1e-5)


def test_a_comprehension_is_a_list() -> None:
    text = HEADER + LAYER + "model m(x: f32[B, 4]) -> f32[B, 8] {\n  use layers[3] = Layer<4>\n"
    text += "  odd = [i for i in 0..6 if i % 2 == 1]\n"
    text += "  return concat([f(x) * len(odd) for f in [layers[i] for i in 0..2]], axis=1)\n}\n"
    weights = {f"layers.{i}.weight": rows(7 + i, 4)[:4] for i in range(3)}
    x = rows(2)
    expected = np.concatenate([3 * np.tanh(x @ weights[f"layers.{i}.weight"]) for i in range(2)], axis=1)
    np.testing.assert_allclose(results(text, x, weights=weights), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [0, 1, 7])
def test_a_slice_is_assigned(batch: int) -> None:
    text = HEADER + "model m(x: f32[B, 4]) -> f32[B, 4], f32[B, 4] {\n  y = zeros((B, 4))\n"
    text += "  repeat i in 0..3 { y[:, i] = x[:, 3 - i] * i }\n  z = y\n  y[:, 1:3] = 7\n  return y, z\n}\n"
    x = rows(batch)
    y, z = results(text, x)
    expected = np.zeros_like(x)
    for i in range(3):
        expected[:, i] = x[:, 3 - i] * i
    np.testing.assert_allclose(z, expected, rtol=1e-6)
    expected[:, 1:3] = 7
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_a_scan_fills_a_tensor_of_symbolic_size() -> None:
    text = "dim T in 0..9\nmodel m(x: f32[T, 2]) -> f32[2, T] {\n  y = zeros((2, T))\n"
    text += "  scan t in 0..T with y = y { y[:, t] = x[t] * 2 }\n  return y\n}\n"
    for length in (0, 1, 5):
        x = rows(length, 2)
        np.testing.assert_allclose(results(text, x), 2 * x.T, rtol=1e-6)


def test_the_slices_of_an_axis_are_unpacked() -> None:
    text = HEADER + "model m(x: f32[3, B, 2]) -> f32[B, 2], f32[3, B] {\n  q, k, v = x\n"
    text += "  a, b = unstack(x, axis=-1)\n  return q + k * v, a - b\n}\n"
    x = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32)
    first, second = results(text, x)
    np.testing.assert_allclose(first, x[0] + x[1] * x[2], rtol=1e-6)
    np.testing.assert_allclose(second, x[..., 0] - x[..., 1], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_an_assigned_slice_starts_at_a_number_known_at_run_time(dtype: str) -> None:
    text = HEADER + f"model m(x: f32[B, 6], y: f32[3], at: {dtype}) -> f32[B, 6], f32[B, 6], f32[3] {{\n"
    text += "  old = x\n  x[:, at] = 3\n  x[:, at+1:at+1+2] = old[:, at:at+2] + 1\n  y[at-1:at-1+2] = [7, 8]\n"
    text += "  return old, x, y\n}\n"
    x, y = rows(5, 6), np.zeros(3, np.float32)
    expected = x.copy()
    expected[:, 2], expected[:, 3:5] = 3, x[:, 2:4] + 1
    found = results(text, x, y, np.asarray(2, dtype.replace("i", "int")))
    for computed, wanted in zip(found, (x, expected, np.float32([0, 7, 8])), strict=True):
        np.testing.assert_allclose(computed, wanted, rtol=1e-6)


def test_a_loop_that_may_end_early_fills_a_tensor() -> None:
    text = "model m(x: f32[8], most: f32) -> f32[8], i64 {\n  y = zeros(8)\n"
    text += "  while n < 8 and s < most with y = y, n = 0, s = 0.0 {\n    s = s + x[n:n+1][0]\n    y[n] = s\n"
    text += "    n = n + 1\n  }\n  return y, n\n}\n"
    y, n = results(text, np.ones(8, np.float32), np.float32(3))
    np.testing.assert_array_equal(y, [1, 2, 3, 0, 0, 0, 0, 0])
    assert n == 3


def test_an_assigned_slice_is_inside() -> None:
    text = "model m(x: f32[4], at: i64) -> f32[4] {\n  x[at:at+2] = 0\n  return x\n}\n"
    model = nacre.compile(text, opt_level=0)
    np.testing.assert_array_equal(model(np.ones(4, np.float32), np.int64(2)), [1, 1, 0, 0])
    with pytest.raises(nacre.NacreError, match="a window of 2 that starts at 3 is out of range for an axis of size 4"):
        model(np.ones(4, np.float32), np.int64(3))
