"""Symbolic sizes: arithmetic agrees with integers, text reads back, bounds hold, and equal sizes are equal values."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from nacre.dialect import dims
from nacre.dialect.dims import DimError, Poly, Size, Symbol, static_size
from property_tests import given

DIMS = {"B": Symbol("B", 1, 64), "T": Symbol("T", 8, 512, multiple=8), "H": Symbol("H", 0, 99)}
VALUES = st.fixed_dictionaries(
    {"B": st.integers(1, 64), "T": st.integers(1, 64).map(lambda u: 8 * u), "H": st.integers(0, 99)}
)

Pair = tuple[Size, Callable[[dict[str, int]], int]]


def _symbol(name: str) -> Pair:
    return DIMS[name].size, lambda values: values[name]


def _constant(value: int) -> Pair:
    return value, lambda values: value


def _combine(operator: str, left: Pair, right: Pair) -> Pair:
    table: dict[str, tuple[Callable[[Size, Size], Size], Callable[[int, int], int]]] = {
        "+": (dims.add, lambda a, b: a + b),
        "*": (dims.multiply, lambda a, b: a * b),
        "-": (dims.subtract, lambda a, b: a - b),
        "min": (dims.minimum, min),
        "max": (dims.maximum, max),
    }
    symbolic, plain = table[operator]
    return symbolic(left[0], right[0]), lambda values: plain(left[1](values), right[1](values))


def _divide(left: Pair, divisor: int) -> Pair:
    return dims.floor_divide(left[0], divisor), lambda values: left[1](values) // divisor


SIZES = st.recursive(
    st.one_of(st.sampled_from(list(DIMS)).map(_symbol), st.integers(-9, 9).map(_constant)),
    lambda inner: st.one_of(
        st.builds(_combine, st.sampled_from(["+", "*", "-", "min", "max"]), inner, inner),
        st.builds(_divide, inner, st.integers(1, 16)),
    ),
    max_leaves=6,
)


@given(st.lists(SIZES, max_size=4))
def test_sums_and_differences_have_one_form(pairs: list[Pair]) -> None:
    added: Size = 0
    for size, _ in pairs:
        assert dims.subtract(added, size) == dims.add(added, dims.multiply(-1, size))
        added = dims.add(added, size)
    assert dims.total(size for size, _ in pairs) == added


@given(SIZES, VALUES)
def test_agrees_with_integers(pair: Pair, values: dict[str, int]) -> None:
    size, plain = pair
    assert dims.evaluate(size, values) == plain(values)


@given(SIZES, VALUES)
def test_bounds_hold(pair: Pair, values: dict[str, int]) -> None:
    low, high = dims.bounds(pair[0])
    assert low <= pair[1](values) <= high


@given(SIZES)
def test_text_reads_back(pair: Pair) -> None:
    assert dims.parse_size(str(pair[0]), DIMS) == pair[0]


@given(SIZES, SIZES, SIZES)
def test_equal_sizes_are_equal_values(a: Pair, b: Pair, c: Pair) -> None:
    left = dims.multiply(a[0], dims.add(b[0], c[0]))
    right = dims.add(dims.multiply(c[0], a[0]), dims.multiply(b[0], a[0]))
    assert left == right and hash(left) == hash(right) and str(left) == str(right)


@given(SIZES, SIZES)
def test_exact_division_undoes_multiplication(a: Pair, b: Pair) -> None:
    if b[0] != 0:
        assert dims.divide_exactly(dims.multiply(a[0], b[0]), b[0]) == a[0]


B, T, H = (DIMS[name].size for name in "BTH")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (4 * B * T + 1, "4*B*T + 1"),
        (T // 4, "2*(T//8)"),
        (T // 8 * 8, "T"),
        (T % 8, "0"),
        ((H + 2 - 3) // 2 + 1, "(H + 1)//2"),
        (B * T // T, "B"),
        (dims.minimum(T, 600), "T"),
        (dims.minimum(H, 4), "min(4, H)"),
        (B - B, "0"),
        (-H, "-H"),
    ],
)
def test_canonical_text(size: Size, text: str) -> None:
    assert str(size) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (dims.minimum(H, H // 3), "H//3"),
        (dims.minimum(H // 3 * 3, H), "3*(H//3)"),
        (dims.minimum(H - 3, H // 3 * 3), "H - 3"),
        (dims.maximum(B * (H // 3), B * H), "B*H"),
        (dims.minimum(B * (H // 3) + H // 3, B * H + H), "B*(H//3) + H//3"),
        (dims.maximum(dims.minimum(H, B), H), "H"),
        (dims.minimum(H // 2 + (H + 1) // 2, H + 1), "(H + 1)//2 + H//2"),
        (dims.minimum(H // 3, H // 2), "H//3"),
    ],
)
def test_extremes_of_related_sizes(size: Size, text: str) -> None:
    assert str(size) == text


def test_division_by_a_size_that_may_be_zero_is_refused() -> None:
    with pytest.raises(DimError, match="may be zero"):
        dims.floor_divide(T, H)


def test_multiple_is_a_promise() -> None:
    with pytest.raises(DimError, match="multiple of 8"):
        dims.evaluate(T, {"T": 12})


@pytest.mark.parametrize("text", ["", "B +", "B B", "(B", "Q", "1.5", "B // H", "min(B)", "*", "B)"])
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(DimError):
        dims.parse_size(text, DIMS)


def test_symbols_of_nested_atoms() -> None:
    size = dims.maximum((B * H) // 3, T)
    assert isinstance(size, Poly)
    assert {s.name for s in dims.symbols(size)} == {"B", "H", "T"}


def test_quotients_of_quotients_are_one() -> None:
    size = Symbol("S", 0, 1000).size
    for shift in (-3, 0, 1, 7):
        nested = dims.floor_divide(dims.add(dims.floor_divide(size, 160), shift), 2)
        assert nested == dims.floor_divide(dims.add(size, 160 * shift), 320)
        for value in (0, 159, 160, 161, 479, 480, 1000):
            assert dims.evaluate(nested, {"S": value}) == (value // 160 + shift) // 2


def test_sizes_of_another_process_are_found_in_tables() -> None:
    """Hashes of text differ between processes: a copy must not keep the hash of its original."""
    write = (
        "import pickle, sys; from nacre.dialect.dims import Symbol; size = Symbol('T', 1, 9).size // 4 + 3; hash(size);"
        "sys.stdout.buffer.write(pickle.dumps(size))"
    )
    size = Symbol("T", 1, 9).size // 4 + 3
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", write], env=environment, capture_output=True, check=True)
        assert pickle.loads(done.stdout) in {size: True}


def test_a_static_size_is_a_number() -> None:
    assert static_size(8) == 8
    assert static_size(dims.parse_size("B + 1 - B", DIMS)) == 1
    with pytest.raises(DimError, match=r"size `B \+ 1` depends on a dim"):
        static_size(dims.parse_size("B + 1", DIMS))
