"""Random numbers: an independent implementation of the generator, the distributions, and independence of threads."""

import nacre
import numpy as np
import pytest
from compiled import results
from nacre.compiler.readers.language.random_numbers import mixed

TEXT = """
dim N in 0..100000

model bits(x: f32[N], seed: i64) -> u32[N] { return random_bits(x.shape, seed) }
model uniform(x: f32[N], seed: i64) -> f32[N] { return random_uniform(x.shape, seed) }
model normal(x: f32[N], seed: i64) -> f32[N] { return random_normal(x.shape, seed) }
model wide(x: f32[N], seed: i64) -> f64[N] { return random_uniform(x.shape, seed, f64) }
model half(x: f32[N], seed: i64) -> f16[N] { return random_uniform(x.shape, seed, f16) }
"""
MASK = 2**64 - 1


def squares(index: int, key: int) -> int:
    """The generator with Python's integers, as its paper states it."""
    x = y = (index * key) & MASK
    z = (y + key) & MASK
    for addend in (y, z, y):
        x = (x * x + addend) & MASK
        x = (x >> 32) | (x << 32 & MASK)
    return (x * x + z & MASK) >> 32


@pytest.fixture(scope="module")
def models() -> list[nacre.Model]:
    return [nacre.compile(TEXT, opt_level=level) for level in (0, 2)]


@pytest.mark.parametrize("count", [0, 1, 77])
@pytest.mark.parametrize("seed", [0, 1, -5, 2**62])
def test_the_bits_are_those_of_the_generator(models: list[nacre.Model], count: int, seed: int) -> None:
    expected = np.array([squares(i, mixed(seed & MASK)) for i in range(count)], np.uint32)
    for model in models:
        np.testing.assert_array_equal(model.entries["bits"](np.zeros(count, np.float32), seed), expected)


def test_a_constant_seed_gives_the_same_numbers() -> None:
    text = "model m(seed: i64) -> u32[3, 5], u32[3, 5] { return random_bits((3, 5), 7), random_bits((3, 5), seed) }"
    known, given = results(text, np.int64(7))
    np.testing.assert_array_equal(known, given)


@pytest.mark.parametrize("entry", ["uniform", "wide", "half"])
def test_uniform_numbers_have_their_moments(models: list[nacre.Model], entry: str) -> None:
    x = np.zeros(100_000, np.float32)
    for model in models:
        numbers = model.entries[entry](x, 3).astype(np.float64)
        assert numbers.min() >= 0 and numbers.max() < 1
        # Four standard deviations of each statistic of n numbers.
        assert abs(numbers.mean() - 1 / 2) < 4 * np.sqrt(1 / 12 / x.size) + 2**-11 * (entry == "half")
        assert abs(numbers.var() - 1 / 12) < 4 * np.sqrt(1 / 180 / x.size) + 2**-11 * (entry == "half")
        other = model.entries[entry](x, 4).astype(np.float64)
        assert abs(np.corrcoef(numbers, other)[0, 1]) < 4 / np.sqrt(x.size)
        assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 4 / np.sqrt(x.size)


def test_normal_numbers_have_their_moments(models: list[nacre.Model]) -> None:
    x = np.zeros(100_000, np.float32)
    for model in models:
        numbers = model.entries["normal"](x, 3).astype(np.float64)
        assert np.isfinite(numbers).all()
        assert abs(numbers.mean()) < 4 / np.sqrt(x.size)
        assert abs(numbers.var() - 1) < 4 * np.sqrt(2 / x.size)
        assert abs((numbers**4).mean() - 3) < 4 * np.sqrt(96 / x.size)


def test_the_number_of_threads_changes_nothing() -> None:
    x = np.zeros(99_999, np.float32)
    one, two = (nacre.compile(TEXT, threads=count).entries["normal"](x, 11) for count in (1, 2))
    np.testing.assert_array_equal(one, two)
