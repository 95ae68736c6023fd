"""One fitted instance of every estimator of scikit-learn, with rows to apply it to."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import all_estimators

rng = np.random.default_rng(0)
X = rng.normal(size=(90, 5))
ROWS = np.concatenate([X[:20], rng.normal(size=(20, 5)) * 2])
Y = X[:, 0] * 2 - X[:, 1] + 0.3 * rng.normal(size=90)
CLASSES = (Y > -0.5).astype(int) + (Y > 1)
TWO = (Y > 0).astype(int)
WHOLE = rng.integers(0, 4, (90, 5)).astype(float)
POSITIVE = np.abs(X)


CLASSIFYING = ("Pipeline", "NeighborhoodComponentsAnalysis", "GenericUnivariateSelect")
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "RandomForestClassifier": {"n_estimators": 7},
    "RandomForestRegressor": {"n_estimators": 7},
    "ExtraTreesClassifier": {"n_estimators": 7},
    "ExtraTreesRegressor": {"n_estimators": 7},
    "IsolationForest": {"n_estimators": 9},
    "GradientBoostingClassifier": {"n_estimators": 5},
    "GradientBoostingRegressor": {"n_estimators": 5},
    "HistGradientBoostingClassifier": {"max_iter": 5},
    "HistGradientBoostingRegressor": {"max_iter": 5},
    "RandomTreesEmbedding": {"n_estimators": 3},
    "AdaBoostClassifier": {"n_estimators": 5},
    "AdaBoostRegressor": {"n_estimators": 5},
    "MLPClassifier": {"max_iter": 20, "hidden_layer_sizes": (8,)},
    "Nystroem": {"n_components": 9},
    "MLPRegressor": {"max_iter": 20, "hidden_layer_sizes": (8,)},
    "KernelPCA": {"n_components": 3, "kernel": "rbf"},
    "LocalOutlierFactor": {"novelty": True},
    "PCA": {"n_components": 3, "whiten": True},
    "RBFSampler": {"n_components": 7},
    "RadiusNeighborsClassifier": {"radius": 9.0},
    "RadiusNeighborsRegressor": {"radius": 9.0},
    "SelectKBest": {"k": 3},
    "SequentialFeatureSelector": {"estimator": Ridge(), "n_features_to_select": 2},
    "SelectFromModel": {"estimator": Ridge()},
    "RFE": {"estimator": Ridge()},
    "RFECV": {"estimator": Ridge()},
    "Pipeline": {"steps": [("scale", StandardScaler()), ("classify", LogisticRegression())]},
    "FeatureUnion": {"transformer_list": [("a", StandardScaler()), ("b", MinMaxScaler())]},
    "ColumnTransformer": {"transformers": [("a", StandardScaler(), [0, 2]), ("b", "passthrough", [1])]},
    "VotingClassifier": {
        "estimators": [("a", LogisticRegression()), ("b", DecisionTreeClassifier(max_depth=3))],
        "voting": "soft",
    },
    "VotingRegressor": {"estimators": [("a", Ridge()), ("b", LinearRegression())]},
    "StackingClassifier": {
        "estimators": [("a", LogisticRegression()), ("b", DecisionTreeClassifier(max_depth=3))],
        "cv": 2,
    },
    "StackingRegressor": {"estimators": [("a", Ridge()), ("b", LinearRegression())], "cv": 2},
    "GridSearchCV": {"estimator": LogisticRegression(), "param_grid": {"C": [0.1, 1]}, "cv": 2},
    "RandomizedSearchCV": {
        "estimator": LogisticRegression(),
        "param_distributions": {"C": [0.1, 1]},
        "n_iter": 2,
        "cv": 2,
    },
    "CalibratedClassifierCV": {"estimator": SVC(), "cv": 2},
    "SelfTrainingClassifier": {"estimator": LogisticRegression()},
    "FixedThresholdClassifier": {"estimator": LogisticRegression()},
    "TunedThresholdClassifierCV": {"estimator": LogisticRegression(), "cv": 2},
    "MultiOutputClassifier": {"estimator": LogisticRegression()},
    "ClassifierChain": {"estimator": LogisticRegression()},
    "MultiOutputRegressor": {"estimator": Ridge()},
    "RegressorChain": {"estimator": Ridge()},
    "OneVsRestClassifier": {"estimator": LogisticRegression()},
    "OneVsOneClassifier": {"estimator": LogisticRegression()},
    "OutputCodeClassifier": {"estimator": LogisticRegression(), "random_state": 0},
    "KernelDensity": {"bandwidth": 0.7},
    "KBinsDiscretizer": {"quantile_method": "averaged_inverted_cdf"},
    "QuantileTransformer": {"n_quantiles": 20},
    "OneHotEncoder": {"sparse_output": False, "handle_unknown": "ignore"},
    "MissingIndicator": {"features": "all"},
    "FunctionTransformer": {"func": np.log1p},
    "IsotonicRegression": {"out_of_bounds": "clip"},
    "BernoulliRBM": {"n_iter": 2, "n_components": 4},
    "CCA": {"n_components": 1},
    "PLSSVD": {"n_components": 1},
    "PLSCanonical": {"n_components": 1},
    "FeatureAgglomeration": {"n_clusters": 2},
    "SparseCoder": {"dictionary": X[:4] / np.linalg.norm(X[:4], axis=1, keepdims=True)},
    "NMF": {"n_components": 3},
    "DictionaryLearning": {"n_components": 4, "max_iter": 5},
    "MiniBatchDictionaryLearning": {"n_components": 4, "max_iter": 5},
    "LocallyLinearEmbedding": {"n_components": 2},
    "GaussianMixture": {"n_components": 2},
    "BayesianGaussianMixture": {"n_components": 2},
    "KMeans": {"n_clusters": 3},
    "BisectingKMeans": {"n_clusters": 4},
    "GaussianRandomProjection": {"n_components": 3},
    "SparseRandomProjection": {"n_components": 3, "dense_output": True},
    "Isomap": {"n_components": 2},
    "LabelPropagation": {"gamma": 1.0},
    "GaussianProcessRegressor": {"alpha": 0.1},
    "TargetEncoder": {"cv": 2},
    "KNeighborsTransformer": {"mode": "distance"},
    "AffinityPropagation": {"random_state": 0},
}
"""Options of estimators that need some, or that would take long."""


def fit(name: str, kind: Any) -> tuple[Any, Any]:
    """Returns a fitted instance and rows. Warnings, such as those of fits that do not converge, do not matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _fit(name, kind)


def _fit(name: str, kind: Any) -> tuple[Any, Any]:
    e = kind(**OPTIONS.get(name, {}))
    if "random_state" in e.get_params(deep=False) and e.random_state is None:
        e.set_params(random_state=0)
    x, rows = X, ROWS
    y: Any = Y
    tags = e.__sklearn_tags__()
    is_classifier = tags.estimator_type == "classifier" or name in CLASSIFYING
    if is_classifier or name.startswith("Select") or name == "SelfTrainingClassifier":
        y = CLASSES
    if name in ("FixedThresholdClassifier", "TunedThresholdClassifierCV", "TargetEncoder", "GaussianProcessClassifier"):
        y = TWO
    if name.startswith("MultiTask") or name in ("MultiOutputRegressor", "RegressorChain"):
        y = np.stack([Y, -Y], 1)
    if name in ("MultiOutputClassifier", "ClassifierChain"):
        y = np.stack([TWO, 1 - TWO], 1)
    if name in ("PoissonRegressor", "GammaRegressor", "TweedieRegressor"):
        y = np.abs(Y) + 0.1
    if tags.input_tags.positive_only or name in (
        "FunctionTransformer",
        "BernoulliRBM",
        "TfidfTransformer",
        "SkewedChi2Sampler",
    ):
        x, rows = POSITIVE, np.abs(ROWS)
    if name in ("OneHotEncoder", "OrdinalEncoder", "TargetEncoder", "CategoricalNB"):
        x = rows = WHOLE
    if name in ("SimpleImputer", "MissingIndicator", "KNNImputer", "HistGradientBoostingClassifier"):
        x = np.where(rng.random(X.shape) < 0.1, np.nan, X)
        rows = np.where(rng.random(ROWS.shape) < 0.1, np.nan, ROWS)
    if name in ("LabelEncoder", "LabelBinarizer"):
        return e.fit(CLASSES), CLASSES.astype(float)
    if name == "IsotonicRegression":
        return e.fit(X[:, 0], Y), ROWS[:, 0]
    if name == "KernelCenterer":
        return e.fit(X @ X.T), ROWS @ X.T
    return e.fit(x, y), rows


def estimators() -> dict[str, Any]:
    """Returns all classes with one of the methods that a model has."""
    methods = ("predict", "transform", "score_samples")
    return {name: kind for name, kind in all_estimators() if any(hasattr(kind, m) for m in methods)}
