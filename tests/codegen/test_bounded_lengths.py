"""Attention to the keys before a length: memory behind it is not read, and has no influence, whatever it holds."""

from __future__ import annotations

from itertools import product

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from codegen.test_bounded_rows import schedules
from nacre.compiler.validate.guarded_memory import Memory
from nacre.compiler.validate.isolated import Died, run_isolated
from nacre.runtime.loader import Model, OutOfRangeError

Floats = npt.NDArray[np.float32]

SOURCE = """language 1
dim B in 1..4
dim T in 1..80
dim S in 0..600

model causal(q: f32[B, 4, T, 16], k: f32[B, 2, 16, S], v: f32[B, 2, S, 20], n: i32[B]) -> f32[B, 4, T, 20] {
  return cached_attention(q, k.mT, v, n, causal=true)
}
model one(q: f32[B, 4, 1, 16], k: f32[B, 2, 16, S], v: f32[B, 2, S, 20], n: i32[B]) -> f32[B, 4, 1, 20] {
  return cached_attention(q, k.mT, v, n)
}
model rows(q: f32[B, 2, T, 16], k: f32[B, 2, S, 16], v: f32[B, 2, S, 20], n: i32[B]) -> f32[B, 2, T, 20] {
  return cached_attention(q, k, v, n, causal=true)
}
model written(q: f32[B, 2, T, 16], k: f32[B, 2, 16, S], v: f32[B, 2, S, 20], n: i64) -> f32[B, 2, T, 20] {
  scores = mask_after(q @ k * 0.25, n, fill=-inf)
  return softmax(scores) @ mask_after(v, n, axis=-2)
}
model short(q: f32[B, 2, T, 16], k: f32[B, 2, 16, 30], v: f32[B, 2, 30, 20], n: i64) -> f32[B, 2, T, 20] {
  return cached_attention(q, k.mT, v, n)
}
"""
CAUSAL = {"causal", "rows"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return nacre.compile(SOURCE, tmp_path_factory.mktemp("lengths") / "model.so", threads=2)


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


def check(model: Model, name: str, rows: int, size: int, lengths: list[int]) -> None:
    rng = np.random.default_rng(size + rows)
    heads = 2 if name in ("rows", "written", "short") else 4
    q, k, v = (
        rng.standard_normal((len(lengths), *shape)).astype(np.float32)
        for shape in ((heads, rows, 16), (2, size, 16), (2, size, 20))
    )
    for i, length in enumerate(lengths):
        k[i, :, length:], v[i, :, length:] = np.inf, np.nan
    keys = k if name == "rows" else np.ascontiguousarray(k.swapaxes(2, 3))
    given = np.asarray(lengths, np.int32) if name not in ("written", "short") else np.asarray(lengths[0])
    result = np.asarray(model.entries[name](q, keys, v, given))
    for i, length in enumerate(lengths):
        right = expected(q[i], k[i], v[i], length, causal=name in CAUSAL)
        np.testing.assert_allclose(result[i], right, atol=2e-6, rtol=0, err_msg=f"{name} {rows} {size} {lengths}")


@pytest.mark.parametrize("name", ["causal", "one", "rows", "written", "short"])
def test_memory_behind_the_length_has_no_influence(model: Model, name: str) -> None:
    sizes = (30,) if name == "short" else (1, 7, 256, 257, 600)
    for size, rows in product(sizes, (1,) if name == "one" else (1, 2, 9, 80)):
        for length in sorted({0, 1, size // 2 + 1, size - 1, size}):
            if name == "written" and length == 0:
                continue
            alone = name in ("written", "short")
            check(model, name, rows, size, [length] if alone else [length, size - length, (length * 7) % (size + 1)])


def test_written_attention_without_keys_is_not_a_number(model: Model) -> None:
    """The softmax of a row of -inf: the values, which are 0, do not hide it."""
    arrays = [np.ones(shape, np.float32) for shape in ((1, 2, 3, 16), (1, 2, 16, 600), (1, 2, 600, 20))]
    assert np.isnan(np.asarray(model.entries["written"](*arrays, np.asarray(0)))).all()


@pytest.mark.parametrize("rows", [1, 9, 80])
@pytest.mark.parametrize("name", ["causal", "one", "rows", "written"])
def test_no_capacity(model: Model, name: str, rows: int) -> None:
    """A sum of no values is 0, and none is read: the next page cannot be."""
    heads, rows = 2 if name in ("rows", "written") else 4, 1 if name == "one" else rows
    memory = Memory({"k": 0, "v": 0}, at_end=True, alignments={})
    shapes = {"k": (1, 2, 0, 16) if name == "rows" else (1, 2, 16, 0), "v": (1, 2, 0, 20)}
    keys, values = (memory.buffers[n].data.view(np.float32).reshape(shape) for n, shape in shapes.items())
    length = np.asarray(0) if name == "written" else np.zeros(1, np.int32)
    q = np.ones((1, heads, rows, 16), np.float32)
    (result,) = run_isolated([lambda tell: np.asarray(model.entries[name](q, keys, values, length))])
    assert not isinstance(result, Died), result
    np.testing.assert_array_equal(result, np.zeros((1, heads, rows, 20)))


def test_lengths_bound_rows() -> None:
    found = schedules(SOURCE)
    assert found.count(("bounded rows",)) == 2
    assert found.count(("own lengths",)) == 2, "a causal mask ends each row"
    assert found.count(("rows",)) >= 1


def test_length_beyond_the_capacity_fails(model: Model) -> None:
    q, k, v = (np.zeros(shape, np.float32) for shape in ((2, 4, 3, 16), (2, 2, 16, 300), (2, 2, 300, 20)))
    message = (
        r"`cached_attention` at .*: length 301 is out of range for an axis of size 300 \(element 1 of the lengths\)"
    )
    with pytest.raises(OutOfRangeError, match=message):
        model.entries["causal"](q, k, v, np.asarray([300, 301], np.int32))


OTHER = """language 1
dim T in 1..9
{}"""
MODEL = """model {name}(q: f32[2, T, 16], k: f32[2, 16, 300], v: f32[2, 300, 20], {given}) -> f32[2, T, 20] {{
  return softmax(mask_after(q @ k * 0.25, {scores}, fill=-inf)) @ mask_after(v, {values}, axis=-2)
}}
"""
LENGTHS = {
    "two": ("n: i64[2], m: i64[2]", "n", "m"),
    "one": ("n: i64[2]", "n[0]", "n"),
    "longer": ("n: i64[2]", "n + 1", "n"),
}
"""The arguments, the lengths of the scores and those of the values: they look alike, and are other numbers."""


@pytest.mark.usefixtures("unchecked")
def test_lengths_of_scores_and_values_that_differ(tmp_path_factory: pytest.TempPathFactory) -> None:
    fields = ("given", "scores", "values")
    parts = [MODEL.format(name=name, **dict(zip(fields, each, strict=True))) for name, each in LENGTHS.items()]
    model = nacre.compile(OTHER.format("".join(parts)), tmp_path_factory.mktemp("differ") / "model.so")
    n, m = np.array([270, 77]), np.array([100, 255])
    calls = {
        "two": ((n, m), n, m),
        "one": ((n,), n[[0, 0]], n),
        "longer": ((n,), n + 1, n),
    }
    assert calls.keys() == LENGTHS.keys()
    rng = np.random.default_rng(0)
    for rows in (1, 9):
        q, k, v = (rng.standard_normal(s).astype(np.float32) for s in ((2, rows, 16), (2, 16, 300), (2, 300, 20)))
        for name, (given, ends, others) in calls.items():
            result = np.asarray(model.entries[name](q, k, v, *given))
            for i in range(2):
                scores = q[i].astype(np.float64) @ k[i, :, : ends[i]] * 0.25
                weights = np.exp(scores - scores.max(-1, keepdims=True))
                weights /= weights.sum(-1, keepdims=True)
                end = min(ends[i], others[i])
                right = weights[:, :end] @ v[i, :end]
                np.testing.assert_allclose(result[i], right, atol=2e-6, rtol=0, err_msg=name)
