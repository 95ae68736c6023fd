"""Attention over more keys than whole rows of scores fit beside each other on the stack: stretches of keys follow each
other, and the result is that of whole rows, for any mask, length and number of rows.
"""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from codegen.test_bounded_rows import MASKS, compare_with_argument, model, schedules
from codegen.test_own_lengths import AFTER, FIRST, GIVEN, LISTED, Floats, check, tensors
from codegen.test_own_starts import GIVEN as GIVEN_STARTS
from codegen.test_own_starts import KINDS as STARTS
from codegen.test_own_starts import LISTED as LISTED_STARTS
from codegen.test_own_starts import check as check_starts
from codegen.test_own_starts import text as starts_text
from nacre.compiler.base.environment import CHECK_PASSES
from nacre.compiler.codegen.tiler.online_softmax import STRETCH
from nacre.runtime.loader import Model

HEAD = "language 1\ndim T in 1..999\ndim S in 0..33333\n"
PLAIN = """model plain(q: f32[2, T, 16], k: f32[2, S, 16], v: f32[2, S, 20]) -> f32[2, T, 20] {
  return softmax(q @ k.mT * 0.25) @ v
}
model masked(q: f32[2, T, 16], k: f32[2, S, 16], v: f32[2, S, 20], m: f32[T, S]) -> f32[2, T, 20] {
  return attention(q, k, v, mask=m)
}
model gated(q: f32[2, T, 16], k: f32[2, S, 16], v: f32[2, S, 20], g: f32[2, T, 20]) -> f32[2, T, 20] {
  return relu(softmax(q @ k.mT) @ v) + g
}
model grouped(q: f32[1, 4, S, 16], k: f32[1, 2, S, 16], v: f32[1, 2, S, 20]) -> f32[1, 4, S, 20] {
  return attention(q, k, v, causal=true)
}
model positions(
  q: f32[2, T, 16], k: f32[2, S, 16], p: f32[16, S], v: f32[2, S, 20]
) -> f32[2, T, 20] {
  return softmax(q @ k.mT * 0.25 + q @ p) @ v
}
"""
MASKED = "".join(model(name, mask.scores.replace("low", mask.low), "T", "S") for name, mask in MASKS.items())
MASKED += model("given", "where(keep, score, low)", "T", "S", ", keep: bool[T, S], low: f32")
LENGTHS = "".join(
    form.format(name=f"{name}_{kind}", type=type, low="-inf")
    for kind, type in (("plain", "f32"), ("half", "f16"))
    for name, form in (("after", AFTER), ("listed", LISTED))
)
LENGTHS += FIRST.format(type="f32", low="-inf") + GIVEN


def load(source: str, folder: Path, **options: object) -> list[Model]:
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(CHECK_PASSES, raising=False)
        nacre.compile(HEAD + source, folder / "model.so", **options)  # type: ignore[arg-type]  # any option
    return [nacre.load(folder / "model.so", threads=threads) for threads in (1, 2)]


def attend(scores: npt.NDArray[np.float64], v: Floats) -> npt.NDArray[np.float64]:
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        return np.asarray(weights / weights.sum(-1, keepdims=True) @ v.astype(np.float64))


def scores_of(q: Floats, k: Floats) -> npt.NDArray[np.float64]:
    return q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) * 0.25


SIZES = [
    (1, 1), (7, 5), (8, STRETCH - 1), (9, STRETCH), (64, STRETCH + 1), (65, 2 * STRETCH), (129, 2 * STRETCH + 31),
    (200, 1500),
]  # fmt: skip


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[Model]:
    return load(PLAIN, tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize(("rows", "keys"), SIZES)
def test_numbers(plain: list[Model], rows: int, keys: int) -> None:
    rng = np.random.default_rng(rows)

    def draw(*shape: int) -> Floats:
        return rng.standard_normal(shape).astype(np.float32)

    q, k, v, g, p = draw(2, rows, 16), draw(2, keys, 16), draw(2, keys, 20), draw(2, rows, 20), draw(16, keys)
    mask = np.where(rng.random((rows, keys)) < 0.3, -np.inf, draw(rows, keys)).astype(np.float32)
    mask[:, 0] = 0
    mask[rows // 2, : keys - 1] = -np.inf  # all stretches but the last have no score
    heads = draw(1, 4, keys, 16)
    causal = np.where(np.tril(np.ones((keys, keys), bool)), scores_of(heads, np.repeat(k, 2, 0)[None]), -np.inf)
    added = q.astype(np.float64) @ p.astype(np.float64)
    right = {
        "plain": ((q, k, v), attend(scores_of(q, k), v)),
        "masked": ((q, k, v, mask), attend(scores_of(q, k) + mask, v)),
        "gated": ((q, k, v, g), np.maximum(attend(scores_of(q, k) * 4, v), 0) + g),
        "grouped": ((heads, k[None], v[None]), attend(causal, np.repeat(v, 2, 0)[None])),
        "positions": ((q, k, p, v), attend(scores_of(q, k) + added, v)),
    }
    for name, (arrays, expected) in right.items():
        one, two = (np.asarray(each.entries[name](*arrays)) for each in plain)
        np.testing.assert_array_equal(one, two)
        np.testing.assert_allclose(one, expected, atol=4e-6, rtol=0, err_msg=name)


def test_special_values(plain: list[Model], tmp_path: Path) -> None:
    """Rows without a score, scores that are infinite or NaN, and such values with weights that f32 holds or that the
    scores of their stretch make 0, give what whole rows give."""
    rng = np.random.default_rng(1)
    rows, keys = 40, 3 * STRETCH + 5
    q, k, v = (rng.standard_normal((2, n, w)).astype(np.float32) for n, w in ((rows, 16), (keys, 16), (keys, 20)))
    mask = np.zeros((rows, keys), np.float32)
    mask[3] = -np.inf
    mask[4, : 2 * STRETCH], mask[5, STRETCH:] = -np.inf, -np.inf
    mask[6, 7], mask[7, keys - 1], mask[8, STRETCH] = np.nan, np.inf, np.inf
    mask[9, 2 * STRETCH :] = 300.0  # the earlier powers are 0 behind these scores
    values = v.copy()
    values[0, 5, 3], values[1, keys - 2, 4], values[1, STRETCH, 5] = np.inf, np.nan, -np.inf
    (reference, _) = load(PLAIN, tmp_path, opt_level=0)
    for given in (v, values):
        expected = np.asarray(reference.entries["masked"](q, k, given, mask))
        assert np.isnan(expected[:, 3]).all() and np.isfinite(expected[:, 4]).any()
        for each in plain:
            actual = np.asarray(each.entries["masked"](q, k, given, mask))
            np.testing.assert_allclose(actual, expected, atol=4e-6, rtol=0)


def test_large_values(plain: list[Model]) -> None:
    """Sums of exponentials times values do not overflow, whatever the order of the scores is."""
    rng = np.random.default_rng(2)
    q, k = rng.standard_normal((2, 9, 16)).astype(np.float32), rng.standard_normal((2, 900, 16)).astype(np.float32)
    rising = np.repeat(np.float32([0, 200, 400]), (STRETCH, STRETCH, 900 - 2 * STRETCH)) * np.ones((9, 1), np.float32)
    for value, factor in ((3e38, 1), (1e36, 0), (1e37, 1)):
        v, scores = np.full((2, 900, 20), value, np.float32), q * np.float32(factor)
        for mask in (np.zeros((9, 900), np.float32), rising, rising[:, ::-1].copy()):
            result = np.asarray(plain[0].entries["masked"](scores, k, v, mask))
            # 900 equal terms are added one after the other.
            np.testing.assert_allclose(result, value, rtol=1e-5)


def test_no_keys(plain: list[Model]) -> None:
    q, none = np.ones((2, 9, 16), np.float32), np.zeros((2, 0, 16), np.float32)
    result = np.asarray(plain[0].entries["plain"](q, none, np.zeros((2, 0, 20), np.float32)))
    assert result.shape == (2, 9, 20)
    assert not result.any()


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> list[Model]:
    return load(MASKED, tmp_path_factory.mktemp("masked"))


@pytest.mark.parametrize("name", MASKS)
def test_bits_are_those_of_a_mask_that_is_an_argument(masked: list[Model], name: str) -> None:
    for rows, keys in ((448, 512), (300, 900), (700, 1500), (5, 384)):
        compare_with_argument(masked, name, MASKS[name], rows, keys)


@pytest.fixture(scope="module")
def lengths(tmp_path_factory: pytest.TempPathFactory) -> list[Model]:
    return load(LENGTHS, tmp_path_factory.mktemp("lengths"))


@pytest.mark.parametrize("kind", ["plain", "half"])
def test_own_lengths(lengths: list[Model], kind: str) -> None:
    for rows, size in ((1, 300), (7, 257), (33, 600), (200, 1500), (80, 80), (3, 0)):
        for at in sorted({0, 63, size // 2, max(0, size - rows), size + 5, -1, -size - 9}):
            check(lengths, kind, tensors(kind, rows, size), at + np.arange(rows) + 1, at + rows, at)
    rng = np.random.default_rng(3)
    for n in (1500, 350, 1, 0):
        ends = rng.integers(-1700, 1700, 80)
        ends[:20] = rng.integers(0, 9, 20)
        check(lengths, kind, tensors(kind, 80, 1500), ends, n, None)
    for place in (3, 299, 378, 420):
        q, k, v = tensors(kind, 80, 600)
        v[1, place, 19], v[0, place, 2], k[0, :, place] = np.nan, np.inf, np.inf
        k[1, :, : place // 2] = -np.inf
        check(lengths, kind, (np.abs(q), k, v), 300 + np.arange(80) + 1, 380, 300)


def test_no_length_gives_zeros(tmp_path: Path) -> None:
    """The weights of `cached_attention` are 0 without keys; `mask_after` of the scores alone leaves them NaN."""
    text = """model m(q: f32[2, T, 16], k: f32[2, S, 16], v: f32[2, S, 20], n: i64) -> f32[2, T, 20] {
      return cached_attention(q, k, v, n, causal=true)
    }
    """
    assert ("own lengths, online softmax",) in schedules(HEAD + text)
    (one, _) = load(text, tmp_path)
    q, k, v = (np.full((2, n, w), np.nan if n > 9 else 1, np.float32) for n, w in ((9, 16), (900, 16), (900, 20)))
    assert not np.asarray(one.entries["m"](q, k, v, np.asarray(0))).any()
    k[:, :10], v[:, :10] = 1, 2
    np.testing.assert_allclose(np.asarray(one.entries["m"](q, k, v, np.asarray(10))), 2, rtol=1e-6)


def test_a_single_row(tmp_path: Path) -> None:
    """Decoding: one query for each head, over a cache of any size."""
    text = """language 1
    dim S in 0..199999
    model m(q: f32[2, 1, 16], k: f32[2, 16, S], v: f32[2, S, 20], n: i64) -> f32[2, 1, 20] {
      return cached_attention(q, k.mT, v, n)
    }
    """
    assert schedules(text).count(("bounded rows, online softmax",)) == 1, schedules(text)
    one = nacre.compile(text, tmp_path / "model.so")
    for keys, n in ((1, 1), (STRETCH, 7), (STRETCH + 1, STRETCH + 1), (1000, 3), (1000, 999), (1000, 0), (0, 0)):
        q, k, v = tensors("plain", 1, keys)
        k[:, :, n:], v[:, n:] = np.nan, np.nan
        expected = attend(scores_of(q, k[:, :, :n].swapaxes(-1, -2)), v[:, :n]) if n else np.zeros((2, 1, 20))
        np.testing.assert_allclose(np.asarray(one(q, k, v, np.asarray(n))), expected, atol=2e-6, rtol=0)


def test_a_single_row_that_fits_is_whole() -> None:
    """The scales of quantized values are factors of the weights, so that rows are whole; one row takes 64 KiB."""
    text = """language 1
    model m(q: f32[2, 1, 16], k: f32[2, 16, 16384], v: f32[2, 16384, 20], s: f32[2, 1, 16384]) -> f32[2, 1, 20] {
      return (softmax(q @ k) * s) @ v
    }
    """
    assert schedules(text) == [("rows",)]


@pytest.mark.parametrize("kind", STARTS)
def test_own_starts(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = load(starts_text(LISTED_STARTS, kind) + GIVEN_STARTS, tmp_path_factory.mktemp("starts"))
    rng = np.random.default_rng(3)
    for rows, size, start, n in ((80, 1600, 0, 1600), (80, 1600, 529, 1600), (200, 900, 350, 350), (9, 600, 64, 0)):
        starts, ends = rng.integers(-size, size, rows), rng.integers(size // 2, size + 99, rows)
        starts[:8], starts[-1] = size - 1, 40
        q, k, v = tensors(kind, rows, size)
        if kind != "open":
            k[:, :, :start], v[:, :start] = np.nan, np.nan
        check_starts(found, kind, (q, k, v), (starts, ends), start, n)


def test_schedules() -> None:
    found = schedules(HEAD + PLAIN)
    assert found.count(("rows, online softmax",)) == 4, found
    assert found.count(("bounded rows, online softmax",)) == 1, found
    found = schedules(HEAD + MASKED)
    assert found.count(("bounded rows, online softmax",)) == len(MASKS), found
    assert found.count(("rows, online softmax",)) == 1, found
    found = schedules(HEAD + LENGTHS)
    assert found.count(("own lengths, online softmax",)) == 3, found
    found = schedules(HEAD + "".join(starts_text(LISTED_STARTS, kind) for kind in STARTS))
    assert found.count(("own lengths, online softmax",)) == len(STARTS), found


def test_short_rows_are_computed_as_a_whole() -> None:
    found = schedules(HEAD.replace("33333", "300") + PLAIN)
    assert not any("online softmax" in name for names in found for name in names), found


def test_scores_take_no_memory(plain: list[Model]) -> None:
    """The scores of 999 queries and 33,333 keys would take 254 MiB; the keys are transposed."""
    transposed = 2 * 16 * 33333 * 4
    assert transposed <= plain[0].entries["plain"].workspace_bytes(T=999, S=33333) < transposed + 256


def test_strict_code_computes_whole_rows(tmp_path: Path) -> None:
    """The order of sums and the division of weights are those of the model, at the price of memory for scores."""
    text = HEAD + "model m(q: f32[T, 16], k: f32[S, 16], v: f32[S, 20]) -> f32[T, 20] { return softmax(q @ k.T) @ v }\n"
    strict = nacre.compile(text, tmp_path / "strict.so", strict=True)
    assert strict.entries["m"].workspace_bytes(T=999, S=33333) > 999 * 33333 * 4
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((n, w)).astype(np.float32) for n, w in ((50, 16), (1000, 16), (1000, 20)))
    np.testing.assert_allclose(np.asarray(strict(q, k, v)), attend(scores_of(q, k) * 4, v), atol=4e-6, rtol=0)


def test_values_of_each_row_are_computed_in_stages_of_their_own() -> None:
    text = (
        HEAD
        + """model m(q: f32[2, T, 1, 16], k: f32[2, 1, 16, S], v: f32[2, T, S, 20]) -> f32[2, T, 1, 20] {
      return softmax(q @ k) @ v
    }
    """
    )
    assert schedules(text) == [("tile", "rows", "tile")]


@pytest.mark.parametrize(("dtype", "size"), [("f32", 100000), ("f64", 50000)])
def test_rows_that_do_not_fit_are_computed_in_stages_of_their_own(dtype: str, size: int) -> None:
    """Weights with a factor of their own have no online softmax."""
    arguments = f"q: {dtype}[8, 1, 64], k: {dtype}[8, 64, {size}], v: {dtype}[8, {size}, 64], s: {dtype}[{size}]"
    text = f"""language 1
    model m({arguments}) -> {dtype}[8, 1, 64] {{
      return (softmax(q @ k) * s) @ v
    }}
    """
    assert schedules(text) == [("tile", "rows", "tile")]


def test_weights_that_are_used_twice_are_computed_as_a_whole() -> None:
    text = """model m(q: f32[T, 16], k: f32[S, 16], v: f32[S, 20]) -> w: f32[T, S], y: f32[T, 20] {
      w = softmax(q @ k.T)
      return w, w @ v
    }
    """
    assert not any("online softmax" in name for names in schedules(HEAD + text) for name in names)
