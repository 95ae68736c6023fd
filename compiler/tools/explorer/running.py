"""Runs, compiles and saves a module that may have been edited after reading; its origin names its weights."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ....dialect.graph import Function, Module
from ....dialect.interpreter import Interpreter
from ....dialect.printer import print_module
from ....dialect.types import F64, Array
from ....runtime.loader import Model
from ... import api
from ...base.files import write_whole
from ...model.parameters import open_parameters
from ...model.source import SourceModel, WeightSource
from ...readers.language.model_writer import write_model
from ...weights import open_arrays

Weights = Mapping[str, Array] | str | os.PathLike[str] | None
"""Arrays by key, a checkpoint or its folder, or None for the weights that the model names."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a module: its file, the checkpoint of each function, and the texts of its spans."""

    file: str = "graph"
    weights: Mapping[str, WeightSource | None] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)


def _as_source(module: Module, origin: Origin, weights: Weights) -> SourceModel:
    """Returns the module as a reader would return it."""
    override: WeightSource | None = None
    if isinstance(weights, Mapping):
        override = open_arrays(weights)
    elif weights is not None:
        override = Path(weights)
    checkpoints = {f.name: override or origin.weights.get(f.name) for f in module.functions}
    return SourceModel(module, origin.file, checkpoints, sources=origin.sources)


def run_function(
    module: Module, function: Function, origin: Origin, arrays: Sequence[Any], weights: Weights, float64: bool
) -> tuple[Array, ...]:
    """Returns the results of the reference interpreter. Raises DiagnosticError for weights, DimError for arrays."""
    if len(arrays) != len(function.arguments):
        raise TypeError(f"`{function.name}` takes {len(function.arguments)} arrays, not {len(arrays)}")
    alone = replace(module, functions=(function,))
    load = open_parameters(_as_source(alone, origin, weights))
    interpreter = Interpreter(module, load, precision=F64 if float64 else None)
    return interpreter.run(function, [np.asarray(array) for array in arrays])


def compile_module(
    module: Module,
    origin: Origin,
    output: str | os.PathLike[str] | None,
    weights: Weights,
    options: Mapping[str, Any],
) -> Model:
    """Compiles as `nacre.compile` does. With arrays for weights and no output, the artifact is loaded and not kept."""
    source_model = _as_source(module, origin, weights)
    if output is not None or not isinstance(weights, Mapping):
        return api.compile(source_model, output, **options)
    with TemporaryDirectory(prefix="nacre-graph-") as folder:
        return api.compile(source_model, Path(folder) / f"{module.name}.so", **options)


def save_text(module: Module, origin: Origin, path: str | os.PathLike[str]) -> None:
    """Writes `.nacre` or `.graph` text atomically."""
    path = Path(path)
    if path.suffix == ".graph":
        write_whole(path, print_module(module))
    elif path.suffix == ".nacre":
        known = {name: held for name, held in origin.weights.items() if isinstance(held, Path)}
        # Checkpoint checkpoints are relative to the file that names them.
        weights = {name: os.path.relpath(held, path.absolute().parent) for name, held in known.items()}
        write_whole(path, write_model(module, weights, blocks=True))
    else:
        raise ValueError(f"a graph is saved as `.nacre` or `.graph`, not as `{path.name}`")
