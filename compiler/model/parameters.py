"""The data of parameters: read from checkpoints by name, transposed and converted as the model declares, or computed.

The check of the checkpoint's header decides which conversions are allowed; this module reads data, and only on demand.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ...dialect.diagnostics import Diagnostic, DiagnosticError
from ...dialect.graph import Module, Parameter, parameters_read
from ...dialect.interpreter import load_parameter
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops.block_quantization import dequantize_blocks
from ...dialect.ops.support.conversion import cast_array
from ...dialect.states import used_states
from ...dialect.types import F32, Array, dtype_of
from ...dialect.wrapping import counted
from ..weights import Checkpoint, open_checkpoint
from ..weights.header_checks import check_parameters, elements
from .source import SourceModel, WeightSource


@dataclass(frozen=True, slots=True)
class ParameterReader:
    """Reads and computes parameters; `checkpoints` maps each key to the checkpoint that holds it."""

    checkpoints: Mapping[str, Checkpoint]

    def __call__(self, parameter: Parameter) -> Array:
        """Returns the tensor in the shape and dtype of the parameter's type; memory-mapped if not converted."""
        return load_parameter(parameter, self._stored)

    def _stored(self, parameter: Parameter) -> Array:
        array = self.checkpoints[parameter.key].read(parameter.key)
        if dtype_of(array).is_blocked:
            if parameter.type.dtype.is_blocked and parameter.transpose is None:
                return array
            array = np.asarray(dequantize_blocks.reference(array, F32))
        if parameter.transpose is not None:
            array = np.transpose(array, parameter.transpose)
        # The caller quantizes parameters that are declared in blocks.
        return array if parameter.type.dtype.is_blocked else cast_array(array, parameter.type.dtype)

    def files(self) -> list[Path]:
        """Returns every file that is read."""
        opened = {c.path: c for c in self.checkpoints.values()}
        files = {t.file for c in opened.values() if not c.digest for t in c.tensors.values()}
        return sorted(files | {path for path, checkpoint in opened.items() if not checkpoint.digest})

    def digests(self) -> list[str]:
        """Returns the digests of the checkpoints that are not files."""
        return sorted({c.digest for c in self.checkpoints.values() if c.digest})


def used_parameters(module: Module) -> dict[str, list[Parameter]]:
    """Returns the checkpoint parameters that each function reads, by the function's name. A computed parameter is
    replaced by the parameters from which it is computed. Initial values of states count as read."""
    used: dict[str, list[Parameter]] = {}
    for function in module.functions:
        names = dict.fromkeys(parameters_read(function.body))
        begun = (state.initial for state in used_states(module, function))
        names |= dict.fromkeys(name for name in begun if name is not None)
        read = [module.parameter_index[name] for name in names]
        stored = {s.name: s for p in read for s in (p.formula.parameters if p.formula is not None else [p])}
        used[function.name] = list(stored.values())
    return used


def needed_checkpoints(source_model: SourceModel) -> dict[str, WeightSource | None]:
    """Returns the weight source of each model that has parameters; None if the source does not name one."""
    return {name: source_model.weights[name] for name, used in used_parameters(source_model.module).items() if used}


def absent_checkpoints(source_model: SourceModel) -> dict[str, WeightSource | None]:
    """Returns the weight sources, by model, that are not named or do not exist."""
    needed = needed_checkpoints(source_model)
    return {name: at for name, at in needed.items() if at is None or (isinstance(at, Path) and not at.exists())}


def open_parameters(source_model: SourceModel) -> ParameterReader:
    """Opens the checkpoints of a model and checks every parameter against their headers. Raises DiagnosticError."""
    used = used_parameters(source_model.module)
    opened: dict[Path, Checkpoint] = {}
    by_key: dict[str, Checkpoint] = {}
    errors: dict[Diagnostic, None] = {}
    for model, path in needed_checkpoints(source_model).items():
        if path is None:
            errors[_no_weights(model, used[model])] = None
            continue
        if isinstance(path, Checkpoint):
            checkpoint = path
        else:
            checkpoint = opened[path] = opened.get(path) or open_checkpoint(path)
        errors |= dict.fromkeys(check_parameters(used[model], checkpoint))
        for parameter in used[model]:
            for element in elements(parameter):
                first = by_key.setdefault(element.key, checkpoint)
                if first is not checkpoint:
                    errors[_two_checkpoints(parameter, first, checkpoint)] = None
    if errors:
        raise DiagnosticError(errors, source_model.sources)
    return ParameterReader(by_key)


def _no_weights(model: str, parameters: list[Parameter]) -> Diagnostic:
    count = counted(len(parameters), "parameter")
    message = f"model `{model}` has {count} and does not say where they are"
    help_text = (
        'write `weights "model.safetensors"` in the model, or name a checkpoint when compiling; a parameter with an '
        "initial value, `param ... = 0.0`, needs none"
    )
    return Diagnostic("no-weights", message, parameters[0].span, help=help_text)


def _two_checkpoints(parameter: Parameter, first: Checkpoint, second: Checkpoint) -> Diagnostic:
    message = f"`{parameter.name}` would be read from `{first.path}` and from `{second.path}`"
    help_text = "models of one file share the parameters of one name; give the instances different names"
    return Diagnostic("two-checkpoints", message, parameter.span, help=help_text)
