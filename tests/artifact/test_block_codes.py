"""Weights in blocks and activations in codes, by policies, in artifacts of every level.

Weights and activations are whole numbers whose scales are 1, so that each way to compute gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.targets.target import parse_targets
from nacre.dialect.types import TABLES
from nacre.runtime.arguments import Array
from saving import save_npz

MODEL = """
dim T in 0..80
model run(x: f32[T, 96]) -> f32[T, 50] {
  param weight: f32[50, 96]
  return x @ weight.T
}
"""
NUMBERS = {
    "q4[block 32]": range(-8, 8),
    "q8[block 32]": range(-127, 128),
    "q4[block 32, zero]": range(-5, 11),
    "q8[block 32, zero]": range(-55, 201),
    "q4[block 32, nl]": sorted(TABLES["nl"][0]),
    "q4[block 32, e2m1]": sorted(TABLES["e2m1"][0]),
}
"""The numbers that have the scale 1 or -1, in increasing order."""
ACTIVATIONS = {"dynamic": range(-127, 128), "static": range(-37, 219)}
CPU_LEVELS = ("x86-64-v3", "x86-64-v4", "x86-64-v4-vnni")
OPTIONS = [{"opt_level": 0}, {}]


def numbers(rng: np.random.Generator, shape: tuple[int, ...], among: Sequence[int]) -> Array:
    """Whole numbers, the least and the greatest one among them in each block and row."""
    drawn = rng.choice(np.asarray(among, np.float32), shape)
    drawn[..., ::32], drawn[..., 1::32] = among[0], among[-1]
    return drawn


def build(folder: Path, dtype: str, scale: str) -> Array:
    """Writes the model and its policy; gives the weight."""
    rng = np.random.default_rng(5)
    weight = numbers(rng, (50, 96), NUMBERS[dtype])
    save_npz(folder / "w.npz", {"weight": weight})
    save_npz(folder / "data.npz", {"x": numbers(rng, (1, 4, 96), ACTIVATIONS[scale])})
    calibrate = f'calibrate on file "{folder / "data.npz"}"' if scale == "static" else ""
    policy = f'quantize run {{ weights "*" to {dtype}; activations matmul to i8 {scale}; {calibrate} }}'
    (folder / "policy.nacre").write_text(f"language 1\n{policy}\n")
    return weight


def check(model: nacre.Model, weight: Array, scale: str, what: object) -> None:
    rng = np.random.default_rng(6)
    for rows in (0, 1, 7, 9, 70):
        x = numbers(rng, (rows, 96), ACTIVATIONS[scale])
        assert np.array_equal(model(x), x @ weight.T), (what, rows)


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [*((dtype, "dynamic") for dtype in NUMBERS), ("q4[block 32, zero]", "static"), ("q8[block 32]", "static")],
)
def test_every_level_sums_exactly(dtype: str, scale: str, tmp_path: Path) -> None:
    weight = build(tmp_path, dtype, scale)
    for number, options in enumerate(OPTIONS):
        path, policy = tmp_path / f"{number}.so", tmp_path / "policy.nacre"
        model = nacre.compile(MODEL, path, weights=tmp_path / "w.npz", precision=str(policy), **options)
        check(model, weight, scale, options)


@pytest.mark.parametrize("dtype", ["q4[block 32]", "q4[block 32, zero]", "q8[block 32]", "q4[block 32, nl]"])
def test_one_artifact_sums_exactly_on_every_cpu(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = build(tmp_path, dtype, "dynamic")
    path, policy = tmp_path / "m.so", tmp_path / "policy.nacre"
    nacre.compile(MODEL, path, weights=tmp_path / "w.npz", precision=str(policy), target=",".join(CPU_LEVELS))
    for number, level in enumerate(CPU_LEVELS):
        if parse_targets(level)[0].runs_here:
            monkeypatch.setenv("NACRE_CPU_LEVEL", level)
            copy = tmp_path / f"{number}.so"
            copy.write_bytes(path.read_bytes())
            check(nacre.load(copy), weight, "dynamic", level)
