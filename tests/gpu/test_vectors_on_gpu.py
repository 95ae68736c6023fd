"""Maps with elements of 8 bytes, and with truth values beside other elements: a thread computes four neighbours, and
reads and writes all but the truth values by vectors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from assembler import check_assembly
from fake_driver import Machine, kernels_of, schedules_of
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.chips import CHIPS
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.tools.profile.device_code import read_artifact
from test_device_tensors import Interface

Array = npt.NDArray[Any]
SOURCE = """language 1
dim B in 0..64
dim T in 0..64
model chosen(m: bool[B, 32], x: f32[B, 32], y: f32[B, 32]) -> f32[B, 32] { return where(m, x, y) }
model above(x: f16[B, 32]) -> bool[B, 32] { return x > 0 }
model linear(m: bool[B, 33], x: f32[B, 33]) -> f32[B, 33] { return where(m, x, 0) }
model open(m: bool[B, T], x: f16[B, T]) -> f16[B, T] { return where(m, x, 0) }
model doubles(x: f64[B, 32], y: f64[B, 32]) -> f64[B, 32] { return x * 2 + y }
model divided(x: f64[B, 32], y: f64[B, 32]) -> f64[B, 32] { return x / y }
model places(x: i64[B, 33]) -> i64[B, 33] { return x + 1 }
model widened(x: i32[B, 32]) -> i64[B, 32] { return cast(x, i64) }
model masked(x: f32[B, 64], m: bool[B, 64]) -> f32[B, 64] { return softmax(where(m, x, -1e9)) }
"""


def _shares(x: Array, m: Array) -> Array:
    scores = np.where(m, x, -1e9).astype(np.float64)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


MEANINGS: dict[str, Callable[..., Array]] = {
    "chosen": lambda m, x, y: np.where(m, x, y),
    "above": lambda x: x > 0,
    "linear": lambda m, x: np.where(m, x, 0),
    "open": lambda m, x: np.where(m, x, 0),
    "doubles": lambda x, y: x * 2 + y,
    "divided": lambda x, y: x / y,
    "places": lambda x: x + 1,
    "widened": lambda x: x.astype(np.int64),
    "masked": _shares,
}
WIDEST = {"chosen": (16, 16), "above": (8, 1), "linear": (16, 16), "open": (8, 8)}
"""The bytes of the widest read and write of an entry; those of the others are 16. A truth value has one."""
DTYPES = {"bool": np.bool_, "f16": np.float16, "f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("vectors") / "model.so"
    build = Build(read_model(SOURCE), Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path


def make_arrays(model: nacre.Model, name: str, batch: int, row: int) -> list[Array]:
    rng = np.random.default_rng(batch + row)
    (entry,) = (entry for entry in model.describe()["entries"] if entry["name"] == name)
    made = []
    for argument in entry["arguments"]:
        shape = [{"B": batch, "T": row}.get(size, size) for size in argument["shape"]]
        values = rng.normal(size=shape) * 100
        made.append((values > 0) if argument["dtype"] == "bool" else values.astype(DTYPES[argument["dtype"]]))
    return made


def check(name: str, result: Array, arrays: list[Array]) -> None:
    expected = MEANINGS[name](*arrays)
    assert result.shape == expected.shape
    # Products, sums and quotients of single elements are exact, or rounded once.
    tolerance = 1e-6 if name == "masked" else 0.0
    assert np.max(np.abs(result.astype(np.float64) - expected.astype(np.float64)), initial=0) <= tolerance


@pytest.mark.parametrize("name", MEANINGS)
def test_schedules(built: tuple[Build, Path], name: str) -> None:
    assert all("plain" not in schedule for schedule in schedules_of(built[0], name))
    (kernel,) = kernels_of(built[0], name)
    codes = [code for code in read_artifact(built[1], CHIPS["a100"].architecture) if code.name.startswith(kernel)]
    both = zip(*((code.reads, code.writes) for code in codes), strict=True)
    widest = tuple(max(max(accesses)[0] for accesses in each) for each in both)
    assert widest == WIDEST.get(name, (16, 16))


@pytest.mark.parametrize("name", MEANINGS)
def test_numbers(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    model = nacre.load(built[1], device="cuda")
    for batch, row in ((0, 8), (1, 0), (1, 3), (5, 8), (9, 33)):
        arrays = make_arrays(model, name, batch, row)
        result = np.asarray(model.entries[name](*arrays))
        assert not machine.error
        check(name, result, arrays)


@pytest.mark.parametrize("name", ["chosen", "doubles", "linear", "masked"])
def test_tensors_that_are_not_aligned(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    model = nacre.load(built[1], device="cuda")
    arrays = make_arrays(model, name, 5, 8)
    device = [Interface(machine, each, offset=each.itemsize) for each in arrays]
    result = np.asarray(model.entries[name](*device))
    assert not machine.error
    check(name, result, arrays)
    for tensor in device:
        tensor.release()


def test_quotients_in_f64_have_the_registers_of_few_blocks(built: tuple[Build, Path]) -> None:
    assert schedules_of(built[0], "divided") == ["vectors of 256 threads, 4 blocks"]
    assert schedules_of(built[0], "doubles") == ["vectors of 256 threads"]


def test_code_is_assembled_without_spills(built: tuple[Build, Path], assembled: Path) -> None:
    check_assembly(built[1], assembled, "sm_80", "sm_90")
