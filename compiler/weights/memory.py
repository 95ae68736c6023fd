"""A checkpoint of arrays in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...dialect.types import Array, dtype_of
from .checkpoint import Checkpoint, StoredTensor, checkpoint_error

PLACE = Path("<memory>")
"""The name of such a checkpoint in diagnostics."""


def open_arrays(arrays: Mapping[str, Any]) -> Checkpoint:
    """Returns a checkpoint of named arrays, given as any values that numpy converts. Raises DiagnosticError."""
    digest = hashlib.sha256()
    tensors: dict[str, StoredTensor] = {}
    for name, value in arrays.items():
        tensors[name] = stored = _stored(name, value)
        if stored.load is not None:
            digest.update(f"{name} {stored.stored_as} {stored.shape}\n".encode())
            digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    return Checkpoint(PLACE, tensors, digest.hexdigest())


def _stored(name: str, value: Any) -> StoredTensor:
    try:
        array: Array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise checkpoint_error("checkpoint-broken", f"the weight `{name}` is no array: {error}") from error
    try:
        dtype = dtype_of(array)
    except KeyError:
        return StoredTensor(PLACE, None, str(array.dtype), array.shape)
    return StoredTensor(PLACE, dtype, str(array.dtype), array.shape, load=array.copy)
