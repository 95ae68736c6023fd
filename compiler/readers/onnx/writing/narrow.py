"""Element types without a dtype of the graph, such as INT4. Their tensors have a wider dtype, which represents all of
their values.

A `Tensor` names such a type as its `element`. Only conversions depend on it: they round or wrap to its values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .....dialect.types import BF16, F8E4M3, F16, I8, U8, Array, DType
from ...writing.tensors import DTYPES, Tensor


@dataclass(frozen=True, slots=True)
class Narrow:
    """`held` is the dtype of its tensors. An integer has `bits`; a float has `fraction` bits of fraction, a smallest
    normal and a largest number."""

    name: str
    held: DType
    bits: int = 0
    fraction: int = 0
    smallest: float = 0.0
    largest: float = 0.0

    @property
    def integer_range(self) -> tuple[int, int]:
        half = 1 << (self.bits - 1)
        return (-half, half - 1) if self.held.is_signed else (0, 2 * half - 1)


POWERS = Narrow("FLOAT8E8M0", BF16, smallest=2.0**-127, largest=2.0**127)
"""The powers of two."""

_ALL = (
    *(Narrow(f"INT{bits}", I8, bits) for bits in (2, 4)),
    *(Narrow(f"UINT{bits}", U8, bits) for bits in (2, 4)),
    Narrow("FLOAT4E2M1", F8E4M3, fraction=1, smallest=1.0, largest=6.0),
    Narrow("FLOAT8E4M3FNUZ", F16, fraction=3, smallest=2.0**-7, largest=240.0),
    Narrow("FLOAT8E5M2FNUZ", F16, fraction=2, smallest=2.0**-15, largest=57344.0),
    POWERS,
)
NARROW: Mapping[str, Narrow] = {each.name: each for each in _ALL}
ELEMENTS: Mapping[str, DType] = {**DTYPES, **{each.name: each.held for each in _ALL}}
"""The dtypes of tensors, by the ONNX names of their elements."""


_NAMES: Mapping[DType, str] = {dtype: name for name, dtype in DTYPES.items()}


def element_of(tensor: Tensor) -> str:
    """Returns the ONNX name of the elements of a tensor."""
    return tensor.element or _NAMES[tensor.dtype]


def held_array(array: Array, element: str) -> Array:
    """Returns elements of a type in the dtype that holds them."""
    dtype = ELEMENTS[element].numpy
    if array.dtype == dtype:
        return array
    narrow = NARROW.get(element)
    if narrow is not None and not narrow.bits:
        # There are no direct conversions between the small floats.
        return np.asarray(array.astype(np.float32).astype(dtype))
    return array.astype(dtype)
