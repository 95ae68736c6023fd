"""Link functions of objectives, as graph operators: from the sums of trees to predictions."""

from __future__ import annotations

from ....dialect.graph import Value
from ....dialect.operator import Builder
from .graph import Link, identity


def scaled_sigmoid(scale: float) -> Link:
    def link(b: Builder, x: Value) -> Value:
        return b.sigmoid(x if scale == 1.0 else b.multiply(x, b.like(scale, x)))

    return link


def sigmoid(b: Builder, x: Value) -> Value:
    return b.sigmoid(x)


def exponential(b: Builder, x: Value) -> Value:
    return b.exp(x)


def softmax(b: Builder, x: Value) -> Value:
    return b.softmax(x, axis=-1)


def argmax(b: Builder, x: Value) -> Value:
    return b.cast(b.argmax(x, axis=-1), dtype=x.type.dtype)


def signed_square(b: Builder, x: Value) -> Value:
    return b.multiply(b.sign(x), b.square(x))


def softplus(b: Builder, x: Value) -> Value:
    return b.log1p(b.exp(x))


def is_positive(b: Builder, x: Value) -> Value:
    """Returns 1 where x is above 0, else 0."""
    return b.cast(b.greater(x, b.like(0.0, x)), dtype=x.type.dtype)


def of_mean(count: int, link: Link) -> Link:
    """Returns the link of the mean of `count` trees, whose sum it takes."""

    def linked(b: Builder, x: Value) -> Value:
        return link(b, b.divide(x, b.like(float(count), x)))

    return linked


__all__ = [
    "Link",
    "argmax",
    "exponential",
    "identity",
    "is_positive",
    "of_mean",
    "scaled_sigmoid",
    "sigmoid",
    "signed_square",
    "softmax",
    "softplus",
]
