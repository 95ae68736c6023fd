"""Operators that read the same memory under another shape: reshape, flatten, squeeze, unsqueeze.

They move no elements. The number of elements must provably stay the same for every value of the dims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dims import Shape, Size, divide_exactly, product
from ..emitter import Emitter, Tensor
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, Operand, Operator, Resolve, Use
from ..types import ANY, TensorType
from .support.accumulate import Numbers
from .support.arguments import bad_attribute, read_integers, read_sizes
from .support.common import format_shape, normalize_axes, normalize_axis

_VIEW = frozenset({"view", "movement"})


def new_shape(shape: Shape, wanted: Any) -> Shape:
    """Returns the shape after a reshape, with -1 resolved. Raises InferenceError if the number of elements changes."""
    target = read_sizes("reshape", "shape", wanted, minus_one=True)
    total = product(shape)
    known = product(size for size in target if size != -1)
    unknown = [i for i, size in enumerate(target) if size == -1]
    if len(unknown) > 1:
        raise bad_attribute("reshape", "shape", wanted, "one -1 at most")
    if not unknown:
        if known != total:
            raise InferenceError(
                "shape-mismatch",
                f"`reshape` cannot convert {format_shape(shape)} into {format_shape(target)}",
                label=f"{total} elements would become {known}",
                operand=0,
            )
        return target
    rest = divide_exactly(total, known)
    if rest is None:
        raise InferenceError(
            "shape-mismatch",
            f"`reshape` cannot convert {format_shape(shape)} into {format_shape(target)}",
            label=f"{total} elements are not a multiple of {known}",
            operand=0,
        )
    return (*target[: unknown[0]], rest, *target[unknown[0] + 1 :])


def _flat_shape(shape: Shape, start: int, end: int) -> Shape:
    if not shape:
        return (1,)
    first, last = normalize_axis(start, len(shape), "flatten"), normalize_axis(end, len(shape), "flatten")
    if first > last:
        raise InferenceError("bad-axis", f"`flatten` starts at axis {first}, after its end at axis {last}")
    return (*shape[:first], product(shape[first : last + 1]), *shape[last + 1 :])


def _resolve_axes(types: Sequence[TensorType], given: Attributes) -> Attributes:
    """Returns `axes` as the axes whose size is 1 for every value of the dims."""
    if given["axes"] is not None:
        return given
    return {"axes": tuple(axis for axis, size in enumerate(types[0].shape) if size == 1)}


def _squeezed(shape: Shape, axes: Any) -> Shape:
    if axes is None:
        return tuple(size for size in shape if size != 1)
    dropped = normalize_axes(axes, len(shape), "squeeze")
    for axis in dropped:
        if shape[axis] != 1:
            raise InferenceError(
                "shape-mismatch", f"`squeeze` cannot drop axis {axis} of size {shape[axis]}", operand=0
            )
    return tuple(size for axis, size in enumerate(shape) if axis not in dropped)


def _unsqueezed(shape: Shape, axes: Any) -> Shape:
    rank = len(shape) + len(read_integers("unsqueeze", "axes", axes))
    added = normalize_axes(axes, rank, "unsqueeze")
    sizes = iter(shape)
    return tuple(1 if axis in added else next(sizes) for axis in range(rank))


def _reference_reshape(x: Numbers, shape: Any) -> Numbers:
    target = np.atleast_1d(np.asarray(shape, np.int64)).tolist()
    if x.size == 0:
        # The size for -1 is undetermined if another size is 0; the tensor is empty in either case.
        return x.reshape([0 if size == -1 and 0 in target else size for size in target])
    return x.reshape(target)


def _view(
    name: str,
    summary: str,
    attributes: tuple[AttributeSpec, ...],
    shape_of: Callable[..., Shape],
    reference: Callable[..., Numbers],
    *cases: Case,
    resolve: Resolve | None = None,
) -> Operator:
    def infer(types: Sequence[TensorType], given: Attributes) -> tuple[TensorType, ...]:
        return (types[0].with_shape(shape_of(types[0].shape, *(given[a.name] for a in attributes))),)

    def lower(
        e: Emitter, operands: Sequence[Tensor], given: Attributes, types: Sequence[TensorType]
    ) -> Sequence[Tensor]:
        return [e.reshape(operands[0], types[0].shape)]

    def differentiate(b: Builder, use: Use) -> Sequence[Value]:
        return [b.reshape(use.gradient, shape=use.inputs[0].type.shape)]

    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", ANY),),
        attributes=attributes,
        infer=infer,
        reference=reference,
        gradient=differentiate,
        lower=lower,
        cases=cases,
        properties=_VIEW,
        resolve=resolve,
    )


def _reshape_case(shape: tuple[int, ...], *target: Size) -> Case:
    return Case((shape,), {"shape": target})


OPERATORS = (
    _view(
        "reshape",
        "x with another shape, in row-major order; one size may be -1 and is inferred",
        (AttributeSpec("shape", "sizes"),),
        new_shape,
        _reference_reshape,
        _reshape_case((3, 4), 4, 3),
        _reshape_case((2, 3, 4), 2, -1),
        _reshape_case((), 1, 1),
        _reshape_case((1,)),
        _reshape_case((0, 3), 3, 0, 7),
        _reshape_case((6,), -1),
    ),
    _view(
        "flatten",
        "x with the axes from `start` to `end`, inclusive, merged into one",
        (AttributeSpec("start", "axis", 0), AttributeSpec("end", "axis", -1)),
        _flat_shape,
        lambda x, start, end: x.reshape(_flat_shape(x.shape, start, end)),
        Case(((2, 3, 4),)),
        Case(((2, 3, 4, 5),), {"start": 1, "end": 2}),
        Case(((),)),
        Case(((0, 3),)),
        Case(((5,),), {"start": -1}),
    ),
    _view(
        "squeeze",
        "x without the given axes of size 1; by default without all axes of size 1",
        (AttributeSpec("axes", "axes", None),),
        _squeezed,
        lambda x, axes: x.reshape(_squeezed(x.shape, axes)),
        Case(((2, 1, 3, 1),)),
        Case(((2, 1, 3, 1),), {"axes": 1}),
        Case(((1, 0, 1),), {"axes": (0, -1)}),
        Case(((),)),
        resolve=_resolve_axes,
    ),
    _view(
        "unsqueeze",
        "x with new axes of size 1 at the given positions of the result",
        (AttributeSpec("axes", "axes", of_result=True),),
        _unsqueezed,
        lambda x, axes: x.reshape(_unsqueezed(x.shape, axes)),
        Case(((2, 3),), {"axes": 1}),
        Case(((2, 3),), {"axes": (0, -1)}),
        Case(((),), {"axes": 0}),
        Case(((0,),), {"axes": (1, 2)}),
    ),
)
