"""Tables of a flatbuffer. Every position is checked, so that damaged bytes give a `FormatError` and nothing else.

    table   i32: distance back to its vtable; then its fields
    vtable  u16: its bytes, u16: bytes of the table, then for each field u16: its distance from the table, 0 if absent
    field   a number, or u32: distance to a table, a string or a vector, which begin with their length as u32

Numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .writing.tensors import Elements

_MOST_READ = 4_000_000
"""The most tables and integers that are read. A part of a file can be in many vectors, so that a small file may list
very many."""


class FormatError(Exception):
    """The bytes are not a valid flatbuffer."""


@dataclass(slots=True)
class Buffer:
    data: bytes
    left: int = field(default=_MOST_READ)

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise FormatError(f"more than {_MOST_READ} tables and integers")

    def number(self, position: int, kind: str) -> int | float:
        """Returns a number: `kind` is a letter of `struct`."""
        size = struct.calcsize("<" + kind)
        if not 0 <= position <= len(self.data) - size:
            raise FormatError(f"position {position} is not within its {len(self.data)} bytes")
        found: int | float = struct.unpack_from("<" + kind, self.data, position)[0]
        return found

    def integer(self, position: int, kind: str = "I") -> int:
        return int(self.number(position, kind))

    def span(self, position: int, bytes_of_each: int) -> tuple[int, int]:
        """Returns the position of the first element of a vector, and the number of elements."""
        count = self.integer(position)
        if count * bytes_of_each > len(self.data) - position - 4:
            raise FormatError(f"a vector of {count} elements at {position} does not fit into its bytes")
        return position + 4, count

    def table(self, position: int) -> Table:
        self.spend(1)
        vtable = position - self.integer(position, "i")
        size = self.integer(vtable, "H")
        if size < 4 or size % 2 or vtable + size > len(self.data):
            raise FormatError(f"a table at {position} has a description of {size} bytes")
        return Table(self, position, vtable, size)


@dataclass(frozen=True, slots=True)
class Table:
    """A table; its fields have numbers, in the order of the schema."""

    buffer: Buffer
    position: int
    vtable: int
    size: int

    def _at(self, number: int) -> int | None:
        """Returns the position of a field, None if the table omits it."""
        entry = 4 + 2 * number
        if entry + 2 > self.size:
            return None
        distance = self.buffer.integer(self.vtable + entry, "H")
        return self.position + distance if distance else None

    def _target(self, number: int) -> int | None:
        at = self._at(number)
        return None if at is None else at + self.buffer.integer(at)

    def number(self, number: int, kind: str, default: float) -> float:
        at = self._at(number)
        return default if at is None else self.buffer.number(at, kind)

    def integer(self, number: int, kind: str = "i", default: int = 0) -> int:
        return int(self.number(number, kind, default))

    def flag(self, number: int, default: bool = False) -> bool:
        return bool(self.integer(number, "B", int(default)))

    def text(self, number: int) -> str:
        """Returns a string, empty if it is absent."""
        target = self._target(number)
        if target is None:
            return ""
        first, count = self.buffer.span(target, 1)
        try:
            return self.buffer.data[first : first + count].decode()
        except UnicodeDecodeError:
            raise FormatError(f"the name at {first} is not utf-8") from None

    def table(self, number: int) -> Table | None:
        target = self._target(number)
        return None if target is None else self.buffer.table(target)

    def tables(self, number: int) -> Sequence[Table]:
        """Returns the tables of a vector."""
        target = self._target(number)
        if target is None:
            return ()
        first, count = self.buffer.span(target, 4)
        indices = range(first, first + 4 * count, 4)
        return [self.buffer.table(index + self.buffer.integer(index)) for index in indices]

    def array(self, number: int, dtype: str) -> Elements | None:
        """Returns the numbers or records of a vector without a copy, None if it is absent."""
        target = self._target(number)
        if target is None:
            return None
        kind = np.dtype(dtype)
        first, count = self.buffer.span(target, kind.itemsize)
        return np.frombuffer(self.buffer.data, kind, count, first)

    def numbers(self, number: int, dtype: str) -> Elements:
        """Returns the numbers or records of a vector without a copy; none if it is absent."""
        found = self.array(number, dtype)
        return np.zeros(0, dtype) if found is None else found

    def integers(self, number: int, dtype: str = "<i4") -> tuple[int, ...]:
        found = self.array(number, dtype)
        if found is None:
            return ()
        self.buffer.spend(found.size)
        return tuple(found.tolist())


def root(data: bytes) -> Table:
    """Returns the outermost table. Raises FormatError."""
    buffer = Buffer(data)
    return buffer.table(buffer.integer(0))
