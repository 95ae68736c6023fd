"""Nearest neighbours by brute force, nearest centroids, clustering, label propagation, and imputation by neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from .kernels import distances, squared_distances
from .linear import normalized
from .writing import Methods, Numbers, Tensor, Writer, unsupported


def _metric(e: Any) -> Any:
    return getattr(e, "effective_metric_", e.metric)


def _all_distances(w: Writer, e: Any, x: Tensor) -> Tensor:
    if callable(e.metric) or not isinstance(e._fit_X, np.ndarray):
        raise unsupported(e, "its metric is a function, or its points are sparse")
    return distances(w, e, _metric(e), x, e._fit_X, getattr(e, "effective_metric_params_", None))


def _weights(w: Writer, e: Any, near: Tensor) -> Tensor:
    if e.weights is None or e.weights == "uniform":
        return near * 0.0 + 1.0
    if e.weights != "distance":
        raise unsupported(e, "its weights are a function")
    # If a point has distance 0, only points at distance 0 count.
    is_zero = near.same(0.0)
    any_zero = is_zero.any(axis=1, keepdims=True)
    return any_zero.where(is_zero.floats(), 1.0 / is_zero.where(w.lift(1.0, near), near))


def nearest(w: Writer, e: Any, x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns the distances and the indices of the `count` nearest points, the nearest first."""
    near, positions = w.several("top_k", _all_distances(w, e, x), k=count, axis=1, largest=False)
    return near, positions


def neighbour_probabilities(w: Writer, e: Any, x: Tensor) -> Tensor:
    if isinstance(e.classes_, list):
        raise unsupported(e, "several outputs are not supported")
    near, positions = nearest(w, e, x, e.n_neighbors)
    hot = np.eye(len(e.classes_))[np.asarray(e._y).reshape(-1)]
    return normalized(_weighted(w, hot, positions, _weights(w, e, near)))


def _weighted(w: Writer, table: Numbers, positions: Tensor, weights: Tensor) -> Tensor:
    """Returns the weighted sum of rows of a table [N, K]."""
    rows = w.const(np.asarray(table, np.float64)).gather(positions, axis=0, mode="clamp")
    return (rows * weights.unsqueeze(axes=2)).sum(axis=1)


def predict_neighbour_number(w: Writer, e: Any, x: Tensor) -> Tensor:
    near, positions = nearest(w, e, x, e.n_neighbors)
    weights = _weights(w, e, near)
    table = np.asarray(e._y, np.float64)
    found = _weighted(w, table.reshape(len(table), -1), positions, weights) / weights.sum(axis=1, keepdims=True)
    return found.reshape(shape=x.shape[:1]) if table.ndim == 1 else found


def _within(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Returns the weights of all points, 0 beyond the radius."""
    all_distances = _all_distances(w, e, x)
    inside = (all_distances <= float(e.radius)).floats()
    if e.weights in (None, "uniform"):
        return inside
    if e.weights != "distance":
        raise unsupported(e, "its weights are a function")
    is_zero = all_distances.same(0.0)
    any_zero = is_zero.any(axis=1, keepdims=True)
    inverse = inside / is_zero.where(w.lift(1.0, all_distances), all_distances)
    return any_zero.where(is_zero.floats(), inverse)


def radius_probabilities(w: Writer, e: Any, x: Tensor) -> Tensor:
    if isinstance(e.classes_, list):
        raise unsupported(e, "several outputs are not supported")
    hot = np.eye(len(e.classes_))[np.asarray(e._y).reshape(-1)]
    sums = _within(w, e, x) @ w.const(hot)
    total = sums.sum(axis=1, keepdims=True)
    none = total.same(0.0)
    alone = np.zeros(len(e.classes_))
    if e.outlier_label_ is not None:
        alone[np.flatnonzero(np.asarray(e.classes_) == np.asarray(e.outlier_label_).reshape(-1)[0])] = 1.0
    return none.where(w.const(alone), sums / none.where(w.lift(1.0, total), total))


def predict_radius_number(w: Writer, e: Any, x: Tensor) -> Tensor:
    weights = _within(w, e, x)
    table = np.asarray(e._y, np.float64)
    found = (weights @ w.const(table.reshape(len(table), -1))) / weights.sum(axis=1, keepdims=True)
    return found.reshape(shape=x.shape[:1]) if table.ndim == 1 else found


def connect_neighbours(w: Writer, e: Any, x: Tensor) -> Tensor:
    count = e.n_neighbors + (e.mode == "distance")
    found = _all_distances(w, e, x)
    near, positions = w.several("top_k", found, k=count, axis=1, largest=False)
    values = near if e.mode == "distance" else near * 0.0 + 1.0
    zeros = w.full(x, 0.0, found.width())
    return w.apply("scatter", zeros, positions, values, axis=1, mode="clamp")


def connect_radius(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = _all_distances(w, e, x)
    inside = found <= float(e.radius)
    values = found if e.mode == "distance" else found * 0.0 + 1.0
    return inside.where(values, w.lift(0.0, values))


def outlier_factor(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Returns the negated local outlier factor."""
    near, positions = nearest(w, e, x, e.n_neighbors_)
    reach = w.const(np.asarray(e._distances_fit_X_)[:, e.n_neighbors_ - 1]).gather(positions, axis=0, mode="clamp")
    density = 1.0 / (near.maximum(reach).mean(axis=1) + 1e-10)
    known = w.const(np.asarray(e._lrd)).gather(positions, axis=0, mode="clamp")
    return -((known / density.unsqueeze(axes=1)).mean(axis=1))


def nearest_center(w: Writer, x: Tensor, centers: Any) -> Tensor:
    return squared_distances(w, x, centers).argmin(axis=1)


def predict_cluster(w: Writer, e: Any, x: Tensor) -> Tensor:
    return nearest_center(w, x, e.cluster_centers_)


def center_distances(w: Writer, e: Any, x: Tensor) -> Tensor:
    return squared_distances(w, x, e.cluster_centers_).sqrt()


def predict_centroid(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Returns the nearest class. Features are scaled only if the classes have different priors, as in scikit-learn."""
    priors = getattr(e, "class_prior_", None)
    if priors is None or np.isclose(priors, 1 / len(e.classes_)).all():
        return w.choose(e.classes_, -distances(w, e, e.metric, x, e.centroids_))
    return w.choose(e.classes_, centroid_scores(w, e, x))


def decide_centroid(w: Writer, e: Any, x: Tensor) -> Tensor:
    scores = centroid_scores(w, e, x)
    return scores[1] - scores[0] if len(e.classes_) == 2 else scores


def centroid_scores(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Returns the discriminant scores: the logarithms of the priors and the distances of scaled features."""
    centroids = np.asarray(e.centroids_, np.float64)
    scale = np.asarray(e.within_class_std_dev_, np.float64).copy()
    known = scale != 0
    factor = np.where(known, np.divide(1.0, scale, out=np.ones_like(scale), where=known), 1.0)
    squares = distances(w, e, e.metric, x * factor, centroids * factor).square()
    return 2.0 * w.const(np.log(np.asarray(e.class_prior_))) - squares


def predict_bisecting(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Descends the hierarchy of clusters. All nodes are evaluated, and the path selects a leaf."""
    mean = np.asarray(e._X_mean)

    def follow(node: Any) -> Tensor:
        if node.left is None:
            return w.full(x, float(node.label))
        centers = np.stack([node.left.center + mean, node.right.center + mean])
        return nearest_center(w, x, centers).same(0).where(follow(node.left), follow(node.right))

    return follow(e._bisecting_tree).cast(dtype=w.const(np.zeros(1, np.int64)).dtype)


def predict_birch(w: Writer, e: Any, x: Tensor) -> Tensor:
    position = nearest_center(w, x, e.subcluster_centers_)
    return w.const(np.asarray(e.subcluster_labels_, np.int64)).gather(position, axis=0, mode="clamp")


def propagated(w: Writer, e: Any, x: Tensor) -> Tensor:
    labels = np.asarray(e.label_distributions_)
    if e.kernel == "knn":
        _, positions = w.several("top_k", squared_distances(w, x, e.X_), k=e.n_neighbors, axis=1, largest=False)
        sums = w.const(labels).gather(positions, axis=0, mode="clamp").sum(axis=1)
    elif e.kernel == "rbf":
        sums = (squared_distances(w, x, e.X_) * -float(e.gamma)).exp() @ w.const(labels)
    else:
        raise unsupported(e, "its kernel is a function")
    return normalized(sums)


def impute_neighbours(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Replaces a missing number by the mean over the nearest rows that have it. Distances skip missing numbers."""
    if e.metric != "nan_euclidean" or e.weights != "uniform" or e.add_indicator:
        raise unsupported(e, "only `nan_euclidean`, uniform weights and no indicator are supported")
    known = np.asarray(e._fit_X, np.float64)
    absent, features = np.isnan(known), known.shape[1]
    here = x.isnan()
    present = here.logical_not().floats()
    filled = here.where(w.lift(0.0, x), x)
    both = present.row() * w.const((~absent).astype(np.float64))
    gaps = (filled.row() - w.const(np.where(absent, 0.0, known))).square() * both
    common = both.sum(axis=2)
    none = common.same(0.0)
    all_distances = (gaps.sum(axis=2) / none.where(w.lift(1.0, common), common) * float(features)).sqrt()
    all_distances = none.where(w.lift(np.inf, common), all_distances)
    columns = []
    for i in np.flatnonzero(e._valid_mask) if hasattr(e, "_valid_mask") else range(features):
        donors = np.flatnonzero(~absent[:, i])
        count = min(e.n_neighbors, len(donors))
        own = all_distances.columns(donors.tolist())
        near, positions = w.several("top_k", own, k=count, axis=1, largest=False)
        values = w.const(known[donors, i]).gather(positions, axis=0, mode="clamp")
        mean = values.mean(axis=1)
        unknown = near.max(axis=1).isinf()
        finite = near.isfinite().floats()
        some = finite.sum(axis=1)
        partial = (values * finite).sum(axis=1) / some.maximum(1.0)
        mean = unknown.where(partial, mean)
        mean = some.same(0.0).where(w.lift(float(known[donors, i].mean()), mean), mean)
        columns.append(x[int(i)].isnan().where(mean, x[int(i)]))
    return w.stack(columns)


def embed_graph(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Returns the components of the shortest paths through the nearest neighbours."""
    if e.n_neighbors is None:
        raise unsupported(e, "neighbours within a radius are not supported")
    near, positions = nearest(w, e.nbrs_, x, e.n_neighbors)
    paths = w.const(np.asarray(e.dist_matrix_)).gather(positions, axis=0, mode="clamp") + near.unsqueeze(axes=2)
    return w.run(e.kernel_pca_, "transform", paths.min(axis=1).square() * -0.5)


_LABELS: Methods = {
    "predict": lambda w, e, x: w.choose(e.classes_, propagated(w, e, x)),
    "predict_proba": propagated,
}
_CLUSTERS: Methods = {"predict": predict_cluster, "transform": center_distances}
TABLE: dict[str, Methods] = {
    "KNeighborsClassifier": {
        "predict": lambda w, e, x: w.choose(e.classes_, neighbour_probabilities(w, e, x)),
        "predict_proba": neighbour_probabilities,
    },
    "KNeighborsRegressor": {"predict": predict_neighbour_number},
    "RadiusNeighborsClassifier": {
        "predict": lambda w, e, x: w.choose(e.classes_, radius_probabilities(w, e, x)),
        "predict_proba": radius_probabilities,
    },
    "RadiusNeighborsRegressor": {"predict": predict_radius_number},
    "KNeighborsTransformer": {"transform": connect_neighbours},
    "RadiusNeighborsTransformer": {"transform": connect_radius},
    "NearestCentroid": {
        "predict": predict_centroid,
        "decision_function": decide_centroid,
        "predict_proba": lambda w, e, x: centroid_scores(w, e, x).softmax(axis=1),
    },
    "LocalOutlierFactor": {
        "predict": lambda w, e, x: (outlier_factor(w, e, x) - float(e.offset_) < 0.0).where(
            w.const(np.int64(-1)), w.const(np.int64(1))
        ),
        "decision_function": lambda w, e, x: outlier_factor(w, e, x) - float(e.offset_),
        "score_samples": outlier_factor,
    },
    "KMeans": _CLUSTERS,
    "MiniBatchKMeans": _CLUSTERS,
    "BisectingKMeans": {"predict": predict_bisecting, "transform": center_distances},
    "MeanShift": {"predict": predict_cluster},
    "AffinityPropagation": {"predict": predict_cluster},
    "Birch": {
        "predict": predict_birch,
        "transform": lambda w, e, x: squared_distances(w, x, e.subcluster_centers_).sqrt(),
    },
    "LabelPropagation": _LABELS,
    "LabelSpreading": _LABELS,
    "Isomap": {"transform": embed_graph},
    "KNNImputer": {"transform": impute_neighbours},
    "NeighborhoodComponentsAnalysis": {"transform": lambda w, e, x: x @ w.const(np.asarray(e.components_).T)},
}
