"""Elementary functions of f64: arguments to try, references in extended precision, and errors against them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh"}
NUMPY |= {"atanh": "arctanh", "atan2": "arctan2", "powf": "power"}
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, 1e-310, -1e-310, 5e-324)
EDGES = (709.7, 709.8, -745.1, -744.0, 710.2, 1024.0, 1023.9, -1074.0, -1075.0, 1e22, 8.0, 1000.0, 2.0**-28, 2.0**20)
OPERATORS = {"powf": "power"}
"""The operators whose names are not those of functions."""
UNIT = frozenset({"asin", "acos", "atanh"})
LEAST = 2.0**-1000
"""Below it, a unit in the last place is not relative to a number."""


def reference(name: str) -> Callable[..., Array]:
    """A function of extended precision."""
    if name in ("erf", "erfc"):
        return erf if name == "erf" else erfc
    made: Callable[..., Array] = getattr(np, NUMPY.get(name, name))
    return made


def erf(x: Array) -> Array:
    """The Taylor series near zero, otherwise less the complement."""
    a = np.minimum(np.abs(x), 1)
    total = term = a
    for n in range(1, 40):
        term = -term * a * a / n
        total = total + term / (2 * n + 1)
    near = total * 2 / np.sqrt(np.longdouble(np.pi) + np.longdouble(1.2246467991473532e-16))
    return np.copysign(np.where(np.abs(x) <= 1, near, 1 - tail(np.abs(x))), x)


def tail(a: Array) -> Array:
    """The continued fraction of the complement, from 1 on."""
    a = np.maximum(a, 1)
    total = a + 0
    for n in range(800, 0, -1):
        total = a + (np.longdouble(n) / 2) / total
    root = np.sqrt(np.longdouble(np.pi) + np.longdouble(1.2246467991473532e-16))
    return np.where(np.isinf(a), 0, np.exp(-a * a) / root / total)


def erfc(x: Array) -> Array:
    return np.where(x > 1, tail(x), np.where(x < -1, 2 - tail(-x), 1 - erf(np.clip(x, -1, 1))))


def arguments(name: str) -> list[Array]:
    rng = np.random.default_rng(len(name))
    signs = rng.choice([-1.0, 1.0], 600)
    wide = np.concatenate(
        [rng.normal(size=900), rng.normal(size=300) * 300, signs * 10.0 ** rng.uniform(-300, 308, 600), SPECIAL, EDGES]
    )
    if name in UNIT:
        return [np.concatenate([rng.uniform(-1, 1, 1200), 1 - 10.0 ** rng.uniform(-16, 0, 200), SPECIAL])]
    if name in ("log", "log2", "log10", "acosh"):
        return [np.concatenate([np.abs(wide), 1 + np.abs(rng.normal(size=300)) * 1e-3, SPECIAL])]
    if name == "powf":
        x, y = (grid.reshape(-1) for grid in np.meshgrid([*SPECIAL, 1e300, -8.0], [*SPECIAL, 1e300, -3.0]))
        return [
            np.concatenate([np.abs(rng.normal(size=900)) * 10.0 ** rng.integers(-20, 20, 900), x]),
            np.concatenate([rng.normal(size=900) * 10, y]),
        ]
    if name == "atan2":
        x, y = (grid.reshape(-1) for grid in np.meshgrid(SPECIAL, SPECIAL))
        return [np.concatenate([wide, x]), np.concatenate([rng.permutation(wide), y])]
    return [wide]


def errors_of(name: str, x: Sequence[Array], got: Array) -> Mapping[str, Any]:
    """The largest error of results in units in the last place, and the arguments whose special results are wrong."""
    with np.errstate(all="ignore"):
        exact = reference(name)(*(array.astype(np.longdouble) for array in x))
        rounded = exact.astype(np.float64)
        step = np.spacing(np.maximum(np.abs(rounded), 2.0**-1022)).astype(np.longdouble)
        apart = np.abs(got.astype(np.longdouble) - exact) / step
        special_value = ~np.isfinite(rounded) | (rounded == 0)
        same = (got == rounded) & (np.signbit(got) == np.signbit(rounded)) | (np.isnan(got) & np.isnan(rounded))
    if name == "erfc":
        apart = np.where(rounded < LEAST, 0, apart)
    wrong = special_value & ~same
    numbers = np.where(special_value, 0, apart)
    place = int(np.argmax(np.where(np.isnan(numbers), np.inf, numbers)))
    return {
        "ulp": float(numbers[place]),
        "at": [a[place] for a in x],
        "wrong": [a[wrong][:3] for a in x if wrong.any()],
    }
