"""Sizes that the arguments of a block bind: the bodies of calls with different sizes become one body.

    a call with x: f32[B, 8, 6]               another, with f32[B, 4, 3]
    %1 = reshape(%x) {shape = (B, 48)}        %4 = reshape(%3) {shape = (B, 12)}

    the block, with x: f32[B, T, C]
    %1 = reshape(%x) {shape = (B, C*T)}

A size is known by its values in all calls: `T` is (8, 4), `C` is (6, 3). Each axis of an argument whose size differs
between the calls gets a name; other sizes, which the text states as attributes or as types of results, become
expressions of these names. Type inference over the body finds most of them, a short search finds the others. There is
no body if a size remains without an expression.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement

from ....dialect.dims import (
    DimError,
    Poly,
    Size,
    Symbol,
    add,
    bounds,
    divide_exactly,
    floor_divide,
    multiply,
    product,
    substitute,
    symbols,
)
from ....dialect.graph import Attribute, Node, Region, Value
from ....dialect.operator import InferenceError
from ....dialect.ops import OPERATORS
from ....dialect.types import I64, TensorType
from .model_bodies import Body, whole_number
from .model_text import Names

_LETTERS = {2: "NC", 3: "NTC", 4: "NCHW", 5: "NCDHW"}
"""Names of axes, by rank."""
_SEARCHED = 16
"""The most known sizes whose sums and products are tried."""
_DIVISORS = range(2, 65)

Sizes = tuple[Size, ...]
"""A size in each of the calls."""


class _NoExpressionError(Exception):
    """A size that is no expression of the sizes of the arguments."""


def with_bound_sizes(
    bodies: Sequence[Body], first: Body, outputs: Sequence[int], fixed: Collection[int], reserved: Reserved
) -> Body | None:
    """Returns the body of the block. `first` is one of the bodies, `outputs` are the positions of the values that a
    block returns, and `fixed` those of values whose types are the same for all calls."""
    binding = _Binding(bodies, first, reserved)
    try:
        return binding.body(outputs, fixed)
    except _NoExpressionError:
        return None


@dataclass(frozen=True, slots=True)
class Reserved:
    """The dims of the module, and the names that a size must not have."""

    dims: Collection[str]
    names: Collection[str]


@dataclass(slots=True)
class _Binding:
    bodies: Sequence[Body]
    first: Body
    reserved: Reserved
    known: dict[Sizes, Size] = field(default_factory=dict)
    values: dict[str, Sizes] = field(default_factory=dict)
    """The sizes for which each bound name stands."""
    inferred: dict[str, Sequence[Size]] = field(default_factory=dict)
    """The shapes that type inference found: sizes that are equal in all calls by chance are expressions, too."""

    @property
    def position(self) -> int:
        return next(number for number, body in enumerate(self.bodies) if body is self.first)

    def body(self, outputs: Sequence[int], fixed: Collection[int]) -> Body:
        numbers = {name: number for number, name in enumerate(self.first.names)}
        shapes = {name: self.shape(number) for name, number in numbers.items()}
        if not any(self.is_open(sizes) for shape in shapes.values() for sizes in shape):
            return self.first
        if any(self.is_open(sizes) for number in fixed for sizes in self.shape(number)):
            raise _NoExpressionError
        names = Names(set(self.reserved.names))
        for name in self.first.outside:
            letters = _LETTERS.get(len(shapes[name]), "")
            for axis, sizes in enumerate(shapes[name]):
                if self.is_open(sizes) and sizes not in self.known:
                    self.bind(sizes, names.give(letters[axis] if letters else "N"))
        nodes = self.nodes([body.nodes for body in self.bodies], shapes)
        for number in outputs:
            for sizes in self.shape(number):
                self.size(sizes)
        values = {name: self.retyped(value, shapes) for name, value in self.first.values.items()}
        return replace(self.first, nodes=nodes, values=values)

    def shape(self, number: int) -> list[Sizes]:
        """Returns the sizes of the axes of a value in all calls."""
        return list(zip(*(body.value(number).type.shape for body in self.bodies), strict=True))

    def is_open(self, sizes: Sizes) -> bool:
        """Returns whether a size needs a name: it differs between the calls, or depends on a name of the block that
        contains them."""
        return len(set(sizes)) > 1 or not all(s.name in self.reserved.dims for s in symbols(sizes[0]))

    def bind(self, sizes: Sizes, name: str) -> None:
        ranges = [bounds(size) for size in sizes]
        symbol = Symbol(name, max(0, min(low for low, _ in ranges)), max(high for _, high in ranges))
        self.known[sizes], self.values[name] = symbol.size, sizes

    def size(self, sizes: Sizes) -> Size:
        """Returns a size as an expression of bound names."""
        if not self.is_open(sizes):
            return sizes[0]
        if sizes not in self.known:
            found = next(self.search(sizes), None)
            if found is None:
                raise _NoExpressionError
            self.known[sizes] = found
        return self.known[sizes]

    def search(self, sizes: Sizes) -> Iterator[Size]:
        """Yields expressions of known sizes with these values."""
        known = list(self.known.items())[:_SEARCHED]
        for values, expression in known:
            yield from self.multiples(sizes, values, expression)
        for values, expression in known:
            yield from self.differences(sizes, values, expression)
        for values, expression in known:
            for divisor in _DIVISORS:
                if all(floor_divide(value, divisor) == size for value, size in zip(values, sizes, strict=True)):
                    yield floor_divide(expression, divisor)
        for count in (2, 3):
            for several in combinations_with_replacement(known, count):
                whole = product(expression for _, expression in several)
                yield from self.multiples(sizes, tuple(map(product, zip(*(v for v, _ in several), strict=True))), whole)
        for (values, one), (others, other) in combinations_with_replacement(known, 2):
            yield from self.differences(sizes, tuple(map(add, values, others)), add(one, other))

    def multiples(self, sizes: Sizes, values: Sizes, expression: Size) -> Iterator[Size]:
        factors = tuple(factor for factor in map(divide_exactly, sizes, values) if factor is not None)
        if len(factors) == len(sizes) and not self.is_open(factors):
            yield multiply(factors[0], expression)

    def differences(self, sizes: Sizes, values: Sizes, expression: Size) -> Iterator[Size]:
        rest = tuple(add(size, multiply(-1, value)) for size, value in zip(sizes, values, strict=True))
        if not self.is_open(rest):
            yield add(expression, rest[0])

    def nodes(self, alike: Sequence[Sequence[Node]], shapes: Mapping[str, Sequence[Sizes]]) -> tuple[Node, ...]:
        return tuple(node for nodes in zip(*alike, strict=True) for node in self.node(nodes, shapes))

    def node(self, alike: Sequence[Node], shapes: Mapping[str, Sequence[Sizes]]) -> tuple[Node, ...]:
        """Returns a node of the block, from those of the calls; two nodes for a constant that is a size."""
        first = alike[self.position]
        numbers = [whole_number(node) for node in alike]
        if len(set(numbers)) > 1:
            size = self.size(tuple(number for number in numbers if number is not None))
            value = Value(f"{first.output.name}.size", TensorType(I64))
            return (
                Node("size_value", (), (value,), (("size", size),), scope=first.scope, span=first.span),
                replace(first, op="cast", inputs=(value,), attributes=(("dtype", first.output.type.dtype),)),
            )
        attributes = tuple(
            (name, self.attribute([node.attribute(name) for node in alike])) for name, _ in first.attributes
        )
        if not first.regions:
            self.infer(first, dict(attributes), shapes)
        regions = tuple(
            Region(
                tuple(self.retyped(value, shapes) for value in region.arguments),
                self.nodes([node.regions[number].body for node in alike], shapes),
                tuple(self.retyped(value, shapes) for value in region.results),
            )
            for number, region in enumerate(first.regions)
        )
        inputs, outputs = (tuple(self.retyped(v, shapes) for v in values) for values in (first.inputs, first.outputs))
        return (replace(first, inputs=inputs, outputs=outputs, attributes=attributes, regions=regions),)

    def attribute(self, alike: Sequence[Attribute]) -> Attribute:
        if isinstance(alike[0], tuple):
            return tuple(self.attribute(each) for each in zip(*alike, strict=True))
        if isinstance(alike[0], (int, Poly)) and not isinstance(alike[0], bool):
            return self.size(tuple(alike))  # type: ignore[arg-type]  # all are sizes
        return alike[0]

    def infer(self, node: Node, attributes: Mapping[str, Attribute], shapes: Mapping[str, Sequence[Sizes]]) -> None:
        """Learns the sizes of results of a node from those of its operands."""
        if node.op not in OPERATORS or any(self.is_unknown(n) for value in node.inputs for n in shapes[value.name]):
            return
        inputs = [self.retyped(value, shapes).type for value in node.inputs]
        try:
            types = OPERATORS[node.op].check(inputs, attributes)
        except (InferenceError, DimError):
            return  # the operator needs more than the ranges of the sizes; the search may find an expression
        if len(types) != len(node.outputs):
            return  # a parameter, whose type is that of the module
        for value, type in zip(node.outputs, types, strict=True):
            found = list(zip(shapes[value.name], type.shape, value.type.shape, strict=True))
            for sizes, size, _ in found:
                if self.is_unknown(sizes) and self.has_values(size, sizes):
                    self.known[sizes] = size
            # Equal sizes have one name, also where an operand and a result are two expressions of it.
            self.inferred[value.name] = [
                self.known.get(sizes, size if self.has_values(size, sizes) else own) for sizes, size, own in found
            ]

    def is_unknown(self, sizes: Sizes) -> bool:
        return self.is_open(sizes) and sizes not in self.known

    def has_values(self, size: Size, sizes: Sizes) -> bool:
        """Returns whether an expression of bound names has these values in the calls."""
        calls = [{name: values[n] for name, values in self.values.items()} for n in range(len(sizes))]
        return all(substitute(size, call) == value for call, value in zip(calls, sizes, strict=True))

    def retyped(self, value: Value, shapes: Mapping[str, Sequence[Sizes]]) -> Value:
        """Returns a value of the block. A size that the text does not state may lack an expression; it stays that of
        the first call."""
        known = [self.known.get(n, own) for n, own in zip(shapes[value.name], value.type.shape, strict=True)]
        return Value(value.name, value.type.with_shape(self.inferred.get(value.name, known)))
