"""The outputs of a build: the library, the texts of earlier stages, and files beside it.

All outputs are generated before any is written, and each file is replaced atomically.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path

from ..dialect.printer import print_module
from .artifact.header import emit_header
from .artifact.python_loader import emit_python, loader_path
from .artifact.spec import ArtifactSpec
from .base.files import check_writable, replacing
from .pipeline import Build

LIBRARY = "so"
STAGES: Mapping[str, str] = {"mlir": "linalg", "llvm": "module-ir", "asm": "module-assembly"}
"""The emit kinds that are the text of a stage of code generation, or of all its kernels and entries as one module."""
SUFFIXES: Mapping[str, str] = {
    "graph": ".graph",
    "mlir": ".mlir",
    "llvm": ".ll",
    "asm": ".s",
    "obj": ".o",
    "header": ".h",
}
FORMS = (LIBRARY, *SUFFIXES, "python")

_WITH_CODE = frozenset({LIBRARY, "obj", *STAGES})
_WITH_WEIGHTS = frozenset({LIBRARY, "header", "python"})


def place_forms(forms: Collection[str], library: Path) -> dict[str, Path]:
    """Returns the path of each emit kind: beside the library, with its own suffix."""
    places = {form: library.with_suffix(suffix) for form, suffix in SUFFIXES.items()}
    places |= {LIBRARY: library, "python": loader_path(library)}
    return {form: places[form] for form in FORMS if form in forms}


def write_forms(build: Build, places: Mapping[str, Path], library: str) -> None:
    """Generates the emit kinds and writes them. Raises DiagnosticError and CompilerFault, and then writes no file.

    The texts of the stages are those that the dumps keep. `library` is the file name that the Python loader looks for.
    """
    for path in places.values():
        check_writable(path)
    reader = build.read_parameters() if places.keys() & _WITH_WEIGHTS else None
    module = build.optimize()
    contents: dict[str, bytes] = {"graph": print_module(module).encode()}
    spec: ArtifactSpec | None = None
    objects: tuple[bytes, ...] = ()
    if places.keys() - {"graph"}:
        program = build.generate(build.lower(module))
        build.check_budgets(module, program)
        if places.keys() & _WITH_CODE:
            objects = build.generate_entries(program)
            if "obj" in places:
                contents["obj"] = build.merge(objects)
            contents |= {form: build.dumps.texts[stage].encode() for form, stage in STAGES.items() if form in places}
        if reader is not None:
            spec = build.specify(program, reader)
            contents["header"] = emit_header(spec).encode()
            contents["python"] = emit_python(spec, library).encode()
    with ExitStack() as stack:
        for form, path in places.items():
            if form != LIBRARY:
                file = stack.enter_context(replacing(path))
                file.write(contents[form])
                file.flush()
        if LIBRARY in places:
            assert spec is not None
            build.assemble(spec, objects, places[LIBRARY])
