"""The bodies of calls: nodes as they stand in a block, with all names relative to the instance.

    %i4 = parameter(%i) {name = "layer.{}.w"} @layer.{}      %i4 = parameter() {name = "w"}
    %5 = matmul(%x, %i4) @layer.{}                     ->    %5 = matmul(%x, %i4)
    %6 = relu(%5) @layer.{}.act                              %6 = relu(%5) @act

`x` comes from outside, and `i` selects the element of the array. A call takes the parameters of its instance and the
constants that it reads with it. Two bodies are alike if they are equal after a renaming of their values, up to sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ....dialect.dims import Poly
from ....dialect.graph import Attribute, Constant, Function, Node, Parameter, Region, Value, constant_of, walk
from ....dialect.lazy_dataclass import dataclass
from ....dialect.ops import OPERATORS
from ....dialect.types import BOOL
from .model_calls import CONSTANTS, Call, index_nodes, sources_of


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """The body of a call: its nodes, preceded by the parameters and constants that it takes with it.

    Attributes:
        occurrences: The names of all values that the nodes use or define, with repetitions.
        names: The distinct names, in the order of the body that this one has been matched with, see `like`.
        repeats: For each name, how often the matched body uses it. Two arguments of a call may be one value.
        outside: The values that come from the caller.
    """

    call: Call
    index: tuple[Value, ...]
    nodes: tuple[Node, ...]
    parameters: Mapping[str, Parameter]
    taken: tuple[str, ...]
    occurrences: tuple[str, ...]
    names: tuple[str, ...]
    repeats: tuple[int, ...]
    values: Mapping[str, Value]
    outside: tuple[str, ...]

    def value(self, number: int) -> Value:
        return self.values[self.names[number]]

    def uses_at(self, number: int) -> int:
        """Returns how often the body that this one has been matched with uses a value."""
        return self.repeats[number]

    def like(self, other: Body) -> Body | None:
        """Matches the body with another one: returns it with `names` in the order of the other body, or None if the two
        differ by more than names and sizes."""
        if len(self.occurrences) != len(other.occurrences) or self.parameters != other.parameters:
            return None
        names = dict(zip(other.occurrences, self.occurrences, strict=True))
        renamed = all(names[theirs] == mine for theirs, mine in zip(other.occurrences, self.occurrences, strict=True))
        nodes = zip(other.nodes, self.nodes, strict=False)
        if not renamed or len(self.nodes) != len(other.nodes) or not all(_is_renamed(a, b, names) for a, b in nodes):
            return None
        return replace(self, names=tuple(names[name] for name in other.names), repeats=other.repeats)


def _is_renamed(node: Node, other: Node, names: Mapping[str, str]) -> bool:
    def same(values: Sequence[Value], others: Sequence[Value]) -> bool:
        mine = [(names[v.name], v.type.dtype, v.type.rank) for v in values]
        return mine == [(v.name, v.type.dtype, v.type.rank) for v in others]

    return (
        (node.op, node.scope) == (other.op, other.scope)
        and _differ_by_sizes(node, other)
        and same(node.inputs, other.inputs)
        and same(node.outputs, other.outputs)
        and len(node.regions) == len(other.regions)
        and all(
            same(a.arguments, b.arguments)
            and same(a.results, b.results)
            and len(a.body) == len(b.body)
            and all(_is_renamed(x, y, names) for x, y in zip(a.body, b.body, strict=True))
            for a, b in zip(node.regions, other.regions, strict=True)
        )
    )


_SIZES = ("size", "sizes", "any")
"""The kinds of attributes that may hold sizes."""


def _differ_by_sizes(node: Node, other: Node) -> bool:
    """Returns whether the attributes of two nodes are equal up to sizes."""
    if whole_number(node) is not None and whole_number(other) is not None:
        return True
    if [name for name, _ in node.attributes] != [name for name, _ in other.attributes]:
        return False
    kinds = {spec.name: spec.kind for spec in OPERATORS[node.op].attributes} if node.op in OPERATORS else {}
    return all(
        value == its or (kinds.get(name) in _SIZES and _form(value) == _form(its))
        for (name, value), (_, its) in zip(node.attributes, other.attributes, strict=True)
    )


def whole_number(node: Node) -> int | None:
    """Returns the value of a constant of rank 0 that may be a size; None for other nodes."""
    constant = constant_of(node)
    if constant is None or constant.array is None or constant.type.rank or constant.type.dtype == BOOL:
        return None
    value = float(constant.array)
    return int(value) if value.is_integer() and 0 <= value < 2**24 else None


def _form(value: Attribute) -> object:
    """Returns an attribute without its sizes."""
    if isinstance(value, tuple):
        return [_form(each) for each in value]
    return None if isinstance(value, (int, Poly)) and not isinstance(value, bool) else (value,)


class Reader:
    """Reads the bodies of the calls in a function, whose parameters are known by name."""

    def __init__(self, function: Function, parameters: Mapping[str, Parameter]) -> None:
        self.parameters = parameters
        self.indices = index_nodes(function)
        self.sources = sources_of(function, self.indices)

    def read(self, call: Call) -> Body | None:
        """Returns the body of a call; None if it reads a parameter in a way that a block cannot."""
        selected: list[Value] = []
        parameters: dict[str, Parameter] = {}
        try:
            nodes = [self._inside(node, call, selected, parameters) for node in call.nodes]
            sources: dict[str, Node] = {}
            for name in _used(nodes):
                self._take(name, call, selected, parameters, sources)
        except _UnknownError:
            return None
        index: tuple[Value, ...] = ()
        if call.head.element == "{}":
            if len({self._index_key(value) for value in selected}) != 1:
                return None
            index = (selected[0],)
        everything = (*sources.values(), *nodes)
        if len(everything) < 2:
            return None
        occurrences = list(_values(everything))
        values = dict(occurrences)
        names, outside = tuple(values), tuple(_used(everything))
        order = tuple(name for name, _ in occurrences)
        repeats = tuple(order.count(name) for name in names)
        return Body(call, index, everything, parameters, tuple(sources), order, names, repeats, values, outside)

    def _take(
        self,
        name: str,
        call: Call,
        selected: list[Value],
        parameters: dict[str, Parameter],
        sources: dict[str, Node],
    ) -> None:
        """Adds the source of a value, and of the indices that it needs, if it belongs to the call."""
        node = self.sources.get(name)
        if node is None or name in sources:
            return
        if node.op in CONSTANTS or name in self.indices:
            for value in node.inputs:
                if value.name not in self.sources:
                    raise _UnknownError
                self._take(value.name, call, selected, parameters, sources)
            sources[name] = replace(node, scope="")
        elif self._own_name(node, call) is not None:
            inner = self._parameter(node, call, selected, parameters)
            for value in inner.inputs:
                if value.name not in self.sources:
                    raise _UnknownError  # a loop around the call selects a parameter inside of the instance
                self._take(value.name, call, selected, parameters, sources)
            sources[name] = inner

    def _inside(self, node: Node, call: Call, selected: list[Value], parameters: dict[str, Parameter]) -> Node:
        """Returns a node of the call with its scope, its names and its indices relative to the instance."""
        if node.op == "parameter":
            return self._parameter(node, call, selected, parameters)
        regions: list[Region] = []
        for region in node.regions:
            body = [self._inside(inner, call, selected, parameters) for inner in region.body]
            regions.append(Region(region.arguments, tuple(self._needed(body, region.results)), region.results))
        prefix = call.head.prefix
        scope = f"{node.scope}."
        return replace(
            node, scope=scope.removeprefix(prefix)[:-1] if scope.startswith(prefix) else "", regions=tuple(regions)
        )

    def _needed(self, body: Sequence[Node], results: Iterable[Value]) -> list[Node]:
        """Returns the nodes without those that only selected the element of the array."""
        read = {v.name for v in results}
        kept: list[Node] = []
        for node in reversed(body):
            if node.outputs and node.outputs[0].name in self.indices and node.outputs[0].name not in read:
                continue
            kept.append(node)
            read |= {v.name for v in node.inputs} | set(_used([n for r in node.regions for n in r.body]))
        return kept[::-1]

    def _own_name(self, node: Node, call: Call) -> str | None:
        """Returns the name of a parameter relative to the instance; None for one of another instance."""
        name, head = str(node.attribute("name")), call.head
        if name.startswith(head.prefix):
            return name.removeprefix(head.prefix)
        braces = f"{head.path}.{{}}."
        if head.element.isdecimal() and name.startswith(braces) and self._number(node.inputs[0]) == int(head.element):
            return name.removeprefix(braces)
        return None

    def _parameter(self, node: Node, call: Call, selected: list[Value], parameters: dict[str, Parameter]) -> Node:
        name, relative = str(node.attribute("name")), self._own_name(node, call)
        if relative is None:
            raise _UnknownError
        found = self.parameters[name]
        is_selected = name.startswith(f"{call.head.path}.{{}}.")
        key: str | None = found.key
        if call.head.element.isdecimal() and not is_selected:
            key = with_braces(found.key, [call.head.element])
        if key is None:
            raise _UnknownError
        selected += node.inputs[:is_selected]
        record = replace(found, name=relative, counts=found.counts[is_selected:], source=key, span=None)
        if parameters.setdefault(relative, record) != record:
            raise _UnknownError
        return replace(node, scope="", inputs=node.inputs[is_selected:], attributes=(("name", relative),))

    def _number(self, value: Value) -> int | None:
        node = self.sources.get(value.name)
        if node is None or node.op != "constant":
            return None
        constant = node.attribute("value")
        assert isinstance(constant, Constant), node
        return int(constant.data)

    def _index_key(self, value: Value) -> object:
        """Returns the computation of an index, the same for equal ones."""
        node = self.sources.get(value.name)
        if node is None:
            return value.name
        return (node.op, self._number(value), *(self._index_key(v) for v in node.inputs))


class _UnknownError(Exception):
    """A parameter that a block cannot read."""


def with_braces(key: str, numbers: Iterable[str]) -> str | None:
    """Returns the key with braces in place of numbers, in their order: of the same number, else of the first greater
    one, since keys may count from another number than the elements of an array. None if there is none.

    >>> with_braces("h.{}.conv.3.weight", ["3"]), with_braces("layer1.1.bias", ["0"])
    ('h.{}.conv.{}.weight', 'layer1.{+1}.bias')
    """
    at = max((m.end() for m in re.finditer(r"\{[^{}]*\}", key)), default=0)
    for number in numbers:
        parts = [m for m in re.compile(r"(?<!\w)\d+(?!\w)").finditer(key, at) if int(m[0]) >= int(number)]
        found = next((m for m in parts if m[0] == number), parts[0] if parts else None)
        if found is None:
            return None
        offset = int(found[0]) - int(number)
        braces = f"{{+{offset}}}" if offset else "{}"
        key = f"{key[: found.start()]}{braces}{key[found.end() :]}"
        at = found.start() + len(braces)
    return key


def _values(nodes: Iterable[Node]) -> Iterator[tuple[str, Value]]:
    """Yields the values of nodes in order of their first use or definition, with repetitions."""
    for node in nodes:
        yield from ((v.name, v) for v in node.inputs)
        for region in node.regions:
            yield from ((v.name, v) for v in region.arguments)
            yield from _values(region.body)
            yield from ((v.name, v) for v in region.results)
        yield from ((v.name, v) for v in node.outputs)


def _used(nodes: Sequence[Node]) -> list[str]:
    """Returns the names that nodes use and do not define."""
    defined = {v.name for n in walk(nodes) for v in (*n.outputs, *(a for r in n.regions for a in r.arguments))}
    return [name for name in dict(_values(nodes)) if name not in defined]
