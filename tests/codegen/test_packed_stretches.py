"""Products of many rows and a packed weight, whose sums are divided into stretches."""

from __future__ import annotations

import nacre
import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.codegen.llvm.machine import vector_features
from nacre.compiler.codegen.tiler.packed_stretches import BLOCK_ROWS, FEWEST_ROWS
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import Target, parse_targets
from schedules import schedules

PACKED = "packed tile"
STEPS, COLUMNS = 1000, 130
"""There are four stretches, and the last one is shorter. Panels have 3 vectors, and the last panel has 10 columns."""


def product(rows: int | str, steps: int, columns: int, weights: str = "f32", body: str = "x @ w") -> str:
    """The text of a model with weights in a dtype, which the product widens."""
    dim = "" if isinstance(rows, int) else f"dim T in {rows}\n"
    types = f"x: f32[{'T' if dim else rows}, {steps}]) -> f32[{'T' if dim else rows}, {columns}]"
    params = f"  param w: {weights}[{steps}, {columns}]\n" + (f"  param b: f32[{columns}]\n" if "b" in body else "")
    body = body if weights == "f32" else body.replace("w", "cast(w, f32)")
    return f"language 1\n{dim}model m({types} {{\n{params}  return {body}\n}}\n"


@pytest.mark.parametrize(
    ("rows", "steps", "weights", "cpu", "schedule"),
    [
        ("1..512", 64, "f32", "x86-64-v3", PACKED),
        ("1..512", 64, "bf16", "x86-64-v3", PACKED),
        (128, 64, "bf16", "x86-64-v3", PACKED),
        # A panel of 4096 steps exceeds half of the second cache.
        (128, 4096, "f32", "x86-64-v3", PACKED),
        (128, 2048, "f32", "x86-64-v3", "tile"),
        # Too few rows share a copy.
        ("1..31", 64, "bf16", "x86-64-v3", "tile"),
        ("1..512", 64, "f32", "x86-64-v4", "tile"),
        ("1..512", 64, "f32", "x86-64-v2", "tile"),
    ],
)
def test_many_rows_share_stretches_of_a_panel(
    rows: int | str, steps: int, weights: str, cpu: str, schedule: str
) -> None:
    build = Build(read_model(product(rows, steps, 48, weights)), Options(targets=parse_targets(cpu)))
    assert schedules(build.generate(build.lower(build.optimize()))) == [(schedule,)]


def test_the_numbers_of_rows_with_other_code_are_reported() -> None:
    build = Build(read_model(product("1..512", 64, 192)), Options(targets=parse_targets("x86-64-v3")))
    (kernels,) = build.generate(build.lower(build.optimize())).kernels.values()
    (kernel,) = kernels.values()
    assert {4, FEWEST_ROWS, BLOCK_ROWS} <= {*kernel.report.steps}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("weights", ["f32", "bf16"])
@pytest.mark.parametrize("body", ["x @ w", "relu(x @ w + b)"])
def test_the_bits_of_a_row_depend_neither_on_stretches_nor_on_the_number_of_rows(
    body: str, weights: str, strict: bool
) -> None:
    if not {"avx2", "fma"} <= vector_features(Target()):
        pytest.skip("this machine has no AVX2")
    random = np.random.default_rng(1)
    x, w = (random.standard_normal(shape).astype(np.float32) for shape in ((300, STEPS), (STEPS, COLUMNS)))
    # Numbers of bf16, so that the weights are the same in both formats.
    w = (w.view(np.uint32) & 0xFFFF0000).view(np.float32)
    b = random.standard_normal(COLUMNS).astype(np.float32) if "b" in body else np.zeros(COLUMNS, np.float32)
    values = {"w": w, "b": b} if "b" in body else {"w": w}
    text = product("1..400", STEPS, COLUMNS, weights, body)
    model = nacre.compile(text, weights=values, target="x86-64-v3", strict=strict)
    whole = np.asarray(model(x))
    total = x.astype(np.float64) @ w + b
    expected = np.maximum(total, 0) if "b" in body else total
    bound = (STEPS + 1) * np.finfo(np.float32).eps * (np.abs(x.astype(np.float64)) @ np.abs(w) + np.abs(b))
    assert (np.abs(whole - expected) <= bound).all()
    for rows in (1, 5, 31, 32, 35, 129, 258):
        assert np.array_equal(np.asarray(model(x[:rows])), whole[:rows]), rows
