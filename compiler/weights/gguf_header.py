"""Reads the header of a GGUF file: metadata, and the offset of each tensor. No data of tensors is read.

The format is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian:

    "GGUF" version tensors pairs | key type value ... | name rank sizes type offset ... | padding | data

Every count is compared with the bytes that are left before anything is allocated, so a file with wrong sizes
costs no memory. Tensors may not overlap or leave the file. `gguf_file` reads the data, with `super_blocks`
for the formats that have scales of scales.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...dialect.lazy_dataclass import dataclass
from .checkpoint import broken

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT = 32
_MOST_AXES = 4
_MOST_NAME = 64
"""The longest name of a tensor in the reference implementation, in bytes."""
_STRING, _ARRAY, _BOOL = 8, 9, 7
_NUMBERS: Mapping[int, str] = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
"""The dtypes of values by their number. A truth value is a byte."""


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """The storage of a tensor: blocks of `elements` neighbours along its last axis, `bytes` each."""

    name: str
    elements: int
    bytes: int


FORMATS: Mapping[int, BlockFormat] = {
    0: BlockFormat("F32", 1, 4),
    1: BlockFormat("F16", 1, 2),
    2: BlockFormat("Q4_0", 32, 18),
    3: BlockFormat("Q4_1", 32, 20),
    6: BlockFormat("Q5_0", 32, 22),
    7: BlockFormat("Q5_1", 32, 24),
    8: BlockFormat("Q8_0", 32, 34),
    10: BlockFormat("Q2_K", 256, 84),
    11: BlockFormat("Q3_K", 256, 110),
    12: BlockFormat("Q4_K", 256, 144),
    13: BlockFormat("Q5_K", 256, 176),
    14: BlockFormat("Q6_K", 256, 210),
    20: BlockFormat("IQ4_NL", 32, 18),
    24: BlockFormat("I8", 1, 1),
    25: BlockFormat("I16", 1, 2),
    26: BlockFormat("I32", 1, 4),
    27: BlockFormat("I64", 1, 8),
    28: BlockFormat("F64", 1, 8),
    30: BlockFormat("BF16", 1, 2),
    39: BlockFormat("MXFP4", 32, 17),
}
"""Formats of tensors by their number in a file."""


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor: its sizes from the slowest axis to the fastest, and the offset of its data in the file. `format` is
    None if it is unknown; `number` is its number in the file."""

    name: str
    shape: tuple[int, ...]
    number: int
    format: BlockFormat | None
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The metadata of a file, and its tensors in their order. Arrays of numbers are NumPy arrays."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: tuple[GgufTensor, ...]


class _Cursor:
    """A position in the file. Every read is checked against the end."""

    def __init__(self, path: Path, data: memoryview) -> None:
        self.path, self.data, self.position = path, data, 0

    def take(self, size: int, what: str) -> memoryview:
        end = self.position + size
        if size > len(self.data) - self.position:
            raise broken(self.path, f"it ends inside {what}: {size} bytes at {self.position} of {len(self.data)}")
        part = self.data[self.position : end]
        self.position = end
        return part

    def number(self, format: str, what: str) -> Any:
        return struct.unpack(f"<{format}", self.take(struct.calcsize(f"<{format}"), what))[0]

    def text(self, what: str) -> str:
        size = self.number("Q", f"the length of {what}")
        # Pieces of byte-level vocabularies may be no UTF-8.
        return bytes(self.take(size, what)).decode("utf-8", "surrogateescape")

    def count(self, what: str, least: int) -> int:
        """Reads a number of records that have at least this many bytes each."""
        count: int = self.number("Q", f"the number of {what}")
        if count > (len(self.data) - self.position) // least:
            raise broken(self.path, f"it is said to have {count} {what}, more than fit in its {len(self.data)} bytes")
        return count

    def value(self, kind: int, what: str) -> Any:
        if kind == _STRING:
            return self.text(what)
        if kind == _ARRAY:
            return self._array(what)
        if kind not in _NUMBERS:
            raise broken(self.path, f"{what} has the unknown type {kind}")
        dtype = np.dtype(_NUMBERS[kind])
        number = np.frombuffer(self.take(dtype.itemsize, what), dtype)[0].item()
        return bool(number) if kind == _BOOL else number

    def _array(self, what: str) -> Any:
        kind = self.number("I", what)
        if kind == _STRING:
            return [self.text(what) for _ in range(self.count(f"elements in {what}", 8))]
        if kind not in _NUMBERS:
            raise broken(self.path, f"{what} is an array of the unsupported type {kind}")
        dtype = np.dtype(_NUMBERS[kind])
        count = self.count(f"elements in {what}", dtype.itemsize)
        numbers = np.frombuffer(self.take(count * dtype.itemsize, what), dtype).copy()
        return numbers.astype(np.bool_) if kind == _BOOL else numbers


def read_header(path: Path) -> GgufHeader:
    """Reads everything but the data of tensors. Raises DiagnosticError if the file is damaged."""
    with path.open("rb") as file:
        magic = file.read(8)
    if magic[:4] != _MAGIC:
        raise broken(path, f"it begins with {magic[:4]!r}, not with {_MAGIC!r}")
    if len(magic) < 8:
        raise broken(path, f"it has {len(magic)} bytes, fewer than a header")
    version = int.from_bytes(magic[4:], "little")
    if version not in _VERSIONS:
        big = int.from_bytes(magic[4:], "big") in _VERSIONS
        reason = "its numbers are big-endian" if big else f"version {version} of the format"
        raise broken(path, f"{reason}; versions 2 and 3, little-endian, are supported")
    cursor = _Cursor(path, memoryview(np.memmap(path, np.uint8, "r")))  # type: ignore[arg-type]  # it has a buffer
    cursor.take(8, "the header")
    count = cursor.count("tensors", 24)
    metadata: dict[str, Any] = {}
    for _ in range(cursor.count("pairs of metadata", 13)):
        key = cursor.text("a key of the metadata")
        if key in metadata:
            raise broken(path, f"the key `{key}` occurs twice")
        metadata[key] = cursor.value(cursor.number("I", f"the type of `{key}`"), f"`{key}`")
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    if type(alignment) is not int or alignment <= 0 or alignment % 8:
        raise broken(path, f"the alignment {alignment!r} is not a multiple of 8")
    records = [_read_record(cursor) for _ in range(count)]
    start = -(-cursor.position // alignment) * alignment
    tensors = [_placed(cursor, alignment, start, *record) for record in records]
    _check_extents(path, tensors)
    return GgufHeader(path, metadata, tuple(tensors))


def _read_record(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name = cursor.text("the name of a tensor")
    if len(name.encode("utf-8", "surrogateescape")) > _MOST_NAME:
        raise broken(cursor.path, f"the name `{name[:_MOST_NAME]}...` of a tensor has more than {_MOST_NAME} bytes")
    rank = cursor.number("I", f"the rank of tensor `{name}`")
    if rank > _MOST_AXES:
        raise broken(cursor.path, f"tensor `{name}` has {rank} axes, more than {_MOST_AXES}")
    sizes = tuple(cursor.number("Q", f"the shape of tensor `{name}`") for _ in range(rank))
    kind = cursor.number("I", f"the type of tensor `{name}`")
    return name, sizes[::-1], kind, cursor.number("Q", f"the offset of tensor `{name}`")


def _placed(
    cursor: _Cursor, alignment: int, start: int, name: str, shape: tuple[int, ...], kind: int, offset: int
) -> GgufTensor:
    path, size = cursor.path, len(cursor.data)
    format = FORMATS.get(kind)
    if offset % alignment:
        raise broken(path, f"the offset {offset} of tensor `{name}` is not a multiple of {alignment}")
    total = 0
    if format is not None:
        last = shape[-1] if shape else 1
        if last % format.elements:
            raise broken(path, f"tensor `{name}` has rows of {last} in {format.name}, blocks of {format.elements}")
        total = format.bytes
        for n in (*shape[:-1], last // format.elements):
            total *= n
    if start + offset + total > size:
        raise broken(path, f"tensor `{name}` is {total} bytes at {start + offset}, outside the file of {size} bytes")
    return GgufTensor(name, shape, kind, format, start + offset, total)


def _check_extents(path: Path, tensors: list[GgufTensor]) -> None:
    names: set[str] = set()
    for tensor in tensors:
        if tensor.name in names:
            raise broken(path, f"tensor `{tensor.name}` occurs twice")
        names.add(tensor.name)
    end, previous = 0, ""
    for tensor in sorted(tensors, key=lambda each: (each.offset, each.bytes)):
        if tensor.bytes and tensor.offset < end:
            raise broken(path, f"tensor `{tensor.name}` overlaps tensor `{previous}`")
        if tensor.bytes:
            end, previous = tensor.offset + tensor.bytes, tensor.name
