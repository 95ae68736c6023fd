"""Parts of tensors: slices, splits and reversals."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.dims import Size
from ...writing.tensors import Tensor
from ..writing.use import Converters, Use


def _slice(use: Use) -> Sequence[Tensor]:
    x = use.input()
    starts, counts = use.sizes(1, "starts"), use.sizes(2, "sizes")
    if len(starts) != x.rank or len(counts) != x.rank:
        use.fail(f"has {len(starts)} starts and {len(counts)} sizes for rank {x.rank}", code="wrong-operands")
    stops = [None if count == -1 else start + count for start, count in zip(starts, counts, strict=True)]
    return [use.g.slice(x, starts=starts, stops=tuple(stops))]


def _strided_slice(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    begin, end = use.sizes(1, "starts"), use.sizes(2, "stops")
    steps = use.integers(3, "steps")
    if not len(begin) == len(end) == len(steps):
        use.fail("has operands of different lengths", code="wrong-operands")
    if use.flag("offset"):
        end = tuple(a + b for a, b in zip(begin, end, strict=True))
    masks = {name: use.integer(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}

    def marked(name: str, position: int) -> bool:
        return bool(masks[name] >> position & 1)

    plain = [p for p in range(len(begin)) if not marked("new_axis", p) and not marked("ellipsis", p)]
    if len(plain) > x.rank:
        use.fail(f"slices {len(plain)} axes of a tensor of rank {x.rank}", code="wrong-operands")
    starts: list[Size | None] = []
    stops: list[Size | None] = []
    by: list[int] = []
    shape: list[int | None] = []  # for each axis of the result, the axis of the slice, None for a new one
    for position in range(len(begin)):
        if marked("ellipsis", position):
            for _ in range(x.rank - len(plain)):
                shape.append(len(starts))
                starts, stops, by = [*starts, None], [*stops, None], [*by, 1]
        elif marked("new_axis", position):
            shape.append(None)
        elif marked("shrink_axis", position):
            start = begin[position]
            starts.append(start)
            stops.append(None if start == -1 else start + 1)
            by.append(1)
        else:
            shape.append(len(starts))
            starts.append(None if marked("begin", position) else begin[position])
            stops.append(None if marked("end", position) else end[position])
            by.append(steps[position])
    shape += range(len(starts), x.rank)
    if 0 in by:
        use.fail("has a step of 0", code="bad-attribute")
    made = g.slice(x, starts=tuple(starts), stops=tuple(stops), steps=tuple(by))
    final = tuple(1 if axis is None else made.shape[axis] for axis in shape)
    return [made if final == made.shape else g.reshape(made, shape=final)]


def _split(use: Use) -> Sequence[Tensor]:
    x = use.input(1)
    axes = use.integers(0, "axes")
    if len(axes) != 1 or not use.results:
        use.fail("has several axes, or no result", code="wrong-operands")
    return use.g.apply("split", [x], {"parts": len(use.results), "axis": use.axis(axes[0], x.rank)})


def _split_v(use: Use) -> Sequence[Tensor]:
    x = use.input(0)
    sizes, axes = list(use.sizes(1, "sizes")), use.integers(2, "axes")
    if len(axes) != 1:
        use.fail("has several axes", code="wrong-operands")
    axis = use.axis(axes[0], x.rank)
    if -1 in sizes:
        position = sizes.index(-1)
        sizes[position] = x.shape[axis] - sum(size for number, size in enumerate(sizes) if number != position)
    if len(sizes) == 1:
        return [x]
    return use.g.apply("split", [x], {"parts": tuple(sizes), "axis": axis})


def _unpack(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    axis = use.axis(use.integer("axis"), x.rank)
    if x.shape[axis] != len(use.results):
        use.fail(f"gives {len(use.results)} parts of {x.type}", code="shape-mismatch")
    lead: tuple[Size | None, ...] = (None,) * axis
    parts = [g.slice(x, starts=(*lead, position), stops=(*lead, position + 1)) for position in range(len(use.results))]
    return [g.squeeze(part, axes=(axis,)) for part in parts]


def _reverse(use: Use) -> Sequence[Tensor]:
    x = use.input()
    return [use.g.flip(x, axes=tuple(use.axis(axis, x.rank) for axis in use.integers(1, "axes")))]


CONVERTERS: Converters = {
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "UNPACK": _unpack,
    "REVERSE_V2": _reverse,
}
