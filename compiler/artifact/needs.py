"""The libraries that an ELF file needs, each with the highest version of its symbols, as the dynamic loader reads them.

A version is a name such as `GLIBC_2.17`. Names with a common prefix are compared number by number, others as texts.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...dialect.lazy_dataclass import dataclass

_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRINGS, _VERSIONS, _VERSION_COUNT = 1, 5, 0x6FFFFFFE, 0x6FFFFFFF


@dataclass(frozen=True, slots=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def read_needs(path: Path) -> Mapping[str, str | None]:
    """Returns for each needed library, in the order of the file, the highest required version; None if any version
    works.

    The file must be a complete 64-bit ELF file in this machine's byte order, as `runtime.library.read_note` checks.
    """
    data = path.read_bytes()
    start, size, count = struct.unpack_from("=Q", data, 32)[0], *struct.unpack_from("=HH", data, 54)
    segments = [_segment(data, start + i * size) for i in range(count)]
    dynamic = [pair for s in segments if s.kind == _DYNAMIC for pair in struct.iter_unpack("=QQ", _bytes(data, s))]
    single = dict(dynamic)
    strings = _offset(segments, single[_STRINGS])

    def text(offset: int) -> str:
        first = strings + offset
        return data[first : data.index(b"\0", first)].decode()

    needs: dict[str, str | None] = {text(value): None for tag, value in dynamic if tag == _NEEDED}
    if _VERSIONS in single:
        for file, version in _versions(data, _offset(segments, single[_VERSIONS]), single[_VERSION_COUNT]):
            library, name = text(file), text(version)
            needs[library] = max(needs.get(library) or name, name, key=_order)
    return needs


def _segment(data: bytes, at: int) -> _Segment:
    kind, _, offset, address, _, size = struct.unpack_from("=IIQQQQ", data, at)
    return _Segment(kind, offset, address, size)


def _bytes(data: bytes, segment: _Segment) -> bytes:
    return data[segment.offset : segment.offset + segment.size]


def _offset(segments: list[_Segment], address: int) -> int:
    """Returns the file offset of an address in the loaded image."""
    held = next(s for s in segments if s.kind == _LOAD and s.address <= address < s.address + s.size)
    return address - held.address + held.offset


def _versions(data: bytes, at: int, count: int) -> Iterator[tuple[int, int]]:
    """Yields the string offsets of each library's name and of one of its required versions."""
    for _ in range(count):
        _, versions, file, first, following = struct.unpack_from("=HHIII", data, at)
        entry = at + first
        for _ in range(versions):
            _, _, _, name, step = struct.unpack_from("=IHHII", data, entry)
            yield file, name
            entry += step
        at += following


def _order(version: str) -> tuple[str, tuple[int, ...], str]:
    prefix, _, rest = version.rpartition("_")
    return prefix, tuple(int(number) for number in re.findall(r"\d+", rest)), rest
