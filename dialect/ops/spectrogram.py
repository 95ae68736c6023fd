"""Short-time Fourier transforms: `stft` of overlapping frames, and `istft`, which adds the frames up again.

A frame begins every `hop` elements and has `size` elements, times the window. With `center`, the signal is first
extended by `size // 2` reflected elements at both ends, so that frame t is centred at element t * hop.

    signal, size = 4, hop = 2      a b c d e f g h
    frames                         a b c d | c d e f | e f g h
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..differentiate import by_decomposition
from ..dims import Size, add, at_least, floor_divide, maximum, multiply, product
from ..graph import Value
from ..operator import Attributes, AttributeSpec, Builder, Case, InferenceError, LateCases, Operand, Operator
from ..types import F32, F64, I64, TensorType
from .support.accumulate import Numbers
from .support.arguments import bad_attribute

_DTYPES = (F32, F64)
_COMMON = (
    AttributeSpec("size", "int"),
    AttributeSpec("hop", "int"),
    AttributeSpec("center", "bool", True),
    AttributeSpec("normalized", "bool", False),
    AttributeSpec("onesided", "bool", True),
)


def _check(name: str, attributes: Attributes, window: TensorType | None, number: int) -> tuple[int, int]:
    size, hop = attributes["size"], attributes["hop"]
    for each in ("size", "hop"):
        if attributes[each] < 1:
            raise bad_attribute(name, each, attributes[each], "a positive number")
    if window is not None and window.shape != (size,):
        message = f"the window of `{name}` has {size} elements, not {window}"
        raise InferenceError("shape-mismatch", message, operand=number)
    return size, hop


def _bins(attributes: Attributes) -> int:
    size: int = attributes["size"]
    return size // 2 + 1 if attributes["onesided"] else size


def _infer_stft(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, *window = types
    if not x.rank:
        raise InferenceError("rank-mismatch", "`stft` takes signals along the last axis, not a scalar", operand=0)
    size, hop = _check("stft", attributes, window[0] if window else None, 1)
    length = x.shape[-1]
    if attributes["center"]:
        half = size // 2
        if attributes["pad_mode"] == "reflect" and not at_least(length, half + 1):
            message = f"`stft` reflects {half} elements at both ends of a signal that may have {length} only"
            raise InferenceError("shape-mismatch", message, operand=0, help='`pad_mode="constant"` extends by zeros')
        length = add(length, 2 * half)
    if not at_least(length, size):
        message = f"`stft` takes frames of {size} elements, the signal may have {length} only"
        raise InferenceError("shape-mismatch", message, operand=0)
    frames = add(floor_divide(add(length, -size), hop), 1)
    return (x.with_shape((*x.shape[:-1], _bins(attributes), frames)),) * 2


def _decompose_stft(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    x, *window = operands
    size, hop = attributes["size"], attributes["hop"]
    frames = _infer_stft([v.type for v in operands], attributes)[0].shape[-1]
    rank = x.type.rank
    if attributes["center"]:
        widths = (*((0, 0),) * (rank - 1), (size // 2, size // 2))
        x = b.pad(x, widths=widths, mode=attributes["pad_mode"])
    cut = b.gather(x, _positions(b, frames, hop, size), axis=rank - 1, mode="clamp")
    if window:
        cut = b.multiply(cut, window[0])
    norm = "ortho" if attributes["normalized"] else "backward"
    made = b.apply("rfft" if attributes["onesided"] else "fft", [cut], {"norm": norm})
    order = (*range(rank - 1), rank, rank - 1)
    return [b.transpose(part, axes=order) for part in made]


def _positions(b: Builder, frames: Size, hop: int, size: int) -> Value:
    """Returns the indices of the elements of each frame."""
    starts = b.multiply(b.iota(shape=(frames,)), b.scalar(hop, I64))
    return b.add(b.unsqueeze(starts, axes=1), b.unsqueeze(b.iota(shape=(size,)), axes=0))


def _reference_stft(
    x: Numbers, window: Numbers | None = None, *, size: int, hop: int, center: bool, normalized: bool,
    onesided: bool, pad_mode: str,
) -> Any:  # fmt: skip
    if center:
        widths = [(0, 0)] * (x.ndim - 1) + [(size // 2, size // 2)]
        x = np.pad(x, widths, mode="reflect" if pad_mode == "reflect" else "constant")
    frames = (x.shape[-1] - size) // hop + 1
    cut = x[..., np.arange(frames)[:, None] * hop + np.arange(size)]
    if window is not None:
        cut = cut * window
    z = (np.fft.rfft if onesided else np.fft.fft)(cut, axis=-1).swapaxes(-1, -2)
    z = z * size**-0.5 if normalized else z
    return z.real.astype(x.dtype), z.imag.astype(x.dtype)


def _infer_istft(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    real, imaginary, *window = types
    if real.rank < 2:
        raise InferenceError("rank-mismatch", f"`istft` takes [..., frequencies, frames], not {real}", operand=0)
    if imaginary.shape != real.shape:
        message = f"`istft` takes parts of one shape, not {real} and {imaginary}"
        raise InferenceError("shape-mismatch", message, operand=1)
    size, hop = _check("istft", attributes, window[0] if window else None, 2)
    if real.shape[-2] != _bins(attributes):
        message = f"`istft` with `size` = {size} takes {_bins(attributes)} frequencies, not {real.shape[-2]}"
        raise InferenceError("shape-mismatch", message, operand=0)
    whole = _whole_length(real, size, hop)
    length = attributes["length"]
    if length is None:
        length = add(whole, -2 * (size // 2)) if attributes["center"] else whole
        return (real.with_shape((*real.shape[:-2], maximum(length, 0))),)
    start = size // 2 if attributes["center"] else 0
    if not at_least(length, 0):
        raise InferenceError("bad-attribute", f"`length` of `istft` is {length}, which may be negative")
    if not at_least(whole, add(length, start)):
        message = f"`istft` has {whole} elements, not {length} after the first {start}"
        raise InferenceError("shape-mismatch", message, operand=0)
    return (real.with_shape((*real.shape[:-2], length)),)


def _whole_length(spectrum: TensorType, size: int, hop: int) -> Size:
    return add(multiply(add(spectrum.shape[-1], -1), hop), size)


def _decompose_istft(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    real, imaginary, *window = operands
    size, hop = attributes["size"], attributes["hop"]
    (result,) = _infer_istft([v.type for v in operands], attributes)
    rank, frames = real.type.rank, real.type.shape[-1]
    order = (*range(rank - 2), rank - 1, rank - 2)
    parts = [b.transpose(part, axes=order) for part in (real, imaginary)]
    norm = "ortho" if attributes["normalized"] else "backward"
    given = {"norm": norm, "size": size} if attributes["onesided"] else {"norm": norm}
    rows = b.apply("irfft" if attributes["onesided"] else "ifft", parts, given)[0]
    weight = window[0] if window else b.full(shape=(size,), value=1.0, dtype=real.type.dtype)
    rows = b.multiply(rows, weight)
    squares = b.broadcast_to(b.multiply(weight, weight), shape=(1, frames, size))
    outer = product(result.shape[:-1])
    whole = _whole_length(real.type, size, hop)
    total = _added(b, b.reshape(rows, shape=(outer, frames, size)), whole, hop)
    scale = _added(b, squares, whole, hop)
    # Elements that every window leaves at 0 stay 0.
    scale = b.where(b.greater(b.abs(scale), b.like(1e-11, scale)), scale, b.like(1, scale))
    start = size // 2 if attributes["center"] else 0
    made = b.divide(total, scale)
    cut = b.slice(made, starts=(None, start), stops=(None, add(result.shape[-1], start)), steps=(1, 1))
    return [b.reshape(cut, shape=result.shape)]


def _added(b: Builder, rows: Value, length: Size, hop: int) -> Value:
    """Returns the sums [N, length] of frames [N, frames, size] at their positions."""
    outer, frames, size = rows.type.shape
    assert isinstance(size, int), rows
    zeros = b.full(shape=(outer, length), value=0.0, dtype=rows.type.dtype)
    positions = b.reshape(_positions(b, frames, hop, size), shape=(1, multiply(frames, size)))
    return b.scatter_add(zeros, positions, b.reshape(rows, shape=(outer, multiply(frames, size))), axis=1, mode="clamp")


def _reference_istft(
    real: Numbers, imaginary: Numbers, window: Numbers | None = None, *, size: int, hop: int, center: bool,
    normalized: bool, onesided: bool, length: Any,
) -> Any:  # fmt: skip
    z = (real + 1j * imaginary).swapaxes(-1, -2)
    rows = np.fft.irfft(z, size, axis=-1) if onesided else np.fft.ifft(z, axis=-1).real
    rows = rows * (size**0.5 if normalized else 1)
    weight = np.ones(size) if window is None else window.astype(np.float64)
    frames = real.shape[-1]
    whole = (frames - 1) * hop + size
    total, scale = np.zeros((*real.shape[:-2], whole)), np.zeros(whole)
    for frame in range(frames):
        total[..., frame * hop : frame * hop + size] += rows[..., frame, :] * weight
        scale[frame * hop : frame * hop + size] += weight**2
    made = total / np.where(np.abs(scale) > 1e-11, scale, 1)
    start = size // 2 if center else 0
    stop = start + (max(whole - 2 * start, 0) if length is None else length)
    return made[..., start:stop].astype(real.dtype)


def _windows(size: int) -> Numbers:
    return np.asarray(0.54 - 0.46 * np.cos(2 * np.pi * np.arange(size) / size))


stft = Operator(
    name="stft",
    summary="the Fourier transforms [..., frequencies, frames] of frames of `size` elements, one for each `hop` "
    "elements of the last axis, times the window: real and imaginary parts; with `center`, frame t is centred at "
    "element t * hop; `onesided` gives size // 2 + 1 frequencies",
    operands=(Operand("x", _DTYPES), Operand("window", _DTYPES, optional=True)),
    attributes=(*_COMMON, AttributeSpec("pad_mode", "str", "reflect", choices=("reflect", "constant"))),
    infer=_infer_stft,
    reference=_reference_stft,
    gradient=by_decomposition(_decompose_stft),
    decompose=_decompose_stft,
    cases=LateCases(
        lambda: (
            Case(((2, 19), (8,)), {"size": 8, "hop": 3}, tolerance=8.0, terms=8),
            Case(((13,),), {"size": 5, "hop": 2, "center": False, "onesided": False}, tolerance=8.0, terms=5),
            Case(
                ((1, 9), (4,)),
                {"size": 4, "hop": 4, "normalized": True, "pad_mode": "constant"},
                tolerance=8.0,
                terms=4,
            ),
            Case(((0, 9),), {"size": 4, "hop": 1}),
        )
    ),
    properties=frozenset({"composite"}),
    results=("real", "imaginary"),
)

istft = Operator(
    name="istft",
    summary="the inverse of `stft`: overlapping frames times the window are added, and "
    "divided by the sum of the squared windows; `length` is the number of elements, by default all of them",
    operands=(Operand("real", _DTYPES), Operand("imaginary", _DTYPES), Operand("window", _DTYPES, optional=True)),
    attributes=(*_COMMON, AttributeSpec("length", "any", None)),
    infer=_infer_istft,
    reference=_reference_istft,
    gradient=by_decomposition(_decompose_istft),
    decompose=_decompose_istft,
    cases=LateCases(
        lambda: (
            Case(((2, 5, 7), (2, 5, 7)), {"size": 8, "hop": 3}, arrays={2: _windows(8)}, tolerance=8.0, terms=8),
            Case(((5, 4), (5, 4)), {"size": 5, "hop": 2, "center": False, "onesided": False}, tolerance=8.0, terms=5),
            Case(
                ((1, 3, 3), (1, 3, 3)), {"size": 4, "hop": 2, "normalized": True, "length": 5}, tolerance=8.0, terms=4
            ),
            Case(((0, 3, 3), (0, 3, 3)), {"size": 4, "hop": 1}),
        )
    ),
    properties=frozenset({"composite"}),
)

OPERATORS = (stft, istft)
