"""Calls of an artifact through `run` of its C interface, with explicit tensor descriptors.

The Python loader rejects views before the artifact sees them. This module describes them to the artifact, so that its
own checks are run. `ABI.md` specifies `run`.
"""

from __future__ import annotations

import array
import ctypes
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...dialect.types import Array
from ...runtime.arguments import ALIGNMENT, DTYPE_CODES, Tensor, address_of, empty_aligned
from ...runtime.library import Library, NacreError, open_library


class RefusedError(NacreError):
    """The artifact rejects a call."""


class Session:
    """A session of an artifact, and one of its entries. Calls use the session's own workspace."""

    def __init__(self, library: Library, handle: int, entry: str) -> None:
        entries = library.description["entries"]
        self.library, self.handle = library, handle
        self.index = next(i for i, each in enumerate(entries) if each["name"] == entry)
        self._inputs = [DTYPE_CODES[a["dtype"]] for a in entries[self.index]["arguments"]]
        self._outputs = [DTYPE_CODES[r["dtype"]] for r in entries[self.index]["results"]]
        self._dims = len(entries[self.index]["dims"])

    def run(self, arguments: Sequence[Array], results: Sequence[Array], *, dense: bool = False) -> None:
        """Calls `run`. `dense` describes the arguments without strides. Raises RefusedError."""
        inputs, kept = _describe(arguments, self._inputs, dense=dense)
        outputs, others = _describe(results, self._outputs, dense=True)
        self._reserve(inputs, len(arguments))
        counts = len(arguments), ctypes.addressof(outputs), len(results)
        status = self.library.functions["run"](self.handle, self.index, ctypes.addressof(inputs), *counts, None, 0)
        del kept, others
        if status:
            raise RefusedError(self.library.error())

    def _reserve(self, inputs: ctypes.Array[Tensor], count: int) -> None:
        functions = self.library.functions
        dims = array.array("q", bytes(8 * max(1, self._dims)))
        address = dims.buffer_info()[0]
        if functions["bind"](self.index, ctypes.addressof(inputs), count, address):
            raise RefusedError(self.library.error())
        size = functions["workspace_bytes"](self.index, address)
        if functions["session_reserve"](self.handle, size):
            raise NacreError(self.library.error())


@contextmanager
def open_session(artifact: Path, entry: str) -> Iterator[Session]:
    """Opens a session with the options' defaults."""
    library = open_library(str(artifact))
    handle = ctypes.c_void_p()
    if library.functions["session_create"](None, ctypes.addressof(handle)):
        raise NacreError(library.error())
    try:
        yield Session(library, handle.value or 0, entry)
    finally:
        library.functions["session_destroy"](handle.value)


def _describe(
    arrays: Sequence[Array], dtypes: Sequence[int], *, dense: bool
) -> tuple[ctypes.Array[Tensor], list[array.array[int]]]:
    """Returns the descriptors of the tensors, and the memory that they point to."""
    tensors, kept = (Tensor * max(1, len(arrays)))(), []
    for x, dtype, tensor in zip(arrays, dtypes, tensors, strict=False):
        shape = array.array("q", x.shape)
        strides = array.array("q", [step // x.itemsize for step in x.strides])
        kept += [shape, strides]
        tensor.data, tensor.dtype, tensor.rank = address_of(x), dtype, x.ndim
        tensor.shape, tensor.strides = shape.buffer_info()[0], 0 if dense else strides.buffer_info()[0]
    return tensors, kept


def patterned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Returns an aligned array filled with a byte pattern that no result has."""
    made = empty_aligned(shape, dtype, max(math.prod(shape) * dtype.itemsize, ALIGNMENT))
    made.reshape(-1).view("u1")[:] = 0x4B
    return made


def empty_like(arrays: Sequence[Array]) -> list[Array]:
    return [patterned(x.shape, x.dtype) for x in arrays]
