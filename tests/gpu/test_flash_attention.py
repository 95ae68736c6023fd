"""Attention on a GPU is one launch: its numbers at odd sizes, its registers, and the keys that a mask hides."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import nacre
import numpy as np
import pytest
from assembler import check_assembly
from fake_driver import Machine, kernels_of
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets

Array = np.ndarray

SOURCE = """language 1
dim T in 0..300
dim S in 0..300

model grouped(q: f16[2, 4, T, 64], k: f16[2, 2, S, 64], v: f16[2, 2, S, 64], m: bool[2, 1, 1, S]) -> f16[2, 4, T, 64] {
  return attention(q, k, v, mask=m, causal=true)
}
model biased(q: bf16[2, T, 32], k: bf16[2, S, 32], v: bf16[2, S, 40], mask: bf16[T, S]) -> bf16[2, T, 40] {
  return attention(q, k, v, mask=mask, scale=0.5)
}
model wide(q: f16[1, T, 256], k: f16[1, S, 256], v: f16[1, S, 256]) -> f16[1, T, 256] {
  return attention(q, k, v, causal=true)
}
model decode(q: f16[2, 4, 1, 128], k: f16[2, 2, S, 128], v: f16[2, 2, S, 128]) -> f16[2, 4, 1, 128] {
  return attention(q, k, v)
}
model odd(q: f16[3, T, 20], k: f16[3, 20, S], v: f16[3, S, 20], keep: bool[T, S]) -> f16[3, T, 20] {
  return softmax(where(keep, q @ k, -inf)) @ v
}
"""
EXACT = "exact_"
_MODEL = re.compile(r"model (?:grouped|wide|decode|odd)\(.*?\n}\n", re.DOTALL)
SOURCE += "".join(text.replace("model ", f"model {EXACT}").replace("f16", "f32") for text in _MODEL.findall(SOURCE))
SOURCE += """
model exact_narrow(q: f32[2, 4, T, 64], k: f16[2, 2, S, 64], v: f16[2, 2, S, 64]) -> f32[2, 4, T, 64] {
  return attention(q, cast(k, f32), cast(v, f32), causal=true)
}
"""
SIZES = [(1, 1), (3, 0), (5, 130), (65, 65), (67, 67), (0, 3), (70, 9)]
DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "bool": np.bool_}


def softmax(scores: Array) -> Array:
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True, initial=-np.inf))
        return weights / weights.sum(-1, keepdims=True)


def reference(name: str, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    """The results in f64."""
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    name = name.removeprefix(EXACT)
    if name in ("grouped", "decode", "narrow"):
        k, v = (np.repeat(array, 2, axis=1) for array in (k, v))
    if name == "odd":
        assert mask is not None
        return softmax(np.where(mask, q @ k, -np.inf)) @ v
    scores = q @ k.swapaxes(-1, -2) * (0.5 if name == "biased" else q.shape[-1] ** -0.5)
    if name == "biased":
        assert mask is not None
        return softmax(scores + mask.astype(np.float64)) @ v
    rows, keys = scores.shape[-2:]
    keep = np.ones((rows, keys), bool) if mask is None else mask
    if name != "decode":
        keep = keep & (np.arange(keys) <= np.arange(rows)[:, None] + keys - rows)
    return softmax(np.where(keep, scores, -65504.0)) @ v


def make_arrays(model: nacre.Model, name: str, rows: int, keys: int) -> list[Array]:
    rng = np.random.default_rng(rows * 1000 + keys)
    (entry,) = (entry for entry in model.describe()["entries"] if entry["name"] == name)
    made = []
    for argument in entry["arguments"]:
        shape = [{"T": rows, "S": keys}.get(size, size) for size in argument["shape"]]
        dtype = DTYPES[argument["dtype"]]
        # Small scores have small errors when they are rounded.
        values = rng.normal(size=shape) * (0.25 if name in ("biased", "odd") else 1)
        made.append(rng.random(shape) < 0.8 if dtype is np.bool_ else values.astype(dtype))
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("flash") / "model.so"
    build = Build(read_model(SOURCE), Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path


ENTRIES = re.findall(r"model (\w+)", SOURCE)


def test_attention_is_one_launch(built: tuple[Build, Path]) -> None:
    program = built[0].program
    assert program is not None
    (kernels,) = program.kernels.values()
    schedules = [code.report.schedules for code in kernels.values()]
    # Another launch combines the parts of the keys where they are split: here, wherever there is no causal mask.
    split = [each[1] for each in schedules if len(each) > 1]
    name = "combined attention of 128 threads"
    assert sorted(split) == [name] * 2 + [f"{name}, 2 blocks"] * 3
    assert sum(each[0].startswith("flash attention of 128 threads") for each in schedules) == len(ENTRIES)


@pytest.mark.parametrize("name", ENTRIES)
def test_numbers(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    model = nacre.load(built[1], device="cuda")
    for rows, keys in SIZES:
        arrays = make_arrays(model, name, rows, keys)
        result = np.asarray(model.entries[name](*arrays)).astype(np.float64)
        assert not machine.error
        expected = reference(name, *arrays)
        # Scores and shares are rounded to the dtype; those of f32 are sums of up to 256 products.
        tolerance = 4e-6 if name.startswith(EXACT) else 0.02 if name == "biased" else 0.004
        assert np.array_equal(np.isnan(result), np.isnan(expected)), (rows, keys)
        assert np.nanmax(np.abs(result - expected), initial=0) <= tolerance, (rows, keys)


def test_row_without_a_key_is_not_a_number(machine: Machine, built: tuple[Build, Path]) -> None:
    model = nacre.load(built[1], device="cuda")
    q, k, v, keep = make_arrays(model, "odd", 5, 130)
    keep[3] = False
    result = np.asarray(model.entries["odd"](q, k, v, keep))
    assert np.isnan(result[:, 3]).all() and np.isfinite(np.delete(result, 3, axis=1)).all()


def test_tiles_behind_a_causal_mask_are_not_touched(machine: Machine, built: tuple[Build, Path]) -> None:
    """A number that is not finite shows where it is read, even if its weight is 0."""
    model = nacre.load(built[1], device="cuda")
    q, k, v = make_arrays(model, "wide", 130, 130)
    expected = reference("wide", q, k, v)
    k[:, 64:], v[:, 64:] = np.nan, np.nan
    result = np.asarray(model.entries["wide"](q, k, v)).astype(np.float64)
    assert np.max(np.abs(result - expected)[:, :64]) <= 0.004
    assert np.isnan(result[:, 64:]).all()


@pytest.mark.parametrize(("name", "rows", "keys"), [("wide", 130, 70), ("grouped", 130, 130)])
def test_rows_that_see_no_key_attend_to_all(
    machine: Machine, built: tuple[Build, Path], name: str, rows: int, keys: int
) -> None:
    """The tiles behind a causal mask count for them: where there are more rows than keys, and where another mask hides
    the keys before."""
    model = nacre.load(built[1], device="cuda")
    arrays = make_arrays(model, name, rows, keys)
    if name == "grouped":
        arrays[3][...] = np.arange(keys) >= 64
    result = np.asarray(model.entries[name](*arrays)).astype(np.float64)
    assert not machine.error
    assert np.max(np.abs(result - reference(name, *arrays))) <= 0.004


def test_code_is_assembled_without_spills(built: tuple[Build, Path], assembled: Path) -> None:
    check_assembly(built[1], assembled, "sm_80", "sm_90", "sm_120")


FAULTS = (
    (r"bar(rier)?\.sync[^;]*;", ""),
    (r"cp\.async\.wait_group[^;]*;", ""),
    (r"shfl\.sync\.bfly\.b32 (.*), 1, 31, -1;", r"shfl.sync.bfly.b32 \1, 4, 31, -1;"),
)
TRANSPOSED = (r"\.trans\.shared", ".shared")
"""Only matrices of f16 are transposed as they are loaded."""


@pytest.mark.parametrize(
    ("name", "pattern", "replacement"),
    [*(("grouped", *fault) for fault in (*FAULTS, TRANSPOSED)), *((f"{EXACT}grouped", *fault) for fault in FAULTS)],
)
def test_planted_fault_is_found(
    machine: Machine, built: tuple[Build, Path], name: str, pattern: str, replacement: str
) -> None:
    """Without a barrier, without waiting for a copy, with another lane, with a matrix that is not transposed."""
    machine.plant(pattern, replacement, kernels_of(built[0], name))
    model = nacre.load(built[1], device="cuda")
    arrays = make_arrays(model, name, 67, 67)
    try:
        result = np.asarray(model.entries[name](*arrays)).astype(np.float64)
    except nacre.NacreError:
        assert machine.lacks_order, machine.error
        return
    assert not np.max(np.abs(result - reference(name, *arrays))) <= 0.01
