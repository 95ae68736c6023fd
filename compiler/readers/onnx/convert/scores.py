"""The scores and labels of ai.onnx.ml's classifiers and regressors."""

from __future__ import annotations

import math

import numpy as np

from .....dialect.types import F32, I64
from ...writing.graph_writer import GraphWriter
from ...writing.tensors import Held, Strings, Tensor, known
from ..writing.string_tensors import rows_of
from ..writing.use import Use, strings_of

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_NEAR_ZERO = 1e-7


def transform(use: Use, name: str, scores: Tensor) -> Tensor:
    """Returns scores [B, C] after `post_transform`."""
    g = use.g
    if name not in TRANSFORMS:
        use.fail(f"has the transform `{name}`, which is unknown", code="bad-attribute")
    if name == "NONE":
        return scores
    if name == "SOFTMAX":
        return g.softmax(scores, axis=-1)
    if name == "LOGISTIC":
        return g.sigmoid(scores)
    return _softmax_of_others(g, scores) if name == "SOFTMAX_ZERO" else _probit(g, scores)


def _softmax_of_others(g: GraphWriter, x: Tensor) -> Tensor:
    """Returns the softmax over the scores that are not 0; the other results are 0."""
    most = g.max(x, axis=-1, keepdims=True)
    is_other = g.greater(g.abs(x), g.like(_NEAR_ZERO, x))
    parts = g.where(is_other, g.exp(g.subtract(x, most)), g.multiply(x, g.exp(g.negate(most))))
    total = g.sum(parts, axis=-1, keepdims=True)
    return g.where(g.equal(total, g.like(0.0, x)), g.like(0.5, x), g.divide(parts, total))


def _probit(g: GraphWriter, x: Tensor) -> Tensor:
    """Returns the inverse of the normal distribution function, by ONNX Runtime's approximation of the inverse error
    function: S. Winitzki, "A handy approximation for the error function and its inverse", 2008."""
    centred = g.subtract(g.multiply(x, g.like(2.0, x)), g.like(1.0, x))
    log = g.log(g.multiply(g.subtract(g.like(1.0, x), centred), g.add(g.like(1.0, x), centred)))
    v = g.add(g.multiply(log, g.like(0.5, x)), g.like(2 / (math.pi * 0.147), x))
    root = g.sqrt(g.subtract(g.square(v), g.multiply(log, g.like(1 / 0.147, x))))
    return g.multiply(g.multiply(g.sign(centred), g.sqrt(g.subtract(root, v))), g.like(1.41421356, x))


def class_labels(use: Use, name: str) -> Tensor | Strings | None:
    """Returns the class labels, integers or strings; None if they are 0, 1, 2, ..."""
    named = use.strings_of("classlabels_strings", ())
    if named:
        return strings_of(named)
    labels = use.ints_of(name, ())
    return known(np.asarray(labels, np.int64)) if labels else None


def count_classes(use: Use, name: str) -> int:
    return max(len(use.ints_of(name, ()) or ()), len(use.strings_of("classlabels_strings", ()) or ()))


def label_of(g: GraphWriter, labels: Tensor | Strings | None, index: Tensor) -> Held:
    """Returns the class of each index [B]."""
    if labels is None:
        return g.cast(index, dtype=I64)
    if isinstance(labels, Strings):
        return rows_of(g, labels, index)
    return g.gather(labels, index, axis=0, mode="clamp")


def float_rows(use: Use, index: int = 0) -> Tensor:
    """Returns the matrix of features, in f64 if the operand has this dtype, else in f32. A vector is one row."""
    g, x = use.g, use.input(index)
    x = x if x.dtype.is_float and x.dtype.bits >= 32 else g.cast(x, dtype=F32)
    if x.rank == 1:
        return g.reshape(x, shape=(1, x.shape[0]))
    if x.rank != 2:
        use.fail(f"takes a matrix of features, not {x.type}", code="wrong-operands")
    return x
