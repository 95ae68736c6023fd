"""Counts the fields of a protobuf before it is parsed: a node of two bytes in the file may take a hundred in memory.

The walk follows the fields that the schema declares as messages and skips the content of all others, so that the data
of tensors costs nothing. It does not report damage: the parser does.
"""

from __future__ import annotations

from typing import Any

MOST_FIELDS = 1_500_000
"""A model of 50,000 nodes has about a million."""

_VARINT, _WIDE, _BYTES, _NARROW = 0, 1, 2, 5


def has_too_many_fields(data: bytes, schema: Any) -> bool:
    """Returns whether a message has more than `MOST_FIELDS` fields, those of inner messages included. `schema` is its
    descriptor."""
    inner: dict[str, dict[int, Any]] = {}

    def messages_of(descriptor: Any) -> dict[int, Any]:
        name = descriptor.full_name
        if name not in inner:
            described = ((f.number, f.message_type) for f in descriptor.fields)
            inner[name] = {number: message for number, message in described if message is not None}
        return inner[name]

    left = MOST_FIELDS
    pending = [(0, len(data), schema)]
    while pending:
        at, end, descriptor = pending.pop()
        messages = messages_of(descriptor)
        while at < end:
            left -= 1
            if left < 0:
                return True
            tag, at = _read_varint(data, at, end)
            kind = tag & 7
            if kind == _VARINT:
                _, at = _read_varint(data, at, end)
            elif kind == _BYTES:
                size, at = _read_varint(data, at, end)
                if size > end - at:
                    break
                message = messages.get(tag >> 3)
                if message is not None and size:
                    pending.append((at, at + size, message))
                at += size
            elif kind in (_WIDE, _NARROW):
                at += 8 if kind == _WIDE else 4
            else:
                break
    return False


def _read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Returns a number and the position after it; a number that is cut off ends at `end`."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            return value, end
    return value, at
