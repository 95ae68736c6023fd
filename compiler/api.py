"""The compiler as Python functions: what `nacre.compile` and `nacre.check` are."""

from __future__ import annotations

import os
from pathlib import Path

from ..dialect.diagnostics import Diagnostic, DiagnosticError
from ..runtime.loader import Model, load
from .artifact.assemble import Placement
from .cache import build_cached
from .codegen.target import parse_target
from .dumps import Dumps
from .frontend import Elaborated, check_source, load_module
from .frontend.parse import decode
from .pipeline import Build, Options


def _is_text(source: str | os.PathLike[str]) -> bool:
    """A model's text has several lines, or at least a brace; a path has neither."""
    return isinstance(source, str) and ("\n" in source or "{" in source)


def read_model(source: str | os.PathLike[str], weights: str | os.PathLike[str] | None = None) -> Elaborated:
    """A model from a path or from its text. Raises DiagnosticError."""
    override = None if weights is None else Path(weights)
    if override is not None and not override.exists():
        raise DiagnosticError([Diagnostic("missing-file", f"`{override}` cannot be read: no such file or folder")])
    if _is_text(source):
        return load_module(str(source), text=True, weights=override)
    return load_module(Path(source), weights=override)


def compile(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    weights: str | os.PathLike[str] | None = None,
    target: str = "native",
    opt_level: int = 2,
    placement: Placement = "embedded",
    threads: int = 1,
    dump_dir: str | os.PathLike[str] | None = None,
    cc: str | None = None,
) -> Model:
    """Compiles a model and loads it.

    source: the path of a `.nacre` file, or a model's text (anything with a line break or a brace).
    output: where the shared library goes; without it, into the user's cache, from which the same model is loaded again.
    weights: a checkpoint (.safetensors, .npz, .npy) or the folder of one, in place of what the source names.
    target: `native`, or a CPU level such as `x86-64-v3`.
    opt_level: 0 (the slow oracle) to 3.
    placement: `embedded`, or `external` for weights in a file beside the library.
    dump_dir: a folder for the text of every stage.
    cc: the C compiler that links, by default `$CC`, `cc`, or ziglang's.

    Raises DiagnosticError for a fault of the input, CompilerFault for one of the compiler.
    """
    options = Options(target=parse_target(target), level=opt_level, weights=placement, cc=cc)
    if opt_level not in range(4):
        raise ValueError(f"opt_level is 0, 1, 2 or 3, not {opt_level!r}")
    dumps = Dumps(None if dump_dir is None else Path(dump_dir))
    build = Build(read_model(source, weights), options, dumps)
    if output is None:
        path = build_cached(build)
    else:
        path = Path(output)
        build.run(path)
    return load(path, threads=threads)


def check(source: str | os.PathLike[str]) -> list[Diagnostic]:
    """Every fault of a model, given by path or text, in the order of its text; empty if there is none."""
    if _is_text(source):
        return check_source(str(source), "model.nacre", Path.cwd())
    path = Path(source)
    return check_source(decode(path.read_bytes(), str(path)), str(path), path.parent)
