"""Huge pages for the process of the tests, so that its forks are cheap.

Thousands of checks run in forks of this process. Its memory is half a gigabyte, most of it the packages that tests
import. A fork copies the table of all pages, which takes 20 ms of processor time for pages of 4 KiB, and 6 ms where
pages of 2 MiB take their place.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

_COLLAPSE = 25
"""MADV_COLLAPSE of madvise(2), since Linux 6.1: pages that are in use become huge ones."""
_SIZE = 2 << 20
_MAPS = Path("/proc/self/maps")
_MOST_FORKS = 20
"""Forks after which the memory is moved again: where this process writes while a child shares a huge page with it, the
page becomes small ones again."""
_forks = 0


def use_huge_pages_again() -> None:
    """Moves the memory into huge pages again, if the process has forked often meanwhile."""
    if _forks >= _MOST_FORKS:
        use_huge_pages()


def _count() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_parent=_count)


def use_huge_pages() -> None:
    """Moves the private memory of this process into huge pages. Changes nothing where the system has none."""
    global _forks
    _forks = 0
    if not hasattr(mmap, "MADV_HUGEPAGE") or not _MAPS.exists():
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in _MAPS.read_text().splitlines():
        addresses, access, _, _, inode, *_ = line.split()
        if access == "rw-p" and inode == "0":
            start, end = (int(address, 16) for address in addresses.split("-"))
            first, last = -(-start // _SIZE) * _SIZE, end // _SIZE * _SIZE
            if first < last:
                madvise(first, last - first, _COLLAPSE)
