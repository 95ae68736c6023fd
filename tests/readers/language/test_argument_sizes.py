"""Sizes that the arguments of a block determine, and parameters that a condition leaves out."""

import numpy as np
import pytest
from compiled import results
from nacre import check

BLOCKS = """
dim B in 0..8
dim T in 1..64

block Double(x: f32[B, C, H, W]) -> f32[B, C, 2*H, 2*W] {
  return repeat_interleave(x, 2, axis=2) |> repeat_interleave(2, axis=3)
}

block Join(x: f32[..., H, C], y: f32[..., H, D]) -> f32[..., H, C+D] {
  return concat([x, y], axis=-1)
}

block Linear<inputs, outputs, bias=true>(x: f32[..., inputs]) -> f32[..., outputs] {
  param weight: f32[outputs, inputs] from "{path}.lin.weight"
  param bias_: f32[outputs] from "{path}.lin.bias" if bias
  y = x @ weight.T
  return y if bias_ == None else y + bias_
}
"""


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_each_call_binds_its_own_sizes(batch: int) -> None:
    text = BLOCKS + "model m(x: f32[B, 3, 5, 7]) -> f32[B, 3, 20, 28] { return Double(Double(x)) }"
    x = np.random.default_rng(0).normal(size=(batch, 3, 5, 7)).astype(np.float32)
    np.testing.assert_array_equal(results(text, x), x.repeat(4, 2).repeat(4, 3))


@pytest.mark.parametrize("length", [1, 5])
def test_a_size_may_be_symbolic_or_that_of_a_list(length: int) -> None:
    text = BLOCKS + "model m(x: f32[T, 2]) -> f32[T, 5], f32[1, 3] {\n"
    text += "  return Join(x, concat([x, x[:, :1]], axis=1)), Join([[1]], tensor([[2, 3]], f32))\n}\n"
    x = np.random.default_rng(0).normal(size=(length, 2)).astype(np.float32)
    joined, small = results(text, x)
    np.testing.assert_array_equal(joined, np.concatenate([x, x, x[:, :1]], axis=1))
    np.testing.assert_array_equal(small, [[1, 2, 3]])


def test_a_parameter_may_be_absent() -> None:
    text = BLOCKS + "model m(x: f32[B, 4]) -> f32[B, 2] {\n"
    text += "  use a[2] = Linear<4, 4, bias=false>\n  use b = Linear<4, 2>\n"
    text += "  use c = Linear<2, 2> if 1 > 2\n  y = x |> a[0] |> a[1] |> b\n  return c(y) if c != None else y\n}\n"
    rng = np.random.default_rng(0)
    shapes = {"a.0.lin.weight": (4, 4), "a.1.lin.weight": (4, 4), "b.lin.weight": (2, 4), "b.lin.bias": (2,)}
    weights = {key: rng.normal(size=shape).astype(np.float32) for key, shape in shapes.items()}
    x = rng.normal(size=(3, 4)).astype(np.float32)
    expected = x @ weights["a.0.lin.weight"].T @ weights["a.1.lin.weight"].T @ weights["b.lin.weight"].T
    np.testing.assert_allclose(
        results(text, x, weights=weights, tolerance=1e-4), expected + weights["b.lin.bias"], rtol=1e-4, atol=1e-4
    )


def test_a_prefix_stands_before_all_keys() -> None:
    text = BLOCKS + 'model m(x: f32[B, 4]) -> f32[B, 2] {\n  weights "any.npz" prefix "module."\n'
    text += "  param scale: f32[4]\n  use b[1] = Linear<4, 2>\n  return b[0](x * scale)\n}\n"
    rng = np.random.default_rng(0)
    shapes = {"module.scale": (4,), "module.b.0.lin.weight": (2, 4), "module.b.0.lin.bias": (2,)}
    weights = {key: rng.normal(size=shape).astype(np.float32) for key, shape in shapes.items()}
    x = rng.normal(size=(3, 4)).astype(np.float32)
    expected = (x * weights["module.scale"]) @ weights["module.b.0.lin.weight"].T + weights["module.b.0.lin.bias"]
    np.testing.assert_allclose(results(text, x, weights=weights), expected, rtol=1e-5, atol=1e-5)


def test_a_misspelt_hyper_parameter_is_no_size() -> None:
    text = "dim B in 1..4\nblock F<width>(x: f32[B, widht]) -> f32[B] { return sum(x, axis=1) * width }\n"
    (error,) = [d for d in check(text) if d.severity == "error"]
    assert error.code == "unknown-name" and error.help == "did you mean `width`?"
