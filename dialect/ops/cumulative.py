"""Running sums and products along an axis, and the linear recurrence that their gradients need.

    x                            1  2  3  4
    cumsum(x)                    1  3  6 10
    cumsum(x, exclusive=true)    0  1  3  6
    cumsum(x, reverse=true)     10  9  7  4
    cumprod(x)                   1  2  6 24

`reverse` runs from the end of the axis; `exclusive` leaves the element itself out, so that the first result is 0 or 1.
f16 and bf16 are accumulated in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dims import add
from ..emitter import BodyEmitter, Emitter, Loop, Result, Scalar, Tensor, identity, loops
from ..graph import Value
from ..operator import (
    Attributes,
    AttributeSpec,
    Builder,
    Case,
    InferenceError,
    LateCases,
    Lower,
    Operand,
    Operator,
    Use,
)
from ..types import FLOATS, I64, NUMBERS, DType, TensorType
from .movement import mirrored_map
from .support.algebra import Term
from .support.common import compute_dtype, normalize_axis, size_as, through_f32

_AXIS, _REVERSE = AttributeSpec("axis", "axis", -1), AttributeSpec("reverse", "bool", False)

Step = Callable[[BodyEmitter, Scalar, Scalar, Sequence[Scalar]], Scalar]
"""`step(s, number, previous, elements)`: the next running value, from the one before step `number`."""


def _infer(name: str) -> Callable[..., tuple[TensorType, ...]]:
    def infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        normalize_axis(attributes["axis"], types[-1].rank, name)
        if types[0].shape != types[-1].shape:
            raise InferenceError(
                "shape-mismatch", f"`{name}` needs operands of one shape, not {types[0]} and {types[-1]}", operand=0
            )
        return (types[-1],)

    return infer


def _lower_running(step: Step, start: float) -> Lower:
    """Lowers to a scan along the axis that begins with `start`. An exclusive scan returns the value before each
    step."""

    def lower(
        e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
    ) -> Sequence[Tensor]:
        (result,) = types
        axis = attributes["axis"] % result.rank
        wide, exclusive = compute_dtype(result.dtype), attributes.get("exclusive")
        others = [i for i in range(result.rank) if i != axis]
        carried = result.with_dtype(wide).with_shape(tuple(result.shape[i] for i in others))

        def body(s: BodyEmitter, *values: Scalar) -> Sequence[Scalar]:
            *elements, previous, _ = values
            running = step(s, s.index(axis), previous, [s.cast(x, wide) for x in elements])
            return [running, s.cast(previous if exclusive else running, result.dtype)]

        def turned(x: Tensor) -> Tensor:
            return mirrored_map(e, x, (axis,)) if attributes["reverse"] else x

        # A sum of -0.0 alone is -0.0, and an empty sum is 0.0.
        first = 0.0 if exclusive and start == 0 else start
        _, running = e.structured(
            [Loop(size, parallel=i != axis) for i, size in enumerate(result.shape)],
            [(turned(x), identity(result.rank)) for x in operands],
            [Result(carried, loops(*others), initial=first), Result(result, identity(result.rank), initial=0)],
            body,
        )
        return [turned(running)]

    return lower


def _accumulation(function: str, start: float) -> Lower:
    """Lowers to the running value of a binary function; `start` is its neutral element."""
    return _lower_running(lambda s, number, previous, elements: s.binary(function, previous, elements[0]), start)


def _reference(function: Callable[..., Any], start: int) -> Callable[..., Any]:
    def reference(x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
        ordered = np.flip(x, axis) if reverse else x
        total = function(ordered, axis=axis, dtype=x.dtype)
        if exclusive:
            total = np.roll(total, 1, axis)
            np.moveaxis(total, axis, 0)[:1] = start
        return np.flip(total, axis) if reverse else total

    return reference


def _is_end(x: Term, axis: int, *, last: bool) -> Term:
    """Returns a mask of the last index along the axis, or of the first. It broadcasts to `x`."""
    b, size = x.builder, x.shape[axis]
    positions = b.iota(shape=(size,), axis=0, dtype=I64)
    end = size_as(b, add(size, -1), I64) if last else b.scalar(0, I64)
    shape = tuple(size if i == axis else 1 for i in range(x.rank))
    return Term(b, b.reshape(b.equal(positions, end), shape=shape))


def _previous(x: Term, axis: int, *, reverse: bool) -> Term:
    """Returns the element before each one in the order of the scan; 0 at the start."""
    moved = x.roll(shift=-1 if reverse else 1, axis=axis)
    return _is_end(x, axis, last=reverse).select(0.0, moved)


def _recurrence(decay: Term, x: Term, axis: int, *, reverse: bool) -> Term:
    return decay.linear_recurrence(x, axis=axis, reverse=reverse)


def _cumsum_gradient(b: Builder, use: Use) -> Sequence[Value]:
    attributes = dict(use.attributes)
    return [b.cumsum(use.gradient, **{**attributes, "reverse": not attributes["reverse"]})]


def _cumprod_gradient(b: Builder, use: Use) -> Sequence[Value]:
    """Differentiates without a division, since an element may be 0.

    Element k is multiplied into every result from its own index on: its gradient is the product of the elements before
    it times S(k) = g(k) + x(k + 1) * S(k + 1). The exclusive results begin one index later: S of the shifted gradient.
    """
    x, g = Term(b, use.inputs[0]), Term(b, use.gradient)
    axis, reverse = use.attributes["axis"] % x.rank, use.attributes["reverse"]
    before = x.cumprod(axis=axis, exclusive=True, reverse=reverse)
    if use.attributes["exclusive"]:
        g = _previous(g, axis, reverse=not reverse)
    following = _previous(x, axis, reverse=not reverse)
    return [(before * _recurrence(following, g, axis, reverse=not reverse)).value]


def _recurrence_gradient(b: Builder, use: Use) -> Sequence[Value]:
    decay, x, y, g = (Term(b, v) for v in (*use.inputs, use.outputs[0], use.gradient))
    axis, reverse = use.attributes["axis"] % x.rank, use.attributes["reverse"]
    total = _recurrence(_previous(decay, axis, reverse=not reverse), g, axis, reverse=not reverse)
    return [(total * _previous(y, axis, reverse=reverse)).value, total.value]


def _reference_recurrence(decay: Any, x: Any, axis: int, reverse: bool) -> Any:
    factor, terms = (np.moveaxis(a, axis, 0)[:: -1 if reverse else 1] for a in (decay, x))
    total = terms.copy()
    for i in range(1, len(total)):
        total[i] = factor[i] * total[i - 1] + terms[i]
    return np.moveaxis(total[:: -1 if reverse else 1], 0, axis)


def _recurrence_step(s: BodyEmitter, number: Scalar, previous: Scalar, elements: Sequence[Scalar]) -> Scalar:
    decay, x = elements
    first = s.compare("eq", number, s.constant(0, I64))
    return s.select(first, x, s.binary("add", s.binary("mul", decay, previous), x))


_SHAPES: tuple[tuple[tuple[int, ...], int], ...] = (((3, 5), -1), ((1,), 0), ((0, 3), 0), ((2, 7, 3), 1), ((33,), 0))


def _cumulative(
    name: str,
    summary: str,
    function: str,
    reference: Callable[..., Any],
    start: int,
    gradient: Callable[[Builder, Use], Sequence[Value]],
    *properties: str,
    domain: tuple[float, float],
    dtypes: tuple[DType, ...] = NUMBERS,
) -> Operator:
    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("x", dtypes),),
        attributes=(_AXIS, AttributeSpec("exclusive", "bool", False), _REVERSE),
        infer=_infer(name),
        reference=through_f32(_reference(reference, start)),
        gradient=gradient,
        lower=_accumulation(function, -0.0 if function == "add" else start),
        cases=LateCases(
            lambda: tuple(
                Case(
                    (shape,),
                    {"axis": axis, "exclusive": exclusive, "reverse": reverse},
                    domain=domain,
                    terms=max(1, shape[axis]),
                )
                for shape, axis in _SHAPES
                for exclusive, reverse in ((False, False), (True, False), (False, True), (True, True))
            )
        ),
        properties=frozenset({"sequential", *properties}),
    )


_ORDER = "`exclusive` leaves the element itself out, `reverse` runs from the end of the axis"

linear_recurrence = Operator(
    name="linear_recurrence",
    summary="y[t] = decay[t] * y[t - 1] + x[t] along an axis; decay[0] is not used",
    operands=(Operand("decay", FLOATS), Operand("x", FLOATS)),
    attributes=(_AXIS, _REVERSE),
    infer=_infer("linear_recurrence"),
    reference=through_f32(_reference_recurrence),
    gradient=_recurrence_gradient,
    lower=_lower_running(_recurrence_step, 0),
    cases=LateCases(
        lambda: tuple(
            Case((shape, shape), {"axis": axis, "reverse": reverse}, domain=(-1.0, 1.0), terms=max(1, shape[axis]))
            for shape, axis in _SHAPES
            for reverse in (False, True)
        )
    ),
    properties=frozenset({"sequential", "summing"}),
)

OPERATORS = (
    _cumulative(
        "cumsum",
        f"the cumulative sum along an axis; {_ORDER}",
        "add",
        np.cumsum,
        0,
        _cumsum_gradient,
        "summing",
        domain=(-2.0, 2.0),
    ),
    _cumulative(
        "cumprod",
        f"the cumulative product along an axis; {_ORDER}",
        "mul",
        np.cumprod,
        1,
        _cumprod_gradient,
        domain=(0.5, 1.5),
    ),
    linear_recurrence,
)
