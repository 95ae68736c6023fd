"""Resampling of the last axes, one axis after another, by the nearest element or linearly between two.

The coordinate in the operand of result element i, for an axis of n elements and a result of m, is

- `half_pixel`: (i + 1/2) n / m - 1/2, so that the elements are areas; `nearest` takes the area that holds the centre
- `asymmetric`: i n / m; `nearest` takes the element at or before it
- `align_corners`: i (n - 1) / (m - 1); `nearest` takes the nearest element, the later of two

Coordinates are fractions of integers, so that no rounding moves them. With `scales`, n / m is 1 / scale.

    n = 2, m = 4, half_pixel: the coordinates are -1/4, 1/4, 3/4, 5/4
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ..differentiate import by_decomposition
from ..dims import Shape, Size, floor_divide, maximum
from ..graph import Value
from ..lazy_dataclass import dataclass
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator
from ..types import ANY, FLOATS, I64, TensorType
from .support.accumulate import Numbers, widen
from .support.arguments import bad_attribute, read_sizes
from .support.common import compute_dtype, size_as
from .support.windows import integers


@dataclass(frozen=True, slots=True)
class _Sampling:
    """The sampling of one axis: `old / new` is the step, in elements of the operand."""

    axis: int
    size: Size
    count: Size
    old: Size
    new: Size
    coordinates: str

    def line(self, nearest: bool) -> tuple[Size, Size, Size]:
        """Returns slope, offset and divisor: result i lies at (slope * i + offset) / divisor."""
        if self.coordinates == "align_corners":
            gaps = maximum(self.count - 1, 1)
            # Half an element is added, so that rounding down selects the nearest.
            return (2 * (self.size - 1), gaps, 2 * gaps) if nearest else (self.size - 1, 0, gaps)
        if self.coordinates == "asymmetric":
            return self.old, 0, self.new
        return 2 * self.old, self.old if nearest else self.old - self.new, 2 * self.new


def _scale(value: Any) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1 << 20:
        raise bad_attribute("resize", "scales", value, "positive numbers")
    # The simplest fraction near a float: 0.1 means a tenth.
    return Fraction(value).limit_denominator(1 << 16)


def _samplings(shape: Shape, attributes: Attributes) -> list[_Sampling]:
    """Returns the sampling of each of the last axes. Raises InferenceError for inconsistent attributes."""
    sizes, scales = attributes["sizes"], attributes["scales"]
    if (sizes is None) == (scales is None):
        raise InferenceError("bad-attribute", "`resize` needs either `sizes` or `scales`")
    coordinates = attributes["coordinates"]
    given = scales if sizes is None else read_sizes("resize", "sizes", sizes)
    given = given if isinstance(given, tuple) else (given,)
    first = len(shape) - len(given)
    if first < 0:
        raise InferenceError("rank-mismatch", f"`resize` has {len(given)} sizes for {len(shape)} axes", operand=0)
    samplings = []
    for axis, value in enumerate(given, first):
        size = shape[axis]
        if sizes is None:
            scale = _scale(value)
            count = floor_divide(size * scale.numerator, scale.denominator)
            samplings.append(_Sampling(axis, size, count, scale.denominator, scale.numerator, coordinates))
        else:
            samplings.append(_Sampling(axis, size, value, size, value, coordinates))
    return [s for s in samplings if s.size != s.count or s.old != s.new]


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (x,) = types
    if attributes["mode"] == "linear" and x.dtype not in FLOATS:
        raise InferenceError("dtype-mismatch", f"`resize` cannot interpolate {x.dtype}", operand=0)
    shape = list(x.shape)
    for sampling in _samplings(x.shape, attributes):
        if sampling.size == 0 and sampling.count != 0:
            raise InferenceError("shape-mismatch", f"`resize` finds nothing in axis {sampling.axis} of {x}", operand=0)
        shape[sampling.axis] = sampling.count
    return (x.with_shape(shape),)


def _decompose(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    (x,) = operands
    linear = attributes["mode"] == "linear"
    total = b.cast(x, dtype=compute_dtype(x.type.dtype)) if linear else x
    for sampling in _samplings(x.type.shape, attributes):
        axis = sampling.axis
        slope, offset, divisor = (size_as(b, v, I64) for v in sampling.line(not linear))
        zero, last = b.scalar(0, I64), size_as(b, sampling.size - 1, I64)
        position = b.add(b.multiply(b.iota(shape=(sampling.count,)), slope), offset)
        position = b.maximum(position, zero)
        before = b.minimum(b.floor_divide(position, divisor), last)
        if not linear:
            total = b.gather(total, before, axis=axis, mode="clamp")
            continue
        after = b.minimum(b.add(before, b.scalar(1, I64)), last)
        dtype = total.type.dtype
        part = b.divide(b.cast(b.remainder(position, divisor), dtype=dtype), b.cast(divisor, dtype=dtype))
        part = b.reshape(part, shape=(sampling.count, *(1,) * (x.type.rank - axis - 1)))
        rest = b.subtract(b.like(1, part), part)
        total = b.add(
            b.multiply(b.gather(total, before, axis=axis, mode="clamp"), rest),
            b.multiply(b.gather(total, after, axis=axis, mode="clamp"), part),
        )
    return [b.cast(total, dtype=x.type.dtype) if linear else total]


def _reference(x: Numbers, **attributes: Any) -> Numbers:
    linear = attributes["mode"] == "linear"
    total = widen(x) if linear else x
    for sampling in _samplings(x.shape, attributes):
        axis, size, count = sampling.axis, sampling.size, sampling.count
        slope, offset, divisor = integers(sampling.line(not linear))
        assert isinstance(size, int) and isinstance(count, int)
        if size == 0 or count == 0:
            # The axis is empty only for this value of its dim: the result is 0.
            total = np.zeros((*total.shape[:axis], count, *total.shape[axis + 1 :]), total.dtype)
            continue
        position: Numbers = np.maximum(np.arange(count) * slope + offset, 0)
        before = np.minimum(position // divisor, size - 1)
        if not linear:
            total = np.take(total, before, axis)
            continue
        part = ((position % divisor).astype(total.dtype) / np.asarray(divisor).astype(total.dtype)).reshape(
            -1, *(1,) * (x.ndim - axis - 1)
        )
        after = np.minimum(before + 1, size - 1)
        total = np.take(total, before, axis) * (1 - part) + np.take(total, after, axis) * part
    return total.astype(x.dtype)


resize = Operator(
    name="resize",
    summary="x resampled by nearest element or by linear interpolation along its last axes: one of `sizes` or `scales` "
    "for each, so that `scales=(2, 2)` doubles an image",
    operands=(Operand("x", ANY),),
    attributes=(
        AttributeSpec("sizes", "any", None),
        AttributeSpec("scales", "any", None),
        AttributeSpec("mode", "str", "nearest", ("nearest", "linear")),
        AttributeSpec("coordinates", "str", "half_pixel", ("half_pixel", "align_corners", "asymmetric")),
    ),
    infer=_infer,
    reference=_reference,
    gradient=by_decomposition(_decompose),
    decompose=_decompose,
    cases=LateCases(
        lambda: (
            Case(((2, 3, 4),), {"sizes": (5, 2)}),
            Case(((1, 5),), {"sizes": (7,), "coordinates": "asymmetric"}),
            Case(((4, 3),), {"sizes": (7, 1), "coordinates": "align_corners"}),
            Case(((2, 3),), {"scales": (1.5, 2)}),
            Case(((0, 3),), {"sizes": 6}),
            Case(((2, 3),), {"sizes": (0,)}),
            *(
                Case(shapes, {**attributes, "mode": "linear"}, dtypes=FLOATS, tolerance=16.0)
                for shapes, attributes in (
                    (((2, 3, 4),), {"sizes": (5, 2)}),
                    (((1, 5),), {"sizes": (7,), "coordinates": "asymmetric"}),
                    (((2, 4, 3),), {"sizes": (7, 1), "coordinates": "align_corners"}),
                    (((2, 3),), {"scales": 2}),
                    (((1, 1),), {"sizes": (3, 3)}),
                )
            ),
        )
    ),
)

OPERATORS = (resize,)
