"""Writes the weight blob: bare for an assembler, or as a safetensors file beside the artifact.

Tensors are read one after another and streamed, so that memory never holds all weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import Array
from ..weights.safetensors_file import name_of
from .spec import ArtifactSpec, DeviceSpec, align

_CHUNK = 1 << 22


@dataclass(frozen=True, slots=True)
class WrittenWeights:
    """The data about the blob that the artifact stores: its hash, and the header of the external file (else empty)."""

    sha256: str
    header: bytes = b""


def _chunks(array: Array) -> Iterator[memoryview]:
    """Yields the array's elements in row-major order; a view with another layout is copied piece by piece."""
    if array.size == 0:
        return
    if not array.flags.c_contiguous and array.ndim > 1 and array.nbytes > _CHUNK:
        for part in array:
            yield from _chunks(part)
        return
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK].data


def stream_weights(spec: ArtifactSpec | DeviceSpec, file: BinaryIO) -> str:
    """Writes the blob to a file, and returns its hash."""
    digest = hashlib.sha256()

    def write(data: bytes | memoryview) -> None:
        digest.update(data)
        file.write(data)

    position = 0
    for weight in sorted(spec.weights or (), key=lambda w: (w.offset, w.nbytes)):
        write(bytes(weight.offset - position))
        data = weight.read()
        assert weight.type.shape == data.shape, (weight.name, weight.type, data.shape)
        assert weight.type.dtype.numpy == data.dtype, (weight.name, weight.type, data.dtype)
        for chunk in _chunks(data):
            write(chunk)
        position = weight.offset + weight.nbytes
    write(bytes(spec.weight_bytes - position))
    return digest.hexdigest()


def write_blob(spec: ArtifactSpec | DeviceSpec, path: Path) -> WrittenWeights:
    with path.open("wb") as file:
        return WrittenWeights(stream_weights(spec, file))


def _header(spec: ArtifactSpec, sha256: str) -> bytes:
    tensors: dict[str, object] = {"__metadata__": {"format": "nacre", "sha256": sha256}}

    def pad(start: int, end: int) -> None:
        if end > start:
            tensors[f"nacre.padding.{start}"] = {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}

    position = 0
    for weight in sorted(spec.weights, key=lambda w: (w.offset, w.nbytes)):
        pad(position, weight.offset)
        position = weight.offset + weight.nbytes
        assert weight.name not in tensors, weight.name
        tensors[weight.name] = {
            "dtype": name_of(weight.type.dtype),
            "shape": list(weight.type.shape),
            "data_offsets": [weight.offset, position],
        }
    pad(position, spec.weight_bytes)
    text = json.dumps(tensors, separators=(",", ":"), ensure_ascii=True).encode()
    size = align(8 + len(text)) - 8
    return size.to_bytes(8, "little") + text.ljust(size)


def write_safetensors(spec: ArtifactSpec, path: Path) -> WrittenWeights:
    """Writes the blob as a standard safetensors file; its metadata contain the hash of the data."""
    with path.open("wb") as file:
        file.write(_header(spec, "0" * 64))
        sha256 = stream_weights(spec, file)
        header = _header(spec, sha256)
        file.seek(0)
        file.write(header)
    return WrittenWeights(sha256, header)


def fnv1a(data: bytes) -> int:
    """Returns the 64-bit FNV-1a hash, as the C runtime computes it: http://www.isthe.com/chongo/tech/comp/fnv/"""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value
