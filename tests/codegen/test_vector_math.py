"""The tiler's elementary functions against float64: over all exponents, densely where they bend, and at their ends."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import nacre.compiler
import numpy as np
import pytest
from nacre.compiler.codegen.elementary.vector_math import SINGLE
from nacre.compiler.codegen.llvm.machine import vector_features
from nacre.compiler.targets.target import Target
from nacre.dialect.types import Array
from vector_math_harness import BINARY, COMPOSED, Run, build, build_operators, neighbours, worst

UNARY = [name for name in SINGLE.formulas if name not in BINARY]
AVX512 = frozenset({"avx512f"})
FUSED = frozenset({"fma"})
FORMS = {
    "16 lanes": (16, FUSED),
    "16 lanes, avx512f": (16, FUSED | AVX512),
    "8 lanes": (8, FUSED),
    "4 lanes, without fma": (4, frozenset[str]()),
    "single": (None, FUSED),
}
POINTS = [0.0, 2.0**-149, 2.0**-126, 2.0**-25, 2.0**-13, 0.5, 2**-0.5, 0.66, 1.0, 2**0.5, 2.0, np.inf]
"""Where formulas change, or results become special."""
ENDS = [
    88.722839,
    103.97208,
    87.336544,
    127.5,
    128.0,
    126.0,
    149.0,
    150.0,
    89.4159,
    3.9192,
    3.95,
    9.2,
    10.0548,
    9.0109,
    2**30,
]
SPECIAL = [*(0.0, 1e-45, 2.0**-126, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 2.5, 127.0, 1e10, 2.0**24 + 2, 3.4e38, np.inf)]


@cache
def functions(form: str) -> dict[str, Run]:
    lanes, features = FORMS[form]
    if not features <= vector_features(Target()):
        pytest.skip("this machine has no AVX-512")
    return build(lanes, features)


@cache
def samples(step: int) -> Array:
    every = np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)
    bends = [np.linspace(-110, 95, 100_001), np.linspace(-11, 11, 200_001), np.linspace(0.4, 2, 100_001)]
    quarters = np.arange(1, 2000) * (np.pi / 2)
    # Multiples of pi / 2 as far as float32 goes, whatever it makes of them.
    far = np.exp2(np.linspace(15, 127.9, 2000))
    hard = neighbours([*POINTS, *ENDS, *quarters, *np.rint(far) * (np.pi / 2)])
    return np.concatenate([every, *(part.astype(np.float32) for part in bends), hard, [np.float32(np.nan)]])


def pairs(count: int) -> tuple[Array, Array]:
    """Anything at all, powers around the ends of the range, and every pair of special values."""
    random = np.random.default_rng(5)
    anything = [random.integers(0, 2**32, count, dtype=np.uint32).view(np.float32) for _ in range(2)]
    parts = [(anything[0], anything[1]), (random.uniform(-4, 4, count), random.uniform(-4, 4, count))]
    for base in (np.exp2(random.uniform(-149, 128, count)), 1 + random.uniform(-0.01, 0.01, count)):
        x = base.astype(np.float32).astype(np.float64)
        slope = np.log2(x)
        parts.append((x, random.uniform(-152, 129, count) / np.where(slope == 0, 1.0, slope)))
    parts.append((-np.exp2(random.uniform(-20, 20, count)), random.integers(-8, 8, count)))
    ends = np.array([*SPECIAL, *(-v for v in SPECIAL), np.nan])
    left, right = np.meshgrid(ends, ends)
    parts.append((left.ravel(), right.ravel()))
    with np.errstate(over="ignore", invalid="ignore"):
        x, y = (np.concatenate([np.asarray(p[i]).astype(np.float32) for p in parts]) for i in range(2))
    return x, y


@pytest.mark.parametrize("name", UNARY)
def test_error_is_within_the_bound(name: str) -> None:
    # The reference of erfc is slow.
    error, place = worst(functions("16 lanes")[name], name, samples(20_011 if name == "erfc" else 4_003))
    assert error <= SINGLE.ulp[name], (place, error)


@pytest.mark.parametrize("name", sorted(BINARY))
def test_error_of_two_operands_is_within_the_bound(name: str) -> None:
    error, place = worst(functions("16 lanes")[name], name, *pairs(200_000))
    assert error <= SINGLE.ulp[name], (place, error)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "16 lanes"])
@pytest.mark.parametrize("name", SINGLE.formulas)
def test_forms_agree(name: str, form: str) -> None:
    """A lane's result does not depend on its neighbours, on how many there are, or on the instructions at hand."""
    arguments = pairs(5_000) if name in BINARY else (samples(400_009),)
    expected = functions("16 lanes")[name](*arguments)
    np.testing.assert_array_equal(functions(form)[name](*arguments), expected)


def test_erfc_of_usual_arguments_needs_no_division() -> None:
    """The division is in a branch for arguments far from 0, which most vectors do not take."""
    usual, _, rest = SINGLE.emit("erfc", 16).partition("scf.if")
    assert "divf" not in usual
    assert "divf" in rest.partition("} else {")[0]
    assert len(usual.splitlines()) - usual.count("arith.constant") <= 55


@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_exponentials_of_usual_arguments_compare_nothing(name: str) -> None:
    """The bounds and the denormal results are in a branch that vectors of usual arguments do not take."""
    before, _, branches = SINGLE.emit(name, 8).partition("scf.if")
    usual = branches.rpartition("} else {")[2].partition("scf.yield")[0]
    assert before.count("arith.cmpf") == 1
    assert not any(operation in usual for operation in ("cmp", "select", "scf"))
    assert sum(" = " in line and "bitcast" not in line for line in usual.splitlines()) <= 12


@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_one_far_argument_changes_no_neighbour(name: str) -> None:
    """A vector with one argument beyond the bounds takes the other branch for all lanes."""
    near = samples(40_009)
    near = near[np.abs(near) < 86][: near.size // 8 * 4]
    mixed = near.copy()
    mixed[::4] = np.resize(np.array([np.nan, -np.inf, np.inf, -1e9, 128.0, -149.0], np.float32), mixed[::4].size)
    run = functions("8 lanes")[name]
    kept = np.arange(near.size) % 4 != 0
    np.testing.assert_array_equal(run(mixed)[kept].view(np.uint32), run(near)[kept].view(np.uint32))


@pytest.fixture(scope="module")
def operators() -> dict[str, Callable[..., Array]]:
    return build_operators(["erf", "sin", "power", *COMPOSED])


@pytest.mark.parametrize("operator", ["erf", "sin", "power"])
def test_models_compute_with_them(operator: str, operators: dict[str, Callable[..., Array]]) -> None:
    name = "powf" if operator == "power" else operator
    arguments = pairs(3_001) if name in BINARY else (samples(400_009),)
    np.testing.assert_array_equal(operators[operator](*arguments), functions("single")[name](*arguments))


@pytest.mark.parametrize("operator", COMPOSED)
def test_error_of_operators_is_within_the_bound(operator: str, operators: dict[str, Callable[..., Array]]) -> None:
    error, place = worst(operators[operator], operator, samples(4_003))
    assert error <= COMPOSED[operator], (place, error)


def test_table_states_the_bounds() -> None:
    text = (Path(nacre.compiler.__file__).parent / "docs" / "vector_math.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \| ([\d.]+) \| ([\d.]+) \|", text, re.MULTILINE)
    assert {name: float(bound) for name, bound, _ in rows} == {**SINGLE.ulp, **COMPOSED}
    assert all(float(measured) <= float(bound) for _, bound, measured in rows)
