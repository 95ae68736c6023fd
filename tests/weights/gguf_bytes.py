"""Writes GGUF files byte by byte, so that tests can damage any part of them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


def text(value: str) -> bytes:
    """Returns a length and a text; surrogates stand for bytes that are not UTF-8."""
    content = value.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(content)) + content


def value(content: object) -> bytes:
    """Returns the type and the bytes of a value: a truth value, an integer, a float, which is f32 unless it is of
    NumPy, text, or a list of one of them."""
    if isinstance(content, bool):
        return struct.pack("<IB", 7, content)
    if isinstance(content, int):
        return struct.pack("<II", 4, content)
    if isinstance(content, np.float64):
        return struct.pack("<Id", 12, content)
    if isinstance(content, float):
        return struct.pack("<If", 6, content)
    if isinstance(content, str):
        return struct.pack("<I", 8) + text(content)
    assert isinstance(content, list)
    kind = value(content[0])[:4] if content else struct.pack("<I", 4)
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(content)) + b"".join(value(x)[4:] for x in content)


@dataclass(frozen=True)
class Stored:
    """A tensor of a file; `offset` is that of its data unless a test lies about it."""

    name: str
    shape: tuple[int, ...]
    number: int
    data: bytes
    offset: int | None = None


def gguf_bytes(
    tensors: Sequence[Stored] = (),
    metadata: Mapping[str, object] | None = None,
    *,
    version: int = 3,
    count: int | None = None,
    pairs: int | None = None,
) -> bytes:
    metadata = metadata or {}
    head = b"GGUF" + struct.pack(
        "<IQQ", version, len(tensors) if count is None else count, len(metadata) if pairs is None else pairs
    )
    head += b"".join(text(key) + value(content) for key, content in metadata.items())
    data = b""
    for tensor in tensors:
        data += b"\0" * (-len(data) % 32)
        offset = len(data) if tensor.offset is None else tensor.offset
        sizes = tensor.shape[::-1]
        head += text(tensor.name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, tensor.number, offset)
        data += tensor.data
    return head + b"\0" * (-len(head) % 32) + data
