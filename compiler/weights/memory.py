"""A checkpoint of arrays in memory."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...dialect.types import BF16, STORAGE, Array, dtype_of
from .checkpoint import Checkpoint, StoredTensor, checkpoint_error

PATH = Path("<memory>")
"""The name of such a checkpoint in diagnostics."""


def open_arrays(arrays: Mapping[str, Any]) -> Checkpoint:
    """Returns a checkpoint of named arrays, given as any values that numpy converts. Raises DiagnosticError."""
    digest = hashlib.sha256()
    tensors: dict[str, StoredTensor] = {}
    for name, value in arrays.items():
        array = _array(name, value)
        tensors[name] = stored = _stored(array)
        if stored.load is not None:
            digest.update(f"{name} {stored.stored_as} {stored.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return Checkpoint(PATH, tensors, digest.hexdigest())


_OTHERS = {f"torch.{np.dtype(dtype.numpy).name}": np.dtype(dtype.numpy) for dtype in (BF16, *STORAGE)}
"""The dtypes of PyTorch that numpy lacks."""


def _array(name: str, value: Any) -> Array:
    """Returns a value as an array. A tensor of PyTorch may be a parameter, or have a dtype that numpy lacks."""
    torch: Any = sys.modules.get("torch")
    tensor: Any = getattr(torch, "Tensor", ())
    try:
        if isinstance(value, tensor):
            value = value.detach().cpu()
            dtype = _OTHERS.get(str(value.dtype))
            if dtype is not None:
                bits = value.contiguous().view(getattr(torch, f"uint{8 * dtype.itemsize}"))
                return np.asarray(bits.numpy().view(dtype))
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise checkpoint_error("checkpoint-broken", f"the weight `{name}` is not an array: {error}") from error


def _stored(array: Array) -> StoredTensor:
    try:
        dtype = dtype_of(array)
    except KeyError:
        return StoredTensor(PATH, None, str(array.dtype), array.shape)
    return StoredTensor(PATH, dtype, str(array.dtype), array.shape, load=array.copy)
