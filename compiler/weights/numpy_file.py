"""Reads `.npy` and `.npz` files. Pickled objects are rejected: unpickling runs code of the file."""

from __future__ import annotations

import io
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np

from ...dialect.types import ANY, Array, dtype_of
from .checkpoint import Checkpoint, StoredTensor, broken
from .zip_members import data_offset

_ERRORS = (
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OverflowError,
    RecursionError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    tokenize.TokenError,
    zlib.error,
)
"""The exceptions that numpy, zipfile and zlib raise for damaged files."""


_FOREIGN = tuple(dtype for dtype in ANY if dtype.numpy.isbuiltin != 1)
"""The dtypes that numpy lacks."""
_OPAQUE = {np.dtype(f"V{dtype.bytes}"): dtype for dtype in reversed(_FOREIGN) if dtype.numpy.kind == "V"}
"""Dtypes that the format cannot name: numpy writes them as opaque bytes. Of several with one size, it means the
first."""
_UNREADABLE = {repr(dtype.numpy.str).encode(): dtype for dtype in _FOREIGN if dtype.numpy.kind != "V"}
"""Dtypes by the name that numpy writes for them but cannot read."""


def _read_header(file: IO[bytes], path: Path) -> StoredTensor:
    """Reads the header of an array; the data starts at the file position afterwards."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version[0]}.{version[1]} of the format is not supported")
    size = file.read(2 if version == (1, 0) else 4)
    text = file.read(int.from_bytes(size, "little"))
    unreadable = next((name for name in _UNREADABLE if name in text), b"")
    if unreadable:
        text = text.replace(unreadable, f"'|V{_UNREADABLE[unreadable].bytes}'".encode())
    header = io.BytesIO(size + text)
    if version == (1, 0):
        shape, column_major, dtype = np.lib.format.read_array_header_1_0(header)
    else:
        shape, column_major, dtype = np.lib.format.read_array_header_2_0(header)
    if any(size < 0 for size in shape):
        raise ValueError(f"the shape {shape} has a negative size")
    empty: Array = np.empty(0, dtype)
    try:
        known = _UNREADABLE.get(unreadable) or _OPAQUE.get(dtype) or dtype_of(empty)
    except KeyError:
        return StoredTensor(path, None, str(dtype), shape)
    return StoredTensor(path, known, str(dtype), shape, file.tell(), column_major, dtype)


def _data_bytes(stored: StoredTensor) -> int:
    size = stored.storage.itemsize if stored.storage is not None else 0
    for n in stored.shape:
        size *= n
    return size


def read_npy(path: Path) -> Checkpoint:
    """Opens a file with one tensor, named as the file without its suffix."""
    try:
        with path.open("rb") as file:
            stored = _read_header(file, path)
    except _ERRORS as error:
        raise broken(path, str(error)) from error
    end, size = stored.offset + _data_bytes(stored), path.stat().st_size
    if end > size:
        raise broken(path, f"it has {size} bytes, its header asks for {end}")
    return Checkpoint(path, {path.stem: stored})


def _load_member(path: Path, member: str) -> Callable[[], Array]:
    def load() -> Array:
        try:
            with zipfile.ZipFile(path) as archive, archive.open(member) as file:
                stored = _read_header(file, path)
                flat: Array = np.frombuffer(file.read(_data_bytes(stored)), stored.storage)
                return flat.reshape(stored.shape, order="F" if stored.column_major else "C")
        except _ERRORS as error:
            raise ValueError(str(error)) from error

    return load


def _read_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> StoredTensor:
    with archive.open(member) as file:
        stored = _read_header(file, path)
    if stored.dtype is None:
        return stored
    if member.compress_type == zipfile.ZIP_STORED:
        with path.open("rb") as raw:
            raw.seek(data_offset(path, member))
            mapped = _read_header(raw, path)
            end = raw.tell() - stored.offset + member.file_size
        if mapped.offset + _data_bytes(mapped) > end or end > path.stat().st_size:
            raise ValueError("its header describes more data than the file has")
        return mapped
    return StoredTensor(path, stored.dtype, stored.stored_as, stored.shape, load=_load_member(path, member.filename))


def read_npz(path: Path) -> Checkpoint:
    """Opens the arrays of an archive; uncompressed arrays are mapped."""
    tensors: dict[str, StoredTensor] = {}
    member: zipfile.ZipInfo | None = None
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".npy"):
                    tensors[member.filename.removesuffix(".npy")] = _read_member(path, archive, member)
    except _ERRORS as error:
        where = f"`{member.filename}`: " if member is not None else ""
        raise broken(path, f"{where}{error}") from error
    return Checkpoint(path, tensors)
