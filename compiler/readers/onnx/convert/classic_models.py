"""Linear models and scalers of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.types import F32
from ...writing.tensors import Held, Tensor, known
from ..writing.use import REQUIRED, Converters, Use
from .scores import class_labels, count_classes, float_rows, label_of, transform


def width_of(use: Use, x: Tensor) -> int:
    width = x.shape[-1]
    if not isinstance(width, int):
        use.fail("takes features whose number is not known", code="data-dependent")
    return width


def _linear_scores(use: Use, x: Tensor, targets: int | None) -> Tensor:
    """Returns x @ coefficients + intercepts: [B, targets]."""
    g, width = use.g, width_of(use, x)
    weights = np.asarray(use.floats_of("coefficients", REQUIRED), np.float64)
    count = targets or len(weights) // max(width, 1)
    if len(weights) != count * width or not count:
        use.fail(f"has {len(weights)} coefficients for {width} features", code="bad-attribute")
    scores = g.matmul(x, known(weights.reshape(count, width).T, x.dtype, label=f"{label_of_node(use)}.coefficients"))
    intercepts = use.floats_of("intercepts", ()) or ()
    if not intercepts:
        return scores
    if len(intercepts) != count:
        use.fail(f"has {len(intercepts)} intercepts for {count} scores", code="bad-attribute")
    return g.add(scores, known(np.asarray(intercepts), x.dtype))


def label_of_node(use: Use) -> str:
    return use.node.outputs[-1] or use.node.name or use.node.op


def _linear_regressor(use: Use) -> Sequence[Tensor]:
    scores = _linear_scores(use, float_rows(use), use.integer("targets", 1))
    return [use.g.cast(transform(use, use.string("post_transform", "NONE"), scores), dtype=F32)]


def _linear_classifier(use: Use) -> Sequence[Held]:
    g, name = use.g, "classlabels_ints"
    classes, labels = count_classes(use, name), class_labels(use, name)
    scores = _linear_scores(use, float_rows(use), None)
    if width_of(use, scores) == 1 and classes == 2:
        scores = g.concat(g.negate(scores), scores, axis=1)
    if width_of(use, scores) < 2 or width_of(use, scores) != classes:
        use.fail(f"has {width_of(use, scores)} scores for {classes} classes", code="bad-attribute")
    chosen = label_of(g, labels, g.argmax(scores, axis=1))
    return [chosen, g.cast(transform(use, use.string("post_transform", "NONE"), scores), dtype=F32)]


def _as_floats(use: Use) -> Tensor:
    x = use.input()
    return x if x.dtype == F32 else use.g.cast(x, dtype=F32)


def _scaler(use: Use) -> Sequence[Tensor]:
    g, x = use.g, _as_floats(use)
    for name, apply in (("offset", g.subtract), ("scale", g.multiply)):
        given = use.floats_of(name, ()) or ()
        if given:
            if len(given) not in (1, width_of(use, x)):
                use.fail(f"has {len(given)} numbers in `{name}` for {x.type}", code="bad-attribute")
            x = apply(x, known(np.asarray(given), F32))
    return [x]


def _normalizer(use: Use) -> Sequence[Tensor]:
    g, x = use.g, _as_floats(use)
    norm = use.string("norm", "MAX")
    if norm == "MAX":
        # The specification divides by the greatest number, which may be negative.
        size = g.max(x, axis=-1, keepdims=True)
    elif norm == "L1":
        size = g.sum(g.abs(x), axis=-1, keepdims=True)
    elif norm == "L2":
        size = g.sqrt(g.sum(g.square(x), axis=-1, keepdims=True))
    else:
        use.fail(f"has the norm `{norm}`, which is unknown", code="bad-attribute")
    # A row of zeros stays as it is.
    return [g.divide(x, g.where(g.equal(size, g.like(0.0, x)), g.like(1.0, x), size))]


def _imputer(use: Use) -> Sequence[Tensor]:
    g, x = use.g, use.input()
    if x.dtype.is_float:
        values, replaced = use.floats_of("imputed_value_floats", REQUIRED), use.number("replaced_value_float", 0.0)
    else:
        values, replaced = use.ints_of("imputed_value_int64s", REQUIRED), use.integer("replaced_value_int64", 0)
    if len(values) not in (1, width_of(use, x)):
        use.fail(f"has {len(values)} imputed values for {x.type}", code="bad-attribute")
    missing = g.isnan(x) if replaced != replaced else g.equal(x, g.like(replaced, x))
    return [g.where(missing, known(np.asarray(values), x.dtype), x)]


def _vectorizer(use: Use) -> Sequence[Tensor]:
    """Concatenates columns; each operand is truncated or padded with zeros to its declared number of columns."""
    g, parts = use.g, []
    wanted = use.ints_of("inputdimensions", REQUIRED)
    if len(wanted) != len(use.operands):
        use.fail(f"has {len(wanted)} dimensions for {len(use.operands)} operands", code="bad-attribute")
    for index, width in enumerate(wanted):
        x = use.input(index)
        x = g.cast(g.reshape(x, shape=(x.shape[0], 1)) if x.rank == 1 else x, dtype=F32)
        own = width_of(use, x)
        if own > width:
            x = g.slice(x, starts=(None, 0), stops=(None, width))
        elif own < width:
            x = g.concat(x, g.broadcast_to(known(np.float32(0)), shape=(x.shape[0], width - own)), axis=1)
        parts.append(x)
    return [parts[0] if len(parts) == 1 else g.concat(*parts, axis=1)]


def _zip_map(use: Use) -> Sequence[Tensor]:
    """Returns the scores unchanged: the graph represents a map from classes to scores as a row of scores in the order
    of the classes."""
    return [use.input()]


CONVERTERS: Converters = {
    "ai.onnx.ml::FeatureVectorizer": _vectorizer,
    "ai.onnx.ml::Imputer": _imputer,
    "ai.onnx.ml::LinearClassifier": _linear_classifier,
    "ai.onnx.ml::LinearRegressor": _linear_regressor,
    "ai.onnx.ml::Normalizer": _normalizer,
    "ai.onnx.ml::Scaler": _scaler,
    "ai.onnx.ml::ZipMap": _zip_map,
}
