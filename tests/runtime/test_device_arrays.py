"""Tensors of a device as other libraries describe them: only dense, row-major ones are taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nacre.runtime.device_arrays import _from_interface
from nacre.runtime.library import ArgumentError


def described(strides: Any, shape: tuple[int, ...] = (2, 3, 5), dtype: str = "<f2") -> Any:
    return {"shape": shape, "typestr": dtype, "strides": strides, "data": (4096, False), "version": 3}


@pytest.mark.parametrize(
    ("shape", "dtype", "strides"),
    [((2, 3, 5), "<f2", (30, 10, 2)), ((2, 3, 5), "<f8", (120, 40, 8)), ((7,), "<i4", (4,)), ((), "<f4", ())],
)
def test_dense_tensors(shape: tuple[int, ...], dtype: str, strides: tuple[int, ...]) -> None:
    for given in (None, strides):
        made = _from_interface(described(given, shape, dtype))
        assert (made.shape, made.dtype) == (shape, np.dtype(dtype))


@pytest.mark.parametrize("strides", [(2, 4, 12), (10, 30, 2), (30, 2, 6), (30, 10, 4), (30, 20, 2), (60, 10, 2)])
def test_other_strides_are_refused(strides: tuple[int, ...]) -> None:
    """Also those of a tensor whose axes are exchanged, or permuted in a cycle."""
    with pytest.raises(ArgumentError, match="dense and row-major"):
        _from_interface(described(strides))


@pytest.mark.parametrize("strides", [(2, 10, 2), (30, 2, 2), (0, 10, 2), (30, 10, 2)])
def test_strides_of_axes_with_one_element(strides: tuple[int, ...]) -> None:
    shape = (1, 3, 5) if strides[1] == 10 else (2, 1, 15)
    assert _from_interface(described(strides, shape)).shape == shape
