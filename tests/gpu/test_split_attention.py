"""Attention of few query rows on a GPU: blocks share the keys, and another launch combines their parts."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import nacre
import numpy as np
import pytest
from assembler import check_assembly
from fake_driver import Machine, kernels_of, schedules_of
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets

Array = np.ndarray

SOURCE = """language 1
dim S in 0..1100
dim T in 0..100

model grouped(q: f16[2, 4, 3, 32], k: f16[2, 2, S, 32], v: f16[2, 2, S, 32], m: bool[2, 1, 1, S]) -> f16[2, 4, 3, 32] {
  return attention(q, k, v, mask=m, causal=true)
}
model exact(q: f32[3, 1, 20], k: f32[3, S, 20], v: f32[3, S, 45]) -> f32[3, 1, 45] { return attention(q, k, v) }
model wide(q: f16[1, 2, 256], k: f16[1, S, 256], v: f16[1, S, 256]) -> f16[1, 2, 256] { return attention(q, k, v) }
model cache(q: f32[2, 4, 32], k: f32[2, 32, S], v: f32[2, S, 32], length: i64) -> f32[2, 4, 32] {
  scores = mask_after(q @ k * 0.125, length, fill=-inf, mode="clamp")
  return softmax(scores) @ mask_after(v, length, axis=-2, mode="clamp")
}
model half(q: f32[2, 4, 32], k: f16[2, 32, S], v: bf16[2, S, 32], length: i64) -> f32[2, 4, 32] {
  scores = mask_after(q @ cast(k, f32) * 0.125, length, fill=-inf, mode="clamp")
  return softmax(scores) @ mask_after(cast(v, f32), length, axis=-2, mode="clamp")
}
model bytes(
  q: f32[2, 4, 32], k: i8[2, 32, S], v: i8[2, S, 32], length: i64, ks: f32[2, 1, S], vs: f32[2, 1, S]
) -> f32[2, 4, 32] {
  scores = mask_after(q @ cast(k, f32) * ks, length, fill=-inf, mode="clamp")
  shares = mask_after(softmax(scores) * vs, length, mode="clamp")
  return shares @ mask_after(cast(v, f32), length, axis=-2, mode="clamp")
}
model texts(q: f16[3, 4, 32], k: f16[3, S, 32], v: f16[3, S, 32], ends: i64[3]) -> f16[3, 4, 32] {
  scores = mask_after(q @ k.mT * 0.125, ends, fill=-inf, mode="clamp")
  return softmax(scores) @ mask_after(v, ends, axis=-2, mode="clamp")
}
model open(q: f16[2, T, 32], k: f16[2, S, 32], v: f16[2, S, 32]) -> f16[2, T, 32] { return attention(q, k, v) }
model many(q: f16[66, 2, 1, 32], k: f16[66, 2, S, 32], v: f16[66, 2, S, 32]) -> f16[66, 2, 1, 32] {
  return attention(q, k, v)
}
model short(q: f16[2, 1, 32], k: f16[2, 511, 32], v: f16[2, 511, 32]) -> f16[2, 1, 32] { return attention(q, k, v) }
"""
TURNED = ("cache", "half", "bytes")
"""Attention in which keys lie along the depth in memory."""
MASKED = (*TURNED, "texts")
SPLIT = ("grouped", "exact", "wide", "open", *MASKED)
UNSPLIT = ("many", "short")
"""A block for each of 132 multiprocessors, and fewer keys than two parts have."""
DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
SIZES = (0, 1, 511, 512, 513, 767, 1025)


def softmax(scores: Array) -> Array:
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True, initial=-np.inf))
        return weights / weights.sum(-1, keepdims=True)


def reference(name: str, q: Array, k: Array, v: Array, mask: Array | None = None, *scales: Array) -> Array:
    """The results in f64."""
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    if scales:
        k, v = 8 * scales[0] * k, scales[1].swapaxes(-1, -2) * v
    if name in MASKED:
        assert mask is not None
        keys = np.arange(v.shape[1])
        keep = keys < np.clip(mask, 0, len(keys))[..., None, None]
        scores = q @ (k if name in TURNED else k.swapaxes(-1, -2)) * 0.125
        kept = np.where(keep.swapaxes(-1, -2), v, 0.0)
        shares = softmax(np.where(keep, scores, -np.inf))
        # A length of 0 leaves no share where shares are masked too.
        return (np.where(keep, shares, 0.0) if scales else shares) @ kept
    if name == "grouped":
        k, v = (np.repeat(array, 2, axis=1) for array in (k, v))
    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    rows, keys = scores.shape[-2:]
    if mask is not None:
        keep = mask & (np.arange(keys) <= np.arange(rows)[:, None] + keys - rows)
        scores = np.where(keep, scores, -65504.0)
    return softmax(scores) @ v


def make_arrays(model: nacre.Model, name: str, keys: int, rows: int = 1) -> list[Array]:
    rng = np.random.default_rng(keys)
    (entry,) = (entry for entry in model.describe()["entries"] if entry["name"] == name)
    made = []
    for argument in entry["arguments"]:
        shape = [{"S": keys, "T": rows}.get(size, size) for size in argument["shape"]]
        if argument["dtype"] == "i64":
            made.append(np.array([keys, keys // 2, 3] if shape else max(keys - 70, 1), np.int64))
        elif argument["dtype"] == "bool":
            made.append(rng.random(shape) < 0.8)
        elif argument["dtype"] == "i8":
            made.append(rng.integers(-127, 128, shape).astype(np.int8))
        else:
            size = 0.01 if argument["name"] in ("ks", "vs") else 1
            made.append((rng.normal(size=shape) * size).astype(DTYPES[argument["dtype"]]))
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("split") / "model.so"
    build = Build(read_model(SOURCE), Options(targets=parse_targets("cuda:sm_80")))
    build.run(path)
    return build, path


def test_keys_are_split(built: tuple[Build, Path], assembled: Path) -> None:
    for name in (*SPLIT, *UNSPLIT):
        found = [each for each in schedules_of(built[0], name) if "attention" in each]
        both = ["flash attention of 128 threads", "combined attention of 128 threads"]
        assert [each.partition(" threads")[0] + " threads" for each in found] == both[: 1 + (name in SPLIT)], name
    check_assembly(built[1], assembled, "sm_80", "sm_90")


def blocks_of(machine: Machine, call: Callable[[], object]) -> list[int]:
    begin = machine.launches
    call()
    return [machine.blocks_of(number) for number in range(begin, machine.launches)]


@pytest.mark.parametrize(
    ("name", "keys", "expected"),
    [
        ("exact", 1, [3]),
        ("exact", 511, [3]),
        ("exact", 512, [6, 3]),
        ("exact", 767, [6, 3]),
        ("exact", 1025, [12, 3]),
        ("wide", 1023, [2]),
        ("wide", 1024, [4, 2]),
        ("many", 1025, [132]),
        ("open", 511, [2]),
        ("open", 1025, [8, 2]),
    ],
)
def test_blocks(machine: Machine, built: tuple[Build, Path], name: str, keys: int, expected: list[int]) -> None:
    """A part has 256 keys, or 512 where its numbers would exceed its scores."""
    model = nacre.load(built[1], device="cuda")
    arrays = make_arrays(model, name, keys)
    assert blocks_of(machine, lambda: model.entries[name](*arrays)) == expected


def error_of(model: nacre.Model, name: str, arrays: list[Array]) -> float:
    first, again = (np.asarray(model.entries[name](*arrays)) for _ in range(2))
    assert first.tobytes() == again.tobytes()
    expected, result = reference(name, *arrays), first.astype(np.float64)
    assert np.array_equal(np.isnan(result), np.isnan(expected))
    return float(np.nanmax(np.abs(result - expected), initial=0))


def tolerance_of(name: str) -> float:
    # Scores and weights are rounded to f16; those of f32 are sums of products of up to 32 factors.
    return 4e-6 if name in ("exact", *TURNED) else 0.004


@pytest.mark.parametrize("name", SPLIT)
def test_numbers(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    model = nacre.load(built[1], device="cuda")
    for keys in SIZES:
        error = error_of(model, name, make_arrays(model, name, keys))
        assert not machine.error
        assert error <= tolerance_of(name), keys


def test_parts_of_several_tiles_of_rows(machine: Machine, built: tuple[Build, Path]) -> None:
    """A prompt of 70 rows has two tiles, the last one with 6 rows."""
    model = nacre.load(built[1], device="cuda")
    arrays = make_arrays(model, "open", 1025, 70)
    assert blocks_of(machine, lambda: model.entries["open"](*arrays)) == [16, 4]
    assert error_of(model, "open", arrays) <= tolerance_of("open") and not machine.error


def test_rows_that_see_no_key_attend_to_all(machine: Machine, built: tuple[Build, Path]) -> None:
    """Their keys lie in all parts."""
    model = nacre.load(built[1], device="cuda")
    arrays = make_arrays(model, "grouped", 1025)
    arrays[3][0] = False
    arrays[3][1, ..., :1000] = False
    assert error_of(model, "grouped", arrays) <= tolerance_of("grouped") and not machine.error


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("length", [0, 1, 64, 65, 600, 1025])
def test_keys_after_the_length_are_not_read(
    machine: Machine, built: tuple[Build, Path], name: str, length: int
) -> None:
    """A number that is not finite shows where it is read: from the end of the length's tile on; for values, from the
    length on. Numbers of 8 bits are finite, but their scales are not."""
    model = nacre.load(built[1], device="cuda")
    arrays = make_arrays(model, name, 1025)
    arrays[3][...] = length
    tile = -(-length // 64) * 64
    if name == "bytes":
        arrays[4][..., length:], arrays[5][..., length:] = np.nan, np.nan
    else:
        arrays[1][(..., slice(tile, None)) if name in TURNED else (slice(None), slice(tile, None))] = np.nan
        arrays[2][:, length:] = np.nan
    result = np.asarray(model.entries[name](*arrays)).astype(np.float64)
    assert not machine.error
    for array in (*arrays[1:3], *arrays[4:]):
        array[np.isnan(array)] = 0
    expected = reference(name, *arrays)
    assert np.array_equal(np.isnan(result), np.isnan(expected))
    assert np.nanmax(np.abs(result - expected), initial=0) <= tolerance_of(name)


@pytest.mark.parametrize("name", MASKED)
def test_tiles_after_the_length_take_no_time(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    """Their scores are masked, so that only the accesses to shared memory show that keys are read."""
    model = nacre.load(built[1], device="cuda")
    arrays = make_arrays(model, name, 1025)
    phases = []
    for length in (64, 1025):
        arrays[3][...] = length
        phases.append(machine.count_banks(lambda: model.entries[name](*arrays)).phases)
    assert 2 * phases[0] < phases[1]


def test_values_that_are_not_finite(machine: Machine, built: tuple[Build, Path]) -> None:
    """A score that is NaN makes its row NaN, in whichever part it is."""
    model = nacre.load(built[1], device="cuda")
    for key in (0, 300, 1024):
        arrays = make_arrays(model, "exact", 1025)
        arrays[1][1, key] = np.nan
        result = np.asarray(model.entries["exact"](*arrays))
        assert np.isnan(result[1]).all() and np.isfinite(result[[0, 2]]).all()


FAULTS = (
    (1, r"ex2\.approx\.f32", "mov.b32"),
    (1, r"bar(rier)?\.sync[^;]*;", ""),
    (1, r"add\.rn\.f32(\s+%\w+, %\w+), %\w+;", r"mov.b32\1;"),
    (0, r"(st\.global\.b32\s+\[%rd\d+)\]", r"\1+4]"),
    (0, r"(mov\.u32\s+%r\d+), %ctaid\.x;", r"\1, 0;"),
)


def with_fault(text: str, launch: int, pattern: str, replacement: str) -> str:
    """Returns a module with a fault in one of its launches."""
    entries = re.split(r"(?=\.visible \.entry )", text)
    entries[1 + launch] = re.sub(pattern, replacement, entries[1 + launch])
    return "".join(entries)


@pytest.mark.parametrize(("launch", "pattern", "replacement"), FAULTS)
@pytest.mark.parametrize("name", ["grouped", "exact"])
def test_planted_fault_is_found(
    machine: Machine, built: tuple[Build, Path], name: str, launch: int, pattern: str, replacement: str
) -> None:
    """Parts that are not weighted, that are joined too early, whose sums of weights are lost, that are stored beside
    their places, and that are all the same one."""
    # A device keeps its modules while a session exists, also in the traceback of an error.
    gc.collect()
    symbols = kernels_of(built[0], name)
    changed = []

    def edit(text: str) -> str:
        if not any(f".entry {symbol}" in text for symbol in symbols) or text.count(".visible .entry ") < 2:
            return text
        made = with_fault(text, launch, pattern, replacement)
        changed.append(made != text)
        return made

    machine.edit = edit
    model = nacre.load(built[1], device="cuda")
    arrays = make_arrays(model, name, 1025)
    try:
        result = np.asarray(model.entries[name](*arrays)).astype(np.float64)
    except nacre.NacreError:
        assert machine.lacks_order, machine.error
        return
    finally:
        assert any(changed)
    assert not np.max(np.abs(result - reference(name, *arrays))) <= 0.01
