"""Artifacts as files and as libraries in memory: validation, machine compatibility, and the table of functions.

A file is read and checked before the dynamic loader opens it, so that a wrong or truncated one is an exception. This
module does not handle arrays.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import struct
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

ABI_VERSION = 1
_MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}
word_at = ctypes.c_size_t.from_address


class NacreError(Exception):
    """An error of an artifact or a call of it."""


class ArtifactError(NacreError):
    """A file that is not an artifact, or cannot be loaded here."""


class MissingFileError(ArtifactError, FileNotFoundError):
    """A path without a file."""


class UnreadableFileError(ArtifactError, OSError):
    """A file that exists and cannot be read."""


class OutOfRangeError(NacreError, IndexError):
    """An index that an operator takes is out of range; the contents of the call's results are unspecified."""


class BusyError(NacreError):
    """A call on a session whose states another call is using."""


class ArgumentError(NacreError, ValueError):
    """A call with arguments that the entry does not accept."""


def _function(result: type | None, *arguments: type) -> Callable[[int], Callable[..., int]]:
    return ctypes.CFUNCTYPE(result, *arguments)


_I32, _I64, _POINTER, _TEXT = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p
_API: Sequence[tuple[str, Callable[[int], Callable[..., int]]]] = (
    ("describe", _function(_TEXT)),
    ("last_error", _function(_TEXT)),
    ("find_entry", _function(_I32, _TEXT)),
    ("session_create", _function(_I32, _POINTER, _POINTER)),
    ("session_destroy", _function(None, _POINTER)),
    ("session_reserve", _function(_I32, _POINTER, _I64)),
    ("bind", _function(_I32, _I32, _POINTER, _I32, _POINTER)),
    ("result_shape", _function(_I32, _I32, _I32, _POINTER, _POINTER, _I32)),
    ("workspace_bytes", _function(_I64, _I32, _POINTER)),
    ("run", _function(_I32, _POINTER, _I32, _POINTER, _I32, _POINTER, _I32, _POINTER, _I64)),
    ("call", _function(_I32, _POINTER)),
    ("describe_calls", _function(_TEXT)),
    ("observe", _function(_I32, _POINTER, _POINTER)),
    ("record", _function(None, _POINTER, _POINTER)),
    ("session_bind", _function(_I32, _POINTER, _I32, _POINTER, _I32, _POINTER)),
    ("session_bytes", _function(_I64, _POINTER, _I32)),
    ("session_fork", _function(_I32, _POINTER, _POINTER, _POINTER)),
    ("find_state", _function(_I32, _TEXT)),
    ("state_shape", _function(_I32, _POINTER, _I32, _POINTER, _I32)),
    ("state_read", _function(_I32, _POINTER, _I32, _POINTER, _I64)),
    ("state_write", _function(_I32, _POINTER, _I32, _POINTER, _I64)),
    ("state_reset", _function(_I32, _POINTER, _I32)),
    ("session_device", _function(_I32, _POINTER)),
    ("session_stream", _function(_I32, _POINTER, _POINTER)),
    ("state_data", _function(_I32, _POINTER, _I32, _POINTER)),
)
"""The functions of `nacre_api`, which follow its two 32-bit fields. See abi.h."""


class Note(NamedTuple):
    """The contents of an artifact's note, read before any of its code runs."""

    abi: int
    hash: str


def read_note(path: str | os.PathLike[str]) -> Note:
    """Checks that a file is a complete artifact for this machine. Raises ArtifactError."""
    shown = f"`{os.fspath(path)}`"
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(64)
            if head[:4] == b"\0asm":
                raise ArtifactError(f"{shown} is for WebAssembly, this machine is {platform.machine()}")
            if len(head) < 64 or head[:4] != b"\x7fELF":
                raise ArtifactError(f"{shown} is not an artifact: it is not a shared library")
            if head[4] != 2 or head[5] != (1 if sys.byteorder == "little" else 2):
                raise ArtifactError(f"{shown} is for another kind of machine")
            machine, segments, sections = struct.unpack_from("=H", head, 18)[0], *struct.unpack_from("=QQ", head, 32)
            entry_size, count, section_size, section_count = struct.unpack_from("=HHHH", head, 54)
            if _MACHINES.get(machine, platform.machine()) != platform.machine():
                raise ArtifactError(f"{shown} is for {_MACHINES[machine]}, this machine is {platform.machine()}")
            notes: list[tuple[int, int]] = []
            whole = max(segments + entry_size * count, sections + section_size * section_count) <= size
            if whole:
                file.seek(segments)
                table = file.read(entry_size * count)
                for i in range(count if entry_size >= 56 else 0):
                    kind, _, offset, _, _, stored = struct.unpack_from("=IIQQQQ", table, i * entry_size)
                    whole = whole and offset + stored <= size
                    if kind == 4:
                        notes.append((offset, stored))
            if not whole:
                raise ArtifactError(f"{shown} is truncated")
            for offset, stored in notes:
                file.seek(offset)
                found = _find_note(file.read(min(stored, 1 << 16)))
                if found:
                    return found
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise MissingFileError(error.errno, error.strerror, os.fspath(path)) from None
        raise UnreadableFileError(error.errno, error.strerror, os.fspath(path)) from None
    raise ArtifactError(f"{shown} is not an artifact: it is a shared library not written by Nacre")


def _find_note(data: bytes) -> Note | None:
    position = 0
    while position + 12 <= len(data):
        name_size, size, kind = struct.unpack_from("=III", data, position)
        start = position + 12 + (name_size + 3) // 4 * 4
        if (
            data[position + 12 : position + 12 + name_size] == b"Nacre\0"
            and (kind, size) == (1, 36)
            and start + size <= len(data)
        ):
            return Note(struct.unpack_from("=I", data, start)[0], data[start + 4 : start + size].hex())
        position = start + (size + 3) // 4 * 4
    return None


class Library:
    """An artifact in memory, with the functions of its table by name: an older artifact lacks the last of them."""

    def __init__(self, path: str) -> None:
        try:
            self.handle = ctypes.CDLL(path)
            get_api = self.handle.nacre_get_api
        except (OSError, AttributeError) as error:
            raise ArtifactError(f"cannot load `{path}`: {error}") from None
        get_api.restype = ctypes.c_void_p
        table = get_api(ctypes.c_uint32(ABI_VERSION))
        if not table:
            raise ArtifactError(f"`{path}` does not offer version {ABI_VERSION} of the interface")
        offered = (ctypes.c_uint32.from_address(table + 4).value - 8) // 8
        self.functions = {
            name: kind(word_at(table + 8 + 8 * i).value) for i, (name, kind) in enumerate(_API[:offered])
        }  # fmt: skip
        text: object = self.functions["describe"]()
        assert isinstance(text, bytes)
        self.text = text
        self.description = json.loads(text)

    def error(self) -> str:
        text: object = self.functions["last_error"]()
        return text.decode(errors="replace") if isinstance(text, bytes) else ""


def open_library(path: str) -> Library:
    """Opens the library that the file currently contains.

    The dynamic loader identifies a library by its path, and returns the old one for a path that it has seen. A file
    that was replaced is therefore opened under another spelling of its path, until the hash matches that of the file.
    """
    folder, name = os.path.split(os.path.abspath(path))
    for _ in range(1000):
        note = read_note(path)
        if note.abi != ABI_VERSION:
            raise ArtifactError(f"`{path}` has version {note.abi} of the interface, this loader takes {ABI_VERSION}")
        library = Library(os.path.join(folder, name))
        if library.description["hash"] == note.hash:
            return library
        folder = os.path.join(folder, ".")
    raise ArtifactError(f"`{path}` changes while it is loaded")
