"""Products of quantized values on a GPU: integers of 8 bits on tensor cores, weights of 8 and 4 bits decoded in
registers."""

from __future__ import annotations

import re
from pathlib import Path

import nacre
import numpy as np
import pytest
from assembler import check_assembly, ptx_of
from fake_driver import Machine, kernels_of
from mutations import DECODING, Mutation
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.quantization.choose import in_precision
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.validate.inputs import random_trial
from nacre.compiler.validate.judge import Judge

Array = np.ndarray

SOURCE = """language 1
dim B in 0..256
model turned(x: u8[B, 96], w: i8[96, 72]) -> i32[B, 72] { return matmul(x, w, into=i32) }
model short(x: i8[B, 35], w: i8[35, 72]) -> i32[B, 72] { return matmul(x, w, into=i32) }
model deep(x: i8[3, B, 80], w: u8[3, 70, 80]) -> i32[3, B, 70] { return einsum("bmk,bnk->bmn", x, w, into=i32) }
model window(x: u8[B, 6, 7, 16], w: i8[3, 3, 16, 24]) -> i32[B, 4, 5, 24] {
  return conv2d(x, w, layout="channels_last", into=i32)
}
model rows(x: u8[3, 2064], w: i8[260, 2064]) -> i32[3, 260] { return einsum("mk,nk->mn", x, w, into=i32) }
"""
DTYPES = {"u8": np.uint8, "i8": np.int8}
PRODUCTS = re.findall(r"model (\w+)", SOURCE)


def reference(name: str, x: Array, w: Array) -> Array:
    x, w = x.astype(np.int64), w.astype(np.int64)
    if name == "window":
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
        return np.asarray(np.einsum("bijckl,klco->bijo", windows, w))
    if name == "rows":
        return np.asarray(x @ w.T)
    return np.asarray(np.einsum("bmk,bnk->bmn", x, w) if name == "deep" else x @ w)


def make_arrays(model: nacre.Model, name: str, batch: int) -> list[Array]:
    rng = np.random.default_rng(batch)
    (entry,) = (entry for entry in model.describe()["entries"] if entry["name"] == name)
    made = []
    for argument in entry["arguments"]:
        limits = np.iinfo(DTYPES[argument["dtype"]])
        shape = [batch if size == "B" else size for size in argument["shape"]]
        made.append(rng.integers(limits.min, limits.max + 1, shape).astype(DTYPES[argument["dtype"]]))
    return made


def build(source: str, path: Path) -> Build:
    made = Build(read_model(source), Options(targets=parse_targets("cuda:sm_80")))
    made.run(path)
    return made


def schedules_of(build: Build) -> list[str]:
    assert build.program is not None
    (kernels,) = build.program.kernels.values()
    return [schedule for code in kernels.values() for schedule in code.report.schedules]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    path = tmp_path_factory.mktemp("bytes") / "model.so"
    return build(SOURCE, path), path


@pytest.mark.parametrize("name", PRODUCTS)
def test_sums_of_bytes_are_exact(machine: Machine, built: tuple[Build, Path], name: str) -> None:
    model = nacre.load(built[1], device="cuda")
    for batch in (1, 0, 3, 67) if name != "rows" else (1,):
        arrays = make_arrays(model, name, batch)
        result = np.asarray(model.entries[name](*arrays))
        assert not machine.error
        assert np.array_equal(result, reference(name, *arrays)), batch


def test_bytes_are_multiplied_on_tensor_cores(built: tuple[Build, Path]) -> None:
    products = ["tensor cores of 128 threads, 3 blocks"] * (len(PRODUCTS) - 1)
    assert schedules_of(built[0]) == [*products, "row per warp of 256 threads"]
    signs = {match for text in ptx_of(built[1]) for match in re.findall(r"m16n8k32\.row\.col\.s32\.(\w+\.\w+)", text)}
    assert signs == {"u8.s8", "s8.s8", "s8.u8"}


def test_code_is_assembled_without_spills(built: tuple[Build, Path], assembled: Path) -> None:
    check_assembly(built[1], assembled, "sm_80", "sm_90", "sm_120")


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"bar(rier)?\.sync[^;]*;", ""),
        (r"s32\.u8\.s8\.s32", "s32.s8.s8.s32"),
        (r"(mma\.sync\S+\s*\{[^}]*\},\s*\{%\w+, )(%\w+), (%\w+)", r"\1\3, \2"),
    ],
)
def test_planted_fault_is_found(machine: Machine, built: tuple[Build, Path], pattern: str, replacement: str) -> None:
    machine.plant(pattern, replacement, kernels_of(built[0], "turned"))
    model = nacre.load(built[1], device="cuda")
    arrays = make_arrays(model, "turned", 67)
    try:
        result = np.asarray(model.entries["turned"](*arrays))
    except nacre.NacreError:
        assert machine.lacks_order, machine.error
        return
    assert not np.array_equal(result, reference("turned", *arrays))


WEIGHTS = """language 1
dim B in 0..90
model many(x: f32[B, 256]) -> f32[B, 136] {
  param w: f32[136, 256]
  return relu(x @ w.T)
}
model few(x: f32[3, 256]) -> f32[3, 136] {
  param w: f32[136, 256]
  return x @ w.T
}
model one(x: f32[1, 1024]) -> f32[1, 40] {
  param long: f32[40, 1024]
  return x @ long.T
}
"""


def quantize_all(rules: str) -> str:
    return "".join(f"quantize {name} {{ {rules} }}\n" for name in ("many", "few", "one"))


POLICIES = {
    "int4": "int4",
    "int8": quantize_all('weights "*" to i8'),
    "int8 products": "int8",
    "int4 and bf16": quantize_all('weights "*" to q4[block 32, zero]\nactivations "*" to bf16'),
    "int8 and bf16": quantize_all('weights "*" to q8[block 32]\nactivations "*" to bf16'),
    "int4 and f16": quantize_all('weights "*" to q4[block 32, zero]\nactivations "*" to f16'),
    "int4 nl and bf16": quantize_all('weights "*" to q4[block 32, nl]\nactivations "*" to bf16'),
    "int4 e2m1": quantize_all('weights "*" to q4[block 32, e2m1]'),
    "columns and bf16": quantize_all('weights "*" to i8\nactivations "*" to bf16'),
    "columns and f16": quantize_all('weights "*" to i8\nactivations "*" to f16'),
    "int4 and tf32": "int4",
    "int8 and tf32": quantize_all('weights "*" to i8'),
}
DECODED = {
    "many": "contraction of 256 threads, 2 blocks",
    "few": "row per warp of 256 threads",
    "one": "row per warp of 256 threads",
}
BYTES = {
    "many": "tensor cores of 128 threads, 3 blocks",
    "few": "row per warp of 256 threads",
    "one": "row per warp of 256 threads",
}
ON_TENSOR_CORES = "decoded tensor cores of 128 threads, 3 blocks"
USED = {"int4": DECODED, "int4 e2m1": DECODED, "int8": DECODED, "int8 products": BYTES}
ROUNDED = DECODED | {"many": ON_TENSOR_CORES}
USED |= dict.fromkeys((name for name in POLICIES if " and " in name), ROUNDED)
"""The schedule of each model's product."""


@pytest.fixture(scope="module", params=POLICIES)
def quantized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Build, Path]:
    folder = tmp_path_factory.mktemp("weights")
    rng = np.random.default_rng(1)
    shapes = {"w": (136, 256), "long": (40, 1024)}
    np.savez(folder / "w.npz", **{name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()})
    (folder / "model.nacre").write_text(WEIGHTS)
    source = in_precision(read_model(folder / "model.nacre", folder / "w.npz"), POLICIES[request.param])
    source = in_precision(source, "tf32") if "tf32" in request.param else source
    made = Build(source, Options(targets=parse_targets("cuda:sm_80")))
    made.run(folder / "model.so")
    return request.param, made, folder / "model.so"


def test_quantized_weights_are_stored_as_they_are(quantized: tuple[str, Build, Path]) -> None:
    name, made, _ = quantized
    assert made.program is not None
    lowered = made.program.lowered
    elements = 136 * 256 + 40 * 1024
    # Blocks of 32 have a scale in f16 and a zero point; other scales belong to columns.
    scales = elements // 32 * 2 if name == "int8 and bf16" else 16 * 256
    most = elements * (16 + 3) // 32 if "int4" in name else elements + scales
    assert lowered.weight_bytes <= most + 1024


def test_schedules_of_quantized_weights(quantized: tuple[str, Build, Path]) -> None:
    name, made, _ = quantized
    assert made.program is not None
    (kernels,) = made.program.kernels.values()
    for function in made.program.lowered.functions:
        used = {schedule for call in function.calls for schedule in kernels[call.symbol].report.schedules}
        assert USED[name][function.name] in used, (function.name, used)


def wrong_entries(made: Build, path: Path) -> list[str]:
    model = nacre.load(path, device="cuda")
    reader, found = made.read_parameters(), []
    for function in made.source_model.module.functions:
        for rows in (0, 1, 67) if function.symbols() else (1,):
            trial = random_trial(function, {"B": rows} if function.symbols() else {})
            (expected,) = Judge(made.source_model.module, trial, reader).expected
            result = np.asarray(model.entries[function.name](*trial.arguments)).astype(np.float64)
            # A factor that is rounded to tf32 differs by at most 2^-11 of it, and errors of different signs cancel.
            rounding = (
                2**-11 * np.max(np.abs(expected.exact), initial=0) if made.source_model.precision == "tf32" else 0.0
            )
            if not np.all(np.abs(result - expected.exact) <= expected.allowed + rounding):
                found.append(f"{function.name} of {rows}")
    return found


def test_products_with_quantized_weights(machine: Machine, quantized: tuple[str, Build, Path]) -> None:
    assert wrong_entries(*quantized[1:]) == []
    assert not machine.error


def test_wrong_decoding_is_found(machine: Machine, quantized: tuple[str, Build, Path]) -> None:
    """Signed numbers are read as unsigned ones."""
    pattern = r"cvt\.rn\.f32\.s" if "int4" in quantized[0] else r"\.s8"
    machine.edit = lambda text: re.sub(pattern, lambda found: found[0].replace(".s", ".u"), text)
    assert len(wrong_entries(*quantized[1:])) == 4


def test_code_for_quantized_weights_does_not_spill(quantized: tuple[str, Build, Path], assembled: Path) -> None:
    check_assembly(quantized[2], assembled, "sm_80")


RAGGED = """language 1
dim B in 0..90
model bytes(x: f32[B, 264]) -> f32[B, 72] {
  param w: f32[72, 264]
  return x @ w.T
}
model nibbles(x: f32[B, 160]) -> f32[B, 72] {
  param v: f32[72, 160]
  return relu(x @ v.T)
}
"""
IN_RAGGED = """quantize bytes { weights "*" to i8 }
quantize nibbles { weights "*" to q4[block 32, zero] }
"""


@pytest.fixture(scope="module")
def ragged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    """Products whose depth ends within a step of 16 bytes of weights, and whose columns within a block of threads."""
    folder = tmp_path_factory.mktemp("ragged")
    rng = np.random.default_rng(2)
    shapes = {"w": (72, 264), "v": (72, 160)}
    np.savez(folder / "w.npz", **{name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()})
    (folder / "model.nacre").write_text(RAGGED)
    source = in_precision(read_model(folder / "model.nacre", folder / "w.npz"), IN_RAGGED)
    made = Build(in_precision(source, "tf32"), Options(targets=parse_targets("cuda:sm_80")))
    made.run(folder / "model.so")
    assert schedules_of(made) == [ON_TENSOR_CORES] * 2
    return made, folder / "model.so"


def test_ragged_products_with_decoded_weights(machine: Machine, ragged: tuple[Build, Path]) -> None:
    assert wrong_entries(*ragged) == []
    assert not machine.error


@pytest.mark.parametrize("mutation", DECODING, ids=lambda mutation: mutation.label)
def test_fault_in_decoding_is_found(machine: Machine, ragged: tuple[Build, Path], mutation: Mutation) -> None:
    changed = []

    def edit(text: str) -> str:
        changed.append(mutation.apply(text))
        return changed[-1]

    machine.edit = edit
    try:
        assert wrong_entries(*ragged)
    except nacre.NacreError:
        assert machine.error, "the kernel was refused, not run"
    assert changed
