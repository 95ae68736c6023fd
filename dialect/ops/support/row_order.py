"""The order of the rows of a tensor, by the method of `sorting` or `selecting` that takes the least time."""

from __future__ import annotations

from collections.abc import Sequence

from ...dims import Size
from ...emitter import Emitter, Scalar, SequenceEmitter, Tensor
from ...types import I64, TensorType
from .selecting import Extraction, Selection
from .sorting import Counting, Method, Order, Radix, Row, Turned


def order_rows(
    e: Emitter, x: Tensor, axis: int, descending: bool, count: Size, *, with_values: bool, with_indices: bool
) -> list[Tensor]:
    """Returns the first `count` elements of each row along the axis in order, and their indices, as i64."""
    order = Order(x.type.dtype, x.type.shape[axis], descending)
    shape = tuple(count if a == axis else n for a, n in enumerate(x.type.shape))
    types = [TensorType(x.type.dtype, shape)] * with_values + [TensorType(I64, shape)] * with_indices
    method = choose_method(order, count)
    scratch = method.scratch(e)
    outer = tuple(n for a, n in enumerate(x.type.shape) if a != axis)

    def body(s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        before, after = tuple(indices)[:axis], tuple(indices)[axis : len(outer)]

        def at(number: Scalar) -> Sequence[Scalar]:
            return (*before, number, *after)

        results, work = list(tensors[: len(types)]), list(tensors[len(types) :])
        work, positions = method.write(s, Row(x, at, order), work)

        def copy(number: Scalar, done: Sequence[Tensor], _: Sequence[Scalar]) -> Turned:
            position = s.cast(s.load(work[positions], [number]), I64)
            found = ([s.load(x, at(position))] if with_values else []) + ([position] if with_indices else [])
            return [s.store(t, at(number), v) for t, v in zip(done, found, strict=True)], []

        results = list(s.repeat(s.size(count), results, [], copy)[0])
        return [*results, *work]

    done = e.scan(outer or (1,), [*(e.full(type, 0) for type in types), *scratch], body)
    return list(done[: len(types)])


def choose_method(order: Order, count: Size) -> Method:
    """Returns the method that takes the least time for the longest row and the most elements."""
    methods: list[Method] = [kind(order, count) for kind in (Counting, Radix, Extraction, Selection)]
    return min(methods, key=lambda method: method.cost())
