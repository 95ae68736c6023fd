"""Singular values and vectors of matrices of many kinds are exact up to rounding: products, orthogonality, order."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest
from nacre.compiler.codegen.jit import Run, build_functions
from nacre.dialect.graph import Module
from nacre.dialect.types import F32, F64, Array, DType, TensorType
from operator_harness import build_function

SHAPES = ((35, 35), (34, 50), (5, 3))
"""Several vectors of pairs, an odd and an even number of columns, a tall and a wide matrix."""


@cache
def decompositions() -> Mapping[str, Run]:
    functions = []
    for dtype in (F32, F64):
        for shape in SHAPES:
            type = TensorType(dtype, shape)
            functions.append(build_function((type,), lambda b, x: b.apply("svd", x, {}), name(dtype, shape)))
    return build_functions(Module("singular", functions=tuple(functions)), level=0)


def name(dtype: DType, shape: tuple[int, int]) -> str:
    return f"{dtype}_{shape[0]}_{shape[1]}"


def make(kind: str, shape: tuple[int, int]) -> Array:
    random, k = np.random.default_rng(0), min(shape)
    any_matrix = random.standard_normal(shape)
    u, _, vh = np.linalg.svd(any_matrix, full_matrices=False)
    number = np.arange(k)
    kinds = {
        "any": any_matrix,
        "zero": any_matrix * 0,
        "equal values": u @ vh,
        "two values": (u * np.where(number % 2, 1.0, 3.0)) @ vh,
        "graded values": (u * 10.0 ** -np.linspace(0, 8, k)) @ vh,
        "graded columns": any_matrix * 10.0 ** -np.linspace(0, 12, shape[1]),
        "graded rows": any_matrix * 10.0 ** -np.linspace(0, 12, shape[0])[:, None],
        "half the rank": (u * (number < k // 2)) @ vh,
        "ones": np.ones(shape),
        "zero columns": any_matrix * (np.arange(shape[1]) % 2),
        "large": any_matrix * 1e30,
        "small": any_matrix * 1e-30,
    }
    return np.asarray(kinds[kind])


KINDS = (
    *("any", "zero", "equal values", "two values", "graded values"),
    *("graded columns", "graded rows", "half the rank", "ones", "zero columns"),
    *("large", "small"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_decomposition_is_exact_up_to_rounding(kind: str) -> None:
    for dtype in (F32, F64):
        for shape in SHAPES:
            x = make(kind, shape).astype(dtype.numpy)
            u, s, vh = (np.asarray(a, np.float64) for a in decompositions()[name(dtype, shape)]([x]))
            exact, k = x.astype(np.float64), min(shape)
            unit, largest = dtype.epsilon, max(float(np.linalg.norm(exact, 2)), 1e-300)
            assert np.abs((u * s) @ vh - exact).max() <= 30 * unit * largest
            assert np.abs(np.linalg.svd(exact, compute_uv=False) - s).max() <= 30 * unit * largest
            assert np.all(np.diff(s) <= 0)
            # The vectors of the longer side are those of the values that are more than rounding errors.
            longer, shorter = (u.T, vh) if shape[0] >= shape[1] else (vh, u.T)
            longer = longer[s > 100 * unit * largest]
            assert np.abs(longer @ longer.T - np.eye(len(longer))).max(initial=0.0) <= 30 * unit
            assert np.abs(shorter @ shorter.T - np.eye(k)).max() <= 60 * unit


def test_a_matrix_with_a_number_that_is_not_finite_has_no_singular_values() -> None:
    for wrong in (np.nan, np.inf):
        x = make("any", (5, 3)).astype(np.float32)
        x[4, 0] = wrong
        assert all(np.isnan(result).all() for result in decompositions()[name(F32, (5, 3))]([x]))
