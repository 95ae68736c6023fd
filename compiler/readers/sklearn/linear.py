"""Linear models: regressors, generalised linear models, classifiers, discriminant analysis, partial least squares."""

from __future__ import annotations

from typing import Any

import numpy as np

from .writing import Methods, Tensor, Writer, as_index, unsupported


def affine(w: Writer, coef: Any, intercept: Any, x: Tensor) -> Tensor:
    """Returns x @ coef.T + intercept; a vector where `coef` is one."""
    coef = np.asarray(coef, np.float64)
    product = x @ w.const(coef.T if coef.ndim > 1 else coef[:, None])
    product = product if coef.ndim > 1 else product.reshape(shape=x.shape[:1])
    intercept = np.asarray(intercept, np.float64)
    if not intercept.any():
        return product
    result: Tensor = product + (intercept.reshape(()) if coef.ndim == 1 else intercept)
    return result


def predict_linear(w: Writer, e: Any, x: Tensor) -> Tensor:
    return affine(w, e.coef_, getattr(e, "intercept_", 0.0), x)


def predict_generalised(w: Writer, e: Any, x: Tensor) -> Tensor:
    link = type(e._base_loss.link).__name__
    raw = predict_linear(w, e, x)
    if link not in ("LogLink", "IdentityLink"):
        raise unsupported(e, f"its link `{link}` is unknown")
    return raw.exp() if link == "LogLink" else raw


def decide(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Returns scores [B, classes], or [B] for two classes."""
    coef, intercept = np.atleast_2d(e.coef_), np.atleast_1d(e.intercept_)
    if coef.shape[0] == 1:
        return affine(w, coef[0], intercept[0] if len(intercept) else 0.0, x)
    return affine(w, coef, np.broadcast_to(intercept, coef.shape[:1]), x)


def predict_from_decision(w: Writer, e: Any, x: Tensor) -> Tensor:
    scores = w.run(e, "decision_function", x)
    if len(scores.shape) == 1:
        return w.labels(e.classes_, as_index(scores > 0))
    return w.choose(e.classes_, scores)


def both(w: Writer, positive: Tensor) -> Tensor:
    """Returns the probabilities of two classes from that of the second one."""
    return w.stack([1.0 - positive, positive])


def soft_probabilities(w: Writer, e: Any, x: Tensor) -> Tensor:
    scores = w.run(e, "decision_function", x)
    return both(w, scores.sigmoid()) if len(scores.shape) == 1 else scores.softmax(axis=1)


def normalized(scores: Tensor) -> Tensor:
    return scores / scores.sum(axis=1, keepdims=True)


def sgd_probabilities(w: Writer, e: Any, x: Tensor) -> Tensor:
    scores = decide(w, e, x)
    if e.loss == "log_loss":
        return both(w, scores.sigmoid()) if len(scores.shape) == 1 else normalized(scores.sigmoid())
    if len(scores.shape) == 1:
        return both(w, (scores.clip(low=-1.0, high=1.0) + 1.0) / 2.0)
    clipped = (scores.clip(low=-1.0, high=1.0) + 1.0) / 2.0
    total = clipped.sum(axis=1, keepdims=True)
    none = total.same(0.0)
    even = 1.0 / clipped.width()
    return none.where(w.lift(even, clipped), clipped / none.where(w.lift(1.0, total), total))


def transform_discriminant(w: Writer, e: Any, x: Tensor) -> Tensor:
    if e.solver == "lsqr":
        raise unsupported(e, "its solver `lsqr` has no transformation")
    centred = x - e.xbar_ if e.solver == "svd" else x
    return (centred @ w.const(np.asarray(e.scalings_)))[: e._max_components]


def decide_quadratic(w: Writer, e: Any, x: Tensor) -> Tensor:
    scores = quadratic_scores(w, e, x)
    return scores[1] - scores[0] if len(e.classes_) == 2 else scores


def quadratic_scores(w: Writer, e: Any, x: Tensor) -> Tensor:
    parts = []
    for mean, scaling, rotation, prior in zip(e.means_, e.scalings_, e.rotations_, e.priors_, strict=True):
        turned = (x - mean) @ w.const(np.asarray(rotation) * np.asarray(scaling) ** -0.5)
        parts.append(turned.square().sum(axis=1) * -0.5 + (np.log(prior) - 0.5 * np.sum(np.log(scaling))))
    return w.stack(parts)


def outlier_labels(w: Writer, decision: Tensor, *, strict: bool = False) -> Tensor:
    """Returns 1 for inliers and -1 for outliers."""
    inside = decision > 0 if strict else decision >= 0
    return as_index(inside) * 2 - 1


def predict_outliers(w: Writer, e: Any, x: Tensor) -> Tensor:
    return outlier_labels(w, w.run(e, "decision_function", x))


def transform_pls(w: Writer, e: Any, x: Tensor) -> Tensor:
    result: Tensor = ((x - e._x_mean) / e._x_std) @ w.const(np.asarray(e.x_rotations_))
    return result


def predict_pls(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = (x - e._x_mean) @ w.const(np.asarray(e.coef_).T) + np.asarray(e.intercept_)
    result: Tensor = found.reshape(shape=x.shape[:1]) if getattr(e, "_predict_1d", False) else found
    return result


_REGRESSOR: Methods = {"predict": predict_linear}
_CLASSIFIER: Methods = {"predict": predict_from_decision, "decision_function": decide}
_GENERALISED: Methods = {"predict": predict_generalised}
_LOGISTIC: Methods = {**_CLASSIFIER, "predict_proba": soft_probabilities}
_PLS: Methods = {"predict": predict_pls, "transform": transform_pls}
_REGRESSORS = (
    "ARDRegression", "BayesianRidge", "ElasticNet", "ElasticNetCV", "HuberRegressor", "Lars", "LarsCV", "Lasso",
    "LassoCV", "LassoLars", "LassoLarsCV", "LassoLarsIC", "LinearRegression", "LinearSVR", "MultiTaskElasticNet",
    "MultiTaskElasticNetCV", "MultiTaskLasso", "MultiTaskLassoCV", "OrthogonalMatchingPursuit",
    "OrthogonalMatchingPursuitCV", "PassiveAggressiveRegressor", "QuantileRegressor", "Ridge", "RidgeCV",
    "SGDRegressor", "TheilSenRegressor",
)  # fmt: skip
_CLASSIFIERS = ("LinearSVC", "PassiveAggressiveClassifier", "Perceptron", "RidgeClassifier", "RidgeClassifierCV")

TABLE = {
    **dict.fromkeys(_REGRESSORS, _REGRESSOR),
    **dict.fromkeys(_CLASSIFIERS, _CLASSIFIER),
    **dict.fromkeys(("GammaRegressor", "PoissonRegressor", "TweedieRegressor"), _GENERALISED),
    **dict.fromkeys(("LogisticRegression", "LogisticRegressionCV"), _LOGISTIC),
    "SGDClassifier": {**_CLASSIFIER, "predict_proba": sgd_probabilities},
    "LinearDiscriminantAnalysis": {
        **_CLASSIFIER,
        "predict_proba": soft_probabilities,
        "transform": transform_discriminant,
    },
    "QuadraticDiscriminantAnalysis": {
        "predict": lambda w, e, x: w.choose(e.classes_, quadratic_scores(w, e, x)),
        "decision_function": decide_quadratic,
        "predict_proba": lambda w, e, x: quadratic_scores(w, e, x).softmax(axis=1),
    },
    "SGDOneClassSVM": {
        "predict": predict_outliers,
        "decision_function": lambda w, e, x: affine(w, e.coef_.reshape(-1), -np.asarray(e.offset_).reshape(()), x),
        "score_samples": lambda w, e, x: affine(w, e.coef_.reshape(-1), 0.0, x),
    },
    **dict.fromkeys(("PLSRegression", "PLSCanonical", "CCA"), _PLS),
    "PLSSVD": {"transform": lambda w, e, x: ((x - e._x_mean) / e._x_std) @ w.const(np.asarray(e.x_weights_))},
}
