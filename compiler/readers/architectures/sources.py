"""Reads a model source of this folder with a configuration, for the checkpoint of a file or folder.

The parameters of a source have names of their own; `named` gives their keys in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....dialect.graph import Module, Parameter
from ...model.source import SourceModel
from ...weights import Checkpoint
from ..language import load_module

_FOLDER = Path(__file__).parent


def read_source(
    source: str,
    config: Mapping[str, Any],
    checkpoint: Checkpoint,
    named: Callable[[Parameter], Parameter],
    name: str,
) -> SourceModel:
    """Returns the model of a source. Its parameters are changed by `named`, and `name` is the stem of a file that names
    the module. Raises DiagnosticError."""
    read = load_module(_FOLDER / source, weights=checkpoint, configs={"hyperparameters.json": config})
    module = replace(read.module, name=_identifier(name))
    return replace(read, module=with_keys(module, named))


def with_keys(module: Module, named: Callable[[Parameter], Parameter]) -> Module:
    return replace(module, parameters=tuple(map(named, module.parameters)))


def _identifier(stem: str) -> str:
    word = "".join(c if c.isascii() and c.isalnum() else "_" for c in stem)
    return f"_{word}" if word[:1].isdigit() else word or "model"
