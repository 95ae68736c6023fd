"""What becomes of an error in a stage of a build: a fault with the graph at that stage, and how to go on from there.

Errors that a user is to be told are none of the compiler's, and are let through.
"""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ..dialect.diagnostics import DiagnosticError
from ..dialect.graph import Module
from ..dialect.printer import collect_elided, print_module
from ..passes.manager import PassError
from ..passes.pipeline import format_pass
from ..runtime.loader import NacreError
from .dumps.constants import write_constants
from .faults import CompilerFault, new_reproducer, write_reproducer
from .frontend import Elaborated

NACRE = (sys.executable, "-m", "nacre.compiler.cli.main")
GRAPH = "stage.graph"
_TOLD = (DiagnosticError, NacreError, OSError)


@contextmanager
def contained(stage: str, elaborated: Elaborated, module: Module, flags: Sequence[str]) -> Iterator[None]:
    """Makes a CompilerFault of whatever goes wrong in the block; `module` is the graph that the stage is given, and
    `flags` the options of the command that builds it. The model is kept with every fault."""
    try:
        yield
    except CompilerFault as fault:
        _keep_model(fault.reproducer, elaborated, flags)
        raise
    except _TOLD:
        raise
    except Exception as error:
        try:
            made = _make_fault(error, stage, elaborated, module, flags)
        except OSError:
            raise error from None  # whoever tells it cannot keep it either, and says so
        _keep_model(made.reproducer, elaborated, flags)
        raise made from error


def _make_fault(
    error: Exception, stage: str, elaborated: Elaborated, module: Module, flags: Sequence[str]
) -> CompilerFault:
    if isinstance(error, PassError):
        stage, module, what = error.step.name, error.before, error.what
        command = [*NACRE, "opt", GRAPH, "--pass", format_pass(error.step), "-o", "after.graph"]
    else:
        what = f"{type(error).__name__}: {error}"
        command = build_command(elaborated, flags)
    folder = new_reproducer()
    write_reproducer(folder, {"traceback.txt": traceback.format_exc()}, command)
    write_graph(folder, module)
    return CompilerFault(what, stage, "", folder)


def build_command(elaborated: Elaborated, flags: Sequence[str], passes: str = "") -> list[str]:
    """What builds from the graph in a reproducer on, with other passes than those of the flags."""
    command = [*NACRE, "compile", GRAPH, "--from", "graph", "--no-cache", *flags, "--passes", passes]
    return command + (["--emit", "graph", "-o", "again.graph"] if passes else _output(elaborated))


def write_graph(folder: Path, module: Module) -> None:
    """Puts a graph into a reproducer, with its constants."""
    (folder / GRAPH).write_text(print_module(module), encoding="utf-8")
    constants = collect_elided(module)
    if constants:
        write_constants(folder, constants)


def _output(elaborated: Elaborated) -> list[str]:
    """The whole artifact, where its weights are found again; else the code. Weights may be large: they stay where they
    are."""
    found = [str(path.absolute()) for path in {*elaborated.weights.values()} if path is not None]
    if len(found) == 1:
        return ["--checkpoint", *found, "-o", "again.so"]
    return ["--emit", "obj", "-o", "again.o"] if elaborated.module.parameters else ["-o", "again.so"]


def _keep_model(folder: Path, elaborated: Elaborated, flags: Sequence[str]) -> None:
    """Puts the texts of the model into the folder, as they lie to each other, and the options of the build."""
    root = Path(elaborated.file).parent
    with suppress(OSError):
        for file, text in elaborated.sources.items():
            path = Path(file)
            place = folder / "model" / (path.relative_to(root) if path.is_relative_to(root) else path.name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        precision = [] if elaborated.precision == "f32" else ["--precision", elaborated.precision]
        command = ["nacre", "compile", Path(elaborated.file).name, *precision, *flags]
        (folder / "options.txt").write_text(f"{shlex.join(command)}\n", encoding="utf-8")
