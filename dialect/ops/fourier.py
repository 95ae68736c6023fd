"""Fourier transforms over one or several axes: `fft`, `ifft`, `rfft`, `irfft`.

Complex numbers are pairs of tensors, the real and the imaginary parts. `support/fourier` states the method and its
costs. The inverse divides by the number of elements, unless `norm` is "forward"; "ortho" divides both by its root.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..differentiate import by_decomposition
from ..dims import Size, add, at_least, ceil_divide, floor_divide, multiply, product
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator
from ..types import F32, F64, TensorType
from .support.accumulate import Numbers
from .support.arguments import read_size
from .support.common import normalize_axis, size_as
from .support.fourier import Pair, first, transform

FLOATS = (F32, F64)
_NORM = AttributeSpec("norm", "str", "backward", choices=("backward", "ortho", "forward"))


def read_axes(name: str, axes: Any, rank: int) -> tuple[int, ...]:
    """Returns the axes counted from 0 in the order given; the last one is the axis of real numbers."""
    given = axes if isinstance(axes, tuple) else (axes,)
    if not given or not all(isinstance(axis, int) for axis in given):
        raise InferenceError("bad-axis", f"`{name}` transforms an axis or several, not {axes!r}")
    normal = tuple(normalize_axis(axis, rank, name) for axis in given)
    if len(set(normal)) != len(normal):
        raise InferenceError("bad-axis", f"`{name}` names an axis twice: {given}")
    return normal


def _check_sizes(name: str, x: TensorType, axes: Sequence[int]) -> None:
    for axis in axes:
        if not at_least(x.shape[axis], 1):
            raise InferenceError("shape-mismatch", f"`{name}` cannot transform axis {axis} of {x}, which may be empty")


def _length(x: TensorType, axis: int, given: Any) -> Size:
    return multiply(2, add(x.shape[axis], -1)) if given is None else read_size("irfft", "size", given)


def _infer(name: str, types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x = types[0]
    axes = read_axes(name, attributes["axes"], x.rank)
    if len(types) == 2 and types[1].shape != x.shape:
        raise InferenceError("shape-mismatch", f"`{name}` takes parts of one shape, not {x} and {types[1]}", operand=1)
    _check_sizes(name, x, axes)
    last = axes[-1]
    if name == "rfft":
        half = add(floor_divide(x.shape[last], 2), 1)
        return (x.with_shape((*x.shape[:last], half, *x.shape[last + 1 :])),) * 2
    if name == "irfft":
        size = _length(x, last, attributes["size"])
        if not at_least(size, 1):
            raise InferenceError("shape-mismatch", f"`irfft` gives an axis of {size} elements, which may be none")
        needed = add(floor_divide(size, 2), 1)
        if needed != x.shape[last]:
            message = f"`irfft` needs {needed} elements for {size} real ones, axis {last} has {x.shape[last]}"
            raise InferenceError("shape-mismatch", message, help="`size` is the number of real elements")
        return (x.with_shape((*x.shape[:last], size, *x.shape[last + 1 :])),)
    return (x,) * 2


def along(b: Builder, x: Pair, axis: int, change: Callable[[Pair], Pair]) -> Pair:
    """Applies a change of the last axis to another axis."""
    rank = x.real.type.rank
    if axis == rank - 1:
        return change(x)
    order = tuple(rank - 1 if i == axis else axis if i == rank - 1 else i for i in range(rank))
    parts = [None if part is None else b.transpose(part, axes=order) for part in (x.real, x.imaginary)]
    assert parts[0] is not None
    made = change(Pair(parts[0], parts[1]))
    back = None if made.imaginary is None else b.transpose(made.imaginary, axes=order)
    return Pair(b.transpose(made.real, axes=order), back)


def _scale(b: Builder, x: Value, sizes: Sequence[Size], norm: str, *, inverse: bool) -> Value:
    count = product(sizes)
    if norm == ("forward" if inverse else "backward"):
        return x
    if isinstance(count, int):
        return b.multiply(x, b.like(1 / math.sqrt(count) if norm == "ortho" else 1 / count, x))
    number = size_as(b, count, x.type.dtype)
    return b.divide(x, b.sqrt(number) if norm == "ortho" else number)


def half_spectrum(b: Builder, x: Value) -> Pair:
    """Returns the first half of the transform of real rows; the other half is its conjugate."""
    size = x.type.shape[-1]
    if isinstance(size, int):
        return transform(b, Pair(x), size, -1, size // 2 + 1)
    whole = transform(b, Pair(x), size, -1)
    assert whole.imaginary is not None
    half = add(floor_divide(size, 2), 1)
    return Pair(first(b, whole.real, half), first(b, whole.imaginary, half))


def whole_signal(b: Builder, x: Pair, size: Size) -> Value:
    """Returns real rows of `size` elements from the first half of their spectrum, without a scale.

    The imaginary parts of the first element, and of the last one if the size is even, do not count.
    """
    assert x.imaginary is not None
    real, imaginary = x.real, x.imaginary
    # Elements ceil(size / 2) - 1 down to 1 once more, conjugated.
    before, rank = (None,) * (real.type.rank - 1), real.type.rank
    stop = ceil_divide(size, 2)

    def mirrored(part: Value) -> Value:
        inner = b.slice(part, starts=(*before, 1), stops=(*before, stop), steps=(1,) * rank)
        return b.flip(inner, axes=(rank - 1,))

    whole = Pair(
        b.concat(real, mirrored(real), axis=-1),
        b.concat(imaginary, b.negate(mirrored(imaginary)), axis=-1),
    )
    return transform(b, whole, size, 1).real


def _decompose(name: str, b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    if operands[0].type.rank == 1:
        # Products take matrices.
        rows = [b.unsqueeze(part, axes=0) for part in operands]
        read_axes(name, attributes["axes"], 1)
        return [b.squeeze(part, axes=0) for part in _decompose(name, b, rows, {**attributes, "axes": 1})]
    x = Pair(*operands)
    axes = read_axes(name, attributes["axes"], x.real.type.rank)
    inverse = name in ("ifft", "irfft")
    sign, norm = 1 if inverse else -1, attributes["norm"]
    sizes = [x.real.type.shape[axis] for axis in axes]
    if name == "rfft":
        x = along(b, x, axes[-1], lambda part: half_spectrum(b, part.real))
    rest = axes if name in ("fft", "ifft") else axes[:-1]
    for axis in reversed(rest):
        size = x.real.type.shape[axis]
        x = along(b, x, axis, lambda part, size=size: transform(b, part, size, sign))  # type: ignore[misc]
    if name == "irfft":
        size = sizes[-1] = _length(operands[0].type, axes[-1], attributes["size"])
        x = along(b, x, axes[-1], lambda part: Pair(whole_signal(b, part, size)))
        return [_scale(b, x.real, sizes, norm, inverse=True)]
    assert x.imaginary is not None
    return [_scale(b, part, sizes, norm, inverse=inverse) for part in (x.real, x.imaginary)]


def _parts(z: Numbers, dtype: Any) -> tuple[Numbers, Numbers]:
    return np.asarray(z.real, dtype), np.asarray(z.imag, dtype)


def _reference(name: str, x: Any, y: Any, axes: Any, norm: Any, size: Any) -> Any:
    given = axes if isinstance(axes, tuple) else (axes,)
    z = x if y is None else x + 1j * y
    if name == "rfft":
        return _parts(np.fft.rfftn(x, axes=given, norm=norm), x.dtype)
    if name == "irfft":
        last = x.shape[given[-1]] * 2 - 2 if size is None else size
        shape = [*(x.shape[axis] for axis in given[:-1]), last]
        return np.fft.irfftn(z, s=shape, axes=given, norm=norm).astype(x.dtype)
    function = np.fft.fftn if name == "fft" else np.fft.ifftn
    return _parts(function(z, axes=given, norm=norm), x.dtype)


def _operator(name: str, summary: str, operands: tuple[Operand, ...], cases: Sequence[tuple[Any, Any]]) -> Operator:
    def decompose(b: Builder, given: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
        return _decompose(name, b, given, attributes)

    def reference(x: Any, y: Any = None, *, axes: Any, norm: str, size: Any = None) -> Any:
        return _reference(name, x, y, axes, norm, size)

    def case(shape: tuple[int, ...], attributes: dict[str, Any]) -> Case:
        shapes = (shape,) * (2 if name in ("ifft", "irfft") or attributes.pop("pair", False) else 1)
        return Case(shapes, attributes, tolerance=8.0, terms=max(1, int(np.prod(shape[-2:]))))

    return Operator(
        name=name,
        summary=summary,
        operands=operands,
        attributes=(
            AttributeSpec("axes", "any", -1),
            _NORM,
            *((AttributeSpec("size", "any", None),) if name == "irfft" else ()),
        ),
        infer=lambda types, attributes: _infer(name, types, attributes),
        reference=reference,
        gradient=by_decomposition(decompose),
        decompose=decompose,
        cases=LateCases(lambda: tuple(case(shape, dict(attributes)) for shape, attributes in cases)),
        properties=frozenset({"composite"}),
        results=("result",) if name == "irfft" else ("real", "imaginary"),
    )


_REAL = Operand("real", FLOATS)
_IMAGINARY = Operand("imaginary", FLOATS)
_OPTIONAL = Operand("imaginary", FLOATS, optional=True)

OPERATORS = (
    _operator(
        "fft",
        "the discrete Fourier transform over `axes` of complex numbers, given by their real and imaginary parts; "
        "without the second, of real numbers; any size: one product with a matrix for each factor of it",
        (_REAL, _OPTIONAL),
        [((2, 6), {}), ((3, 1), {}), ((0, 3), {}), ((5, 4, 3), {"axes": (0, 2), "pair": True, "norm": "ortho"}),
         ((68,), {"pair": True, "norm": "forward"})],
    ),
    _operator(
        "ifft",
        "the inverse of `fft`: real and imaginary parts",
        (_REAL, _IMAGINARY),
        [((2, 6), {}), ((3, 1), {"norm": "forward"}), ((0, 3), {}), ((5, 4, 3), {"axes": (0, 1), "norm": "ortho"}),
         ((69,), {})],
    ),
    _operator(
        "rfft",
        "the first half of the Fourier transform of real numbers, size // 2 + 1 elements of the last of `axes`: real "
        "and imaginary parts",
        (Operand("x", FLOATS),),
        [((2, 6), {}), ((2, 7), {"norm": "ortho"}), ((3, 1), {}), ((0, 3), {}), ((5, 4, 3), {"axes": (0, 2)}),
         ((68,), {})],
    ),
    _operator(
        "irfft",
        "the real numbers whose `rfft` is given; `size` is their number along the last of `axes`, by default "
        "2 * (elements - 1)",
        (_REAL, _IMAGINARY),
        [((2, 4), {}), ((2, 4), {"size": 7, "norm": "ortho"}), ((3, 1), {"size": 1}), ((0, 3), {}),
         ((5, 4, 3), {"axes": (0, 2)}), ((35,), {"size": 69}), ((4, 3), {"axes": 0})],
    ),
)  # fmt: skip
