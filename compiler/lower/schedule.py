"""The order of kernel calls in a function: a tree of calls, loops and branches.

Regions of control flow become loops and branches around the calls of their bodies. A tensor has one location in memory
during the whole call of the function. The tree therefore describes the calls and no locations:

    carried value        one memory for all iterations, named as the result of the loop. A call before the loop copies
                         the initial value into it, one at the end of the body the next value.
    collected result     each iteration writes its slice of the result
    scanned input        a slice of consecutive elements is read where it is
    result of a branch   one memory, into which either branch copies its value

Such a copy is a `move`: the memory plan omits it where its source and its target can be one memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, Generic, TypeAlias, TypeVar, Union

from ...dialect.diagnostics import Span
from ...dialect.dims import Size, multiply
from ...dialect.lazy_dataclass import dataclass

Call = TypeVar("Call")
Tensor = TypeVar("Tensor")
New = TypeVar("New")
NewTensor = TypeVar("NewTensor")


@dataclass(frozen=True, slots=True)
class Loop(Generic[Call, Tensor]):
    """Items that run `count` times. Before each iteration, the entry writes its number into the i64 scalar `index`.
    Slices refer to the loop by its `name`."""

    name: str
    index: Tensor
    count: Size
    body: tuple[Item[Call, Tensor], ...]
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class While(Generic[Call, Tensor]):
    """Items that run as long as `condition`, computed before each iteration, makes the bool scalar `test` true."""

    condition: tuple[Item[Call, Tensor], ...]
    test: Tensor
    body: tuple[Item[Call, Tensor], ...]
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Branch(Generic[Call, Tensor]):
    """Items that run if the bool scalar `test` is true, and others that run if it is false."""

    test: Tensor
    then: tuple[Item[Call, Tensor], ...]
    otherwise: tuple[Item[Call, Tensor], ...]


Item: TypeAlias = Union[Call, Loop[Call, Tensor], While[Call, Tensor], Branch[Call, Tensor]]  # noqa: UP007 (generic)


def calls_in(items: Iterable[Item[Call, Any]]) -> Iterator[Call]:
    """Yields every call, in the order of the text."""
    for item in items:
        if isinstance(item, Loop):
            yield from calls_in(item.body)
        elif isinstance(item, While):
            yield from calls_in((*item.condition, *item.body))
        elif isinstance(item, Branch):
            yield from calls_in((*item.then, *item.otherwise))
        else:
            yield item


def map_items(
    items: Sequence[Item[Call, Tensor]],
    change: Callable[[Call], Sequence[New]],
    place: Callable[[Tensor], NewTensor],
) -> tuple[Item[New, NewTensor], ...]:
    """Returns the tree with every call replaced by calls, in the order of the text, and every tensor by another."""

    def inside(part: Sequence[Item[Call, Tensor]]) -> tuple[Item[New, NewTensor], ...]:
        return map_items(part, change, place)

    mapped: list[Item[New, NewTensor]] = []
    for item in items:
        if isinstance(item, Loop):
            mapped.append(Loop(item.name, place(item.index), item.count, inside(item.body), item.span))
        elif isinstance(item, While):
            mapped.append(While(inside(item.condition), place(item.test), inside(item.body), item.span))
        elif isinstance(item, Branch):
            mapped.append(Branch(place(item.test), inside(item.then), inside(item.otherwise)))
        else:
            mapped += change(item)
    return tuple(mapped)


def times_of(items: Iterable[Item[Call, Any]], omitted: Collection[int] = ()) -> Iterator[tuple[Call, Size]]:
    """Yields every call except those at the positions `omitted`, with the number of times that it runs. A call in a
    `scan` runs once for each iteration; a `while` counts as one iteration, and both sides of a branch count."""
    positions = count()

    def visit(items: Iterable[Item[Call, Any]], times: Size) -> Iterator[tuple[Call, Size]]:
        for item in items:
            if isinstance(item, Loop):
                yield from visit(item.body, multiply(times, item.count))
            elif isinstance(item, While):
                yield from visit((*item.condition, *item.body), times)
            elif isinstance(item, Branch):
                yield from visit((*item.then, *item.otherwise), times)
            elif next(positions) not in omitted:
                yield item, times

    yield from visit(items, 1)
