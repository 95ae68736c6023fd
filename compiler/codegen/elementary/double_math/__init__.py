"""Elementary functions of f64 as straight-line arithmetic, on single numbers or on vectors.

Coefficients are mostly those of the functions' own series, exact before they are rounded: on small intervals no fit is
needed. Special values come out as the reference has them. All formulas need fused multiply-add instructions.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..vector_math.library import Library
from .circular import cos, sin, tan
from .error_function import erf, erfc
from .exponential import exp, exp2, expm1
from .hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from .inverse_circular import acos, asin, atan, atan2
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
    **{"exp": 1, "exp2": 1, "expm1": 2, "log": 1, "log2": 1, "log10": 1, "log1p": 1, "powf": 1, "cbrt": 1},
    **{"sin": 1, "cos": 1, "tan": 2, "asin": 2, "acos": 2, "atan": 1, "atan2": 2},
    **{"sinh": 3, "cosh": 3, "tanh": 3, "asinh": 3, "acosh": 3, "atanh": 3, "erf": 2, "erfc": 4},
}

DOUBLE = Library("f64", _FORMULAS, _ULP, requires_fused=True)
"""Tests check the errors on samples."""
