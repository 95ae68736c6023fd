"""`mask_after`: an axis that holds valid elements up to a length, which is known in the call.

    lengths 2, 3    mask_after([[1, 2, nan, 4], [5, 6, 7, inf]], lengths)    [[1, 2, 0, 0], [5, 6, 7, 0]]

Elements at and after the length have no influence, not even NaN and infinities.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    axis = attributes["axis"]
    if not -x.rank <= axis < x.rank:
        raise InferenceError("bad-attribute", f"`mask_after` has no axis {axis} in {x}", operand=0)
    return int(axis % x.rank)


def _infer_mask(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, lengths = types
    axis = _axis(x, attributes)
    if lengths.rank > axis or any(size not in (1, x.shape[i]) for i, size in enumerate(lengths.shape)):
        raise InferenceError(
            "shape-mismatch",
            f"`mask_after` cannot apply lengths {lengths} to axis {axis} of {x}",
            label="expected the sizes of leading axes, or 1",
            operand=1,
        )
    return (x,)


def _lengths_map(lengths: TensorType, x: TensorType) -> IndexMap:
    return tuple(ZERO if size == 1 and x.shape[i] != 1 else loop(i) for i, size in enumerate(lengths.shape))


def _lower_mask(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, lengths = operands
    axis = _axis(x.type, attributes)

    def element(s: BodyEmitter, value: Scalar, length: Scalar) -> Scalar:
        inside = s.compare("lt", s.index(axis), clamped(s, length, x.type.shape[axis], window=0))
        return s.select(inside, value, s.constant(attributes["fill"], x.type.dtype))

    inputs = [(x, identity(x.type.rank)), (lengths, _lengths_map(lengths.type, x.type))]
    return [e.map(types[0], inputs, element)]


def _reference_mask(x: Numbers, lengths: Numbers, axis: int, fill: float, mode: str) -> Numbers:
    axis %= x.ndim
    ends = clamped_array(lengths, x.shape[axis], window=0)
    ends = ends.reshape(*ends.shape, *(1,) * (x.ndim - ends.ndim))
    positions = np.arange(x.shape[axis]).reshape(-1, *(1,) * (x.ndim - 1 - axis))
    return np.where(positions < ends, x, np.asarray(fill, x.dtype))


def _differentiate_mask(b: Builder, use: Use) -> Sequence[Value | None]:
    axis = use.attributes["axis"]
    return [b.mask_after(use.gradient, use.inputs[1], axis=axis, fill=0.0, mode="clamp"), None]


def _case(
    shape: tuple[int, ...], lengths: object, axis: int = -1, fill: float = 0.0, dtype: DType = I64, mode: str = "error"
) -> Case:
    return Case((shape,), {"axis": axis, "fill": fill, "mode": mode}, arrays={1: np.asarray(lengths, dtype.numpy)})


mask_after = Operator(
    name="mask_after",
    summary="x with `fill` in place of the elements at and after a length along an axis; a masked element has no "
    "influence, even if it is NaN; `lengths` has leading axes of x, all before `axis`, of the same sizes or 1, or is a "
    "scalar; a negative length counts from the end",
    operands=(Operand("x", FLOATS), index_operand("lengths")),
    attributes=(AttributeSpec("axis", "axis", -1), AttributeSpec("fill", "float", 0.0), WINDOW_MODE),
    infer=_infer_mask,
    reference=_reference_mask,
    gradient=_differentiate_mask,
    lower=_lower_mask,
    addresses=lambda types, attributes: (Addressing(1, (types[0].shape[_axis(types[0], attributes)],), 0),),
    cases=LateCases(
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
    ),
    properties=frozenset({"pointwise", "exact"}),
)

OPERATORS = (mask_after,)
