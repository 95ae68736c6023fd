"""Parts of tensors between bounds that are sizes: reading and writing them.

The bounds are those of Python: from the end if negative, clipped to the axis, steps may be negative. Whether
a bound that depends on dims counts from the end must be decided by their ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import Size, ceil_divide, maximum, minimum
from ..emitter import BodyEmitter, Emitter, Scalar, Tensor
from ..graph import Value
from ..lazy_dataclass import dataclass
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import ANY, I64, TensorType
from .support.accumulate import Numbers
from .support.arguments import bad_attribute, is_negative, is_size, read_integers
from .support.common import format_shape
from .support.windows import integers

_MOVEMENT = frozenset({"movement"})
_BOUNDS = (AttributeSpec("starts", "any"), AttributeSpec("stops", "any"), AttributeSpec("steps", "any", None))


@dataclass(frozen=True, slots=True)
class Range:
    """The `count` indices of an axis: first, first + step, ..."""

    first: Size
    count: Size
    step: int

    @property
    def least(self) -> Size:
        return self.first if self.step > 0 else self.first + (self.count - 1) * self.step


def _position(name: str, what: str, value: Any, size: Size, low: Size, high: Size) -> Size:
    if not is_size(value):
        raise bad_attribute(name, what, value, "sizes")
    position: Size = size + value if is_negative(name, what, value) else value
    return minimum(maximum(position, low), high)


def _range(name: str, size: Size, start: Any, stop: Any, step: int) -> Range:
    if step == 0:
        raise InferenceError("bad-attribute", f"`steps` of `{name}` holds 0")
    if step > 0:
        first = 0 if start is None else _position(name, "starts", start, size, 0, size)
        last = size if stop is None else _position(name, "stops", stop, size, 0, size)
        return Range(first, maximum(ceil_divide(last - first, step), 0), step)
    first = size - 1 if start is None else _position(name, "starts", start, size, -1, size - 1)
    last = -1 if stop is None else _position(name, "stops", stop, size, -1, size - 1)
    return Range(first, maximum(ceil_divide(first - last, -step), 0), step)


def ranges(name: str, shape: Sequence[Size], attributes: Attributes) -> tuple[Range, ...]:
    """Returns the range of each axis; axes without a given range are taken whole."""
    starts, stops = (v if isinstance(v, tuple) else (v,) for v in (attributes["starts"], attributes["stops"]))
    given = attributes["steps"]
    steps = (1,) * len(starts) if given is None else read_integers(name, "steps", given, len(starts))
    if len(starts) != len(stops) or len(starts) > len(shape):
        raise InferenceError(
            "bad-attribute",
            f"`{name}` has {len(starts)} starts and {len(stops)} stops",
            label=f"the tensor has {len(shape)} axes",
        )
    taken = [_range(name, *part) for part in zip(shape, starts, stops, steps, strict=False)]
    return (*taken, *(Range(0, size, 1) for size in shape[len(taken) :]))


def _grid(parts: Sequence[Range]) -> Any:
    """Returns the numpy index of the parts."""
    firsts, counts = integers(tuple(p.first for p in parts)), integers(tuple(p.count for p in parts))
    positions = [np.arange(n) * p.step + first for p, first, n in zip(parts, firsts, counts, strict=True)]
    return np.ix_(*positions) if parts else ()


def _infer_slice(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    return (x.with_shape(part.count for part in ranges("slice", x.shape, attributes)),)


def _mirrored(e: Emitter, x: Tensor, axes: Sequence[int]) -> Tensor:
    """Returns the tensor reversed along some axes."""
    if not axes:
        return x

    def element(s: BodyEmitter) -> Scalar:
        positions = [s.index(axis) for axis in range(x.type.rank)]
        for axis in axes:
            positions[axis] = s.binary("sub", s.size(x.type.shape[axis] - 1), positions[axis])
        return s.load(x, positions)

    return e.map(x.type, [], element)


def _backward(parts: Sequence[Range]) -> list[int]:
    return [axis for axis, part in enumerate(parts) if part.step < 0]


def _lower_slice(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (x,) = operands
    parts = ranges("slice", x.type.shape, attributes)
    backward = _backward(parts)
    if not backward:
        return [e.slice(x, [p.first for p in parts], types[0].shape, [p.step for p in parts])]

    def element(s: BodyEmitter) -> Scalar:
        positions = []
        for axis, part in enumerate(parts):
            step = s.binary("mul", s.index(axis), s.constant(part.step, I64))
            positions.append(s.binary("add", s.size(part.first), step))
        return s.load(x, positions)

    return [e.map(types[0], [], element)]


def _differentiate_slice(b: Builder, use: Use) -> Sequence[Value]:
    (x,) = use.inputs
    zeros = b.full(shape=x.type.shape, value=0.0, dtype=x.type.dtype)
    return [b.slice_update(zeros, use.gradient, **use.attributes)]


slice_ = Operator(
    name="slice",
    summary="a slice start:stop:step of each leading axis, with the semantics of Python; None as start or stop "
    "denotes the end of the axis on that side",
    operands=(Operand("x", ANY),),
    attributes=_BOUNDS,
    infer=_infer_slice,
    reference=lambda x, **attributes: x[_grid(ranges("slice", x.shape, attributes))].copy(),
    gradient=_differentiate_slice,
    lower=_lower_slice,
    cases=LateCases(
        lambda: (
            Case(((5, 6),), {"starts": (1, 2), "stops": (4, 6)}),
            Case(((5, 7),), {"starts": (0, -6), "stops": (None, -1), "steps": (2, 3)}),
            Case(((5, 7),), {"starts": (None, 5), "stops": (None, 0), "steps": (-1, -2)}),
            Case(((4, 3),), {"starts": (2,), "stops": (100,)}),
            Case(((4,),), {"starts": (3,), "stops": (1,)}),
            Case(((0, 3),), {"starts": (0, 3), "stops": (1, None), "steps": (-1, -3)}),
            Case(((),), {"starts": (), "stops": ()}),
        )
    ),
    properties=_MOVEMENT | {"strided"},
)


def _infer_update(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, update = types
    expected = tuple(part.count for part in ranges("slice_update", x.shape, attributes))
    if update.shape != expected:
        raise InferenceError(
            "shape-mismatch", f"`slice_update` writes {update} into a slice {format_shape(expected)}", operand=1
        )
    return (x,)


def _reference_update(x: Numbers, update: Numbers, **attributes: Any) -> Numbers:
    result = x.copy()
    result[_grid(ranges("slice_update", x.shape, attributes))] = update
    return result


def _lower_update(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, update = operands
    parts = ranges("slice_update", x.type.shape, attributes)
    source = _mirrored(e, update, _backward(parts))
    # The indices of an empty backward slice may lie outside of the axis.
    starts = [
        p.first if p.step > 0 else minimum(maximum(p.least, 0), size)
        for p, size in zip(parts, x.type.shape, strict=True)
    ]
    return [e.insert(source, x, starts, [abs(p.step) for p in parts])]


def _differentiate_update(b: Builder, use: Use) -> Sequence[Value]:
    update = use.inputs[1].type
    zeros = b.full(shape=update.shape, value=0.0, dtype=update.dtype)
    return [b.slice_update(use.gradient, zeros, **use.attributes), b.slice(use.gradient, **use.attributes)]


slice_update = Operator(
    name="slice_update",
    summary="x with `update` written into the slice with the given bounds",
    operands=(Operand("x", ANY), Operand("update", ANY)),
    attributes=_BOUNDS,
    infer=_infer_update,
    reference=_reference_update,
    gradient=_differentiate_update,
    lower=_lower_update,
    cases=LateCases(
        lambda: (
            Case(((5, 6), (3, 4)), {"starts": (1, 2), "stops": (4, 6)}),
            Case(((5, 7), (3, 2)), {"starts": (0, -6), "stops": (None, -1), "steps": (2, 3)}),
            Case(((5, 7), (5, 3)), {"starts": (None, 5), "stops": (None, 0), "steps": (-1, -2)}),
            Case(((4,), (0,)), {"starts": (3,), "stops": (1,)}),
            Case(((0, 3), (0, 3)), {"starts": (0,), "stops": (1,), "steps": (-1,)}),
            Case(((1,), (1,)), {"starts": (-1,), "stops": (None,)}),
        )
    ),
    properties=_MOVEMENT,
)


OPERATORS = (slice_, slice_update)
