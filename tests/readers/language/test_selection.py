"""`nonzero`, `masked_select` and `where` of numbers against NumPy."""

import nacre
import numpy as np
import pytest
from compiled import results


@pytest.mark.parametrize("length", [0, 1, 5, 33])
def test_nonzero_of_a_vector(length: int) -> None:
    text = "dim N in 0..64\nmodel m(x: f32[N]) -> i64[40], i64 { return nonzero(x > 0, size=40) }"
    x = np.random.default_rng(length).normal(size=length).astype(np.float32)
    indices, count = results(text, x)
    (expected,) = np.nonzero(x > 0)
    assert count == len(expected)
    np.testing.assert_array_equal(indices[:count], expected)
    assert not indices[count:].any()


@pytest.mark.parametrize("length", [0, 1, 7])
def test_nonzero_of_a_matrix(length: int) -> None:
    text = "dim N in 0..64\nmodel m(x: i32[N, 3]) -> i64[3*N, 2], i64 { return nonzero(x, size=3*N) }"
    x = np.random.default_rng(length).integers(0, 2, size=(length, 3)).astype(np.int32)
    indices, count = results(text, x)
    np.testing.assert_array_equal(indices[:count], np.stack(np.nonzero(x), axis=1))


@pytest.mark.parametrize("length", [0, 1, 9])
def test_masked_select(length: int) -> None:
    text = "dim N in 0..64\nmodel m(x: f32[N, 2, 3], mask: bool[N, 2]) -> f32[2*N, 3], i64 {\n"
    text += "  values, count = masked_select(x, mask, size=2*N)\n  return values, count\n}\n"
    rng = np.random.default_rng(length)
    x, mask = rng.normal(size=(length, 2, 3)).astype(np.float32), rng.integers(0, 2, size=(length, 2)) == 1
    values, count = results(text, x, mask)
    np.testing.assert_array_equal(values[:count], x[mask])
    assert count == mask.sum() and not values[count:].any()


def test_more_elements_than_stated_fail_the_call() -> None:
    text = "model m(x: f32[5]) -> i64[2], i64 { return nonzero(x, size=2) }"
    for level in (0, 2):
        model = nacre.compile(text, opt_level=level)
        assert model(np.array([0, 1, 0, 1, 0], np.float32)).result1 == 2
        with pytest.raises(nacre.NacreError, match="index 3"):
            model(np.ones(5, np.float32))
    dropped = text.replace("size=2", 'size=2, mode="drop"')
    indices, count = results(dropped, np.ones(5, np.float32))
    assert list(indices) == [0, 1] and count == 5


def test_where_of_two_numbers() -> None:
    text = "model m(x: f32[3]) -> f32[3], i64[3], bool[3] {\n"
    text += "  return where(x > 0, 1.0, 0), where(x > 0, 1, -1), where(x > 0, false, true)\n}\n"
    x = np.array([-1, 0, 2], np.float32)
    first, second, third = results(text, x)
    np.testing.assert_array_equal(first, [0, 0, 1])
    np.testing.assert_array_equal(second, [-1, -1, 1])
    np.testing.assert_array_equal(third, [True, True, False])
