"""`unique` against NumPy, and `multinomial` against the probabilities that it is given."""

import nacre
import numpy as np
import pytest
from compiled import results


@pytest.mark.parametrize("shape", [(0,), (1,), (31,), (3, 5)])
@pytest.mark.parametrize("dtype", ["f32", "i64"])
def test_unique(shape: tuple[int, ...], dtype: str) -> None:
    sizes = ", ".join(f"S{i}" for i in range(len(shape)))
    dims = "".join(f"dim S{i} in 0..64\n" for i in range(len(shape)))
    text = f"{dims}model m(x: {dtype}[{sizes}]) -> {dtype}[20], i64[{sizes}], i64[20], i64 {{\n"
    text += "  values, inverse, counts, number = unique(x, size=20)\n  return values, inverse, counts, number\n}\n"
    x = np.random.default_rng(3).integers(-4, 5, shape).astype({"f32": np.float32, "i64": np.int64}[dtype])
    values, inverse, counts, number = results(text, x)
    expected = np.unique(x, return_inverse=True, return_counts=True)
    assert number == len(expected[0])
    np.testing.assert_array_equal(values[:number], expected[0])
    np.testing.assert_array_equal(inverse, expected[1].reshape(shape))
    np.testing.assert_array_equal(counts[:number], expected[2])
    assert not values[number:].any() and not counts[number:].any()


def test_more_distinct_elements_than_stated_fail_the_call() -> None:
    text = "model m(x: i64[5]) -> i64[2], i64[5], i64[2], i64 { return unique(x, size=2) }"
    model = nacre.compile(text)
    assert model(np.array([4, 4, 1, 1, 4])).result3 == 2
    with pytest.raises(nacre.NacreError, match="index 2"):
        model(np.arange(5))
    dropped = nacre.compile(text.replace("size=2", 'size=2, mode="drop"'))(np.array([3, 1, 2, 1, 3]))
    assert list(dropped[0]) == [1, 2] and list(dropped[2]) == [2, 1] and dropped[3] == 3


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_draws_with_replacement_have_the_probabilities(dtype: str) -> None:
    text = f"model m(p: {dtype}[2, 5], seed: i64) -> i64[2, 20000] {{ return multinomial(p, 20000, seed) }}"
    p = np.array([[1, 0, 3, 4, 0], [0, 0, 0, 7, 0]], {"f32": np.float32, "f64": np.float64}[dtype])
    drawn = results(text, p, np.asarray(5))
    shares = np.stack([np.bincount(row, minlength=5) / 20000 for row in drawn])
    # Four standard deviations of a share of 20000 draws are 0.014.
    np.testing.assert_allclose(shares, p / p.sum(-1, keepdims=True), atol=0.014)
    assert not shares[p == 0].any()
    assert not np.array_equal(drawn[0], results(text, p, np.asarray(6))[0])


def test_draws_without_replacement_are_distinct() -> None:
    text = "model m(p: f32[3000, 4], seed: i64) -> i64[3000, 2] { return multinomial(p, 2, seed, replacement=false) }"
    drawn = results(text, np.tile(np.array([6, 1, 0, 3], np.float32), (3000, 1)), np.asarray(1))
    assert (drawn[:, 0] != drawn[:, 1]).all() and not (drawn == 2).any()
    first = np.bincount(drawn[:, 0], minlength=4) / 3000
    np.testing.assert_allclose(first, [0.6, 0.1, 0, 0.3], atol=0.036)
    # The second of 0 and 3, after the other: 6 / 10 * 3 / 4 + 3 / 10 * 6 / 7.
    both = np.isin(drawn, [0, 3]).all(axis=1).mean()
    np.testing.assert_allclose(both, 0.6 * 3 / 4 + 0.3 * 6 / 7, atol=0.036)


def test_wrong_arguments_are_reported() -> None:
    def code(call: str) -> str:
        (found,) = nacre.check(f"model m(p: f32[4]) -> i64[9] {{ return {call} }}")
        return found.code

    assert code("multinomial(p, 9, 1, replacement=false)") == "bad-attribute"
    assert code("multinomial(p > 0, 9, 1)") == "not-a-tensor"
    assert code("multinomial(p, 9, 1.5)") == "bad-attribute"
    assert code("unique(p > 0, 9)[1]") == "not-a-tensor"
