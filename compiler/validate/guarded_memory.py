"""Guarded memory: tensors between inaccessible pages, and guard bytes that must not change.

An access beyond a tensor on the side of an inaccessible page kills the process; `Memory.check` finds writes on the
other side. Linux only.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import Array

PAGE = mmap.PAGESIZE
_CANARY = 0xC7
_GUARD = bytes([_CANARY]) * PAGE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


@dataclass(slots=True)
class Buffer:
    """A tensor's bytes. `room` are the pages that hold them, `taken` are the bytes themselves, both as offsets in the
    mapping: guard bytes are the rest of the pages, less than a page on each side."""

    name: str
    address: int
    data: Array
    room: tuple[int, int]
    taken: tuple[int, int]


class _Mapping:
    """Rooms of whole pages, each between inaccessible ones; all of them can be read and written."""

    def __init__(self, pages: Sequence[int]) -> None:
        self.map = mmap.mmap(-1, (sum(pages) + len(pages) + 1) * PAGE)
        self.whole = np.frombuffer(self.map, np.uint8)
        self.start = self.whole.ctypes.data
        self.rooms: list[tuple[int, int]] = []
        self.protect(0, PAGE, 0)
        cursor = PAGE
        for count in pages:
            end = cursor + count * PAGE
            self.rooms.append((cursor, end))
            self.protect(end, PAGE, 0)
            cursor = end + PAGE

    def protect(self, offset: int, size: int, access: int) -> None:
        result = _libc.mprotect(self.start + offset, size, access)
        assert result == 0, ctypes.get_errno()


_MOST_PAGES, _MOST_KINDS = 64, 64
"""The most pages of a mapping that is used again, and the most mappings with different rooms. Larger ones are rare."""
_idle: dict[tuple[int, ...], list[_Mapping]] = {}
"""Mappings that no memory uses, by the pages of their rooms: making one takes longer than a short call."""
os.register_at_fork(after_in_child=_idle.clear)  # their bytes are those of the parent, too


class Memory:
    """Guarded memory, mapped while the object lives. `at_end` puts tensors at the end of their pages, else at the
    start."""

    def __init__(self, sizes: Mapping[str, int], *, at_end: bool, alignments: Mapping[str, int]) -> None:
        self._pages = tuple(max(1, -(-size // PAGE)) for size in sizes.values())
        idle = _idle.get(self._pages)
        self._mapping = mapping = idle.pop() if idle else _Mapping(self._pages)
        self._frozen: list[Buffer] = []
        self.buffers: dict[str, Buffer] = {}
        for (name, size), (first, end) in zip(sizes.items(), mapping.rooms, strict=True):
            begin, alignment = first, alignments.get(name, 1)
            if at_end:
                begin += (end - first - size) // alignment * alignment
            data = mapping.whole[begin : begin + size]
            buffer = Buffer(name, mapping.start + begin, data, (first, end), (begin, begin + size))
            mapping.map[first:begin] = _GUARD[: begin - first]
            mapping.map[begin + size : end] = _GUARD[: end - begin - size]
            self.buffers[name] = buffer

    def freeze(self, names: Collection[str] | None = None) -> None:
        """Makes the pages of the named tensors, or of all, read-only: a write kills the process."""
        for name in self.buffers if names is None else names:
            begin, end = self.buffers[name].room
            self._mapping.protect(begin, end - begin, mmap.PROT_READ)
            self._frozen.append(self.buffers[name])

    def close(self) -> None:
        """Leaves the pages to other memory. Nothing may use the tensors afterwards."""
        for buffer in self._frozen:
            begin, end = buffer.room
            self._mapping.protect(begin, end - begin, mmap.PROT_READ | mmap.PROT_WRITE)
        if len(_idle) >= _MOST_KINDS:
            _idle.clear()
        if sum(self._pages) <= _MOST_PAGES:
            _idle.setdefault(self._pages, []).append(self._mapping)
        self.buffers.clear()

    def check(self) -> str | None:
        """Returns a description of the first overwritten guard bytes, or None."""
        data = self._mapping.map
        for buffer in self.buffers.values():
            (begin, end), (first, last) = buffer.room, buffer.taken
            for side, guard in (("before", data[begin:first]), ("behind", data[last:end])):
                if guard == _GUARD[: len(guard)]:
                    continue
                wrong = [place for place, byte in enumerate(guard) if byte != _CANARY]
                far = len(guard) - wrong[-1] if side == "before" else wrong[0] + 1
                return f"{len(wrong)} bytes {side} `{buffer.name}` were written, {far} away from it"
        return None
