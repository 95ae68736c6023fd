"""The data of parameters: found in checkpoints by name, transposed and converted as the model declares.

What may be converted was decided when the checkpoint's header was checked; here data is read, and only when asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..dialect.diagnostics import Diagnostic, DiagnosticError
from ..dialect.graph import Module, Parameter, walk
from ..dialect.types import Array
from .checkpoint import Checkpoint, open_checkpoint
from .frontend import Elaborated, check_weights


@dataclass(frozen=True, slots=True)
class ParameterReader:
    """Reads parameters; `checkpoints` are by the key under which a parameter stands in one of them."""

    checkpoints: Mapping[str, Checkpoint]

    def __call__(self, parameter: Parameter) -> Array:
        """The tensor in the shape and dtype of the parameter's type; memory-mapped where nothing had to be changed."""
        array = self.checkpoints[_family(parameter.key)].read(parameter.key)
        if parameter.transpose is not None:
            array = np.transpose(array, parameter.transpose)
        return array.astype(parameter.type.dtype.numpy, copy=False)


def _family(key: str) -> str:
    """The key without its numbers: the elements of an array share one, and so does their pattern with braces."""
    return re.sub(r"\d+|\{\}", "#", key)


def used_parameters(module: Module) -> dict[str, list[Parameter]]:
    """The parameters that each function reads, by the function's name."""
    used: dict[str, list[Parameter]] = {}
    for function in module.functions:
        names = dict.fromkeys(str(n.attribute("name")) for n in walk(function.body) if n.op == "parameter")
        used[function.name] = [module.parameter_index[name] for name in names]
    return used


def open_parameters(elaborated: Elaborated) -> ParameterReader:
    """Opens the checkpoints of a model and checks every parameter against their headers. Raises DiagnosticError."""
    used = used_parameters(elaborated.module)
    checkpoints: dict[str, Checkpoint] = {}
    opened: dict[Path, Checkpoint] = {}
    faults: list[Diagnostic] = []
    for function in elaborated.module.functions:
        parameters = used[function.name]
        path = elaborated.weights[function.name]
        if not parameters:
            continue
        if path is None:
            faults.append(_no_weights(function.name, parameters))
            continue
        if path not in opened:
            opened[path] = open_checkpoint(path)
            faults += check_weights(elaborated, opened[path])
        checkpoints |= {_family(parameter.key): opened[path] for parameter in parameters}
    if faults:
        raise DiagnosticError(faults, elaborated.sources)
    return ParameterReader(checkpoints)


def _no_weights(model: str, parameters: list[Parameter]) -> Diagnostic:
    message = f"model `{model}` has {len(parameters)} parameters and does not say where they are"
    help_text = 'write `weights "model.safetensors"` in the model, or name a checkpoint when compiling'
    return Diagnostic("no-weights", message, parameters[0].span, help=help_text)
