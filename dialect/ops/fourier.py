"""Fourier transforms over one or several axes: `fft`, `ifft`, `rfft`, `irfft`.

Complex numbers are pairs of tensors, the real and the imaginary parts. `support/mixed_radix` states the method and its
costs. The inverse divides by the number of elements, unless `norm` is "forward"; "ortho" divides both by its root.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import Size, add, at_least, floor_divide, multiply, product
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator, Use
from ..types import F32, F64, I64, TensorType
from .fourier_axis import transform_axis
from .support.accumulate import Numbers
from .support.arguments import read_size
from .support.common import normalize_axis, size_as
from .support.mixed_radix import Pair, half_spectrum, transform, whole_signal

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


def _to_last(b: Builder, x: Pair, axis: int) -> Pair:
    """Exchanges an axis and the last one."""
    rank = x.real.type.rank
    if axis == rank - 1:
        return x
    order = tuple(rank - 1 if i == axis else axis if i == rank - 1 else i for i in range(rank))
    parts = [None if part is None else b.transpose(part, axes=order) for part in (x.real, x.imaginary)]
    assert parts[0] is not None
    return Pair(parts[0], parts[1])


def _along(b: Builder, x: Pair, axis: int, form: str, size: Size, sign: int, scale: float) -> Pair:
    """Transforms one axis; `size` is its length as real or complex numbers."""
    if isinstance(size, int) and form == "complex":
        return transform_axis(b, x, axis, form=form, size=size, sign=sign, scale=scale)
    rows = _to_last(b, x, axis)
    if isinstance(size, int):
        made = transform_axis(b, rows, rows.real.type.rank - 1, form=form, size=size, sign=sign, scale=scale)
    elif form == "complex":
        made = transform(b, rows, size, sign)
    else:
        made = half_spectrum(b, rows.real) if form == "half" else Pair(whole_signal(b, rows, size))
    return _to_last(b, made, axis)


def _scale(b: Builder, x: Value, sizes: Sequence[Size], norm: str, *, inverse: bool) -> Value:
    """Scales a transform whose length is known in a call."""
    if norm == ("forward" if inverse else "backward"):
        return x
    number = size_as(b, product(sizes), x.type.dtype)
    return b.divide(x, b.sqrt(number) if norm == "ortho" else number)


def _factor(sizes: Sequence[int], norm: str, *, inverse: bool) -> float:
    count = math.prod(sizes)
    if norm == ("forward" if inverse else "backward"):
        return 1.0
    return 1 / math.sqrt(count) if norm == "ortho" else 1 / count


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
    if name == "irfft":
        sizes[-1] = _length(operands[0].type, axes[-1], attributes["size"])
    known = [size for size in sizes if isinstance(size, int)]
    static = len(known) == len(sizes)
    forms = {"rfft": "half", "irfft": "whole"}
    steps = [(axis, "complex", size) for axis, size in zip(axes, sizes, strict=True)]
    steps[-1] = (axes[-1], forms.get(name, "complex"), sizes[-1])
    # Real numbers become complex ones first, and complex ones become real ones last.
    steps = steps if name == "irfft" else steps[::-1]
    for number, (axis, form, size) in enumerate(steps):
        scale = _factor(known, norm, inverse=inverse) if static and number == len(steps) - 1 else 1.0
        x = _along(b, x, axis, form, size, sign, scale)
    results = [x.real] if name == "irfft" else [x.real, x.imaginary]
    found = [part for part in results if part is not None]
    return found if static else [_scale(b, part, sizes, norm, inverse=inverse) for part in found]


_TRANSPOSED = {"backward": "forward", "forward": "backward", "ortho": "ortho"}
"""The scale of a transform is that of its transpose."""


def _differentiate(name: str, b: Builder, use: Use) -> Sequence[Value | None]:
    """Applies the transposed map: for y = F x, the transform of the gradient of y with the opposite sign."""
    axes, norm = use.attributes["axes"], _TRANSPOSED[use.attributes["norm"]]
    given = [
        b.full(shape=output.type.shape, value=0.0, dtype=output.type.dtype) if g is None else g
        for output, g in zip(use.outputs, use.gradients, strict=True)
    ]
    x = use.inputs[0].type
    last = read_axes(name, axes, x.rank)[-1]
    if name == "irfft":
        return [
            _count_twice(b, part, last, use.outputs[0].type.shape[last])
            for part in b.apply("rfft", given, {"axes": axes, "norm": norm})
        ]
    if name == "rfft":
        # The other half of the spectrum has no gradient.
        more = add(x.shape[last], multiply(-1, given[0].type.shape[last]))
        widths = tuple((0, more if axis == last else 0) for axis in range(x.rank))
        given = [b.pad(g, widths=widths) for g in given]
    other = "fft" if name == "ifft" else "ifft"
    return list(b.apply(other, given, {"axes": axes, "norm": norm}))[: len(use.inputs)]


def _count_twice(b: Builder, part: Value, axis: int, size: Size) -> Value:
    """Doubles the elements whose conjugates `irfft` adds: all but the first, and the last one of an even size."""
    length = part.type.shape[axis]
    line = b.iota(shape=(length,))
    ends = b.logical_or(
        b.equal(line, b.scalar(0, I64)), b.equal(b.multiply(line, b.scalar(2, I64)), size_as(b, size, I64))
    )
    counts = b.where(ends, b.like(1.0, part), b.like(2.0, part))
    shape = tuple(length if a == axis else 1 for a in range(part.type.rank))
    return b.multiply(part, b.reshape(counts, shape=shape))


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
        gradient=lambda b, use: _differentiate(name, b, use),
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
        "without `imaginary`, of real numbers; any size, by butterflies or matrix products",
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
        "the inverse of `rfft`: real numbers; `size` is their number along the last of `axes`, by default "
        "2 * (elements - 1)",
        (_REAL, _IMAGINARY),
        [((2, 4), {}), ((2, 4), {"size": 7, "norm": "ortho"}), ((3, 1), {"size": 1}), ((0, 3), {}),
         ((5, 4, 3), {"axes": (0, 2)}), ((35,), {"size": 69}), ((4, 3), {"axes": 0})],
    ),
)  # fmt: skip
