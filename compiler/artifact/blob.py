"""The data object of an artifact, as assembly: tables, description, note, graphs, included weights, and the exported
function that is named like the artifact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ...dialect.lazy_dataclass import dataclass
from .assembly import FORMATS, Assembly, quote
from .graphs import SECTION
from .json_descriptions import ABI_VERSION
from .spec import ArtifactSpec
from .tables import CALLS, DESCRIPTION, write_tables
from .weights import WrittenWeights


@dataclass(frozen=True, slots=True)
class BlobFormat:
    """The parts of the data object that depend on the object format.

    weights: the directives that begin a section of weights, for those of a symbol, and their alignment. None: weights
        are an object of their own, see `elf_weights.py`.
    note: the directives of a note with the given contents.
    graphs: the directives of the section of graphs, for the name of their file.
    alias: the directives of an exported function that jumps to another one, by the instructions for that.
    """

    weights: tuple[Callable[[str], str], int] | None
    note: Callable[[bytes], tuple[str, ...]]
    graphs: Callable[[str], tuple[str, ...]]
    alias: Callable[[str, str, tuple[str, ...]], tuple[str, ...]]


ELF = BlobFormat(
    weights=None,
    note=lambda content: (
        '.section .note.nacre,"a",%note',
        ".p2align 2",
        f".4byte 6, {len(content)}, 1",
        f".ascii {quote(b'Nacre' + bytes(3))}",
        f".ascii {quote(content)}",
    ),
    graphs=lambda file: (f'.section {SECTION},"",%progbits', f'.incbin "{file}"'),
    alias=lambda name, target, jump: (
        ".text",
        ".p2align 4",
        f".globl {name}",
        f".hidden {target}",
        f".type {name},@function",
        f"{name}:",
        *(line.format(target) for line in jump),
        f".size {name}, . - {name}",
    ),
)
WASM = BlobFormat(
    weights=(lambda symbol: f'.section .rodata.{symbol},"",@', 64),
    # The note is a custom section of the module.
    note=lambda content: ('.section .custom_section.nacre,"",@', f".ascii {quote(content)}"),
    graphs=lambda file: (),
    alias=lambda name, target, jump: (
        f".functype {target} (i32) -> (i32)",
        f'.section .text.{name},"",@',
        f".globl {name}",
        f".type {name},@function",
        f"{name}:",
        f".functype {name} (i32) -> (i32)",
        *(line.format(target) for line in jump),
        "end_function",
    ),
)
BLOB_FORMATS: Mapping[str, BlobFormat] = {"elf": ELF, "wasm": WASM}
"""The formats by their names in `System`."""
OFFERED = "nacre_offered_api"
"""The function of the runtime that the artifact's own function calls."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files that the data object includes, by their names in the folder from which it is assembled: two texts,
    weights by symbol, and the graphs, which no process loads."""

    folder: Path
    description: str
    calls: str
    weights: Mapping[str, str]
    graphs: str | None = None

    def size(self, file: str) -> int:
        return (self.folder / file).stat().st_size


def emit_blob(
    spec: ArtifactSpec,
    written: WrittenWeights,
    files: Files,
    digest: bytes,
    alias: str,
    jump: tuple[str, ...],
    kind: str,
) -> str:
    """Returns the assembly of the data object of an artifact in the object format `kind`. It exports `alias`, a
    function of the instructions `jump`."""
    out, format = Assembly(FORMATS[kind]), BLOB_FORMATS[kind]
    write_tables(out, spec, written)
    for symbol, file in ((DESCRIPTION, files.description), (CALLS, files.calls)):
        out.include(symbol, file, files.size(file), text=True)
    for symbol, file in files.weights.items():
        assert format.weights is not None, symbol
        begin, align = format.weights
        out.include(symbol, file, files.size(file), section=begin(symbol), align=align, text=False)
    out.lines += format.note(ABI_VERSION.to_bytes(4, "little") + digest)
    if files.graphs is not None:
        out.lines += format.graphs(files.graphs)
    out.lines += format.alias(alias, OFFERED, jump)
    return out.finish()
