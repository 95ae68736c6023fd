"""Runs a model text with the reference interpreter, and compiled at -O0 and -O2; the results must agree."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import nacre
import numpy as np

Array = np.ndarray[Any, Any]


@cache
def compile_text(text: str, level: int) -> nacre.Model:
    """Returns the compiled model of a text, which tests with other arguments share."""
    return nacre.compile(text, opt_level=level)


def results(
    text: str,
    *arrays: Any,
    weights: Mapping[str, Array] | None = None,
    settings: Mapping[str, Any] | None = None,
    tolerance: float = 1e-5,
) -> Any:
    """Returns the results of the interpreter, after a comparison with those of the compiled models."""
    graph = nacre.graph.read(text, weights=weights, settings=settings)
    expected = graph.run(*arrays)
    for level in (0, 2):
        if weights is None and settings is None:
            model = compile_text(text, level)
        else:
            model = nacre.compile(text, weights=weights, settings=settings, opt_level=level)
        found = model(*arrays)
        for one, other in zip(_all(expected), _all(found), strict=True):
            assert one.shape == other.shape and one.dtype == other.dtype
            np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance)
    return expected


def _all(found: Any) -> tuple[Array, ...]:
    return tuple(found) if isinstance(found, tuple) else (found,)
