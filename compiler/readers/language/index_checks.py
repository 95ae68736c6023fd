"""Checks of index notation: accesses that conditions guard, and functions of elements.

A guard such as `i > 0` is a number that is at least 0, `i - 1`. An access that differs from such a number by something
that is never negative is inside where the condition holds:

    x[i - 1] if i > 0 else 0        i > 0 gives i - 1 >= 0: inside, so the other positions may read any element
    x[i - 2] if i > 0 else 0        not implied: position 0 if the condition is false, and checked in each call
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ....dialect.dims import Size, add, at_least, multiply
from ....dialect.graph import Node, Value, walk
from ....dialect.ops import OPERATORS
from . import syntax

Affine = tuple[dict[str, int], Size]
"""A sum of indices with integer factors, and an offset."""
Guard = tuple[syntax.Expression, bool]
"""A condition, and its value where an access counts."""

_OPPOSITES = {"<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_PLAIN = (syntax.Name, syntax.Integer, syntax.Unary, syntax.Binary)


def scaled(affine: Affine, factor: int) -> Affine:
    return {name: factor * n for name, n in affine[0].items()}, multiply(factor, affine[1])


def summed(first: Affine, second: Affine) -> Affine:
    terms = {name: first[0].get(name, 0) + second[0].get(name, 0) for name in (*first[0], *second[0])}
    return terms, add(first[1], second[1])


def guarded(item: syntax.Expression, guards: Sequence[Guard]) -> syntax.Expression:
    """Returns an index that is 0 where an access does not count."""
    for condition, value in guards:
        zero = syntax.Integer(0, span=item.span)
        then, otherwise = (item, zero) if value else (zero, item)
        item = syntax.Conditional(condition, then, otherwise, span=item.span)
    return item


def known_numbers(guards: Iterable[Guard], affine: Callable[[syntax.Expression], Affine | None]) -> Iterator[Affine]:
    """Yields numbers that are at least 0 where an access counts."""
    for condition, value in guards:
        yield from _known(condition, value, affine)


def _known(
    node: syntax.Expression, value: bool, affine: Callable[[syntax.Expression], Affine | None]
) -> Iterator[Affine]:
    if isinstance(node, syntax.Unary) and node.operator == "not":
        yield from _known(node.operand, not value, affine)
    if not isinstance(node, syntax.Binary):
        return
    if node.operator == ("and" if value else "or"):
        yield from _known(node.left, value, affine)
        yield from _known(node.right, value, affine)
        return
    operator = node.operator if value else _OPPOSITES.get(node.operator, "==" if node.operator == "!=" else "")
    if operator not in (*_OPPOSITES, "==") or not all(isinstance(part, _PLAIN) for part in syntax.walk(node)):
        return
    left, right = affine(node.left), affine(node.right)
    if left is None or right is None:
        return
    difference = summed(left, scaled(right, -1))
    one: Affine = ({}, -1)
    if operator in (">=", "=="):
        yield difference
    if operator in ("<=", "=="):
        yield scaled(difference, -1)
    if operator == ">":
        yield summed(difference, one)
    if operator == "<":
        yield summed(scaled(difference, -1), one)


def is_implied(wanted: Affine, known: Sequence[Affine], least: Callable[[Affine], Size]) -> bool:
    """Returns whether a number is at least 0: by itself, or since a multiple of a known one is not greater."""
    factors = {1, *(abs(factor) for factor in wanted[0].values() if factor)}
    rests = (summed(wanted, scaled(number, -factor)) for number in known for factor in factors)
    return at_least(least(wanted), 0) or any(at_least(least(rest), 0) for rest in rests)


def find_whole(nodes: Iterable[Node], elements: Iterable[Value]) -> Node | None:
    """Returns the first of the nodes that reads `elements`, tensors laid out in the space, not element by element."""
    read = {value.name for value in elements}
    for node in nodes:
        if not read.isdisjoint(value.name for value in node.inputs):
            inner = [part for part in walk([node]) if part.op != "custom" and part.inputs]
            if not all(OPERATORS[part.op].has("elementwise") for part in inner):
                return node
            read |= {value.name for value in node.outputs}
    return None
