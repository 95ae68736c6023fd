"""Requirements of a call besides the ranges of its dims: no extent is negative, every size fits in 64 bits, and no
operator that needs an element gets none.

    dim T in 1..65536
    zeros(shape=(T - 4,))        requires T - 4 >= 0, which the range does not prove
    cast(T*T*T*T, i64)           requires T*T*T*T < 2^63, likewise
    zeros(shape=(T*T*T*T//S,))   requires T*T*T*T < 2^63, since the quotient of a sum that wraps is wrong
    keys[:, at : at + T] = k     requires S - T >= 0, where `keys` has S rows
    argmax(x)                    requires N >= 1, where `x` has N elements

A size whose range proves both needs no requirement. The others are checked when the dims are bound: by the artifact,
and by the interpreter. `find_impossible` reports sizes that no call could satisfy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from .dims import INFINITY, Poly, Size, add, at_least, bounds, evaluate, format_size, multiply, operands, substitute
from .graph import Attribute, Function, Node, Value, walk
from .lazy_dataclass import dataclass
from .ops import OPERATORS
from .remembered import by_identity

_LIMIT = 1 << 63


@dataclass(frozen=True, slots=True)
class Requirement:
    """A size that must be less than 2^63; an `extent` must not be negative either. `cause` is an operator and its
    source location, if the size plus 1 is a size that must not be 0."""

    size: Size
    extent: bool
    cause: str = ""

    def __str__(self) -> str:
        if self.cause:
            return f"{format_size(add(self.size, 1))} >= 1 for {self.cause}"
        relation = ">= 0" if self.extent else "to be below 2^63"
        return f"{format_size(self.size)} {relation}"

    def holds(self, dims: Mapping[str, int]) -> bool:
        value = evaluate(substitute(self.size, dict(dims)), {})
        return (0 if self.extent else -_LIMIT) <= value < _LIMIT


def requirements(function: Function, known: Iterable[Size] = ()) -> tuple[Requirement, ...]:
    """Returns the requirements of a function. None of them follows from another or from the fact that `known` sizes
    fit."""
    extents: dict[Size, str] = {}
    sizes: dict[Size, None] = {}
    for values, node in _typed_values(function):
        for value in values:
            extents.update((size, "") for size in value.type.shape if bounds(size)[0] < 0)
            sizes.update((part, None) for size in (*value.type.shape, value.type.bytes) for part in _overflowing(size))
        if node is not None:
            extents.update((size, "") for size in _box_extents(node) if bounds(size)[0] < 0)
            for size in _needed(node):
                extents.setdefault(size, f"`{node.op}`{f' at {node.span}' if node.span else ''}")
            sizes.update((part, None) for size in _attribute_sizes(node) for part in _overflowing(size))
    found = [Requirement(size, extent=True, cause=cause) for size, cause in extents.items()]
    fitting = [*known, *extents]
    # The largest come first, because they imply the others.
    for size in sorted(sizes, key=lambda s: -sum(power for m, _ in _terms(s) for _, power in m)):
        if not any(at_least(other, size) and bounds(size)[0] >= 0 for other in fitting):
            fitting.append(size)
            found.append(Requirement(size, extent=False))
    return tuple(found)


call_requirements = by_identity(requirements)
"""Returns the requirements of a function whose sizes are not known to fit, as `requirements` does, which it runs once
for each function."""


def find_impossible(function: Function) -> tuple[Size, Node | None] | None:
    """Returns the first size that is out of range for all values of the dims, or has a coefficient that is, and its
    node."""
    for values, node in _typed_values(function):
        sizes = [size for value in values for size in (*value.type.shape, value.type.bytes)]
        for size in (*sizes, *(() if node is None else _attribute_sizes(node))):
            if any(abs(c) >= _LIMIT for _, c in _terms(size)) or bounds(size)[0] >= INFINITY:
                return size, node
    return None


def _typed_values(function: Function) -> Iterator[tuple[tuple[Value, ...], Node | None]]:
    """Yields all values, with the node that computes them."""
    yield function.arguments, None
    for node in walk(function.body):
        yield node.outputs, node


def _terms(size: Size) -> tuple[tuple[tuple[tuple[object, int], ...], int], ...]:
    return size.terms if isinstance(size, Poly) else (((), size),)


def _overflowing(size: Size) -> Iterator[Size]:
    """Yields the expressions that may exceed 64 bits where a size is computed: the size, and the operands of its
    quotients, minima and maxima. Sums and products that wrap on the way to a number that fits give that number."""
    return (part for part in (size, *operands(size)) if _may_overflow(part))


def _may_overflow(size: Size) -> bool:
    low, high = bounds(size)
    return low <= -INFINITY or high >= INFINITY


def _box_extents(node: Node) -> Iterator[Size]:
    """Yields the elements that remain beside the box that a node reads or overwrites, for each axis on which it
    moves."""
    operator = OPERATORS.get(node.op)
    if operator is not None and operator.has("windowed") and operator.addresses is not None:
        for use in operator.addresses([v.type for v in node.inputs], dict(node.attributes)):
            for size in use.sizes:
                yield add(size, multiply(-1, use.window))


def _needed(node: Node) -> Iterator[Size]:
    """Yields the sizes that must not be 0 and may be, less 1."""
    operator = OPERATORS.get(node.op)
    if operator is not None and operator.needed is not None:
        for size in operator.needed([v.type for v in node.inputs], dict(node.attributes)):
            if bounds(size)[0] < 1:
                yield add(size, -1)


def _attribute_sizes(node: Node) -> Iterator[Size]:
    for _, value in node.attributes:
        yield from _polynomials(value)


def _polynomials(value: Attribute) -> Iterator[Size]:
    if isinstance(value, Poly):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _polynomials(part)
