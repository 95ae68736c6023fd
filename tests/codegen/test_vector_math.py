"""The tiler's elementary functions against float64, over all exponents and densely where they bend."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from nacre.compiler.codegen.jit import build_functions
from nacre.compiler.codegen.tiler.vector_math import FUNCTIONS, ULP
from nacre.dialect.dims import Symbol
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.ops.error_function import erf
from nacre.dialect.types import F32, Array, TensorType

REFERENCES: dict[str, Callable[[Array], Array]] = {"exp": np.exp, "log": np.log, "tanh": np.tanh, "erf": erf}
SMALLEST_NORMAL = np.float32(2.0**-126)


@pytest.fixture(scope="module")
def functions() -> dict[str, Callable[..., tuple[Array, ...]]]:
    length = Symbol("N")
    x = Value("x", TensorType(F32, (length.size,)))
    made = []
    for name in FUNCTIONS:
        b = Builder(OPERATORS)
        result = b.apply(name, (x,))[0]
        made.append(Function(name, (x,), tuple(b.nodes), (result,), ("y",)))
    return build_functions(Module("math", (length,), (), tuple(made)), level=2)


def _samples() -> Array:
    every = np.arange(0, 2**32, 2039, dtype=np.uint64).astype(np.uint32).view(np.float32)
    bends = [np.linspace(-110, 95, 500_001), np.linspace(-5, 5, 500_001), np.linspace(0.5, 2, 300_001)]
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 88.72283, 88.72284, -103.97, -87.33]
    return np.concatenate([every, *(np.asarray(part, np.float32) for part in (*bends, special))])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_is_within_the_stated_bound(name: str, functions: dict[str, Callable[..., tuple[Array, ...]]]) -> None:
    x = _samples()
    (y,) = functions[name]([x])
    with np.errstate(all="ignore"):
        exact = REFERENCES[name](x.astype(np.float64))
        nearest = exact.astype(np.float32)
    finite = np.isfinite(nearest)
    assert np.array_equal(y[~finite], nearest[~finite], equal_nan=True)
    assert np.isfinite(y[finite]).all()
    ulp = np.spacing(np.maximum(np.abs(nearest[finite]), SMALLEST_NORMAL)).astype(np.float64)
    error = np.abs(y[finite].astype(np.float64) - exact[finite]) / ulp
    worst = int(np.argmax(error))
    assert error[worst] <= ULP[name], (x[finite][worst], error[worst])
    zero = finite & (nearest == 0)
    assert np.array_equal(np.signbit(y[zero & (y == 0)]), np.signbit(nearest[zero & (y == 0)]))
