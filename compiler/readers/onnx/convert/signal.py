"""Windows and Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .....dialect.dims import Size
from .....dialect.types import F32, F64, I64
from ...writing.tensors import Tensor, known
from ..writing.use import Convert, Converters, Use


def _window(terms: Sequence[float]) -> Convert:
    """A sum of cosines: `terms[k] * cos(2 pi k n / size)`."""

    def convert(use: Use) -> Sequence[Tensor]:
        given, g = use.input(), use.g
        dtype = use.element_type("output_datatype", F32)
        if given.sizes is not None:
            count: Size = given.sizes[0]
        else:
            count = use.declared_shape("a size")[0]
            use.require(g.equal(g.cast(g.reshape(given, shape=()), dtype=I64), g.size(count)))
        steps = g.size(count if use.integer("periodic", 1) else count - 1, F64)
        place = g.divide(g.cast(g.iota(shape=(count,)), dtype=F64), steps)
        total = g.broadcast_to(known(terms[0], F64), shape=(count,))
        for number, factor in enumerate(terms[1:], 1):
            wave = g.cos(g.multiply(place, known(2 * math.pi * number, F64)))
            total = g.add(total, g.multiply(wave, known(factor, F64)))
        return [g.cast(total, dtype=dtype)]

    return convert


def _dft(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    given = use.optional(2) if use.version >= 20 else None
    if given is not None and given.sizes is None:
        # The axis comes with the call: of the transforms that have the declared shape, one is chosen.
        declared = use.declared_shape("an axis")
        place = g.remainder(g.cast(g.reshape(given, shape=()), dtype=I64), known(np.int64(x.rank)))
        made = [(axis, _transformed(use, x, axis)) for axis in range(x.rank - 1)]
        fitting = [(g.equal(place, known(np.int64(axis))), y) for axis, y in made if y.shape == declared]
        if not fitting:
            use.fail("has operands that contradict the declared type of its result", code="type-mismatch")
        is_one, result = fitting[0]
        for chosen, y in fitting[1:]:
            is_one, result = g.logical_or(is_one, chosen), g.where(chosen, y, result)
        use.require(is_one)
        return [result]
    axis = use.integer("axis", -2 if use.version >= 20 else 1) if given is None else use.ints(2, "an axis")[0]
    return [_transformed(use, x, axis % x.rank)]


def _transformed(use: Use, x: Tensor, axis: int) -> Tensor:
    inverse, one_sided = bool(use.integer("inverse", 0)), bool(use.integer("onesided", 0))
    length = x.shape[axis]
    if inverse and one_sided:
        length = 2 * (length - 1)
    if use.optional(1) is not None:
        length = use.sizes(1, "a length")[0]
    if not isinstance(length, int) or not isinstance(x.shape[axis], int):
        use.fail("transforms an axis of symbolic size", code="data-dependent")
    if inverse and one_sided:
        return _real_inverse(use, x, axis, length)
    return fourier(use, x, axis, length, inverse=inverse, one_sided=one_sided)


def _real_inverse(use: Use, x: Tensor, axis: int, length: int) -> Tensor:
    """Returns the real signal of the first half of a spectrum; the other half is its conjugate."""
    g, half = use.g, length // 2 + 1
    x = _cut_to(use, x, axis, half)
    factors = np.full(half, 2.0)
    factors[0] = 1
    if length % 2 == 0:
        factors[-1] = 1
    angles = 2 * np.pi * np.outer(np.arange(half), np.arange(length)) / length
    real, imaginary = (_part(use, x, axis, index) for index in (0, 1))
    cosines = known(np.cos(angles) * factors[:, None] / length, x.dtype)
    sines = known(np.sin(angles) * factors[:, None] / length, x.dtype)
    made = g.subtract(g.matmul(real, cosines), g.matmul(imaginary, sines))
    return _back(use, g.unsqueeze(made, axes=(made.rank,)), axis)


def _cut_to(use: Use, x: Tensor, axis: int, length: int) -> Tensor:
    """Returns the first elements of an axis, with zeros after the last one."""
    g, old = use.g, x.shape[axis]
    assert isinstance(old, int), x
    if old > length:
        return g.slice(x, starts=((None,) * axis + (0,)), stops=((None,) * axis + (length,)))
    if old < length:
        return g.pad(x, widths=tuple((0, length - old) if i == axis else (0, 0) for i in range(x.rank)))
    return x


def _part(use: Use, x: Tensor, axis: int, index: int) -> Tensor:
    """Returns the real or the imaginary numbers, with the axis last."""
    chosen = use.g.gather(x, known(np.int64(index)), axis=x.rank - 1)
    order = [i for i in range(chosen.rank) if i != axis] + [axis]
    return use.g.transpose(chosen, axes=tuple(order)) if axis != chosen.rank - 1 else chosen


def _back(use: Use, made: Tensor, axis: int) -> Tensor:
    """Moves the axis before the last one to its place."""
    last = made.rank - 2
    if axis == last:
        return made
    order = [*range(axis), last, *range(axis, last), made.rank - 1]
    return use.g.transpose(made, axes=tuple(order))


def fourier(use: Use, x: Tensor, axis: int, length: int, *, inverse: bool = False, one_sided: bool = False) -> Tensor:
    """Returns the discrete Fourier transform along an axis of x [..., 1 or 2], real numbers or complex pairs, as
    products with the matrices of cosines and sines."""
    g = use.g
    x = _cut_to(use, x, axis, length)
    count = length // 2 + 1 if one_sided else length
    angles = 2 * np.pi * np.outer(np.arange(length), np.arange(count)) / length * (1 if inverse else -1)
    scale = 1 / length if inverse else 1.0
    cosines, sines = known(np.cos(angles) * scale, x.dtype), known(np.sin(angles) * scale, x.dtype)
    real = _part(use, x, axis, 0)
    out_real, out_imaginary = g.matmul(real, cosines), g.matmul(real, sines)
    if x.shape[-1] == 2:
        imaginary = _part(use, x, axis, 1)
        out_real = g.subtract(out_real, g.matmul(imaginary, sines))
        out_imaginary = g.add(out_imaginary, g.matmul(imaginary, cosines))
    return _back(use, g.stack(out_real, out_imaginary, axis=-1), axis)


def _frame_step(use: Use) -> int:
    """Returns the distance of frames; one that the call gives follows from the declared number of frames."""
    given, g = use.input(1), use.g
    if given.sizes is not None:
        return use.ints(1, "a step")[0]
    declared, size = use.declared_shape("a step"), use.input(0).shape[1]
    window, length = use.optional(2), use.optional(3)
    frame = window.shape[0] if window is not None else length.sizes[0] if length is not None and length.sizes else None
    frames = declared[1]
    if not isinstance(frame, int) or not isinstance(size, int) or not isinstance(frames, int) or frames < 2:
        use.fail_unknown("a step")
    step = (size - frame) // (frames - 1)
    use.require(g.equal(g.cast(g.reshape(given, shape=()), dtype=I64), g.size(step)))
    return step


def _stft(use: Use) -> Sequence[Tensor]:
    signal, g = use.input(0), use.g
    step = _frame_step(use)
    window, given = use.optional(2), use.optional(3)
    if given is not None:
        length: Size = use.ints(3, "a length")[0]
    elif window is not None:
        length = window.shape[0]
    else:
        use.fail("has neither a window nor a length", code="wrong-operands")
    size = signal.shape[1]
    if not isinstance(length, int) or not isinstance(size, int):
        use.fail("transforms frames of symbolic size", code="data-dependent")
    frames = (size - length) // step + 1
    places = np.arange(frames)[:, None] * step + np.arange(length)[None, :]
    cut = g.gather(signal, known(places.astype(np.int64)), axis=1)
    if cut.rank == 3:
        cut = g.unsqueeze(cut, axes=(3,))
    if window is not None:
        cut = g.multiply(cut, g.reshape(window, shape=(length, 1)))
    return [fourier(use, cut, 2, length, one_sided=bool(use.integer("onesided", 1)))]


CONVERTERS: Converters = {
    "HannWindow": _window((0.5, -0.5)),
    "HammingWindow": _window((25 / 46, -21 / 46)),
    "BlackmanWindow": _window((0.42, -0.5, 0.08)),
    "DFT": _dft,
    "STFT": _stft,
}
