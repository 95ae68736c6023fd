"""The graphs of an artifact: the graph as written and the graph of its kernels, as text, in a section of the file.

The section is compressed and is not part of the loaded image: a process that calls the artifact neither reads nor maps
it. It is found by the section headers, which `strip --strip-section-headers` removes. Its contents are JSON:

    {"format": 1, "options": {"level": 2, ...}, "tensors": [["weight", "f32[10]", 0], ...], "graphs": [TEXT, TEXT]}

Data of large constants is not part of the texts. `tensors` are the name, type and offset of each stored weight.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import DTYPES, Array
from ...runtime.library import ArtifactError
from .spec import ArtifactSpec, JsonValue

SECTION = ".nacre.graph"
WEIGHTS = ".nacre.weights"
_FORMAT = 1
_HEADER = struct.Struct("<IIQQQQIIQQ")
_MOST = 1 << 30
"""The maximum length of the texts, which bounds the memory that a damaged file can claim."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A weight in the section of weights: `type` is that of the stored form."""

    name: str
    type: str
    offset: int


@dataclass(frozen=True, slots=True)
class StoredGraphs:
    """The contents of the section: the text as written and the text after all passes. `weights` is the position of the
    weights in the file; None if they are not in it."""

    options: Mapping[str, JsonValue]
    tensors: Sequence[StoredTensor]
    written: str
    compiled: str
    weights: int | None

    def read(self, path: Path, tensor: StoredTensor) -> Array | None:
        """Returns the stored form of a weight, which is read from the artifact at `path` where it is used; None if the
        file has no weights, or if the elements are no numbers."""
        name, _, sizes = tensor.type.removesuffix("]").partition("[")
        if self.weights is None or name not in DTYPES:
            return None
        dtype, shape = DTYPES[name].numpy, tuple(int(size) for size in sizes.split(",") if size)
        if not math.prod(shape):
            return np.zeros(shape, dtype)
        return np.memmap(path, dtype, "r", self.weights + tensor.offset, shape)


def pack_graphs(spec: ArtifactSpec) -> bytes:
    """Returns the contents of the section; empty if the artifact carries no graphs."""
    if not spec.graphs:
        return b""
    tensors: list[JsonValue] = [[w.name, str(w.type), w.offset] for w in spec.weights]
    data: dict[str, JsonValue] = {"format": _FORMAT, "options": dict(spec.options), "tensors": tensors}
    text = json.dumps({**data, "graphs": list(spec.graphs)}, separators=(",", ":"))
    return zlib.compress(text.encode(), 9)


def read_graphs(path: Path) -> StoredGraphs | None:
    """Returns the graphs of an artifact for any machine, without running its code; None if it carries none.

    Raises OSError if the file cannot be read, ArtifactError if it is no library.
    """
    with path.open("rb") as file:
        try:
            sections = _sections(file)
            if SECTION not in sections:
                return None
            start, size = sections[SECTION]
            file.seek(start)
            packed = file.read(min(size, _MOST))
        except OverflowError:  # a position that no file has
            return None
    try:
        unpacking = zlib.decompressobj()
        data = json.loads(unpacking.decompress(packed, _MOST))
        if not unpacking.eof or data["format"] != _FORMAT:
            return None
        written, compiled = data["graphs"]
        tensors = [StoredTensor(*row) for row in data["tensors"]]
        weights = sections.get(WEIGHTS)
        return StoredGraphs(data["options"], tensors, written, compiled, None if weights is None else weights[0])
    except (zlib.error, ValueError, KeyError, TypeError):
        return None


def _sections(file: BinaryIO) -> dict[str, tuple[int, int]]:
    """Returns the position and the size of each section of a 64-bit little-endian ELF file. Raises ArtifactError for
    another file."""
    head = file.read(64)
    if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
        raise ArtifactError(f"`{file.name}` is not an artifact: it is not a shared library")
    (table,) = struct.unpack_from("<Q", head, 40)
    size, count, names = struct.unpack_from("<HHH", head, 58)
    file.seek(table)
    data = file.read(size * count)
    if size != _HEADER.size or len(data) < size * count or names >= count:
        return {}
    headers = [_HEADER.unpack_from(data, size * number) for number in range(count)]
    file.seek(headers[names][4])
    strings = file.read(headers[names][5])
    found = {}
    for header in headers:
        end = strings.find(b"\0", header[0])
        found[strings[header[0] : end].decode(errors="replace")] = (header[4], header[5])
    return found
