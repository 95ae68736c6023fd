"""Writes `data/objectives.npz`: a small model of each objective and booster, and what its library predicts.

    pip install --target FOLDER lightgbm xgboost-cpu catboost && PYTHONPATH=FOLDER python generate_objectives.py

NAME/file.SUFFIX are the bytes of a model, NAME/raw and NAME/prediction its results for `lightgbm/inputs`,
`xgboost/inputs` or `catboost/inputs`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import xgboost

ROWS, SHOWN = 400, 40
rng = np.random.default_rng(11)
X = rng.normal(size=(ROWS, 5)).astype(np.float32)
X[rng.random(X.shape) < 0.1] = np.nan
Y = np.nan_to_num(X[:, 0]) * 2 + np.nan_to_num(X[:, 1]) ** 2 + rng.normal(size=ROWS) / 4
POSITIVE = np.abs(Y) + 0.1
TWO = (Y > 1).astype(int)
THREE = TWO + (Y > 2.5)
SHARE = 1 / (1 + np.exp(-Y))
LABELS = np.stack([TWO, (X[:, 2] > 0).astype(int)], 1)
QUERY = np.full(ROWS // 20, 20)
SHOW = X[:SHOWN].copy()
SHOW[0], SHOW[1], SHOW[2] = 3e38, -3e38, 1e-40
stored: dict[str, Any] = {}
folder = Path(tempfile.mkdtemp())


def keep(name: str, path: Path, raw: Any, prediction: Any) -> None:
    stored[f"{name}/file{path.suffix}"] = np.frombuffer(path.read_bytes(), np.uint8)
    stored[f"{name}/raw"], stored[f"{name}/prediction"] = np.asarray(raw), np.asarray(prediction)


def write_lightgbm(name: str, label: Any, *, query: Any = None, rounds: int = 3, **options: Any) -> None:
    data = lightgbm.Dataset(X.astype(np.float64), label, group=query)
    fixed = {"verbose": -1, "num_leaves": 6, "seed": 1, "min_data_in_leaf": 5}
    model = lightgbm.train({**fixed, **options}, data, rounds)
    model.save_model(folder / "model.txt")
    shown = SHOW.astype(np.float64)
    keep(f"lightgbm-{name}", folder / "model.txt", model.predict(shown, raw_score=True), model.predict(shown))


def write_xgboost(name: str, label: Any, *, query: Any = None, rounds: int = 3, **options: Any) -> None:
    data = xgboost.DMatrix(X, label)
    if query is not None:
        data.set_group(query)
    if options["objective"] == "survival:aft":
        data.set_float_info("label_lower_bound", POSITIVE)
        data.set_float_info("label_upper_bound", POSITIVE + 1)
    model = xgboost.train({"max_depth": 2, "seed": 1, **options}, data, rounds)
    model.save_model(folder / "model.ubj")
    shown = xgboost.DMatrix(SHOW)
    keep(f"xgboost-{name}", folder / "model.ubj", model.predict(shown, output_margin=True), model.predict(shown))


def write_catboost(
    name: str, label: Any, kind: str = "", *, query: Any = None, rounds: int = 3, **options: Any
) -> None:
    fixed = {"depth": 3, "iterations": rounds, "verbose": 0, "allow_writing_files": False, "random_seed": 1}
    model = catboost.CatBoost({**fixed, "border_count": 8, **options})
    groups = None if query is None else np.repeat(np.arange(len(query)), query)
    model.fit(catboost.Pool(X, label, group_id=groups))
    model.save_model(str(folder / "model.cbm"))
    raw = model.predict(SHOW, prediction_type="RawFormulaVal")
    prediction = model.predict(SHOW, prediction_type=kind) if kind else raw
    if prediction.ndim == 2 and raw.ndim == 1:
        prediction = prediction[:, 1]
    keep(f"catboost-{name}", folder / "model.cbm", raw, prediction)


stored["lightgbm/inputs"], stored["xgboost/inputs"], stored["catboost/inputs"] = SHOW.astype(np.float64), SHOW, SHOW
for objective in ("regression_l1", "huber", "fair", "quantile", "mape"):
    write_lightgbm(objective, Y, objective=objective)
for objective in ("gamma", "tweedie", "poisson"):
    write_lightgbm(objective, POSITIVE, objective=objective)
write_lightgbm("rank_xendcg", THREE, objective="rank_xendcg", query=QUERY)
write_lightgbm("extra_trees", Y, objective="regression", extra_trees=True)
write_lightgbm("interactions", Y, objective="regression", interaction_constraints=[[0, 1], [2, 3, 4]])
write_lightgbm("dart", Y, objective="regression", boosting="dart", drop_rate=0.8, skip_drop=0.0, rounds=6)
write_lightgbm(
    "dart_classes", THREE, objective="multiclass", num_class=3, boosting="dart", drop_rate=0.8, skip_drop=0.0
)
write_lightgbm("forest_binary", TWO, objective="binary", boosting="rf", bagging_freq=1, bagging_fraction=0.5)
write_lightgbm("forest_classes", THREE, objective="multiclass", num_class=3, boosting="rf", bagging_freq=1,
               bagging_fraction=0.5)  # fmt: skip
write_lightgbm("goss", Y, objective="regression", data_sample_strategy="goss")
write_lightgbm("one_leaf", Y, objective="regression", min_data_in_leaf=300)
write_lightgbm("extra_leaves", Y, objective="regression", num_leaves=60, min_data_in_leaf=1, max_depth=20, rounds=1)
for objective in ("absoluteerror", "pseudohubererror", "squaredlogerror"):
    write_xgboost(objective, POSITIVE, objective=f"reg:{objective}")
write_xgboost("quantileerror", Y, objective="reg:quantileerror", quantile_alpha=0.3)
write_xgboost("quantiles", Y, objective="reg:quantileerror", quantile_alpha=[0.2, 0.5, 0.9])
write_xgboost("reg_logistic", SHARE, objective="reg:logistic")
write_xgboost("logitraw", TWO, objective="binary:logitraw")
write_xgboost("hinge", TWO, objective="binary:hinge")
for objective in ("reg:gamma", "reg:tweedie", "survival:cox", "survival:aft"):
    write_xgboost(objective.partition(":")[2], POSITIVE, objective=objective)
for objective in ("rank:pairwise", "rank:map"):
    write_xgboost(objective.partition(":")[2], TWO, objective=objective, query=QUERY)
write_xgboost("labels", LABELS, objective="binary:logistic")
write_xgboost("dart_classes", THREE, objective="multi:softprob", num_class=3, booster="dart", rate_drop=0.5, rounds=4)
write_xgboost("forest_classes", THREE, objective="multi:softprob", num_class=3, num_parallel_tree=3, subsample=0.5,
              learning_rate=1, rounds=1)  # fmt: skip
write_xgboost("lossguide", Y, objective="reg:squarederror", grow_policy="lossguide", max_leaves=9, max_depth=0)
write_xgboost("one_leaf", Y, objective="reg:squarederror", gamma=1e9)
for loss in ("MAE", "Quantile:alpha=0.3", "LogLinQuantile:alpha=0.3", "MAPE", "Lq:q=3", "Huber:delta=1", "LogCosh",
             "Expectile:alpha=0.3"):  # fmt: skip
    write_catboost(loss.partition(":")[0], POSITIVE, loss_function=loss)
write_catboost("MultiQuantile", Y, loss_function="MultiQuantile:alpha=0.2,0.5,0.9")
write_catboost("MultiRMSE", np.stack([Y, -Y], 1), loss_function="MultiRMSE")
write_catboost("RMSEWithUncertainty", Y, loss_function="RMSEWithUncertainty")
write_catboost("CrossEntropy", SHARE, "Probability", loss_function="CrossEntropy")
write_catboost("MultiLogloss", LABELS, "Probability", loss_function="MultiLogloss")
write_catboost("MultiCrossEntropy", np.stack([SHARE, 1 - SHARE], 1), "Probability", loss_function="MultiCrossEntropy")
write_catboost("MultiClassOneVsAll", THREE, "Probability", loss_function="MultiClassOneVsAll")
write_catboost("Tweedie", POSITIVE, "Exponent", loss_function="Tweedie:variance_power=1.5")
for loss in ("QueryRMSE", "QuerySoftMax", "YetiRankPairwise", "PairLogit", "PairLogitPairwise",
             "StochasticRank:metric=NDCG", "LambdaMart"):  # fmt: skip
    write_catboost(loss.partition(":")[0], TWO, loss_function=loss, query=QUERY)
write_catboost("Cox", POSITIVE * np.where(TWO, 1, -1), loss_function="Cox")
write_catboost("depthwise", Y, loss_function="RMSE", grow_policy="Depthwise")
write_catboost("lossguide_classes", THREE, "Probability", loss_function="MultiClass", grow_policy="Lossguide",
               max_leaves=7)  # fmt: skip
write_catboost("deep", Y, loss_function="RMSE", depth=12, rounds=1)
# CatBoost trains `QueryCrossEntropy` and `Combination` on GPUs only; both return the sums.
MISSING = np.stack([Y, -Y], 1)
MISSING[::7, 1] = np.nan
write_catboost("MultiRMSEWithMissingValues", MISSING, loss_function="MultiRMSEWithMissingValues")
write_catboost("SurvivalAft", np.stack([POSITIVE, POSITIVE + 1], 1), loss_function="SurvivalAft")
write_catboost("Focal", TWO, "Probability", loss_function="Focal:focal_alpha=0.5;focal_gamma=0.2")
write_catboost("GroupQuantile", Y, loss_function="GroupQuantile:alpha=0.3", query=QUERY)
write_catboost("StochasticFilter", TWO, loss_function="StochasticFilter", query=QUERY)
write_catboost("ordered", Y, loss_function="RMSE", boosting_type="Ordered")


class Squares:
    """A loss that Python computes."""

    def calc_ders_range(self, approxes: Any, targets: Any, weights: Any) -> list[tuple[float, float]]:
        return [(target - approx, -1.0) for approx, target in zip(approxes, targets, strict=True)]


write_catboost("PythonUserDefinedPerObject", Y, loss_function=Squares(), eval_metric="RMSE")
np.savez_compressed(Path(__file__).parent / "data" / "objectives.npz", **stored)
