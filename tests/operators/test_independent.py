"""Every operator against an implementation that shares no definition with it, or the reason why there is none.

References and code may agree and both be wrong: about the larger half of `same` padding, the end of a window, a sign.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from independent_algebra import ALGEBRA, SINGLE
from independent_elements import ELEMENTS, Function, stored
from independent_onnx import ONNX, onnx_run
from independent_tensors import TENSORS
from nacre.dialect.operator import Operator
from nacre.dialect.ops import OPERATORS
from nacre.dialect.ops.winograd import INPUT, OUTPUT
from nacre.dialect.types import F32, F64, Array, DType, dtype_of
from operator_harness import Example, case_dtypes, example

INDEPENDENT: Mapping[str, Function] = {**ELEMENTS, **TENSORS, **ONNX, **ALGEBRA}

_REGION = "puts nodes together and computes nothing; tests/dialect and tests/passes/test_meaning.py run it"
_CONTROL = "runs regions; tests/models/test_control_flow.py and test_recurrent.py compare it with Python and PyTorch"
_BLOCKED = "makes or reads our own stored form; tests/operators/test_blocks.py decodes that byte by byte"
_WINOGRAD = "one step of three, which has no counterpart; all three together are a convolution, see below"
_TREES = "tests/readers/trees compares them with LightGBM, XGBoost and CatBoost"
NONE: Mapping[str, str] = {
    **dict.fromkeys(("parameter", "repeat", "fusion"), _REGION),
    **dict.fromkeys(("scan", "while", "if"), _CONTROL),
    **dict.fromkeys(
        ("quantize_blocks", "dequantize_blocks", "join_blocks", "block_codes", "block_scales", "block_zeros"), _BLOCKED
    ),
    "custom": "runs its first region; tests/readers/language/test_own_gradients.py compares it with NumPy",
    "check_indices": "tests/artifact/test_index_errors.py compares its errors with written ones",
    **dict.fromkeys(("tree_ensemble", "tree_leaves", "oblivious_leaves", "tree_sum", "linear_tree_sum"), _TREES),
    **dict.fromkeys(("walk_ensemble", "walk_leaves"), _TREES),
    **dict.fromkeys(
        (
            "feature_ranks",
            "ranked_trees",
            "row_ranks",
            "ranked_rows",
            "leaf_indices_by_masks",
            "leaf_indices_by_borders",
            "add_leaf_values",
        ),
        "tests/readers/trees compares them with a walk from node to node",
    ),
    **dict.fromkeys(("fourier_axis", "fourier_rows"), "compared as parts of `fft`; see test_fourier_plans.py"),
    **dict.fromkeys(("mix_taps", "count_indices"), "compared as parts of `grid_sample`, `roi_align` and `bincount`"),
    **dict.fromkeys(
        ("packed_table", "packed_words", "packed_places", "packed_escapes", "packed_matmul"),
        "makes or reads our own stored form; tests/quantization/test_packed_floats.py decodes all bf16 numbers",
    ),
    "check_trees": "tests/artifact/test_hostile_tables.py compares its errors with written ones",
    **dict.fromkeys(("winograd_input", "winograd_weight", "winograd_output"), _WINOGRAD),
}
"""Operators without an independent function, and why."""


FLOATS_ALONE = {name for name in ONNX if "conv" in name or "pool" in name or name == "resize"}
"""ONNX's evaluator computes them with floats: their integers are exact and wrap around in the code for all dtypes."""


def test_every_operator_has_a_function_or_a_reason() -> None:
    assert set(INDEPENDENT) | set(NONE) == set(OPERATORS)
    assert not set(INDEPENDENT) & set(NONE)
    assert len(INDEPENDENT) == len(ELEMENTS) + len(TENSORS) + len(ONNX) + len(ALGEBRA)


def tried(operator: Operator, accepted: tuple[DType, ...]) -> list[DType]:
    """One float and every integer dtype: f32 where ONNX computes, else f64."""
    wanted = F32 if operator.name in ONNX or operator.name in SINGLE else F64
    floats = [d for d in accepted if d.is_float]
    chosen = [wanted] if wanted in floats else floats[:1]
    return chosen + [d for d in accepted if not d.is_float and operator.name not in FLOATS_ALONE]


def disagreement(item: Example) -> str | None:
    expected = item.expected
    if any(0 in a.shape for a in (*item.arrays, *expected)):
        return None  # nothing is computed
    arrays, attributes = list(item.arrays), dict(item.attributes)
    if item.operator.addresses is not None:
        mode = attributes.pop("mode")
        if mode == "drop" and item.operator.name != "one_hot":
            return None  # the independent functions have no such mode; tests/artifact/test_index_errors.py has results
        for use in item.operator.addresses(item.types, item.attributes) if mode == "clamp" else ():
            indices, sizes = arrays[use.operand].astype(np.int64), np.asarray(use.sizes)
            from_start = np.where(indices < 0, indices + sizes, indices)
            arrays[use.operand] = np.clip(from_start, 0, sizes - use.window).reshape(indices.shape)
    with np.errstate(all="ignore"):
        found = INDEPENDENT[item.operator.name](*arrays, **attributes)
    results = found if isinstance(found, tuple) else (found,)
    as_arrays = [_as(r, dtype_of(e)) for r, e in zip(results, expected, strict=True)]
    return item.disagreement(expected, as_arrays)


def _as(result: Any, dtype: DType) -> Array:
    result = np.asarray(result)
    if result.dtype == object:
        return stored(result.ravel().tolist(), dtype, result.shape)
    return result.astype(np.float64) if dtype.is_float else result.astype(dtype.numpy)


@pytest.mark.parametrize("name", INDEPENDENT)
def test_references_agree_with_an_independent_implementation(name: str) -> None:
    operator = OPERATORS[name]
    failures, compared = [], 0
    for number, case in enumerate(operator.cases):
        for dtype in tried(operator, case_dtypes(operator, case)):
            item = example(operator, number, dtype)
            found = disagreement(item)
            compared += 1
            if found:
                failures.append(f"{item}: {found}")
    assert compared and not failures, f"{len(failures)} failures:\n" + "\n".join(failures[:6])


@pytest.mark.parametrize("shape", [(1, 6, 6, 3), (2, 10, 14, 2)])
def test_the_steps_of_winograd_are_a_convolution(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal(shape), rng.standard_normal((3, 3, shape[-1], 5))
    blocks = OPERATORS["winograd_input"].reference(x, np.asarray(INPUT, x.dtype))
    factors = OPERATORS["winograd_weight"].reference(weight)
    products = np.einsum("knijc,kco->knijo", blocks, factors)
    actual = OPERATORS["winograd_output"].reference(products, np.asarray(OUTPUT, x.dtype))
    expected = onnx_run("Conv", np.moveaxis(x, -1, 1), weight.transpose(3, 2, 0, 1))
    np.testing.assert_allclose(actual, np.moveaxis(expected, 1, -1), rtol=1e-10, atol=1e-11)
