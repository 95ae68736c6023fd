"""Wrong results as an internal compiler error: a diagnostic that names the stage, and a reproducer folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from ...dialect.diagnostics import Diagnostic, Note, Span, render
from ...dialect.graph import Function, Module
from ...dialect.lazy_dataclass import dataclass
from ..base.compiler_errors import WrongNumbersError, new_reproducer, write_reproducer
from ..base.spans import in_full
from ..model.source import SourceModel
from ..stage_errors import build_command, write_graph
from .model_calls import Wrong


@dataclass(frozen=True, slots=True)
class Triage:
    """The cause of an error: a stage, the kernel if it is one, a description, and the affected source lines.

    `module` is the input graph of the stage: building from it with `passes` reproduces the error. `files` are
    additional texts, by the names of the files in the reproducer.
    """

    stage: str
    message: str
    module: Module
    label: str = ""
    span: Span | None = None
    kernel: str = ""
    notes: tuple[Note, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    passes: str = ""


def make_wrong_numbers(
    source_model: SourceModel, flags: Sequence[str], function: Function, wrong: Wrong, triage: Triage
) -> WrongNumbersError:
    """Returns the error, and writes its inputs and texts to a folder. `function` has the wrong results; `flags` are the
    options of the build."""
    folder = new_reproducer()
    inputs = wrong.trial.save(folder)
    notes = (*triage.notes, Note(_describe(function, wrong)), Note(f"{wrong.trial}, in `{inputs}`"))

    def full(span: Span | None) -> Span | None:
        return None if span is None else in_full(span, source_model.file, source_model.sources)

    diagnostic = Diagnostic(
        "wrong-numbers",
        triage.message,
        full(triage.span),
        triage.label,
        tuple(Note(n.message, full(n.span)) for n in notes),
    )
    texts = {**triage.files, "error.txt": render(diagnostic, source_model.sources) + "\n"}
    write_reproducer(folder, texts, [*build_command(source_model, flags, triage.passes), "--check-passes"])
    write_graph(folder, triage.module)
    return WrongNumbersError(diagnostic, source_model.sources, triage.stage, triage.kernel, folder)


def _describe(function: Function, wrong: Wrong) -> str:
    found = wrong.difference
    names = function.result_names or tuple(v.name for v in function.results)
    name = names[found.result]
    if found.message:
        return f"`{name}` of `{function.name}` {found.message}"
    return (
        f"`{name}` of `{function.name}` is {found.actual:.9g} at {list(found.index)}, expected {found.expected:.9g}"
        f" within {found.allowed:.3g}; {found.different} of {found.size} elements differ"
    )
