"""Reads a model source of this folder with a configuration, for the checkpoint of a file or folder.

The parameters have the names of the source; `named` maps them to keys of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....dialect.graph import Module, Parameter
from ...model.source import SourceModel
from ...weights import Checkpoint
from ..language import load_module

_FOLDER = Path(__file__).parent


def read_source(
    sources: Sequence[str],
    config: Mapping[str, Any],
    checkpoint: Checkpoint,
    named: Callable[[Parameter], Parameter],
    name: str,
) -> SourceModel:
    """Returns the model with the entries of all sources. Its parameters are changed by `named`, and `name` is the stem
    of a file that names the module. Raises DiagnosticError."""
    configs = {"hyperparameters.json": config}
    read = [load_module(_FOLDER / source, weights=checkpoint, configs=configs) for source in sources]
    module = replace(_united([model.module for model in read]), name=_identifier(name))
    texts = {file: text for model in read for file, text in model.sources.items()}
    return replace(read[0], module=with_keys(module, named), sources=texts)


def _united(modules: Sequence[Module]) -> Module:
    """Returns the functions of all modules, which share dims, parameters and states of the same names."""
    dims = {dim.name: dim for module in modules for dim in module.dims}
    parameters = {parameter.name: parameter for module in modules for parameter in module.parameters}
    states = {state.name: state for module in modules for state in module.states}
    functions = tuple(function for module in modules for function in module.functions)
    united = (tuple(dims.values()), tuple(parameters.values()), functions, tuple(states.values()))
    return Module(modules[0].name, *united)


def with_keys(module: Module, named: Callable[[Parameter], Parameter]) -> Module:
    return replace(module, parameters=tuple(map(named, module.parameters)))


def _identifier(stem: str) -> str:
    word = "".join(c if c.isascii() and c.isalnum() else "_" for c in stem)
    return f"_{word}" if word[:1].isdigit() else word or "model"
