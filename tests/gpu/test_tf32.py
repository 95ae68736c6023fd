"""Products of f32 on tensor cores with `--precision tf32`: factors are rounded to 11 bits, sums are those of f32."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import nacre
import numpy as np
import pytest
from assembler import check_assembly
from fake_driver import Machine, kernels_of
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.quantization.choose import in_precision
from nacre.compiler.targets.target import parse_targets

Array = np.ndarray

SOURCE = """language 1
dim B in 0..256
model crossed(x: f32[B, 70], w: f32[70, 72]) -> f32[B, 72] { return x @ w }
model deep(x: f32[3, B, 64], w: f32[3, 72, 64], b: f32[72]) -> f32[3, B, 72] {
  return relu(einsum("bmk,bnk->bmn", x, w) + b)
}
model heads(q: f32[3, B, 40], k: f32[3, 72, 40], v: f32[3, 72, 24]) -> f32[3, B, 24] { return attention(q, k, v) }
"""
NAMES = ("crossed", "deep")


def schedules(build: Build) -> set[str]:
    assert build.program is not None
    (kernels,) = build.program.kernels.values()
    return {schedule for code in kernels.values() for schedule in code.report.schedules}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("tf32") / "model.so"
    source = in_precision(read_model(SOURCE), "tf32")
    build = Build(source, Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path


def round_off(x: Array) -> Array:
    """Returns numbers of 11 bits: the nearest ones, the greater of two."""
    return ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32).astype(np.float64)


def product(name: str, x: Array, w: Array, bias: Array | None = None) -> Array:
    if bias is None:
        return x @ w
    return np.maximum(np.einsum("bmk,bnk->bmn", x, w) + bias.astype(np.float64), 0)


def arrays_of(name: str, batch: int) -> list[Array]:
    rng = np.random.default_rng(batch)
    shapes = ((batch, 70), (70, 72)) if name == "crossed" else ((3, batch, 64), (3, 72, 64), (72,))
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("name", NAMES)
def test_numbers(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    model = nacre.load(built[1], device="cuda")
    for batch in (1, 0, 3, 67):
        x, w, *bias = arrays_of(name, batch)
        result = np.asarray(model.entries[name](x, w, *bias)).astype(np.float64)
        assert not machine.error
        expected = product(name, round_off(x), round_off(w), *bias)
        scale = np.max(np.abs(expected), initial=1)
        assert np.max(np.abs(result - expected), initial=0) <= 2e-6 * scale, batch
        exact = product(name, x.astype(np.float64), w.astype(np.float64), *bias)
        # Two roundings by half of 2^-10 each; fewer terms of a sum would give less.
        assert batch == 0 or 1e-5 * scale < np.max(np.abs(result - exact)) <= 2e-3 * scale


def test_attention(machine: Machine, built: tuple[Build, Path]) -> None:
    model = nacre.load(built[1], device="cuda")
    for batch in (1, 0, 67):
        rng = np.random.default_rng(batch)
        q, k, v = (rng.normal(size=(3, *sizes)).astype(np.float32) for sizes in ((batch, 40), (72, 40), (72, 24)))
        result = np.asarray(model.entries["heads"](q, k, v)).astype(np.float64)
        assert not machine.error
        weights = np.exp(q.astype(np.float64) @ k.swapaxes(1, 2) * 40**-0.5)
        expected = weights / weights.sum(-1, keepdims=True) @ v
        # Scores, weights and values are rounded by half of 2^-10; exact products would differ by less than 1e-5.
        difference = np.max(np.abs(result - expected), initial=0)
        assert batch == 0 or 2e-5 < difference <= 2e-3


def test_only_products_that_may_be_are_rounded(built: tuple[Build, Path], tmp_path: Path) -> None:
    build, _ = built
    assert schedules(build) == {"tensor cores of 128 threads, 3 blocks", "flash attention of 128 threads, 2 blocks"}
    cases = (
        (replace(build.options, strict=True), "tf32", "rows per warp of 256 threads"),
        (build.options, "f32", "flash attention of 128 threads, 2 blocks"),
    )
    for options, precision, attention in cases:
        other = Build(in_precision(read_model(SOURCE), precision), options)
        other.make("program")
        # A transposed matrix takes more registers.
        products = {"contraction of 256 threads", "contraction of 256 threads, 2 blocks"}
        assert schedules(other) == {*products, attention}


def test_code_is_assembled_without_spills(built: tuple[Build, Path], assembled: Path) -> None:
    check_assembly(built[1], assembled, "sm_80", "sm_90", "sm_120")


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"bar(rier)?\.sync[^;]*;", ""),
        (r"cp\.async\.wait_group[^;]*;", ""),
        (r"(mma\.sync\S+\s*\{[^}]*\},\s*\{%\w+, )(%\w+), (%\w+)", r"\1\3, \2"),
    ],
)
def test_planted_fault_is_found(machine: Machine, built: tuple[Build, Path], pattern: str, replacement: str) -> None:
    machine.plant(pattern, replacement, kernels_of(built[0], "crossed"))
    model = nacre.load(built[1], device="cuda")
    x, w = arrays_of("crossed", 67)
    try:
        result = np.asarray(model.entries["crossed"](x, w)).astype(np.float64)
    except nacre.NacreError:
        assert machine.lacks_order, machine.error
        return
    assert np.max(np.abs(result - x @ w)) > 0.01
