"""Every tile of a product is computed, in an order that shares operands in the L2 cache."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from fake_driver import Machine
from nacre.compiler.codegen.gpu.tile_order import TOGETHER

SOURCE = """language 1
dim M in 0..4096
dim N in 0..4096
model plain(x: f16[M, 32], w: f16[32, N]) -> f16[M, N] { return x @ w }
model batched(x: f16[2, M, 32], w: f16[2, 32, N]) -> f16[2, M, N] { return x @ w }
"""
HOPPER = """language 1
dim M in 0..4096
model plain(x: f16[M, 64], w: f16[64, 136]) -> f16[M, 136] { return x @ w }
"""
ROWS = TOGETHER * 128 + 52
"""A band of rows of tiles, and a part of another one."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("order") / "model.so"
    nacre.compile(SOURCE, path, target="cuda:sm_80")
    return path


def check(path: Path, name: str, *shapes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    x, w = (rng.integers(-4, 5, shape).astype(np.float16) for shape in shapes)
    result = np.asarray(nacre.load(path, device="cuda").entries[name](x, w))
    # Sums of small integers are exact.
    assert np.array_equal(result, x.astype(np.float32) @ w.astype(np.float32))


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("plain", ((ROWS, 32), (32, 136))),
        ("plain", ((1, 32), (32, 200))),
        ("plain", ((130, 32), (32, 1))),
        ("batched", ((2, 300, 32), (2, 32, 72))),
    ],
)
def test_numbers(machine: Machine, built: Path, name: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    check(built, name, *shapes)
    assert machine.launches and not machine.error


def test_products_of_warpgroups(machine: Machine, tmp_path: Path) -> None:
    machine.reset(capability=90, processors=5)
    nacre.compile(HOPPER, tmp_path / "model.so", target="cuda:sm_90a")
    check(tmp_path / "model.so", "plain", (ROWS, 64), (64, 136))
    assert machine.blocks == 5 and not machine.error
