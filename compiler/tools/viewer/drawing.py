"""The contents of a picture: the stages of a graph with their remarks, from a build or from an artifact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.graph import Module
from ....dialect.parser import parse_text
from ....dialect.verifier import verify
from ....passes.manager import Remark, Rewrite, Stage
from ...artifact.graphs import StoredGraphs, read_graphs
from ...pipeline import Build
from .data import Json, Source
from .weights import artifact_weights, weight_data

COMPILED = "compiled"
"""The name of the last stage of an artifact."""


@dataclass(frozen=True)
class Drawing:
    """The stages of a graph, in order, with their sources and figures. `module` is the graph as written; `weights`
    returns the figures of the parameters by name."""

    module: Module
    stages: Sequence[Stage]
    sources: Sequence[Source]
    options: str
    weights: Callable[[], Mapping[str, Json]]
    rewrites: Sequence[Rewrite] = ()
    remarks: Sequence[Remark] = ()

    @property
    def stage_names(self) -> list[str]:
        return ["graph", *(each.name for each in self.stages[1:])]


def drawing_of(build: Build) -> Drawing:
    """Returns the drawing of a build whose graph has been optimized."""
    source = build.source_model
    options = _options(build.options.level, strict=build.options.strict)
    return Drawing(
        source.module,
        build.stages,
        _sources(build),
        options,
        lambda: weight_data(source),
        build.rewrites,
        build.remarks,
    )


def drawing_of_artifact(path: Path) -> Drawing:
    """Returns the drawing of a library. It has two stages: the graph as written, and the graph of its kernels.

    Raises OSError if the file cannot be read, ArtifactError if it is no library, DiagnosticError if it has no graphs.
    """
    stored = read_graphs(path)
    if stored is None:
        help_text = "an artifact for WebAssembly, or one that `--no-graphs` made, has none; draw its model file instead"
        raise DiagnosticError([Diagnostic("no-graph", f"`{path}` carries no graphs", help=help_text)])
    written, compiled = (_parse(text, path) for text in (stored.written, stored.compiled))
    stages = (Stage(0, "input", written), Stage(1, COMPILED, compiled, rewrites=1))
    return Drawing(written, stages, (), _artifact_options(stored), lambda: artifact_weights(path, stored))


def _parse(text: str, path: Path) -> Module:
    parsed = parse_text(text, f"{path}: the graph in it")
    verify(parsed.module, parsed.locate)
    return parsed.module


def _artifact_options(stored: StoredGraphs) -> str:
    level = stored.options.get("level")
    return _options(level, strict=stored.options.get("strict") is True) if isinstance(level, int) else ""


def _options(level: int, *, strict: bool) -> str:
    return f"-O{level}" + " --strict" * strict


def _sources(build: Build) -> Sequence[Source]:
    """Returns the texts by the file names of spans after `relative_to`."""
    file, texts = build.source_model.file, build.source_model.sources
    folder = Path(file).parent
    names = {path: str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path for path in texts}
    return [Source(names[path], text) for path, text in texts.items()]
