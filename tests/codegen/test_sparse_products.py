"""Products with the results of ReLU: rows of the matrix that are multiplied by 0 are left out."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import numpy.typing as npt
import pytest
from nacre.compiler.readers.language import load_module
from nacre.passes.manager import PassManager
from nacre.passes.pass_list import parse_pipeline

SIZES = (1, 37, 320)
"""The steps of sums: a single one, a vector and a rest, and whole vectors and blocks."""
COLUMNS = 75
"""Two panels, the second one with a rest."""
ENTRY = """
model {activation}_{steps}(x: f32[1, {steps}], gate: f32[1, {steps}]) -> f32[1, {columns}] {{
  param weight{steps}: f32[{columns}, {steps}]
  return {activation}(x) * gate @ weight{steps}.T
}}
"""
BLOCKS = """
quantize relu_320 {{ weights matmul to {dtype} }}
quantize abs_320 {{ weights matmul to {dtype} }}
"""
Floats = npt.NDArray[np.float32]


def source(steps: tuple[int, ...]) -> str:
    """Returns entries with and without ReLU, which compute the same for positive numbers."""
    entries = [(activation, n) for activation in ("relu", "abs") for n in steps]
    return "".join(ENTRY.format(activation=a, steps=n, columns=COLUMNS) for a, n in entries)


def weights(steps: tuple[int, ...]) -> dict[str, Floats]:
    random = np.random.default_rng(0)
    return {f"weight{n}": random.standard_normal((COLUMNS, n)).astype(np.float32) for n in steps}


def inputs(steps: int, part: float) -> tuple[Floats, Floats]:
    """Returns a positive row with a part of zeros, and a gate."""
    random = np.random.default_rng(1)
    x, gate = (np.abs(random.standard_normal((1, steps))).astype(np.float32) for _ in range(2))
    x[random.random((1, steps)) < part] = 0
    return x, gate


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
def test_sums_have_the_bits_of_whole_sums(target: str, tmp_path: Path) -> None:
    model = nacre.compile(source(SIZES), tmp_path / "m.so", weights=weights(SIZES), target=target)
    plain = nacre.compile(source(SIZES), tmp_path / "plain.so", weights=weights(SIZES), opt_level=0)
    for threads in (1, 2):
        loaded = nacre.load(tmp_path / "m.so", threads=threads)
        for steps in SIZES:
            for part in (0, 0.5, 0.9, 1):
                given = inputs(steps, part)
                result, whole = (np.asarray(loaded.entries[f"{a}_{steps}"](*given)) for a in ("relu", "abs"))
                np.testing.assert_array_equal(result, whole)
                np.testing.assert_array_equal(result, np.asarray(model.entries[f"relu_{steps}"](*given)))
                exact = (given[0] * given[1]).astype(np.float64) @ weights(SIZES)[f"weight{steps}"].T
                for found in (result, np.asarray(plain.entries[f"relu_{steps}"](*given))):
                    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", ["bf16", "q8[block 32]", "q4[block 32]"])
def test_short_weights(dtype: str, tmp_path: Path) -> None:
    model = nacre.compile(source((320,)) + BLOCKS.format(dtype=dtype), tmp_path / "m.so", weights=weights((320,)))
    for part in (0, 0.5, 0.9, 1):
        given = inputs(320, part)
        results = [np.asarray(model.entries[f"{a}_320"](*given)) for a in ("relu", "abs")]
        np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
def test_rows_of_zeros_are_left_out(target: str, tmp_path: Path) -> None:
    # A product of 0 and NaN would be NaN.
    x, gate = inputs(320, 0.9)
    finite = weights((320,))
    broken = {"weight320": np.where(x == 0, np.float32("nan"), finite["weight320"])}
    results = []
    for name, values, strict in (("finite", finite, False), ("broken", broken, False), ("strict", broken, True)):
        model = nacre.compile(source((320,)), tmp_path / f"{name}.so", weights=values, target=target, strict=strict)
        results.append(np.asarray(model.entries["relu_320"](x, gate)))
    np.testing.assert_array_equal(results[0], results[1])
    assert np.isnan(results[2]).all()


def test_a_nan_is_not_left_out(tmp_path: Path) -> None:
    model = nacre.compile(source((320,)), tmp_path / "m.so", weights=weights((320,)))
    x, gate = inputs(320, 0.9)
    x[0, 100] = np.nan
    assert np.isnan(np.asarray(model.entries["relu_320"](x, gate))).all()


def test_a_model_declares_a_sparse_factor(tmp_path: Path) -> None:
    x, _ = inputs(320, 0.9)
    text = """model m(x: f32[1, 320]) -> f32[1, 75] {
  param weight320: f32[75, 320]
  return matmul(x, weight320.T, sparse=true)
}
"""
    values = weights((320,))["weight320"]
    broken = {"weight320": np.where(x == 0, np.float32("nan"), values)}
    result = np.asarray(nacre.compile(text, tmp_path / "m.so", weights=broken)(x))
    np.testing.assert_allclose(result, x.astype(np.float64) @ values.T, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("rows", "marked"), [(1, [True]), (2, [None])])
def test_only_products_of_one_row_are_marked(rows: int, marked: list[bool | None]) -> None:
    text = f"""language 1
model m(x: f32[{rows}, 37]) -> f32[{rows}, 75] {{
  param w: f32[37, 75]
  return relu(x) @ w
}}
"""
    module = PassManager(parse_pipeline("sparse-products")).run(load_module(text, text=True).module)
    assert [node.attribute("sparse") for node in module.functions[0].body if node.op == "matmul"] == marked
