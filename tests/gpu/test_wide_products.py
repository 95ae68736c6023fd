"""Large products of f32 on a GPU: a thread computes 8 x 8 results where a call has many blocks of 128 x 128."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from assembler import check_assembly
from fake_driver import Machine, kernels_of, schedules_of
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.quantization.choose import in_precision
from nacre.compiler.targets.target import parse_targets
from test_device_tensors import Interface

Floats = npt.NDArray[np.float32]

PROCESSORS, TILE = 132, 128
SOURCE = """language 1
dim B in 0..300
dim M in 0..9000
dim N in 0..2000
dim K in 0..100
model plain(x: f32[B, M, K], w: f32[B, K, N]) -> f32[B, M, N] { return x @ w }
model turned(x: f32[B, M, K], w: f32[B, N, K]) -> f32[B, M, N] { return x @ w.mT }
model left(x: f32[B, K, M], w: f32[B, K, N]) -> f32[B, M, N] { return einsum("bkm,bkn->bmn", x, w) }
model shared(x: f32[M, K], w: f32[K, 256], b: f32[256], y: f32[M, 256]) -> f32[M, 256] { return relu(x @ w + b) * y }
model always(x: f32[1500, 20], w: f32[20, 1536]) -> f32[1500, 1536] { return x @ w }
model never(x: f32[256, 20], w: f32[20, 1536]) -> f32[256, 1536] { return x @ w }
model empty(x: f32[M, K], w: f32[K, 130]) -> f32[M, 130] { return x @ w }
"""
WIDE, OTHERS = "wide contraction of 256 threads, 2 blocks", "contraction of 256 threads"
OTHERS_OF_TURNED = f"{OTHERS}, 2 blocks"
BOTH = ("plain", "turned", "left", "shared")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("wide") / "model.so"
    build = Build(read_model(SOURCE), Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path


def numbers(*shape: int) -> Floats:
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape).astype(np.float32)


def check(result: object, x: Floats, w: Floats) -> None:
    right = x.astype(np.float64) @ w
    # A sum of k products has an error of k roundings at most.
    bound = (x.shape[-1] + 1) * 2**-24 * (np.abs(x).astype(np.float64) @ np.abs(w))
    assert np.asarray(result).shape == right.shape
    assert np.all(np.abs(np.asarray(result) - right) <= bound)


def test_schedules(built: tuple[Build, Path], assembled: Path) -> None:
    for name in (*BOTH, "always", "never", "empty"):
        others = OTHERS_OF_TURNED if name == "turned" else OTHERS
        expected = [WIDE, others] if name in BOTH else [WIDE] if name == "always" else [others]
        assert [each for each in schedules_of(built[0], name) if "contraction" in each] == expected, name
    check_assembly(built[1], assembled, "sm_80", "sm_90")


def test_tensor_cores_are_taken_in_tf32(tmp_path: Path) -> None:
    source = in_precision(read_model(SOURCE), "tf32")
    build = Build(source, Options(targets=parse_targets("cuda:sm_80")))
    build.run(tmp_path / "model.so")
    assert not [each for each in schedules_of(build, "always") if "contraction" in each]


SIZES = [(132, 1, 1, 1), (132, 5, 3, 0), (132, 128, 4, 17), (66, 129, 8, 16), (33, 130, 129, 33), (7, 1, 1, 40)]
"""Batches, rows, columns and the depth: sizes that copies by 16 bytes fit, odd ones, and a call with few blocks."""


@pytest.mark.parametrize("name", ["plain", "turned", "left"])
def test_results(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    entry = nacre.load(built[1], device="cuda").entries[name]
    for batch, rows, columns, depth in SIZES:
        x, w = numbers(batch, rows, depth), numbers(batch, depth, columns)
        given = {"turned": (x, w.swapaxes(-1, -2)), "left": (x.swapaxes(-1, -2), w)}.get(name, (x, w))
        begin = machine.launches
        result = entry(*map(np.ascontiguousarray, given))
        assert not machine.error
        blocks = [machine.blocks_of(number) for number in range(begin, machine.launches)]
        tiles = batch * -(-rows // TILE) * -(-columns // TILE)
        assert blocks[-1] == (tiles if tiles >= PROCESSORS else batch * -(-rows // 64) * -(-columns // 64)), blocks
        check(result, x, w)


def test_bits_are_those_of_smaller_tiles(machine: Machine, built: tuple[Build, Path]) -> None:
    entry = nacre.load(built[1], device="cuda").entries["plain"]
    x, w = numbers(132, 9, 37), numbers(132, 37, 7)
    whole = np.asarray(entry(x, w))
    for batch in (0, 131):
        np.testing.assert_array_equal(entry(x[batch : batch + 1], w[batch : batch + 1])[0], whole[batch])
    assert not machine.error


def test_ops_after_the_product(machine: Machine, built: tuple[Build, Path]) -> None:
    model = nacre.load(built[1], device="cuda")
    x, w, b, y = numbers(8445, 9), numbers(9, 256), numbers(256), numbers(8445, 256)
    result = model.entries["shared"](x, w, b, y)
    assert not machine.error
    np.testing.assert_allclose(result, np.maximum(x.astype(np.float64) @ w + b, 0) * y, atol=2e-5)
    x, w = numbers(1500, 20), numbers(20, 1536)
    check(model.entries["always"](x, w), x, w)
    assert not machine.error


@pytest.mark.parametrize("offset", [0, 4])
def test_memory_that_is_not_aligned(machine: Machine, built: tuple[Build, Path], offset: int) -> None:
    """Copies by 4 bytes replace those by 16, and no thread of a block races with another one."""
    machine.find_races()
    entry = nacre.load(built[1], device="cuda").entries["plain"]
    x, w = numbers(66, 129, 20), numbers(66, 20, 12)
    device = [Interface(machine, array, offset) for array in (x, w)]
    result = entry(*device)
    assert not machine.error
    check(result, x, w)
    for tensor in device:
        tensor.release()


@pytest.mark.parametrize(("name", "deep"), [("plain", 1), ("turned", 2), ("left", 0)])
def test_reads_have_no_bank_conflicts(machine: Machine, built: tuple[Build, Path], name: str, deep: int) -> None:
    """Two rows of a tile along the depth, which eight threads copy at once, share four banks."""
    entry = nacre.load(built[1], device="cuda").entries[name]
    x, w = numbers(132, 128, 16), numbers(132, 16, 128)
    given = {"turned": (x, w.swapaxes(-1, -2)), "left": (x.swapaxes(-1, -2), w)}.get(name, (x, w))
    counted = machine.count_banks(lambda: entry(*map(np.ascontiguousarray, given)))
    copies = 2 * PROCESSORS
    assert counted.conflicts == copies * deep * TILE * 4 // 8, (counted.conflicts, counted.phases)


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"bar\.sync[^;]*;", ""),
        (r"cp\.async\.wait_group[^;]*;", ""),
        (r"(cp\.async\.cg\.shared\.global\s+\[[^]]*\], \[[^]]*\], 16), [^;]*;", r"\1;"),
    ],
)
def test_planted_fault_is_found(machine: Machine, built: tuple[Build, Path], pattern: str, replacement: str) -> None:
    """Without barriers, without waiting for copies, and with copies that read behind the end of the operands."""
    machine.plant(pattern, replacement, kernels_of(built[0], "plain"))
    machine.find_races()
    entry = nacre.load(built[1], device="cuda").entries["plain"]
    x, w = numbers(132, 5, 36), numbers(132, 36, 8)
    try:
        result = entry(x, w)
    except nacre.NacreError:
        assert machine.error
        return
    with pytest.raises(AssertionError):
        check(result, x, w)
