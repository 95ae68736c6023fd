"""Assembly that includes the data of an artifact: its description, its note, and its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from .graphs import SECTION, WEIGHTS
from .json_descriptions import ABI_VERSION


def emit_elf_blob(folder: Path, digest: bytes, weights: Mapping[str, str], graphs: str | None = None) -> str:
    """Returns assembly for any ELF machine. It includes files of the folder, from which it is assembled; `weights` are
    those of weights, by symbol, and `graphs` is that of the graphs, which no process loads."""
    lines = [
        '.section .rodata.nacre,"a",%progbits',
        ".globl nacre_description",
        ".hidden nacre_description",
        "nacre_description:",
        '.incbin "description.json"',
        ".byte 0",
        ".globl nacre_calls",
        ".hidden nacre_calls",
        "nacre_calls:",
        '.incbin "calls.json"',
        ".byte 0",
        '.section .note.nacre,"a",%note',
        ".balign 4",
        f".4byte 6, {4 + len(digest)}, 1",
        '.ascii "Nacre\\0\\0\\0"',
        f".4byte {ABI_VERSION}",
        ".byte " + ", ".join(map(str, digest)),
    ]
    for symbol, file in weights.items():
        lines += [
            f'.section {WEIGHTS},"a",%progbits',
            ".balign 4096",
            f".globl {symbol}",
            f".hidden {symbol}",
            f"{symbol}:",
            f'.incbin "{file}"',
        ]
    if graphs is not None:
        lines += [f'.section {SECTION},"",%progbits', f'.incbin "{graphs}"']
    return "\n".join([*lines, '.section .note.GNU-stack,"",%progbits', ""])


def emit_wasm_blob(folder: Path, digest: bytes, weights: Mapping[str, str], graphs: str | None = None) -> str:
    """Returns assembly for WebAssembly, where a symbol has a size. The note is a custom section of the module. Graphs
    are left out."""
    lines = _wasm_symbol(folder, "nacre_description", "description.json", text=True)
    lines += _wasm_symbol(folder, "nacre_calls", "calls.json", text=True)
    for symbol, file in weights.items():
        lines += _wasm_symbol(folder, symbol, file, text=False)
    note = ABI_VERSION.to_bytes(4, "little") + digest
    escaped = "".join(f"\\{byte:03o}" for byte in note)
    return "\n".join([*lines, '.section .custom_section.nacre,"",@', f'.ascii "{escaped}"', ""])


def _wasm_symbol(folder: Path, symbol: str, file: str, *, text: bool) -> list[str]:
    return [
        f'.section .rodata.{symbol},"",@',
        ".p2align 6",
        f".globl {symbol}",
        f".hidden {symbol}",
        f".type {symbol},@object",
        f"{symbol}:",
        f'.incbin "{file}"',
        *([".int8 0"] if text else []),
        f".size {symbol}, {(folder / file).stat().st_size + text}",
    ]


BLOB_WRITERS: Mapping[str, Callable[[Path, bytes, Mapping[str, str], str | None], str]] = {
    "elf": emit_elf_blob,
    "wasm": emit_wasm_blob,
}
"""By the object format of a system."""
