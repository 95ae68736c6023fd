"""Windows along rows on a GPU, as those of depthwise convolutions and pooling with the channels first: a thread reads
the elements that neighbouring results share once, by vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
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
model depthwise(x: f16[B, 3, 6, 12], w: f16[3, 1, 3, 3], b: f16[3]) -> f16[B, 3, 6, 12] {
  return relu(conv2d(x, w, b, padding=1, groups=3))
}
model valid(x: bf16[B, 2, 9, 8], w: bf16[2, 1, 5, 5]) -> bf16[B, 2, 5, 4] { return conv2d(x, w, groups=2) }
model strided(x: f32[B, 2, 8, 16], w: f32[2, 1, 5, 5]) -> f32[B, 2, 4, 8] {
  return conv2d(x, w, padding=2, stride=2, groups=2)
}
model dilated(x: f32[B, 2, 7, 12], w: f32[2, 1, 3, 3]) -> f32[B, 2, 7, 12] {
  return conv2d(x, w, padding=2, dilation=2, groups=2)
}
model wide(x: f16[B, 2, 8, 16], w: f16[2, 1, 7, 7]) -> f16[B, 2, 8, 16] { return conv2d(x, w, padding=3, groups=2) }
model greatest(x: f32[B, 3, 12, 16]) -> f32[B, 3, 6, 8] { return max_pool2d(x, 3, stride=2, padding=1) }
model halves(x: f16[B, 2, 6, 12]) -> f16[B, 2, 3, 6] { return max_pool2d(x, 2) }
model mean(x: f32[B, 2, 8, 8]) -> f32[B, 2, 4, 4] { return avg_pool2d(x, 2) }
model signal(x: f32[B, 3, 20], w: f32[3, 1, 3]) -> f32[B, 3, 20] { return conv1d(x, w, padding=1, groups=3) }
model odd(x: f16[B, 3, 7, 7], w: f16[3, 1, 3, 3]) -> f16[B, 3, 7, 7] { return conv2d(x, w, padding=1, groups=3) }
model long(x: f32[B, 1, 40], w: f32[1, 1, 17]) -> f32[B, 1, 24] { return conv1d(x, w) }
"""
WIDTHS = {
    "depthwise": 4,
    "valid": 4,
    "strided": 4,
    "dilated": 4,
    "wide": 4,
    "greatest": 4,
    "halves": 2,
    "mean": 4,
    "signal": 4,
    "odd": 1,
    "long": 1,
}
"""The neighbouring results of a thread. Rows of 7 elements have no vectors, and 17 elements of a window are many."""
WINDOWS = {"strided": (5, 2, 2, 1), "dilated": (3, 1, 2, 2), "greatest": (3, 2, 1, 1), "halves": (2, 2, 0, 1)}
WINDOWS |= {"mean": (2, 2, 0, 1), "valid": (5, 1, 0, 1), "wide": (7, 1, 3, 1), "long": (17, 1, 0, 1)}
"""The size, the stride, the padding and the dilation of the windows; those of the others are 3, 1, 1 and 1."""
DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
TOLERANCES = {"f32": 2e-6, "f16": 2**-9, "bf16": 2**-7}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("windows") / "model.so"
    build = Build(read_model(SOURCE), Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path


def make_arrays(model: nacre.Model, name: str, batch: int) -> list[Array]:
    rng = np.random.default_rng(batch)
    (entry,) = (entry for entry in model.describe()["entries"] if entry["name"] == name)
    sizes = [[batch if size == "B" else size for size in each["shape"]] for each in entry["arguments"]]
    # Maxima of numbers below 0 show where padding counts as 0.
    shift = -4 if name in ("greatest", "halves") else 0
    dtypes = [DTYPES[each["dtype"]] for each in entry["arguments"]]
    return [(rng.normal(size=shape) + shift).astype(dtype) for shape, dtype in zip(sizes, dtypes, strict=True)]


def reference(name: str, x: Array, w: Array | None = None, b: Array | None = None) -> Array:
    size, stride, padding, dilation = WINDOWS.get(name, (3, 1, 1, 1))
    is_greatest = name in ("greatest", "halves")
    axes = tuple(range(2, x.ndim))
    padded = [(0, 0), (0, 0)] + [(padding, padding)] * len(axes)
    wide = np.pad(x.astype(np.float64), padded, constant_values=-np.inf if is_greatest else 0.0)
    reach = (size - 1) * dilation + 1
    view = np.lib.stride_tricks.sliding_window_view(wide, (reach,) * len(axes), axis=axes)
    steps = (slice(None, None, stride),) * len(axes) + (slice(None, None, dilation),) * len(axes)
    view = view[(slice(None), slice(None), *steps)]
    inner = tuple(range(-len(axes), 0))
    if w is None:
        return np.asarray(view.max(inner) if is_greatest else view.mean(inner))
    own = w.astype(np.float64).reshape(1, len(w), *(1,) * len(axes), *w.shape[2:])
    total = (view * own).sum(inner)
    return np.asarray(total if b is None else np.maximum(total + b.astype(np.float64)[:, None, None], 0))


def check(name: str, result: Array, arrays: list[Array]) -> None:
    expected = reference(name, *arrays)
    assert result.shape == expected.shape
    largest = max(1.0, float(np.abs(expected).max(initial=0)))
    kind = next(kind for kind, dtype in DTYPES.items() if result.dtype == dtype)
    assert np.max(np.abs(result.astype(np.float64) - expected), initial=0) <= TOLERANCES[kind] * largest


@pytest.mark.parametrize("name", WIDTHS)
def test_schedules(built: tuple[Build, Path], name: str) -> None:
    """Most elements are read by vectors, and results are written by them."""
    (kernel,) = kernels_of(built[0], name)
    (schedule,) = schedules_of(built[0], name)
    assert schedule.startswith("row windows of 256 threads") == (WIDTHS[name] > 1)
    (code,) = (c for c in read_artifact(built[1], CHIPS["a100"].architecture) if c.name.startswith(kernel))
    bytes = WIDTHS[name] * (4 if name in ("strided", "dilated", "greatest", "mean", "signal", "long") else 2)
    assert max(code.reads)[0] == max(code.writes)[0] == bytes


@pytest.mark.parametrize("name", WIDTHS)
def test_numbers(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    model = nacre.load(built[1], device="cuda")
    for batch in (0, 1, 3):
        arrays = make_arrays(model, name, batch)
        result = np.asarray(model.entries[name](*arrays))
        assert not machine.error
        check(name, result, arrays)


@pytest.mark.parametrize("name", ["depthwise", "greatest"])
def test_tensors_that_are_not_aligned(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    model = nacre.load(built[1], device="cuda")
    x, *others = make_arrays(model, name, 2)
    device = Interface(machine, x, offset=x.itemsize)
    result = np.asarray(model.entries[name](device, *others))
    assert not machine.error
    check(name, result, [x, *others])
    device.release()


def test_code_is_assembled_without_spills(built: tuple[Build, Path], assembled: Path) -> None:
    check_assembly(built[1], assembled, "sm_80", "sm_90")


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"(ld\.global\.nc\.v2\.b32\s+)\{(%r\d+), (%r\d+)\}", r"\1{\3, \2}"),
        (r"(setp\.gt\.u64\s+%p\d+, %rd\d+), 7;", r"\1, 3;"),
        (r"(setp\.gt\.u64\s+%p\d+, %rd\d+), 5;", r"\1, 4;"),
    ],
    ids=["vector", "neighbour", "padding"],
)
def test_planted_fault_is_found(machine: Machine, built: tuple[Build, Path], pattern: str, replacement: str) -> None:
    """With exchanged elements, without the neighbour of a vector in the middle of a row, and without the last row."""
    machine.plant(pattern, replacement, kernels_of(built[0], "depthwise"))
    model = nacre.load(built[1], device="cuda")
    arrays = make_arrays(model, "depthwise", 1)
    try:
        result = np.asarray(model.entries["depthwise"](*arrays))
    except nacre.NacreError:
        assert machine.error
        return
    assert not np.max(np.abs(result.astype(np.float64) - reference("depthwise", *arrays))) <= 0.05
