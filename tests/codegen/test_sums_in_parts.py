"""Sums in parts: panels of weights that exceed the cache of a core are read part by part."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.codegen.tiler.structure import Unsupported
from nacre.compiler.codegen.tiler.text import STACK_BYTES, Writer
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets

CHANNELS, RESULTS, IMAGES, HEIGHT, WIDTH = 460, 50, 2, 3, 17
"""A panel of 32 columns takes 0.53 MB, more than half of the cache. The second panel has 18 columns. Tiles of 9 rows
leave 8 of 17."""
SOURCE = f"""
model m(x: f32[{IMAGES}, {HEIGHT}, {WIDTH}, {CHANNELS}]) -> f32[{IMAGES}, {HEIGHT}, {WIDTH}, {RESULTS}] {{
  param weight: f32[{RESULTS}, {CHANNELS}, 3, 3]
  param bias: f32[{RESULTS}]
  turned = transpose(x, (0, 3, 1, 2))
  return transpose(relu(conv2d(turned, weight, bias, padding=1)), (0, 2, 3, 1))
}}
"""


@pytest.mark.usefixtures("unchecked")
def test_sums_in_parts(tmp_path: Path) -> None:
    # Sums of small integers are exact.
    random = np.random.default_rng(0)
    weight, bias, x = (
        random.integers(-9, 10, shape).astype(np.float32)
        for shape in ((RESULTS, CHANNELS, 3, 3), (RESULTS,), (IMAGES, HEIGHT, WIDTH, CHANNELS))
    )
    np.savez(tmp_path / "w.npz", weight=weight, bias=bias)
    nacre.compile(SOURCE, tmp_path / "m.so", weights=tmp_path / "w.npz", strict=True)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    exact = bias.astype(np.float64)
    for i in range(3):
        for j in range(3):
            exact = exact + padded[:, i : i + HEIGHT, j : j + WIDTH] @ weight[:, :, i, j].T.astype(np.float64)
    # The work items of a panel may be divided among threads.
    for threads in (1, 2):
        result = nacre.load(tmp_path / "m.so", threads=threads)(x)
        np.testing.assert_array_equal(np.asarray(result), np.maximum(exact, 0))


def test_the_stack_of_a_function_is_limited() -> None:
    writer = Writer({})
    writer.on_stack(STACK_BYTES // 4, "f32")
    with pytest.raises(Unsupported, match="bytes of the stack"):
        writer.on_stack(1, "f32")


def test_schedules() -> None:
    build = Build(read_model(SOURCE), Options(strict=True, targets=parse_targets("x86-64-v4")))
    (kernels,) = build.generate(build.lower(build.optimize())).kernels.values()
    assert ("split tile",) in [kernel.report.schedules for kernel in kernels.values()]
