"""Values in blocks: what the codec keeps of numbers, and that the planes of code are those of the references."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from nacre.dialect.graph import Function, Module, Parameter, Value
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.ops.support.block_codes import code_range
from nacre.dialect.ops.support.block_planes import Planes, dequantize_planes, quantize_planes
from nacre.dialect.types import BLOCKED, F16, F32, Array, DType, TensorType, dtype_of

in_blocks = pytest.mark.parametrize("dtype", BLOCKED, ids=str)


def quantize(x: Array, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        return OPERATORS["quantize_blocks"].reference(x, dtype)


def dequantize(q: Array, dtype: DType = F32) -> Array:
    return OPERATORS["dequantize_blocks"].reference(q, dtype)


def no_parameter(parameter: Parameter) -> Array:
    raise AssertionError(parameter)


def examples(dtype: DType) -> list[Array]:
    """Numbers of many sizes, one-sided blocks, zeros, one row and none, what f16 cannot hold, and no numbers."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((5, 2 * dtype.block)).astype(np.float32)
    sizes = x * np.float32(10.0) ** rng.integers(-9, 7, (5, 1)).astype(np.float32)
    special = x.copy()
    special[0, :6] = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45]
    special[1, ::7], special[2, 3], special[3] = np.nan, np.inf, 0.0
    return [x, sizes, np.abs(x) + 1, special, x[:1, : dtype.block], x[:0], np.zeros((3, 0), np.float32)]


@in_blocks
def test_bytes_of_a_type_are_those_of_its_array(dtype: DType) -> None:
    x = np.ones((3, 4, 2 * dtype.block), np.float32)
    type, stored = TensorType(dtype, x.shape), quantize(x, dtype)
    assert stored.shape == type.stored_shape == (3, 4, 2) and stored.nbytes == type.bytes
    assert dtype_of(stored) == dtype
    assert dtype.bytes == 2 + dtype.has_zero + dtype.block * dtype.bits // 8


@in_blocks
def test_no_number_is_farther_off_than_its_block_allows(dtype: DType) -> None:
    x = examples(dtype)[0]
    stored = quantize(x, dtype)
    error = np.abs(dequantize(stored) - x).reshape(*stored.shape, dtype.block)
    step = np.abs(stored["scale"].astype(np.float32))[..., None]
    # Half a step, and what rounding the scale makes of the largest code. Of codes without a zero point from -8 to 7,
    # the far end of the shorter side is cut off, as it is of tables.
    least, most = code_range(dtype)
    values = sorted(set(dtype.table)) or [0, 1]
    half = max(high - low for low, high in pairwise(values)) / 2
    cut = (-least - most) if dtype.table else 0.5 if dtype.has_zero or dtype.bits == 4 else 0.0
    allowed = max(half, cut) if dtype.table else half + cut
    allowed += max(-least, most) * dtype.scale.epsilon / 2
    assert (error <= step * (allowed + 1e-3)).all()
    assert (error > 0.8 * half * step).any(), "the codes are finer than they say"


@in_blocks
def test_representable_values_are_exact(dtype: DType) -> None:
    low, high = (0, 15) if dtype.has_zero else code_range(dtype)
    values = dtype.table or tuple(range(low, high + 1))
    codes = np.resize(np.array(values), (2, dtype.block)).astype(np.float32)
    if dtype.bits == 4:
        assert np.array_equal(dequantize(quantize(codes * 0.25, dtype)), codes * 0.25)
    extreme = np.zeros((1, dtype.block), np.float32)
    extreme[0, 5] = -8.0
    rounded = dtype.scale.epsilon
    assert dequantize(quantize(extreme, dtype))[0, 5] == pytest.approx(-8.0, rel=rounded)
    assert dequantize(quantize(-extreme, dtype))[0, 5] == pytest.approx(8.0, rel=rounded)


@in_blocks
def test_no_numbers_are_zero_and_infinities_saturate(dtype: DType) -> None:
    x = examples(dtype)[3]
    result = dequantize(quantize(x, dtype))
    assert np.isfinite(result).all() and (result[3] == 0).all()
    scales = np.repeat(np.abs(quantize(x, dtype)["scale"].astype(np.float32)), dtype.block, -1)
    least = 0 if 0 in (dtype.table or (0,)) else 1
    assert (np.abs(result[1, ::7]) == least * scales[1, ::7]).all() and abs(result[0, 0]) == least * scales[0, 0]
    assert result[0, 1] > 4e5 and result[0, 2] < -4e5


@in_blocks
def test_planes_are_those_of_the_references(dtype: DType) -> None:
    for x in examples(dtype):
        value = Value("x", TensorType(F32, x.shape))
        b = Builder(OPERATORS)
        planes = quantize_planes(b, value, dtype)
        results = [planes.codes, planes.scales, *([planes.zeros] if planes.zeros is not None else [])]
        results += [dequantize_planes(b, planes, F32), dequantize_planes(b, planes, F16)]
        function = Function("f", (value,), tuple(b.nodes), tuple(results))
        with np.errstate(all="ignore"):
            found = Interpreter(Module("m", (), (), (function,)), no_parameter).run(function, (x,))
            stored = quantize(x, dtype)
            names = ["block_codes", "block_scales", *(["block_zeros"] if dtype.has_zero else [])]
            expected = [OPERATORS[name].reference(stored) for name in names]
            expected += [dequantize(stored), dequantize(stored, F16)]
            joined = OPERATORS["join_blocks"].reference(*expected[: len(names)], dtype=dtype)
            np.testing.assert_array_equal(joined, stored)
        for actual, wanted in zip(found, expected, strict=True):
            assert actual.dtype == wanted.dtype
            np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize("dtype", [dtype for dtype in BLOCKED if dtype.table], ids=str)
def test_every_index_is_its_value_in_the_table(dtype: DType) -> None:
    """All pairs of halves of a byte, with scales of many sizes, zero, denormal ones and the largest one."""
    pairs = np.arange(256, dtype=np.uint8).reshape(-1, dtype.block // 2)
    stored = np.empty((9, len(pairs)), dtype.numpy)
    stored[dtype.numpy.names[-1]] = pairs
    format = dtype.scale.float_format
    least = 2.0 ** (1 - format.bias - format.fraction)
    scales = np.array([1, -0.25, 3e-3, 77, 0, least, -3 * least, 2.0 ** -(format.bias - 1), format.largest])
    scales = scales.astype(dtype.scale.numpy)
    stored["scale"] = scales[:, None]
    low, high = (np.array(dtype.table)[part] for part in (pairs & 15, pairs >> 4))
    values = np.concatenate([low, high], -1).astype(np.float32)
    with np.errstate(over="ignore"):
        expected = values * scales.astype(np.float32)[:, None, None]
        results = dequantize(stored), planes_of(stored, dtype)
    for result in results:
        np.testing.assert_array_equal(result, expected.reshape(result.shape))


def planes_of(stored: Array, dtype: DType) -> Array:
    """Returns the numbers that the planes of a stored tensor represent, computed by a graph."""
    type = TensorType(dtype, (*stored.shape[:-1], stored.shape[-1] * dtype.block))
    arrays = [OPERATORS[name].reference(stored) for name in ("block_codes", "block_scales")]
    planes = tuple(Value(f"v{n}", TensorType(dtype_of(array), array.shape)) for n, array in enumerate(arrays))
    b = Builder(OPERATORS)
    numbers = dequantize_planes(b, Planes(type, *planes), F32)
    function = Function("f", planes, tuple(b.nodes), (numbers,))
    with np.errstate(over="ignore"):
        (found,) = Interpreter(Module("m", (), (), (function,)), no_parameter).run(function, arrays)
    return found
