"""Reads Universal Binary JSON (draft 12). Arrays of numbers of one type become numpy arrays.

{  i 1 "a"  [ $ d # i 2  <two big-endian f32>   }        {"a": [1.0, 2.0]}
"""

from __future__ import annotations

from typing import Any

import numpy as np

_NUMBERS = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
_CONSTANTS = {"Z": None, "T": True, "F": False}
_DEEPEST = 64


class UbjsonError(ValueError):
    """The bytes are not UBJSON."""


def parse_ubjson(data: bytes) -> Any:
    """Returns the value that the bytes hold. Raises UbjsonError."""
    reader = _Reader(data)
    value = reader.value(reader.marker(), 0)
    if reader.position != len(data):
        raise UbjsonError(f"{len(data) - reader.position} bytes follow the value")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.position + count > len(self.data):
            raise UbjsonError(f"it ends at byte {len(self.data)}, inside a value that begins at {self.position}")
        self.position += count
        return self.data[self.position - count : self.position]

    def peek(self) -> str:
        return chr(self.data[self.position]) if self.position < len(self.data) else ""

    def marker(self) -> str:
        while (found := chr(self.take(1)[0])) == "N":
            pass
        return found

    def length(self) -> int:
        marker = self.marker()
        if marker not in "iUIlL":
            raise UbjsonError(f"a length has the type `{marker}` at byte {self.position - 1}")
        return int(self.number(marker))

    def number(self, marker: str) -> Any:
        dtype = np.dtype(_NUMBERS[marker])
        return np.frombuffer(self.take(dtype.itemsize), dtype)[0].item()

    def text(self) -> str:
        try:
            return self.take(self.length()).decode()
        except UnicodeDecodeError as error:
            raise UbjsonError(f"a text before byte {self.position} is not UTF-8") from error

    def value(self, marker: str, depth: int) -> Any:
        if depth > _DEEPEST:
            raise UbjsonError(f"containers are nested more than {_DEEPEST} deep")
        if marker in _NUMBERS:
            return self.number(marker)
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker in ("S", "H"):
            return self.text()
        if marker == "C":
            return self.take(1).decode("latin-1")
        if marker == "[":
            return self._array(depth)
        if marker == "{":
            return self._object(depth)
        raise UbjsonError(f"`{marker}` at byte {self.position - 1} begins no value")

    def _header(self) -> tuple[str, int | None]:
        """Returns the type and the count of a container, where they are given."""
        kind, count = "", None
        if self.peek() == "$":
            self.take(1)
            kind = self.marker()
        if self.peek() == "#":
            self.take(1)
            count = self.length()
            if count < 0:
                raise UbjsonError(f"a container before byte {self.position} has {count} elements")
        elif kind:
            raise UbjsonError(f"a container before byte {self.position} has a type and no count")
        return kind, count

    def _array(self, depth: int) -> Any:
        kind, count = self._header()
        if kind in _NUMBERS and count is not None:
            dtype = np.dtype(_NUMBERS[kind])
            return np.frombuffer(self.take(count * dtype.itemsize), dtype).astype(dtype.newbyteorder("="))
        found: list[Any] = []
        while (count is None and self.peek() != "]") or (count is not None and len(found) < count):
            found.append(self.value(kind or self.marker(), depth + 1))
            if kind in _CONSTANTS and count is not None and count > len(self.data):
                raise UbjsonError(f"a container has {count} elements without data")
        if count is None:
            self.take(1)
        return found

    def _object(self, depth: int) -> dict[str, Any]:
        kind, count = self._header()
        found: dict[str, Any] = {}
        taken = 0
        while (count is None and self.peek() != "}") or (count is not None and taken < count):
            name = self.text()
            found[name] = self.value(kind or self.marker(), depth + 1)
            taken += 1
        if count is None:
            self.take(1)
        return found


__all__ = ["UbjsonError", "parse_ubjson"]
