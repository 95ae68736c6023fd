"""The readers of model files, by the suffix of the file. The module of a reader is imported when it reads a file."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

from ..model.source import SourceModel, WeightSource
from .language.settings import Settings

READERS: Mapping[str, tuple[str, str]] = {
    ".nacre": ("language", "load_module"),
    ".graph": ("stages", "read_graph_file"),
}
"""The module and the function of each reader by suffix. A file of another suffix is read as model text."""


def read_file(path: Path, weights: WeightSource | None = None, settings: Settings | None = None) -> SourceModel:
    """Reads the model of a file; `weights` replace the checkpoint that the file names, `settings` are values of the
    hyper-parameters of its models. Raises DiagnosticError."""
    module, function = READERS.get(path.suffix, READERS[".nacre"])
    read = getattr(importlib.import_module(f".{module}", __package__), function)
    model = read(path, weights=weights, settings=settings or {})
    assert isinstance(model, SourceModel), model
    return model
