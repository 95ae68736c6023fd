"""Products of warpgroups for sm_90a: numbers at ragged edges, tensor maps, and calls that do not fit them."""

from __future__ import annotations

import gc
import re
from contextlib import suppress
from pathlib import Path

import ml_dtypes
import nacre
import numpy as np
import pytest
from assembler import check_assembly, ptx_of
from compile_kernels import find_ptx
from fake_driver import Machine, kernels_of
from mutations import removals
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets

Array = np.ndarray

SOURCE = """language 1
dim B in 0..1024
model columns(x: f16[B, 200], w: f16[200, 136]) -> f16[B, 136] { return x @ w }
model deep(x: bf16[B, 200], w: bf16[136, 200], b: bf16[136]) -> bf16[B, 136] {
  return relu(einsum("bk,nk->bn", x, w) + b)
}
model turned(x: f16[72, B], w: f16[128, 72]) -> f16[B, 128] { return einsum("kb,nk->bn", x, w) }
model batched(x: f16[3, B, 72], w: f16[3, 72, 128]) -> f16[3, B, 128] { return x @ w }
model wide(x: f16[B, 120], w: f16[120, 1024]) -> f16[B, 1024] { return x @ w }
"""
NAMES = ("columns", "deep", "turned", "batched", "wide")
TOLERANCES = {"deep": 8e-3}
"""Half of a step between results, which are rounded once or, with a bias, twice."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("warpgroups") / "model.so"
    build = Build(read_model(SOURCE), Options(targets=parse_targets("cuda:sm_90a")))
    build.run(path)
    return build, path


@pytest.fixture
def hopper(machine: Machine) -> Machine:
    machine.reset(capability=90)
    return machine


def arrays_of(name: str, batch: int) -> list[Array]:
    rng = np.random.default_rng(batch)
    shapes: dict[str, list[tuple[int, ...]]] = {
        "columns": [(batch, 200), (200, 136)],
        "deep": [(batch, 200), (136, 200), (136,)],
        "turned": [(72, batch), (128, 72)],
        "batched": [(3, batch, 72), (3, 72, 128)],
        "wide": [(batch, 120), (120, 1024)],
    }
    dtype = ml_dtypes.bfloat16 if name == "deep" else np.float16
    return [rng.normal(size=shape).astype(dtype) for shape in shapes[name]]


def reference(name: str, *arrays: Array) -> Array:
    """The results in f64."""
    x, w, *others = (array.astype(np.float64) for array in arrays)
    if name == "deep":
        return np.maximum(x @ w.T + others[0], 0)
    return np.asarray(x.T @ w.T if name == "turned" else x @ w)


def run(artifact: Path, name: str, arrays: list[Array]) -> tuple[Array, float]:
    """Returns the results, and their greatest error as a share of the tolerance."""
    model = nacre.load(artifact, device="cuda")
    result = np.asarray(model.entries[name](*arrays)).astype(np.float64)
    expected = reference(name, *arrays)
    scale = np.max(np.abs(expected), initial=1)
    return result, float(np.max(np.abs(result - expected), initial=0) / scale / TOLERANCES.get(name, 5e-4))


@pytest.mark.parametrize("name", NAMES)
def test_numbers(hopper: Machine, built: tuple[Build, Path], name: str) -> None:
    """Calls that fit make two tensor maps: rows begin at multiples of 16 bytes, and fill half of a tile."""
    for batch in (0, 1, 64, 67, 136):
        hopper.library.fake_clear()
        _, error = run(built[1], name, arrays_of(name, batch))
        assert not hopper.error
        assert error <= 1, batch
        fits = batch >= 64 and (name != "turned" or batch % 8 == 0)
        assert hopper.log.count("cuTensorMapEncodeTiled") == 2 * fits, batch
        assert hopper.launches == (batch > 0)


@pytest.mark.parametrize("name", NAMES)
def test_each_wait_fence_and_arrival_is_needed(hopper: Machine, built: tuple[Build, Path], name: str) -> None:
    """The machine refuses a kernel without one of them, also where its numbers are right. One block uses each stage
    several times."""
    hopper.reset(capability=90, processors=1)
    build, path = built
    heads = [f".entry {kernel}" for kernel in kernels_of(build, name)]
    (module,) = (text for text in find_ptx(path.read_bytes()) if any(head in text for head in heads))
    (kernel,) = (part for part in re.split(r"(?=\n\S*\s*\.entry )", module) if "wgmma" in part)
    mutants, arrays = removals(kernel), arrays_of(name, 1024 if name == "turned" else 136)
    assert len(mutants) == 11
    survivors = []
    for label, mutant in mutants.items():
        # A device keeps its modules while a session exists, also in the traceback of an error.
        gc.collect()
        hopper.library.fake_clear()
        hopper.edit = lambda text, mutant=mutant: text.replace(kernel, mutant)
        with suppress(nacre.NacreError):
            run(path, name, arrays)
        if not hopper.error:
            survivors.append(label)
    assert survivors == []


def test_schedules(built: tuple[Build, Path]) -> None:
    program = built[0].program
    assert program is not None
    (kernels,) = program.kernels.values()
    both = ("warpgroups of 384 threads, 1 persistent block", "tensor cores of 128 threads, 3 blocks")
    assert [code.report.schedules for code in kernels.values()] == [both] * len(NAMES)
    sizes = {int(found) for text in ptx_of(built[1]) for found in re.findall(r"mma_async\S*m64n(\d+)k16", text)}
    assert sizes == {128, 256}


@pytest.mark.parametrize("name", ["columns", "batched", "wide"])
def test_persistent_blocks_loop_over_tiles(hopper: Machine, built: tuple[Build, Path], name: str) -> None:
    """No more blocks are launched than run at once. The bits of a result do not depend on their number."""
    batches, columns = {"columns": (1, 2), "batched": (3, 1), "wide": (1, 4)}[name]
    for batch in (64, 129, 256):
        arrays, tiles = arrays_of(name, batch), batches * columns * -(-batch // 128)
        results = []
        for processors in (1, 3, 132):
            gc.collect()
            hopper.reset(capability=90, processors=processors)
            result, error = run(built[1], name, arrays)
            assert not hopper.error and error <= 1
            assert hopper.blocks == min(tiles, processors), (batch, processors)
            results.append(result)
        assert all(np.array_equal(results[0], other) for other in results[1:])


def test_tiles_that_run_at_once_have_no_loop() -> None:
    source = """language 1
    model few(x: f16[256, 512], w: f16[512, 512]) -> f16[256, 512] { return x @ w }
    model many(x: f16[4096, 512], w: f16[512, 4096]) -> f16[4096, 4096] { return x @ w }
    """
    build = Build(read_model(source), Options(targets=parse_targets("cuda:sm_90a")))
    build.make("program")
    assert build.program is not None
    (kernels,) = build.program.kernels.values()
    found = sorted(
        schedule for code in kernels.values() for schedule in code.report.schedules if "warpgroups" in schedule
    )
    assert found == ["warpgroups of 384 threads, 1 block", "warpgroups of 384 threads, 1 persistent block"]


def test_other_architectures_have_no_such_code(built: tuple[Build, Path]) -> None:
    build = Build(read_model(SOURCE), Options(targets=parse_targets("cuda:sm_90")))
    build.make("program")
    assert build.program is not None
    (kernels,) = build.program.kernels.values()
    assert {code.report.schedules for code in kernels.values()} == {("tensor cores of 128 threads, 3 blocks",)}


def test_repeated_calls_are_equal(hopper: Machine, built: tuple[Build, Path]) -> None:
    """A call with other memory makes other maps."""
    model = nacre.load(built[1], device="cuda")
    first, second = arrays_of("columns", 67), arrays_of("columns", 72)
    results = [np.asarray(model.entries["columns"](*arrays)) for arrays in (first, second, first, first)]
    assert np.array_equal(results[0], results[2]) and np.array_equal(results[0], results[3])


def test_failure_to_make_a_map_is_an_error(hopper: Machine, built: tuple[Build, Path]) -> None:
    model = nacre.load(built[1], device="cuda")
    hopper.fail("cuTensorMapEncodeTiled", 2)
    with pytest.raises(nacre.NacreError, match="could not describe a tensor"):
        model.entries["columns"](*arrays_of("columns", 67))
    assert hopper.launches == 0


def test_code_is_assembled_without_spills(built: tuple[Build, Path], assembled: Path) -> None:
    check_assembly(built[1], assembled, "sm_90a")
