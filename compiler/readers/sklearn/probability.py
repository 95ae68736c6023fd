"""Naive Bayes, mixture models, density estimation, and dummy estimators."""

from __future__ import annotations

from typing import Any

import numpy as np

from .kernels import distances
from .linear import outlier_labels
from .writing import Convert, Methods, Numbers, Tensor, Writer, as_index, unsupported


def gaussian_scores(w: Writer, e: Any, x: Tensor) -> Tensor:
    parts = []
    for mean, variance, prior in zip(e.theta_, e.var_, e.class_prior_, strict=True):
        start = float(np.log(prior) - 0.5 * np.sum(np.log(2.0 * np.pi * variance)))
        parts.append((((x - mean).square()) / variance).sum(axis=1) * -0.5 + start)
    return w.stack(parts)


def bernoulli_scores(w: Writer, e: Any, x: Tensor) -> Tensor:
    x = x if e.binarize is None else (x > float(e.binarize)).floats()
    absent = np.log(1 - np.exp(e.feature_log_prob_))
    result: Tensor = x @ w.const((e.feature_log_prob_ - absent).T) + (e.class_log_prior_ + absent.sum(1))
    return result


def multinomial_scores(w: Writer, e: Any, x: Tensor) -> Tensor:
    result: Tensor = x @ w.const(np.asarray(e.feature_log_prob_).T) + e.class_log_prior_
    return result


def complement_scores(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = x @ w.const(np.asarray(e.feature_log_prob_).T)
    return found + e.class_log_prior_ if len(e.classes_) == 1 else found


def categorical_scores(w: Writer, e: Any, x: Tensor) -> Tensor:
    total: Tensor | None = None
    for i, table in enumerate(e.feature_log_prob_):
        part = w.const(np.ascontiguousarray(np.asarray(table).T)).gather(as_index(x[i]), axis=0)
        total = part if total is None else total + part
    if total is None:
        raise unsupported(e, "it has no features")
    result: Tensor = total + e.class_log_prior_
    return result


def _bayes(scores: Convert) -> Methods:
    return {
        "predict": lambda w, e, x: w.choose(e.classes_, scores(w, e, x)),
        "predict_proba": lambda w, e, x: scores(w, e, x).softmax(axis=1),
    }


def log_weights(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Returns the logarithms of the weighted densities of the mixture components."""
    cholesky, kind = np.asarray(e.precisions_cholesky_), e.covariance_type
    features = x.width()
    parts = []
    for k, mean in enumerate(np.asarray(e.means_)):
        factor = cholesky[k] if kind in ("full", "spherical", "diag") else cholesky
        if kind in ("full", "tied"):
            scaled, determinant = (x - mean) @ w.const(np.asarray(factor)), np.sum(np.log(np.diag(factor)))
        else:
            scaled = (x - mean) * factor
            determinant = np.sum(np.log(factor)) if kind == "diag" else features * np.log(factor)
        parts.append(scaled.square().sum(axis=1) * -0.5 + float(determinant - 0.5 * features * np.log(2 * np.pi)))
    return w.stack(parts) + component_offsets(e, features)


def component_offsets(e: Any, features: int) -> Numbers:
    if type(e).__name__ == "GaussianMixture":
        return np.asarray(np.log(e.weights_))
    degrees = np.asarray(e.degrees_of_freedom_, np.float64)
    digammas = np.asarray([sum(digamma(0.5 * (d - i)) for i in range(features)) for d in np.atleast_1d(degrees)])
    spread = features * np.log(2.0) + digammas - features / np.asarray(e.mean_precision_)
    return np.asarray(_log_stick_weights(e) - 0.5 * features * np.log(degrees) + 0.5 * spread)


def _log_stick_weights(e: Any) -> Numbers:
    if e.weight_concentration_prior_type == "dirichlet_process":
        a, b = (np.asarray(part) for part in e.weight_concentration_)
        total = np.asarray([digamma(v) for v in a + b])
        own, rest = np.asarray([digamma(v) for v in a]), np.asarray([digamma(v) for v in b])
        return np.asarray(own - total + np.concatenate([[0.0], np.cumsum(rest - total)[:-1]]))
    concentration = np.asarray(e.weight_concentration_)
    return np.asarray([digamma(v) for v in concentration]) - digamma(float(np.sum(concentration)))


_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760)


def digamma(x: float) -> float:
    """Returns the digamma function of positive x: the recurrence up to large arguments, then the asymptotic series."""
    total = 0.0
    while x < 12:
        total -= 1 / x
        x += 1
    inverse = 1 / (x * x)
    series = 0.0
    for coefficient in reversed(_DIGAMMA):
        series = inverse * (coefficient + series)
    return float(total + np.log(x) - 0.5 / x - series)


_MIXTURE: Methods = {
    "predict": lambda w, e, x: log_weights(w, e, x).argmax(axis=1),
    "predict_proba": lambda w, e, x: log_weights(w, e, x).softmax(axis=1),
    "score_samples": lambda w, e, x: log_weights(w, e, x).logsumexp(axis=1),
}


def density(w: Writer, e: Any, x: Tensor) -> Tensor:
    data = np.asarray(e.tree_.data)
    if e.tree_.sample_weight is not None:
        raise unsupported(e, "weights of samples are not supported")
    h, features = float(e.bandwidth_), data.shape[1]
    if e.metric not in ("euclidean", "minkowski"):
        raise unsupported(e, f"the metric `{e.metric}` is not supported")
    d = distances(w, e, "euclidean", x, data) / h
    if e.kernel == "gaussian":
        logs = d.square() * -0.5
        norm = 0.5 * features * np.log(2 * np.pi)
    elif e.kernel == "exponential":
        logs = -d
        norm = _log_sphere(features - 1) + float(np.sum(np.log(np.arange(1, features))))
    else:
        raise unsupported(e, f"the kernel `{e.kernel}` is not supported")
    return logs.logsumexp(axis=1) - float(norm + features * np.log(h) + np.log(len(data)))


def _log_sphere(n: int) -> float:
    """Returns the logarithm of the surface area of the unit sphere in n dimensions."""
    half, gamma = (n - 1 + 2) / 2, 0.0
    gamma = float(np.log(np.sqrt(np.pi))) if half != int(half) else 0.0
    start = 0.5 if half != int(half) else 1.0
    while start < half:
        gamma += float(np.log(start))
        start += 1
    return float(np.log(2 * np.pi) + 0.5 * (n - 1) * np.log(np.pi) - gamma)


def envelope_scores(w: Writer, e: Any, x: Tensor) -> Tensor:
    gap = x - e.location_
    result: Tensor = -((gap @ w.const(np.asarray(e.precision_))) * gap).sum(axis=1)
    return result


def dummy_class(w: Writer, e: Any, x: Tensor) -> Tensor:
    if e.strategy in ("uniform", "stratified"):
        raise unsupported(e, f"the strategy `{e.strategy}` is random")
    prior = np.asarray(e.class_prior_)
    chosen = int(prior.argmax())
    if e.strategy == "constant":
        chosen = int(np.flatnonzero(np.asarray(e.classes_) == e.constant)[0])
    return w.labels(e.classes_, as_index(w.full(x, float(chosen))))


def dummy_probabilities(w: Writer, e: Any, x: Tensor) -> Tensor:
    if e.strategy in ("uniform", "stratified"):
        raise unsupported(e, f"the strategy `{e.strategy}` is random")
    prior = np.asarray(e.class_prior_, np.float64)
    if e.strategy == "most_frequent":
        prior = np.eye(len(prior))[int(prior.argmax())]
    if e.strategy == "constant":
        prior = (np.asarray(e.classes_) == e.constant).astype(np.float64)
    return w.full(x, 0.0, len(prior)) + prior


def dummy_number(w: Writer, e: Any, x: Tensor) -> Tensor:
    constant = np.asarray(e.constant_, np.float64).reshape(-1)
    return w.full(x, float(constant[0])) if len(constant) == 1 else w.full(x, 0.0, len(constant)) + constant


TABLE: dict[str, Methods] = {
    "GaussianNB": _bayes(gaussian_scores),
    "BernoulliNB": _bayes(bernoulli_scores),
    "MultinomialNB": _bayes(multinomial_scores),
    "ComplementNB": _bayes(complement_scores),
    "CategoricalNB": _bayes(categorical_scores),
    "GaussianMixture": _MIXTURE,
    "BayesianGaussianMixture": _MIXTURE,
    "KernelDensity": {"score_samples": density},
    "EllipticEnvelope": {
        "predict": lambda w, e, x: outlier_labels(w, envelope_scores(w, e, x) - float(e.offset_)),
        "decision_function": lambda w, e, x: envelope_scores(w, e, x) - float(e.offset_),
        "score_samples": envelope_scores,
    },
    "DummyClassifier": {"predict": dummy_class, "predict_proba": dummy_probabilities},
    "DummyRegressor": {"predict": dummy_number},
}
