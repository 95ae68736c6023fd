"""Meta-estimators: pipelines, column transformers, voting, stacking, boosting, chains, calibration, parameter
searches."""

from __future__ import annotations

from typing import Any

import numpy as np

from .linear import both, normalized
from .preprocessing import interpolate
from .writing import Convert, Methods, Tensor, Writer, as_index, unsupported


def _is_passed(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step == "passthrough")


def through(method: str) -> Convert:
    """Returns the converter of a pipeline: all steps but the last transform the input, and the last one computes the
    method."""

    def convert(w: Writer, e: Any, x: Tensor) -> Tensor:
        for _, step in e.steps[:-1]:
            x = x if _is_passed(step) else w.run(step, "transform", x)
        last = e.steps[-1][1]
        return x if _is_passed(last) else w.run(last, method, x)

    return convert


def delegated(attribute: str, method: str) -> Convert:
    return lambda w, e, x: w.run(getattr(e, attribute), method, x)


def transform_columns(w: Writer, e: Any, x: Tensor) -> Tensor:
    parts = []
    for _, step, columns in e.transformers_:
        if isinstance(step, str) and step == "drop":
            continue
        positions = _column_indices(e, columns)
        if not positions:
            continue
        own = x.columns(positions)
        if _is_passed(step):
            parts.append(own)
            continue
        parts.append(w.run(step, "transform", own[0] if np.isscalar(columns) else own).floats())
    if not parts:
        raise unsupported(e, "it has no columns")
    return w.join(parts)


def _column_indices(e: Any, columns: Any) -> list[int]:
    width = e.n_features_in_
    if isinstance(columns, slice):
        return list(range(width))[columns]
    listed: list[Any] = [columns] if np.isscalar(columns) else list(columns)
    if listed and all(isinstance(c, str) for c in listed):
        names = list(getattr(e, "feature_names_in_", ()))
        return [names.index(c) for c in listed]
    if listed and all(isinstance(c, bool | np.bool_) for c in listed):
        return [int(i) for i in np.flatnonzero(listed)]
    return [int(c) % width for c in listed]


def unite(w: Writer, e: Any, x: Tensor) -> Tensor:
    weights, parts = e.transformer_weights or {}, []
    for name, step in e.transformer_list:
        if isinstance(step, str) and step == "drop":
            continue
        part = x if _is_passed(step) else w.run(step, "transform", x).floats()
        parts.append(part * float(weights[name]) if name in weights else part)
    return w.join(parts)


# Averages


def _weights_of(e: Any, count: int) -> list[float]:
    given = e._weights_not_none
    return [1.0] * count if given is None else [float(v) for v in given]


def weighted_mean(w: Writer, parts: list[Tensor], weights: list[float]) -> Tensor:
    total: Tensor | None = None
    for part, weight in zip(parts, weights, strict=True):
        scaled = part if weight == 1.0 else part * weight
        total = scaled if total is None else total + scaled
    if total is None:
        raise ValueError("there is no estimator to take a mean of")
    return total / float(sum(weights))


def voting_number(w: Writer, e: Any, x: Tensor) -> Tensor:
    parts = [w.run(part, "predict", x).floats() for part in e.estimators_]
    return weighted_mean(w, parts, _weights_of(e, len(parts)))


def voting_probabilities(w: Writer, e: Any, x: Tensor) -> Tensor:
    parts = [w.run(part, "predict_proba", x) for part in e.estimators_]
    return weighted_mean(w, parts, _weights_of(e, len(parts)))


def voting_class(w: Writer, e: Any, x: Tensor) -> Tensor:
    if e.voting == "soft":
        return w.choose(e.classes_, voting_probabilities(w, e, x))
    count = len(e.classes_)
    parts = [hot(w, index_of(w, part, x), count) for part in e.estimators_]
    return w.choose(e.classes_, weighted_mean(w, parts, _weights_of(e, len(parts))))


def hot(w: Writer, index: Tensor, count: int) -> Tensor:
    return index.unsqueeze(axes=1).equal(w.const(np.arange(count, dtype=np.int64))).floats()


def index_of(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Returns predicted classes as indices into the classes of the estimator."""
    found = w.run(e, "predict", x)
    classes = np.asarray(e.classes_)
    if classes.dtype.kind not in "iufb" or (
        found.dtype.is_integer and np.array_equal(classes, np.arange(len(classes)))
    ):
        return found
    return found.unsqueeze(axes=1).equal(w.const(classes.astype(found.dtype.numpy))).floats().argmax(axis=1)


def voting_columns(w: Writer, e: Any, x: Tensor) -> Tensor:
    if hasattr(e, "classes_"):
        if e.voting == "soft":
            parts = [w.run(part, "predict_proba", x) for part in e.estimators_]
            if not e.flatten_transform:
                raise unsupported(e, "`flatten_transform=False` is not supported")
            return w.join(parts)
        return w.stack([index_of(w, part, x) for part in e.estimators_])
    return w.stack([w.run(part, "predict", x).floats() for part in e.estimators_])


def stacked_features(w: Writer, e: Any, x: Tensor) -> Tensor:
    parts = []
    for part, method in zip(e.estimators_, e.stack_method_, strict=True):
        found = w.run(part, method, x).floats()
        if len(found.shape) == 1:
            found = found.unsqueeze(axes=1)
        elif method == "predict_proba" and len(e.classes_) == 2:
            found = found.columns([1])
        parts.append(found)
    return w.join([*parts, x] if e.passthrough else parts)


def stacked(method: str) -> Convert:
    def convert(w: Writer, e: Any, x: Tensor) -> Tensor:
        found = w.run(e.final_estimator_, method, stacked_features(w, e, x))
        return relabelled(w, e, found) if method == "predict" and hasattr(e, "classes_") else found

    return convert


def relabelled(w: Writer, e: Any, index: Tensor) -> Tensor:
    """Returns the classes of encoded labels."""
    return w.labels(e.classes_, as_index(index) if index.dtype.is_float else index)


def bagged_number(w: Writer, e: Any, x: Tensor) -> Tensor:
    parts = [w.run(p, "predict", x.columns(f)) for p, f in zip(e.estimators_, e.estimators_features_, strict=True)]
    return weighted_mean(w, parts, [1.0] * len(parts))


def bagged_probabilities(w: Writer, e: Any, x: Tensor) -> Tensor:
    parts = []
    for part, features in zip(e.estimators_, e.estimators_features_, strict=True):
        own, count = x.columns(features), len(e.classes_)
        if not w.has(part, "predict_proba"):
            parts.append(hot(w, index_of(w, part, own), count))
            continue
        found = w.run(part, "predict_proba", own)
        if len(part.classes_) != count:
            spread = np.zeros((len(part.classes_), count))
            spread[np.arange(len(part.classes_)), np.asarray(part.classes_).astype(int)] = 1
            found = found @ w.const(spread)
        parts.append(found)
    return weighted_mean(w, parts, [1.0] * len(parts))


# Adaptive boosting


def adaptive_decision(w: Writer, e: Any, x: Tensor) -> Tensor:
    count, total = len(e.classes_), None
    for part, weight in zip(e.estimators_, e.estimator_weights_, strict=False):
        own = hot(w, index_of(w, part, x), count)
        scaled = own * float(weight) - (1.0 - own) * float(weight / (count - 1))
        total = scaled if total is None else total + scaled
    if total is None:
        raise unsupported(e, "it has no estimators")
    scores = total / float(np.sum(e.estimator_weights_))
    return scores[1] - scores[0] if count == 2 else scores


def adaptive_probabilities(w: Writer, e: Any, x: Tensor) -> Tensor:
    count, decision = len(e.classes_), adaptive_decision(w, e, x)
    if count == 2:
        half = decision / 2.0
        return w.stack([-half, half]).softmax(axis=1)
    return (decision / float(count - 1)).softmax(axis=1)


def adaptive_class(w: Writer, e: Any, x: Tensor) -> Tensor:
    scores = adaptive_decision(w, e, x)
    return w.labels(e.classes_, as_index(scores > 0.0)) if len(e.classes_) == 2 else w.choose(e.classes_, scores)


def adaptive_number(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Returns the weighted median of the predictions."""
    weights = np.asarray(e.estimator_weights_[: len(e.estimators_)], np.float64)
    all_ = w.stack([w.run(part, "predict", x) for part in e.estimators_])
    order = all_.argsort(axis=1)
    sums = w.const(weights).gather(order, axis=0, mode="clamp").cumsum(axis=1)
    position = (sums >= float(0.5 * np.cumsum(weights)[-1])).floats().argmax(axis=1)
    chosen = order.take_along_axis(position.unsqueeze(axes=1), axis=1, mode="clamp")
    return all_.take_along_axis(chosen, axis=1, mode="clamp").reshape(shape=x.shape[:1])


# Reductions of several classes to two


def score_of(w: Writer, e: Any, x: Tensor) -> Tensor:
    """Returns the decision of a binary classifier, or the probability of its second class, or a number."""
    if w.has(e, "decision_function"):
        return w.run(e, "decision_function", x)
    if w.has(e, "predict_proba"):
        return w.run(e, "predict_proba", x)[1]
    return w.run(e, "predict", x).floats()


def one_rest_class(w: Writer, e: Any, x: Tensor) -> Tensor:
    if e.multilabel_:
        return w.stack([w.run(part, "predict", x) for part in e.estimators_])
    if len(e.estimators_) == 1:
        part = e.estimators_[0]
        threshold = 0.0 if w.has(part, "decision_function") else 0.5
        return w.labels(e.classes_, as_index(score_of(w, part, x) > threshold))
    return w.choose(e.classes_, w.stack([score_of(w, part, x) for part in e.estimators_]))


def one_rest_probabilities(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = w.stack([w.run(part, "predict_proba", x)[1] for part in e.estimators_])
    if len(e.estimators_) == 1:
        return both(w, found[0])
    return found if e.multilabel_ else normalized(found)


def one_rest_decision(w: Writer, e: Any, x: Tensor) -> Tensor:
    parts = [w.run(part, "decision_function", x) for part in e.estimators_]
    return parts[0] if len(parts) == 1 else w.stack(parts)


def one_one_decision(w: Writer, e: Any, x: Tensor) -> Tensor:
    if e.pairwise_indices_ is not None:
        raise unsupported(e, "precomputed kernels are not supported")
    count = len(e.classes_)
    wins = w.stack([index_of(w, part, x) for part in e.estimators_]).floats()
    scores = w.stack([score_of(w, part, x) for part in e.estimators_])
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    first, second = np.zeros((len(pairs), count)), np.zeros((len(pairs), count))
    for row, (i, j) in enumerate(pairs):
        first[row, i] = second[row, j] = 1.0
    sums = scores @ w.const(second - first)
    votes = (1.0 - wins) @ w.const(first) + wins @ w.const(second)
    found = votes + sums / ((sums.abs() + 1.0) * 3.0)
    return found[1] if count == 2 else found


def one_one_class(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = one_one_decision(w, e, x)
    if len(e.classes_) == 2:
        threshold = 0.0 if w.has(e.estimators_[0], "decision_function") else 0.5
        return w.labels(e.classes_, as_index(found > threshold))
    return w.choose(e.classes_, found)


def code_class(w: Writer, e: Any, x: Tensor) -> Tensor:
    scores = w.stack([score_of(w, part, x) for part in e.estimators_])
    book = np.asarray(e.code_book_, np.float64)
    gaps = (scores.row() - w.const(book)).square().sum(axis=2)
    return w.labels(e.classes_, gaps.argmin(axis=1))


def constant(w: Writer, e: Any, x: Tensor) -> Tensor:
    return w.full(x, float(np.asarray(e.y_).reshape(-1)[0]))


def several_outputs(w: Writer, e: Any, x: Tensor) -> Tensor:
    return w.stack([w.run(part, "predict", x) for part in e.estimators_])


def chained(method: str) -> Convert:
    """Returns the converter of a chain. Each estimator also reads the results of the earlier ones, by the method
    `chain_method_` of a classifier."""

    def convert(w: Writer, e: Any, x: Tensor) -> Tensor:
        read, found, inputs = getattr(e, "chain_method_", "predict"), list[Tensor](), x
        for part in e.estimators_:
            found.append(_of_second_class(w, part, method, inputs))
            link = found[-1] if read == method else _of_second_class(w, part, read, inputs)
            inputs = w.join([inputs, link.floats().unsqueeze(axes=1)])
        order = list(e.order_)
        return w.stack([found[order.index(i)] for i in range(len(order))])

    return convert


def _of_second_class(w: Writer, e: Any, method: str, x: Tensor) -> Tensor:
    """Returns the result of a method as a vector: of probabilities, those of the second class."""
    if method == "predict_log_proba":
        return w.run(e, "predict_proba", x)[1].log()
    found = w.run(e, method, x)
    return found[1] if method == "predict_proba" else found


# Calibration and thresholds


def calibrated(w: Writer, e: Any, x: Tensor) -> Tensor:
    parts = [_calibrate(w, part, x) for part in e.calibrated_classifiers_]
    return weighted_mean(w, parts, [1.0] * len(parts))


def _calibrate(w: Writer, e: Any, x: Tensor) -> Tensor:
    inner = e.estimator
    if w.has(inner, "decision_function"):
        scores = w.run(inner, "decision_function", x)
        columns = [scores] if len(scores.shape) == 1 else [scores[i] for i in range(scores.width())]
    else:
        scores = w.run(inner, "predict_proba", x)
        columns = [scores[1]] if len(e.classes) == 2 else [scores[i] for i in range(scores.width())]
    found = [_calibrator(w, c, column) for c, column in zip(e.calibrators, columns, strict=False)]
    if len(e.classes) == 2:
        return both(w, found[0])
    sums = w.stack(found)
    total = sums.sum(axis=1, keepdims=True)
    none = total.same(0.0)
    even = w.lift(1.0 / len(e.classes), sums)
    return none.where(even, sums / none.where(w.lift(1.0, total), total)).clip(low=0.0, high=1.0)


def _calibrator(w: Writer, e: Any, scores: Tensor) -> Tensor:
    if type(e).__name__ == "IsotonicRegression":
        return isotonic(w, e, scores)
    if not hasattr(e, "a_"):
        raise unsupported(e, "the method of calibration is not supported")
    return (-(scores * float(e.a_) + float(e.b_))).sigmoid()


def isotonic(w: Writer, e: Any, x: Tensor) -> Tensor:
    x = x if len(x.shape) == 1 else x[0]
    points, values = np.asarray(e.X_thresholds_, np.float64), np.asarray(e.y_thresholds_, np.float64)
    found = interpolate(w, x, points, values)
    if e.out_of_bounds == "nan":
        outside = (x < float(points[0])).logical_or(x > float(points[-1]))
        found = outside.where(w.lift(np.nan, found), found)
    return found


def threshold_class(w: Writer, e: Any, x: Tensor) -> Tensor:
    inner = e.estimator_
    threshold = getattr(e, "best_threshold_", None)
    names = ["predict_proba", "decision_function"] if e.response_method == "auto" else [e.response_method]
    name = next((n for n in names if hasattr(inner, n)), "")
    if not name:
        raise unsupported(e, f"its estimator has none of the methods {', '.join(names)}")
    scores = w.run(inner, name, x)
    scores = scores[1] if name == "predict_proba" else scores
    if threshold is None:
        automatic = isinstance(e.threshold, str)
        threshold = (0.5 if name == "predict_proba" else 0.0) if automatic else e.threshold
    positive = getattr(e, "pos_label", None)
    if positive is not None and positive != e.classes_[1]:
        raise unsupported(e, "its positive class is not the second one")
    return w.labels(e.classes_, as_index(scores >= float(threshold)))


def retransformed(w: Writer, e: Any, x: Tensor) -> Tensor:
    found = w.run(e.regressor_, "predict", x)
    step = e.transformer_
    kind = type(step).__name__
    if kind == "FunctionTransformer":
        name = getattr(step.inverse_func, "__name__", "")
        if step.inverse_func is None:
            return found
        if name in ("exp", "expm1", "log", "log1p", "sqrt", "square"):
            return w.apply(name, found)
    if kind == "StandardScaler":
        return found * float(step.scale_[0]) + (float(step.mean_[0]) if step.with_mean else 0.0)
    if kind == "MinMaxScaler":
        return (found - float(step.min_[0])) / float(step.scale_[0])
    raise unsupported(e, "the inverse of its transformation has no converter")


def _all(attribute: str, *methods: str) -> Methods:
    return {method: delegated(attribute, method) for method in methods}


_EVERY = ("predict", "predict_proba", "decision_function", "transform", "score_samples")
_THRESHOLD: Methods = {**_all("estimator_", "predict_proba", "decision_function"), "predict": threshold_class}


def _eliminated(method: str) -> Convert:
    return lambda w, e, x: w.run(e.estimator_, method, x.columns(np.flatnonzero(e.support_).tolist()))


_ELIMINATION: Methods = {
    "transform": lambda w, e, x: x.columns(np.flatnonzero(e.support_).tolist()),
    **{m: _eliminated(m) for m in ("predict", "predict_proba", "decision_function")},
}
TABLE: dict[str, Methods] = {
    "Pipeline": {method: through(method) for method in _EVERY},
    "ColumnTransformer": {"transform": transform_columns},
    "FeatureUnion": {"transform": unite},
    "VotingRegressor": {"predict": voting_number, "transform": voting_columns},
    "VotingClassifier": {
        "predict": voting_class,
        "predict_proba": voting_probabilities,
        "transform": voting_columns,
    },
    "StackingRegressor": {"predict": stacked("predict"), "transform": stacked_features},
    "StackingClassifier": {
        "predict": stacked("predict"),
        "predict_proba": stacked("predict_proba"),
        "decision_function": stacked("decision_function"),
        "transform": stacked_features,
    },
    "BaggingRegressor": {"predict": bagged_number},
    "BaggingClassifier": {
        "predict": lambda w, e, x: w.choose(e.classes_, bagged_probabilities(w, e, x)),
        "predict_proba": bagged_probabilities,
    },
    "AdaBoostClassifier": {
        "predict": adaptive_class,
        "predict_proba": adaptive_probabilities,
        "decision_function": adaptive_decision,
    },
    "AdaBoostRegressor": {"predict": adaptive_number},
    "OneVsRestClassifier": {
        "predict": one_rest_class,
        "predict_proba": one_rest_probabilities,
        "decision_function": one_rest_decision,
    },
    "OneVsOneClassifier": {"predict": one_one_class, "decision_function": one_one_decision},
    "OutputCodeClassifier": {"predict": code_class},
    "_ConstantPredictor": {"predict": constant, "decision_function": constant},
    "MultiOutputClassifier": {"predict": several_outputs},
    "MultiOutputRegressor": {"predict": several_outputs},
    "ClassifierChain": {method: chained(method) for method in ("predict", "predict_proba", "decision_function")},
    "RegressorChain": {"predict": chained("predict")},
    "CalibratedClassifierCV": {
        "predict": lambda w, e, x: w.choose(e.classes_, calibrated(w, e, x)),
        "predict_proba": calibrated,
    },
    "IsotonicRegression": {"predict": isotonic, "transform": isotonic},
    "TransformedTargetRegressor": {"predict": retransformed},
    **dict.fromkeys(("GridSearchCV", "RandomizedSearchCV"), _all("best_estimator_", *_EVERY)),
    **dict.fromkeys(("RFE", "RFECV"), _ELIMINATION),
    "SelfTrainingClassifier": _all("estimator_", "predict", "predict_proba", "decision_function"),
    "RANSACRegressor": _all("estimator_", "predict"),
    "FrozenEstimator": _all("estimator", *_EVERY),
    **dict.fromkeys(("FixedThresholdClassifier", "TunedThresholdClassifierCV"), _THRESHOLD),
}
