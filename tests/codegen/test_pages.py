"""Attention reads the pages that a table names where they are, and nothing behind the length of a text."""

from __future__ import annotations

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from codegen.test_bounded_rows import schedules
from nacre.compiler.base.environment import CHECK_PASSES
from nacre.compiler.checking import read_model
from nacre.compiler.pipeline import Build
from nacre.runtime.loader import Model, OutOfRangeError

Floats = npt.NDArray[np.float32]

SOURCE = """language 1
dim B in 1..4
dim T in 1..80
dim P in 1..99
dim M in 1..20

model one(
  q: f32[B, 4, 1, 16],
  k: f32[P, 2, 16, 32],
  v: f32[P, 2, 32, 20],
  t: i32[B, M],
  n: i32[B],
) -> f32[B, 4, 1, 20] {
  return paged_attention(q, k.mT, v, t, n)
}
model rows(
  q: f32[B, 4, T, 16],
  k: f32[P, 2, 16, 32],
  v: f32[P, 2, 32, 20],
  t: i32[B, M],
  n: i32[B],
) -> f32[B, 4, T, 20] {
  return paged_attention(q, k.mT, v, t, n, causal=true)
}
model apart(
  q: f32[B, 2, 1, 16],
  k: f32[P, 2, 16, 32],
  v: f32[P, 2, 32, 20],
  t: i32[B, M],
  n: i32[B],
) -> f32[B, 2, 1, 20] {
  return paged_attention(q, k.mT, v, t, n)
}
model short(
  q: f32[B, 2, T, 16],
  k: f32[P, 2, 16, 16],
  v: f32[P, 2, 16, 20],
  t: i64[B, 3],
  n: i64,
) -> f32[B, 2, T, 20] {
  return paged_attention(q, k.mT, v, t, n)
}
model odd(
  q: f32[B, 2, T, 16],
  k: f32[P, 2, 16, 5],
  v: f32[P, 2, 5, 20],
  t: i32[B, M],
  n: i32[B],
) -> f32[B, 2, T, 20] {
  return paged_attention(q, k.mT, v, t, n, causal=true)
}
model plain(
  q: f32[B, 2, T, 16],
  k: f32[P, 2, 32, 16],
  v: f32[P, 2, 32, 20],
  t: i32[B, M],
  n: i32[B],
) -> f32[B, 2, T, 20] {
  return paged_attention(q, k, v, t, n, causal=true)
}
"""
PAGES = {"one": 32, "rows": 32, "apart": 32, "short": 16, "odd": 5, "plain": 32}


@pytest.fixture(scope="module", params=[2, 0], ids=["-O2", "-O0"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("pages") / "model.so"
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(CHECK_PASSES, raising=False)
        return nacre.compile(SOURCE, path, threads=2, opt_level=request.param)


def expected(q: Floats, k: Floats, v: Floats, length: int, *, causal: bool) -> npt.NDArray[np.float64]:
    """Attention of f64 to the keys before the length, for heads [H, ...]; without keys it is 0."""
    rows, groups = q.shape[1], len(q) // len(k)
    keys, values = (np.repeat(x[:, :length].astype(np.float64), groups, 0) for x in (k, v))
    scores = q.astype(np.float64) @ keys.swapaxes(1, 2) * 0.25
    if causal:
        hidden = np.arange(length) > np.arange(rows)[:, None] + length - rows
        scores = np.where(hidden, np.finfo(np.float32).min, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    return weights / weights.sum(-1, keepdims=True) @ values


def check(model: Model, name: str, rows: int, pages: int, lengths: list[int]) -> None:
    """Pages of a text lie in no order; what no text holds is infinite."""
    rng = np.random.default_rng(pages * 100 + rows)
    width, heads = PAGES[name], 4 if name in ("one", "rows") else 2
    q = rng.standard_normal((len(lengths), heads, rows, 16)).astype(np.float32)
    table = rng.permutation(99)[: len(lengths) * pages].reshape(len(lengths), pages)
    texts = [rng.standard_normal((2, len(lengths), 2, pages * width, size)).astype(np.float32) for size in (16, 20)]
    pools = [np.full((99, 2, width, size), fill, np.float32) for size, fill in ((16, np.inf), (20, np.nan))]
    for i, length in enumerate(lengths):
        for text, pool in zip(texts, pools, strict=True):
            for s in range(length):
                pool[table[i, s // width], :, s % width] = text[0, i, :, s]
    keys = pools[0] if name == "plain" else np.ascontiguousarray(pools[0].swapaxes(2, 3))
    given = np.asarray(lengths, np.int32) if name != "short" else np.asarray(lengths[0])
    named = table.astype(np.int64 if name == "short" else np.int32)
    result = np.asarray(model.entries[name](q, keys, pools[1], named, given))
    for i, length in enumerate(lengths):
        right = expected(q[i], texts[0][0, i], texts[1][0, i], length, causal=name in ("rows", "odd", "plain"))
        np.testing.assert_allclose(result[i], right, atol=2e-6, rtol=0, err_msg=f"{name} {rows} {pages} {lengths}")


@pytest.mark.parametrize("name", PAGES)
def test_texts_in_pages(model: Model, name: str) -> None:
    for pages in (3,) if name == "short" else (1, 9, 20):
        size = pages * PAGES[name]
        for rows in (1,) if name in ("one", "apart") else (1, 9, 80):
            lengths = {0, size // 2 + 1, size - 1} if rows == 9 else {1, size}
            for length in sorted(lengths):
                texts = [length, size - length, length * 7 % size]
                check(model, name, rows, pages, texts[:1] if name == "short" else texts)


def test_shared_and_repeated_pages(model: Model) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(s).astype(np.float32) for s in ((2, 4, 1, 16), (3, 2, 16, 32), (3, 2, 32, 20)))
    table = np.array([[2, 1, 1], [2, 0, 2]], np.int32)
    result = np.asarray(model.entries["one"](q, k, v, table, np.array([96, 70], np.int32)))
    for i, length in enumerate((96, 70)):
        keys, values = (np.concatenate([x[p] for p in table[i]], 1) for x in (k.swapaxes(2, 3), v))
        right = expected(q[i], keys, values, length, causal=False)
        np.testing.assert_allclose(result[i], right, atol=2e-6, rtol=0)


def test_pages_are_read_where_they_are() -> None:
    """Attention is one kernel, and no other kernel joins pages."""
    source = SOURCE.partition("model odd")[0]
    found = schedules(source)
    assert found.count(("bounded rows",)) == 4, found
    assert not any("tile" in schedule for schedule in found), found
    for function in Build(read_model(source)).optimize().functions:
        alone = [node.op for node in function.body]
        inside = [inner.op for node in function.body for region in node.regions for inner in region.body]
        assert "gather_pages" not in alone and inside.count("gather_pages") == 2, function.name


@pytest.mark.parametrize(
    ("page", "length", "message"), [(3, 64, "index 3 "), (-4, 64, "index -4 "), (2, 65, "length 65 ")]
)
def test_bad_pages_and_lengths(model: Model, page: int, length: int, message: str) -> None:
    q, k, v = (np.zeros(shape, np.float32) for shape in ((1, 4, 1, 16), (3, 2, 16, 32), (3, 2, 32, 20)))
    with pytest.raises(OutOfRangeError, match=f"`paged_attention` at .*: {message}is out of range"):
        model.entries["one"](q, k, v, np.array([[0, page]], np.int32), np.array([length], np.int32))
