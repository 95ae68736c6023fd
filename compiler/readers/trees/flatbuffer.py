"""Reads a FlatBuffer: tables begin with the distance back to a list of the places of their fields, where 0 marks a
field that has its default. Every read is checked against the bounds of the buffer; `struct.error` is raised beyond.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from .tree import Numbers


class Buffer:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def unpack(self, format: str, place: int) -> Any:
        if place < 0:
            raise struct.error(f"offset {place}")
        return struct.unpack_from(format, self.data, place)[0]

    def pointer(self, place: int) -> int:
        return place + int(self.unpack("<I", place))

    def table(self, place: int) -> Table:
        return Table(self, place, place - int(self.unpack("<i", place)))

    def vector(self, place: int, size: int) -> tuple[int, int]:
        """Returns the first byte and the number of elements of `size` bytes."""
        count = int(self.unpack("<I", place))
        if place + 4 + count * size > len(self.data):
            raise struct.error(f"a list of {count} elements at {place}")
        return place + 4, count


class Table:
    def __init__(self, buffer: Buffer, place: int, fields: int) -> None:
        self.buffer, self.place, self.fields = buffer, place, fields
        self.count = (int(buffer.unpack("<H", fields)) - 4) // 2

    def _at(self, number: int) -> int | None:
        offset = int(self.buffer.unpack("<H", self.fields + 4 + 2 * number)) if number < self.count else 0
        return self.place + offset if offset else None

    def number(self, number: int, dtype: str, default: Any) -> Any:
        place = self._at(number)
        if place is None:
            return default
        return self.buffer.unpack({"<i4": "<i", "<i1": "<b", "<f4": "<f", "<f8": "<d"}[dtype], place)

    def numbers(self, number: int, dtype: str) -> Numbers:
        place = self._at(number)
        if place is None:
            return np.zeros(0, dtype)
        first, count = self.buffer.vector(self.buffer.pointer(place), np.dtype(dtype).itemsize)
        return np.frombuffer(self.buffer.data, dtype, count, first)

    def text(self, number: int) -> str:
        place = self._at(number)
        if place is None:
            return ""
        first, count = self.buffer.vector(self.buffer.pointer(place), 1)
        return self.buffer.data[first : first + count].decode("utf-8", "replace")

    def table(self, number: int) -> Table | None:
        place = self._at(number)
        return None if place is None else self.buffer.table(self.buffer.pointer(place))

    def tables(self, number: int) -> list[Table]:
        place = self._at(number)
        if place is None:
            return []
        first, count = self.buffer.vector(self.buffer.pointer(place), 4)
        return [self.buffer.table(self.buffer.pointer(first + 4 * i)) for i in range(count)]
