"""Guarded memory: tensors between inaccessible pages, and guard bytes that must not change.

An access beyond a tensor on the side of an inaccessible page kills the process; `Memory.check` finds writes on the
other side. Linux only.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Collection, Mapping

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


class Memory:
    """Guarded memory, mapped while the object lives. `at_end` puts tensors at the end of their pages, else at the
    start."""

    def __init__(self, sizes: Mapping[str, int], *, at_end: bool, alignments: Mapping[str, int]) -> None:
        pages = {name: max(1, -(-size // PAGE)) for name, size in sizes.items()}
        total = (sum(pages.values()) + len(pages) + 1) * PAGE
        self._map = mmap.mmap(-1, total)
        whole = np.frombuffer(self._map, np.uint8)
        self._start = whole.ctypes.data
        self._protect(0, PAGE, 0)
        self.buffers: dict[str, Buffer] = {}
        cursor = PAGE
        for name, size in sizes.items():
            end = cursor + pages[name] * PAGE
            begin, alignment = cursor, alignments.get(name, 1)
            if at_end:
                begin += (end - cursor - size) // alignment * alignment
            data = whole[begin : begin + size]
            buffer = Buffer(name, self._start + begin, data, (cursor, end), (begin, begin + size))
            self._map[cursor:begin] = _GUARD[: begin - cursor]
            self._map[begin + size : end] = _GUARD[: end - begin - size]
            self.buffers[name] = buffer
            self._protect(end, PAGE, 0)
            cursor = end + PAGE

    def _protect(self, offset: int, size: int, access: int) -> None:
        result = _libc.mprotect(self._start + offset, size, access)
        assert result == 0, ctypes.get_errno()

    def freeze(self, names: Collection[str] | None = None) -> None:
        """Makes the pages of the named tensors, or of all, read-only: a write kills the process."""
        for name in self.buffers if names is None else names:
            begin, end = self.buffers[name].room
            self._protect(begin, end - begin, mmap.PROT_READ)

    def check(self) -> str | None:
        """Returns a description of the first overwritten guard bytes, or None."""
        for buffer in self.buffers.values():
            (begin, end), (first, last) = buffer.room, buffer.taken
            for side, guard in (("before", self._map[begin:first]), ("behind", self._map[last:end])):
                if guard == _GUARD[: len(guard)]:
                    continue
                wrong = [place for place, byte in enumerate(guard) if byte != _CANARY]
                far = len(guard) - wrong[-1] if side == "before" else wrong[0] + 1
                return f"{len(wrong)} bytes {side} `{buffer.name}` were written, {far} away from it"
        return None
