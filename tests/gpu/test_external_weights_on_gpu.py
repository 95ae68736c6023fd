"""External weights of artifacts with code for GPUs: one file for all targets, copied to a device once."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path

import nacre
import numpy as np
import pytest
from fake_driver import Machine
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.weights.opening import open_checkpoint
from nacre.runtime.library import ArtifactError

MODEL = """language 1
dim B in 0..64
model m(x: f32[B, 40]) -> f32[B, 50] {
  param w: f32[50, 40]
  param b: f32[50]
  return relu(x @ w.T + b)
}
"""
RNG = np.random.default_rng(1)
WEIGHT, BIAS = RNG.normal(size=(50, 40)).astype(np.float32), RNG.normal(size=50).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("external")
    np.savez(folder / "w.npz", w=WEIGHT, b=BIAS)
    for name, target in (("both", "native,cuda:sm_80"), ("gpu", "cuda:sm_80")):
        options = Options(targets=parse_targets(target), weights="external")
        Build(read_model(MODEL, folder / "w.npz"), options).run(folder / f"{name}.so")
    return folder


def assert_right(model: nacre.Model) -> None:
    x = np.random.default_rng(3).normal(size=(5, 40)).astype(np.float32)
    exact = np.maximum(x.astype(np.float64) @ WEIGHT.T + BIAS, 0)
    np.testing.assert_allclose(np.asarray(model(x)), exact, atol=1e-5)


@pytest.mark.parametrize("name", ["both", "gpu"])
def test_weights_come_from_the_file_once(machine: Machine, folder: Path, name: str) -> None:
    path = folder / f"{name}.so"
    assert WEIGHT.T.tobytes() not in path.read_bytes() and WEIGHT.tobytes() not in path.read_bytes()
    copies = []
    models = []
    for _ in range(2):
        before = machine.log.count("cuMemcpyHtoDAsync")
        models.append(nacre.load(path, device="cuda"))
        copies.append(machine.log.count("cuMemcpyHtoDAsync") - before)
        assert_right(models[-1])
    assert copies == [1, 0]
    if name == "both":
        models.append(nacre.load(path, device="cpu"))
        assert_right(models[-1])
    assert not machine.error
    models.clear()
    gc.collect()
    assert machine.left == 0


def test_the_file_has_the_weights_of_all_targets(folder: Path) -> None:
    names = set(open_checkpoint(folder / "both.so.safetensors").names())
    own = {name for name in names if name.startswith("device:")}
    assert own and names - own
    assert not any(name.startswith("device:") for name in open_checkpoint(folder / "gpu.so.safetensors").names())


@pytest.mark.parametrize("damage", ["missing", "short", "other"])
def test_wrong_file_is_an_error(machine: Machine, folder: Path, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "both.so"
    shutil.copy(folder / "both.so", path)
    file = tmp_path / "both.so.safetensors"
    if damage != "missing":
        data = bytearray((folder / "both.so.safetensors").read_bytes())
        if damage == "other":
            data[20] ^= 1
        file.write_bytes(data[:-64] if damage == "short" else data)
    with pytest.raises(ArtifactError, match="weights file"):
        nacre.load(path, device="cuda")
    gc.collect()
    assert machine.left == 0


@pytest.mark.parametrize("function", ["cuMemAlloc", "cuMemcpyHtoDAsync"])
def test_failed_copy_leaves_nothing(machine: Machine, folder: Path, function: str) -> None:
    machine.fail(function)
    with pytest.raises(ArtifactError, match="weights"):
        nacre.load(folder / "both.so", device="cuda")
    gc.collect()
    assert machine.left == 0
    machine.fail("", 0)
    assert_right(nacre.load(folder / "both.so", device="cuda"))


def test_a_weights_file_at_another_path(machine: Machine, folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "gpu.so", tmp_path / "gpu.so")
    model = nacre.load(tmp_path / "gpu.so", weights=folder / "gpu.so.safetensors", device="cuda")
    assert_right(model)
