"""Several tensors of integers as indices against NumPy, and the indices that are refused."""

import nacre
import numpy as np
import pytest
from compiled import results

RESULTS = "f32[B, N, 2], f32[B, 3, N, 2], f32[B, 2], f32[B, 2, N], f32[N, B]"
TEXT = f"""
dim B in 0..4
dim N in 0..9
model m(x: f32[B, 4, 5, 2], i: i64[N], j: i64[3, 1], k: i64) -> {RESULTS} {{
  return x[:, i, i], x[:, j, i], x[:, k, k], x[:, i, i].mT, x[:, 1, i, 0].T
}}
"""


@pytest.mark.parametrize(("batch", "count"), [(3, 9), (1, 1), (0, 2), (2, 0)])
def test_adjacent_axes(batch: int, count: int) -> None:
    rng = np.random.default_rng(count)
    x = rng.normal(size=(batch, 4, 5, 2)).astype(np.float32)
    i, j, k = rng.integers(-4, 4, count), rng.integers(0, 4, (3, 1)), np.int64(-1)
    expected = (x[:, i, i], x[:, j, i], x[:, k, k], np.swapaxes(x[:, i, i], 1, 2), x[:, 1, i, 0].T)
    for found, wanted in zip(results(TEXT, x, i, j, k), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_an_index_out_of_range_fails_the_call() -> None:
    """The index 4 would be a valid element of the next row."""
    text = "model m(x: f32[4, 4], i: i64[1], j: i64[1]) -> f32[1] { return x[i, j] }"
    for level in (0, 2):
        model = nacre.compile(text, opt_level=level)
        x = np.arange(16, dtype=np.float32).reshape(4, 4)
        assert model(x, np.array([1]), np.array([3])) == 7
        for i, j in ((1, 4), (4, 0), (-5, 0)):
            with pytest.raises(nacre.NacreError, match="out of range"):
                model(x, np.array([i]), np.array([j]))


@pytest.mark.parametrize(
    ("index", "code", "reported"),
    [
        ("x[i, :, i]", "bad-index", "adjacent axes"),
        ("x[i, j]", "shape-mismatch", "cannot broadcast [6] and [5]"),
        ("x[i, k]", "dtype-mismatch", "i32"),
        ("x[i, x]", "bad-index", "must be a tensor of integers"),
    ],
)
def test_refused(index: str, code: str, reported: str) -> None:
    text = f"model m(x: f32[4, 4, 4], i: i64[6], j: i64[5], k: i32[6]) -> f32[6, 4] {{ return {index} }}"
    (found,) = nacre.check(text)
    assert found.code == code and reported in f"{found.message} {found.label}"
