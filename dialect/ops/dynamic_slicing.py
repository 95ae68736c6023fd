"""Windows of tensors whose starts are i64 scalars at run time: reading and writing them.

For x = 1 2 3 4 5 and windows of 3 elements:

    dynamic_slice(x, 1)                 2 3 4
    dynamic_slice(x, -3)                3 4 5
    dynamic_slice(x, 4)                 fails the call; 3 4 5 with the mode `clamp`
    dynamic_update_slice(x, 7 8 9, 1)   1 7 8 9 5

A start counts from the end if negative. A window that does not lie inside the tensor fails the call, or with the mode
`clamp` is moved inside. Neither mode accepts a window that is larger than the tensor: the entry checks that the dims of
a call admit the window.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dims import Shape, add, bounds, multiply
from ..emitter import BodyEmitter, Emitter, Scalar, SequenceEmitter, Tensor
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
from ..types import ANY, I64, TensorType
from .support.accumulate import Numbers
from .support.arguments import read_sizes
from .support.index_modes import WINDOW_MODE, clamped, clamped_array

_PROPERTIES = frozenset({"movement", "windowed"})


def _check_window(name: str, x: TensorType, window: Shape, starts: int) -> None:
    if len(window) != x.rank or starts != x.rank:
        raise InferenceError(
            "wrong-operands", f"`{name}` needs a start and a size for each axis of {x}, not {starts} and {len(window)}"
        )
    for axis, (size, part) in enumerate(zip(x.shape, window, strict=True)):
        if bounds(add(size, multiply(-1, part)))[1] < 0:
            message = f"a window of {part} elements never fits into axis {axis}, which has {size}"
            raise InferenceError("shape-mismatch", message, operand=0)


def _check_starts(name: str, starts: Sequence[TensorType], first: int) -> None:
    for number, start in enumerate(starts):
        if start.rank:
            raise InferenceError(
                "rank-mismatch", f"a start of `{name}` is a scalar, not {start}", operand=first + number
            )


def _infer_dynamic(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, *starts = types
    window = read_sizes("dynamic_slice", "sizes", attributes["sizes"])
    _check_starts("dynamic_slice", starts, 1)
    _check_window("dynamic_slice", x, window, len(starts))
    return (x.with_shape(window),)


def _window_index(shape: Sequence[int], window: Sequence[int], starts: Sequence[Numbers]) -> tuple[slice, ...]:
    firsts = [int(clamped_array(s, n, window=w)) for s, n, w in zip(starts, shape, window, strict=True)]
    return tuple(slice(first, first + w) for first, w in zip(firsts, window, strict=True))


def _window_positions(
    s: BodyEmitter | SequenceEmitter, x: TensorType, window: Shape, starts: Sequence[Scalar], inner: Sequence[Scalar]
) -> list[Scalar]:
    """Returns the indices in `x` of the indices in a window."""
    firsts = [clamped(s, start, x.shape[i], window=window[i]) for i, start in enumerate(starts)]
    return [s.binary("add", first, position) for first, position in zip(firsts, inner, strict=True)]


def _lower_dynamic(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, *starts = operands
    window = types[0].shape

    def element(s: BodyEmitter, *firsts: Scalar) -> Scalar:
        inner = [s.index(axis) for axis in range(len(window))]
        return s.load(x, _window_positions(s, x.type, window, firsts, inner))

    return [e.map(types[0], [(start, ()) for start in starts], element)]


def _differentiate_dynamic(b: Builder, use: Use) -> Sequence[Value | None]:
    x, *starts = use.inputs
    zeros = b.full(shape=x.type.shape, value=0.0, dtype=x.type.dtype)
    update = b.dynamic_update_slice(zeros, use.gradient, *starts, mode=use.attributes["mode"])
    return [update, *(None for _ in starts)]


def _addresses(first: int, x: TensorType, window: Shape) -> tuple[Addressing, ...]:
    """Returns one start for each axis, from operand `first` on."""
    return tuple(Addressing(first + i, (n,), w) for i, (n, w) in enumerate(zip(x.shape, window, strict=True)))


def _starts(*values: int) -> dict[int, Numbers]:
    return {1 + i: np.asarray(v, np.int64) for i, v in enumerate(values)}


dynamic_slice = Operator(
    name="dynamic_slice",
    summary="a window of `sizes` elements that starts at the given i64 scalars; a negative start counts from the end",
    operands=(Operand("x", ANY), Operand("starts", (I64,), group="I", variadic=True)),
    attributes=(AttributeSpec("sizes", "sizes"), WINDOW_MODE),
    infer=_infer_dynamic,
    reference=lambda x, *starts, sizes, mode="error": x[_window_index(x.shape, sizes, starts)].copy(),
    gradient=_differentiate_dynamic,
    lower=_lower_dynamic,
    addresses=lambda types, attributes: _addresses(1, types[0], attributes["sizes"]),
    cases=LateCases(
        lambda: (
            Case(((5, 6), (), ()), {"sizes": (2, 3)}, arrays=_starts(1, 2)),
            Case(((5, 6), (), ()), {"sizes": (2, 6), "mode": "clamp"}, arrays=_starts(-1, 7)),
            Case(((4,), ()), {"sizes": (0,)}, arrays=_starts(-3)),
            Case(((0, 3), (), ()), {"sizes": (0, 1)}, arrays=_starts(0, -2)),
            Case(((3,), ()), {"sizes": (2,), "mode": "clamp"}, arrays=_starts(-100)),
        )
    ),
    properties=_PROPERTIES,
)


def _infer_dynamic_update(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, update, *starts = types
    _check_starts("dynamic_update_slice", starts, 2)
    _check_window("dynamic_update_slice", x, update.shape, len(starts))
    return (x,)


def _reference_dynamic_update(x: Numbers, update: Numbers, *starts: Numbers, mode: str = "error") -> Numbers:
    result = x.copy()
    result[_window_index(x.shape, update.shape, starts)] = update
    return result


def _lower_dynamic_update(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, update, *starts = operands
    window = update.type.shape

    # Element-by-element writes touch the window alone, whereas a map over the result would copy all of it.
    def write(s: SequenceEmitter, indices: Sequence[Scalar], tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        firsts = [s.load(start, []) for start in starts]
        positions = _window_positions(s, x.type, window, firsts, indices)
        return [s.store(tensors[0], positions, s.load(update, indices))]

    return e.scan(window, [x], write)


def _differentiate_dynamic_update(b: Builder, use: Use) -> Sequence[Value | None]:
    _, update, *starts = use.inputs
    zeros = b.full(shape=update.type.shape, value=0.0, dtype=update.type.dtype)
    return [
        b.dynamic_update_slice(use.gradient, zeros, *starts, mode=use.attributes["mode"]),
        b.dynamic_slice(use.gradient, *starts, sizes=update.type.shape, mode=use.attributes["mode"]),
        *(None for _ in starts),
    ]


dynamic_update_slice = Operator(
    name="dynamic_update_slice",
    summary="x with `update` written into a window that starts at the given i64 scalars, as for dynamic_slice",
    operands=(Operand("x", ANY), Operand("update", ANY), Operand("starts", (I64,), group="I", variadic=True)),
    attributes=(WINDOW_MODE,),
    infer=_infer_dynamic_update,
    reference=_reference_dynamic_update,
    gradient=_differentiate_dynamic_update,
    lower=_lower_dynamic_update,
    addresses=lambda types, attributes: _addresses(2, types[0], types[1].shape),
    cases=LateCases(
        lambda: tuple(
            Case(
                (x, update, *(() for _ in starts)),
                {"mode": mode},
                arrays={2 + i: np.asarray(v, np.int64) for i, v in enumerate(starts)},
            )
            for x, update, starts, mode in (
                ((5, 6), (2, 3), (1, 2), "error"),
                ((5, 6), (2, 6), (-1, 7), "clamp"),
                ((4,), (0,), (-3,), "error"),
                ((0, 3), (0, 1), (0, -2), "error"),
                ((3,), (1,), (-1,), "error"),
            )
        )
    ),
    properties=_PROPERTIES,
)

OPERATORS = (dynamic_slice, dynamic_update_slice)
