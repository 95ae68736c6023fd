"""Attention in f64, f16 and bf16: blocks of rows between its products, masks that bound them, and stretches of keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import nacre
import numpy as np
import numpy.typing as npt
import pytest
from codegen.test_bounded_rows import MASKS, model, numbers, schedules
from codegen.test_own_lengths import AFTER, GIVEN, LISTED
from nacre.compiler.base.environment import CHECK_PASSES
from nacre.compiler.codegen.tiler.online_softmax import STRETCH
from nacre.runtime.loader import Model

Array = npt.NDArray[np.generic]
Doubles = npt.NDArray[np.float64]

DTYPES = {"f64": np.dtype(np.float64), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
KEYS = {"whole": 300, "online": 33333}
"""The bound of keys by the schedule: up to the first, blocks of whole rows have as many rows as those of stretches.
Rows of short floats are whole with `strict`, which rounds weights."""
FINITE = {"-1e9": "-6e4", "-3.4e38": "-6e4"}
"""Finite numbers of masks, and those that f16 and bf16 hold."""
PLAIN = """model plain(q: f32[2, T, 16], k: f32[2, S, 16], v: f32[2, S, 20]) -> f32[2, T, 20] {
  return softmax(q @ k.mT * 0.25) @ v
}
model masked(q: f32[2, T, 16], k: f32[2, S, 16], v: f32[2, S, 20], m: f32[T, S]) -> f32[2, T, 20] {
  return softmax(q @ k.mT * 0.25 + m) @ v
}
model single(q: f32[2, 1, 16], k: f32[2, 16, S], v: f32[2, S, 20], n: i64) -> f32[2, 1, 20] {
  return cached_attention(q, k.mT, v, n)
}
"""
MASKED = "".join(model(name, mask.scores.replace("low", mask.low), "T", "S") for name, mask in MASKS.items())
MASKED += model("given", "where(keep, score, low)", "T", "S", ", keep: bool[T, S], low: f32")
LENGTHS = "".join(
    form.format(name=name, type="f32", low="-inf") for name, form in (("after", AFTER), ("listed", LISTED))
)
LENGTHS += GIVEN.replace("model given", "model by_length")


def is_strict(dtype: str, bound: str) -> bool:
    return bound == "whole" and dtype != "f64"


def text(dtype: str, bound: str) -> str:
    masked = MASKED
    for number, other in FINITE.items() if dtype != "f64" else ():
        masked = masked.replace(number, other)
    head = f"language 1\ndim T in 1..999\ndim S in 0..{KEYS[bound]}\n"
    return head + (PLAIN + masked + LENGTHS).replace("f32", dtype)


@pytest.fixture(scope="module", params=[(dtype, bound) for dtype in DTYPES for bound in KEYS], ids="-".join)
def loaded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str, Sequence[Model]]:
    dtype, bound = request.param
    path = tmp_path_factory.mktemp("attention") / "model.so"
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(CHECK_PASSES, raising=False)
        nacre.compile(text(dtype, bound), path, strict=is_strict(dtype, bound))
    return dtype, bound, [nacre.load(path, threads=threads) for threads in (1, 2)]


def attend(q: Array, k: Array, v: Array, mask: Array | None, *, is_operator: bool = False) -> Doubles:
    """Returns the attention of scores that are rounded as the model's operators round them; weights are exact, and so
    are the scores of the operator."""
    dtype, accumulated = q.dtype, np.promote_types(q.dtype, np.float64 if is_operator else np.float32)
    scored = accumulated if is_operator else dtype
    scores = (q.astype(accumulated) @ k.astype(accumulated).swapaxes(-1, -2)).astype(scored)
    scores = (scores * scored.type(q.shape[-1] ** -0.5)).astype(scored)
    if mask is not None:
        scores = (scores + mask).astype(scored)
    exact = scores.astype(np.float64)
    weights = np.exp(exact - exact.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v.astype(np.float64))


def wide(result: object) -> Doubles:
    return np.asarray(result).astype(np.float64)


def rounding(dtype: str) -> float:
    return float(ml_dtypes.finfo(DTYPES[dtype]).eps) / 2


SIZES = ((1, 1), (7, 5), (8, STRETCH), (65, STRETCH + 1), (129, 2 * STRETCH + 31))


def test_numbers(loaded: tuple[str, str, Sequence[Model]]) -> None:
    """Weights are not rounded to the dtype: results err by their own rounding, beside that of a score."""
    dtype, bound, artifacts = loaded
    step = rounding(dtype)
    for rows, keys in ((rows, min(keys, KEYS[bound])) for rows, keys in SIZES):
        rng = np.random.default_rng(rows)
        q, k, v, m = (
            rng.standard_normal(shape).astype(DTYPES[dtype])
            for shape in ((2, rows, 16), (2, keys, 16), (2, keys, 20), (rows, keys))
        )
        m[rows // 2, : keys - 1] = -np.inf
        for name, arrays, mask in (("plain", (q, k, v), None), ("masked", (q, k, v, m), m)):
            one, two = (wide(each.entries[name](*arrays)) for each in artifacts)
            np.testing.assert_array_equal(one, two)
            expected = attend(q, k, v, mask)
            # The sum of scores may be rounded to the neighbour of the number that NumPy's order gives.
            close = {"rtol": 2 * step, "atol": 2 * step if dtype != "f64" else 16 * step}
            np.testing.assert_allclose(one, expected, **close, err_msg=f"{name} {bound} {rows}")


def test_a_single_row(loaded: tuple[str, str, Sequence[Model]]) -> None:
    dtype, _, artifacts = loaded
    step = rounding(dtype)
    for keys, n in ((1, 1), (290, 7), (290, 3), (290, 289), (290, 0), (0, 0)):
        rng = np.random.default_rng(keys + n)
        shapes = (2, 1, 16), (2, keys, 16), (2, keys, 20)
        q, k, v = (rng.standard_normal(shape).astype(DTYPES[dtype]) for shape in shapes)
        expected = attend(q, k[:, :n], v[:, :n], None, is_operator=True) if n else np.zeros((2, 1, 20))
        k[:, n:], v[:, n:] = np.nan, np.nan
        result = wide(artifacts[0].entries["single"](q, np.ascontiguousarray(k.swapaxes(1, 2)), v, np.asarray(n)))
        np.testing.assert_allclose(result, expected, rtol=2 * step, atol=4 * step)


@pytest.mark.parametrize("name", MASKS)
def test_bits_are_those_of_a_mask_that_is_an_argument(loaded: tuple[str, str, Sequence[Model]], name: str) -> None:
    dtype, bound, artifacts = loaded
    low = FINITE.get(MASKS[name].low, MASKS[name].low) if dtype != "f64" else MASKS[name].low
    for rows, keys in ((448, 300), (5, 290), (448, 512), (300, 900), (5, 384)):
        if keys > KEYS[bound]:
            continue
        keep = MASKS[name].keep(*np.ogrid[:rows, :keys])
        for kind, arrays in numbers(rows, keys).items():
            with np.errstate(over="ignore"):
                cast = [each.astype(DTYPES[dtype]) for each in arrays]
                given = np.asarray(low, np.float64).astype(DTYPES[dtype])
            expected = wide(artifacts[0].entries["given"](*cast, keep, given))
            for each in artifacts:
                actual = wide(each.entries[name](*cast))
                np.testing.assert_array_equal(actual, expected, err_msg=f"{kind} numbers, {rows} by {keys}")


def test_lengths(loaded: tuple[str, str, Sequence[Model]]) -> None:
    """The keys and values behind a length are never read, and rows end at lengths of their own."""
    dtype, bound, artifacts = loaded
    low = np.asarray(-np.inf, DTYPES[dtype])
    for rows, size in ((1, 300), (7, 257), (33, min(600, KEYS[bound])), (200, min(900, KEYS[bound])), (3, 0)):
        rng = np.random.default_rng(rows + size)
        q, k, v = (
            rng.standard_normal(shape).astype(DTYPES[dtype]) for shape in ((2, rows, 16), (2, 16, size), (2, size, 20))
        )
        for at in sorted({0, 63, size // 2, max(0, size - rows)}):
            n = min(at + rows, size)
            ends = at + np.arange(rows) + 1
            keep = np.arange(size) < ends[:, None]
            whole = [each.copy() for each in (k, v)]
            whole[0][:, :, n:], whole[1][:, n:] = 0, 0
            expected = wide(artifacts[0].entries["by_length"](q, *whole, keep, np.asarray(n), low))
            k[:, :, n:], v[:, n:] = np.nan, np.nan
            for each in artifacts:
                for found in (
                    each.entries["after"](q, k, v, np.asarray(at)),
                    each.entries["listed"](q, k, v, ends[None], np.asarray(n)),
                ):
                    np.testing.assert_array_equal(wide(found), expected, err_msg=f"{rows} rows of {size} at {at}")
            k[:, :, n:], v[:, n:] = 1, 1


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("keys", [5, 700])
def test_scores_of_the_operator_are_not_rounded(level: int, keys: int, tmp_path: Path) -> None:
    """The products of queries and keys in f16 are beyond its range before they are scaled."""
    arguments = f"q: f16[2, 9, 36], k: f16[2, {keys}, 36], v: f16[2, {keys}, 20]"
    source = f"""language 1
    model whole({arguments}) -> f16[2, 9, 20] {{ return attention(q, k, v) }}
    model cached({arguments}, n: i64) -> f16[2, 9, 20] {{ return cached_attention(q, k, v, n) }}
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv(CHECK_PASSES, raising=False)
        loaded = nacre.compile(source, tmp_path / "model.so", opt_level=level)
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((2, n, w)).astype(np.float16) for n, w in ((9, 36), (keys, 36), (keys, 20)))
    q, k = (each + np.float16(50) for each in (q, k))
    assert (q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2)).min() > 65504
    expected = attend(q, k, v, None, is_operator=True)
    for result in (loaded.entries["whole"](q, k, v), loaded.entries["cached"](q, k, v, np.asarray(keys))):
        # Scores of 15,000 have errors of 1e-3 in f32.
        np.testing.assert_allclose(wide(result), expected, rtol=2**-9, atol=0.01)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("bound", "kind"), [("whole", ""), ("online", ", online softmax")])
def test_schedules(dtype: str, bound: str, kind: str) -> None:
    expected = Counter({f"rows{kind}": 3, f"bounded rows{kind}": len(MASKS), f"own lengths{kind}": 1})
    expected[f"bounded rows{kind}"] += 1  # `by_length`
    # A single row of scores fits on the stack, unless it is in f64.
    expected[f"bounded rows{kind}" if dtype == "f64" else "bounded rows"] += 1
    expected["rows"] += 1  # the check of a length
    found = schedules(text(dtype, bound), strict=is_strict(dtype, bound))
    count = Counter(name for names in found for name in names)
    assert count - Counter({"map": count["map"]}) == expected


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_weights_of_whole_rows_are_not_rounded(dtype: str) -> None:
    """The product of rounded weights would widen them in each step, so rows of them are in stretches of any number of
    keys; a single row stays whole."""
    online = [name for names in schedules(text(dtype, "whole")) for name in names if name.endswith("online softmax")]
    assert len(online) == len(MASKS) + 5, online
