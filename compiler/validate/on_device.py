"""The entries of a program as an artifact whose code a GPU runs. One artifact has the code of one target."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from ...dialect.graph import Function, Module
from ...dialect.interpreter import Load, load_parameter
from ...runtime.library import NacreError, OutOfRangeError
from ...runtime.loader import Model
from ...runtime.loader import load as load_artifact
from ..artifact.assemble import build_artifact
from ..codegen.objects import CodeOptions, Program
from ..describe import specify
from ..model.source import SourceModel
from ..options import Options
from ..targets.target import Target
from .array_errors import same_bits
from .devices import DEVICE
from .isolated import allow_reserved_memory
from .judge import Judge
from .native import Finding
from .stateful import call_function

_REPEATS = 2
"""The calls after the first one: the second is recorded as a graph or replayed, the third is replayed."""


class DeviceLibrary:
    """The functions of a module, whose program is compiled for one GPU target. `objects` are those of the program."""

    def __init__(
        self,
        module: Module,
        program: Program,
        objects: Sequence[bytes],
        target: Target,
        code: CodeOptions,
        load: Load,
    ) -> None:
        options = Options(level=code.level, targets=(target,), strict=code.strict, graphs=False, cache=code.cache)
        source = SourceModel(module, f"{module.name}.nacre", {f.name: Path() for f in module.functions})
        # A kernel that copies has a result of its argument's name; no value of a model has a space in its name.
        named = [replace(f, result_names=tuple(f"result {n}" for n in range(len(f.results)))) for f in module.functions]
        source = replace(source, module=replace(module, functions=tuple(named)))
        spec = specify(source, module, options, program, lambda parameter: load_parameter(parameter, load))
        folder = tempfile.mkdtemp(prefix="nacre-device-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._path = Path(folder) / "kernels.so"
        build_artifact(spec, objects, self._path, weights="external", find=options.linker)

    @cache  # noqa: B019  (it lives as long as its library)
    def _model(self, process: int) -> Model:
        """Returns the artifact as a process loads it: a session of its parent belongs to the parent."""
        allow_reserved_memory()
        return load_artifact(self._path, device=DEVICE)

    def check(self, function: Function, judge: Judge) -> Finding | None:
        """Calls a function, and again, which replays a graph of its launches; judges its results."""
        trial, model = judge.trial, self._model(os.getpid())
        try:
            results = call_function(model, function.name, trial.arguments, trial.dims)
        except OutOfRangeError:
            results = None
        except NacreError as error:
            return Finding("memory", str(error))
        found = judge.difference(results)
        if found is not None:
            return Finding("numbers", str(found), found)
        for _ in range(_REPEATS if results is not None else 0):
            try:
                again = call_function(model, function.name, trial.arguments, trial.dims)
            except NacreError as error:
                return Finding("repeat", f"a repeated call fails: {error}")
            for i, (a, b) in enumerate(zip(results or (), again, strict=True)):
                if not same_bits(a, b):
                    return Finding("repeat", f"result {i} differs in a repeated call")
        return None


def only(program: Program, target: Target) -> Program:
    """Returns the program with the kernels of one target."""
    return replace(program, kernels={target: program.kernels[target]})
