"""Shorter forms of f32 tensors: what is stored, and what it stands for, as nodes of a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from ..dialect.graph import Value
from ..dialect.operator import Builder
from ..dialect.ops.algebra import Term
from ..dialect.types import F32, I8, U8, DType, TensorType
from .factors import Axes

STEPS = 127
"""The largest code of i8, and how far codes of u8 are from their zero point: a number and its negative round alike."""
MIDDLE = 128
"""The zero point of u8 where numbers of both signs are expected."""
LEAST = 2.0**-100
"""What stands for the largest magnitude where all numbers are 0, so that the scale is a normal number."""


class Codec(ABC):
    """A way to keep a tensor in few bytes."""

    @abstractmethod
    def store(self, b: Builder, x: Value, axes: Axes) -> tuple[Value, ...]:
        """What is kept of an f32 tensor. One scale, if there are any, holds for all elements along `axes`; the tensors
        that are kept have the rank of `x` or rank 0."""

    @abstractmethod
    def restore(self, b: Builder, stored: Sequence[Value]) -> Value:
        """The numbers that it stands for, in f32."""

    def holds(self, type: TensorType, axes: Axes) -> bool:
        """Can a tensor of the type be kept so, whose elements along `axes` come together in one sum?"""
        return True

    def round(self, b: Builder, x: Value, axes: Axes) -> Value:
        """What stands for a tensor once it is kept so."""
        return self.restore(b, self.store(b, x, axes))

    def gather(self, b: Builder, table: Value, axes: Axes, indices: Value, axis: int, mode: str) -> Value:
        """What stands for slices of a table, of which these alone are restored."""
        return self.restore(b, [b.gather(part, indices, axis=axis, mode=mode) for part in self.store(b, table, axes)])


@dataclass(frozen=True, slots=True)
class Cast(Codec):
    """The nearest numbers of a shorter float."""

    dtype: DType

    def store(self, b: Builder, x: Value, axes: Axes) -> tuple[Value, ...]:
        return (b.cast(x, dtype=self.dtype),)

    def restore(self, b: Builder, stored: Sequence[Value]) -> Value:
        return b.cast(*stored, dtype=F32)


@dataclass(frozen=True, slots=True)
class Blocks(Codec):
    """A type in blocks, which lie along the axis of a sum: the last one, or of a matrix on the right the one before."""

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
        # `split-blocks` gathers codes and scales.
        return b.gather(self.round(b, table, axes), indices, axis=axis, mode=mode)


class _Bytes(Codec):
    def restore(self, b: Builder, stored: Sequence[Value]) -> Value:
        return b.dequantize(*stored, dtype=F32)


@dataclass(frozen=True, slots=True)
class Symmetric(_Bytes):
    """i8 or floats of 8 bits, with the scale by which the largest magnitude becomes the largest code. The elements of a
    sum lie beside each other, as in blocks."""

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
    """u8 with the zero point 128, and the scale by which the largest magnitude is 127 away from it."""

    def store(self, b: Builder, x: Value, axes: Axes) -> tuple[Value, ...]:
        scale, zero = _scale(b, x, axes, STEPS), b.scalar(MIDDLE, U8)
        return b.quantize(x, scale, zero, dtype=U8), scale, zero


@dataclass(frozen=True, slots=True)
class Static(_Bytes):
    """u8 whose codes reach from `low` to `high`; 0 always has a code of its own."""

    low: float
    high: float

    def store(self, b: Builder, x: Value, axes: Axes) -> tuple[Value, ...]:
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        step = max(high - low, LEAST) / 255
        scale, zero = b.scalar(step, F32), b.scalar(round(-low / step), U8)
        return b.quantize(x, scale, zero, dtype=U8), scale, zero


def _scale(b: Builder, x: Value, axes: Axes, code: float) -> Value:
    """By which the largest magnitude becomes this code."""
    largest = Term(b, x).abs().max(axis=axes, keepdims=True)
    return (largest.maximum(LEAST) / code).value
