"""States of a graph as model text: their declarations, assignments to their parts, and their values after a call.

A state's name is a word: `layer.0.keys` becomes `layer_0_keys`. In the text, the name of a state means the value that
was assigned last, so a value that is needed later gets a separate name first:

    old = keys                      keys_2 = update_slice(keys, k, at)
    keys[:, at:at + T] = k          return ... keys, keys_2 ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....dialect.dims import Size, add
from ....dialect.graph import Function, Module, Node, Parameter, State, Value
from ....dialect.ops.support.arguments import read_integers, read_sizes
from .model_bodies import with_braces
from .model_control import Body
from .model_initial import write_initial_value
from .model_library import BlockLibrary
from .model_parameters import ParameterTable
from .model_text import Expression, Names, Words, flattened, not_expressible


def name_states(states: Mapping[str, str], names: Names, reserved: Collection[str]) -> dict[str, str]:
    """Returns the word of each state, given the names relative to the instance that declares them."""
    return {name: names.give(flattened(relative, "state"), reserved) for name, relative in states.items()}


def initial_parameters(module: Module, states: Mapping[str, str], arrays: int) -> list[Parameter]:
    """Returns the stored parameters that initial values read. They are those of an instance inside `arrays`, which
    declares the states under the relative names."""
    found: list[Parameter] = []
    for state in module.states:
        formula = _initial(module, state).formula if state.name in states and state.initial is not None else None
        prefix = state.name.removesuffix(states.get(state.name, state.name))
        for parameter in formula.parameters if formula is not None else ():
            key = with_braces(parameter.key, _numbers(prefix)) if arrays else parameter.key
            found.append(replace(parameter, name=parameter.name.removeprefix(prefix), source=key))
    return found


def _numbers(path: str) -> list[str]:
    return [part for part in path.split(".") if part.isdecimal()]


def _used(module: Module, function: Function) -> list[State]:
    return [state for state in module.states if state.name in function.states]


def _initial(module: Module, state: State) -> Parameter:
    assert state.initial is not None, state
    return module.parameter_index[state.initial]


@dataclass
class StateWriter:
    """The states of one function. `current` names the value that the name of each state denotes at this point of the
    text."""

    module: Module
    function: Function
    words: Words
    table: ParameterTable
    spelled: Mapping[str, str]
    uses: Counter[str]
    relative: Mapping[str, str]
    """The names of the states relative to the instance that declares them, which is inside `arrays`."""
    library: BlockLibrary
    arrays: int = 0
    current: dict[str, str] = field(default_factory=dict)
    types: dict[str, Value] = field(default_factory=dict)

    def declarations(self, body: Body) -> list[str]:
        """Returns the `state` lines, and binds the values before the call."""
        for name, value in zip(self.function.states, self.function.state_arguments, strict=True):
            word = self.spelled[name]
            self.current[word], self.types[word] = value.name, value
            body.texts[value.name] = Expression(word)
        return [self._declare(state) for state in _used(self.module, self.function)]

    def _declare(self, state: State) -> str:
        line = f"state {self.spelled[state.name]}: {self.words.type(state.type)}"
        if state.initial is None:
            return line
        parameter = _initial(self.module, state)
        prefix = state.name.removesuffix(self.relative[state.name])
        if parameter.formula is not None:
            value = write_initial_value(
                parameter.formula,
                self.words,
                lambda name: self.table.access(name.removeprefix(prefix), []),
                self.library,
            )
            return f"{line} = {value}"
        key = with_braces(parameter.key, _numbers(prefix)) if self.arrays else parameter.key
        if parameter.transpose is not None or parameter.counts or key is None or '"' in key or "\\" in key:
            raise not_expressible(f"the initial value of the state `{state.name}`", state.span)
        return f'{line} from "{key}"'

    # --- assignments ---

    def update_slice(self, body: Body, node: Node) -> bool:
        """Writes the node as an assignment to a part of a state of the same type; returns whether there is one."""
        x, update = node.inputs[:2]
        words = [word for word, value in self.types.items() if value.type == x.type]
        word = next((word for word in words if self.current[word] == x.name), words[0] if words else "")
        if not word:
            return False
        if self.current[word] != x.name:
            self._keep(body, word)
            body.lines.append(f"{word} = {body.texts[x.name].expression}")
        elif self.uses[x.name] > 1:
            self._keep(body, word)
        body.lines.append(f"{word}[{self._items(body, node)}] = {body.texts[update.name].expression}")
        self.current[word] = node.output.name
        body.texts[node.output.name] = Expression(word)
        return True

    def _keep(self, body: Body, word: str) -> None:
        """Gives a separate name to the value that the name of a state denotes so far."""
        value = self.current[word]
        if self.uses[value] and body.texts[value].expression == word:
            name = body.names.give(flattened(value))
            body.lines.append(f"{name} = {word}")
            body.texts[value] = Expression(name)

    def _items(self, body: Body, node: Node) -> str:
        x, update, *given = node.inputs
        axes = read_integers(node.op, "axes", node.attribute("axes"))
        starts = read_sizes(node.op, "starts", node.attribute("starts"))
        items: list[str] = []
        for axis, (size, part) in enumerate(zip(x.type.shape, update.type.shape, strict=True)):
            if axis in axes:
                start = body.texts[given[axes.index(axis)].name].expression
                items.append(f"{start}:{start} + ({self.words.size(part)})")
            else:
                items.append(self._range(starts[axis], part, size))
        return ", ".join(items)

    def _range(self, start: Size, part: Size, size: Size) -> str:
        if start == 0 and part == size:
            return ":"
        return f"{self.words.size(start)}:{self.words.size(add(start, part))}"

    def finish(self, body: Body) -> None:
        """Assigns the values after the call, all in one statement."""
        results = zip(self.function.states, self.function.state_results, strict=True)
        changed = [(self.spelled[name], value) for name, value in results]
        changed = [(word, value) for word, value in changed if self.current[word] != value.name]
        returned = {value.name for value in self.function.outputs}
        for word, _ in changed:
            if self.current[word] in returned:
                self._keep(body, word)
        if changed:
            targets, values = zip(*changed, strict=True)
            expressions = ", ".join(body.texts[value.name].expression for value in values)
            body.lines.append(f"{', '.join(targets)} = {expressions}")


def full_starts(words: Words, body: Body, node: Node) -> Sequence[str]:
    """Returns the start of an `update_slice` on every axis, for `dynamic_update_slice`."""
    _, _, *given = node.inputs
    axes = read_integers(node.op, "axes", node.attribute("axes"))
    starts = read_sizes(node.op, "starts", node.attribute("starts"))
    at = {axis: body.texts[value.name].expression for axis, value in zip(axes, given, strict=True)}
    return [at.get(axis, f"cast({words.size(start)}, i64)") for axis, start in enumerate(starts)]
