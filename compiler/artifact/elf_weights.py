"""Writes weights as an object file of ELF with one section and one symbol, as they are read.

An assembler would hold all weights in memory, and write them to a second file first.
"""

from __future__ import annotations

import struct
from pathlib import Path

from .graphs import WEIGHTS
from .spec import ArtifactSpec, DeviceSpec
from .weights import WrittenWeights, stream_weights

ALIGNMENT = 4096
"""The alignment of the weights in the library, and their offset in the object."""
_HEADER, _SECTION, _SYMBOL = "HHIQQQIHHHHHH", "IIQQQQIIQQ", "IBBHQQ"
"""The fields after the identification in a file's header, those of a section's header, and those of a symbol:
https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html"""
_RELOCATABLE, _VERSION = 1, 1
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_ALLOC = 2
_GLOBAL_OBJECT, _HIDDEN = 1 << 4 | 1, 2


def write_weights_object(spec: ArtifactSpec | DeviceSpec, path: Path, symbol: str, other: bytes) -> WrittenWeights:
    """Writes an object that defines the weights as a hidden symbol, for the same machine as another object of ELF."""
    order = "<" if other[5] == 1 else ">"
    machine, flags = struct.unpack_from(f"{order}H", other, 18)[0], struct.unpack_from(f"{order}I", other, 48)[0]
    names = ["", WEIGHTS, ".note.GNU-stack", ".symtab", ".strtab", symbol]
    texts = "\0".join([*names, ""]).encode()
    starts = {name: texts.index(f"\0{name}\0".encode()) + 1 for name in names[1:]} | {"": 0}

    def pack(fields: str, *values: int) -> bytes:
        return struct.pack(order + fields, *values)

    size = spec.weight_bytes
    symbols = pack(_SYMBOL, 0, 0, 0, 0, 0, 0) + pack(_SYMBOL, starts[symbol], _GLOBAL_OBJECT, _HIDDEN, 1, 0, size)
    # Weights are a multiple of 64 bytes, so all that follows is aligned.
    at_symbols = ALIGNMENT + size
    at_texts = at_symbols + len(symbols)
    end = at_texts + len(texts)
    at_sections = -(-end // 8) * 8
    sections = [
        pack(_SECTION, *[0] * 10),
        pack(_SECTION, starts[WEIGHTS], _PROGBITS, _ALLOC, 0, ALIGNMENT, size, 0, 0, ALIGNMENT, 0),
        pack(_SECTION, starts[".note.GNU-stack"], _PROGBITS, 0, 0, at_symbols, 0, 0, 0, 1, 0),
        # The section of its names, and the first global symbol.
        pack(_SECTION, starts[".symtab"], _SYMTAB, 0, 0, at_symbols, len(symbols), 4, 1, 8, struct.calcsize(_SYMBOL)),
        pack(_SECTION, starts[".strtab"], _STRTAB, 0, 0, at_texts, len(texts), 0, 0, 1, 0),
    ]
    sizes = (64, 0, 0, len(sections[0]), len(sections), len(sections) - 1)
    header = other[:16] + pack(_HEADER, _RELOCATABLE, machine, _VERSION, 0, 0, at_sections, flags, *sizes)
    with path.open("wb") as file:
        file.write(header.ljust(ALIGNMENT, b"\0"))
        sha256 = stream_weights(spec, file)
        file.write(symbols + texts + bytes(at_sections - end) + b"".join(sections))
    return WrittenWeights(sha256)
