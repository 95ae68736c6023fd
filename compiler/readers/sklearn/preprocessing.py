"""Preprocessing: scalers, encoders, imputers, discretisers, feature selection, polynomial and quantile features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .writing import Methods, Numbers, Tensor, Writer, as_index, unsupported


def scale_standard(w: Writer, e: Any, x: Tensor) -> Tensor:
    if e.with_mean and e.mean_ is not None:
        x = x - e.mean_
    return x / e.scale_ if e.with_std and e.scale_ is not None else x


def scale_range(w: Writer, e: Any, x: Tensor) -> Tensor:
    x = x * e.scale_ + e.min_
    return x.clip(low=float(e.feature_range[0]), high=float(e.feature_range[1])) if e.clip else x


def scale_robust(w: Writer, e: Any, x: Tensor) -> Tensor:
    x = x - e.center_ if e.with_centering else x
    return x / e.scale_ if e.with_scaling else x


def scale_greatest(w: Writer, e: Any, x: Tensor) -> Tensor:
    x = x / e.scale_
    return x.clip(low=-1.0, high=1.0) if getattr(e, "clip", False) else x


def normalize(w: Writer, e: Any, x: Tensor) -> Tensor:
    if e.norm == "l1":
        norms = x.abs().sum(axis=1, keepdims=True)
    elif e.norm == "l2":
        norms = x.square().sum(axis=1, keepdims=True).sqrt()
    else:
        norms = x.abs().max(axis=1, keepdims=True)
    return x / norms.same(0.0).where(w.lift(1.0, norms), norms)


def binarize(w: Writer, e: Any, x: Tensor) -> Tensor:
    return (x > float(e.threshold)).floats()


def power_features(w: Writer, e: Any, x: Tensor) -> Tensor:
    columns = []
    for i, lam in enumerate(np.asarray(e.lambdas_)):
        column = x[i]
        columns.append(box_cox(column, float(lam)) if e.method == "box-cox" else yeo_johnson(w, column, float(lam)))
    found = w.stack(columns)
    return w.run(e._scaler, "transform", found) if e.standardize else found


def box_cox(x: Tensor, lam: float) -> Tensor:
    return x.log() if lam == 0 else (x.log() * lam).expm1() / lam


def yeo_johnson(w: Writer, x: Tensor, lam: float) -> Tensor:
    positive = x >= 0.0
    up, down = x.maximum(0.0), -x.minimum(0.0)
    above = up.log1p() if abs(lam) < np.spacing(1.0) else (up.log1p() * lam).expm1() / lam
    below = -((down.log1p() * (2 - lam)).expm1()) / (2 - lam) if abs(lam - 2) > np.spacing(1.0) else -down.log1p()
    return positive.where(above, below)


def interpolate(w: Writer, x: Tensor, points: Numbers, values: Numbers) -> Tensor:
    """Returns the piecewise linear function through points with ascending x, constant outside, as `numpy.interp`
    does."""
    points, values = np.asarray(points, np.float64), np.asarray(values, np.float64)
    if len(points) == 1:
        return x * 0.0 + float(values[0])
    # The interval begins with the last point that is not greater than x.
    position = as_index(x.unsqueeze(axes=1) >= w.const(points)).sum(axis=1)
    low = (position - 1).clip(low=0.0, high=float(len(points) - 2))
    gaps = np.diff(points)
    slopes = np.divide(np.diff(values), gaps, out=np.zeros(len(gaps)), where=gaps != 0)

    def pick(table: Numbers) -> Tensor:
        return w.const(table).gather(low, axis=0, mode="clamp")

    inside = pick(slopes) * (x - pick(points[:-1])) + pick(values[:-1])
    above = (x >= float(points[-1])).where(w.lift(float(values[-1]), x), inside)
    return (x < float(points[0])).where(w.lift(float(values[0]), x), above)


def spread_quantiles(w: Writer, e: Any, x: Tensor) -> Tensor:
    from_below = 1e-7
    columns = []
    references = np.asarray(e.references_)
    for i in range(x.width()):
        column, quantiles = x[i], np.asarray(e.quantiles_)[:, i]
        forward = interpolate(w, column, quantiles, references)
        backward = interpolate(w, -column, -quantiles[::-1], -references[::-1])
        middle = (forward - backward) * 0.5
        low, high = float(quantiles[0]), float(quantiles[-1])
        if e.output_distribution == "normal":
            is_low, is_high = column - from_below < low, column + from_below > high
        else:
            is_low, is_high = column.same(low), column.same(high)
        found = is_high.where(w.lift(1.0, column), is_low.where(w.lift(0.0, column), middle))
        found = column.isnan().where(column, found)
        columns.append(found)
    result = w.stack(columns)
    if e.output_distribution == "normal":
        raise unsupported(e, "the inverse of the normal distribution has no operator")
    return result


def polynomial(w: Writer, e: Any, x: Tensor) -> Tensor:
    columns: list[Tensor] = []
    for powers in np.asarray(e.powers_):
        product: Tensor | None = None
        for i, power in enumerate(powers):
            for _ in range(int(power)):
                product = x[i] if product is None else product * x[i]
        columns.append(w.full(x, 1.0) if product is None else product)
    return w.stack(columns)


def positions(w: Writer, column: Tensor, known: Numbers) -> tuple[Tensor, Tensor]:
    """Returns the index of each element among known numbers, and whether it is one of them; NaN equals NaN."""
    known = np.asarray(known, np.float64)
    wide = column.unsqueeze(axes=1)
    equal = wide.same(w.const(known))
    if np.isnan(known).any():
        equal = equal.logical_or(wide.isnan().logical_and(w.const(np.isnan(known))))
    return equal.floats().argmax(axis=1), equal.any(axis=1)


def _numbers_of(e: Any, categories: Any) -> Numbers:
    known = np.asarray(categories)
    if known.dtype.kind == "O":
        try:
            known = known.astype(np.float64)
        except (TypeError, ValueError):
            raise unsupported(e, "its categories are texts; features are numbers") from None
    if known.dtype.kind not in "iufb":
        raise unsupported(e, "its categories are texts; features are numbers")
    return known.astype(np.float64)


def encode_ordinal(w: Writer, e: Any, x: Tensor) -> Tensor:
    columns = []
    for i, categories in enumerate(e.categories_):
        known = _numbers_of(e, categories)
        index, found = positions(w, x[i], known)
        codes = np.arange(len(known), dtype=np.float64)
        if getattr(e, "_missing_indices", {}) and i in e._missing_indices:
            codes[e._missing_indices[i]] = e.encoded_missing_value
        column = w.const(codes).gather(index, axis=0, mode="clamp")
        if e.handle_unknown == "use_encoded_value":
            column = found.where(column, w.lift(float(e.unknown_value), column))
        columns.append(column)
    if any(part is not None for part in getattr(e, "infrequent_categories_", None) or ()):
        raise unsupported(e, "infrequent categories are not supported")
    return w.stack(columns)


def encode_one_hot(w: Writer, e: Any, x: Tensor) -> Tensor:
    if any(part is not None for part in getattr(e, "infrequent_categories_", None) or ()):
        raise unsupported(e, "infrequent categories are not supported")
    parts = []
    for i, categories in enumerate(e.categories_):
        known = _numbers_of(e, categories)
        wide = x[i].unsqueeze(axes=1)
        equal = wide.same(w.const(known))
        if np.isnan(known).any():
            equal = equal.logical_or(wide.isnan().logical_and(w.const(np.isnan(known))))
        kept = [c for c in range(len(known)) if e.drop_idx_ is None or e.drop_idx_[i] is None or c != e.drop_idx_[i]]
        if kept:
            parts.append(equal.floats().columns(kept))
    return w.join(parts)


def encode_target(w: Writer, e: Any, x: Tensor) -> Tensor:
    outputs = len(e.classes_) if e.target_type_ == "multiclass" else 1
    means = np.atleast_1d(e.target_mean_)
    columns = []
    for i in range(x.width()):
        for k in range(outputs):
            known = _numbers_of(e, e.categories_[i])
            index, found = positions(w, x[i], known)
            column = w.const(np.asarray(e.encodings_[i * outputs + k], np.float64)).gather(index, axis=0, mode="clamp")
            columns.append(found.where(column, w.lift(float(means[k]), column)))
    return w.stack(columns)


def encode_labels(w: Writer, e: Any, x: Tensor) -> Tensor:
    return positions(w, x, _numbers_of(e, e.classes_))[0]


def binarize_labels(w: Writer, e: Any, x: Tensor) -> Tensor:
    known = _numbers_of(e, e.classes_)
    equal = x.unsqueeze(axes=1).same(w.const(known))
    found = equal.where(w.const(np.int64(e.pos_label)), w.const(np.int64(e.neg_label)))
    return found.columns([1]) if len(known) == 2 else found


def impute(w: Writer, e: Any, x: Tensor) -> Tensor:
    missing = is_missing(w, e.missing_values, x)
    statistics = np.asarray(e.statistics_, np.float64)
    filled = missing.where(w.const(statistics), x)
    if not e.keep_empty_features or e.strategy == "constant":
        filled = filled.columns(np.flatnonzero(~np.isnan(statistics)).tolist())
    return add_indicator(w, e, x, filled)


def add_indicator(w: Writer, e: Any, x: Tensor, filled: Tensor) -> Tensor:
    if not e.add_indicator:
        return filled
    return w.join([filled, w.run(e.indicator_, "transform", x).floats()])


def is_missing(w: Writer, missing: Any, x: Tensor) -> Tensor:
    return x.isnan() if missing is None or np.isnan(missing) else x.same(float(missing))


def indicate(w: Writer, e: Any, x: Tensor) -> Tensor:
    return as_index(is_missing(w, e.missing_values, x)).columns(np.asarray(e.features_).tolist()).greater(0)


def discretize(w: Writer, e: Any, x: Tensor) -> Tensor:
    columns = []
    for i, edges in enumerate(e.bin_edges_):
        inner = np.asarray(edges, np.float64)[1:-1]
        wide = x[i].unsqueeze(axes=1)
        if len(inner):
            columns.append(as_index(wide >= w.const(inner)).sum(axis=1).floats())
        else:
            columns.append(x[i] * 0.0)
    codes = w.stack(columns)
    return codes if e.encode == "ordinal" else encode_one_hot(w, e._encoder, codes)


def select(w: Writer, e: Any, x: Tensor) -> Tensor:
    return x.columns(np.flatnonzero(e.get_support()).tolist())


def center_kernel(w: Writer, e: Any, x: Tensor) -> Tensor:
    result: Tensor = x - e.K_fit_rows_ - x.sum(axis=1, keepdims=True) / float(len(e.K_fit_rows_)) + float(e.K_fit_all_)
    return result


def weigh_terms(w: Writer, e: Any, x: Tensor) -> Tensor:
    if e.sublinear_tf:
        x = (x > 0.0).where(x.maximum(1e-300).log() + 1.0, x)
    x = x * e.idf_ if e.use_idf else x
    return x if e.norm is None else normalize(w, e, x)


_FUNCTIONS = {
    "log1p",
    "log",
    "exp",
    "expm1",
    "sqrt",
    "square",
    "abs",
    "absolute",
    "log2",
    "log10",
    "sin",
    "cos",
    "tanh",
}


def apply_function(w: Writer, e: Any, x: Tensor) -> Tensor:
    if e.func is None:
        return x
    name = getattr(e.func, "__name__", "")
    if name not in _FUNCTIONS or not isinstance(e.func, np.ufunc) or e.kw_args:
        raise unsupported(e, f"its function `{name}` is not one of numpy's {', '.join(sorted(_FUNCTIONS))}")
    return x.abs() if name == "absolute" else w.apply(name, x)


def splines(w: Writer, e: Any, x: Tensor) -> Tensor:
    if e.extrapolation not in ("constant", "error"):
        raise unsupported(e, f"the extrapolation `{e.extrapolation}` is not supported")
    parts = []
    for i in range(x.width()):
        spline = e.bsplines_[i]
        knots, degree = np.asarray(spline.t, np.float64), int(spline.k)
        count = len(knots) - degree - 1
        low, high = float(knots[degree]), float(knots[count])
        column = x[i].clip(low=low, high=high)
        parts.append(basis(w, column, knots, degree, count) @ w.const(np.asarray(spline.c, np.float64)))
    found = w.join(parts)
    if e.include_bias:
        return found
    width = parts[0].width()
    return found.columns([c for c in range(found.width()) if (c + 1) % width])


def basis(w: Writer, x: Tensor, knots: Numbers, degree: int, count: int) -> Tensor:
    """Returns the values of B-splines, by the recursion of de Boor; the last interval includes its end."""
    last = knots[count]
    wide = x.unsqueeze(axes=1)
    below = wide >= w.const(knots[:-1])
    above = wide < w.const(knots[1:])
    at_end = wide.same(float(last)).logical_and(
        w.const((knots[1:] == last) & (knots[:-1] < last) & (knots[-1] == last))
    )
    level = below.logical_and(above).logical_or(at_end).floats()
    for k in range(1, degree + 1):
        size = len(knots) - k - 1
        rise, fall = knots[k : k + size] - knots[:size], knots[k + 1 : k + 1 + size] - knots[1 : 1 + size]
        up = np.divide(1.0, rise, out=np.zeros(size), where=rise != 0)
        down = np.divide(1.0, fall, out=np.zeros(size), where=fall != 0)
        left = (wide - w.const(knots[:size])) * w.const(up) * level[:size]
        right = (w.const(knots[k + 1 : k + 1 + size]) - wide) * w.const(down) * level[1 : 1 + size]
        level = left + right
    return level[:count]


_SELECTIONS: Sequence[str] = (
    "VarianceThreshold", "GenericUnivariateSelect", "SelectFdr", "SelectFpr", "SelectFwe", "SelectKBest",
    "SelectPercentile", "SelectFromModel", "SequentialFeatureSelector",
)  # fmt: skip
_TRANSFORMERS = {
    "StandardScaler": scale_standard, "MinMaxScaler": scale_range, "RobustScaler": scale_robust,
    "MaxAbsScaler": scale_greatest, "Normalizer": normalize, "Binarizer": binarize, "PowerTransformer": power_features,
    "QuantileTransformer": spread_quantiles, "PolynomialFeatures": polynomial, "OrdinalEncoder": encode_ordinal,
    "OneHotEncoder": encode_one_hot, "TargetEncoder": encode_target, "LabelEncoder": encode_labels,
    "LabelBinarizer": binarize_labels, "SimpleImputer": impute, "MissingIndicator": indicate,
    "KBinsDiscretizer": discretize, "KernelCenterer": center_kernel, "TfidfTransformer": weigh_terms,
    "FunctionTransformer": apply_function, "SplineTransformer": splines, **dict.fromkeys(_SELECTIONS, select),
}  # fmt: skip
TABLE: dict[str, Methods] = {name: {"transform": convert} for name, convert in _TRANSFORMERS.items()}
