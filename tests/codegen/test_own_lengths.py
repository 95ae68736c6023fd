"""Attention in which each row has a length of its own, known at run time only: the keys behind the greatest length of a
block of rows are not read, and the result has the bits that it has with the same mask as an argument.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from pathlib import Path

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from codegen.test_bounded_rows import schedules
from nacre.compiler.base.environment import CHECK_PASSES
from nacre.compiler.validate.isolated import Died, run_isolated
from nacre.runtime.loader import Model

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

ARGUMENTS = "q: f32[2, T, 16], k: {type}[2, 16, S], v: {type}[2, S, 20]"
CACHED = """
  scores = mask_after(q @ cast(k, f32) * 0.25, ends, fill={low}, mode="clamp")
  weights = softmax(mask_after(scores, n, fill=-inf, mode="clamp"))
  return weights @ mask_after(cast(v, f32), n, axis=-2, mode="clamp")
}}
"""
AFTER = f"""model {{name}}({ARGUMENTS}, at: i64) -> f32[2, T, 20] {{{{
  n = at + T
  ends = at + iota((1, T), axis=1, dtype=i64) + 1{CACHED}"""
"""Rows after `at` others: row i keeps the keys up to at + i."""
FIRST = f"""model first({ARGUMENTS}, n: i64) -> f32[2, T, 20] {{{{
  ends = iota((1, T), axis=1, dtype=i64){CACHED}"""
"""Row i keeps the keys before i: the kernel computes these lengths itself, and row 0 has no maximum."""
LISTED = f"model {{name}}({ARGUMENTS}, ends: i64[1, T], n: i64) -> f32[2, T, 20] {{{{{CACHED}"
GIVEN = f"""model given({ARGUMENTS.format(type="f32")}, keep: bool[T, S], n: i64, low: f32) -> f32[2, T, 20] {{
  weights = softmax(mask_after(where(keep, q @ k * 0.25, low), n, fill=-inf, mode="clamp"))
  return weights @ mask_after(v, n, axis=-2, mode="clamp")
}}
"""
SCALED = f"""model {{name}}({ARGUMENTS.format(type="i8")}, s: f32[2, 1, S], {{given}}, n: i64) -> f32[2, T, 20] {{{{
  scores = {{masked}}
  weights = softmax(mask_after(scores, n, fill=-inf)) * s
  return mask_after(weights, n) @ mask_after(cast(v, f32), n, axis=-2)
}}}}
"""
SCORES = "q @ cast(k, f32) * 0.01"
"""Numbers of 8 bits, with a scale for each value."""
HEAD = "language 1\ndim T in 1..80\ndim S in 0..2048\n"
KINDS = {"plain": ("f32", "-inf"), "half": ("f16", "-inf"), "near": ("f32", "-3.0")}
SOURCE = HEAD + "".join(
    form.format(name=f"{name}_{kind}", type=type, low=low)
    for kind, (type, low) in KINDS.items()
    for name, form in (("after", AFTER), ("listed", LISTED))
)
SOURCE += FIRST.format(type="f32", low="-inf") + GIVEN
SOURCE += SCALED.format(
    name="scaled", given="ends: i64[1, T]", masked=f'mask_after({SCORES}, ends, fill=-inf, mode="clamp")'
)
SOURCE += SCALED.format(name="scaled_given", given="keep: bool[T, S]", masked=f"where(keep, {SCORES}, -inf)")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Model]:
    path = tmp_path_factory.mktemp("own") / "model.so"
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(CHECK_PASSES, raising=False)
        nacre.compile(SOURCE, path)
    return [nacre.load(path, threads=threads) for threads in (1, 2)]


def tensors(kind: str, rows: int, size: int) -> list[Floats]:
    rng = np.random.default_rng(rows + size)
    shapes = (2, rows, 16), (2, 16, size), (2, size, 20)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return [q, *(x.astype(np.float16) if kind == "half" else x for x in (k, v))]


def given(model: Model, kind: str, arrays: Sequence[Floats], keep: npt.NDArray[np.bool_], n: int) -> object:
    """Returns the result for a mask that is an argument, of the same numbers in f32."""
    low = np.float32(KINDS[kind][1])
    return model.entries["given"](*(x.astype(np.float32, copy=False) for x in arrays), keep, np.asarray(n), low)


def length(number: Integers | int, size: int) -> Integers:
    """The length that a number means within an axis of a size: negative ones count from the end."""
    wide = np.asarray(number, np.int64)
    return np.clip(np.where(wide < 0, wide + size, wide), 0, size)


def check(models: Sequence[Model], kind: str, arrays: Sequence[Floats], ends: Integers, n: int, at: int | None) -> None:
    """Compares the result for these lengths with the one for the same mask as an argument."""
    rows, size = arrays[0].shape[1], arrays[1].shape[2]
    keep = np.arange(size) < length(ends, size)[:, None]
    expected = given(models[0], kind, arrays, keep, n)
    for model in models:
        found = [model.entries[f"listed_{kind}"](*arrays, ends[None], np.asarray(n))]
        if at is not None:
            found.append(model.entries[f"after_{kind}"](*arrays, np.asarray(at)))
        for each in found:
            np.testing.assert_array_equal(each, expected, err_msg=f"{kind}, {rows} rows of {size}, {ends}, {n}")


@pytest.mark.parametrize("kind", KINDS)
def test_rows_after_others(models: list[Model], kind: str) -> None:
    for rows, size in ((1, 300), (7, 257), (9, 600), (33, 600), (80, 600), (80, 80), (3, 0)):
        far = np.iinfo(np.int64).max - 200
        for at in sorted({0, 1, 63, size // 2, max(0, size - rows), size - 1, size + 5, -1, -rows, -size - 9, far}):
            ends = at + np.arange(rows) + 1
            check(models, kind, tensors(kind, rows, size), ends, at + rows, at)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_order(models: list[Model], kind: str) -> None:
    rng = np.random.default_rng(3)
    for n in (600, 350, 1, 0):
        ends = rng.integers(-700, 700, 80)
        ends[:20] = rng.integers(0, 9, 20)
        check(models, kind, tensors(kind, 80, 600), ends, n, None)


def test_rows_that_are_their_lengths(models: list[Model]) -> None:
    for rows, size, n in ((80, 600, 600), (9, 300, 5), (1, 1, 1)):
        arrays, keep = tensors("plain", rows, size), np.arange(size) < np.arange(rows)[:, None]
        expected = given(models[0], "plain", arrays, keep, n)
        for model in models:
            np.testing.assert_array_equal(model.entries["first"](*arrays, np.asarray(n)), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_are_not_finite(models: list[Model], kind: str) -> None:
    """A weight of 0 does not hide an infinite value that a mask of scores hides, as without bounds."""
    for place in (3, 299, 378, 420):
        q, k, v = tensors(kind, 80, 600)
        v[1, place, 19], v[0, place, 2], k[0, :, place] = np.nan, np.inf, np.inf
        k[1, :, : place // 2] = -np.inf
        check(models, kind, (np.abs(q), k, v), 300 + np.arange(80) + 1, 380, 300)


@pytest.mark.parametrize("place", [None, 3, 378, 420])
def test_scaled_weights(models: list[Model], place: int | None) -> None:
    rng = np.random.default_rng(1)
    q, s = rng.standard_normal((2, 80, 16)).astype(np.float32), rng.random((2, 1, 600)).astype(np.float32)
    k, v = (rng.integers(-127, 128, shape).astype(np.int8) for shape in ((2, 16, 600), (2, 600, 20)))
    if place is not None:
        s[1, 0, place] = np.inf
    ends, n = 300 + np.arange(80) + 1, np.asarray(380)
    expected = models[0].entries["scaled_given"](q, k, v, s, np.arange(600) < ends[:, None], n)
    assert np.isnan(expected).any() == (place == 378)
    for model in models:
        np.testing.assert_array_equal(model.entries["scaled"](q, k, v, s, ends[None], n), expected)


def test_the_reference_without_optimization(tmp_path: Path) -> None:
    text = HEAD + AFTER.format(name="after_plain", type="f32", low="-inf")
    model = nacre.compile(text, tmp_path / "model.so", opt_level=0)
    for rows, size, at in ((9, 300, 0), (80, 400, 211), (1, 257, 256)):
        q, k, v = tensors("plain", rows, size)
        scores = q.astype(np.float64) @ k * 0.25
        scores[:, np.arange(size) > at + np.arange(rows)[:, None]] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        right = weights / weights.sum(-1, keepdims=True) @ v
        found = model.entries["after_plain"](q, k, v, np.asarray(at))
        np.testing.assert_allclose(found, right, atol=2e-6, rtol=0)


def test_keys_behind_the_ends_of_all_rows_are_not_read(models: list[Model]) -> None:
    """Each key has a page for the tokens before 1024 and one for those after them, which cannot be read."""
    assert mmap.PAGESIZE == 4096
    rows, size = 80, 2048
    q, k, v = tensors("plain", rows, size)
    memory = mmap.mmap(-1, k.nbytes)
    keys = np.frombuffer(memory, np.float32).reshape(k.shape)
    keys[:] = k
    ends, n = np.asarray(500 + np.arange(rows))[None], np.asarray(size)
    expected = models[0].entries["listed_plain"](q, keys, v, ends, n)
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for page in range(1, k.nbytes // mmap.PAGESIZE, 2):
        assert protect(keys.ctypes.data + page * mmap.PAGESIZE, mmap.PAGESIZE, 0) == 0
    keep = np.arange(size) < ends[0][:, None]
    bounded, whole = run_isolated(
        [
            lambda tell: models[0].entries["listed_plain"](q, keys, v, ends, n),
            lambda tell: given(models[0], "plain", (q, keys, v), keep, size),
        ]
    )
    np.testing.assert_array_equal(bounded, expected)
    assert isinstance(whole, Died), "the keys behind the ends can be read"


def test_schedules() -> None:
    found = schedules(SOURCE)
    # The same kernel computes rows after others and rows with a list of lengths.
    assert found.count(("own lengths",)) == len(KINDS) + 2, found
    assert found.count(("bounded rows",)) == 2, found
