"""`mask_after` and `mask_before`: an axis that holds valid elements up to a length, or from a start on. Both are known
in the call.

    lengths 2, 3    mask_after([[1, 2, nan, 4], [5, 6, 7, inf]], lengths)    [[1, 2, 0, 0], [5, 6, 7, 0]]
    starts 1, 2     mask_before([[nan, 2, 3, 4], [5, 6, 7, 8]], starts)      [[0, 2, 3, 4], [0, 0, 7, 8]]

Masked elements have no influence, not even NaN and infinities. The masks of a sliding window are both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..emitter import ZERO, BodyEmitter, Emitter, IndexMap, Scalar, Tensor, identity, loop
from ..graph import Value
from ..operator import (
    Addressing,
    Attributes,
    AttributeSpec,
    Builder,
    Case,
    InferenceError,
    LateCases,
    Operand,
    Operator,
    Use,
)
from ..types import FLOATS, I32, I64, DType, TensorType
from .support.accumulate import Numbers
from .support.index_modes import WINDOW_MODE, clamped, clamped_array, index_operand


def _axis(x: TensorType, attributes: Attributes) -> int:
    """Returns the axis, which `_infer` has checked."""
    return int(attributes["axis"] % x.rank)


def _infer(name: str) -> Callable[[Sequence[TensorType], Attributes], tuple[TensorType, ...]]:
    def infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        x, bounds = types
        if not -x.rank <= attributes["axis"] < x.rank:
            raise InferenceError("bad-attribute", f"`{name}` has no axis {attributes['axis']} in {x}", operand=0)
        axis = _axis(x, attributes)
        if bounds.rank > axis or any(size not in (1, x.shape[i]) for i, size in enumerate(bounds.shape)):
            raise InferenceError(
                "shape-mismatch",
                f"`{name}` cannot apply {_operand_of(name)} {bounds} to axis {axis} of {x}",
                label="expected the sizes of leading axes, or 1",
                operand=1,
            )
        return (x,)

    return infer


def _operand_of(name: str) -> str:
    return "lengths" if name == "mask_after" else "starts"


def _map_of_bounds(bounds: TensorType, x: TensorType) -> IndexMap:
    return tuple(ZERO if size == 1 and x.shape[i] != 1 else loop(i) for i, size in enumerate(bounds.shape))


def _lower(
    comparison: str,
) -> Callable[[Emitter, Sequence[Tensor], Attributes, Sequence[TensorType]], Sequence[Tensor]]:
    """Returns the lowering of a mask that keeps the positions whose comparison with the bound holds."""

    def lower(
        e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
    ) -> Sequence[Tensor]:
        x, bounds = operands
        axis = _axis(x.type, attributes)

        def element(s: BodyEmitter, value: Scalar, bound: Scalar) -> Scalar:
            inside = s.compare(comparison, s.index(axis), clamped(s, bound, x.type.shape[axis], window=0))
            return s.select(inside, value, s.constant(attributes["fill"], x.type.dtype))

        inputs = [(x, identity(x.type.rank)), (bounds, _map_of_bounds(bounds.type, x.type))]
        return [e.map(types[0], inputs, element)]

    return lower


def _compute(
    compare: Callable[[Numbers, Numbers], Numbers], x: Numbers, bounds: Numbers, axis: int, fill: float
) -> Numbers:
    axis %= x.ndim
    found = clamped_array(bounds, x.shape[axis], window=0)
    found = found.reshape(*found.shape, *(1,) * (x.ndim - found.ndim))
    positions = np.arange(x.shape[axis]).reshape(-1, *(1,) * (x.ndim - 1 - axis))
    return np.where(compare(positions, found), x, np.asarray(fill, x.dtype))


def _reference_after(x: Numbers, lengths: Numbers, axis: int, fill: float, mode: str) -> Numbers:
    return _compute(np.less, x, lengths, axis, fill)


def _reference_before(x: Numbers, starts: Numbers, axis: int, fill: float, mode: str) -> Numbers:
    return _compute(np.greater_equal, x, starts, axis, fill)


def _differentiate_after(b: Builder, use: Use) -> Sequence[Value | None]:
    axis = use.attributes["axis"]
    return [b.mask_after(use.gradient, use.inputs[1], axis=axis, fill=0.0, mode="clamp"), None]


def _differentiate_before(b: Builder, use: Use) -> Sequence[Value | None]:
    axis = use.attributes["axis"]
    return [b.mask_before(use.gradient, use.inputs[1], axis=axis, fill=0.0, mode="clamp"), None]


def _address(types: Sequence[TensorType], attributes: Attributes) -> tuple[Addressing, ...]:
    return (Addressing(1, (types[0].shape[_axis(types[0], attributes)],), 0),)


def _case(
    shape: tuple[int, ...], bounds: object, axis: int = -1, fill: float = 0.0, dtype: DType = I64, mode: str = "error"
) -> Case:
    return Case((shape,), {"axis": axis, "fill": fill, "mode": mode}, arrays={1: np.asarray(bounds, dtype.numpy)})


_ATTRIBUTES = (AttributeSpec("axis", "axis", -1), AttributeSpec("fill", "float", 0.0), WINDOW_MODE)
_CASES = LateCases(
    lambda: (
        _case((5,), 3),
        _case((3, 7), (0, 7, 4), dtype=I32),
        _case((2, 3, 5), ((1, 2, -1), (5, 0, 3)), fill=-1.5),
        _case((2, 3, 5, 2), ((4,), (2,)), axis=-2),
        _case((2, 5, 33), (17, 33)),
        _case((4, 3), 2, axis=0),
        _case((2, 3), (9, -9), mode="clamp"),
        _case((1, 1), (1,)),
        _case((2, 0), (0, 0)),
        _case((0, 3), ()),
    )
)

mask_after = Operator(
    name="mask_after",
    summary="x with `fill` in place of the elements at and after a length along an axis; a masked element has no "
    "influence, even if it is NaN; `lengths` has leading axes of x, all before `axis`, of the same sizes or 1, or is a "
    "scalar; a negative length counts from the end",
    operands=(Operand("x", FLOATS), index_operand("lengths")),
    attributes=_ATTRIBUTES,
    infer=_infer("mask_after"),
    reference=_reference_after,
    gradient=_differentiate_after,
    lower=_lower("lt"),
    addresses=_address,
    cases=_CASES,
    properties=frozenset({"pointwise", "exact"}),
)

mask_before = Operator(
    name="mask_before",
    summary="x with `fill` in place of the elements before a start along an axis; a masked element has no influence, "
    "even if it is NaN; `starts` has leading axes of x, all before `axis`, of the same sizes or 1, or is a scalar; a "
    "negative start counts from the end",
    operands=(Operand("x", FLOATS), index_operand("starts")),
    attributes=_ATTRIBUTES,
    infer=_infer("mask_before"),
    reference=_reference_before,
    gradient=_differentiate_before,
    lower=_lower("ge"),
    addresses=_address,
    cases=_CASES,
    properties=frozenset({"pointwise", "exact"}),
)

OPERATORS = (mask_after, mask_before)
