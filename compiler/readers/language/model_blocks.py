"""Restores blocks: the calls of an instance become nodes `block`, and their nodes the body of one block.

    %1 = matmul(%x, %w) @head        %2 = block(%x) {path = "head"}      head: f(%x) {
    %2 = relu(%1) @head                                                    %1 = matmul(%x, %w)
    %3 = add(%2, %x)           ->    %3 = add(%2, %x)                      %2 = relu(%1)
    %4 = matmul(%3, %w) @head        %5 = block(%3) {path = "head"}        return %2 }
    %5 = relu(%4) @head

All calls of an instance, and of the elements of an array, must have the same body, up to the names of values and up to
sizes that the arguments of the block bind (`model_sizes`). Otherwise the nodes of the instance stay where they are, in
all functions: its path joins the paths `kept`, and the instances inside it are tried on their own. A state moves into
the instance that its path names; there, each call reads the value that the call before it has left.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....dialect.graph import Function, Module, Node, Parameter, Value, walk
from .model_bodies import Body, Reader
from .model_calls import Call, Kept, count_uses, find_calls, period, split_call, without_numbers
from .model_moved_states import MovedStates, follow_states
from .model_sizes import Reserved, with_bound_sizes

BLOCK = "block"


@dataclass(frozen=True)
class Block:
    """The block of an instance, or of an array of `count` instances; 0 if it is none."""

    path: str
    count: int
    inside: Restored


@dataclass(frozen=True)
class Restored:
    """A function, in which nodes `block` call the blocks. Parameters are named relative to the instance."""

    function: Function
    parameters: Mapping[str, Parameter]
    blocks: Mapping[str, Block] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    """The names of the function's states relative to the instance."""

    @classmethod
    def plain(cls, function: Function, parameters: Mapping[str, Parameter]) -> Restored:
        """Returns a function without blocks."""
        return cls(function, parameters, states={name: name for name in function.states})

    def bound_sizes(self, dims: Collection[str]) -> set[str]:
        """Returns the names of sizes that the arguments of blocks bind: those that are no dims of the module."""
        own = {symbol.name for symbol in self.function.symbols()} - set(dims)
        return own.union(*(block.inside.bound_sizes(dims) for block in self.blocks.values()))

    def homes(self, around: str = "") -> dict[str, str]:
        """Returns the block of each state and parameter, both without numbers."""
        read = {str(n.attribute("name")) for n in walk(self.function.body) if n.op == "parameter"}
        found = {without_numbers(f"{around}{name}"): around for name in (*read, *self.states.values())}
        for block in self.blocks.values():
            element = ".{}" if block.count else ""
            found |= block.inside.homes(f"{around}{block.path}{element}.")
        return found


def has_index(node: Node) -> bool:
    """Returns whether the first operand of a node `block` selects an element of an array."""
    return node.attribute("element") == "{}"


def restore_blocks(
    functions: Sequence[tuple[Function, Mapping[str, Parameter]]], module: Module, names: Collection[str] = ()
) -> list[Restored]:
    """Returns each function, given with its parameters, with the blocks that its scopes name. A state or parameter is
    inside the same block in all functions. A size that a block binds has none of the given names."""
    kept = Kept()
    reserved = Reserved({dim.name for dim in module.dims}, names)
    while True:
        size = len(kept.paths)
        restorers = [
            _Restorer(module, function, parameters, {name: name for name in function.states}, kept, reserved)
            for function, parameters in functions
        ]
        found = [restorer.run() for restorer in restorers]
        homes: dict[str, str] = {}
        for restored in found:
            for name, home in restored.homes().items():
                if homes.setdefault(name, home) != home:
                    kept.paths.add(max(home, homes[name]).partition(".")[0])
        if len(kept.paths) == size:
            return found


@dataclass(frozen=True)
class _Found:
    """The block of an instance, the nodes in place of those of its calls, by their identities, the states that moved
    into it, and the values that it takes with it."""

    block: Block
    nodes: Mapping[int, Node | None]
    moved: Collection[str]
    taken: Collection[str]


class _Restorer:
    """Restores one function. `states` are the names of its states relative to the instance, `around` is the path of the
    instance without numbers, which ends with a dot."""

    def __init__(
        self,
        module: Module,
        function: Function,
        parameters: Mapping[str, Parameter],
        states: Mapping[str, str],
        kept: Kept,
        reserved: Reserved,
        around: str = "",
    ) -> None:
        self.module, self.function, self.kept, self.around = module, function, kept, around
        self.reserved = reserved
        self.parameters, self.states = parameters, states
        self.uses = count_uses(function.body, function.results)
        self.reader = Reader(function, parameters)

    def run(self) -> Restored:
        groups: dict[str, list[Call]] = {}
        for call in find_calls(self.function.body, self.kept.inside(self.around), self.reader.indices):
            groups.setdefault(call.head.path, []).append(call)
        blocks: dict[str, Block] = {}
        calls: dict[int, Node | None] = {}
        moved: set[str] = set()
        taken: set[str] = set()
        for path, group in groups.items():
            found = next(self._restored(path, group), None)
            if found is None:
                self.kept.paths.add(f"{self.around}{path}")
                continue
            blocks[path] = found.block
            calls |= found.nodes
            moved |= set(found.moved)
            taken |= set(found.taken)
        function = self._without(moved)
        body = _replaced(function.body, calls)
        uses = count_uses(body, function.results)
        function = replace(function, body=_dropped(body, {name for name in taken if not uses[name]}))
        remaining = {name: relative for name, relative in self.states.items() if name not in moved}
        return Restored(function, self.parameters, blocks, remaining)

    def _restored(self, path: str, calls: list[Call]) -> Iterator[_Found]:
        """Yields the block of an instance, one for each way to split its calls that gives equal bodies."""
        for bodies in self._bodies(calls):
            states = self._states(bodies)
            block = None if states is None else self._block(path, bodies, *states)
            if states is not None and block is not None:
                yield _Found(*block, states[0].moved, {name for body in bodies for name in body.taken})

    def _bodies(self, calls: list[Call]) -> Iterator[list[Body]]:
        """Yields the bodies of the calls of an instance. Two adjacent calls appear as one, and are split."""
        whole = self._alike(calls)
        if whole is not None and len(calls) > 1:
            yield whole
        length = period(calls[0].nodes) if len(calls) == 1 else min(len(call.nodes) for call in calls)
        if not any(len(call.nodes) % length for call in calls):
            parts = self._alike([part for call in calls for part in split_call(call, length)])
            if parts is not None:
                yield parts
        if whole is not None and len(calls) == 1:
            yield whole

    def _alike(self, calls: Sequence[Call]) -> list[Body] | None:
        read = [self.reader.read(call) for call in calls]
        bodies = [body for body in read if body is not None]
        if len(bodies) < len(read):
            return None
        # Calls with equal arguments hide which parameter of the block each use belongs to, so the others are matched
        # with the call that has the most distinct values.
        widest = max(bodies, key=lambda body: len(body.values))
        alike = [body.like(widest) for body in bodies]
        found = [body for body in alike if body is not None]
        return found if len(found) == len(alike) else None

    def _block(
        self, path: str, bodies: Sequence[Body], states: MovedStates, others: Mapping[int, tuple[Value, ...]]
    ) -> tuple[Block, dict[int, Node | None]] | None:
        """Returns the block of an instance, and the nodes in place of those of its calls, by their identities; None if
        the arguments of the block do not determine its sizes."""
        first = next(body for body in bodies if len(set(body.names)) == len(body.names))
        element = ".{}" if first.call.head.element else ""
        inputs = [number for number in map(first.names.index, first.outside) if number not in states.slots]
        outputs = self._outputs(bodies, states)
        own = others.get(id(first), ())
        fixed = [slot for slot in states.slots if slot is not None]
        found = with_bound_sizes(bodies, first, outputs, fixed, self.reserved)
        if found is None:
            return None
        first = found
        entering, leaving = states.around(first, own)
        function = Function(
            path,
            (*map(first.value, inputs), *own, *entering),
            first.nodes,
            (*map(first.value, outputs), *leaving),
            states=tuple(states.names),
        )
        around = f"{self.around}{path}{element}."
        inner = _Restorer(self.module, function, first.parameters, states.names, self.kept, self.reserved, around)
        nodes: dict[int, Node | None] = {}
        for body in bodies:
            arguments = (*body.index, *map(body.value, inputs), *others.get(id(body), ()))
            attributes = (("path", path), ("element", body.call.head.element))
            nodes |= {id(node): None for node in body.call.nodes}
            nodes[id(body.call.nodes[-1])] = Node(BLOCK, arguments, tuple(map(body.value, outputs)), attributes)
        return Block(path, self._count(path) if element else 0, inner.run()), nodes

    def _count(self, path: str) -> int:
        """Returns the length of an array."""
        known = [p.counts[path.count("{}")] for n, p in self.parameters.items() if n.startswith(f"{path}.{{}}.")]
        names = [*self.parameters, *self.states.values(), *(n.scope for n in walk(self.function.body))]
        elements = (re.match(rf"{re.escape(path)}\.(\d+)(\.|$)", name) for name in names)
        return max([*known, *(int(found[1]) + 1 for found in elements if found)], default=1)

    def _outputs(self, bodies: Sequence[Body], states: MovedStates) -> list[int]:
        """Returns the positions of the values that the rest of the function reads after any of the calls."""
        found: set[int] = set()
        for body in bodies:
            own = count_uses(body.call.nodes)
            defined = _made(body)
            for number, name in enumerate(body.names):
                if name in defined and self.uses[name] > own[name] + states.consumed[name]:
                    found.add(number)
        # A block has a result, even if only its states are used.
        return sorted(found) or [max(map(bodies[0].names.index, _made(bodies[0])))]

    def _states(self, bodies: Sequence[Body]) -> tuple[MovedStates, dict[int, tuple[Value, ...]]] | None:
        """Returns the states that move into the block, and the further arguments of each body, by its identity; None if
        the block cannot take them."""
        path = bodies[0].call.head.path
        here = {name: relative for name, relative in self.states.items() if relative.startswith(f"{path}.")}
        elements: dict[str, list[Body]] = {}
        for body in bodies:
            elements.setdefault(body.call.head.prefix, []).append(body)
        found: list[MovedStates | None] = []
        others: dict[int, tuple[Value, ...]] = {}
        for prefix, chain in elements.items():
            own = {n: r.removeprefix(prefix) for n, r in here.items() if r.startswith(prefix)}
            states = follow_states(self.module, self.function, own, chain, self.uses)
            found.append(states)
            if states is not None and states.others:
                others[id(chain[0])] = states.others
        consumed: Counter[str] = Counter()
        moved: set[str] = set()
        for each in found:
            if each is None or found[0] is None or not each.agrees(found[0]):
                return None
            consumed += each.consumed
            moved |= each.moved
        assert found[0] is not None
        return (replace(found[0], consumed=consumed, moved=moved), others) if moved == set(here) else None

    def _without(self, moved: Collection[str]) -> Function:
        """Returns the function without the states that are inside of blocks."""
        function = self.function
        kept = [number for number, name in enumerate(function.states) if name not in moved]
        return replace(
            function,
            arguments=(*function.inputs, *(function.state_arguments[number] for number in kept)),
            results=(*function.outputs, *(function.state_results[number] for number in kept)),
            states=tuple(function.states[number] for number in kept),
        )


def _made(body: Body) -> set[str]:
    return {v.name for node in body.call.nodes for v in node.outputs}


def _replaced(body: Sequence[Node], calls: Mapping[int, Node | None]) -> tuple[Node, ...]:
    """Returns a body in which nodes `block` replace the nodes of the calls."""
    kept: list[Node] = []
    for node in body:
        found = calls.get(id(node), node)
        if found is node:
            regions = tuple(replace(region, body=_replaced(region.body, calls)) for region in node.regions)
            kept.append(replace(node, regions=regions))
        elif found is not None:
            kept.append(found)
    return tuple(kept)


def _dropped(body: Sequence[Node], names: Collection[str]) -> tuple[Node, ...]:
    """Returns a body without the nodes that compute values of these names."""
    return tuple(
        replace(node, regions=tuple(replace(r, body=_dropped(r.body, names)) for r in node.regions))
        for node in body
        if not (node.outputs and node.outputs[0].name in names)
    )
