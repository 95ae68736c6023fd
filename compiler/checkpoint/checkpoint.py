"""Named tensors in files, read by their headers first and memory-mapped where the file allows.

A `Checkpoint` is the same whatever the format: names, types from headers alone, and data on demand. Readers of formats
fill in `StoredTensor` records; nothing here knows a format. Every fault is a diagnostic.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.types import Array, DType


def fault(code: str, message: str, help: str = "") -> DiagnosticError:
    return DiagnosticError([Diagnostic(code, message, help=help)])


def broken(path: Path, reason: str) -> DiagnosticError:
    """A file that is not what its name says."""
    return fault("checkpoint-broken", f"`{path}` is broken: {reason}")


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor is. `dtype` is None where Nacre has none for `stored_as`, the dtype that the file names.

    `load` gives the elements where they cannot be mapped, and is None where they stand in `file` at `offset`.
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
        storage = self.storage or dtype.numpy
        if 0 in self.shape:
            return np.empty(self.shape, storage)
        order: Literal["C", "F"] = "F" if self.column_major else "C"
        mapped = np.memmap(self.file, np.uint8, "r", self.offset, (storage.itemsize * _count(self.shape),))
        return np.ndarray(self.shape, storage, mapped, order=order)


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The tensors of a checkpoint, by name, in the order of the file."""

    path: Path
    tensors: Mapping[str, StoredTensor]

    def names(self) -> tuple[str, ...]:
        return tuple(self.tensors)

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def _find(self, name: str) -> StoredTensor:
        found = self.tensors.get(name)
        if found is None:
            close = ", ".join(f"`{other}`" for other in self.closest(name))
            help_text = f"the closest names are {close}" if close else ""
            raise fault("tensor-missing", f"`{self.path}` has no tensor `{name}`", help_text)
        return found

    def info(self, name: str) -> tuple[DType | None, tuple[int, ...]]:
        """The dtype, or None where Nacre does not have it, and the shape; no data is read."""
        stored = self._find(name)
        return stored.dtype, stored.shape

    def stored_as(self, name: str) -> str:
        """The dtype as the file names it."""
        return self._find(name).stored_as

    def read(self, name: str) -> Array:
        """The tensor, read-only and in this machine's byte order; memory-mapped where the file allows."""
        stored = self._find(name)
        if stored.dtype is None:
            raise fault(
                "checkpoint-dtype", f"tensor `{name}` of `{self.path}` is {stored.stored_as}, which is not supported"
            )
        try:
            array = stored.read(stored.dtype)
        except (OSError, ValueError) as error:
            raise broken(stored.file, f"tensor `{name}` cannot be read: {error}") from error
        assert array.shape == stored.shape, (name, array.shape, stored.shape)
        if array.dtype.kind == "V" and array.dtype != stored.dtype.numpy:
            array = array.view(stored.dtype.numpy)
        if array.dtype != stored.dtype.numpy or not array.flags.aligned:
            array = array.astype(stored.dtype.numpy)
        array.flags.writeable = False
        return array

    def closest(self, name: str, n: int = 3) -> list[str]:
        """The names that are most like `name`: first those that differ by a prefix, then by spelling."""
        prefixed = [other for other in self.tensors if other.endswith(f".{name}") or name.endswith(f".{other}")]
        similar = difflib.get_close_matches(name, self.tensors, n, cutoff=0.5)
        return list(dict.fromkeys([*prefixed, *similar]))[:n]
