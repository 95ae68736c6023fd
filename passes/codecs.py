"""Shorter forms of f32 tensors: what is stored, and what it stands for, as nodes of a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from ..dialect.graph import Value
from ..dialect.operator import Builder
from ..dialect.ops.algebra import Term
from ..dialect.types import F32, I8, U8, DType
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


@dataclass(frozen=True, slots=True)
class Cast(Codec):
    """The nearest numbers of a shorter float."""

    dtype: DType

    def store(self, b: Builder, x: Value, axes: Axes) -> tuple[Value, ...]:
        return (b.cast(x, dtype=self.dtype),)

    def restore(self, b: Builder, stored: Sequence[Value]) -> Value:
        return b.cast(*stored, dtype=F32)


class _Bytes(Codec):
    def restore(self, b: Builder, stored: Sequence[Value]) -> Value:
        return b.dequantize(*stored, dtype=F32)


@dataclass(frozen=True, slots=True)
class Symmetric(_Bytes):
    """i8, with the scale by which the largest magnitude becomes 127."""

    def store(self, b: Builder, x: Value, axes: Axes) -> tuple[Value, ...]:
        scale = _scale(b, x, axes)
        return b.quantize(x, scale, dtype=I8), scale


@dataclass(frozen=True, slots=True)
class Dynamic(_Bytes):
    """u8 with the zero point 128, and the scale by which the largest magnitude is 127 away from it."""

    def store(self, b: Builder, x: Value, axes: Axes) -> tuple[Value, ...]:
        scale, zero = _scale(b, x, axes), b.scalar(MIDDLE, U8)
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


def _scale(b: Builder, x: Value, axes: Axes) -> Value:
    largest = Term(b, x).abs().max(axis=axes, keepdims=True)
    return (largest.maximum(LEAST) / STEPS).value
