"""Running sums and products along an axis, and the linear recurrence that their gradients need.

`reverse` runs from the end of the axis; `exclusive` leaves the element itself out, so that the first result is 0 or 1.
f16 and bf16 are accumulated in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dims import add
from ..emitter import Emitter, Scalar, SequenceEmitter, Tensor
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, Lower, Operand, Operator, Use
from ..types import FLOATS, I64, NUMBERS, DType, TensorType
from .algebra import Term
from .common import compute_dtype, lower_cast, normalize_axis, size_as, through_f32

_AXIS, _REVERSE = AttributeSpec("axis", "axis", -1), AttributeSpec("reverse", "bool", False)

Step = Callable[[SequenceEmitter, Scalar, Scalar, Sequence[Scalar]], Scalar]
"""`step(s, first, previous, elements)`: the next running value; `first` is true where there is no previous one."""


def _infer(name: str) -> Callable[..., tuple[TensorType, ...]]:
    def infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
        normalize_axis(attributes["axis"], types[-1].rank, name)
        if types[0].shape != types[-1].shape:
            raise InferenceError(
                "shape-mismatch", f"`{name}` needs operands of one shape, not {types[0]} and {types[-1]}", operand=0
            )
        return (types[-1],)

    return infer


def _lower_running(step: Step) -> Lower:
    """A scan along the axis; an exclusive one reads the elements one place earlier."""

    def lower(
        e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
    ) -> Sequence[Tensor]:
        (result,) = types
        axis = attributes["axis"] % result.rank
        wide = compute_dtype(result.dtype)

        def body(s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
            zero, one = s.constant(0, I64), s.constant(1, I64)
            step_number = indices[axis]
            first = s.compare("eq", step_number, zero)
            earlier = s.select(first, zero, s.binary("sub", step_number, one))

            def place(number: Scalar) -> list[Scalar]:
                if attributes["reverse"]:
                    number = s.binary("sub", s.size(add(result.shape[axis], -1)), number)
                return [number if i == axis else index for i, index in enumerate(indices)]

            read = place(earlier if attributes.get("exclusive") else step_number)
            elements = [s.cast(s.load(x, read), wide) for x in operands]
            running = step(s, first, s.load(tensors[0], place(earlier)), elements)
            return [s.store(tensors[0], place(step_number), running)]

        (total,) = e.scan(result.shape, [e.full(result.with_dtype(wide), 0)], body)
        return [lower_cast(e, total, result.dtype)]

    return lower


def _accumulation(function: str, start: int) -> Lower:
    """The running value of a function of two; `start` is what it gives for nothing."""

    def lower(
        e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
    ) -> Sequence[Tensor]:
        def step(s: SequenceEmitter, first: Scalar, previous: Scalar, elements: Sequence[Scalar]) -> Scalar:
            (element,) = elements
            alone = s.constant(start, element.dtype) if attributes["exclusive"] else element
            return s.select(first, alone, s.binary(function, previous, element))

        return _lower_running(step)(e, operands, attributes, types)

    return lower


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
    """Is the place along the axis the last one, or the first? Shaped so that it broadcasts to `x`."""
    b, size = x.builder, x.shape[axis]
    places = b.iota(shape=(size,), axis=0, dtype=I64)
    end = size_as(b, add(size, -1), I64) if last else b.scalar(0, I64)
    shape = tuple(size if i == axis else 1 for i in range(x.rank))
    return Term(b, b.reshape(b.equal(places, end), shape=shape))


def _previous(x: Term, axis: int, *, reverse: bool) -> Term:
    """The element before each in the order of the scan; 0 where there is none."""
    moved = x.roll(shift=-1 if reverse else 1, axis=axis)
    return _is_end(x, axis, last=reverse).select(0.0, moved)


def _recurrence(decay: Term, x: Term, axis: int, *, reverse: bool) -> Term:
    return decay.linear_recurrence(x, axis=axis, reverse=reverse)


def _cumsum_gradient(b: Builder, use: Use) -> Sequence[Value]:
    attributes = dict(use.attributes)
    return [b.cumsum(use.gradient, **{**attributes, "reverse": not attributes["reverse"]})]


def _cumprod_gradient(b: Builder, use: Use) -> Sequence[Value]:
    """Without a division, since an element may be 0.

    Element k is multiplied into every result from its own place on: its gradient is the product of what precedes it
    times S(k) = g(k) + x(k + 1) * S(k + 1). The exclusive results begin one place later: S of the shifted gradient.
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


def _recurrence_step(s: SequenceEmitter, first: Scalar, previous: Scalar, elements: Sequence[Scalar]) -> Scalar:
    decay, x = elements
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
        lower=_accumulation(function, start),
        cases=tuple(
            Case(
                (shape,),
                {"axis": axis, "exclusive": exclusive, "reverse": reverse},
                domain=domain,
                terms=max(1, shape[axis]),
            )
            for shape, axis in _SHAPES
            for exclusive, reverse in ((False, False), (True, False), (False, True), (True, True))
        ),
        properties=frozenset({"sequential", *properties}),
    )


linear_recurrence = Operator(
    name="linear_recurrence",
    summary="y[t] = decay[t] * y[t - 1] + x[t] along an axis; the first decay is not used",
    operands=(Operand("decay", FLOATS), Operand("x", FLOATS)),
    attributes=(_AXIS, _REVERSE),
    infer=_infer("linear_recurrence"),
    reference=through_f32(_reference_recurrence),
    gradient=_recurrence_gradient,
    lower=_lower_running(_recurrence_step),
    cases=tuple(
        Case((shape, shape), {"axis": axis, "reverse": reverse}, domain=(-1.0, 1.0), terms=max(1, shape[axis]))
        for shape, axis in _SHAPES
        for reverse in (False, True)
    ),
    properties=frozenset({"sequential", "summing"}),
)

OPERATORS = (
    _cumulative(
        "cumsum",
        "the sum of the elements up to each one",
        "add",
        np.cumsum,
        0,
        _cumsum_gradient,
        "summing",
        domain=(-2.0, 2.0),
    ),
    _cumulative(
        "cumprod", "the product of the elements up to each", "mul", np.cumprod, 1, _cumprod_gradient, domain=(0.5, 1.5)
    ),
    linear_recurrence,
)
