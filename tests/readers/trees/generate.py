"""Writes `data/`: small models of LightGBM, XGBoost and CatBoost, and what these libraries predict.

    pip install --target FOLDER lightgbm xgboost-cpu catboost && PYTHONPATH=FOLDER python generate.py

`io.npz` holds NAME.inputs, NAME.raw, NAME.prediction, and NAME.leaves of LightGBM. Inputs have NaN, zeros, infinities,
denormal numbers, thresholds, and categories that no model saw.
"""

from __future__ import annotations

from pathlib import Path

import catboost
import lightgbm
import numpy as np
import xgboost

FOLDER = Path(__file__).parent / "data"
ROWS, SHOWN, CATEGORY = 600, 80, 5


def features(rng):
    x = rng.normal(size=(ROWS, 6)).astype(np.float32)
    x[rng.random(x.shape) < 0.08] = np.nan
    x[rng.random(x.shape) < 0.1] = 0
    return x


rng = np.random.default_rng(3)
X = features(rng)
CATEGORIES = X.copy()
CATEGORIES[:, CATEGORY] = rng.integers(0, 40, ROWS)
Y = np.nan_to_num(X[:, 0]) * 3 + np.nan_to_num(X[:, 1]) ** 2 + (CATEGORIES[:, CATEGORY] % 3 == 0) * 2
Y = Y + rng.normal(size=ROWS)
TWO = (Y > 1.2).astype(int)
THREE = TWO + (Y > 3)
COUNTS = np.abs(Y).round()
SHOW = CATEGORIES[:SHOWN].copy()
SHOW[0], SHOW[1], SHOW[2], SHOW[3] = np.inf, -np.inf, 1e-40, -0.0
SHOW[4:10, CATEGORY] = [-1, 99, 1e9, 2.7, -0.5, np.nan]
FINITE = SHOW.copy()
FINITE[0], FINITE[1] = 3e38, -3e38
stored = {}


def keep(name, inputs, raw, prediction, leaves=None):
    stored.update({f"{name}.inputs": inputs, f"{name}.raw": raw, f"{name}.prediction": prediction})
    if leaves is not None:
        stored[f"{name}.leaves"] = leaves.astype(np.int16)


def write_xgboost(name, label, *, rounds=5, categories=False, suffix=".json", **options):
    kinds = ["q"] * 5 + ["c"] if categories else None
    data = xgboost.DMatrix(CATEGORIES if categories else X, label, feature_types=kinds, enable_categorical=categories)
    model = xgboost.train({"max_depth": 3, "seed": 1, **options}, data, rounds)
    model.save_model(FOLDER / f"{name}{suffix}")
    shown = xgboost.DMatrix(FINITE, feature_types=kinds, enable_categorical=categories)
    keep(name, FINITE, model.predict(shown, output_margin=True), model.predict(shown))


def write_catboost(name, label, kind="RawFormulaVal", *, suffix=".cbm", **options):
    fixed = {"depth": 3, "iterations": 5, "verbose": 0, "allow_writing_files": False, "random_seed": 1}
    model = catboost.CatBoost({**fixed, "border_count": 16, **options})
    model.fit(X, label)
    model.save_model(str(FOLDER / f"{name}{suffix}"), format=suffix[1:])
    predicted = model.predict(SHOW, prediction_type=kind)
    predicted = predicted[:, 1] if options["loss_function"] == "Logloss" else predicted
    keep(name, SHOW, model.predict(SHOW, prediction_type="RawFormulaVal"), predicted)


def write_lightgbm(name, label, *, categories=False, rounds=5, **options):
    data = CATEGORIES if categories else X
    known = lightgbm.Dataset(data.astype(np.float64), label, categorical_feature=[CATEGORY] if categories else [])
    fixed = {"verbose": -1, "num_leaves": 8, "seed": 1, "min_data_in_leaf": 5}
    model = lightgbm.train({**fixed, **options}, known, rounds)
    model.save_model(FOLDER / f"{name}.txt")
    shown = SHOW.astype(np.float64)
    raw, leaves = model.predict(shown, raw_score=True), model.predict(shown, pred_leaf=True)
    keep(name, shown, raw, model.predict(shown), leaves)


write_xgboost("xgb_squared", Y, objective="reg:squarederror", suffix=".ubj")
write_xgboost("xgb_logistic", TWO, objective="binary:logistic")
write_xgboost("xgb_softprob", THREE, objective="multi:softprob", num_class=3, rounds=3)
write_xgboost("xgb_softmax", THREE, objective="multi:softmax", num_class=3, rounds=2, suffix=".ubj")
write_xgboost("xgb_poisson", COUNTS, objective="count:poisson")
write_xgboost("xgb_dart", Y, objective="reg:squarederror", booster="dart", rate_drop=0.3, rounds=9)
write_xgboost("xgb_forest", Y, objective="reg:squarederror", num_parallel_tree=4, subsample=0.5, rounds=1)
write_xgboost("xgb_categories", Y, objective="reg:squarederror", categories=True, max_cat_to_onehot=2, suffix=".ubj")
write_xgboost("xgb_one_hot", Y, objective="reg:squarederror", categories=True, max_cat_to_onehot=100)
write_xgboost("xgb_targets", np.stack([Y, -Y], 1), objective="reg:squarederror", rounds=3)
write_catboost("cat_rmse", Y, loss_function="RMSE", nan_mode="Min")
write_catboost("cat_logloss", TWO, "Probability", loss_function="Logloss", nan_mode="Max")
write_catboost("cat_classes", THREE, "Probability", loss_function="MultiClass", suffix=".json", iterations=3)
write_catboost("cat_poisson", COUNTS, "Exponent", loss_function="Poisson", suffix=".json", iterations=3)
write_catboost("cat_leaves", Y, loss_function="RMSE", grow_policy="Lossguide", suffix=".json", iterations=3)
write_lightgbm("lgb_zero", Y, objective="regression", zero_as_missing=True)
write_lightgbm("lgb_binary", TWO, objective="binary", sigmoid=0.7)
write_lightgbm("lgb_classes", THREE, objective="multiclass", num_class=3, categories=True, rounds=3)
write_lightgbm("lgb_one_of_all", THREE, objective="multiclassova", num_class=3, rounds=2)
write_lightgbm("lgb_forest", Y, objective="regression", boosting="rf", bagging_freq=1, bagging_fraction=0.5)
write_lightgbm("lgb_dart", Y, objective="regression", boosting="dart", categories=True)
write_lightgbm("lgb_poisson", COUNTS, objective="poisson")
write_lightgbm("lgb_root", Y, objective="regression", reg_sqrt=True)
write_lightgbm("lgb_entropy", TWO, objective="cross_entropy")
write_lightgbm("lgb_entropy_lambda", TWO, objective="cross_entropy_lambda")
write_lightgbm("lgb_no_missing", Y, objective="regression", use_missing=False)
np.savez_compressed(FOLDER / "io.npz", **stored)
