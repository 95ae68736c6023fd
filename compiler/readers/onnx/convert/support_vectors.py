"""Support vector machines of ai.onnx.ml, as ONNX Runtime computes them.

A classifier of C classes has a decision for each pair (i, j), i < j: the weighted kernels of the support vectors of
both classes, plus `rho`. A decision above 0 is a vote for class i, else for j; the label has the most votes, and the
first of equal ones wins. `coefficients` [C - 1, vectors] has no row for a class against itself:

    row of vectors of i in the pair (i, j): j - 1            row of vectors of j: i

With `prob_a` and `prob_b`, decisions become probabilities of pairs, and those become probabilities of classes by the
second method of T.-F. Wu, C.-J. Lin and R. C. Weng, "Probability estimates for multi-class classification by pairwise
coupling", 2004, which ends for a row as soon as its error is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from .....dialect.types import F32, F64, Array
from ...writing.graph_writer import GraphWriter
from ...writing.tensors import Held, Tensor, known
from ..writing.use import REQUIRED, Converters, Use
from .classic_models import label_of_node, width_of
from .scores import class_labels, count_classes, float_rows, label_of, transform

_LEAST_PROBABILITY = 1e-7
_TURNS, _TOLERANCE = 100, 0.005
"""The coupling ends after `_TURNS` iterations, or when its error is below `_TOLERANCE` / number of classes."""


def _regressor(use: Use) -> Sequence[Tensor]:
    g, x = use.g, float_rows(use)
    width, count = width_of(use, x), use.integer("n_supports", 0)
    rho = use.floats_of("rho", REQUIRED)
    weights = np.asarray(use.floats_of("coefficients", REQUIRED), np.float64)
    vectors = np.asarray(use.floats_of("support_vectors", ()) or (), np.float64)
    if not count:
        vectors, weights, kernel = weights.reshape(1, -1), np.ones(1), "LINEAR"
    else:
        kernel = use.string("kernel_type", "LINEAR")
    if vectors.size != max(count, 1) * width or len(weights) != max(count, 1) or len(rho) < 1:
        use.fail(f"has {vectors.size} numbers in {count} support vectors of {width} features", code="bad-attribute")
    products = _kernel(use, kernel, x, vectors.reshape(-1, width))
    total = g.matmul(products, known(weights.reshape(-1, 1), x.dtype, label=f"{label_of_node(use)}.coefficients"))
    total = g.add(total, g.like(float(rho[0]), total))
    if use.integer("one_class", 0):
        total = g.where(g.greater(total, g.like(0.0, total)), g.like(1.0, total), g.like(-1.0, total))
    return [g.cast(transform(use, use.string("post_transform", "NONE"), total), dtype=F32)]


def _kernel(use: Use, kind: str, x: Tensor, vectors: Any) -> Tensor:
    """Returns the kernel of each row and each support vector."""
    g = use.g
    gamma, start, degree = (*(use.floats_of("kernel_params", ()) or ()), 0.0, 0.0, 0.0)[:3]
    known_vectors = known(vectors, x.dtype, label=f"{label_of_node(use)}.support_vectors")
    if kind == "RBF":
        rows = g.reshape(x, shape=(x.shape[0], 1, x.shape[1]))
        distance = g.sum(g.square(g.subtract(rows, known_vectors)), axis=2)
        return g.exp(g.multiply(distance, g.like(-gamma, x)))
    products = g.matmul(x, known(vectors.T, x.dtype, label=f"{label_of_node(use)}.support_vectors"))
    if kind == "LINEAR":
        return products
    scaled = g.add(g.multiply(products, g.like(gamma, x)), g.like(start, x))
    if kind == "POLY":
        return g.power(scaled, g.like(float(int(degree)), x))
    if kind != "SIGMOID":
        use.fail(f"has the kernel `{kind}`, which is unknown", code="bad-attribute")
    return g.tanh(scaled)


# Classifiers


def _classifier(use: Use) -> Sequence[Held]:
    g, x = use.g, float_rows(use)
    x = x if x.dtype == F32 else g.cast(x, dtype=F32)
    classes = count_classes(use, "classlabels_ints")
    labels = class_labels(use, "classlabels_ints")
    if classes < 2:
        use.fail(f"has {classes} classes, and at least 2 are supported", code="bad-attribute")
    counts = [int(n) for n in use.ints_of("vectors_per_class", ()) or ()]
    if any(count < 0 for count in counts):
        use.fail("has a class with fewer than 0 support vectors", code="bad-attribute")
    decide = _decide_pairs if sum(counts) else _decide_linearly
    index, scores = decide(use, x, classes, counts)
    return [label_of(g, labels, index), scores]


def _decide_linearly(use: Use, x: Tensor, classes: int, counts: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Returns the index of the class and the scores of a model without support vectors: one linear function for each
    class."""
    g, width = use.g, width_of(use, x)
    weights = _list(use, "coefficients", classes * width)
    rho = _list(use, "rho", 1)
    scores = g.matmul(x, known(weights.reshape(classes, width).T, F32, label=f"{label_of_node(use)}.coefficients"))
    scores = g.add(scores, g.like(float(rho[0]), scores))
    index = g.argmax(scores, axis=1)
    if classes == 2 and not use.has("prob_a"):
        # ONNX Runtime prefers the second of two classes wherever a score is high enough.
        most = g.max(scores, axis=1)
        is_high = (
            g.greater_equal(most, g.like(0.5, most)) if min(weights.tolist()) >= 0 else g.greater(most, g.like(0, most))
        )
        index = g.where(is_high, known(np.int64(1)), index)
    return index, transform(use, use.string("post_transform", "NONE"), scores)


def _decide_pairs(use: Use, x: Tensor, classes: int, counts: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Returns the index of the class, and the scores: class probabilities if the model has them, else the decisions of
    all pairs of classes."""
    g, post, total = use.g, use.string("post_transform", "NONE"), sum(counts)
    if len(counts) != classes:
        use.fail(f"has {classes} classes, and support vectors of {len(counts)}", code="bad-attribute")
    pairs = list(combinations(range(classes), 2))
    vectors = _list(use, "support_vectors", total * width_of(use, x)).reshape(total, -1)
    weights = _list(use, "coefficients", (classes - 1) * total).reshape(classes - 1, total)
    rho = _list(use, "rho", len(pairs), exactly=False)[: len(pairs)]
    kernels = _kernel(use, use.string("kernel_type", "LINEAR"), x, vectors)
    # The products of the sums are added in f64, as in ONNX Runtime.
    of_pairs = known(_weights_of_pairs(weights, counts), F64, label=f"{label_of_node(use)}.coefficients")
    decided = g.add(g.matmul(g.cast(kernels, dtype=F64), of_pairs), known(rho, F64))
    wins = g.greater(decided, g.like(0.0, decided))
    decisions = g.cast(decided, dtype=F32)
    index = g.argmax(_count_votes(g, wins, pairs, classes), axis=1)
    if use.floats_of("prob_a", ()) or use.floats_of("prob_b", ()):
        scale, offset = (_list(use, name, len(pairs), exactly=False)[: len(pairs)] for name in ("prob_a", "prob_b"))
        linear = g.add(g.multiply(decisions, known(scale, F32)), known(offset, F32))
        likely = g.subtract(g.like(1.0, linear), g.sigmoid(linear))
        least, most = g.like(_LEAST_PROBABILITY, likely), g.like(1.0 - _LEAST_PROBABILITY, likely)
        return index, transform(use, post, _couple(g, g.minimum(g.maximum(likely, least), most), pairs, classes))
    if classes > 2:
        return index, transform(use, post, decisions)
    if post == "PROBIT":
        use.fail("has the transform `PROBIT` for two classes without probabilities, which is not supported")
    if post in ("NONE", "LOGISTIC"):
        return index, transform(use, post, g.concat(g.negate(decisions), decisions, axis=1))
    return index, g.concat(g.subtract(g.like(1.0, decisions), decisions), decisions, axis=1)


def _list(use: Use, name: str, count: int, *, exactly: bool = True) -> Array:
    found = np.asarray(use.floats_of(name, REQUIRED), np.float32)
    if len(found) < count or (exactly and name != "rho" and len(found) != count):
        use.fail(f"has {len(found)} numbers in `{name}`, expected {count}", code="bad-attribute")
    return found


def _weights_of_pairs(weights: Array, counts: Sequence[int]) -> Array:
    """Returns the weight of each support vector in each pair: [vectors, pairs]."""
    owner = np.repeat(np.arange(len(counts)), counts)
    columns = [
        np.where(owner == i, weights[j - 1], 0) + np.where(owner == j, weights[i], 0)
        for i, j in combinations(range(len(counts)), 2)
    ]
    return np.stack(columns, 1)


def _count_votes(g: GraphWriter, wins: Tensor, pairs: Sequence[tuple[int, int]], classes: int) -> Tensor:
    first, second = (np.eye(classes)[[pair[side] for pair in pairs]] for side in (0, 1))
    won = g.cast(wins, dtype=F32)
    lost = g.subtract(g.like(1.0, won), won)
    return g.add(g.matmul(won, known(first, F32)), g.matmul(lost, known(second, F32)))


def _couple(g: GraphWriter, likely: Tensor, pairs: Sequence[tuple[int, int]], classes: int) -> Tensor:
    """Returns the probabilities p [B, classes] that minimise the sum over pairs of (r[j, i] p[i] - r[i, j] p[j])^2, for
    the probabilities r[i, j] of class i in the pair (i, j)."""
    rows = likely.shape[0]
    number = np.zeros((classes, classes), np.int64)
    for pair, (i, j) in enumerate(pairs):
        number[i, j] = number[j, i] = pair
    upper, eye = np.triu(np.ones((classes, classes), bool), 1), np.eye(classes, dtype=bool)
    chosen = g.reshape(
        g.gather(likely, known(number.reshape(-1)), axis=1, mode="clamp"), shape=(rows, classes, classes)
    )
    r = g.where(known(upper), chosen, g.where(known(eye), g.like(0.0, chosen), g.subtract(g.like(1.0, chosen), chosen)))
    turned = g.transpose(r, axes=(0, 2, 1))
    squares = g.sum(g.square(r), axis=1, keepdims=True)
    q = g.where(known(eye), squares, g.negate(g.multiply(r, turned)))
    limit = known(np.float32(_TOLERANCE) / np.float32(classes))

    def errors(p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns q p, p q p, and whether the error of a row is too large."""
        product = g.sum(g.multiply(q, g.unsqueeze(p, axes=(1,))), axis=2)
        whole = g.sum(g.multiply(p, product), axis=1, keepdims=True)
        is_large = g.greater_equal(g.abs(g.subtract(product, whole)), limit)
        return product, whole, g.any(is_large, axis=1, keepdims=True)

    def goes_on(state: Sequence[Tensor]) -> Sequence[Tensor]:
        p, turn = state
        return [g.logical_and(g.any(errors(p)[2], axis=(0, 1)), g.less(turn, known(np.int64(_TURNS))))]

    def improve(state: Sequence[Tensor]) -> Sequence[Tensor]:
        p, turn = state
        product, whole, is_open = errors(p)

        def move(carried: Sequence[Tensor]) -> Sequence[Tensor]:
            i, p, product, whole = carried
            own, one = g.gather(q, i, axis=1, mode="clamp"), g.like(1.0, p)
            is_own = g.equal(known(np.arange(classes)), i)
            at = g.sum(g.where(is_own, product, g.like(0.0, p)), axis=1, keepdims=True)
            diagonal = g.sum(g.where(is_own, own, g.like(0.0, p)), axis=1, keepdims=True)
            step = g.divide(g.subtract(whole, at), diagonal)
            scale = g.add(one, step)
            moved = g.divide(g.where(is_own, g.add(p, step), p), scale)
            gain = g.multiply(step, g.add(g.multiply(step, diagonal), g.add(at, at)))
            after = g.divide(g.divide(g.add(whole, gain), scale), scale)
            return [moved, g.divide(g.add(product, g.multiply(step, own)), scale), after]

        types = [x.type for x in (p, product, whole)]
        region = g.region([known(np.int64(0)).type, *types], move)
        moved = g.control("scan", [p, product, whole], {"carried": 3, "count": classes}, [region], types)[0]
        return [g.where(is_open, moved, p), g.add(turn, known(np.int64(1)))]

    start = g.broadcast_to(known(np.float32(1) / np.float32(classes)), shape=(rows, classes))
    carried = [start, known(np.int64(0))]
    types = [x.type for x in carried]
    regions = [g.region(types, goes_on), g.region(types, improve)]
    return g.control("while", carried, {}, regions, types)[0]


CONVERTERS: Converters = {"ai.onnx.ml::SVMClassifier": _classifier, "ai.onnx.ml::SVMRegressor": _regressor}
