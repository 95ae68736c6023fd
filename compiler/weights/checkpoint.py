"""Named tensors in files: headers are read first, and data is memory-mapped if the format allows.

A `Checkpoint` has the same interface for every format: names, types from headers alone, and data on demand. Readers of
formats create `StoredTensor` records; this module does not depend on a format. Every error is a diagnostic.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from ...dialect.diagnostics import Diagnostic, DiagnosticError, MissingFileError
from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import Array, DType


def checkpoint_error(code: str, message: str, help: str = "") -> DiagnosticError:
    kind = MissingFileError if code in ("checkpoint-missing", "missing-file") else DiagnosticError
    return kind([Diagnostic(code, message, help=help)])


def broken(path: Path, reason: str) -> DiagnosticError:
    """Returns the error for a file whose content does not match its suffix."""
    return checkpoint_error("checkpoint-broken", f"`{path}` is broken: {reason}")


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """The location of a tensor. `dtype` is None if Nacre has no equivalent of `stored_as`, the dtype in the file.

    `load` returns the elements if they cannot be mapped; it is None if they are in `file` at `offset`.
    """

    file: Path
    dtype: DType | None
    stored_as: str
    shape: tuple[int, ...]
    offset: int = 0
    column_major: bool = False
    storage: np.dtype[np.generic] | None = None
    load: Callable[[], Array] | None = None

    def read(self, dtype: DType) -> Array:
        if self.load is not None:
            return self.load()
        storage, shape = self.storage or dtype.numpy, self.array_shape
        if 0 in shape:
            return np.empty(shape, storage)
        order: Literal["C", "F"] = "F" if self.column_major else "C"
        mapped = np.memmap(self.file, np.uint8, "r", self.offset, (storage.itemsize * _count(shape),))
        return np.ndarray(shape, storage, mapped, order=order)

    @property
    def array_shape(self) -> tuple[int, ...]:
        """The shape of the array that holds the tensor: of a block-quantized one, the last axis counts blocks."""
        if self.dtype is None or not self.dtype.is_blocked:
            return self.shape
        return (*self.shape[:-1], self.shape[-1] // self.dtype.block)


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The tensors of a checkpoint, by name, in the order of the file. `digest` identifies the data of tensors that are
    in memory; it is empty for files."""

    path: Path
    tensors: Mapping[str, StoredTensor]
    digest: str = ""

    def names(self) -> tuple[str, ...]:
        return tuple(self.tensors)

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def _find(self, name: str) -> StoredTensor:
        found = self.tensors.get(name)
        if found is None:
            close = ", ".join(f"`{other}`" for other in self.closest(name))
            help_text = f"the closest names are {close}" if close else ""
            raise checkpoint_error("missing-tensor", f"`{self.path}` has no tensor `{name}`", help_text)
        return found

    def info(self, name: str) -> tuple[DType | None, tuple[int, ...]]:
        """Returns the dtype, or None if Nacre does not support it, and the shape; reads no data."""
        stored = self._find(name)
        return stored.dtype, stored.shape

    def stored_as(self, name: str) -> str:
        """Returns the dtype as the file names it."""
        return self._find(name).stored_as

    def read(self, name: str) -> Array:
        """Returns the tensor, read-only and in native byte order; memory-mapped if the file allows."""
        stored = self._find(name)
        if stored.dtype is None:
            raise checkpoint_error(
                "checkpoint-dtype", f"tensor `{name}` of `{self.path}` is {stored.stored_as}, which is not supported"
            )
        try:
            array = stored.read(stored.dtype)
        except (OSError, ValueError) as error:
            raise broken(stored.file, f"tensor `{name}` cannot be read: {error}") from error
        assert array.shape == stored.array_shape, (name, array.shape, stored.shape)
        if array.dtype.kind == "V" and array.dtype != stored.dtype.numpy:
            array = array.view(stored.dtype.numpy)
        if array.dtype != stored.dtype.numpy or not array.flags.aligned:
            array = array.astype(stored.dtype.numpy)
        array.flags.writeable = False
        return array

    def closest(self, name: str, n: int = 3) -> list[str]:
        """Returns the names most similar to `name`: first names that differ by a prefix, then similar spellings."""
        prefixed = [other for other in self.tensors if other.endswith(f".{name}") or name.endswith(f".{other}")]
        similar = difflib.get_close_matches(name, self.tensors, n, cutoff=0.5)
        return list(dict.fromkeys([*prefixed, *similar]))[:n]
