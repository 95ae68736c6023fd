"""Dims that are multiples of a number: sizes of kernels and of entries that divide them, for each number alone."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest

MODEL = """language 1
dim T in 0..96 multiple {0}
dim S in 0..30
model main(x: f32[T, 3], y: f32[S, T]) -> means: f32[T // {0}, 3], turned: f32[T // {0}, S, {0}], size: f32[T // {0}] {{
  total = sum(reshape(x, (T // {0}, {0}, 3)), axis=1)
  turned = transpose(reshape(y, (S, T // {0}, {0})), (1, 0, 2))
  return cumsum(total, axis=0) / {0}, exp(turned), cast(iota(T // {0}) + T // {0}, f32)
}}
"""


@pytest.mark.parametrize("multiple", [1, 2, 3, 8])
def test_parts_of_a_dim(tmp_path: Path, multiple: int) -> None:
    model = nacre.compile(MODEL.format(multiple), tmp_path / "m.so")
    for parts, others in ((0, 2), (1, 0), (1, 5), (4, 3), (12, 30)):
        rows = parts * multiple
        rng = np.random.default_rng(rows)
        x, y = (rng.normal(size=shape).astype(np.float32) for shape in ((rows, 3), (others, rows)))
        means, turned, size = model(x, y)
        total = np.cumsum(x.reshape(parts, multiple, 3).sum(1), axis=0) / multiple
        np.testing.assert_allclose(means, total, rtol=2e-6, atol=2e-6)
        np.testing.assert_allclose(turned, np.exp(y.reshape(others, parts, multiple).transpose(1, 0, 2)), rtol=1e-6)
        np.testing.assert_array_equal(size, np.arange(parts, 2 * parts))
