"""Helpers shared by families of operators: broadcasting, axes, references, and lowerings from a formula."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dims import Shape, Size, bounds, product
from ...emitter import (
    Emitter,
    Scalar,
    ScalarEmitter,
    Tensor,
    broadcast_map,
    identity,
)
from ...graph import Value
from ...operator import Attributes, Builder, InferenceError, Lower, Reference
from ...types import F32, DType, TensorType, dtype_of

SHAPES: tuple[tuple[int, ...], ...] = ((3, 5), (), (1,), (0,), (17,), (2, 0, 3), (2, 1, 7))
"""The test shapes of every elementwise operator with one operand."""


def broadcast_shapes(shapes: Sequence[Shape], operator: str) -> Shape:
    """Returns the common shape by the array API's rules. Raises InferenceError if two sizes differ and neither is 1."""
    result: list[Size] = []
    for axis in range(-max(map(len, shapes), default=0), 0):
        size: Size = 1
        for number, shape in enumerate(shapes):
            if -axis > len(shape) or shape[axis] == 1 or shape[axis] == size:
                continue
            if size != 1:
                raise InferenceError(
                    "shape-mismatch",
                    f"`{operator}` cannot broadcast {' and '.join(map(format_shape, shapes))}",
                    label=f"sizes {size} and {shape[axis]} differ in axis {axis}",
                    operand=number,
                )
            size = shape[axis]
        result.append(size)
    return tuple(result)


def format_shape(shape: Shape) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def normalize_axis(axis: int, rank: int, operator: str) -> int:
    """Returns the axis counted from 0. Raises InferenceError if the tensor has no such axis."""
    if not -rank <= axis < rank:
        raise InferenceError("bad-axis", f"`{operator}` has no axis {axis}", label=f"the tensor has rank {rank}")
    return axis % rank


def normalize_axes(axes: int | Sequence[int] | None, rank: int, operator: str) -> tuple[int, ...]:
    """Returns axes counted from 0, in order; None means all. Raises InferenceError for an invalid or a repeated one."""
    if axes is None:
        return tuple(range(rank))
    given = (axes,) if isinstance(axes, int) else tuple(axes)
    normal = tuple(sorted(normalize_axis(a, rank, operator) for a in given))
    if len(set(normal)) != len(normal):
        raise InferenceError("bad-axis", f"`{operator}` names an axis twice: {given}")
    return normal


def is_empty(size: Size) -> bool:
    """Returns whether the size is provably 0 for every value of the dims."""
    return bounds(size)[1] == 0


def kept_shape(shape: Shape, axes: Sequence[int]) -> Shape:
    """Returns the shape with 1 for the given axes."""
    return tuple(1 if i in axes else size for i, size in enumerate(shape))


def same_type(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    """Infers the dtype and shape of the first operand."""
    return (types[0],)


def is_half(dtype: DType) -> bool:
    """Returns whether the dtype is a 16-bit float, which is computed in f32."""
    return dtype.is_half


def compute_dtype(dtype: DType) -> DType:
    """Returns the dtype in which values of `dtype` are accumulated."""
    return F32 if is_half(dtype) else dtype


def integer_range(dtype: DType) -> tuple[int, int]:
    """Returns the least and the greatest value of an integer dtype."""
    return dtype.integer_range


def lowest(dtype: DType) -> float | int:
    """Returns the lowest value of the dtype, or -inf."""
    return float("-inf") if dtype.is_float else integer_range(dtype)[0]


def highest(dtype: DType) -> float | int:
    """Returns the highest value of the dtype, or inf."""
    return float("inf") if dtype.is_float else integer_range(dtype)[1]


def through_f32(reference: Callable[..., Any]) -> Reference:
    """Wraps a reference: computed in f32 and rounded once if the first operand is f16 or bf16.

    Results that are not floats (a comparison, an index) stay as they are.
    """

    @functools.wraps(reference)
    def computed(*arrays: Any, **attributes: Any) -> Any:
        dtype = next((dtype_of(a) for a in arrays if is_half(dtype_of(a))), None)
        if dtype is None:
            return reference(*arrays, **attributes)
        wide = [a.astype(np.float32) if is_half(dtype_of(a)) else a for a in arrays]
        result = np.asarray(reference(*wide, **attributes))
        return result.astype(dtype.numpy) if result.dtype == np.float32 else result

    return computed


def greater_of(x: Any, y: Any) -> Any:
    """Computes the reference of `maximum`. numpy returns either zero for two zeros; here +0 is greater than -0."""
    result = np.maximum(x, y)
    return result if result.dtype.kind in "biu" else np.where((x == 0) & (y == 0), x + y, result)


def lesser_of(x: Any, y: Any) -> Any:
    """Computes the reference of `minimum`; -0 is less than +0."""
    result = np.minimum(x, y)
    return result if result.dtype.kind in "biu" else np.where((x == 0) & (y == 0), -(-x - y), result)


def lower_elementwise(body: Callable[..., Scalar]) -> Lower:
    """Returns a lowering from a formula for one element, `body(s, *elements, **attributes)`, with broadcasting."""

    def lower(
        e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
    ) -> Sequence[Tensor]:
        result = types[0]
        inputs = [(x, broadcast_map(x.type.shape, result.shape)) for x in operands]

        def element(s: ScalarEmitter, *elements: Scalar) -> Scalar:
            return body(s, *elements, **attributes)

        return [e.map(result, inputs, element)]

    return lower


_ROOTS = ("sqrt", "rsqrt", "cbrt", "pow")
_EXPONENTIALS = ("exp", "exp2", "expm1", "log", "log2", "log1p", "log10", "erf", "erfc")
_ANGLES = ("sin", "cos", "tan", "asin", "acos", "atan", "atan2")
_HYPERBOLIC = ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
COSTLY = frozenset((*_ROOTS, *_EXPONENTIALS, *_ANGLES, *_HYPERBOLIC))
"""The emitter's functions that cost as much as many additions."""


def elementwise_properties(function: object, *further: str) -> frozenset[str]:
    """Returns the properties of an elementwise operator that is lowered to one of the emitter's functions, or to a
    body."""
    return frozenset({"elementwise", *further, *(("costly",) if function in COSTLY else ())})


def lower_cast(e: Emitter, x: Tensor, dtype: DType) -> Tensor:
    """Returns the tensor in another dtype; the tensor itself if it has that dtype already."""
    if x.type.dtype == dtype:
        return x
    return e.map(x.type.with_dtype(dtype), [(x, identity(x.type.rank))], lambda s, element: s.cast(element, dtype))


def sum_to(b: Builder, gradient: Value, shape: Shape) -> Value:
    """Returns the gradient of a broadcast operand of `shape`: summed over its repeated axes."""
    extra = gradient.type.rank - len(shape)
    if extra:
        gradient = b.sum(gradient, axis=tuple(range(extra)))
    repeated = tuple(i for i, size in enumerate(shape) if size == 1 and gradient.type.shape[i] != 1)
    return b.sum(gradient, axis=repeated, keepdims=True) if repeated else gradient


def expand_to(b: Builder, gradient: Value, shape: Shape) -> Value:
    """Returns the gradient repeated over the axes in which it is shorter than `shape`."""
    return gradient if gradient.type.shape == shape else b.broadcast_to(gradient, shape=shape)


def size_as(b: Builder, size: Size, dtype: DType) -> Value:
    """Returns a size as a scalar: a constant if it is known, else its run-time value."""
    return b.scalar(size, dtype) if isinstance(size, int) else b.cast(b.size_value(size=size), dtype=dtype)


def count(shape: Shape, axes: Sequence[int]) -> Size:
    """Returns the number of elements in a reduction over the axes."""
    return product(shape[a] for a in axes)
