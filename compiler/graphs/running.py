"""Runs, compiles and saves a module that people may have changed; where it came from tells where its weights are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ...dialect.graph import Function, Module
from ...dialect.interpreter import Interpreter
from ...dialect.printer import print_module
from ...dialect.types import F64, Array
from ...runtime.loader import Model
from .. import api
from ..files import write_whole
from ..frontend import Elaborated
from ..frontend.model_writer import write_model
from ..parameters import open_parameters

Weights = Mapping[str, Array] | str | os.PathLike[str] | None
"""Arrays by key, a checkpoint or the folder of one, or None for what the model names."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a module was read: its file, the checkpoint of each function, and the texts that spans point into."""

    file: str = "graph"
    weights: Mapping[str, Path | None] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def _elaborated(module: Module, origin: Origin, weights: Weights) -> Iterator[Elaborated]:
    """The module as if it had just been read, with its weights in files."""
    with TemporaryDirectory(prefix="nacre-weights-") as folder:
        path: Path | None = None
        if isinstance(weights, Mapping):
            path = Path(folder) / "weights.npz"
            with path.open("wb") as file:
                np.savez(file, allow_pickle=False, **weights)
        elif weights is not None:
            path = Path(weights)
        places = {f.name: path or origin.weights.get(f.name) for f in module.functions}
        yield Elaborated(module, origin.file, places, sources=origin.sources)


def run_function(
    module: Module, function: Function, origin: Origin, arrays: Sequence[Any], weights: Weights, float64: bool
) -> tuple[Array, ...]:
    """The results of the reference interpreter. Raises DiagnosticError for weights, DimError for arrays."""
    if len(arrays) != len(function.arguments):
        raise TypeError(f"`{function.name}` takes {len(function.arguments)} arrays, not {len(arrays)}")
    with _elaborated(Module(module.name, module.dims, module.parameters, (function,)), origin, weights) as elaborated:
        interpreter = Interpreter(module, open_parameters(elaborated), precision=F64 if float64 else None)
        return interpreter.run(function, [np.asarray(array) for array in arrays])


def compile_module(
    module: Module,
    origin: Origin,
    output: str | os.PathLike[str] | None,
    weights: Weights,
    options: Mapping[str, Any],
) -> Model:
    """As `nacre.compile`. With arrays for weights, what is given no place is loaded and not kept."""
    with _elaborated(module, origin, weights) as elaborated, TemporaryDirectory(prefix="nacre-graph-") as folder:
        if output is None and isinstance(weights, Mapping):
            output = Path(folder) / f"{module.name}.so"
        return api.compile(elaborated, output, **options)


def save_text(module: Module, origin: Origin, path: str | os.PathLike[str]) -> None:
    """Writes `.nacre` or `.graph` text, all of it or nothing."""
    path = Path(path)
    if path.suffix == ".graph":
        write_whole(path, print_module(module))
    elif path.suffix == ".nacre":
        known = {name: place for name, place in origin.weights.items() if place is not None}
        # A checkpoint is named as seen from the file that names it.
        weights = {name: os.path.relpath(place, path.absolute().parent) for name, place in known.items()}
        write_whole(path, write_model(module, weights))
    else:
        raise ValueError(f"a graph is saved as `.nacre` or `.graph`, not as `{path.name}`")
