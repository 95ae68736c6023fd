"""Elementary functions of f64 for GPUs, as arithmetic on single numbers.

Coefficients are those of the functions' own series, exact before they are rounded: on small intervals no fit is
needed. Special values come out as the reference has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature

from ...tiler.vector_math.writer import Lanes, Writer
from .circular import cos, sin, tan
from .error_function import erf, erfc
from .exponential import exp, exp2, expm1
from .hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from .inverse_circular import acos, asin, atan, atan2
from .logarithm import log, log1p, log2, log10
from .power import cbrt, powf

_FORMULAS: Mapping[str, Callable[..., Lanes]] = {
    function.__name__: function
    for function in (
        *(exp, exp2, expm1, log, log2, log10, log1p, powf, cbrt),
        *(sin, cos, tan, asin, acos, atan, atan2),
        *(sinh, cosh, tanh, asinh, acosh, atanh, erf, erfc),
    )
}

ULP: Mapping[str, float] = {
    **{"exp": 1, "exp2": 1, "expm1": 2, "log": 1, "log2": 1, "log10": 1, "log1p": 1, "powf": 1, "cbrt": 1},
    **{"sin": 1, "cos": 1, "tan": 2, "asin": 2, "acos": 2, "atan": 1, "atan2": 2},
    **{"sinh": 3, "cosh": 3, "tanh": 3, "asinh": 3, "acosh": 3, "atanh": 3, "erf": 5, "erfc": 9},
}
"""The bound of each function's error against the exact result that the tests check, in units in the last place."""

FUNCTIONS = tuple(_FORMULAS)
"""The available functions, named as the operations of MLIR's math dialect."""


def function_name(name: str) -> str:
    return f"nacre_{name}_f64"


def emit_function(name: str) -> str:
    """Returns the text of `@nacre_<name>_f64(f64) -> f64`."""
    writer = Writer()
    names = ("%x", "%y")[: len(signature(_FORMULAS[name]).parameters)]
    result = _FORMULAS[name](*(Lanes(writer, operand, "f64") for operand in names))
    arguments = ", ".join(f"{operand}: f64" for operand in names)
    head = f"func.func private @{function_name(name)}({arguments}) -> f64"
    return f"{head} {{\n{writer.body()}\n  return {result.name} : f64\n}}\n"
