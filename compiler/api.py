"""The compiler as Python functions: what `nacre.compile` and `nacre.check` are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from ..dialect.diagnostics import Diagnostic, DiagnosticError
from ..runtime.loader import Model, load
from .artifact.assemble import Placement
from .build_warnings import issue_warnings, with_warnings
from .cache import load_cached
from .checking.checker import choose_observer
from .codegen.target import parse_targets
from .dumps import Dumps
from .frontend import Elaborated, load_module
from .parameters import needed_checkpoints, open_parameters
from .pipeline import GRAPH_PASSES, Build, Options
from .precision.choose import in_precision
from .sizes import parse_bound

Source = str | os.PathLike[str]
"""A path, or the text of a model: a `str` with a line break or a brace, which a path that is to be read may not have.
A `Path` is always a path."""


def read_model(source: Source, weights: str | os.PathLike[str] | None = None) -> Elaborated:
    """A model from a path or from its text. Raises DiagnosticError."""
    override = None if weights is None else Path(weights)
    if override is not None and not override.exists():
        raise DiagnosticError([Diagnostic("missing-file", f"`{override}` cannot be read: no such file or folder")])
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return load_module(source, text=True, weights=override)
    return load_module(Path(source), weights=override)


def compile(
    source: Source | Elaborated,
    output: str | os.PathLike[str] | None = None,
    *,
    weights: str | os.PathLike[str] | None = None,
    target: str = "native",
    opt_level: int = 2,
    strict: bool = False,
    debug: bool = False,
    placement: Placement = "embedded",
    threads: int = 0,
    dump_dir: str | os.PathLike[str] | None = None,
    cc: str | None = None,
    check_passes: bool = False,
    precision: str | None = None,
    size: str | None = None,
) -> Model:
    """Compiles a model and loads it.

    source: the path of a `.nacre` file, or a model's text (a string with a line break or a brace); or what has been
        read already, with its weights.
    output: where the shared library goes; without it, into the user's cache, from which the same model is loaded again.
    weights: a checkpoint (.safetensors, .npz, .npy) or the folder of one, in place of what the source names.
    target: `native`, a CPU level such as `x86-64-v3` or several with commas, `portable`, or what else `--target` takes.
    opt_level: 0 (the slow oracle) to 3.
    strict: no pass that changes how results are rounded by more than another order of sums.
    debug: tables of the model's lines for debuggers, and names of kernels to be read; the code stays as it is.
    placement: `embedded`, or `external` for weights in a file beside the library.
    threads: how many threads a call of the loaded model may use; 0 for `$NACRE_THREADS`, else one for each CPU.
    dump_dir: a folder for the text of every stage; with it, a model is compiled even if it is in the cache.
    cc: the C compiler that links, by default `$CC`, `cc`, or ziglang's.
    check_passes: run what every stage makes on drawn inputs, and stop at the first that computes something else, which
        is a CompilerFault. `$NACRE_CHECK_PASSES` does so for every compilation.
    precision: in place of the policies in the source `f32`, `bf16`, `f16`, `f8`, `int8`, `int4` or `int4a8`, the path
        of a `.nacre` file with `quantize` blocks, or such a text.

    size: the most that weights may take, such as `500MiB`, or `1.2x` of the model's parameters: transformed copies of
        weights that save least for their bytes are computed in each call, or not used.

    Issues `nacre.NacreWarning` for the warnings that `nacre compile` prints. That of the size comes with a compilation;
    a model that is loaded from the cache has the others.

    Raises ValueError for an argument that is none of these, DiagnosticError for a fault of the input, CompilerFault for
    one of the compiler.
    """
    if opt_level not in GRAPH_PASSES:
        raise ValueError(f"opt_level is 0, 1, 2 or 3, not {opt_level!r}")
    if placement not in get_args(Placement):
        raise ValueError(f"placement is 'embedded' or 'external', not {placement!r}")
    if threads < 0:
        raise ValueError(f"threads is at least 0, not {threads!r}")
    targets = parse_targets(target)
    bound = None if size is None else parse_bound(size)
    options = Options(targets, opt_level, strict=strict, weights=placement, cc=cc, debug=debug, size=bound)
    dumps = Dumps(None if dump_dir is None else Path(dump_dir))
    elaborated = source if isinstance(source, Elaborated) else read_model(source, weights)
    elaborated = with_warnings(in_precision(elaborated, precision), targets)
    build = Build(elaborated, options, dumps, choose_observer(elaborated, options, check=check_passes))
    if output is None:
        model = load_cached(build, threads=threads)
    else:
        build.run(Path(output))
        model = load(output, threads=threads)
    issue_warnings(build, model)
    return model


def find_faults(
    source: Source, weights: str | os.PathLike[str] | None = None
) -> tuple[list[Diagnostic], Mapping[str, str]]:
    """Everything that is wrong with a model, in the order of its text, and the texts that the diagnostics point into.

    If its source is right, it is held against the headers of its checkpoints, where these are there.
    """
    try:
        elaborated = read_model(source, weights)
        if all(path is not None and path.exists() for path in needed_checkpoints(elaborated).values()):
            open_parameters(elaborated)
    except DiagnosticError as error:
        # A file of blocks alone is there to be imported.
        return [d for d in error.diagnostics if d.code != "no-model"], error.sources
    return list(elaborated.warnings), elaborated.sources


def check(source: Source, *, weights: str | os.PathLike[str] | None = None) -> list[Diagnostic]:
    """Every fault of a model, given by path or text, in the order of its text; empty if there is none.

    weights: a checkpoint or the folder of one, in place of what the source names. If the source is right, its
    parameters are looked for there; no data is read.
    """
    return find_faults(source, weights)[0]
