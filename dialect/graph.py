"""The graph: immutable, typed, in SSA form, with spans.

A module holds dims, parameters, states and functions; a function is a list of nodes in order, each a use of an
operator. Some nodes hold regions (`repeat`, `fusion`). Values are known by name, unique within a function; two graphs
are equal when they print equal. This module stores and walks graphs; `verifier` defines validity, `printer` and
`parser` define the text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Union

import numpy as np

from .diagnostics import Span
from .dims import Size, Symbol
from .lazy_dataclass import dataclass
from .types import Array, DType, TensorType, dtype_of


class Constant:
    """An array as an attribute. It compares by content (a hash), so that graphs with elided data still compare.

    `array` is None in a graph that was read from text with only the hash of a big constant.
    """

    __slots__ = ("array", "digest", "type")

    def __init__(self, array: Array | None, type: TensorType | None = None, digest: str | None = None) -> None:
        if array is not None:
            array = np.ascontiguousarray(array).reshape(np.shape(array))
            array.flags.writeable = False
            type = TensorType(dtype_of(array), array.shape)
            assert not type.dtype.is_blocked, "a value in blocks is no constant"
            # The hash includes the type: the same bytes under two shapes are two constants.
            digest = hashlib.sha256(f"{type} ".encode() + array.tobytes()).hexdigest()[:16]
        assert type is not None and digest is not None
        self.array, self.type, self.digest = array, type, digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and (self.type, self.digest) == (other.type, other.digest)

    def __hash__(self) -> int:
        return hash((self.type, self.digest))

    def __repr__(self) -> str:
        return f"Constant({self.type}, {self.digest})"

    @property
    def data(self) -> Array:
        assert self.array is not None, f"the data of {self!r} was not kept"
        return self.array


Attribute = Union[bool, int, float, str, DType, Size, Constant, tuple["Attribute", ...], None]  # noqa: UP007 (recursive)
"""The value of an attribute. Sizes and tuples of sizes are attributes, so shapes may be symbolic."""


@dataclass(frozen=True, slots=True)
class Value:
    """A result of a node, or an argument of a function or region."""

    name: str
    type: TensorType

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@dataclass(frozen=True, slots=True)
class Region:
    """Nodes inside a node. They may also use values of the surrounding function."""

    arguments: tuple[Value, ...]
    body: tuple[Node, ...]
    results: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One use of an operator. `scope` is the dotted path of the block instance that contains the source statement."""

    op: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    regions: tuple[Region, ...] = ()
    scope: str = ""
    span: Span | None = None

    @property
    def output(self) -> Value:
        """The only result."""
        assert len(self.outputs) == 1, self
        return self.outputs[0]

    def attribute(self, name: str) -> Attribute:
        for key, value in self.attributes:
            if key == name:
                return value
        raise KeyError(f"{self.op} has no attribute {name}")


@dataclass(frozen=True, slots=True)
class Formula:
    """The computation of a tensor from stored ones: `body` takes no arguments, and its `parameter` nodes name the
    `parameters`.

    A formula is self-contained, so reading its tensor needs no module. None of its parameters has a formula. With
    `stepwise`, every node is rounded to its dtype, as in a call.
    """

    parameters: tuple[Parameter, ...]
    body: tuple[Node, ...]
    result: Value
    stepwise: bool = False

    @property
    def function(self) -> Function:
        return Function("formula", (), self.body, (self.result,))

    @property
    def module(self) -> Module:
        return Module("formula", parameters=self.parameters, functions=(self.function,))


@dataclass(frozen=True, slots=True)
class Parameter:
    """A tensor that comes from a checkpoint, or is computed from such tensors once, before any call.

    `name` is its path. In a repeated block it holds one pair of braces per loop, `layer.{}.weight`, and `counts` holds
    the number of iterations of each. `source` is the key in the checkpoint (with as many braces), if it differs from
    the name; `transpose` is the permutation that is applied to the checkpoint's tensor. A parameter with a `formula` is
    in no checkpoint, and has none of these three.
    """

    name: str
    type: TensorType
    counts: tuple[int, ...] = ()
    source: str | None = None
    transpose: tuple[int, ...] | None = None
    span: Span | None = None
    formula: Formula | None = None

    @property
    def key(self) -> str:
        return self.name if self.source is None else self.source

    def at(self, indices: Iterable[int]) -> Parameter:
        """Returns the single parameter at the given loop indices."""
        index = tuple(indices)
        assert len(index) == len(self.counts), (self, index)
        source = None if self.source is None else fill_braces(self.source, index)
        return replace(self, name=fill_braces(self.name, index), counts=(), source=source)


def fill_braces(pattern: str, indices: Iterable[int]) -> str:
    """Replaces the braces of a pattern `layer.{}.weight` by numbers, in order; `{+2}` is two more than its index."""
    for index in indices:
        pattern = re.sub(r"\{(\+\d+)?\}", partial(_shifted, index), pattern, count=1)
    return pattern


def _shifted(index: int, braces: re.Match[str]) -> str:
    return str(index + int(braces[1] or 0))


@dataclass(frozen=True, slots=True)
class State:
    """A tensor that a session keeps between calls. `name` is its path; `initial` names the parameter that holds its
    value in a new session, None for zeros. The shape of the initial value is that of the last axes of the state."""

    name: str
    type: TensorType
    initial: str | None = None
    span: Span | None = None

    @property
    def result_name(self) -> str:
        """The name of the value after a call among the results of a function."""
        return result_of_state(self.name)


def result_of_state(name: str) -> str:
    return f"state.{name}"


@dataclass(frozen=True, slots=True)
class Function:
    """An entry point: arguments, nodes with definitions before uses, results by name.

    `states` names the states that the function uses. Their values before the call are its last arguments, their values
    after the call its last results, in the same order. So every pass keeps them without knowing states.
    """

    name: str
    arguments: tuple[Value, ...]
    body: tuple[Node, ...]
    results: tuple[Value, ...]
    result_names: tuple[str, ...] = ()
    span: Span | None = None
    states: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The arguments that a caller passes."""
        return self.arguments[: len(self.arguments) - len(self.states)]

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The results that a caller receives."""
        return self.results[: len(self.results) - len(self.states)]

    @property
    def state_arguments(self) -> tuple[Value, ...]:
        return self.arguments[len(self.arguments) - len(self.states) :]

    @property
    def state_results(self) -> tuple[Value, ...]:
        return self.results[len(self.results) - len(self.states) :]

    def symbols(self) -> tuple[Symbol, ...]:
        """The dims of the arguments' types, by name."""
        found = {s for a in self.arguments for s in a.type.symbols()}
        return tuple(sorted(found, key=lambda s: s.name))


@dataclass(frozen=True, slots=True)
class Module:
    """A whole model."""

    name: str
    dims: tuple[Symbol, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    functions: tuple[Function, ...] = ()
    states: tuple[State, ...] = ()
    parameter_index: Mapping[str, Parameter] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameter_index", {p.name: p for p in self.parameters})

    def function(self, name: str) -> Function:
        for function in self.functions:
            if function.name == name:
                return function
        raise KeyError(f"no function {name}")

    def map_functions(self, change: Callable[[Function], Function]) -> Module:
        return replace(self, functions=tuple(change(f) for f in self.functions))


def walk(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yields every node, each before those in its regions."""
    for node in nodes:
        yield node
        for region in node.regions:
            yield from walk(region.body)


def parameter_of(node: Node) -> str | None:
    """Returns the name of the parameter that the node reads; None if it is another node."""
    return str(node.attribute("name")) if node.op == "parameter" else None


def constant_of(node: Node) -> Constant | None:
    """Returns the constant that the node holds; None if it is another node."""
    if node.op != "constant":
        return None
    value = node.attribute("value")
    assert isinstance(value, Constant), node
    return value


def read_values(node: Node) -> tuple[Value, ...]:
    """Returns the operands of a node, and the values of surrounding scopes that its regions use."""
    return (*node.inputs, *(value for region in node.regions for value in captured(region)))


def needed_nodes(body: Sequence[Node], wanted: Iterable[str], given: Collection[str] = ()) -> tuple[Node, ...]:
    """Returns the nodes of a body that compute the wanted values, given the values of other names, in their order."""
    needed = set(wanted).difference(given)
    found: list[Node] = []
    for node in reversed(body):
        if not needed.isdisjoint(value.name for value in node.outputs):
            found.append(node)
            needed.update(value.name for value in read_values(node) if value.name not in given)
    return tuple(reversed(found))


def parameters_read(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Returns the names of the parameters that nodes and their regions read, each once, in order of first use."""
    return tuple(dict.fromkeys(name for name in map(parameter_of, walk(nodes)) if name is not None))


def captured(region: Region) -> tuple[Value, ...]:
    """Returns the values of surrounding scopes that the region uses, each once, in order of first use."""
    defined = {v.name for v in region.arguments}
    found: dict[str, Value] = {}
    for node in region.body:
        used = list(node.inputs)
        for inner in node.regions:
            used += captured(inner)
        for value in used:
            if value.name not in defined:
                found.setdefault(value.name, value)
        defined |= {v.name for v in node.outputs}
    for value in region.results:
        if value.name not in defined:
            found.setdefault(value.name, value)
    return tuple(found.values())


Substitution = Mapping[str, Value]


def substitute_values(node: Node, values: Substitution) -> Node:
    """Returns the node with its inputs, and those inside its regions, replaced by name: the node itself if it uses none
    of them. Results keep their names."""
    if not values or (not node.regions and not any(v.name in values for v in node.inputs)):
        return node
    inputs = tuple(values.get(v.name, v) for v in node.inputs)
    regions = tuple(
        Region(
            r.arguments,
            tuple(substitute_values(n, values) for n in r.body),
            tuple(values.get(v.name, v) for v in r.results),
        )
        for r in node.regions
    )
    if inputs == node.inputs and regions == node.regions:
        return node
    return replace(node, inputs=inputs, regions=regions)
