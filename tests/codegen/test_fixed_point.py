"""Products of many rows and a packed weight, whose factors are rounded to 16-bit integers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import nacre
import numpy as np
import numpy.typing as npt
import pytest
from nacre.compiler import packed_weights
from nacre.compiler.checking import read_model
from nacre.compiler.codegen.llvm.machine import vector_features
from nacre.compiler.codegen.tiler.fixed_point import BLOCK_ROWS
from nacre.compiler.lower.parts import FIXED_POINT
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import Target, parse_targets
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.emitter import ROUNDED_LEAST, ROUNDED_LIMIT, ROUNDED_ROWS, ROUNDED_STEPS
from nacre.dialect.ops.packed_floats import exponents_of
from schedules import schedules

STEPS, COLUMNS = 384, 50
"""There are three blocks of steps, and the last of three panels has two columns."""
Numbers = npt.NDArray[Any]


def product(rows: int | str, steps: int, columns: int, weights: str = "f32", body: str = "P") -> str:
    """The text of a model with weights in a dtype, and the product in place of `P` in the body."""
    dim = "" if isinstance(rows, int) else f"dim T in {rows}\n"
    size = "T" if dim else rows
    params = f"  param w: {weights}[{columns}, {steps}]\n" + (f"  param b: f32[{columns}]\n" if "b" in body else "")
    factor = "w.T" if weights == "f32" else "cast(w.T, f32)"
    body = body.replace("P", f"matmul(x, {factor}, factors=i16)")
    return (
        f"language 1\n{dim}model m(x: f32[{size}, {steps}]) -> f32[{size}, {columns}] {{\n{params}  return {body}\n}}\n"
    )


def bfloats(numbers: Numbers) -> Numbers:
    """Returns numbers that bf16 has, as f32."""
    return np.asarray(numbers.astype(ml_dtypes.bfloat16).astype(np.float32))


def rounded(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """The integers of rows in a block, and their scales."""
    greatest = np.maximum(np.abs(numbers).max(axis=1, keepdims=True), np.float32(ROUNDED_LEAST))
    integers = np.rint(numbers.astype(np.float64) * (np.float32(ROUNDED_LIMIT) / greatest))
    return integers, greatest * np.float32(1 / ROUNDED_LIMIT)


def expected(x: Numbers, w: Numbers, block: int = ROUNDED_STEPS) -> tuple[Numbers, Numbers]:
    """The products of rounded factors, and the bound of their difference from sums in f32."""
    total, most = np.zeros((len(x), len(w))), np.zeros((len(x), len(w)))
    for begin in range(0, x.shape[1], block):
        (left, of_left), (right, of_right) = (rounded(each[:, begin : begin + block]) for each in (x, w))
        part = (left @ right.T) * of_left.astype(np.float64) * of_right.T.astype(np.float64)
        total, most = total + part, most + np.abs(part)
    return total, most * np.finfo(np.float32).eps * 3


@pytest.fixture
def cpu() -> str:
    if not {"avx2", "fma"} <= vector_features(Target()):
        pytest.skip("this machine has no AVX2")
    return "x86-64-v3"


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(packed_weights, "LEAST", 0)
    monkeypatch.setattr(packed_weights, "FEWEST_STEPS", 0)
    yield


def factors(rows: int, steps: int = STEPS, columns: int = COLUMNS) -> tuple[Numbers, Numbers]:
    random = np.random.default_rng(rows)
    return bfloats(random.standard_normal((rows, steps))), bfloats(random.standard_normal((columns, steps)))


@pytest.mark.parametrize(
    ("rows", "steps", "cpu", "schedule"),
    [
        ("0..512", 128, "x86-64-v3", FIXED_POINT),
        (64, 128, "x86-64-v3", FIXED_POINT),
        # A block of 96 steps; a block of 100 would not be whole vectors of words.
        ("0..512", 192, "x86-64-v3", FIXED_POINT),
        ("0..512", 100, "x86-64-v3", "packed tile"),
        # Blocks of 48 steps are too short.
        ("0..512", 48, "x86-64-v3", "packed tile"),
        ("0..47", 128, "x86-64-v3", "packed tile"),
        ("0..512", 128, "x86-64-v4", "tile"),
        ("0..512", 128, "x86-64-v2", "tile"),
    ],
)
def test_many_rows_of_whole_blocks_are_rounded(rows: int | str, steps: int, cpu: str, schedule: str) -> None:
    build = Build(read_model(product(rows, steps, 48)), Options(targets=parse_targets(cpu)))
    assert schedules(build.generate(build.lower(build.optimize()))) == [(schedule,)]


def test_the_numbers_of_rows_with_other_code_are_reported() -> None:
    build = Build(read_model(product("0..512", 128, 48)), Options(targets=parse_targets("x86-64-v3")))
    (kernels,) = build.generate(build.lower(build.optimize())).kernels.values()
    (kernel,) = kernels.values()
    assert ROUNDED_ROWS in kernel.report.steps
    assert any(BLOCK_ROWS <= step < BLOCK_ROWS + 8 for step in kernel.report.steps)


@pytest.mark.parametrize("weights", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("body", ["P", "relu(P + b)"])
def test_numbers(body: str, weights: str, cpu: str) -> None:
    x, w = factors(300)
    w = w.astype(np.float16).astype(np.float32) if weights == "f16" else w
    b = np.random.default_rng(1).standard_normal(COLUMNS).astype(np.float32)
    stored = w.astype({"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}[weights])
    values = {"w": stored, "b": b} if "b" in body else {"w": stored}
    model = nacre.compile(product("0..400", STEPS, COLUMNS, weights, body), weights=values, target=cpu)
    total, bound = expected(x, w)
    total = np.maximum(total + b, 0) if "b" in body else total
    bound = bound + np.finfo(np.float32).eps * np.abs(b) * 4
    whole = np.asarray(model(x))
    assert (np.abs(whole - total) <= bound).all()
    # Two factors with errors of up to half of 1/4095; fewer would give less.
    exact = x.astype(np.float64) @ w.T + (b if "b" in body else 0)
    apart = np.abs(whole - (np.maximum(exact, 0) if "b" in body else exact)).max()
    assert 1e-4 < apart / np.abs(exact).max() < 1e-3
    for rows in (ROUNDED_ROWS, ROUNDED_ROWS + 1, 130, 257, 259):
        assert np.array_equal(np.asarray(model(x[:rows])), whole[:rows]), rows
    most = 2 * np.sqrt(STEPS) * np.finfo(np.float32).eps * (np.abs(x) @ np.abs(w.T) + np.abs(b))
    exact = np.maximum(exact, 0) if "b" in body else exact
    for rows in (0, 1, 5, 33, ROUNDED_ROWS - 1):
        assert (np.abs(np.asarray(model(x[:rows])) - exact[:rows]) <= most[:rows]).all(), rows


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("steps", "columns", "block"), [(STEPS, 500, 128), (576, 24, 96), (64, 9, 64), (128, 17, 128)])
def test_blocks_and_columns(steps: int, columns: int, block: int, threads: int, cpu: str, tmp_path: Path) -> None:
    x, w = factors(131, steps, columns)
    nacre.compile(product("0..400", steps, columns), tmp_path / "m.so", weights={"w": w}, target=cpu)
    total, bound = expected(x, w, block)
    assert (np.abs(np.asarray(nacre.load(tmp_path / "m.so", threads=threads)(x)) - total) <= bound).all()


def test_a_known_number_of_rows(cpu: str) -> None:
    x, w = factors(131)
    model = nacre.compile(product(131, STEPS, COLUMNS), weights={"w": w}, target=cpu)
    total, bound = expected(x, w)
    assert (np.abs(np.asarray(model(x)) - total) <= bound).all()


def test_panels_of_an_artifact_for_wider_vectors(cpu: str) -> None:
    """They have 48 columns, two tiles side by side."""
    if parse_targets("x86-64-v4")[0].runs_here:
        pytest.skip("this machine runs the artifact's code for AVX-512, which rounds no factors")
    x, w = factors(131, STEPS, 100)
    model = nacre.compile(product("0..400", STEPS, 100), weights={"w": w}, target=f"{cpu},x86-64-v4")
    total, bound = expected(x, w)
    assert (np.abs(np.asarray(model(x)) - total) <= bound).all()
    most = 2 * np.sqrt(STEPS) * np.finfo(np.float32).eps * (np.abs(x) @ np.abs(w.T))
    for rows in (9, 40):
        assert (np.abs(np.asarray(model(x[:rows])) - x[:rows].astype(np.float64) @ w.T) <= most[:rows]).all(), rows


def test_results_may_share_the_memory_of_a_residual(cpu: str) -> None:
    """A work item reads each element of the residual just before it writes the result there."""
    text = product("0..400", STEPS, COLUMNS, body="relu(x @ v.T) + P")
    text = text.replace("  param w", f"  param v: f32[{COLUMNS}, {STEPS}]\n  param w")
    x, w = factors(300)
    v = np.random.default_rng(2).standard_normal((COLUMNS, STEPS)).astype(np.float32)
    model = nacre.compile(text, weights={"w": w, "v": v}, target=cpu)
    total, bound = expected(x, w)
    residual = np.maximum(x.astype(np.float64) @ v.T, 0)
    bound = bound + np.sqrt(STEPS) * np.finfo(np.float32).eps * (np.abs(x) @ np.abs(v.T))
    for rows in (300, 131, 48):
        assert (np.abs(np.asarray(model(x[:rows])) - residual[:rows] - total[:rows]) <= bound[:rows]).all(), rows


def test_products_of_small_scales_keep_their_bits(cpu: str) -> None:
    x, w = factors(100)
    x, w = x * np.float32(2.0**-60), w * np.float32(2.0**-66)
    total, bound = expected(x, w)
    results = np.asarray(nacre.compile(product("0..400", STEPS, COLUMNS), weights={"w": w}, target=cpu)(x))
    assert (np.abs(results - total) <= bound + 2.0**-147).all()


BATCHES = f"""language 1
dim T in 0..200
model m(x: f32[3, T, {STEPS}]) -> f32[3, T, {COLUMNS}] {{
  param w: f32[{COLUMNS}, {STEPS}]
  return matmul(x, w.T, factors=i16)
}}
"""


def test_batches(cpu: str) -> None:
    x, w = factors(3 * 131)
    model = nacre.compile(BATCHES, weights={"w": w}, target=cpu)
    total, bound = expected(x, w)
    results = np.asarray(model(x.reshape(3, 131, STEPS))).reshape(3 * 131, COLUMNS)
    assert (np.abs(results - total) <= bound).all()


@pytest.mark.usefixtures("packed")
@pytest.mark.parametrize(("steps", "block"), [(STEPS, 96), (512, 128), (1024, 128)])
def test_weights_of_12_bits(steps: int, block: int, cpu: str) -> None:
    """The numbers without an index are added to the sums before the products."""
    text = product("0..400", steps, COLUMNS, "bf16").replace("x: f32", f"row: f32[1, {steps}], x: f32")
    text = text.replace(" {\n", f", f32[1, {COLUMNS}] {{\n").replace("return", "return row @ cast(w.T, f32),")
    text = text.replace(f"-> f32[T, {COLUMNS}], f32[1, {COLUMNS}]", f"-> f32[1, {COLUMNS}], f32[T, {COLUMNS}]")
    x, w = factors(131, steps)
    w = bfloats(w * 0.02)
    w[3, 5], w[49, steps - 1] = 2.0**-24, -(2.0**-20)
    model = nacre.compile(text, weights={"w": w.astype(ml_dtypes.bfloat16)}, target=cpu)
    names = [each["name"] for each in model.describe()["weights"]["tensors"]]
    assert any(".words" in name for name in names), names
    entries, _ = exponents_of(w.astype(ml_dtypes.bfloat16))
    kept = np.where(np.isin(w.view(np.uint32) >> 23 & 255, entries), w, 0)
    assert (w != kept)[3, 5]
    total, bound = expected(x, kept, block)
    escapes = x.astype(np.float64) @ (w - kept).T
    whole = np.asarray(model(x[:1], x)[1])
    assert (np.abs(whole - total - escapes) <= bound + np.abs(escapes) * 1e-6).all()
    for rows in (ROUNDED_ROWS, 50):
        assert np.array_equal(np.asarray(model(x[:1], x[:rows])[1]), whole[:rows]), rows
    most = 2 * np.sqrt(steps) * np.finfo(np.float32).eps * (np.abs(x) @ np.abs(w.T))
    few = np.asarray(model(x[:1], x[:9])[1])
    assert (np.abs(few - x[:9].astype(np.float64) @ w.T) <= most[:9]).all()


def test_extreme_factors(cpu: str) -> None:
    """Zeros, denormal and large numbers are rounded like others; those that are not finite give NaN in their row, or in
    their column."""
    x, w = factors(100)
    x[0], x[1], x[2] = 0, x[1] * np.float32(2.0**-140), x[2] * np.float32(2.0**60)
    w[7], w[8] = 0, w[8] * np.float32(2.0**60)
    x[3, 128:256] = 0
    model = nacre.compile(product("0..400", STEPS, COLUMNS), weights={"w": w}, target=cpu)
    total, bound = expected(x, w)
    results = np.asarray(model(x))
    assert (np.abs(results - total) <= bound).all()
    assert not results[0].any()
    assert not results[:, 7].any()
    for number in (np.nan, np.inf, -np.inf):
        broken = x.copy()
        broken[11, 200] = number
        results = np.asarray(model(broken))
        assert np.isnan(results[11]).all()
        assert np.isfinite(np.delete(results, 11, axis=0)).all()
        column = w.copy()
        column[13, 383] = number
        other = np.asarray(nacre.compile(product("0..400", STEPS, COLUMNS), weights={"w": column}, target=cpu)(x))
        assert np.isnan(other[:, 13]).all()
        assert np.isfinite(np.delete(other, 13, axis=1)).all()


def test_a_block_of_greatest_factors_does_not_overflow(cpu: str) -> None:
    x, w = np.full((64, STEPS), 3.0, np.float32), np.full((COLUMNS, STEPS), -0.7, np.float32)
    result = np.asarray(nacre.compile(product("0..400", STEPS, COLUMNS), weights={"w": w}, target=cpu)(x))
    assert np.abs(result / (-2.1 * STEPS) - 1).max() < 1e-6


def test_strict_code_multiplies_exactly(cpu: str) -> None:
    x, w = factors(100)
    model = nacre.compile(product("0..400", STEPS, COLUMNS), weights={"w": w}, target=cpu, strict=True)
    most = 2 * np.sqrt(STEPS) * np.finfo(np.float32).eps * (np.abs(x) @ np.abs(w.T))
    assert (np.abs(np.asarray(model(x)) - x.astype(np.float64) @ w.T) <= most).all()


@pytest.mark.parametrize(
    ("given", "message"), [("factors=i8", "is i8, expected i16"), ("into=i32, factors=i16", "f32")]
)
def test_other_dtypes_of_factors_are_errors(given: str, message: str) -> None:
    dtype = "i8" if "into" in given else "f32"
    text = f"model m(x: {dtype}[2, 3], y: {dtype}[3, 2]) -> f32[2, 2] {{ return cast(matmul(x, y, {given}), f32) }}"
    with pytest.raises(DiagnosticError, match=message):
        read_model(text)
