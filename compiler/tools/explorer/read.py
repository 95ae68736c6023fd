"""Reads a graph from a file or a text, either model source or graph text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.graph import Function, Module, result_of_state
from ....dialect.parser import parse_text
from ....dialect.types import Array
from ....dialect.verifier import verify
from ....passes.manager import PassManager
from ....passes.pass_list import parse_pipeline
from ...checking import Source, read_model
from ...options import Options
from ...quantization.choose import in_precision
from ...readers.language.parse import decode
from .graph import Graph
from .running import Origin


def read(
    source: Source,
    *,
    entry: str | None = None,
    weights: str | os.PathLike[str] | None = None,
    level: int | None = None,
    strict: bool = False,
    precision: str | None = None,
    passes: str = "",
    constants: Mapping[str, Array] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Graph:
    """Returns the graph of a model: as written, or after the passes of an optimisation level and further passes.

    source: the path of a `.nacre` or `.graph` file, or such a text itself (a string with a line break or a brace).
    entry: the function of the file; by default the first.
    weights: a checkpoint or its folder, in place of the one that the source names; it may also hold configurations.
    level: 0 to 3, for the graph that `nacre compile -O` makes of it; `strict` as there.
    precision: as `nacre.compile` takes it; without it, policies in the source are followed if a level is given.
    passes: further passes, as `nacre opt --pass` takes them.
    constants: for graph text, the data of the constants that it shows as a hash, by hash.
    settings: values for the hyper-parameters of models, as `nacre.compile` takes them.

    Raises DiagnosticError for an error in the source, KeyError if the entry does not exist.

    >>> read("language 1\\nmodel double(x: f32[4]) -> f32[4] { return x * 2 }")
    <graph `double`: 2 nodes, double(x: f32[4]) -> (result: f32[4])>
    >>> print(read("language 1\\nmodel same(x: f32[4]) -> f32[4] { return x * 1 }", level=1).nodes)
    no nodes
    """
    if _is_graph_text(source):
        module, origin = _read_graph(source, weights, constants)
    else:
        source_model = read_model(source, weights, settings)
        if level is not None or precision is not None:
            source_model = in_precision(source_model, precision)
        module, origin = source_model.module, Origin(source_model.file, source_model.weights, source_model.sources)
    wanted = "" if level is None else Options(level=level, strict=strict).pipeline
    steps = parse_pipeline(",".join(text for text in (wanted, passes) if text))
    if steps:
        module = PassManager(steps).run(module)
    if not module.functions:
        raise DiagnosticError([Diagnostic("no-model", "the graph has no function")])
    return Graph(module, module.functions[0].name, origin).select(entry or module.functions[0].name)


def _is_graph_text(source: Source) -> bool:
    """Returns whether the source is a graph file or graph text. No model begins with the word `module`."""
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return next((w for line in source.splitlines() for w in line.split("//")[0].split()), "") == "module"
    return Path(source).suffix == ".graph"


def _read_graph(
    source: Source, weights: str | os.PathLike[str] | None, constants: Mapping[str, Array] | None
) -> tuple[Module, Origin]:
    if isinstance(source, str) and ("\n" in source or "{" in source):
        text, file = source, "text.graph"
    else:
        file = str(source)
        try:
            text = decode(Path(source).read_bytes(), file)
        except OSError as error:
            message = f"`{file}` cannot be read: {(error.strerror or str(error)).lower()}"
            raise DiagnosticError([Diagnostic("missing-file", message)]) from error
    parsed = parse_text(text, file, constants)
    try:
        verify(parsed.module, parsed.locate)
    except DiagnosticError as error:
        raise DiagnosticError(error.diagnostics, {file: text}) from None
    module = parsed.module.map_functions(_name_results)
    path = None if weights is None else Path(weights)
    return module, Origin(file, {f.name: path for f in module.functions}, {file: text})


def _name_results(function: Function) -> Function:
    """Names unnamed results as the language does: `result`, or `result0`, `result1`, ..."""
    if function.result_names:
        return function
    count = len(function.outputs)
    names = ("result",) if count == 1 else tuple(f"result{n}" for n in range(count))
    return replace(function, result_names=(*names, *map(result_of_state, function.states)))
