"""States of a module: the dims that a session binds, the memory of a session, and the values of a new session.

A state belongs to a session as a parameter belongs to an artifact. The dims that occur in states are bound when a
session is created, the others in each call. A function takes the values of its states as its last arguments and returns
their new values as its last results; `stateless` views them as ordinary ones. No memory is allocated here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from .dims import Size, Symbol, add, ceil_divide, evaluate, multiply
from .graph import Function, Module, State, Value, substitute_values, walk
from .interpreter import Load
from .types import Array, TensorType

ALIGNMENT = 64
"""The alignment of each state in the memory of a session, in bytes."""


def initial_fits(state: TensorType, initial: TensorType) -> bool:
    """Returns whether a state can begin with the value: it has the shape of the state's last axes, and is repeated
    along the axes before them."""
    first = state.rank - initial.rank
    return first >= 0 and state.dtype == initial.dtype and state.shape[first:] == initial.shape


def session_dims(states: Sequence[State]) -> tuple[Symbol, ...]:
    """Returns the dims that a session binds, by name."""
    found = {symbol for state in states for symbol in state.type.symbols()}
    return tuple(sorted(found, key=lambda symbol: symbol.name))


def session_bytes(states: Sequence[State]) -> Size:
    """Returns the memory of a session's states in bytes."""
    total: Size = 0
    for state in states:
        total = add(total, multiply(ALIGNMENT, ceil_divide(state.type.bytes, ALIGNMENT)))
    return total


def used_states(module: Module, function: Function) -> tuple[State, ...]:
    """Returns the records of the states that a function uses, in its order."""
    index = {state.name: state for state in module.states}
    return tuple(index[name] for name in function.states)


def initial_values(module: Module, function: Function, dims: Mapping[str, int], load: Load) -> tuple[Array, ...]:
    """Returns the values of a function's states in a new session. `load` returns the data of any parameter."""
    values: list[Array] = []
    for state in used_states(module, function):
        shape = tuple(evaluate(size, dims) for size in state.type.shape)
        if state.initial is None:
            values.append(np.zeros(shape, state.type.dtype.numpy))
        else:
            data = np.asarray(load(module.parameter_index[state.initial]))
            values.append(np.ascontiguousarray(np.broadcast_to(data, shape)).reshape(shape))
    return tuple(values)


def stateless(module: Module) -> Module:
    """Returns the module with the states of each function as ordinary arguments and results, whose names are words:
    `layer_0_keys` and `state_layer_0_keys`."""
    if not module.states:
        return module
    return replace(module, functions=tuple(map(_without_states, module.functions)), states=())


def _without_states(function: Function) -> Function:
    taken = {v.name for v in function.arguments} | {v.name for node in walk(function.body) for v in node.outputs}
    names: dict[str, Value] = {}
    for value in function.state_arguments:
        name = value.name.replace(".", "_")
        while name in taken and name != value.name:
            name += "_"
        taken.add(name)
        names[value.name] = Value(name, value.type)
    count = len(function.outputs)
    return replace(
        function,
        arguments=tuple(names.get(v.name, v) for v in function.arguments),
        body=tuple(substitute_values(node, names) for node in function.body),
        results=tuple(names.get(v.name, v) for v in function.results),
        result_names=(*function.result_names[:count], *(n.replace(".", "_") for n in function.result_names[count:])),
        states=(),
    )
