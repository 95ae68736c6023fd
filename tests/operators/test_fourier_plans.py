"""Fourier transforms by butterflies against numpy in f64: every radix, columns, real rows, and prime factors without a
radix. The error is a few roundings for each stage, whatever the length."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from nacre.compiler.codegen.jit import build_functions
from nacre.compiler.lower.module import lower_module
from nacre.compiler.validate.inputs import KINDS, ORDINARY
from nacre.compiler.validate.kernels import random_trials
from nacre.dialect.dims import Symbol
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.ops.fourier_rows import ITEMS
from nacre.dialect.types import F32, F64, DType, TensorType
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline

PASSES = parse_pipeline("decompose{having=composite,keep=fourier_axis},butterflies")
ROWS = Symbol("B", 0, 64, 1)
Array = np.ndarray[Any, np.dtype[Any]]
USES: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "radix 8, 4 and 2": ("fft", (64,), {}),
    "one butterfly": ("ifft", (8,), {"norm": "forward"}),
    "odd radices": ("fft", (1155,), {"norm": "ortho"}),
    "13 and a half": ("rfft", (104,), {}),
    "an odd length": ("rfft", (45,), {}),
    "back": ("irfft", (65,), {"size": 128}),
    "back to an odd length": ("irfft", (23,), {"size": 45}),
    "columns": ("fft", (24, 19), {"axes": 1}),
    "two axes": ("irfft", (6, 5), {"axes": (1, 2), "size": 8}),
    "17 is multiplied": ("ifft", (68,), {}),
    "131 is a convolution": ("rfft", (262,), {}),
}


def _function(name: str, shape: tuple[int, ...], given: dict[str, Any], number: int, dtype: DType) -> Function:
    b = Builder(OPERATORS, f"n{number}_")
    count = 1 if name in ("rfft", "exp") else 2
    arguments = tuple(Value(f"x{i}", TensorType(dtype, (ROWS.size, *shape))) for i in range(count))
    results = b.apply(name, arguments, given)
    return Function(f"f{number}", arguments, tuple(b.nodes), results, tuple(f"r{i}" for i in range(len(results))))


@pytest.mark.parametrize(("level", "dtype"), [(0, F64), (2, F32)], ids=["O0-f64", "O2-f32"])
def test_transforms_are_near_rounding(level: int, dtype: DType) -> None:
    functions = [_function(*use, number, dtype) for number, use in enumerate(USES.values())]
    module = PassManager(PASSES).run(Module("m", dims=(ROWS,), functions=tuple(functions)))
    found = {node.op for function in module.functions for node in function.body}
    assert "fourier_rows" in found and "fourier_axis" not in found, found
    compiled = build_functions(module, level=level)
    random = np.random.default_rng(3)
    for number, (use, (name, shape, given)) in enumerate(USES.items()):
        for rows in (0, 1, 9):
            parts = [random.standard_normal((rows, *shape)).astype(dtype.numpy) for _ in functions[number].arguments]
            got = compiled[f"f{number}"](parts)
            if rows:
                _compare(use, got, _expected(name, parts, given), math.prod(shape))
            if rows > 1:
                parts[0][2, ...] = np.nan
                spread = compiled[f"f{number}"](parts)
                for part, without in zip(spread, got, strict=True):
                    assert np.isnan(part[2]).any() and np.array_equal(part[3:], without[3:]), use


def _expected(name: str, parts: list[Array], given: dict[str, Any]) -> list[Array]:
    axes = given.get("axes", -1)
    axes = axes if isinstance(axes, tuple) else (axes,)
    z = parts[0].astype(np.longdouble) + (1j * parts[1].astype(np.longdouble) if len(parts) == 2 else 0)
    norm = given.get("norm", "backward")
    if name == "irfft":
        lengths = [parts[0].shape[axis] for axis in axes[:-1]] + [given["size"]]
        return [np.fft.irfftn(z, s=lengths, axes=axes, norm=norm)]
    made = np.fft.rfftn(z.real, axes=axes, norm=norm) if name == "rfft" else None
    if made is None:
        made = (np.fft.fftn if name == "fft" else np.fft.ifftn)(z, axes=axes, norm=norm)
    return [made.real, made.imag]


def _compare(use: str, got: tuple[Array, ...], expected: list[Array], length: int) -> None:
    scale = math.sqrt(sum(float((part**2).mean()) for part in expected))
    for part, wanted in zip(got, expected, strict=True):
        assert part.shape == wanted.shape, use
        error = float(np.abs(part - wanted).max()) / scale / float(np.finfo(part.dtype).eps)
        # numpy in f64 has an error of the same size.
        assert error < 2 * (1 + math.log2(length)), (use, error)


def test_the_middle_of_a_real_row_is_real() -> None:
    """In even lengths that are no multiples of 8, whose last stage is a sum and a difference."""
    sizes = (6, 10, 12, 100, 210)
    functions = [_function("fft", (size,), {}, number, F32) for number, size in enumerate(sizes)]
    compiled = build_functions(PassManager(PASSES).run(Module("m", dims=(ROWS,), functions=tuple(functions))), level=2)
    random = np.random.default_rng(4)
    for number, size in enumerate(sizes):
        row = random.standard_normal((3, size)).astype(np.float32)
        _, imaginary = compiled[f"f{number}"]([row, np.zeros_like(row)])
        assert not imaginary[:, [0, size // 2]].any() and imaginary[:, 1].all(), size


def test_transforms_are_checked_with_ordinary_numbers_alone() -> None:
    """A NaN in one element reaches all results of its row, whichever sums the code forms."""
    function = _function("fft", (8,), {}, 0, F32)
    (made,) = PassManager(PASSES).run(Module("m", dims=(ROWS,), functions=(function,))).functions
    assert {trial.kind for trial in random_trials(made)} == {ORDINARY}
    other = _function("exp", (8,), {}, 1, F32)
    assert {trial.kind for trial in random_trials(other)} == {*KINDS}


def test_rows_are_divided_into_work_items() -> None:
    function = _function("fft", (64,), {}, 0, F32)
    (kernel,) = lower_module(PassManager(PASSES).run(Module("m", dims=(ROWS,), functions=(function,)))).kernels
    text = kernel.text("f")
    assert f"%items = arith.constant {ITEMS} : index" in text
    assert len(re.findall("= %begin to %end step", text)) == 1
