"""Tiled contractions against float64: any size, batches, windows, and what the tiler must leave to the upstream
loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacre.compiler.codegen.jit import build_functions
from nacre.compiler.codegen.objects import CodeOptions, generate_objects
from nacre.compiler.lower.module import lower_module
from nacre.compiler.targets.target import Target
from nacre.dialect.dims import Symbol
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import F32, F64, I32, Array, DType, TensorType


@dataclass(frozen=True)
class Case:
    op: str
    shapes: tuple[tuple[int, ...], ...]
    attributes: tuple[tuple[str, Any], ...] = ()
    dtype: DType = F32
    terms: int = 1


CASES = (
    *(Case("matmul", ((m, k), (k, n)), terms=k) for m, k, n in [
        (8, 16, 48), (1, 1, 1), (0, 3, 5), (3, 0, 5), (3, 5, 0), (7, 11, 13), (9, 33, 50), (37, 64, 97), (128, 384, 48),
        (2, 3, 47), (5, 3, 49), (13, 2, 16), (4, 7, 15), (6, 5, 63),
    ]),
    Case("matmul", ((2, 3, 9, 17), (3, 17, 20)), terms=17),
    Case("matmul", ((2, 1, 5, 6), (1, 3, 6, 33)), terms=6),
    Case("matmul", ((9, 33), (33, 50)), dtype=F64, terms=33),
    Case("matmul", ((9, 33), (33, 50)), dtype=I32, terms=33),
    Case("conv2d", ((2, 3, 11, 19), (9, 3, 3, 3)), (("padding", 1),), terms=27),
    Case("conv2d", ((1, 4, 9, 9), (8, 4, 3, 3)), (("stride", 2), ("padding", 1)), terms=36),
    Case("conv2d", ((1, 4, 20, 40), (8, 2, 3, 3)), (("groups", 2), ("dilation", 2)), terms=18),
    Case("conv1d", ((1, 5, 70), (7, 5, 4)), terms=20),
)  # fmt: skip


def _function(name: str, case: Case) -> Function:
    arguments = tuple(Value(f"x{i}", TensorType(case.dtype, s)) for i, s in enumerate(case.shapes))
    b = Builder(OPERATORS)
    result = b.apply(case.op, arguments, dict(case.attributes))[0]
    return Function(name, arguments, tuple(b.nodes), (result,), ("y",))


def _arrays(case: Case) -> list[Array]:
    rng = np.random.default_rng(7)
    if case.dtype.is_integer:
        return [rng.integers(-100, 100, s).astype(case.dtype.numpy) for s in case.shapes]
    return [rng.standard_normal(s).astype(case.dtype.numpy) for s in case.shapes]


@pytest.fixture(scope="module", params=["native", "x86-64-v3", "x86-64-v2"])
def compiled(request: pytest.FixtureRequest) -> dict[str, Any]:
    functions = tuple(_function(f"f{i}", case) for i, case in enumerate(CASES))
    return build_functions(Module("cases", (), (), functions), level=2, target=Target(cpu=request.param))


@pytest.mark.parametrize("number", range(len(CASES)))
def test_agrees_with_float64(number: int, compiled: dict[str, Any]) -> None:
    case = CASES[number]
    arrays = _arrays(case)
    (result,) = compiled[f"f{number}"](arrays)
    attributes = OPERATORS[case.op].complete(dict(case.attributes))
    exact = OPERATORS[case.op].reference(*(a.astype(np.float64) for a in arrays), **attributes)
    assert result.shape == exact.shape
    # The sum of `terms` rounded products: its error grows with the square root of their number.
    bound = 4 * case.dtype.epsilon * np.sqrt(max(case.terms, 1)) * np.abs(exact).max(initial=0)
    assert np.abs(result - exact).max(initial=0) <= bound


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 5, 7, 8, 9, 12, 31])
def test_symbolic_rows(rows: int, symbolic: Any) -> None:
    rng = np.random.default_rng(rows)
    x, w = rng.standard_normal((rows, 33)).astype(np.float32), rng.standard_normal((33, 70)).astype(np.float32)
    (result,) = symbolic["f"]([x, w])
    exact = x.astype(np.float64) @ w
    assert np.abs(result - exact).max(initial=0) <= 4 * F32.epsilon * np.sqrt(33) * np.abs(exact).max(initial=0)


def _symbolic_module() -> Module:
    m = Symbol("M")
    x, w = Value("x", TensorType(F32, (m.size, 33))), Value("w", TensorType(F32, (33, 70)))
    b = Builder(OPERATORS)
    y = b.matmul(x, w)
    return Module("m", (m,), (), (Function("f", (x, w), tuple(b.nodes), (y,), ("y",)),))


@pytest.fixture(scope="module")
def symbolic() -> Any:
    return build_functions(_symbolic_module(), level=2)


@pytest.mark.parametrize(("cpu", "lanes"), [("x86-64-v4", 16), ("x86-64-v3", 8)])
def test_a_contraction_becomes_vector_code_of_the_target(cpu: str, lanes: int, tmp_path: Path) -> None:
    generate_objects(lower_module(_symbolic_module()), CodeOptions((Target(cpu=cpu),)), tmp_path)
    (tiled,) = tmp_path.glob("*-tiled.mlir")
    text = tiled.read_text()
    assert "vector.fma" in text and f"vector<{lanes}xf32>" in text and "linalg.generic" not in text


def test_level_0_is_not_tiled(tmp_path: Path) -> None:
    generate_objects(lower_module(_symbolic_module()), CodeOptions(level=0), tmp_path)
    assert not list(tmp_path.glob("*-tiled.mlir"))
