"""Models of LightGBM, XGBoost and CatBoost: sums with the bits of the library, predictions, and leaves.

All models run in the interpreter, and some are compiled. Predictions of the link functions differ from the libraries'
by the rounding of `exp` alone: 3 units of the last place.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.compiler.readers.table import read_file
from nacre.compiler.weights import Checkpoint
from nacre.dialect.graph import Parameter
from nacre.dialect.interpreter import Interpreter
from nacre.dialect.types import Array

FOLDER = Path(__file__).parent / "data"
MODELS = sorted(path for path in FOLDER.iterdir() if path.suffix != ".npz")
COMPILED = ("lgb_classes", "lgb_zero", "lgb_linear", "xgb_categories", "xgb_softprob", "xgb_vectors", "cat_classes")
COMPILED += ("cat_statistics", "cat_statistics_in_json")
REAL = Path(os.environ.get("NACRE_TEST_DATA", "")) / "trees"
NAMES = ("airline", "NYC_taxi", "boston_housing", "leaf_scan", "mixed_categorical", "pure_categorical")
with_model = pytest.mark.parametrize("path", MODELS, ids=[path.stem for path in MODELS])
needs_real = pytest.mark.skipif(
    "NACRE_TEST_DATA" not in os.environ, reason="NACRE_TEST_DATA, the folder of real models, is not set"
)


@cache
def stored() -> Any:
    return dict(np.load(FOLDER / "io.npz"))


def arguments(name: str) -> list[Array]:
    io = stored()
    texts = io.get(f"{name}.categories")
    return [io[f"{name}.inputs"]] + ([] if texts is None else [nacre.category_hashes(texts)])


def close(actual: Array, expected: Array) -> None:
    epsilon = np.finfo(expected.dtype if expected.dtype.kind == "f" else np.float64).eps
    np.testing.assert_allclose(actual.reshape(expected.shape), expected, rtol=3 * float(epsilon))


def interpret(path: Path, entry: str, inputs: Sequence[Array]) -> Array:
    source = read_file(path)
    weights = source.weights["main"]

    def load(parameter: Parameter) -> Array:
        assert isinstance(weights, Checkpoint)
        read = weights.tensors[parameter.name].load
        assert read is not None
        return read()

    with np.errstate(all="ignore"):
        return np.asarray(Interpreter(source.module, load).run(entry, inputs)[0])


@with_model
def test_the_interpreter_repeats_the_library(path: Path) -> None:
    io = stored()
    inputs = arguments(path.stem)
    raw, found = io[f"{path.stem}.raw"], interpret(path, "raw", inputs)
    np.testing.assert_array_equal(found, raw.reshape(found.shape))
    close(interpret(path, "main", inputs), io[f"{path.stem}.prediction"])
    if path.suffix == ".txt":
        np.testing.assert_array_equal(interpret(path, "leaves", inputs), io[f"{path.stem}.leaves"])


def test_a_mean_is_that_of_the_trees_of_each_class(tmp_path: Path) -> None:
    """As softmax of a mean: probabilities to the power of one over the trees of a class, made to sum to 1."""
    text = (FOLDER / "lgb_classes.txt").read_text()
    trees = text.count("Tree=")
    assert trees > 3 and trees % 3 == 0
    (tmp_path / "forest.txt").write_text(text.replace("\nobjective=", "\naverage_output\nobjective=", 1))
    inputs = arguments("lgb_classes")
    powers = interpret(FOLDER / "lgb_classes.txt", "main", inputs) ** (3 / trees)
    found = interpret(tmp_path / "forest.txt", "main", inputs)
    np.testing.assert_allclose(found, powers / powers.sum(-1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.usefixtures("unchecked")  # the bits of the library are a stricter check
def test_compiled_code_repeats_the_library(name: str, tmp_path: Path) -> None:
    (path,) = (path for path in MODELS if path.stem == name)
    model = nacre.compile(path, tmp_path / "model.so")
    io = stored()
    inputs, raw = arguments(name), io[f"{name}.raw"]
    for rows in (len(raw), 0, 1, 7, 8, 9):
        np.testing.assert_array_equal(model.entries["raw"](*(x[:rows] for x in inputs)), raw[:rows])
    close(model(*inputs), io[f"{name}.prediction"])
    if path.suffix == ".txt":
        np.testing.assert_array_equal(model.entries["leaves"](*inputs), io[f"{name}.leaves"])


@needs_real
@pytest.mark.usefixtures("unchecked")  # the interpreter takes minutes for as many rows as the checks choose
@pytest.mark.parametrize("name", NAMES)
def test_real_lightgbm_models(name: str, tmp_path: Path) -> None:
    io = np.load(REAL / "lightgbm_io.npz")
    model = nacre.compile(REAL / f"{name}.txt", tmp_path / "model.so")
    inputs = io[f"{name}_inputs"]
    np.testing.assert_array_equal(model.entries["raw"](inputs), io[f"{name}_raw"])
    np.testing.assert_array_equal(model.entries["leaves"](inputs), io[f"{name}_leaves"])
    close(model(inputs), io[f"{name}_prediction"])
