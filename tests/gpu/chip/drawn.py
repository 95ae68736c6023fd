"""Inputs that are drawn from seeds where they are needed, so that they do not travel.

NumPy states that a seed gives the same raw bits in every version. All further steps are exact in IEEE 754, so that the
numbers are the same on every machine; a checksum confirms it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from .compare import Array

DTYPES = ("f64", "f32", "f16", "bf16")
"""The dtypes that are drawn."""


@dataclass(frozen=True)
class Drawn:
    """An array of random floats, close to a normal distribution of variance 1; bf16 is given by its bits."""

    seed: int
    dtype: str
    shape: tuple[int, ...]
    checksum: int = 0

    @staticmethod
    def read(content: Mapping[str, Any]) -> Drawn:
        return Drawn(**{**content, "shape": tuple(content["shape"])})

    def signed(self) -> Drawn:
        """Returns the same with the checksum of its array."""
        return replace(self, checksum=zlib.crc32(self.draw()))

    def draw(self) -> Array:
        """Returns the array: each number is the sum of four uniformly distributed ones."""
        raw = np.random.PCG64(self.seed).random_raw(4 * prod(self.shape)).reshape(4, *self.shape)
        a, b, c, d = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
        values = np.asarray((a + b + c + d - 2.0) * 1.7320508075688772)
        if self.dtype == "bf16":
            return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return values.astype({"f64": np.float64, "f32": np.float32, "f16": np.float16}[self.dtype])

    def array(self) -> Array:
        """Returns the array, and confirms that it is the one that was packed."""
        made = self.draw()
        assert zlib.crc32(made) == self.checksum, f"NumPy {np.__version__} draws other numbers from seed {self.seed}"
        return made
