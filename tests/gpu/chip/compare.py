"""Compares results with the packed expectation: exact values, allowed errors, and where NaN and infinities may be.

An expectation is made where the compiler is, by `pack`. Floats that NumPy lacks are given by their bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FLOATS = frozenset({"f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2"})
NUMBER = 8
_NAN, _POSITIVE, _NEGATIVE = 1, 2, 4


@dataclass(frozen=True)
class Expected:
    """One result. `allowed` is the allowed error of each element, or of all. `classes` are sets of the classes that
    each element may have, `zeros` of the signs that it may have if it is zero; they are None where the exact values
    decide."""

    dtype: str
    exact: Array
    allowed: Array
    classes: Array | None = None
    zeros: Array | None = None

    def arrays(self, prefix: str) -> dict[str, Array]:
        """Returns the fields as arrays of a file."""
        named = {"exact": self.exact, "allowed": self.allowed, "classes": self.classes, "zeros": self.zeros}
        return {f"{prefix}.{name}": array for name, array in named.items() if array is not None}

    @staticmethod
    def read(dtype: str, prefix: str, file: Mapping[str, Array]) -> Expected:
        classes, zeros = (file.get(f"{prefix}.{name}") for name in ("classes", "zeros"))
        return Expected(dtype, file[f"{prefix}.exact"], file[f"{prefix}.allowed"], classes, zeros)

    def difference(self, actual: Array) -> str | None:
        """Returns a description of the first wrong element; None if there is none."""
        if actual.shape != self.exact.shape:
            return f"shape {actual.shape}, expected {self.exact.shape}"
        if self.dtype not in FLOATS:
            wrong = actual != self.exact
            if self.allowed.any():
                apart = np.abs(actual.astype(np.float64) - self.exact.astype(np.float64))
                wrong &= apart > self.allowed
            return self._describe(wrong, actual)
        got, exact = widen(actual, self.dtype), self.exact.astype(np.float64)
        own = classes_of(got)
        known = classes_of(exact) if self.classes is None else self.classes
        with np.errstate(all="ignore"):
            wrong = ~(np.abs(got - exact) <= self.allowed)
        wrong &= np.isfinite(exact) & (own == NUMBER) & (known == NUMBER)
        wrong |= (own & known) == 0
        if self.zeros is not None:
            sign = np.where(np.signbit(got), 2, 1)
            wrong |= (got == 0) & (((sign | 4) & self.zeros) == 0)
        return self._describe(wrong, got)

    def _describe(self, wrong: Array, got: Array) -> str | None:
        if not wrong.any():
            return None
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        allowed = float(np.broadcast_to(self.allowed, wrong.shape)[place])
        return (
            f"{got[place]!r} at {list(place)}, expected {self.exact[place]!r} within {allowed:.3g}"
            f" ({np.count_nonzero(wrong)} of {wrong.size} differ)"
        )


def classes_of(array: Array) -> Array:
    """Returns 1 for NaN, 2 and 4 for infinities, 8 for numbers."""
    signs = np.where(array > 0, _POSITIVE, _NEGATIVE)
    return np.where(np.isnan(array), _NAN, np.where(np.isinf(array), signs, NUMBER)).astype(np.uint8)


def widen(array: Array, dtype: str) -> Array:
    """Returns floats, which may be given by their bits, as f64."""
    if array.dtype.kind == "f":
        return array.astype(np.float64)
    if dtype == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    exponent_bits, fraction_bits = {"f8e4m3": (4, 3), "f8e5m2": (5, 2)}[dtype]
    return _eight_bits(exponent_bits, fraction_bits)[array]


def _eight_bits(exponent_bits: int, fraction_bits: int) -> Array:
    """Returns the value of each byte. The format with 4 bits of exponent has no infinities, and one NaN of each
    sign."""
    codes = np.arange(256)
    exponent = codes >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = (codes & ((1 << fraction_bits) - 1)) / (1 << fraction_bits)
    bias = (1 << (exponent_bits - 1)) - 1
    magnitude = np.where(exponent == 0, fraction * 2.0, 1 + fraction) * 2.0 ** (exponent - bias)
    last = exponent == (1 << exponent_bits) - 1
    if exponent_bits == 4:
        magnitude[last & (fraction == 7 / 8)] = np.nan
    else:
        magnitude[last] = np.where(fraction[last] == 0, np.inf, np.nan)
    return np.where(codes >= 128, -magnitude, magnitude)


def same_bits(x: Array, y: Array) -> bool:
    return x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes()
