"""Builds that continue from the text of a stage: the graph of a dump, and its kernels if there are any.

The text does not contain the options and the checkpoint of the dump: the same ones must be given again. It also omits
the tests and budgets of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.graph import Function, Module
from ...dialect.lazy_dataclass import dataclass
from ...dialect.printer import find_missing
from ...passes.pass_list import format_pipeline, parse_pipeline, read_graph
from ..dumps.constants import CONSTANTS, read_constants
from ..dumps.dumps import numbered, plain_name
from ..dumps.kernel_texts import Part, split_parts
from ..model.source import SourceModel, WeightSource
from ..options import Options
from .language.models import default_names
from .language.parse import read_text


@dataclass(frozen=True, slots=True)
class Resumed:
    """A model read from the text of a stage; `kernels` are its kernels, by symbol."""

    source_model: SourceModel
    kernels: Mapping[str, Part] = field(default_factory=dict)


def options_after(options: Options, stage: str) -> Options:
    """Returns the options for the remaining steps after a stage, one of `known_names(options.stages)`."""
    if options.language(stage) != "graph":
        return replace(options, passes="", start=plain_name(stage))
    names = [numbered(number, name) for number, name in enumerate(options.stages)]
    last = max(number for number, name in enumerate(options.stages) if stage in (name, names[number]))
    return replace(options, passes=format_pipeline(parse_pipeline(options.pipeline)[last:]))


def read_stage(path: Path, language: str, checkpoint: WeightSource | None = None) -> Resumed:
    """Returns the model that a dump in a language holds. Raises DiagnosticError."""
    text, file = read_text(path), str(path)
    kernels: dict[str, Part] = {}
    if language != "graph":
        text, parts = split_parts(language, text)
        if not text:
            message = f"`{path}` does not contain the graph of its kernels"
            help_text = "a dump begins with the graph as a comment, which must be kept"
            raise DiagnosticError([Diagnostic("no-graph", message, help=help_text)])
        file = f"{path}: the graph at its top"
        kernels = {part.symbol: part for part in parts}
    module = _with_names(read_graph(text, file, read_constants(path.parent)))
    missing = find_missing(module)
    if missing:
        message = f"`{path}` has {missing[0]!r} without its data"
        help_text = f"`--dump-dir` writes the data into {CONSTANTS}, which must be in the same folder"
        raise DiagnosticError([Diagnostic("missing-constant", message, help=help_text)])
    weights = {function.name: checkpoint for function in module.functions}
    return Resumed(SourceModel(module, str(path), weights, sources={file: text}), kernels)


def _with_names(module: Module) -> Module:
    """Gives names to unnamed results, which an artifact requires: the default names of results in a model."""

    def name(function: Function) -> Function:
        return replace(function, result_names=function.result_names or default_names(len(function.results)))

    return module.map_functions(name)


def read_graph_file(path: Path, weights: WeightSource | None = None) -> SourceModel:
    """Reads the text of a graph. Raises DiagnosticError."""
    return read_stage(path, "graph", weights).source_model
