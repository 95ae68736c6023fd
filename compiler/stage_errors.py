"""Internal errors in a stage of a build, reported with the graph at that stage and a command that reproduces them.

Diagnostics for the user are not internal errors; they propagate unchanged.
"""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..dialect.diagnostics import DiagnosticError
from ..dialect.graph import Module
from ..dialect.printer import collect_elided, print_module
from ..passes.manager import PassError
from ..passes.pass_list import format_pass
from ..runtime.loader import NacreError
from .base.compiler_errors import NACRE, CompilerError, new_reproducer, write_reproducer
from .dumps.constants import write_constants
from .model.source import SourceModel

GRAPH = "stage.graph"
_TOLD = (DiagnosticError, NacreError, OSError)


@contextmanager
def contained(stage: str, source_model: SourceModel, module: Module, flags: Sequence[str]) -> Iterator[None]:
    """Converts any error in the block to a CompilerError; `module` is the input graph of the stage, and `flags` are the
    options of the command that builds it. The reproducer of every error contains the model."""
    try:
        yield
    except CompilerError as failure:
        _keep_model(failure.reproducer, source_model, flags)
        raise
    except _TOLD:
        raise
    except Exception as error:
        try:
            made = _make_error(error, stage, source_model, module, flags)
        except OSError:
            raise error from None  # the caller cannot write the folder either, and reports it
        _keep_model(made.reproducer, source_model, flags)
        raise made from error


def _make_error(
    error: Exception, stage: str, source_model: SourceModel, module: Module, flags: Sequence[str]
) -> CompilerError:
    if isinstance(error, PassError):
        stage, module, what = error.step.name, error.before, error.what
        command = [*NACRE, "opt", GRAPH, "--pass", format_pass(error.step), "-o", "after.graph"]
    else:
        what = f"{type(error).__name__}: {error}"
        command = build_command(source_model, flags)
    folder = new_reproducer()
    write_reproducer(folder, {"traceback.txt": traceback.format_exc()}, command)
    write_graph(folder, module)
    return CompilerError(what, stage, "", folder)


def build_command(source_model: SourceModel, flags: Sequence[str], passes: str = "") -> list[str]:
    """Returns a command that builds from the graph in a reproducer, with other passes than those of the flags."""
    command = [*NACRE, "compile", GRAPH, "--from", "graph", "--no-cache", *flags, "--passes", passes]
    return command + (["--emit", "graph", "-o", "again.graph"] if passes else _output(source_model))


def write_graph(folder: Path, module: Module) -> None:
    """Writes a graph and its constants into a reproducer."""
    (folder / GRAPH).write_text(print_module(module), encoding="utf-8")
    constants = collect_elided(module)
    if constants:
        write_constants(folder, constants)


def _output(source_model: SourceModel) -> list[str]:
    """Returns the emit options: the complete artifact if its weights can be found again, else code only. Weights may be
    large and are not copied."""
    found = list({str(path.absolute()) for path in source_model.weights.values() if isinstance(path, Path)})
    if len(found) == 1:
        return ["--checkpoint", *found, "-o", "again.so"]
    return ["--emit", "obj", "-o", "again.o"] if source_model.module.parameters else ["-o", "again.so"]


def _keep_model(folder: Path, source_model: SourceModel, flags: Sequence[str]) -> None:
    """Writes the texts of the model into the folder, with their relative paths, and the options of the build."""
    root = Path(source_model.file).parent
    with suppress(OSError):
        for file, text in source_model.sources.items():
            path = Path(file)
            target = folder / "model" / (path.relative_to(root) if path.is_relative_to(root) else path.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        precision = [] if source_model.precision == "f32" else ["--precision", source_model.precision]
        command = ["nacre", "compile", Path(source_model.file).name, *precision, *flags]
        (folder / "options.txt").write_text(f"{shlex.join(command)}\n", encoding="utf-8")
