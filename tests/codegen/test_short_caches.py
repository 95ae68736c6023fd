"""Attention to keys and values of fewer bits: the kernel converts those that it reads, up to the length."""

from __future__ import annotations

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from codegen.test_bounded_rows import schedules
from nacre.compiler.base.environment import CHECK_PASSES
from nacre.runtime.loader import Model

Floats = npt.NDArray[np.float32]

SOURCE = """language 1
dim B in 1..4
dim T in 1..40
dim S in 1..600
dim P in 1..99
dim M in 1..18

block Seen(q: f32[B, H, N, 16], k: f32[B, H, 16, L], v: f32[B, H, L, 20], n: i64[B]) -> f32[B, H, N, 20] {
  scores = mask_after(q @ k, n, fill=-inf)
  return softmax(scores) @ mask_after(v, n, axis=-2)
}
model half(q: f32[B, 2, T, 16], k: f16[B, 2, 16, S], v: f16[B, 2, S, 20], n: i64[B]) -> f32[B, 2, T, 20] {
  return Seen(q, cast(k, f32), cast(v, f32), n)
}
model half_pages(
  q: f32[B, 2, T, 16],
  k: f16[P, 2, 16, 32],
  v: f16[P, 2, 32, 20],
  t: i32[B, M],
  n: i64[B],
) -> f32[B, 2, T, 20] {
  return Seen(q, cast(gather_pages(k, t), f32), cast(gather_pages(v, t, axis=2), f32), n)
}
model short_pages(
  q: f32[B, 2, T, 16],
  k: i8[P, 2, 16, 32],
  v: i8[P, 2, 32, 20],
  ks: f32[P, 2, 1, 32],
  vs: f32[P, 2, 1, 32],
  t: i32[B, M],
  n: i64[B],
) -> f32[B, 2, T, 20] {
  scores = q @ cast(gather_pages(k, t), f32) * gather_pages(ks, t)
  weights = softmax(mask_after(scores, n, fill=-inf)) * gather_pages(vs, t)
  return mask_after(weights, n) @ mask_after(cast(gather_pages(v, t, axis=2), f32), n, axis=-2)
}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(CHECK_PASSES, raising=False)
        return nacre.compile(SOURCE, tmp_path_factory.mktemp("short") / "model.so", threads=2)


def expected(q: Floats, k: Floats, v: Floats, length: int) -> npt.NDArray[np.float64]:
    scores = q.astype(np.float64) @ k[..., :length].astype(np.float64)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v[:, :length].astype(np.float64)


def check(model: Model, name: str, rows: int, pages: int, lengths: list[int]) -> None:
    rng = np.random.default_rng(pages + rows)
    texts, size = len(lengths), 32 * pages
    q = (rng.standard_normal((texts, 2, rows, 16)) / 4).astype(np.float32)
    table = rng.permutation(99)[: texts * pages].reshape(texts, pages).astype(np.int32)
    scales = [np.full((99, 2, 1, 32), np.nan, np.float32) for _ in range(2)]
    if name == "short_pages":
        pools = [rng.integers(-127, 128, (99, 2, *shape)).astype(np.int8) for shape in ((16, 32), (32, 20))]
        for scale in scales:
            for row, length in zip(table, lengths, strict=True):
                for s in range(length):
                    scale[row[s // 32], :, :, s % 32] = rng.uniform(0.005, 0.02, (2, 1))
    else:
        pools = [rng.standard_normal((99, 2, *shape)).astype(np.float16) for shape in ((16, 32), (32, 20))]
        for row, length in zip(table, lengths, strict=True):
            for s in range(length, size):
                pools[0][row[s // 32], :, :, s % 32], pools[1][row[s // 32], :, s % 32] = np.inf, np.nan
    keys = np.moveaxis(pools[0][table], 1, 3).reshape(texts, 2, 16, size)
    values = np.moveaxis(pools[1][table], 1, 2).reshape(texts, 2, size, 20)
    wide = [x.astype(np.float32) for x in (keys, values)]
    if name == "short_pages":
        k, v = (np.moveaxis(x[table], 1, 3).reshape(texts, 2, 1, size) for x in scales)
        wide = [wide[0] * k, wide[1] * v.swapaxes(2, 3)]
    n = np.asarray(lengths, np.int64)
    given = [keys, values, n] if name == "half" else [*pools, *(scales if name == "short_pages" else []), table, n]
    result = np.asarray(model.entries[name](q, *given))
    for i, length in enumerate(lengths):
        right = expected(q[i], wide[0][i], wide[1][i], length)
        np.testing.assert_allclose(result[i], right, atol=4e-6, rtol=0, err_msg=f"{name} {rows} {pages} {lengths}")


@pytest.mark.parametrize("name", ["half", "half_pages", "short_pages"])
def test_numbers_of_fewer_bits(model: Model, name: str) -> None:
    for pages in (1, 9, 18):
        for rows in (1, 9, 40):
            check(model, name, rows, pages, [1, 32 * pages, 31 * pages // 2 + 1])


def test_kernels_convert_their_operands() -> None:
    found = schedules(SOURCE)
    assert found.count(("bounded rows",)) == 3, found
    assert not any("tile" in schedule for schedule in found), found
