"""One call of one function, with all its data: the input of triage and reduction.

Its parameters are stored as the graph has them, under their names, independent of their origin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from ....dialect.dims import evaluate
from ....dialect.graph import Function, Module, Node, Parameter, State, parameters_read, walk
from ....dialect.interpreter import Interpreter, Load, bind_dims, load_parameter
from ....dialect.states import initial_values, used_states
from ....dialect.types import Array
from ....passes.simplify.unroll_repeat import UnrollRepeat
from ...model.source import SourceModel
from ...validate.inputs import ORDINARY, Trial
from ...validate.judge import Judge, ends
from ...weights.header_checks import elements
from . import smaller


@dataclass(frozen=True)
class SessionStates:
    """The states of a function, and the parameters that hold their initial values; `data` are those of stored
    parameters, by name."""

    states: tuple[State, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    data: Mapping[str, Array] = field(default_factory=dict)


NO_STATES = SessionStates()


@dataclass(frozen=True)
class Case:
    """One call of the only function of `module`; `arguments` are arrays by argument name, `parameters` those of single
    parameters by name. `kind` is the kind of the numbers, see `validate/inputs.py`."""

    module: Module
    arguments: Mapping[str, Array]
    parameters: Mapping[str, Array]
    kind: str = ORDINARY

    @property
    def function(self) -> Function:
        return smaller.only_function(self.module)

    @cached_property
    def dims(self) -> dict[str, int]:
        return bind_dims(self.function, self.trial_arrays)

    @property
    def trial_arrays(self) -> tuple[Array, ...]:
        return tuple(self.arguments[a.name] for a in self.function.arguments)

    @property
    def trial(self) -> Trial:
        names = tuple(a.name for a in self.function.arguments)
        return Trial(self.function.name, self.dims, self.kind, names, self.trial_arrays)

    def load(self, parameter: Parameter) -> Array:
        return self.parameters[parameter.name]

    def with_states(self, kept: SessionStates) -> Case:
        """Returns the case whose last arguments and results are states of a session again."""
        names = tuple(v.name for v in self.function.arguments[len(self.function.arguments) - len(kept.states) :])
        function = replace(self.function, states=names)
        states = tuple(replace(state, name=name) for state, name in zip(kept.states, names, strict=True))
        parameters = {p.name: p for p in (*kept.parameters, *self.module.parameters)}
        module = replace(self.module, states=states, functions=(function,), parameters=tuple(parameters.values()))
        return replace(self, module=module, parameters={**kept.data, **self.parameters})

    @cached_property
    def initial(self) -> tuple[Array, ...]:
        """The values of the states in a new session."""
        return initial_values(self.module, self.function, self.dims, partial(load_parameter, load=self.load))

    @cached_property
    def _judges(self) -> dict[bool, Judge]:
        return {}

    def judge(self, *, in_blocks: bool) -> Judge:
        """Returns the judge of the function's results, based on the reference interpreter. `in_blocks`: see Judge."""
        if in_blocks not in self._judges:
            self._judges[in_blocks] = Judge(self.module, self.trial, self.load, in_blocks=in_blocks)
        return self._judges[in_blocks]

    @cached_property
    def ends(self) -> bool:
        """Whether every `while` terminates. A search replaces arguments, so a smaller case may loop without end."""
        return ends(self.module, self.trial, self.load)

    @property
    def source_model(self) -> SourceModel:
        """The module as the front-end would return it."""
        return SourceModel(self.module, f"{self.module.name}.nacre", {self.function.name: Path()})

    def __reduce__(self) -> tuple[object, ...]:
        # Properties that were computed from it are not sent to a child.
        return Case, (self.module, self.arguments, self.parameters, self.kind)

    @property
    def bytes(self) -> int:
        """The bytes of its data."""
        return sum(array.nbytes for array in (*self.arguments.values(), *self.parameters.values()))

    @property
    def nodes(self) -> int:
        return sum(1 for _ in walk(self.function.body))

    @cached_property
    def values(self) -> Mapping[str, Array]:
        """Every array that the reference interpreter computes; for values in loops, that of the last iteration."""
        found = dict(self.arguments)

        def observe(node: Node, results: object) -> None:
            assert isinstance(results, (tuple, list))
            found.update((v.name, array) for v, array in zip(node.outputs, results, strict=True))

        Interpreter(self.module, self.load, observe=observe).run(self.function, self.trial_arrays)
        return found

    def cut(self, module: Module) -> Case:
        """Returns the case of a part of the function; its arguments are values of this case."""
        arguments = {a.name: self.values[a.name] for a in smaller.only_function(module).arguments}
        return replace(self, module=module, arguments=arguments, parameters=self._kept(module))

    def cropped(self, module: Module, dims: Mapping[str, int]) -> Case | None:
        """Returns the case of a function with other sizes, at the given dims; None if an array is too small for it."""
        try:
            arguments = {
                a.name: smaller.cropped(self.arguments[a.name], [evaluate(s, dims) for s in a.type.shape])
                for a in smaller.only_function(module).arguments
            }
            parameters = {
                e.name: smaller.cropped(self.parameters[e.name], e.type.shape)
                for p in module.parameters
                for e in elements(p)
            }
        except ValueError:
            return None
        return replace(self, module=module, arguments=arguments, parameters=parameters)

    def unrolled(self) -> Case:
        module = UnrollRepeat().run(self.module)
        return replace(self, module=module, parameters=self._kept(module))

    def _kept(self, module: Module) -> dict[str, Array]:
        return {e.name: self.parameters[e.name] for p in module.parameters for e in elements(p)}


def make_case(module: Module, name: str, arguments: Mapping[str, Array], load: Load, kind: str = ORDINARY) -> Case:
    """Returns the case of the function `name` of a module, with the parameters that it reads. Raises DiagnosticError if
    one cannot be read."""
    function = module.function(name)
    read = set(parameters_read(function.body))
    used = [p for p in module.parameters if p.name in read]
    data = {e.name: np.asarray(load(e)) for p in used for e in elements(p)}
    plain = tuple(replace(p, source=None, transpose=None) for p in used)
    return Case(Module(module.name, function.symbols(), plain, (function,)), arguments, data, kind)


def states_of(module: Module, name: str, load: Load) -> SessionStates:
    """Returns the states of the function `name`. Raises DiagnosticError if an initial value cannot be read."""
    states = used_states(module, module.function(name))
    begun = dict.fromkeys(state.initial for state in states if state.initial is not None)
    parameters = [module.parameter_index[initial] for initial in begun]
    data = {p.name: np.asarray(load(p)) for p in parameters if p.formula is None}
    return SessionStates(states, tuple(replace(p, source=None, transpose=None) for p in parameters), data)
