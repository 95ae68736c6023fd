"""A session of the reference interpreter in f64, with the states of a model between its calls."""

from __future__ import annotations

from typing import Any

import numpy as np
from nacre.compiler.model.parameters import open_parameters
from nacre.compiler.model.source import SourceModel
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.types import F64


class InterpretedSession:
    def __init__(self, source: SourceModel, **dims: int) -> None:
        self.module = source.module
        self.dims = dims
        self.interpreter = Interpreter(source.module, open_parameters(source), precision=F64)
        self.states: dict[str, np.ndarray[Any, Any]] = {}
        self.reset()

    def reset(self) -> None:
        """All states begin with zeros."""
        for state in self.module.states:
            assert state.initial is None, state
            shape = state.type.concrete(self.dims)
            self.states[state.name] = np.zeros(shape, np.float64 if state.type.dtype.is_float else np.int64)

    def call(self, entry: str, *arguments: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Returns the first result."""
        function = self.module.function(entry)
        kept = [self.states[name] for name in function.states]
        results = self.interpreter.run(function, [*arguments, *kept])
        self.states |= dict(zip(function.states, results[len(function.outputs) :], strict=True))
        return results[0]
