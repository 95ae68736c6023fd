"""Writes `data/`: small models of LightGBM, XGBoost and CatBoost, and what these libraries predict.

    pip install --target FOLDER lightgbm xgboost-cpu catboost && PYTHONPATH=FOLDER python generate.py

`io.npz` holds NAME.inputs, NAME.raw, NAME.prediction, NAME.leaves of LightGBM, and NAME.categories as text. Inputs
have NaN, zeros, infinities, denormal numbers, thresholds, and categories that no model saw.
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
COLOURS = np.array(["red", "green", "blue", "no colour", "é"])[rng.integers(0, 5, ROWS)]
SIZES = np.array(["S", "M", "L"])[rng.integers(0, 3, ROWS)]
CHOSEN = Y + (COLOURS == "blue") * 2 + (SIZES == "M") * (np.nan_to_num(X[:, 0]) > 0) * 3
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


def write_xgboost(name, label, *, rounds=5, categories=False, suffix=".json", query=None, **options):
    kinds = ["q"] * 5 + ["c"] if categories else None
    data = xgboost.DMatrix(CATEGORIES if categories else X, label, feature_types=kinds, enable_categorical=categories)
    if query is not None:
        data.set_group(query)
    model = xgboost.train({"max_depth": 3, "seed": 1, **options}, data, rounds)
    model.save_model(FOLDER / f"{name}{suffix}")
    shown = xgboost.DMatrix(FINITE, feature_types=kinds, enable_categorical=categories)
    keep(name, FINITE, model.predict(shown, output_margin=True), model.predict(shown))


def write_vectors(name, label, *, rounds=3, **options):
    data = xgboost.DMatrix(X, label)
    fixed = {"max_depth": 3, "seed": 1, "tree_method": "hist", "multi_strategy": "multi_output_tree"}
    model = xgboost.train({**fixed, **options}, data, rounds)
    model.save_model(FOLDER / f"{name}.json")
    shown = xgboost.DMatrix(FINITE)
    keep(name, FINITE, model.predict(shown, output_margin=True), model.predict(shown))


def write_categories(name, label, *, suffix=".cbm", **options):
    """Writes a model of three numerical and three categorical features, which take turns."""
    known = [np.char.mod("%d", CATEGORIES[:, CATEGORY].astype(int)), COLOURS, SIZES]
    shown = [column[:SHOWN].astype("U40").copy() for column in known]
    shown[0][:9], shown[1][3:12] = "a category of 36 letters, never seen", ""

    def pool(numbers, columns, label=None):
        rows = [[v for i in range(3) for v in (float(numbers[r, i]), columns[i][r])] for r in range(len(numbers))]
        return catboost.Pool(rows, label, cat_features=[1, 3, 5])

    fixed = {"depth": 3, "iterations": 4, "verbose": 0, "allow_writing_files": False, "random_seed": 1}
    model = catboost.CatBoost({**fixed, "border_count": 16, "max_ctr_complexity": 3, **options})
    trained = pool(X, known, label)
    model.fit(trained)
    model.save_model(str(FOLDER / f"{name}{suffix}"), format=suffix[1:], pool=trained)
    asked = pool(SHOW, shown)
    raw = model.predict(asked, prediction_type="RawFormulaVal")
    keep(name, SHOW[:, :3], raw, model.predict(asked, prediction_type="Probability") if raw.ndim > 1 else raw)
    stored[f"{name}.categories"] = np.stack(shown, 1)


def write_catboost(name, label, kind="RawFormulaVal", *, suffix=".cbm", query=None, **options):
    fixed = {"depth": 3, "iterations": 5, "verbose": 0, "allow_writing_files": False, "random_seed": 1}
    model = catboost.CatBoost({**fixed, "border_count": 16, **options})
    model.fit(X, label) if query is None else model.fit(
        catboost.Pool(X, label, group_id=np.repeat(np.arange(len(query)), query))
    )
    model.save_model(str(FOLDER / f"{name}{suffix}"), format=suffix[1:])
    predicted = model.predict(SHOW, prediction_type=kind)
    predicted = predicted[:, 1] if options["loss_function"] == "Logloss" else predicted
    keep(name, SHOW, model.predict(SHOW, prediction_type="RawFormulaVal"), predicted)


def write_lightgbm(name, label, *, categories=False, rounds=5, query=None, **options):
    data = CATEGORIES if categories else X
    chosen = [CATEGORY] if categories else []
    of_data = {"linear_tree": options.get("linear_tree", False)}
    known = lightgbm.Dataset(data.astype(np.float64), label, group=query, categorical_feature=chosen, params=of_data)
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
write_lightgbm("lgb_linear", Y, objective="regression", linear_tree=True, categories=True)
write_lightgbm("lgb_linear_classes", THREE, objective="multiclass", num_class=3, linear_tree=True, rounds=2)
write_lightgbm("lgb_monotone", Y, objective="regression", monotone_constraints=[1, -1, 0, 0, 0, 0])
QUERIES = np.full(ROWS // 20, 20)
write_lightgbm("lgb_rank", THREE, objective="lambdarank", query=QUERIES)
write_xgboost("xgb_rank", THREE, objective="rank:ndcg", query=QUERIES)
write_xgboost("xgb_monotone", Y, objective="reg:squarederror", monotone_constraints="(1,-1,0,0,0,0)")
write_xgboost("xgb_together", Y, objective="reg:squarederror", interaction_constraints="[[0,1],[2,3,4,5]]")
write_vectors("xgb_vectors", np.stack([Y, -Y, Y * 2], 1), objective="reg:squarederror")
write_vectors("xgb_vector_classes", THREE, objective="multi:softprob", num_class=3, rounds=2)
write_catboost("cat_rank", THREE, loss_function="YetiRank", iterations=3, query=QUERIES)
write_catboost("cat_monotone", Y, loss_function="RMSE", monotone_constraints=[1, -1, 0, 0, 0, 0], iterations=3)
write_categories("cat_one_hot", CHOSEN, loss_function="RMSE", one_hot_max_size=50)
write_categories("cat_statistics", CHOSEN, loss_function="RMSE", one_hot_max_size=3, iterations=8)
MANY = ["Buckets", "BinarizedTargetMeanValue", "Counter", "Borders"]
CLASSES = np.digitize(CHOSEN, [0, 2, 4])
for suffix, name in ((".cbm", "cat_statistics_of_classes"), (".json", "cat_statistics_in_json")):
    options = {"loss_function": "MultiClass", "simple_ctr": MANY, "combinations_ctr": MANY, "one_hot_max_size": 3}
    write_categories(name, CLASSES, suffix=suffix, nan_mode="Max", **options)
write_categories("cat_statistics_of_leaves", CHOSEN, loss_function="RMSE", grow_policy="Lossguide", suffix=".json")
np.savez_compressed(FOLDER / "io.npz", **stored)
