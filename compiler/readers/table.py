"""The readers of model files, by the suffix of the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import cast

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ..model.source import SourceModel, WeightSource
from .language import load_module
from .language.settings import Settings
from .stages import read_stage

Reader = Callable[[Path, WeightSource | None, Settings], SourceModel]


def _read_graph(path: Path, weights: WeightSource | None, settings: Settings) -> SourceModel:
    _refuse_settings(path, settings, "a graph")
    return read_stage(path, "graph", weights).source_model


def _read_text(path: Path, weights: WeightSource | None, settings: Settings) -> SourceModel:
    return load_module(path, weights=weights, settings=settings)


def _read_onnx(path: Path, weights: WeightSource | None, settings: Settings) -> SourceModel:
    _refuse_settings(path, settings, "an ONNX model")
    # Imported on demand: most builds read no ONNX file.
    reader = import_module(".onnx.reader", __package__)
    return cast(SourceModel, reader.read_onnx(path, weights))


def _refuse_settings(path: Path, settings: Settings, kind: str) -> None:
    if settings:
        raise DiagnosticError([Diagnostic("bad-setting", f"`{path}` is {kind}, which has no hyper-parameters")])


READERS: Mapping[str, Reader] = {".nacre": _read_text, ".graph": _read_graph, ".onnx": _read_onnx}
"""Readers by suffix. A file of another suffix is read as model text."""


def read_file(path: Path, weights: WeightSource | None = None, settings: Settings | None = None) -> SourceModel:
    """Reads the model of a file; `weights` replace the checkpoint that the file names, `settings` are values of the
    hyper-parameters of its models. Raises DiagnosticError."""
    return READERS.get(path.suffix, _read_text)(path, weights, settings or {})
