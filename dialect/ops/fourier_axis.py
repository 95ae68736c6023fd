"""The Fourier transform of one axis of known length, to which `fourier` and `spectrogram` decompose.

`fourier_axis` transforms axis 1 of [rows, n, columns]. It decomposes into products with matrices, see
`support/mixed_radix.py`; for CPUs, the pass `butterflies` replaces it first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dims import Size, product
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, Operand, Operator
from ..types import F32, F64, TensorType
from .support.accumulate import Numbers
from .support.mixed_radix import PRODUCTS, Method, Pair, half_spectrum, transform, whole_signal

FLOATS = (F32, F64)
FORMS = ("complex", "half", "whole")
"""Complex numbers to complex ones; real ones to the first half of their spectrum; and back."""
ATTRIBUTES = (
    AttributeSpec("size", "int"),
    AttributeSpec("form", "str", "complex", choices=FORMS),
    AttributeSpec("sign", "int", -1),
    AttributeSpec("scale", "float", 1.0),
)


def infer_axis(name: str, parts: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    """Returns the types of the results of transforming axis 1 of [rows, n, columns]."""
    size, form, x = attributes["size"], attributes["form"], parts[0]
    length = size // 2 + 1 if form == "whole" else size
    if x.rank != 3 or x.shape[1] != length or size < 1:
        raise InferenceError("shape-mismatch", f"`{name}` takes [rows, {length}, columns], not {x}")
    if len(parts) not in {"complex": (1, 2), "half": (1,), "whole": (2,)}[form] or any(p != x for p in parts):
        raise InferenceError(
            "shape-mismatch", f"`{name}` of the form {form!r} does not take {', '.join(map(str, parts))}"
        )
    rows, _, columns = x.shape
    if form == "whole":
        return (x.with_shape((rows, size, columns)),)
    return (x.with_shape((rows, size if form == "complex" else size // 2 + 1, columns)),) * 2


def transform_axis(b: Builder, x: Pair, axis: int, *, form: str, size: int, sign: int, scale: float = 1.0) -> Pair:
    """Transforms any axis of known length."""
    shape = x.real.type.shape
    outer, inner = shape[:axis], shape[axis + 1 :]
    parts = [b.reshape(p, shape=(product(outer), shape[axis], product(inner))) for p in (x.real, x.imaginary) if p]
    made = b.apply("fourier_axis", parts, {"size": size, "form": form, "sign": sign, "scale": scale})
    found = [b.reshape(part, shape=(*outer, part.type.shape[1], *inner)) for part in made]
    return Pair(found[0], found[1] if len(found) == 2 else None)


def by_method(b: Builder, operands: Sequence[Value], attributes: Attributes, method: Method) -> Sequence[Value]:
    """Returns the transform of [rows, n, columns], one row after another."""
    size, form, sign, scale = (attributes[name] for name in ("size", "form", "sign", "scale"))
    rows, _, columns = operands[0].type.shape
    whole: list[Size] = [rows] if columns == 1 else [rows, columns]

    def to_rows(x: Value) -> Value:
        turned = x if columns == 1 else b.transpose(x, axes=(0, 2, 1))
        return b.reshape(turned, shape=(*whole, x.type.shape[1]))

    def from_rows(x: Value) -> Value:
        scaled = x if scale == 1.0 else b.multiply(x, b.like(scale, x))
        made = b.reshape(scaled, shape=(rows, columns, x.type.shape[-1]))
        return b.reshape(made, shape=(rows, x.type.shape[-1], 1)) if columns == 1 else b.transpose(made, axes=(0, 2, 1))

    x = Pair(*map(to_rows, operands))
    if form == "whole":
        return [from_rows(whole_signal(b, x, size, sign, method))]
    made = half_spectrum(b, x.real, sign, method) if form == "half" else transform(b, x, size, sign, method=method)
    assert made.imaginary is not None
    return [from_rows(made.real), from_rows(made.imaginary)]


def reference(x: Numbers, y: Numbers | None = None, *, size: int, form: str, sign: int, scale: float) -> Any:
    z = x if y is None else x + 1j * y
    if form == "whole":
        z = z if sign > 0 else z.conj()
        return np.asarray(np.fft.irfft(z, size, axis=1) * (size * scale), x.dtype)
    if form == "half":
        z = np.fft.rfft(x, axis=1)
        z = z if sign < 0 else z.conj()
    else:
        z = np.fft.fft(z, axis=1) if sign < 0 else np.fft.ifft(z, axis=1) * size
    return tuple(np.asarray(part * scale, x.dtype) for part in (z.real, z.imag))


def _case(shape: tuple[int, int, int], size: int, parts: int, **attributes: Any) -> Case:
    return Case((shape,) * parts, {"size": size, **attributes}, tolerance=8.0, terms=max(1, size))


fourier_axis = Operator(
    name="fourier_axis",
    summary="the Fourier transform of axis 1 of [rows, `size`, columns], times `scale`; complex numbers, or real ones "
    "and the first half of their spectrum",
    operands=(Operand("real", FLOATS), Operand("imaginary", FLOATS, optional=True)),
    attributes=ATTRIBUTES,
    infer=lambda types, attributes: infer_axis("fourier_axis", types, attributes),
    reference=reference,
    gradient=None,
    decompose=lambda b, operands, attributes: by_method(b, operands, attributes, PRODUCTS),
    cases=(
        _case((2, 6, 1), 6, 2),
        _case((2, 5, 3), 5, 1, sign=1, scale=0.5),
        _case((2, 6, 1), 6, 1, form="half"),
        _case((1, 5, 2), 5, 1, form="half", sign=1),
        _case((2, 4, 1), 6, 2, form="whole", sign=1),
        _case((2, 3, 2), 5, 2, form="whole", scale=0.2),
        _case((0, 3, 1), 3, 1),
        _case((3, 1, 1), 1, 2),
    ),
    results=("real", "imaginary"),
    properties=frozenset({"composite", "internal"}),
)

OPERATORS = (fourier_axis,)
