"""The outputs of a build: the library, the texts of earlier stages, and files beside it, one record for each kind.

All outputs are generated before any is written, and each file is replaced atomically.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from pathlib import Path

from ..dialect.lazy_dataclass import dataclass
from ..dialect.printer import print_module
from .artifact.header import emit_header
from .artifact.python_loader import emit_python, loader_path
from .base.files import check_writable, replacing
from .pipeline import Build
from .stages import BUDGETS, DESCRIPTION, ENTRIES, PASSES

LIBRARY = "so"


@dataclass(frozen=True, slots=True)
class EmitKind:
    """A value of `--emit`.

    path_of: the path of the output, from that of the library.
    needs: the results of the build that it is made from.
    contents: the bytes of the file, from the build and the file name of the library; the library itself has none.
    text: the dumped text that it consists of, if it is one.
    """

    path_of: Callable[[Path], Path]
    needs: tuple[str, ...]
    contents: Callable[[Build, str], bytes] | None
    text: str = ""


def _beside(suffix: str) -> Callable[[Path], Path]:
    return lambda library: library.with_suffix(suffix)


def _text(suffix: str, name: str) -> EmitKind:
    needs = (BUDGETS.gives, ENTRIES.gives)
    return EmitKind(_beside(suffix), needs, lambda build, library: build.dumps.texts[name].encode(), name)


def _graph(build: Build, library: str) -> bytes:
    assert build.optimized is not None
    return print_module(build.optimized).encode()


def _object(build: Build, library: str) -> bytes:
    assert build.objects is not None
    return build.merge(build.objects)


def _header(build: Build, library: str) -> bytes:
    assert build.spec is not None
    return emit_header(build.spec).encode()


def _python(build: Build, library: str) -> bytes:
    assert build.spec is not None
    return emit_python(build.spec, library).encode()


EMIT_KINDS: Mapping[str, EmitKind] = {
    LIBRARY: EmitKind(lambda library: library, (BUDGETS.gives, ENTRIES.gives, DESCRIPTION.gives), None),
    "graph": EmitKind(_beside(".graph"), (PASSES.gives,), _graph),
    "mlir": _text(".mlir", "linalg"),
    "llvm": _text(".ll", "module-ir"),
    "asm": _text(".s", "module-assembly"),
    "obj": EmitKind(_beside(".o"), (BUDGETS.gives, ENTRIES.gives), _object),
    "header": EmitKind(_beside(".h"), (BUDGETS.gives, DESCRIPTION.gives), _header),
    "python": EmitKind(loader_path, (BUDGETS.gives, DESCRIPTION.gives), _python),
}
"""The kinds by the names that `--emit` takes."""


def output_paths(kinds: Collection[str], library: Path) -> dict[str, Path]:
    """Returns the path of each emit kind: beside the library, with its own suffix."""
    return {name: kind.path_of(library) for name, kind in EMIT_KINDS.items() if name in kinds}


def kept_texts(kinds: Collection[str]) -> list[str]:
    """Returns the names of the texts that dumps must keep for the kinds."""
    return [kind.text for name, kind in EMIT_KINDS.items() if name in kinds and kind.text]


def write_outputs(build: Build, paths: Mapping[str, Path], library: str) -> None:
    """Generates the emit kinds and writes them. Raises DiagnosticError and CompilerError, and then writes no file.

    The dumps of the build keep `kept_texts`. `library` is the file name that the Python loader looks for.
    """
    for path in paths.values():
        check_writable(path)
    kinds = {name: EMIT_KINDS[name] for name in paths}
    build.make(*(result for kind in kinds.values() for result in kind.needs))
    contents = {name: kind.contents(build, library) for name, kind in kinds.items() if kind.contents is not None}
    with ExitStack() as stack:
        for name, data in contents.items():
            file = stack.enter_context(replacing(paths[name]))
            file.write(data)
            file.flush()
        if LIBRARY in paths:
            assert build.spec is not None and build.objects is not None
            build.assemble(build.spec, build.objects, paths[LIBRARY])
