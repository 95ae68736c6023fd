"""Images [N, height, width, channels] of another size, by nearest pixel or by linear interpolation.

Positions are computed in f32, or in integers of 10 bits for quantized images, as the reference kernels do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.types import F32, I32, U8
from ...writing.tensors import Elements, Tensor, known
from ..writing.fixed_point import narrowed
from ..writing.use import Converters, Use

_LARGEST = 1 << 20


def _sizes(use: Use) -> list[tuple[int, int]]:
    """Returns the old and the new size of both axes."""
    x = use.input()
    new = use.integers(1, "sizes")
    if x.rank != 4 or len(new) != 2 or min(new) < 1 or max(new) > _LARGEST:
        use.fail(f"takes a tensor of rank {x.rank} and sizes {list(new)}", code="wrong-operands")
    pairs = []
    for old, wanted in zip(x.shape[1:3], new, strict=True):
        if not isinstance(old, int) or old < 1:
            use.fail("resizes a tensor whose sizes differ between calls, or are 0", code="data-dependent")
        pairs.append((old, wanted))
    return pairs


def _ratio(use: Use, old: int, new: int) -> np.float32:
    if use.flag("align_corners") and new > 1:
        return np.float32(old - 1) / np.float32(new - 1)
    return np.float32(old) / np.float32(new)


def _nearest(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    half, corners = use.flag("half_pixel"), use.flag("align_corners")
    for axis, (old, new) in enumerate(_sizes(use), 1):
        positions = (np.arange(new, dtype=np.float32) + np.float32(0.5 if half else 0)) * _ratio(use, old, new)
        found = np.floor(positions + np.float32(0.5)) if corners else np.floor(positions)
        x = g.gather(x, known(np.clip(found, 0, old - 1).astype(np.int64)), axis=axis)
    return [x]


def _bilinear(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    if not use.is_quantized:
        for axis, (old, new) in enumerate(_sizes(use), 1):
            x = _interpolated(use, x, axis, *_float_positions(use, old, new))
        return [x]
    if not use.same_quantization():
        use.fail("changes the scale of its operand", code="unsupported-attribute")
    if x.dtype == U8:
        return [_bilinear_bytes(use, x)]
    total = g.cast(x, dtype=I32)
    for axis, (old, new) in enumerate(_sizes(use), 1):
        positions = _fixed_positions(use, old, new)
        # Quotients are truncated, so that positions below 0 count as 0.
        low = np.maximum(_truncated(positions), 0)
        high = np.minimum(_truncated(positions + 1023), old - 1)
        part = positions - low * 1024
        total = _interpolated(use, total, axis, low, high, 1024 - part, part)
    # The mean of four pixels has 20 more bits; halves are rounded away from zero.
    nearest = g.shift_right(g.add(g.abs(total), known(np.int32(1 << 19))), known(np.int32(20)))
    return [narrowed(use, g.multiply(nearest, g.sign(total)), 0)]


def _float_positions(use: Use, old: int, new: int) -> tuple[Elements, Elements, Elements, Elements]:
    """Returns the positions before and after each new one, and the weights of both."""
    positions = np.arange(new, dtype=np.float32)
    ratio = _ratio(use, old, new)
    positions = (positions + np.float32(0.5)) * ratio - np.float32(0.5) if use.flag("half_pixel") else positions * ratio
    low = np.maximum(np.floor(positions), 0)
    high = np.minimum(np.ceil(positions), old - 1)
    part = (positions - low).astype(np.float32)
    return low, high, np.float32(1) - part, part


def _bilinear_bytes(use: Use, x: Tensor) -> Tensor:
    """Interpolates u8 in f32, with the order of multiplications and additions of the reference kernel, so that results
    are equal. Adding 0.5 rounds the sum to the nearest integer."""
    g = use.g
    rows, columns = (_float_positions(use, old, new) for old, new in _sizes(use))
    total = None
    for right in (0, 1):
        for below in (0, 1):
            part = g.gather(x, known(rows[below].astype(np.int64)), axis=1)
            part = g.cast(g.gather(part, known(columns[right].astype(np.int64)), axis=2), dtype=F32)
            part = g.multiply(part, known(rows[2 + below].reshape(-1, 1, 1)))
            part = g.multiply(part, known(columns[2 + right].reshape(-1, 1)))
            total = part if total is None else g.add(total, part)
    assert total is not None
    return g.cast(g.add(total, g.like(0.5, total)), dtype=x.dtype)


def _fixed_positions(use: Use, old: int, new: int) -> Elements:
    if use.flag("align_corners") and new > 1:
        ratio = (1024 * (old - 1) + (new - 1) // 2) // (new - 1)
    else:
        ratio = (1024 * old + new // 2) // new
    positions = np.arange(new, dtype=np.int64) * ratio
    return positions + ratio // 2 - 512 if use.flag("half_pixel") else positions


def _truncated(x: Elements) -> Elements:
    return np.asarray(np.sign(x) * (np.abs(x) // 1024))


def _interpolated(
    use: Use, x: Tensor, axis: int, low: Elements, high: Elements, before: Elements, after: Elements
) -> Tensor:
    g = use.g
    shape = (-1, *(1,) * (x.rank - axis - 1))
    sides = []
    for positions, weight in ((low, before), (high, after)):
        part = g.gather(x, known(positions.astype(np.int64)), axis=axis)
        sides.append(g.multiply(part, known(weight.astype(x.dtype.numpy).reshape(shape))))
    return g.add(*sides)


CONVERTERS: Converters = {"RESIZE_NEAREST_NEIGHBOR": _nearest, "RESIZE_BILINEAR": _bilinear}
