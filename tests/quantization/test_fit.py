"""Codes that are fitted to samples: nearer to the results, of the same form, and the same each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.model.parameters import open_parameters
from nacre.compiler.quantization.choose import in_precision
from nacre.compiler.quantization.fit import fitted_weights
from nacre.compiler.quantization.fit_codes import Codes, fit_codes
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.graph import walk
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import BLOCKED, F32, DType
from saving import save_npz

IN_BLOCKS = [dtype for dtype in BLOCKED if dtype.block == 32]
in_blocks = pytest.mark.parametrize("dtype", IN_BLOCKS, ids=lambda dtype: dtype.name)

MODEL = """language 1
dim B in 1..64
model main(x: f32[B, 64], row: i64[B]) -> y: f32[B, 32], z: f32[B, 64] {
  weights "weights.npz"
  param up: f32[128, 64]
  param down: f32[128, 32]
  param table: f32[50, 64]
  return relu(x @ up.T) @ down, embedding(table, row)
}
"""
POLICY = 'quantize main {{ weights "*" to {0}; calibrate on file "{1}" }}'


def numbers(codes: Codes, dtype: DType) -> Any:
    rows, blocks = codes.scales.shape
    planes = [codes.codes.reshape(rows, blocks, -1), codes.scales, *([codes.zeros] if dtype.has_zero else [])]
    return OPERATORS["dequantize_blocks"].reference(OPERATORS["join_blocks"].reference(*planes, dtype=dtype), dtype=F32)


def nearest(weight: Any, dtype: DType) -> Any:
    with np.errstate(all="ignore"):
        return OPERATORS["dequantize_blocks"].reference(
            OPERATORS["quantize_blocks"].reference(weight, dtype), dtype=F32
        )


def alike(rows: int, columns: int) -> Any:
    """Numbers that depend on each other, as activations do."""
    rng = np.random.default_rng(1)
    return (
        rng.normal(size=(rows, 12)) @ rng.normal(size=(12, columns)) + 0.2 * rng.normal(size=(rows, columns))
    ).astype(np.float32)


@in_blocks
def test_products_are_nearer_than_with_the_nearest_codes(dtype: DType) -> None:
    rng = np.random.default_rng(2)
    weight, x, fresh = rng.normal(size=(48, 128)).astype(np.float32), *np.split(alike(1200, 128), [800])
    fitted = numbers(fit_codes(weight, x.T.astype(np.float64) @ x, dtype), dtype)
    by_nearest, by_fitted = (np.square(fresh @ (w - weight).T).mean() for w in (nearest(weight, dtype), fitted))
    assert by_fitted < 0.2 * by_nearest


@in_blocks
def test_without_samples_no_block_is_further_off_than_by_the_nearest_codes(dtype: DType) -> None:
    weight = np.random.default_rng(3).standard_t(4, size=(40, 96)).astype(np.float32)
    weight[0], weight[1, :32], weight[2, 5] = 0, 1e-9, np.nan
    fitted = numbers(fit_codes(weight, None, dtype), dtype)
    assert np.isfinite(fitted).all() and not fitted[0].any()
    off, wanted = (
        np.square(np.nan_to_num(w - weight)).reshape(40, -1, 32).sum(-1) for w in (fitted, nearest(weight, dtype))
    )
    assert (off <= wanted * (1 + 1e-5) + 1e-12).all()


def test_representable_weights_are_unchanged() -> None:
    """Also where nothing was seen of most columns, and where nothing was seen at all."""
    dtype = next(d for d in BLOCKED if d.name == "q4[block 32]")
    weight = np.random.default_rng(4).integers(-7, 8, (9, 64)).astype(np.float32)
    weight[:, ::32] = -8
    for moments in (None, np.zeros((64, 64)), np.diag(np.arange(64) % 2.0)):
        np.testing.assert_array_equal(numbers(fit_codes(weight, moments, dtype), dtype), weight)
    assert fit_codes(weight[:0], None, dtype).scales.shape == (0, 2)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    rng = np.random.default_rng(5)
    shapes = {"up": (128, 64), "down": (128, 32), "table": (50, 64)}
    save_npz(tmp_path / "weights.npz", {n: rng.normal(size=s).astype(np.float32) / 8 for n, s in shapes.items()})
    np.savez(tmp_path / "data.npz", x=alike(300, 64), row=rng.integers(0, 50, 300))
    (tmp_path / "model.nacre").write_text(MODEL)
    return tmp_path / "model.nacre"


@in_blocks
def test_a_policy_fits_weights_and_its_graph_agrees_with_the_artifact(model: Path, dtype: DType) -> None:
    with np.load(model.parent / "data.npz") as file:
        x, row = file["x"][:64], file["row"][:64]
    built: dict[str, Any] = {}
    for rule in ("f32", dtype.name, f"{dtype.name} fitted"):
        precision = POLICY.format(rule, model.parent / "data.npz")
        built[rule] = nacre.compile(model, model.with_suffix(".so"), precision=precision)(x, row)
    exact, nearest, fitted = built.values()
    errors = [[np.square(a - b).mean() for a, b in zip(one, exact, strict=True)] for one in (nearest, fitted)]
    assert errors[1][0] < 0.5 * errors[0][0] and errors[1][1] <= errors[0][1]

    source_model = in_precision(read_model(model), precision)
    assert "fitted" in source_model.precision
    ops = [node.op for node in walk(source_model.module.function("main").body)]
    assert ops.count("join_blocks") == 3 and "quantize_blocks" not in ops
    wanted = Interpreter(source_model.module, open_parameters(source_model)).run("main", [x, row])
    for a, b in zip(fitted, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    slow = nacre.compile(model, model.with_suffix(".so"), precision=precision, opt_level=0)(x, row)
    for a, b in zip(slow, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_the_same_samples_give_the_same_artifact(model: Path) -> None:
    made = []
    for name in ("one.so", "two.so"):
        precision = POLICY.format("q4[block 32] fitted", model.parent / "data.npz")
        nacre.compile(model, model.parent / name, precision=precision)
        made.append((model.parent / name).read_bytes())
    assert made[0] == made[1]


def test_weights_that_cannot_be_fitted_are_reported(model: Path) -> None:
    with pytest.raises(DiagnosticError, match=r"no-calibration.*`q4.block 32. fitted` needs samples"):
        in_precision(read_model(model), 'quantize main { weights "up" to q4[block 32] fitted }')
    np.savez(model.parent / "bad.npz", x=np.full((4, 64), np.inf, np.float32), row=np.zeros(4, np.int64))
    with pytest.raises(DiagnosticError, match="calibration-not-finite"):
        in_precision(read_model(model), POLICY.format("q4[block 32] fitted", model.parent / "bad.npz"))


def test_a_weight_in_two_precisions_is_fitted_twice(tmp_path: Path) -> None:
    """Two layers multiply by one parameter, in different numbers of bits: each precision has its own activations."""
    save_npz(tmp_path / "x.npz", {"x": np.ones((4, 64), np.float32)})
    (tmp_path / "m.nacre").write_text("""language 1
dim B in 1..64
block Times(x: f32[B, 64], w: f32[64, 64]) -> f32[B, 64] { return tanh(x @ w.T) }
model main(x: f32[B, 64]) -> f32[B, 64] {
  param up, other: f32[64, 64]
  use a = Times
  use b = Times
  return b(a(a(x, up), other), up)
}
quantize main {
  weights "a" to q4[block 32] fitted
  weights "b" to q8[block 32] fitted
  calibrate on file "x.npz"
}
""")
    model = read_model(tmp_path / "m.nacre")
    found = fitted_weights(model.module, "main", model.policies[0])
    names = [(w.formula.parameters[0].name, w.dtype.bits, len(w.activations)) for w in found]
    assert names == [("up", 4, 1), ("other", 4, 1), ("up", 8, 1)]
