"""Maps the data of large initializers from the file, so that the parser of protobufs makes no copy of them.

    file            graph { node.. initializer { name, dims, raw_data: 40 MB } .. }
    parsed bytes    graph { node.. initializer { name, dims } .. }
    mapped          initializer 0: 40 MB of the file

The walk reads only the fields of the model, its graph and the initializers. If the file has an unexpected form, the
parser reads the whole file instead, and reports damage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_LEAST = 1 << 16
"""The fewest bytes that are mapped."""
_MOST_FIELDS = 200_000
_VARINT, _WIDE, _BYTES, _NARROW = 0, 1, 2, 5

Data: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]


class _OtherFormError(Exception):
    """The file is damaged, or has fields in a way that the walk does not follow."""


def split_file(path: Path) -> tuple[bytes, Mapping[int, Data]]:
    """Returns the bytes of a file without the large data of initializers, and this data by the number of the
    initializer. Raises OSError."""
    if path.stat().st_size < 2 * _LEAST:
        return path.read_bytes(), {}
    data: Data = np.memmap(path, np.uint8, "r")
    try:
        return _Walk(data.data).split(data)
    except _OtherFormError:
        return path.read_bytes(), {}


class _Walk:
    def __init__(self, view: memoryview) -> None:
        self.view, self.left = view, _MOST_FIELDS

    def split(self, data: Data) -> tuple[bytes, Mapping[int, Data]]:
        graphs = [field for field in self._fields(0, len(self.view)) if field[0] == _GRAPH]
        if len(graphs) != 1:
            raise _OtherFormError
        _, first, start, stop = graphs[0]
        found: dict[int, Data] = {}
        pieces: list[bytes | memoryview] = []
        at, count = start, 0
        for number, begin, inside, end in self._fields(start, stop):
            if number != _INITIALIZER:
                continue
            raw = self._large_data(inside, end)
            if raw is not None:
                cut, low, high = raw
                kept = self.view[inside:cut], self.view[high:end]
                size = len(kept[0]) + len(kept[1])
                pieces += [self.view[at:begin], _tag(_INITIALIZER), _varint(size), *kept]
                found[count] = data[low:high]
                at = end
            count += 1
        pieces.append(self.view[at:stop])
        length = sum(map(len, pieces))
        whole = [self.view[:first], _tag(_GRAPH), _varint(length), *pieces, self.view[stop:]]
        return b"".join(whole), found

    def _large_data(self, start: int, stop: int) -> tuple[int, int, int] | None:
        """Returns the offset of the field with the raw data of a tensor, and the range of its content."""
        if stop - start < _LEAST:
            return None
        found = [(begin, low, high) for number, begin, low, high in self._fields(start, stop) if number == _RAW_DATA]
        if len(found) > 1:
            raise _OtherFormError
        return found[0] if found and found[0][2] - found[0][1] >= _LEAST else None

    def _fields(self, at: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        """Yields the fields of a message that hold bytes or messages: number, begin, and begin and end of the content.
        A field of numbers has the number 0."""
        while at < stop:
            self.left -= 1
            if self.left < 0:
                raise _OtherFormError
            begin = at
            tag, at = self._varint(at, stop)
            kind, start = tag & 7, at
            if kind == _BYTES:
                size, start = self._varint(at, stop)
                at = start + size
            elif kind == _VARINT:
                _, at = self._varint(at, stop)
            elif kind in (_WIDE, _NARROW):
                at += 8 if kind == _WIDE else 4
            else:
                raise _OtherFormError
            if at > stop:
                raise _OtherFormError
            yield tag >> 3 if kind == _BYTES else 0, begin, start, at

    def _varint(self, at: int, stop: int) -> tuple[int, int]:
        value = shift = 0
        while at < stop and shift < 70:
            byte = self.view[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
            shift += 7
        raise _OtherFormError


def _tag(number: int) -> bytes:
    return _varint(number << 3 | _BYTES)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)
