"""Elementary functions of f32 as straight-line arithmetic, so that their callers can be vectorised.

Each is a `func.func private` on single numbers or on vectors that is always inlined. No table, no conversion that is
undefined for NaN: special values come out as the reference has them. Coefficients are least-maximum fits of the stated
series on the stated interval.
"""

from __future__ import annotations

from collections.abc import Mapping

from .circular import cos, sin, tan
from .error_function import erf, erfc
from .exponential import exp, exp2, expm1
from .hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from .inverse_circular import acos, asin, atan, atan2
from .library import Library
from .logarithm import log, log1p, log2, log10
from .power import cbrt, powf

_FORMULAS = {
    function.__name__: function
    for function in (
        *(exp, exp2, expm1, log, log2, log10, log1p, powf, cbrt),
        *(sin, cos, tan, asin, acos, atan, atan2),
        *(sinh, cosh, tanh, asinh, acosh, atanh, erf, erfc),
    )
}

_ULP: Mapping[str, float] = {
    **{"exp": 0.9, "exp2": 1.0, "expm1": 1.7, "log": 0.9, "log2": 1.9, "log10": 2.0, "log1p": 1.6},
    **{
        "powf": 4.0,
        "cbrt": 0.9,
        "sin": 2.0,
        "cos": 2.0,
        "tan": 3.0,
        "asin": 2.3,
        "acos": 1.3,
        "atan": 1.6,
        "atan2": 2.0,
    },
    **{"sinh": 3.0, "cosh": 3.0, "tanh": 2.0, "asinh": 2.0, "acosh": 2.3, "atanh": 2.3, "erf": 2.0, "erfc": 3.0},
}

SINGLE = Library("f32", _FORMULAS, _ULP)
"""Errors are those over all arguments."""
