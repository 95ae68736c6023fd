"""Numbers in floats of 8 bits: every code, every boundary between two, and whatever bits there are; and numbers that a
conversion to integers would change."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from nacre.dialect.ops.support.conversion import cast_array, first_changed
from nacre.dialect.types import BF16, BOOL, F8E4M3, F8E5M2, F16, F32, F64, I32, I64, STORAGE, U8, Array, DType, dtype_of

with_dtype = pytest.mark.parametrize("dtype", STORAGE, ids=str)


def all_codes(dtype: DType) -> Array:
    return np.arange(256, dtype=np.uint8).view(dtype.numpy)


def numbers(dtype: DType) -> Array:
    """The finite ones in order, in float64."""
    wide = all_codes(dtype).astype(np.float64)
    return np.unique(wide[np.isfinite(wide)])


@pytest.mark.parametrize("dtype", (*STORAGE, F16, BF16, F32, F64), ids=str)
def test_formats_are_as_they_say(dtype: DType) -> None:
    info = ml_dtypes.finfo(dtype.numpy)
    format = dtype.float_format
    assert (format.largest, dtype.epsilon) == (float(info.max), float(info.eps))
    assert 2.0 ** (1 - format.bias) == float(info.smallest_normal)
    # What is beyond the greatest number is an infinity, where there are any.
    with np.errstate(over="ignore", invalid="ignore"):
        beyond = np.asarray(np.inf).astype(dtype.numpy).astype(np.float64)
    assert np.isnan(beyond) if format.finite else np.isinf(beyond)


def test_codes_are_those_of_the_standard() -> None:
    four, five = all_codes(F8E4M3).astype(np.float64), all_codes(F8E5M2).astype(np.float64)
    assert np.isnan(four[[0x7F, 0xFF]]).all() and np.isfinite(np.delete(four, [0x7F, 0xFF])).all()
    assert (four[0x7E], four[0x01], four[0x38], four[0x88]) == (448.0, 2.0**-9, 1.0, -(2.0**-6))
    assert np.array_equal(np.flatnonzero(np.isinf(five)), [0x7C, 0xFC])
    assert np.isnan(five[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]]).all()
    assert (five[0x7B], five[0x01], five[0x3C]) == (57344.0, 2.0**-16, 1.0)


@with_dtype
@pytest.mark.parametrize("target", (F16, BF16, F32, F64), ids=str)
def test_every_code_comes_back(dtype: DType, target: DType) -> None:
    codes = all_codes(dtype)
    wide = cast_array(codes, target)
    kept = np.isfinite(wide.astype(np.float64))
    assert np.array_equal(wide.astype(np.float64), codes.astype(np.float64), equal_nan=True)
    assert np.array_equal(cast_array(wide, dtype)[kept].view(np.uint8), codes[kept].view(np.uint8))


@with_dtype
@pytest.mark.parametrize("source", (F32, F64), ids=str)
def test_boundaries_are_rounded_once_and_to_even(dtype: DType, source: DType) -> None:
    """Halfway between neighbours, and next to that on either side, in the dtype that is rounded."""
    known = numbers(dtype)
    below, above = known[:-1], known[1:]
    middle = ((below + above) / 2).astype(source.numpy)
    bits = cast_array(below, dtype).view(np.uint8)
    even = np.where(bits & 1 == 0, below, above)
    for direction, expected in ((-np.inf, below), (np.inf, above), (None, even)):
        x = middle if direction is None else np.nextafter(middle, source.numpy.type(direction))
        assert np.array_equal(cast_array(x, dtype).astype(np.float64), expected), direction


@with_dtype
def test_any_bits_are_rounded_as_ml_dtypes_does(dtype: DType) -> None:
    """ml_dtypes lets what is too large overflow, where we saturate."""
    x = np.random.default_rng(0).integers(0, 1 << 32, 100_000, np.uint32).view(np.float32)
    with np.errstate(invalid="ignore"):
        # Most bits are far outside of the range.
        x = np.concatenate([x, np.ldexp(np.frexp(x)[0], np.random.default_rng(1).integers(-20, 20, x.size))])
        clipped = np.clip(x, -dtype.float_format.largest, dtype.float_format.largest)
        expected = clipped.astype(dtype.numpy).astype(np.float64)
    assert np.isnan(x).any()
    assert np.array_equal(cast_array(x, dtype).astype(np.float64), expected, equal_nan=True)


@with_dtype
def test_large_numbers_saturate(dtype: DType) -> None:
    largest = dtype.float_format.largest
    for source in (F16, BF16, F32, F64):
        with np.errstate(over="ignore"):
            x = np.asarray([np.inf, -np.inf, np.nan, 3e38, -65504.0]).astype(source.numpy)
        expected = [largest, -largest, np.nan, largest, -largest]
        assert np.array_equal(cast_array(x, dtype).astype(np.float64), expected, equal_nan=True)
    whole = np.asarray([0, 1, -3, 449, 57345, 1 << 62, -(1 << 62)], np.int64)
    assert dtype_of(whole) is I64
    assert np.array_equal(cast_array(whole, dtype), cast_array(whole.astype(np.float64), dtype))


def test_of_f64_nothing_is_lost_on_the_way() -> None:
    # By way of f32 it would be halfway, which is even below.
    x = np.asarray([1.0625 + 2.0**-40, 1.1875 - 2.0**-40, 2.0**-10 + 2.0**-60])
    assert np.array_equal(cast_array(x, F8E4M3).astype(np.float64), [1.125, 1.125, 2.0**-9])


@pytest.mark.parametrize(
    ("array", "dtype", "index"),
    [
        (np.array([[1, 2], [300, 400]], np.int64), U8, (1, 0)),
        (np.array([0, -1], np.int8), U8, (1,)),
        (np.array([2**63 - 1, 2**63], np.uint64), I64, (1,)),
        (np.array([0, 255], np.uint8), I64, None),
        (np.zeros((0, 3), np.int64), U8, None),
        (np.array([1, 0, 2], np.int32), BOOL, (2,)),
        (np.array([-(2.0**63), 2.0**63]), I64, (1,)),
        (np.array([1.0, np.nan], np.float32), I32, (1,)),
        (np.array(0.5), I32, ()),
    ],
)
def test_first_number_that_a_conversion_changes(array: Array, dtype: DType, index: tuple[int, ...] | None) -> None:
    assert first_changed(array, dtype) == index
