"""Dtypes and arrays of PyTorch, as those of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .....dialect.types import (
    BF16,
    BOOL,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Array,
    DType,
)
from .package import load_torch

DTYPES: Mapping[str, DType] = {
    "torch.float32": F32,
    "torch.float64": F64,
    "torch.float16": F16,
    "torch.bfloat16": BF16,
    "torch.float8_e4m3fn": F8E4M3,
    "torch.float8_e5m2": F8E5M2,
    "torch.bool": BOOL,
    "torch.int8": I8,
    "torch.int16": I16,
    "torch.int32": I32,
    "torch.int64": I64,
    "torch.uint8": U8,
    "torch.uint16": U16,
    "torch.uint32": U32,
    "torch.uint64": U64,
}
"""The dtypes that the graph has, by their names in PyTorch."""

_BY_BITS = {1: "uint8", 2: "int16"}


def to_array(tensor: Any) -> Array:
    """Returns the elements of a tensor, which share its memory if it is contiguous."""
    dtype = DTYPES[str(tensor.dtype)]
    plain = tensor.detach().cpu().contiguous().resolve_conj().resolve_neg()
    if dtype.numpy.kind != "V" and dtype.numpy.isbuiltin == 1:
        array: Array = plain.numpy()
    else:
        # NumPy lacks this dtype: the bits are viewed as integers, and then as the dtype of `ml_dtypes`.
        bits = getattr(load_torch(), _BY_BITS[dtype.bytes])
        array = plain.view(bits).numpy().view(dtype.numpy)
    return np.asarray(array)


def to_tensor(array: Array) -> Any:
    """Returns a tensor with the elements of an array."""
    torch = load_torch()
    names = [name for name, dtype in DTYPES.items() if dtype.numpy == array.dtype]
    data = np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype.kind == "V" or array.dtype.isbuiltin != 1:
        raw = torch.from_numpy(data.view(_BY_BITS[array.dtype.itemsize]).copy())
        return raw.view(getattr(torch, names[0].removeprefix("torch.")))
    return torch.from_numpy(data if data.flags.writeable else data.copy())
