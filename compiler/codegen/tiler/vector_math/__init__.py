"""Elementary functions of f32 as straight-line arithmetic, so that their callers can be vectorised.

Each is a `func.func private` on single numbers or on vectors that is always inlined. No table, no conversion that is
undefined for NaN: special values come out as the reference has them. Coefficients are least-maximum fits of the stated
series on the stated interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature

from ..isa import FUSED
from .circular import cos, sin, tan
from .error_function import erf, erfc
from .exponential import exp, exp2, expm1
from .hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from .inverse_circular import acos, asin, atan, atan2
from .logarithm import log, log1p, log2, log10
from .power import cbrt, powf
from .writer import Lanes, Writer

_FORMULAS: Mapping[str, Callable[..., Lanes]] = {
    function.__name__: function
    for function in (
        *(exp, exp2, expm1, log, log2, log10, log1p, powf, cbrt),
        *(sin, cos, tan, asin, acos, atan, atan2),
        *(sinh, cosh, tanh, asinh, acosh, atanh, erf, erfc),
    )
}

ULP: Mapping[str, float] = {
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
"""The largest error of each function against the exact result, in units in the last place, over all f32 arguments."""

FUNCTIONS = tuple(_FORMULAS)
"""The available functions, named as the operations of MLIR's math dialect."""


def function_name(name: str, lanes: int | None = None) -> str:
    return f"nacre_{name}_f32" if lanes is None else f"nacre_{name}_{lanes}xf32"


def _count_operands(name: str) -> int:
    return len(signature(_FORMULAS[name]).parameters)


def declare_function(name: str, lanes: int | None = None) -> str:
    """Returns a declaration of the function, for a text that is parsed separately."""
    type = Writer(lanes, frozenset()).type_of("f32")
    operands = ", ".join([type] * _count_operands(name))
    return f"func.func private @{function_name(name, lanes)}({operands}) -> {type}\n"


def emit_function(name: str, lanes: int | None = None, features: frozenset[str] = FUSED) -> str:
    """Returns the text of `@nacre_<name>_f32(f32) -> f32`, or of `@nacre_<name>_<lanes>xf32` on vectors of that many
    lanes.

    features: the target's features, by their LLVM names; `avx512f` makes exponentials of 16 lanes cheaper. Without
        `fma`, products are summed in f64 and rounded to f32, which is exact in all but the rarest cases.
    """
    writer = Writer(lanes, features)
    names = ("%x", "%y")[: _count_operands(name)]
    result = _FORMULAS[name](*(Lanes(writer, operand, "f32") for operand in names))
    type = writer.type_of("f32")
    arguments = ", ".join(f"{operand}: {type}" for operand in names)
    return (
        f"func.func private @{function_name(name, lanes)}({arguments}) -> {type} {{\n"
        f"{writer.body()}\n  return {result.name} : {type}\n}}\n"
    )
