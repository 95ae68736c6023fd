"""Compact forms of f32 tensors: the stored tensors and the values that they represent, as nodes of a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from ...dialect.graph import Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Axes, Builder
from ...dialect.ops.support.algebra import Term
from ...dialect.types import BF16, BLOCKED, F16, F32, I8, STORAGE, U8, DType, TensorType

STEPS = 127
"""The largest quantized value of i8, and the largest distance of u8 values from their zero point. A number and its
negative round alike."""
MIDDLE = 128
"""The zero point of u8 for numbers of both signs."""
LEAST = 2.0**-100
"""The largest magnitude that is assumed where all numbers are 0, so that the scale is a normal number."""


class Codec(ABC):
    """A method to store a tensor in few bytes."""

    @abstractmethod
    def store(self, b: Builder, x: Value, axes: Axes) -> tuple[Value, ...]:
        """Returns the stored tensors of an f32 tensor. A scale, if there is one, applies to all elements along `axes`;
        stored tensors have the rank of `x` or rank 0."""

    @abstractmethod
    def restore(self, b: Builder, stored: Sequence[Value]) -> Value:
        """Returns the f32 values that the stored tensors represent."""

    def holds(self, type: TensorType, axes: Axes) -> bool:
        """Returns whether the codec supports a tensor of the type whose elements along `axes` are summed together."""
        return True

    def round(self, b: Builder, x: Value, axes: Axes) -> Value:
        """Returns the tensor after storing and restoring it."""
        return self.restore(b, self.store(b, x, axes))

    def gather(self, b: Builder, table: Value, axes: Axes, indices: Value, axis: int, mode: str) -> Value:
        """Gathers slices of a table; only these slices are restored."""
        return self.restore(b, [b.gather(part, indices, axis=axis, mode=mode) for part in self.store(b, table, axes)])


@dataclass(frozen=True, slots=True)
class Cast(Codec):
    """Rounding to the nearest values of a shorter float type."""

    dtype: DType

    def store(self, b: Builder, x: Value, axes: Axes) -> tuple[Value, ...]:
        return (b.cast(x, dtype=self.dtype),)

    def restore(self, b: Builder, stored: Sequence[Value]) -> Value:
        return b.cast(*stored, dtype=F32)


@dataclass(frozen=True, slots=True)
class Blocks(Codec):
    """A block-quantized type. The blocks lie along the summed axis: the last axis, or the second to last one of a
    matrix on the right."""

    dtype: DType

    def holds(self, type: TensorType, axes: Axes) -> bool:
        if len(axes) != 1 or axes[0] < type.rank - 2:
            return False
        size = type.shape[axes[0]]
        return isinstance(size, int) and size % self.dtype.block == 0

    def store(self, b: Builder, x: Value, axes: Axes) -> tuple[Value, ...]:
        assert self.holds(x.type, axes) and axes == (x.type.rank - 1,), (x, axes)
        return (b.quantize_blocks(x, dtype=self.dtype),)

    def restore(self, b: Builder, stored: Sequence[Value]) -> Value:
        return b.dequantize_blocks(*stored, dtype=F32)

    def round(self, b: Builder, x: Value, axes: Axes) -> Value:
        last = x.type.rank - 1
        if axes == (last,):
            return self.restore(b, self.store(b, x, axes))
        return b.matrix_transpose(self.restore(b, self.store(b, b.matrix_transpose(x), (last,))))

    def gather(self, b: Builder, table: Value, axes: Axes, indices: Value, axis: int, mode: str) -> Value:
        # `expand-block-quantized` gathers quantized values and scales.
        return b.gather(self.round(b, table, axes), indices, axis=axis, mode=mode)


class _Bytes(Codec):
    def restore(self, b: Builder, stored: Sequence[Value]) -> Value:
        return b.dequantize(*stored, dtype=F32)


@dataclass(frozen=True, slots=True)
class Symmetric(_Bytes):
    """i8 or 8-bit floats, with a scale that maps the largest magnitude to the largest quantized value. The elements of
    a sum are adjacent, as in blocks."""

    dtype: DType = I8

    def store(self, b: Builder, x: Value, axes: Axes) -> tuple[Value, ...]:
        scale = _scale(b, x, axes, self.dtype.float_format.largest if self.dtype.is_float else STEPS)
        return b.quantize(x, scale, dtype=self.dtype), scale

    def round(self, b: Builder, x: Value, axes: Axes) -> Value:
        last = x.type.rank - 1
        if axes != (last - 1,):
            return self.restore(b, self.store(b, x, axes))
        return b.matrix_transpose(self.restore(b, self.store(b, b.matrix_transpose(x), (last,))))


@dataclass(frozen=True, slots=True)
class Dynamic(_Bytes):
    """u8 with the zero point 128, and a scale that maps the largest magnitude to a distance of 127 from it."""

    def store(self, b: Builder, x: Value, axes: Axes) -> tuple[Value, ...]:
        scale, zero = _scale(b, x, axes, STEPS), b.scalar(MIDDLE, U8)
        return b.quantize(x, scale, zero, dtype=U8), scale, zero


@dataclass(frozen=True, slots=True)
class Static(_Bytes):
    """u8 whose values cover the range from `low` to `high`; 0 always has an exact value."""

    low: float
    high: float

    def store(self, b: Builder, x: Value, axes: Axes) -> tuple[Value, ...]:
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        step = max(high - low, LEAST) / 255
        scale, zero = b.scalar(step, F32), b.scalar(round(-low / step), U8)
        return b.quantize(x, scale, zero, dtype=U8), scale, zero


def _scale(b: Builder, x: Value, axes: Axes, code: float) -> Value:
    """Returns the scale that maps the largest magnitude to this quantized value."""
    largest = Term(b, x).abs().max(axis=axes, keepdims=True)
    return (largest.maximum(LEAST) / code).value


CODECS: Mapping[str, Codec] = {
    **{dtype.name: Cast(dtype) for dtype in (BF16, F16)},
    **{dtype.name: Symmetric(dtype) for dtype in (I8, *STORAGE)},
    **{dtype.name: Blocks(dtype) for dtype in BLOCKED},
}
"""The storage of weights, by the name of the dtype in policies."""
CASTS: Mapping[str, Codec] = {dtype.name: Cast(dtype) for dtype in (BF16, F16)}
