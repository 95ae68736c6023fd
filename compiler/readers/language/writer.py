"""Writes the nodes of one function while its model is elaborated.

Regions are opened and closed like brackets. The parameters that a body reads come first in it, each once: those of a
fixed index in the function, those of a loop's index in that loop. A name is unique in the function and, if possible,
the name in the source.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from ....dialect.diagnostics import Span
from ....dialect.dims import (
    Atom,
    Extreme,
    FloorDiv,
    Size,
    Symbol,
    add,
    bounds,
    divide_exactly,
    substitute,
    symbols,
)
from ....dialect.graph import Constant, Node, Region, Value
from ....dialect.lazy_dataclass import dataclass
from ....dialect.ops import OPERATORS
from ....dialect.types import I64, DType, TensorType
from . import syntax
from .values import Frame


@dataclass(slots=True, eq=False)
class Body:
    """An open region, or the function. `loops` names its index variables. `ranges` gives the first and the last value
    of index variables whose number of iterations is symbolic."""

    nodes: list[Node] = field(default_factory=list)
    prologue: list[Node] = field(default_factory=list)
    parameters: dict[tuple[str, tuple[Size, ...]], Value] = field(default_factory=dict)
    loops: dict[str, Value] = field(default_factory=dict)
    ranges: dict[str, tuple[Size, Size]] = field(default_factory=dict)

    @property
    def all_nodes(self) -> tuple[Node, ...]:
        return (*self.prologue, *self.nodes)


@dataclass(slots=True)
class KeptState:
    """A state of the function: the argument with its value before the call, and its current value."""

    argument: Value
    current: Value


@dataclass(slots=True)
class Writer:
    """The writer of a function. `count` is the number of nodes in all bodies, closed ones included. `declared` maps the
    name of a value to the types that the source declares for it, each with the frame that resolves the type's names.
    `states` are by name; `stateful` is the span of a use of a state in an open region, which cannot carry its value.
    `formula` says whether the function computes an initial value, in which trained parameters are no states."""

    bodies: list[Body] = field(default_factory=lambda: [Body()])
    count: int = 0
    declared: dict[str, list[tuple[Frame, syntax.Type]]] = field(default_factory=dict)
    states: dict[str, KeptState] = field(default_factory=dict)
    stateful: Span | None = None
    formula: bool = False
    _names: dict[str, int] = field(default_factory=dict)
    _numbers: int = 0

    def name(self, hint: str) -> str:
        """Returns a free name: the hint, or the hint and a number."""
        count = self._names.get(hint, 0)
        if count == 0 and hint not in self._names:
            self._names[hint] = 1
            return hint
        while f"{hint}_{count + 1}" in self._names:
            count += 1
        self._names[hint] = count + 1
        self._names[f"{hint}_{count + 1}"] = 1
        return f"{hint}_{count + 1}"

    def declare(self, value: Value, frame: Frame, type: syntax.Type) -> None:
        """Records a declared type that matches the value."""
        self.declared.setdefault(value.name, []).append((frame, type))

    def fresh(self, type: TensorType) -> Value:
        self._numbers += 1
        return Value(str(self._numbers - 1), type)

    def emit(
        self,
        operator: str,
        inputs: Sequence[Value],
        attributes: Mapping[str, Any] | None = None,
        *,
        scope: str = "",
        span: Span | None = None,
    ) -> tuple[Value, ...]:
        """Adds a node to the innermost body. Raises InferenceError if the operator does not accept its operands."""
        record = OPERATORS[operator]
        full = record.complete(attributes or {})
        outputs = tuple(self.fresh(t) for t in record.check([v.type for v in inputs], full))
        self.add(Node(operator, tuple(inputs), outputs, tuple(sorted(full.items())), scope=scope, span=span))
        return outputs

    def add(self, node: Node) -> None:
        self.count += 1
        self.bodies[-1].nodes.append(node)

    def scalar(self, value: float | int | bool, dtype: DType, scope: str = "", span: Span | None = None) -> Value:
        constant = Constant(np.asarray(value).astype(dtype.numpy))
        return self.emit("constant", (), {"value": constant}, scope=scope, span=span)[0]

    def rename(self, value: Value, hint: str) -> Value:
        """Renames a result of the last node to a name of the source; other values keep theirs."""
        nodes = self.bodies[-1].nodes
        if not nodes or value not in nodes[-1].outputs or not value.name.isdigit():
            return value
        renamed = Value(self.name(hint), value.type)
        outputs = tuple(renamed if v is value else v for v in nodes[-1].outputs)
        nodes[-1] = replace(nodes[-1], outputs=outputs)
        if value.name in self.declared:
            self.declared[renamed.name] = self.declared.pop(value.name)
        return renamed

    def copy(self) -> Writer:
        """Returns a writer that continues from here, independent of this one."""
        bodies = [Body(list(b.nodes), list(b.prologue), dict(b.parameters), dict(b.loops)) for b in self.bodies]
        declared = {name: list(types) for name, types in self.declared.items()}
        states = {name: KeptState(kept.argument, kept.current) for name, kept in self.states.items()}
        return Writer(
            bodies, self.count, declared, states, self.stateful, self.formula, dict(self._names), self._numbers
        )

    # --- loops ---

    @property
    def in_region(self) -> bool:
        return len(self.bodies) > 1

    def open(self) -> Body:
        self.bodies.append(Body())
        return self.bodies[-1]

    def close(self, arguments: tuple[Value, ...], results: tuple[Value, ...]) -> Region:
        """Ends the innermost body as a region."""
        return Region(arguments, self.bodies.pop().all_nodes, results)

    def scanned(
        self,
        name: str,
        index: Value,
        start: int,
        count: Size,
        taken: Collection[str],
        scope: str,
        span: Span,
    ) -> Size:
        """Returns the variable of a `scan` as a size that knows its range. `index` counts from 0."""
        while name in self.loop_names() or name in taken:
            name += "'"
        last = add(count, start - 1)
        body = self.bodies[-1]
        if start:
            first = self.scalar(start, I64, scope, span)
            index = self.emit("add", (index, first), scope=scope, span=span)[0]
        body.prologue, body.nodes = body.nodes, []
        body.loops[name], body.ranges[name] = index, (start, last)
        return Symbol(name, start, max(start, bounds(last)[1])).size

    def extremes(self, size: Size) -> tuple[Size, Size]:
        """Returns the least and the greatest value that a size has while the variables of scans run. A size that is not
        linear in them is returned as it is."""
        least = greatest = size
        for body in self.bodies:
            for name, (first, last) in body.ranges.items():
                least, greatest = _extreme(least, name, first, last), _extreme(greatest, name, last, first)
        return least, greatest

    def depends_on_scan(self, size: Size) -> bool:
        """Returns whether the size changes with the variable of an open `scan`."""
        scans = {name for body in self.bodies for name in body.ranges}
        return bool(scans) and any(s.name in scans for s in symbols(size))

    def loop_value(self, symbol: str) -> Value | None:
        """Returns the index of an open loop, by the name of its symbol in sizes."""
        for body in reversed(self.bodies):
            if symbol in body.loops:
                return body.loops[symbol]
        return None

    def loop_names(self) -> set[str]:
        return {name for body in self.bodies for name in body.loops}

    def depends_on_loop(self, size: Size) -> bool:
        """Returns whether the size changes with an open loop."""
        loops = self.loop_names()
        return bool(loops) and any(s.name in loops for s in symbols(size))

    def home(self, indices: Sequence[Size]) -> Body:
        """Returns the outermost body in which all these indices are known."""
        used = {s.name for index in indices for s in symbols(index)}
        for body in reversed(self.bodies):
            if used & body.loops.keys():
                return body
        return self.bodies[0]

    def parameter(self, name: str, type: TensorType, indices: tuple[Size, ...], scope: str, span: Span) -> Value:
        """Returns the tensor of a parameter. Indices that are all integers must have been filled into the name."""
        body = self.home(indices)
        key = (name, indices)
        if key not in body.parameters:
            # The nodes that compute an index must precede the parameter, in the same prologue.
            saved, body.nodes = body.nodes, body.prologue
            self.bodies, rest = self.bodies[: self.bodies.index(body) + 1], self.bodies[self.bodies.index(body) + 1 :]
            operands = tuple(self.size_value(index, scope, span) for index in indices)
            value = Value(self.name(name.rpartition(".")[2].replace("{}", "element")), type)
            self.add(Node("parameter", operands, (value,), (("name", name),), scope=scope, span=span))
            self.bodies += rest
            body.prologue, body.nodes = body.nodes, saved
            body.parameters[key] = value
        return body.parameters[key]

    def size_value(self, size: Size, scope: str = "", span: Span | None = None) -> Value:
        """Returns a size as an i64 scalar: a constant, the index of a loop, a value of the dims, or arithmetic on
        these."""
        if isinstance(size, int):
            return self.scalar(size, I64, scope, span)
        if not self.depends_on_loop(size):
            return self.emit("size_value", (), {"size": size}, scope=scope, span=span)[0]
        return _LoopSize(self, scope, span).total(size)


def _extreme(size: Size, name: str, rising: Size, falling: Size) -> Size:
    """Returns the size with a variable replaced by one end of its range, or by the other end if the size decreases with
    it. A size that is not monotonic in the variable is returned unchanged."""
    direction = _direction(size, name)
    return substitute(size, {name: rising if direction > 0 else falling}) if direction else size


def _direction(size: Size, name: str) -> int:
    """Returns 1 if a size is non-decreasing in a variable, -1 if it is non-increasing, and 0 if this is unknown or if
    the size does not depend on the variable."""
    found: set[int] = set()
    for monomial, factor in () if isinstance(size, int) else size.terms:
        if not any(_uses(atom, name) for atom, _ in monomial):
            continue
        (atom, power), *others = monomial
        if others or power != 1:
            return 0
        inner = 0
        if isinstance(atom, Symbol):
            inner = 1
        elif isinstance(atom, FloorDiv) and isinstance(atom.denominator, int):
            inner = _direction(atom.numerator, name)
        found.add(inner if factor > 0 else -inner)
    return found.pop() if len(found) == 1 else 0


def _uses(atom: Atom, name: str) -> bool:
    if isinstance(atom, Symbol):
        return atom.name == name
    parts = (atom.numerator, atom.denominator) if isinstance(atom, FloorDiv) else (atom.left, atom.right)
    return any(symbol.name == name for part in parts for symbol in symbols(part))


@dataclass(slots=True)
class _LoopSize:
    """Writes the arithmetic of a size that depends on the index of a loop."""

    writer: Writer
    scope: str
    span: Span | None

    def total(self, size: Size) -> Value:
        if isinstance(size, int):
            return self.writer.scalar(size, I64, self.scope, self.span)
        result: Value | None = None
        for monomial, coefficient in size.terms:
            factors = [self.atom(atom) for atom, power in monomial for _ in range(power)]
            if coefficient != 1 or not factors:
                factors.insert(0, self.total(coefficient))
            term = factors[0]
            for factor in factors[1:]:
                term = self.apply("multiply", term, factor)
            result = term if result is None else self.apply("add", result, term)
        assert result is not None, size
        return result

    def atom(self, atom: Atom) -> Value:
        if isinstance(atom, FloorDiv):
            return self.apply("floor_divide", self.total(atom.numerator), self.total(atom.denominator))
        if isinstance(atom, Extreme):
            return self.apply(f"{atom.kind}imum", self.total(atom.left), self.total(atom.right))
        assert isinstance(atom, Symbol), atom
        index = self.writer.loop_value(atom.name)
        if index is not None:
            return index
        unit = divide_exactly(atom.size, atom.multiple)
        assert unit is not None, atom
        return self.writer.size_value(unit, self.scope, self.span)

    def apply(self, operator: str, left: Value, right: Value) -> Value:
        return self.writer.emit(operator, (left, right), scope=self.scope, span=self.span)[0]
