"""Entries of a training model in the interpreter, with the states that a session keeps."""

from __future__ import annotations

import numpy as np
from nacre.compiler.readers.language.elaborate import load_module
from nacre.dialect.graph import Module, Parameter
from nacre.dialect.interpreter import Interpreter, load_parameter
from nacre.dialect.states import used_states
from nacre.dialect.types import F64, Array, DType

HEAD = """language 1
import "library/losses.nacre"
import "library/layers.nacre"
dim B in 1..64
block Linear<inputs, outputs>(x: f32[..., inputs]) -> f32[..., outputs] {
  param weight: f32[outputs, inputs] = random_normal((outputs, inputs), seed)
  param bias: f32[outputs] = 0.0
  return x @ weight.T + bias
}
"""


def read(text: str) -> Module:
    return load_module(HEAD + text, text=True).module


class Session:
    """Runs entries of a module with the interpreter, and keeps the states between calls. Floats are computed in
    `precision`, or in their own dtypes if it is None."""

    def __init__(self, module: Module, precision: DType | None = F64) -> None:
        self.module, self.precision = module, precision
        self.states: dict[str, Array] = {}
        for state in module.states:
            if state.initial is None:
                self.states[state.name] = np.zeros(state.type.concrete({}), state.type.dtype.numpy)
            else:
                data = load_parameter(module.parameter_index[state.initial], self.load)
                self.states[state.name] = np.broadcast_to(data, state.type.concrete({}))

    def load(self, parameter: Parameter) -> Array:
        return load_parameter(parameter, self.load)

    def __call__(self, entry: str, *arguments: object) -> Array:
        function = self.module.function(entry)
        names = [state.name for state in used_states(self.module, function)]
        given = [np.asarray(a) for a in arguments] + [self.states[n] for n in names]
        results = Interpreter(self.module, self.load, precision=self.precision).run(function, given)
        self.states |= dict(zip(names, results[len(function.outputs) :], strict=True))
        return results[0]
