"""The libraries give the same bits for every number of rows and threads, so a sum of trees has one right result.

Each library trains models here, and predicts rows in calls of several sizes, on one thread and on two, and by each of
its interfaces. Every result must have the bits of Nacre's. The one exception is `inplace_predict` of XGBoost's DART,
whose sums have another order than those of `predict`; their difference is bounded. The libraries are those of the
`bench` extra. Forests of scikit-learn, whose sums depend on threads, are in `test_sums_of_forests.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nacre
import numpy as np
import pytest
from nacre.dialect.types import Array

ROWS, SLOW = 1100, 40
"""The rows of all calls, and the rows of calls of few rows each, which are slow in some libraries."""
SIZES = (1, 2, 7, 8, 33, 64, 257, 1000, ROWS)
"""The rows of a call: fewer and more than the blocks of the libraries, which have 8 to 512 rows."""
pytestmark = pytest.mark.usefixtures("unchecked")  # the bits of the library are a stricter check


def training_set() -> tuple[Array, Array]:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(ROWS, 8)).astype(np.float32)
    x[rng.random(x.shape) < 0.05] = np.nan
    known = np.nan_to_num(x)
    return x, known[:, 0] * known[:, 1] + np.sin(3 * known[:, 2]) + rng.normal(size=ROWS)


X, Y = training_set()
LABELS = {"number": Y, "classes": np.digitize(Y, [-1, 1]), "two": (Y > 0).astype(int), "vector": np.stack([Y, -Y], 1)}
Predict = Callable[[Array], Array]


def require_equal_bits(
    path: Path, folder: Path, rows: Array, ways: Mapping[str, Predict], bound: Array | float = 0.0
) -> None:
    """Requires the bits of Nacre, or where `bound` is given, numbers that differ from them by at most the bound."""
    wanted = nacre.compile(path, folder / "model.so").entries["raw"](rows)
    for name, predict in ways.items():
        for size in SIZES:
            count = SLOW if size < 16 else ROWS
            calls = [np.asarray(predict(rows[at : min(at + size, count)])) for at in range(0, count, size)]
            found = np.concatenate(calls).reshape(wanted[:count].shape)
            if np.any(bound):
                assert (np.abs(found.astype(np.float64) - wanted[:count]) <= np.asarray(bound)[:count]).all(), name
            else:
                np.testing.assert_array_equal(found, wanted[:count], err_msg=f"{name}, {size} rows a call")


@pytest.mark.parametrize(
    ("label", "options"),
    [
        ("number", {}),
        ("classes", {"objective": "multi:softprob", "num_class": 3}),
        ("two", {"objective": "binary:logistic"}),
        ("number", {"num_parallel_tree": 8, "subsample": 0.5}),
        ("number", {"max_depth": 12}),
        ("number", {"booster": "dart", "rate_drop": 0.3}),
        ("vector", {"multi_strategy": "multi_output_tree", "tree_method": "hist"}),
    ],
)
def test_xgboost(label: str, options: dict[str, Any], tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost", reason="XGBoost is not installed")
    path = tmp_path / "model.ubj"
    xgboost.train({"seed": 1, "nthread": 2, **options}, xgboost.DMatrix(X, LABELS[label]), 12).save_model(path)
    ways: dict[str, Predict] = {}
    in_place: dict[str, Predict] = {}
    for threads in (1, 2):
        model = xgboost.Booster(model_file=str(path))
        model.set_param({"nthread": threads})
        ways[f"matrix, {threads} threads"] = lambda r, m=model: m.predict(xgboost.DMatrix(r), output_margin=True)
        in_place[f"in place, {threads} threads"] = lambda r, m=model: m.inplace_predict(r, predict_type="margin")
    if options.get("booster") != "dart":
        require_equal_bits(path, tmp_path, X, ways | in_place)
        return
    require_equal_bits(path, tmp_path, X, ways)
    require_equal_bits(path, tmp_path, X, in_place, bound_of_dart(xgboost, model))


def bound_of_dart(xgboost: Any, model: Any) -> Array:
    """Returns the bound of the difference between the two predictions of DART, which add the base score and the trees
    in different orders: 2^-23 times the terms times the sum of their magnitudes."""
    learner = json.loads(model.save_raw("json"))["learner"]
    booster, base = learner["gradient_booster"], learner["learner_model_param"]["base_score"]
    leaves = model.predict(xgboost.DMatrix(X), pred_leaf=True).astype(int)
    trees, scales = booster["gbtree"]["model"]["trees"], booster["weight_drop"]
    values = [np.asarray(tree["split_conditions"])[leaves[:, i]] * scales[i] for i, tree in enumerate(trees)]
    magnitudes = np.abs(values).sum(0) + abs(float(base.strip("[]")))
    return np.asarray((len(trees) + 1) * 2.0**-23 * magnitudes)


@pytest.mark.parametrize(
    ("label", "options"),
    [
        ("number", {}),
        ("classes", {"objective": "multiclass", "num_class": 3}),
        ("two", {"objective": "binary"}),
        ("number", {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}),
        ("number", {"boosting": "dart"}),
        ("number", {"linear_tree": True}),
        ("number", {"num_leaves": 300, "min_data_in_leaf": 1}),
    ],
)
def test_lightgbm(label: str, options: dict[str, Any], tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    path, rows = tmp_path / "model.txt", X.astype(np.float64)
    of_data = {"linear_tree": options.get("linear_tree", False), "verbose": -1}
    data = lightgbm.Dataset(rows, LABELS[label], params=of_data)
    lightgbm.train({"seed": 1, "num_threads": 2, "verbose": -1, **options}, data, 12).save_model(path)
    model = lightgbm.Booster(model_file=str(path))

    def predict(r: Array, threads: int = 2, **more: Any) -> Array:
        return np.asarray(model.predict(r, raw_score=True, num_threads=threads, **more))

    ways: dict[str, Predict] = {
        "one thread": lambda r: predict(r, 1),
        "two threads": predict,
        "columns one after another": lambda r: predict(np.asfortranarray(r)),
        "f32": lambda r: predict(r.astype(np.float32)),
        "more columns": lambda r: predict(np.concatenate([r, r], 1), predict_disable_shape_check=True),
    }
    require_equal_bits(path, tmp_path, rows, ways)


@pytest.mark.parametrize(
    ("label", "options"),
    [
        ("number", {}),
        ("classes", {"loss_function": "MultiClass"}),
        ("two", {"loss_function": "Logloss"}),
        ("number", {"grow_policy": "Lossguide"}),
        ("number", {"depth": 12}),
        ("vector", {"loss_function": "MultiRMSE"}),
    ],
)
def test_catboost(label: str, options: dict[str, Any], tmp_path: Path) -> None:
    catboost = pytest.importorskip("catboost", reason="CatBoost is not installed")
    path = tmp_path / "model.cbm"
    fixed = {"iterations": 12, "verbose": 0, "allow_writing_files": False, "random_seed": 1, "thread_count": 2}
    model = catboost.CatBoost({**fixed, "loss_function": "RMSE", **options}).fit(X, LABELS[label])
    model.save_model(str(path))

    def predict(r: Any, threads: int = 2) -> Array:
        return np.asarray(model.predict(r, prediction_type="RawFormulaVal", thread_count=threads))

    ways: dict[str, Predict] = {
        "one thread": lambda r: predict(r, 1),
        "two threads": predict,
        "a pool": lambda r: predict(catboost.Pool(r)),
        "columns one after another": lambda r: predict(np.asfortranarray(r)),
    }
    require_equal_bits(path, tmp_path, X, ways)
