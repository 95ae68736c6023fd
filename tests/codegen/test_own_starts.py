"""Attention with a sliding window: each row has a start of its own, known at run time only. The keys before the least
start of a block of rows are not read, and the result has the bits that it has with the same mask as an argument.
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
from codegen.test_own_lengths import Floats, Integers, length, tensors
from nacre.compiler.base.environment import CHECK_PASSES
from nacre.compiler.validate.isolated import Died, run_isolated
from nacre.runtime.loader import Model

ARGUMENTS = "q: f32[2, T, 16], k: {type}[2, 16, S], v: {type}[2, S, 20]"
VALUES = "cast(v, f32)"
BEFORE = f'mask_before({VALUES}, start, axis=-2, mode="clamp")'
MASKED = """
  scores = mask_before(q @ cast(k, f32) * 0.25, starts, fill={low}, mode="clamp")
  scores = mask_after(scores, ends, fill={low}, mode="clamp")
  scores = mask_before(scores, start, fill=-inf, mode="clamp")
  weights = softmax(mask_after(scores, n, fill=-inf, mode="clamp"))
  return weights @ {values}
}}
"""
WINDOW = f"""model window_{{name}}({ARGUMENTS}, at: i64, width: i64) -> f32[2, T, 20] {{{{
  position = at + iota((1, T), axis=1, dtype=i64)
  starts, ends = (maximum(position + 1 - width, 0), position + 1)
  start, n = (maximum(at + 1 - width, 0), at + T){MASKED}"""
"""Rows after `at` others that see `width` keys each."""
LISTED = f"""model listed_{{name}}(
  {ARGUMENTS}, starts: i64[1, T], ends: i64[1, T], start: i64, n: i64
) -> f32[2, T, 20] {{{{{MASKED}"""
GIVEN = f"""model given(
  {ARGUMENTS.format(type="f32")}, keep: bool[T, S], begin: i64, n: i64, low: f32
) -> f32[2, T, 20] {{
  scores = where(keep, q @ k * 0.25, low)
  scores = where(iota((T, S), axis=1, dtype=i64) < begin, -inf, scores)
  weights = softmax(mask_after(scores, n, fill=-inf, mode="clamp"))
  return weights @ mask_after(v, n, axis=-2, mode="clamp")
}}
"""
"""The values before `begin` must be finite here."""
SCALED = f"""model scaled(
  {ARGUMENTS.format(type="i8")}, s: f32[2, 1, S], starts: i64[1, T], start: i64, n: i64
) -> f32[2, T, 20] {{
  scores = mask_before(q @ cast(k, f32) * 0.01, starts, fill=-inf, mode="clamp")
  scores = mask_before(scores, start, fill=-inf, mode="clamp")
  weights = softmax(mask_after(scores, n, fill=-inf, mode="clamp")) * s
  weights = mask_after(mask_before(weights, start, mode="clamp"), n, mode="clamp")
  return weights @ mask_after({BEFORE}, n, axis=-2, mode="clamp")
}}
model scaled_given({ARGUMENTS.format(type="f32")}, s: f32[2, 1, S], keep: bool[T, S], n: i64) -> f32[2, T, 20] {{
  weights = softmax(mask_after(where(keep, q @ k * 0.01, -inf), n, fill=-inf, mode="clamp")) * s
  return mask_after(weights, n, mode="clamp") @ mask_after(v, n, axis=-2, mode="clamp")
}}
"""
HEAD = "language 1\ndim T in 1..80\ndim S in 0..4096\n"
KINDS = {"plain": ("f32", "-inf"), "half": ("f16", "-inf"), "near": ("f32", "-3.0"), "open": ("f32", "-inf")}
"""The dtypes of keys and values, and the masked scores. The values of `open` have no start: they are all looked at."""


def text(form: str, kind: str) -> str:
    type, low = KINDS[kind]
    values = f'mask_after({VALUES if kind == "open" else BEFORE}, n, axis=-2, mode="clamp")'
    return form.format(name=kind, type=type, low=low, values=values)


SOURCE = HEAD + "".join(text(form, kind) for kind in KINDS for form in (WINDOW, LISTED)) + GIVEN + SCALED


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Model]:
    path = tmp_path_factory.mktemp("starts") / "model.so"
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(CHECK_PASSES, raising=False)
        nacre.compile(SOURCE, path)
    return [nacre.load(path, threads=threads) for threads in (1, 2)]


def expected(
    model: Model, kind: str, arrays: Sequence[Floats], keep: npt.NDArray[np.bool_], start: int, n: int
) -> Floats:
    """Returns the result for a mask that is an argument, of the same numbers in f32."""
    q, k, v = (x.astype(np.float32) for x in arrays)
    begin = length(start, v.shape[1])
    if kind != "open":
        v[:, :begin] = 0
    low = np.float32(KINDS[kind][1])
    return np.asarray(model.entries["given"](q, k, v, keep, np.asarray(begin), np.asarray(n), low))


def check(
    models: Sequence[Model], kind: str, arrays: Sequence[Floats], bounds: tuple[Integers, Integers], start: int, n: int
) -> None:
    """Compares the result for these bounds with the one for the same mask as an argument."""
    rows, size = arrays[0].shape[1], arrays[1].shape[2]
    starts, ends = (length(bound, size)[:, None] for bound in bounds)
    keys = np.arange(size)
    right = expected(models[0], kind, arrays, (keys >= starts) & (keys < ends), start, n)
    given = bounds[0][None], bounds[1][None], np.asarray(start), np.asarray(n)
    for model in models:
        found = model.entries[f"listed_{kind}"](*arrays, *given)
        np.testing.assert_array_equal(found, right, err_msg=f"{kind}, {rows} rows of {size}, {bounds}, {start}, {n}")


@pytest.mark.parametrize("kind", KINDS)
def test_windows(models: list[Model], kind: str) -> None:
    for rows, size in ((1, 1100), (7, 257), (9, 600), (80, 600), (80, 80), (3, 0)):
        arrays = tensors(kind, rows, size)
        for at, width in ((0, 1), (63, 5), (size // 2, 33), (max(0, size - rows), 200), (size + 9, 7), (5, 1 << 40)):
            position = at + np.arange(rows)
            starts, start = np.maximum(position + 1 - width, 0), max(at + 1 - width, 0)
            keys = np.arange(size)
            keep = (keys >= starts[:, None]) & (keys <= position[:, None])
            right = expected(models[0], kind, arrays, keep, start, at + rows)
            for model in models:
                found = model.entries[f"window_{kind}"](*arrays, np.asarray(at), np.asarray(width))
                np.testing.assert_array_equal(found, right, err_msg=f"{kind}, {rows} of {size}, {at}, {width}")


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_order(models: list[Model], kind: str) -> None:
    rng = np.random.default_rng(3)
    for start, n in ((0, 600), (129, 600), (1, 350), (350, 350), (600, 600), (590, -3), (64, 0)):
        starts, ends = rng.integers(-700, 600, 80), rng.integers(300, 700, 80)
        starts[:8] = 599
        starts[-1] = 40
        check(models, kind, tensors(kind, 80, 600), (starts, ends), start, n)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_are_not_finite(models: list[Model], kind: str) -> None:
    """A weight of 0 does not hide an infinite value that a mask of scores hides, as without bounds."""
    for place in (3, 299, 378, 420):
        q, k, v = tensors(kind, 80, 600)
        v[1, place, 19], v[0, place, 2], k[0, :, place] = np.nan, np.inf, np.inf
        starts = 200 + np.arange(80)
        check(models, kind, (np.abs(q), k, v), (starts, np.full(80, 600)), 200, 600)


@pytest.mark.parametrize("place", [None, 3, 250, 420])
def test_scaled_weights(models: list[Model], place: int | None) -> None:
    """A scale before the start has no influence, and one before the own start of a row has that of any weight of 0."""
    rng = np.random.default_rng(1)
    q, s = rng.standard_normal((2, 80, 16)).astype(np.float32), rng.random((2, 1, 600)).astype(np.float32)
    k, v = (rng.integers(-127, 128, shape).astype(np.int8) for shape in ((2, 16, 600), (2, 600, 20)))
    plain = s.copy()
    if place is not None:
        s[1, 0, place] = np.inf
        plain[1, 0, place] = np.inf if place >= 200 else 0
    starts, n = 200 + np.arange(80), np.asarray(600)
    wide = [x.astype(np.float32) for x in (k, v)]
    right = models[0].entries["scaled_given"](q, *wide, plain, np.arange(600) >= starts[:, None], n)
    assert np.isnan(right).any() == (place == 250)
    for model in models:
        found = model.entries["scaled"](q, k, v, s, starts[None], np.asarray(200), n)
        np.testing.assert_array_equal(found, right)


def test_the_reference_without_optimization(tmp_path: Path) -> None:
    model = nacre.compile(HEAD + text(WINDOW, "plain"), tmp_path / "model.so", opt_level=0)
    for rows, size, at, width in ((9, 300, 0, 4), (80, 400, 211, 100), (1, 257, 256, 1)):
        q, k, v = tensors("plain", rows, size)
        keys, position = np.arange(size), (at + np.arange(rows))[:, None]
        keep = (keys <= position) & (keys > position - width)
        scores = np.where(keep, q.astype(np.float64) @ k * 0.25, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        v[:, : max(at + 1 - width, 0)] = np.nan
        right = weights / weights.sum(-1, keepdims=True) @ np.nan_to_num(v)
        found = model.entries["window_plain"](q, k, v, np.asarray(at), np.asarray(width))
        np.testing.assert_allclose(found, right, atol=2e-6, rtol=0)


@pytest.mark.parametrize("rows", [1, 80])
def test_keys_before_the_starts_of_all_rows_are_not_read(models: list[Model], rows: int) -> None:
    """The keys have pages of 1024 tokens, and all but the last ones cannot be read. Neither can values before them."""
    assert mmap.PAGESIZE == 4096
    size, width = 4096, 500
    arrays = tensors("plain", rows, size)
    memories = [mmap.mmap(-1, x.nbytes) for x in arrays[1:]]
    keys, values = (
        np.frombuffer(memory, np.float32).reshape(x.shape) for memory, x in zip(memories, arrays[1:], strict=True)
    )
    keys[:], values[:] = arrays[1:]
    at, q = size - rows, arrays[0]
    position = at + np.arange(rows)
    starts, start = position + 1 - width, at + 1 - width
    right = models[0].entries["window_plain"](q, keys, values, np.asarray(at), np.asarray(width))
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def hide(array: Floats, begin: int, end: int) -> None:
        first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
        assert protect(array.ctypes.data + first, end // mmap.PAGESIZE * mmap.PAGESIZE - first, 0) == 0

    for row in range(2 * 16):
        hide(keys, row * size * 4, (row * size + start - 64) * 4)
    for element in range(2):
        hide(values, element * size * 80, (element * size + start) * 80)
    keep = (np.arange(size) >= starts[:, None]) & (np.arange(size) <= position[:, None])
    begin, end, low = np.asarray(start), np.asarray(size), np.float32(-np.inf)
    bounded, whole = run_isolated(
        [
            lambda tell: models[0].entries["window_plain"](q, keys, values, np.asarray(at), np.asarray(width)),
            lambda tell: models[0].entries["given"](q, keys, values, keep, begin, end, low),
        ]
    )
    np.testing.assert_array_equal(bounded, right)
    assert isinstance(whole, Died), "the keys before the starts can be read"


def test_schedules() -> None:
    found = schedules(SOURCE)
    # The same kernel computes rows after others and rows with a list of bounds.
    assert found.count(("own lengths",)) == len(KINDS) + 1, found
    assert found.count(("bounded rows",)) == 2, found
