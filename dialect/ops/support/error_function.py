"""The error function for arrays, which numpy lacks: within an ulp or two of `math.erf`, and fast enough for models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

_STEP, _END, _DEGREE = 0.25, 6.0, 14
"""The distance of the centres of expansion; from `_END` on, erf is 1 in float64."""


def _taylor() -> npt.NDArray[np.float64]:
    """Computes the Taylor coefficients of erf, one row per power, one column per centre.

    Derivative n + 1 of erf is (-1)**n * H_n(x) * exp(-x * x) * 2 / sqrt(pi), with the Hermite polynomials H_n(x) = 2 x
    H_(n-1)(x) - 2 (n - 1) H_(n-2)(x).
    """
    centres = np.arange(round(_END / _STEP) + 1) * _STEP
    rows = [np.array([math.erf(c) for c in centres])]
    slope = np.exp(-centres * centres) * (2 / math.sqrt(math.pi))
    hermite, previous = np.ones_like(centres), np.zeros_like(centres)
    for n in range(_DEGREE):
        rows.append((-1) ** n * hermite * slope / math.factorial(n + 1))
        hermite, previous = 2 * centres * hermite - 2 * n * previous, hermite
    return np.stack(rows)


_COEFFICIENTS = _taylor()


def erf(x: Any) -> Any:
    """Returns erf in the dtype of `x`, computed in float64."""
    wide = x.astype(np.float64)
    magnitude = np.minimum(np.abs(wide), _END)
    centre = np.rint(np.nan_to_num(magnitude) / _STEP).astype(np.intp)
    offset = magnitude - centre * _STEP
    total = _COEFFICIENTS[_DEGREE][centre]
    for row in _COEFFICIENTS[_DEGREE - 1 :: -1]:
        total = total * offset + row[centre]
    return np.copysign(total, wide).astype(x.dtype)


_erfc = np.frompyfunc(math.erfc, 1, 1)


def erfc(x: Any) -> Any:
    """Returns erfc in the dtype of `x`, computed in float64 by the C library, element by element."""
    return np.asarray(_erfc(x.astype(np.float64))).astype(x.dtype)
