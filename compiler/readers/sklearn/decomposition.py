"""Linear decompositions and projections, and multi-layer perceptrons."""

from __future__ import annotations

from typing import Any

import numpy as np

from .linear import both
from .writing import Methods, Tensor, Writer, as_index


def project(w: Writer, e: Any, x: Tensor) -> Tensor:
    components = e.components_.toarray() if hasattr(e.components_, "toarray") else e.components_
    return x @ w.const(np.asarray(components, np.float64).T)


def project_centred(w: Writer, e: Any, x: Tensor) -> Tensor:
    return project(w, e, x - e.mean_ if getattr(e, "mean_", None) is not None else x)


def transform_components(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = project_centred(w, e, x)
    if not e.whiten:
        return found
    scale = np.sqrt(np.asarray(e.explained_variance_))
    result: Tensor = found / np.maximum(scale, np.finfo(scale.dtype).eps)
    return result


def _noise(e: Any) -> Any:
    return np.asarray(e.get_precision(), np.float64)


def log_likelihood(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Returns the log-likelihood of rows under the Gaussian model of a decomposition."""
    centred, precision = x - e.mean_, _noise(e)
    constant = 0.5 * (x.width() * np.log(2.0 * np.pi) - np.linalg.slogdet(precision)[1])
    result: Tensor = (centred * (centred @ w.const(precision))).sum(axis=1) * -0.5 - float(constant)
    return result


def transform_factors(w: Writer, e: Any, x: Tensor) -> Tensor:
    weighted = np.asarray(e.components_) / e.noise_variance_
    covariance = np.linalg.inv(np.eye(len(weighted)) + weighted @ np.asarray(e.components_).T)
    result: Tensor = (x - e.mean_) @ w.const(weighted.T @ covariance)
    return result


def transform_independent(w: Writer, e: Any, x: Tensor) -> Tensor:
    return project(w, e, x - e.mean_ if e.whiten else x)


def transform_sparse_components(w: Writer, e: Any, x: Tensor) -> Tensor:
    components = np.asarray(e.components_, np.float64)
    gram = components @ components.T + e.ridge_alpha * np.eye(len(components))
    result: Tensor = (x - e.mean_) @ w.const(np.linalg.solve(gram, components).T)
    return result


def agglomerate(w: Writer, e: Any, x: Tensor) -> Tensor:
    labels = np.asarray(e.labels_)
    if e.pooling_func is not np.mean:
        from_name = getattr(e.pooling_func, "__name__", "")
        if from_name in ("max", "amax"):
            groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
            return w.stack([x.columns(group.tolist()).max(axis=1) for group in groups])
    members = (labels[:, None] == np.unique(labels)).astype(np.float64)
    return x @ w.const(members / members.sum(0))


def transform_machine(w: Writer, e: Any, x: Tensor) -> Tensor:
    return (x @ w.const(np.asarray(e.components_).T) + np.asarray(e.intercept_hidden_)).sigmoid()


_ACTIVATIONS = {"relu": "relu", "tanh": "tanh", "logistic": "sigmoid"}


def network(w: Writer, e: Any, x: Tensor) -> Tensor:
    layers = list(zip(e.coefs_, e.intercepts_, strict=True))
    for number, (weight, bias) in enumerate(layers):
        x = x @ w.const(np.asarray(weight, np.float64)) + np.asarray(bias, np.float64)
        name = e.activation if number + 1 < len(layers) else e.out_activation_
        if name == "softmax":
            x = x.softmax(axis=1)
        elif name != "identity":
            x = w.apply(_ACTIVATIONS[name], x)
    return x


def network_number(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = network(w, e, x)
    return found.reshape(shape=x.shape[:1]) if found.width() == 1 else found


def network_probabilities(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = network(w, e, x)
    return both(w, found[0]) if found.width() == 1 else found


def network_class(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = network(w, e, x)
    if found.width() == 1:
        return w.labels(e.classes_, as_index(found[0] > 0.5))
    if e.out_activation_ == "logistic":
        return as_index(found > 0.5)
    return w.choose(e.classes_, found)


_LINEAR: Methods = {"transform": project}
_COMPONENTS: Methods = {"transform": transform_components, "score_samples": log_likelihood}
_SPARSE: Methods = {"transform": transform_sparse_components}
TABLE: dict[str, Methods] = {
    **dict.fromkeys(("TruncatedSVD", "GaussianRandomProjection", "SparseRandomProjection"), _LINEAR),
    **dict.fromkeys(("PCA", "IncrementalPCA"), _COMPONENTS),
    "FactorAnalysis": {"transform": transform_factors, "score_samples": log_likelihood},
    "FastICA": {"transform": transform_independent},
    **dict.fromkeys(("SparsePCA", "MiniBatchSparsePCA"), _SPARSE),
    "FeatureAgglomeration": {"transform": agglomerate},
    "BernoulliRBM": {"transform": transform_machine},
    "MLPRegressor": {"predict": network_number},
    "MLPClassifier": {"predict": network_class, "predict_proba": network_probabilities},
}
