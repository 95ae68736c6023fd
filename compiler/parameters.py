"""The data of parameters: found in checkpoints by name, transposed and converted as the model declares, or computed.

What may be converted was decided when the checkpoint's header was checked; here data is read, and only when asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..dialect.diagnostics import Diagnostic, DiagnosticError
from ..dialect.graph import Module, Parameter, walk
from ..dialect.interpreter import load_parameter
from ..dialect.ops.conversion import cast_array
from ..dialect.types import Array
from .checkpoint import Checkpoint, open_checkpoint
from .frontend import Elaborated
from .frontend.weights import check_parameters, elements


@dataclass(frozen=True, slots=True)
class ParameterReader:
    """Reads and computes parameters; `checkpoints` says for each key in which of them it stands."""

    checkpoints: Mapping[str, Checkpoint]

    def __call__(self, parameter: Parameter) -> Array:
        """The tensor in the shape and dtype of the parameter's type; memory-mapped where nothing had to be changed."""
        return load_parameter(parameter, self._stored)

    def _stored(self, parameter: Parameter) -> Array:
        array = self.checkpoints[parameter.key].read(parameter.key)
        if parameter.transpose is not None:
            array = np.transpose(array, parameter.transpose)
        # What is declared in blocks is quantised by whoever asked.
        return array if parameter.type.dtype.is_blocked else cast_array(array, parameter.type.dtype)

    def files(self) -> list[Path]:
        """Every file that is read."""
        opened = {c.path: c for c in self.checkpoints.values()}
        files = {t.file for c in opened.values() for t in c.tensors.values()}
        return sorted(files | opened.keys())


def used_parameters(module: Module) -> dict[str, list[Parameter]]:
    """The parameters in checkpoints that each function reads, by the function's name: those that others are computed
    from stand for these."""
    used: dict[str, list[Parameter]] = {}
    for function in module.functions:
        names = dict.fromkeys(str(n.attribute("name")) for n in walk(function.body) if n.op == "parameter")
        read = [module.parameter_index[name] for name in names]
        stored = {s.name: s for p in read for s in (p.formula.parameters if p.formula is not None else [p])}
        used[function.name] = list(stored.values())
    return used


def needed_checkpoints(elaborated: Elaborated) -> dict[str, Path | None]:
    """Where the parameters of each model that has any are; None where the source does not say."""
    return {name: elaborated.weights[name] for name, used in used_parameters(elaborated.module).items() if used}


def open_parameters(elaborated: Elaborated) -> ParameterReader:
    """Opens the checkpoints of a model and checks every parameter against their headers. Raises DiagnosticError."""
    used = used_parameters(elaborated.module)
    opened: dict[Path, Checkpoint] = {}
    by_key: dict[str, Checkpoint] = {}
    faults: dict[Diagnostic, None] = {}
    for model, path in needed_checkpoints(elaborated).items():
        if path is None:
            faults[_no_weights(model, used[model])] = None
            continue
        if path not in opened:
            opened[path] = open_checkpoint(path)
        checkpoint = opened[path]
        faults |= dict.fromkeys(check_parameters(used[model], checkpoint))
        for parameter in used[model]:
            for element in elements(parameter):
                first = by_key.setdefault(element.key, checkpoint)
                if first is not checkpoint:
                    faults[_two_checkpoints(parameter, first, checkpoint)] = None
    if faults:
        raise DiagnosticError(faults, elaborated.sources)
    return ParameterReader(by_key)


def _no_weights(model: str, parameters: list[Parameter]) -> Diagnostic:
    count = f"{len(parameters)} parameter{'s' * (len(parameters) != 1)}"
    message = f"model `{model}` has {count} and does not say where they are"
    help_text = 'write `weights "model.safetensors"` in the model, or name a checkpoint when compiling'
    return Diagnostic("no-weights", message, parameters[0].span, help=help_text)


def _two_checkpoints(parameter: Parameter, first: Checkpoint, second: Checkpoint) -> Diagnostic:
    message = f"`{parameter.name}` would be read from `{first.path}` and from `{second.path}`"
    help_text = "models of one file share the parameters of one name; give the instances different names"
    return Diagnostic("two-checkpoints", message, parameter.span, help=help_text)
