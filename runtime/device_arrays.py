"""Tensors of other libraries in the memory of a GPU, as arrays that name this memory and never read it.

A tensor is taken through `__cuda_array_interface__`, or through DLPack. Both must be dense: nothing is copied here.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import numpy as np

from .library import ArgumentError

_CUDA = (2, 13)
"""DLPack's numbers of memory on a GPU, and of memory that all devices share."""
_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}


class DeviceArray(np.ndarray[tuple[int, ...], np.dtype[np.generic]]):
    """An array whose address is that of a device: its elements must not be touched by the host."""

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)})"


class _Tensor(ctypes.Structure):
    """The struct `DLTensor` of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("kind", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


def is_on_device(value: object) -> bool:
    """Returns whether a tensor is in the memory of a GPU."""
    if getattr(value, "__cuda_array_interface__", None) is not None:
        return True
    where: Callable[[], tuple[int, int]] | None = getattr(value, "__dlpack_device__", None)
    return where is not None and where()[0] in _CUDA


def view_on_device(value: object) -> DeviceArray:
    """Returns a tensor as an array that names its memory. Raises ArgumentError."""
    found = getattr(value, "__cuda_array_interface__", None)
    return _from_dlpack(value) if found is None else _from_interface(found)


def _from_interface(found: dict[str, object]) -> DeviceArray:
    """https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html"""
    shape, dtype = found["shape"], np.dtype(str(found["typestr"]))
    assert isinstance(shape, tuple)
    strides = found.get("strides")
    if not _is_dense(shape, strides, dtype.itemsize):
        raise ArgumentError("a tensor on a GPU that is not dense and row-major")
    if found.get("mask") is not None:
        raise ArgumentError("a tensor with a mask")
    data = found["data"]
    assert isinstance(data, tuple)
    made = _name_memory(int(data[0] or 0), shape, dtype)
    made.flags.writeable = not data[1]
    return made


def _from_dlpack(value: object) -> DeviceArray:
    """https://dmlc.github.io/dlpack/latest/c_api.html"""
    capsule = value.__dlpack__()  # type: ignore[attr-defined]  # `is_on_device` found its other function
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _Tensor.from_address(read(capsule, b"dltensor") or 0)
    shape = tuple(tensor.shape[axis] for axis in range(tensor.rank))
    if tensor.kind not in _KINDS or tensor.lanes != 1:
        raise ArgumentError("a tensor of a dtype that numpy lacks")
    dtype = np.dtype(f"{_KINDS[tensor.kind]}{tensor.bits // 8}")
    strides = tuple(tensor.strides[axis] * dtype.itemsize for axis in range(tensor.rank)) if tensor.strides else None
    if not _is_dense(shape, strides, dtype.itemsize):
        raise ArgumentError("a tensor on a GPU that is not dense and row-major")
    return _name_memory((tensor.data or 0) + tensor.offset, shape, dtype)


def _is_dense(shape: tuple[int, ...], strides: object, size: int) -> bool:
    """Returns whether elements of `size` bytes are dense and row-major. The stride of an axis with one element is any
    number: PyTorch writes 1 for DLPack."""
    if strides is None or 0 in shape:
        return True
    dense = [size * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    given = list(strides) if isinstance(strides, tuple) else []
    return len(given) == len(shape) and all(n == 1 or a == b for n, a, b in zip(shape, given, dense, strict=True))


def _name_memory(address: int, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> DeviceArray:
    size = dtype.itemsize * math.prod(shape)
    if size == 0:
        return DeviceArray(shape, dtype)
    return DeviceArray(shape, dtype, memoryview((ctypes.c_char * size).from_address(address)))
