"""How the references and bodies here keep sums: of f16 or bf16 elements in f32, rounded once, at the end.

The references do as the lowerings do, so that they differ from compiled code by the order of a sum at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..emitter import Scalar, ScalarEmitter
from ..types import dtype_of
from .common import is_half

Numbers = npt.NDArray[Any]
"""An array that a reference computes with."""


def widen(x: Numbers) -> Numbers:
    """The array in the dtype in which its sums are kept."""
    return x.astype(np.float32) if is_half(dtype_of(x)) else x


def multiply_add(s: ScalarEmitter, x: Scalar, y: Scalar, total: Scalar) -> Sequence[Scalar]:
    """The body of a contraction: `total + x * y`, in the dtype of `total`."""
    product = s.binary("mul", s.cast(x, total.dtype), s.cast(y, total.dtype))
    return [s.binary("add", total, product)]


def add_up(s: ScalarEmitter, x: Scalar, total: Scalar) -> Sequence[Scalar]:
    """The body of a sum, in the dtype of `total`."""
    return [s.binary("add", total, s.cast(x, total.dtype))]
