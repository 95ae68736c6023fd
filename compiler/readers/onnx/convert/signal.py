"""Windows and Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .....dialect.dims import Size, add, at_least, floor_divide, multiply
from .....dialect.types import F32, F64, I64
from ...writing.tensors import Tensor, known
from ..writing.use import Convert, Converters, Use


def _window(terms: Sequence[float]) -> Convert:
    """Returns the converter of a window that is a sum of cosines: `terms[k] * cos(2 pi k n / size)`."""

    def convert(use: Use) -> Sequence[Tensor]:
        given, g = use.input(), use.g
        dtype = use.element_type("output_datatype", F32)
        if given.sizes is not None:
            count: Size = given.sizes[0]
        else:
            count = use.declared_shape("a size")[0]
            use.require(g.equal(g.cast(g.reshape(given, shape=()), dtype=I64), g.size(count)))
        steps = g.size(count if use.integer("periodic", 1) else count - 1, F64)
        position = g.divide(g.cast(g.iota(shape=(count,)), dtype=F64), steps)
        total = g.broadcast_to(known(terms[0], F64), shape=(count,))
        for number, factor in enumerate(terms[1:], 1):
            wave = g.cos(g.multiply(position, known(2 * math.pi * number, F64)))
            total = g.add(total, g.multiply(wave, known(factor, F64)))
        return [g.cast(total, dtype=dtype)]

    return convert


def _dft(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    given = use.optional(2) if use.version >= 20 else None
    if given is not None and given.sizes is None:
        # The axis is an argument of the call: all transforms of the declared shape are computed, one is selected.
        declared = use.declared_shape("an axis")
        position = g.remainder(g.cast(g.reshape(given, shape=()), dtype=I64), known(np.int64(x.rank)))
        axes = range(x.rank - 1)
        possible = [axis for axis in axes if all(declared[i] == x.shape[i] for i in axes if i != axis)]
        made = [(axis, _transformed(use, x, axis)) for axis in possible]
        fitting = [(g.equal(position, known(np.int64(axis))), y) for axis, y in made if y.shape == declared]
        if not fitting:
            use.fail("has operands that contradict the declared type of its result", code="type-mismatch")
        is_one, result = fitting[0]
        for chosen, y in fitting[1:]:
            is_one, result = g.logical_or(is_one, chosen), g.where(chosen, y, result)
        use.require(is_one)
        return [result]
    axis = use.integer("axis", -2 if use.version >= 20 else 1) if given is None else use.ints(2, "an axis")[0]
    # The last axis separates real and imaginary parts.
    if not -x.rank <= axis < x.rank or axis % x.rank == x.rank - 1:
        use.fail(f"has no axis {axis} of a signal: the operand has rank {x.rank}", code="bad-axis")
    return [_transformed(use, x, axis % x.rank)]


def _transformed(use: Use, x: Tensor, axis: int) -> Tensor:
    inverse, one_sided = bool(use.integer("inverse", 0)), bool(use.integer("onesided", 0))
    length = x.shape[axis]
    if inverse and one_sided:
        length = 2 * (length - 1)
    if use.optional(1) is not None:
        length = use.sizes(1, "a length")[0]
    real, *imaginary = _parts(use, x)
    if inverse and one_sided:
        if not imaginary:
            use.fail("takes a spectrum of complex numbers", code="shape-mismatch")
        halves = [_cut_to(use, part, axis, floor_divide(length, 2) + 1) for part in (real, *imaginary)]
        made = use.g.irfft(*halves, axes=axis, size=length)
        return use.g.cast(use.g.unsqueeze(made, axes=(made.rank,)), dtype=x.dtype)
    parts = [_cut_to(use, part, axis, length) for part in (real, *imaginary)]
    return use.g.cast(_spectrum(use, parts, axis, inverse=inverse, one_sided=one_sided), dtype=x.dtype)


def _parts(use: Use, x: Tensor) -> list[Tensor]:
    """Returns the real parts, and the imaginary parts of complex operands, in a dtype that transforms support."""
    g = use.g
    if x.shape[-1] not in (1, 2):
        use.fail(f"takes real numbers [..., 1] or complex ones [..., 2], not {x.type}", code="shape-mismatch")
    wide = g.cast(x, dtype=F32) if x.dtype.is_half else x
    return [g.gather(wide, known(np.int64(index)), axis=x.rank - 1) for index in range(2 if x.shape[-1] == 2 else 1)]


def _cut_to(use: Use, x: Tensor, axis: int, length: Size) -> Tensor:
    """Returns the first elements of an axis, with zeros after the last one."""
    g, old = use.g, x.shape[axis]
    if old == length:
        return x
    if at_least(add(old, multiply(-1, length)), 0):
        return g.slice(x, starts=((None,) * axis + (0,)), stops=((None,) * axis + (length,)))
    if not isinstance(length, int) or not isinstance(old, int):
        use.fail(f"transforms {length} elements of an axis of {old}", code="data-dependent")
    return g.pad(x, widths=tuple((0, length - old) if i == axis else (0, 0) for i in range(x.rank)))


def _spectrum(use: Use, parts: Sequence[Tensor], axis: int, *, inverse: bool = False, one_sided: bool) -> Tensor:
    """Returns the transform of real or complex numbers along an axis as pairs [..., 2]."""
    g = use.g
    if len(parts) == 1 and one_sided and not inverse:
        made = g.apply("rfft", parts, {"axes": axis})
    else:
        pair = parts if len(parts) == 2 or not inverse else [*parts, g.multiply(parts[0], g.like(0, parts[0]))]
        made = g.apply("ifft" if inverse else "fft", pair, {"axes": axis})
        if one_sided:
            half = floor_divide(parts[0].shape[axis], 2) + 1
            made = tuple(_cut_to(use, part, axis, half) for part in made)
    return g.stack(*made, axis=-1)


def _frame_step(use: Use) -> int:
    """Returns the distance between frames. If it is an argument of the call, the declared number of frames gives it."""
    given, g = use.input(1), use.g
    if given.sizes is not None:
        steps = use.ints(1, "a step")
        if len(steps) != 1 or steps[0] < 1:
            use.fail(f"has frames {list(steps)} elements apart", code="bad-size")
        return steps[0]
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
    if signal.rank not in (2, 3):
        use.fail(f"takes a signal of rank 2 or 3, not {signal.type}", code="rank-mismatch")
    step = _frame_step(use)
    window, given = use.optional(2), use.optional(3)
    if given is not None:
        length: Size = use.ints(3, "a length")[0]
    elif window is not None:
        length = window.shape[0]
    else:
        use.fail("has neither a window nor a length", code="wrong-operands")
    if not isinstance(length, int):
        use.fail("transforms frames of symbolic size", code="data-dependent")
    one_sided = bool(use.integer("onesided", 1))
    if signal.rank == 2 or signal.shape[2] == 1:
        flat = g.squeeze(signal, axes=(2,)) if signal.rank == 3 else signal
        wide = [g.cast(x, dtype=F32) if x.dtype.is_half else x for x in (flat, window) if x is not None]
        made = g.apply("stft", wide, {"size": length, "hop": step, "center": False, "onesided": one_sided})
        turned = [g.transpose(part, axes=(0, 2, 1)) for part in made]
        return [g.cast(g.stack(*turned, axis=-1), dtype=signal.dtype)]
    size = signal.shape[1]
    if not isinstance(size, int):
        use.fail("transforms frames of a complex signal of symbolic size", code="data-dependent")
    frames = (size - length) // step + 1
    positions = np.arange(frames)[:, None] * step + np.arange(length)[None, :]
    cut = g.gather(signal, known(positions.astype(np.int64)), axis=1)
    if window is not None:
        cut = g.multiply(cut, g.reshape(window, shape=(length, 1)))
    return [g.cast(_spectrum(use, _parts(use, cut), 2, one_sided=one_sided), dtype=signal.dtype)]


CONVERTERS: Converters = {
    "HannWindow": _window((0.5, -0.5)),
    "HammingWindow": _window((25 / 46, -21 / 46)),
    "BlackmanWindow": _window((0.42, -0.5, 0.08)),
    "DFT": _dft,
    "STFT": _stft,
}
