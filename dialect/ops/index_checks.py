"""`check_indices`: checks that indices are in range. The entry that computes it fails the call if they are not.

The result is a record of four integers, which the entry reads:

    [number of the first index out of range, or -1;  that index;  the size of its axis;  the size of the window]

Numbers count in row-major order. The reported number is the least, regardless of the order of the checks. A negative
index counts from the end, unless `from_end` is False: then it is out of range. A `deferred`
check is computed only if a kernel of the call has raised the alarm; a node before it watches the same indices.

    indices [3, 7, -9] into an axis of 5, window 1:    [1, 7, 5, 1]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dims import Size, bounds, product
from ..emitter import Emitter, Loop, Result, Scalar, ScalarEmitter, Tensor, identity
from ..operator import Addressing, Attributes, AttributeSpec, Case, LateCases, Operator
from ..types import I32, I64, DType, TensorType
from .support.accumulate import Numbers
from .support.arguments import read_size, read_sizes
from .support.index_modes import find_outside, from_start, index_operand, load_if_any

RECORD = 4
"""The length of the result."""
_NONE = 1 << 62
"""The number that means no index out of range; greater than every number of an index."""
_NONE_NARROW = (1 << 31) - 1
"""The same for 32-bit numbers."""


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    read_sizes("check_indices", "sizes", attributes["sizes"])
    read_size("check_indices", "window", attributes["window"])
    return (TensorType(I64, (RECORD,)),)


def _reference(
    indices: Numbers,
    sizes: tuple[int, ...],
    window: int,
    operator: str,
    deferred: bool = False,
    from_end: bool = True,
) -> Numbers:
    number = find_outside(indices, sizes, window, from_end=from_end)
    if number is None:
        return np.asarray([-1, 0, 0, window], np.int64)
    return np.asarray([number, indices.reshape(-1)[number], sizes[number % len(sizes)], window], np.int64)


def _size_of(s: ScalarEmitter, number: Scalar, sizes: Sequence[Size]) -> Scalar:
    """Returns the size of the axis that index `number` addresses."""
    axis = s.binary("rem", number, s.constant(len(sizes), I64)) if len(sizes) > 1 else number
    result = s.size(sizes[0])
    for i, size in enumerate(sizes[1:], start=1):
        result = s.select(s.compare("eq", axis, s.constant(i, I64)), s.size(size), result)
    return result


def _fits_narrow(dtype: DType, sizes: Sequence[Size], count: Size) -> bool:
    """Returns whether indices, numbers and twice the size of the only axis fit in i32."""
    most = max(bounds(count)[1], *(2 * bounds(size)[1] for size in sizes))
    return dtype is I32 and len(sizes) == 1 and most < _NONE_NARROW


def _is_outside(
    s: ScalarEmitter,
    index: Scalar,
    number: Scalar,
    sizes: Sequence[Size],
    window: Size,
    dtype: DType,
    from_end: bool,
) -> Scalar:
    """Returns whether the index `number` is out of range. For single elements of one axis, one unsigned comparison
    suffices:

        -size <= index < size  ==  index + size < 2 * size, where a negative sum counts as a large one
             0 <= index < size  ==  index < size, where a negative index counts as a large one

    It becomes a signed comparison when the least number is added to both sides, since sums wrap.
    """
    if len(sizes) == 1 and window == 1:
        least = s.constant(-1 << dtype.bits - 1, dtype)
        factors = (1, 2) if from_end else (0, 1)
        bias, limit = (s.binary("add", s.cast(s.size(factor * sizes[0]), dtype), least) for factor in factors)
        return s.compare("ge", s.binary("add", s.cast(index, dtype), bias), limit)
    size = _size_of(s, number, sizes)
    position = from_start(s, index, size) if from_end else s.cast(index, I64)
    last = s.binary("sub", size, s.size(window))
    return s.binary("or", s.compare("lt", position, s.constant(0, I64)), s.compare("gt", position, last))


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    (indices,) = operands
    sizes, window, from_end = attributes["sizes"], attributes["window"], attributes["from_end"]
    count = product(indices.type.shape)
    flat = e.reshape(indices, (count,))

    narrow = _fits_narrow(indices.type.dtype, sizes, count)
    counter = I32 if narrow else I64
    none = _NONE_NARROW if narrow else _NONE

    def least(s: ScalarEmitter, index: Scalar, best: Scalar) -> Sequence[Scalar]:
        number = s.index(0)  # type: ignore[attr-defined]  # the body of a structured op has indices
        outside = _is_outside(s, index, number, sizes, window, counter, from_end)
        return [s.binary("min", best, s.select(outside, s.cast(number, counter), s.constant(none, counter)))]

    scalar = TensorType(counter, ())
    (first,) = e.structured(
        [Loop(count, parallel=False)], [(flat, identity(1))], [Result(scalar, (), initial=none)], least
    )

    def record(s: ScalarEmitter, number: Scalar) -> Scalar:
        number = s.cast(number, I64)
        found = s.compare("lt", number, s.constant(none, I64))
        safe = s.select(found, number, s.constant(0, I64))
        fields = (
            s.select(found, number, s.constant(-1, I64)),
            s.select(found, s.cast(load_if_any(s, flat, [safe], [0]), I64), s.constant(0, I64)),
            s.select(found, _size_of(s, safe, sizes), s.constant(0, I64)),
            s.size(window),
        )
        result = fields[0]
        for i, field in enumerate(fields[1:], start=1):
            here = s.compare("eq", s.index(0), s.constant(i, I64))  # type: ignore[attr-defined]  # as above
            result = s.select(here, field, result)
        return result

    return [e.map(types[0], [(first, ())], record)]


def _case(
    indices: Sequence[int],
    sizes: tuple[int, ...],
    window: int = 1,
    shape: tuple[int, ...] | None = None,
    dtype: DType = I64,
    from_end: bool = True,
) -> Case:
    array = np.asarray(indices, dtype.numpy)
    array = array if shape is None else array.reshape(shape)
    attributes = {"sizes": sizes, "window": window, "operator": "gather", "from_end": from_end}
    return Case((array.shape,), attributes, arrays={0: array}, dtypes=(dtype,))


check_indices = Operator(
    name="check_indices",
    summary="checks indices, and fails the call if one is out of range",
    operands=(index_operand(),),
    attributes=(
        AttributeSpec("sizes", "sizes"),
        AttributeSpec("window", "size", 1),
        AttributeSpec("operator", "str"),
        AttributeSpec("deferred", "bool", False),
        AttributeSpec("from_end", "bool", True),
    ),
    infer=_infer,
    reference=_reference,
    gradient=None,
    lower=_lower,
    addresses=lambda types, attributes: (
        Addressing(0, attributes["sizes"], attributes["window"], from_end=attributes["from_end"]),
    ),
    cases=LateCases(
        lambda: (
            _case((0, 4, -1, -5), (5,)),
            _case((0, 4, 5, -6), (5,)),
            _case((2, -4, 7, 0, 1, 2, -1, 3, 9, 1), (3,), shape=(2, 5)),
            _case((0, 1, 2, 3, 3, 0), (3, 4), shape=(3, 2)),
            _case((3,), (5,), 3, shape=()),
            _case((2,), (5,), 3, shape=()),
            _case((1, 2, (1 << 63) - 1, -1 << 63), (5,)),
            _case((-1 << 63,), (5,)),
            _case((0, -5, 4, -6, 5), (5,), dtype=I32),
            _case((4, -5, (1 << 31) - 1, 0), (5,), dtype=I32),
            _case((4, -1 << 31, 0), (5,), dtype=I32),
            _case((3, -3, 4), (5,), 2, dtype=I32),
            _case((0, 4, -1), (5,), from_end=False),
            _case((0, 4, 5), (5,), from_end=False),
            _case((4, 0, -1 << 31), (5,), dtype=I32, from_end=False),
            _case((0, 1, 2, -3), (3, 4), shape=(2, 2), from_end=False),
            _case((3, -1), (5,), 2, from_end=False),
            _case((0,), (0,)),
            _case((), (3,)),
        )
    ),
    properties=frozenset({"internal", "checking", "exact"}),
)

OPERATORS = (check_indices,)
