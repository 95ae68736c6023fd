"""Elementary functions of f64 on CPUs: the stated errors, special values, and equal results on vectors of any size."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import nacre.compiler
import numpy as np
import pytest
from double_math import arguments, errors_of
from nacre.compiler.codegen.elementary.double_math import DOUBLE
from nacre.compiler.codegen.elementary.find import find_elementary
from nacre.compiler.codegen.llvm.machine import vector_features
from nacre.compiler.targets.target import Target
from nacre.dialect.types import F64
from vector_math_harness import Run, build, build_operators

FUSED = frozenset({"fma"})
AVX512 = FUSED | {"avx512f"}
FORMS = {"8 lanes, avx512f": (8, AVX512), "single": (None, FUSED)}


@cache
def functions(lanes: int | None, features: frozenset[str]) -> dict[str, Run]:
    if not features <= vector_features(Target()):
        pytest.skip("this machine has no AVX-512")
    return build(lanes, features, names=tuple(DOUBLE.formulas), functions=DOUBLE)


@pytest.mark.parametrize("name", DOUBLE.formulas)
def test_error_is_the_stated_one(name: str) -> None:
    x = arguments(name)
    found = errors_of(name, x, functions(4, FUSED)[name](*x))
    assert not found["wrong"], found
    # The bound is tight enough that a lost term of a series is noticed.
    assert DOUBLE.ulp[name] / 3 <= found["ulp"] <= DOUBLE.ulp[name], found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", DOUBLE.formulas)
def test_forms_agree(name: str, form: str) -> None:
    x = arguments(name)
    np.testing.assert_array_equal(functions(*FORMS[form])[name](*x), functions(4, FUSED)[name](*x))


def test_models_compute_with_them() -> None:
    operators = build_operators(["exp", "log", "sin", "power"], F64)
    for operator, run in operators.items():
        name = "powf" if operator == "power" else operator
        x = arguments(name)
        np.testing.assert_array_equal(run(*x), functions(4, FUSED)[name](*x), operator)


def test_library_serves_targets_without_fused_instructions() -> None:
    assert find_elementary("math.exp", "f64", FUSED) is not None
    assert find_elementary("math.exp", "f64", frozenset()) is None
    assert find_elementary("math.exp", "f32", frozenset()) is not None


def test_table_states_the_bounds() -> None:
    text = (Path(nacre.compiler.__file__).parent / "docs" / "vector_math.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \| (\d+) \|$", text, re.MULTILINE)
    assert {name: int(bound) for name, bound in rows} == DOUBLE.ulp
