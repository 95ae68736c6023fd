"""Tiles of two heights, where tiles of one height would leave a few rows."""

from __future__ import annotations

import nacre
import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.codegen.llvm.machine import vector_features
from nacre.compiler.codegen.tiler.level_tiles import cost, level_heights
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import Target, parse_targets
from schedules import schedules


@pytest.mark.parametrize(
    ("size", "heights"),
    [
        (49, [6, 6, 6, 6, 5, 5, 5, 5, 5]),
        (48, [6] * 8),
        (13, [5, 4, 4]),
        (7, [4, 3]),
        (5, [5]),
    ],
)
def test_heights_differ_by_one_row_at_most(size: int, heights: list[int]) -> None:
    assert level_heights(size, 6) == heights
    assert sum(heights) == size


def test_a_tile_of_few_sums_costs_as_much_as_one_that_hides_their_latency() -> None:
    assert cost([6, 1], 2) == 12 + 8
    assert cost([4, 3], 2) == 8 + 8
    assert cost([6, 0], 2) == 12


def product(rows: int, columns: int, body: str = "x @ w", steps: int = 32) -> str:
    types = f"x: f32[{rows}, {steps}]) -> f32[{rows}, {columns}]"
    weights = f"  param w: f32[{steps}, {columns}]\n  param b: f32[{columns}]\n"
    return f"model m({types} {{\n{weights}  return {body}\n}}\n"


@pytest.mark.parametrize(
    ("rows", "columns", "cpu", "schedule"),
    [
        (49, 512, "x86-64-v3", "level tile"),
        (37, 512, "x86-64-v3", "level tile"),
        # No rows remain, or a tile that hides the latency of its sums, or the tiles are many.
        (48, 512, "x86-64-v3", "tile"),
        (52, 512, "x86-64-v3", "tile"),
        (601, 512, "x86-64-v3", "tile"),
        # Work items are a panel each: they would be too few for threads.
        (49, 256, "x86-64-v3", "tile"),
        (49, 512, "x86-64-v4", "tile"),
    ],
)
def test_products_with_a_remainder_of_few_rows_have_level_tiles(
    rows: int, columns: int, cpu: str, schedule: str
) -> None:
    build = Build(read_model(product(rows, columns)), Options(targets=parse_targets(cpu)))
    assert schedules(build.generate(build.lower(build.optimize()))) == [(schedule,)]


@pytest.mark.parametrize(("rows", "columns"), [(49, 512), (37, 500), (13, 500), (7, 512)])
@pytest.mark.parametrize("body", ["x @ w", "relu(x @ w + b)"])
def test_results_of_level_tiles(rows: int, columns: int, body: str) -> None:
    if not {"avx2", "fma"} <= vector_features(Target()):
        pytest.skip("this machine has no AVX2")
    random = np.random.default_rng(1)
    x, w = (random.standard_normal(shape).astype(np.float32) for shape in ((rows, 32), (32, columns)))
    b = random.standard_normal(columns).astype(np.float32)
    values = {"w": w, "b": b} if "b" in body else {"w": w}
    text = product(rows, columns, body)
    text = text if "b" in values else text.replace(f"  param b: f32[{columns}]\n", "")
    model = nacre.compile(text, weights=values, target="x86-64-v3")
    total = x.astype(np.float64) @ w + (b if "b" in values else 0)
    expected = np.maximum(total, 0) if "b" in values else total
    bound = 33 * np.finfo(np.float32).eps * (np.abs(x.astype(np.float64)) @ np.abs(w) + np.abs(b))
    assert (np.abs(np.asarray(model(x)) - expected) <= bound).all()
