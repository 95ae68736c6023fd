"""Builds that go on from the text of a stage: the graph that a dump holds, and the kernels of it if there are any.

What a text does not say is what it was dumped with: the same options have to be given again, and the checkpoint. Tests
and budgets of the model are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..dialect.diagnostics import Diagnostic, DiagnosticError
from ..dialect.graph import Function, Module
from ..dialect.printer import find_missing
from ..passes.pipeline import format_pipeline, parse_pipeline, read_graph
from .dumps.constants import CONSTANTS, read_constants
from .dumps.dumps import numbered, plain_name
from .dumps.parts import Part, split_parts
from .frontend import Elaborated
from .frontend.models import default_names
from .frontend.parse import read_text
from .pipeline import Options


@dataclass(frozen=True, slots=True)
class Resumed:
    """A model as the text of a stage tells it; `kernels` are those that stand there, by symbol."""

    elaborated: Elaborated
    kernels: Mapping[str, Part] = field(default_factory=dict)


def options_after(options: Options, stage: str) -> Options:
    """What is left to do after a stage, one of `known_names(options.stages)`."""
    if options.language(stage) != "graph":
        return replace(options, passes="", start=plain_name(stage))
    names = [numbered(number, name) for number, name in enumerate(options.stages)]
    last = max(number for number, name in enumerate(options.stages) if stage in (name, names[number]))
    return replace(options, passes=format_pipeline(parse_pipeline(options.pipeline)[last:]))


def read_stage(path: Path, language: str, checkpoint: Path | None = None) -> Resumed:
    """The model that a dump in a language holds. Raises DiagnosticError."""
    text, file = read_text(path), str(path)
    kernels: dict[str, Part] = {}
    if language != "graph":
        text, parts = split_parts(language, text)
        if not text:
            message = f"`{path}` does not say which graph its kernels were made of"
            help_text = "a dump begins with that graph, as a comment: keep it, or put it there again"
            raise DiagnosticError([Diagnostic("no-graph", message, help=help_text)])
        file = f"{path}: the graph at its top"
        kernels = {part.symbol: part for part in parts}
    module = _with_names(read_graph(text, file, read_constants(path.parent)))
    missing = find_missing(module)
    if missing:
        message = f"`{path}` has {missing[0]!r} without its data"
        help_text = f"`--dump-dir` writes the data into {CONSTANTS}, which has to lie beside the text"
        raise DiagnosticError([Diagnostic("missing-constant", message, help=help_text)])
    weights = {function.name: checkpoint for function in module.functions}
    return Resumed(Elaborated(module, str(path), weights, sources={file: text}), kernels)


def _with_names(module: Module) -> Module:
    """An artifact gives results by name; those of a graph may have none, and get those that they would in a model."""

    def name(function: Function) -> Function:
        return replace(function, result_names=function.result_names or default_names(len(function.results)))

    return module.map_functions(name)
