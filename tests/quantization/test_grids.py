"""Grids of quantized values, block-quantized types, and the options of their passes."""

from __future__ import annotations

import pytest
from nacre.dialect.types import BLOCKED, F32, I8, U8, DType, TensorType
from nacre.passes.quantization.codecs import Blocks
from nacre.passes.quantization.quantize_activations import QuantizeActivations
from nacre.passes.quantization.quantized_values import Grid


@pytest.mark.parametrize(("dtype", "zero"), [(I8, 0), (I8, -7), (U8, 128), (U8, 3)])
@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_grids_decode_their_encoding(scale: float, zero: int, dtype: DType) -> None:
    grid = Grid(scale, zero, dtype)
    assert grid.decode(zero) == 0 and grid.decode(zero + 3) == 3 * scale
    for code in (0, 1, 5, 100, 127):
        assert grid.encode(grid.decode(code)) == code


def test_blocks_lie_along_one_of_the_last_two_axes() -> None:
    (dtype,) = (dtype for dtype in BLOCKED if dtype.name == "q4[block 32]")
    size = 2 * dtype.block
    codec, cube = Blocks(dtype), TensorType(F32, (size, size, size))
    assert codec.holds(cube, (1,)) and codec.holds(cube, (2,))
    assert not codec.holds(cube, (0,)), "the first of three axes"
    assert not codec.holds(cube, ()) and not codec.holds(cube, (1, 2))
    assert not codec.holds(TensorType(F32, (size, size + 1)), (1,)), "part of a block"


def test_ranges_have_two_bounds() -> None:
    QuantizeActivations(ranges=("x:-1:1", "a:b:0:2"))
    for wrong in ("x", "x:1", "x:low:1"):
        with pytest.raises(ValueError):
            QuantizeActivations(ranges=(wrong,))
