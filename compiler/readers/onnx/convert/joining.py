"""Concatenation and splitting."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.dims import Size, ceil_divide
from ...writing.tensors import Held, Tensor, TensorSequence
from ..writing.use import Converters, Use
from .shapes import require_equal


def _concat(use: Use) -> Sequence[Tensor]:
    xs = use.inputs
    axis = use.axis(xs[0].rank, 1 if use.version < 4 else None)
    return [use.g.concat(*xs, axis=axis) if len(xs) > 1 else xs[0]]


def _split(use: Use) -> Sequence[Tensor]:
    x = use.input()
    axis = use.axis(x.rank, 0)
    count = len(use.node.outputs)
    parts = split_sizes(use, x, axis, count)
    return parts_of(use, x, axis, parts)


def split_sizes(use: Use, x: Tensor, axis: int, count: int) -> tuple[Size, ...]:
    if use.has("split"):
        return tuple(use.ints_of("split"))
    if len(use.operands) > 1 and use.operands[1] is not None:
        given = use.input(1)
        if given.sizes is not None:
            return given.sizes
        sizes = tuple(use.declared_shape("sizes of parts", index)[axis] for index in range(count))
        require_equal(use, given, sizes)
        return sizes
    number = use.integer("num_outputs", count)
    if number != count:
        use.fail(f"has `num_outputs` = {number} and {count} outputs", code="bad-attribute")
    size = x.shape[axis]
    part = ceil_divide(size, number)
    last = size - part * (number - 1)
    return (*(part,) * (number - 1), last)


def parts_of(use: Use, x: Tensor, axis: int, parts: Sequence[Size]) -> tuple[Tensor, ...]:
    """Returns the parts of the given sizes along an axis."""
    size, total = x.shape[axis], sum(parts, start=0)
    if isinstance(size, int) and isinstance(total, int) and total != size:
        use.fail(f"splits an axis of {size} into {list(parts)}", code="shape-mismatch")
    if total != size:
        use.require(use.g.equal(use.g.size(total), use.g.size(size)))
    if len(parts) < 2:
        return (x,) * len(parts)
    if all(isinstance(part, int) for part in parts):
        return use.g.apply("split", [x], {"parts": tuple(parts), "axis": axis})
    made: list[Tensor] = []
    start: Size = 0
    whole = (None,) * axis
    for part in parts:
        stop = start + part
        made.append(use.g.slice(x, starts=(*whole, start), stops=(*whole, stop)))
        start = stop
    return tuple(made)


def _concat_from_sequence(use: Use) -> Sequence[Tensor]:
    items, g = use.sequence().items, use.g
    if not items:
        use.fail("joins an empty sequence", code="wrong-operands")
    new_axis = use.integer("new_axis", 0)
    axis = use.axis(items[0].rank + bool(new_axis), None)
    if new_axis:
        return [g.stack(*items, axis=axis)]
    return [g.concat(*items, axis=axis) if len(items) > 1 else items[0]]


def _split_to_sequence(use: Use) -> Sequence[Held]:
    x, g = use.input(), use.g
    axis = use.axis(x.rank, 0)
    size = x.shape[axis]
    given = use.optional(1)
    if given is None:
        if not isinstance(size, int):
            use.fail("splits an axis of symbolic size into single elements", code="data-dependent")
        parts = parts_of(use, x, axis, (1,) * size)
        kept = parts if use.integer("keepdims", 1) else tuple(g.squeeze(part, axes=(axis,)) for part in parts)
        return [TensorSequence(kept)]
    sizes = use.ints(1, "sizes of parts")
    if any(part < 0 for part in sizes) or (given.rank == 0 and sizes[0] == 0):
        use.fail(f"splits into parts of {list(sizes)}", code="bad-size")
    if given.rank == 0:
        if not isinstance(size, int):
            use.fail("splits an axis of symbolic size", code="data-dependent")
        whole, rest = divmod(size, sizes[0])
        sizes = (*(sizes[0],) * whole, *((rest,) if rest else ()))
    return [TensorSequence(parts_of(use, x, axis, sizes))]


CONVERTERS: Converters = {
    "Concat": _concat,
    "Split": _split,
    "ConcatFromSequence": _concat_from_sequence,
    "SplitToSequence": _split_to_sequence,
}
