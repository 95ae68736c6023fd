"""Guarded memory: tensors between inaccessible pages, and guard bytes that must not change.

An access beyond a tensor on the side of an inaccessible page kills the process; `Memory.check` finds writes on the
other side. Linux only.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Collection

import numpy as np

from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import Array

PAGE = mmap.PAGESIZE
_CANARY = 0xC7
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


@dataclass
class Buffer:
    """A tensor's bytes, and the guard bytes around them on its pages."""

    name: str
    address: int
    data: Array
    before: Array
    after: Array


class Memory:
    """Guarded memory, mapped while the object lives. `at_end` puts tensors at the end of their pages, else at the
    start."""

    def __init__(self, sizes: dict[str, int], *, at_end: bool, alignments: dict[str, int]) -> None:
        pages = {name: max(1, -(-size // PAGE)) for name, size in sizes.items()}
        total = (sum(pages.values()) + len(pages) + 1) * PAGE
        self._map = mmap.mmap(-1, total)
        whole = np.frombuffer(self._map, np.uint8)
        start = whole.ctypes.data
        self._forbid(start)
        self.buffers: dict[str, Buffer] = {}
        cursor = PAGE
        for name, size in sizes.items():
            room = whole[cursor : cursor + pages[name] * PAGE]
            first = (room.size - size) // alignments.get(name, 1) * alignments.get(name, 1) if at_end else 0
            buffer = Buffer(
                name, start + cursor + first, room[first : first + size], room[:first], room[first + size :]
            )
            buffer.before[:] = buffer.after[:] = _CANARY
            self.buffers[name] = buffer
            cursor += pages[name] * PAGE
            self._forbid(start + cursor)
            cursor += PAGE

    def _forbid(self, address: int) -> None:
        result = _libc.mprotect(address, PAGE, 0)
        assert result == 0, ctypes.get_errno()

    def freeze(self, names: Collection[str] | None = None) -> None:
        """Makes the pages of the named tensors, or of all, read-only: a write kills the process."""
        for name, buffer in self.buffers.items():
            if names is None or name in names:
                start = buffer.address - buffer.before.nbytes
                room = buffer.before.nbytes + buffer.data.nbytes + buffer.after.nbytes
                result = _libc.mprotect(start, room, mmap.PROT_READ)
                assert result == 0, ctypes.get_errno()

    def check(self) -> str | None:
        """Returns a description of the first overwritten guard bytes, or None."""
        for buffer in self.buffers.values():
            for side, room in (("before", buffer.before), ("behind", buffer.after)):
                wrong = np.flatnonzero(room != _CANARY)
                if wrong.size:
                    far = room.size - int(wrong[-1]) if side == "before" else int(wrong[0]) + 1
                    return f"{wrong.size} bytes {side} `{buffer.name}` were written, {far} away from it"
        return None
