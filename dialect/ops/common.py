"""What several families of operators share: broadcasting, axes, and lowerings that differ in a formula only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..dims import Shape, Size
from ..emitter import Emitter, Scalar, ScalarEmitter, Tensor, broadcast_map
from ..graph import Value
from ..operator import Attributes, Builder, InferenceError, Lower
from ..types import TensorType


def broadcast_shapes(shapes: Sequence[Shape], operator: str) -> Shape:
    """The common shape by the array API's rules. Raises InferenceError where two sizes differ and neither is 1."""
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
    """The axis counted from 0. Raises InferenceError where the tensor has no such axis."""
    if not -rank <= axis < rank:
        raise InferenceError("bad-axis", f"`{operator}` has no axis {axis}", label=f"the tensor has rank {rank}")
    return axis % rank


def normalize_axes(axes: int | Sequence[int] | None, rank: int, operator: str) -> tuple[int, ...]:
    """Axes counted from 0, in order; None means all of them. Raises InferenceError for a wrong or a repeated one."""
    if axes is None:
        return tuple(range(rank))
    given = (axes,) if isinstance(axes, int) else tuple(axes)
    normal = tuple(sorted(normalize_axis(a, rank, operator) for a in given))
    if len(set(normal)) != len(normal):
        raise InferenceError("bad-axis", f"`{operator}` names an axis twice: {given}")
    return normal


def same_type(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    """Inference of what keeps dtype and shape of its first operand."""
    return (types[0],)


def lower_elementwise(body: Callable[..., Scalar]) -> Lower:
    """A lowering from a formula for one element, `body(s, *elements, **attributes)`, with broadcasting."""

    def lower(
        e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
    ) -> Sequence[Tensor]:
        result = types[0]
        inputs = [(x, broadcast_map(x.type.shape, result.shape)) for x in operands]

        def element(s: ScalarEmitter, *elements: Scalar) -> Scalar:
            return body(s, *elements, **attributes)

        return [e.map(result, inputs, element)]

    return lower


def sum_to(b: Builder, gradient: Value, shape: Shape) -> Value:
    """The gradient of a broadcast operand of `shape`: summed over the axes in which it was repeated."""
    extra = gradient.type.rank - len(shape)
    if extra:
        gradient = b.sum(gradient, axis=tuple(range(extra)))
    repeated = tuple(i for i, size in enumerate(shape) if size == 1 and gradient.type.shape[i] != 1)
    return b.sum(gradient, axis=repeated, keepdims=True) if repeated else gradient
