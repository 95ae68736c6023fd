"""Activations with parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .....dialect.types import BOOL, F32, F64
from ...writing.tensors import Tensor, known
from ..writing.use import Convert, Converters, Use

_MOST_RANDOM = 1 << 20
"""The maximum number of random numbers that an artifact stores for one node."""


def _plain(name: str) -> Convert:
    return lambda use: use.g.apply(name, [use.input()], {})


def _elu(use: Use) -> Sequence[Tensor]:
    return [use.g.elu(use.input(), alpha=use.number("alpha", 1.0))]


def _celu(use: Use) -> Sequence[Tensor]:
    alpha = use.number("alpha", 1.0)
    if not alpha or not math.isfinite(alpha):
        use.fail(f"has `alpha` = {alpha}, by which it divides", code="bad-attribute")
    return [use.g.celu(use.input(), alpha=alpha)]


def _selu(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    old = use.version < 6
    alpha = use.number("alpha", 1.6732 if old else 1.67326319217681884765625)
    gamma = use.number("gamma", 1.0507 if old else 1.05070102214813232421875)
    return [g.multiply(g.elu(x, alpha=alpha), g.like(gamma, x))]


def _leaky_relu(use: Use) -> Sequence[Tensor]:
    return [use.g.leaky_relu(use.input(), slope=use.number("alpha", 0.01))]


def _thresholded_relu(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    return [g.where(g.greater(x, g.like(use.number("alpha", 1.0), x)), x, g.like(0, x))]


def _hard_sigmoid(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    line = g.add(g.multiply(x, g.like(use.number("alpha", 0.2), x)), g.like(use.number("beta", 0.5), x))
    return [g.minimum(g.maximum(line, g.like(0, x)), g.like(1, x))]


def _gelu(use: Use) -> Sequence[Tensor]:
    return [use.g.gelu(use.input(), approximate=use.string("approximate", "none"))]


def _swish(use: Use) -> Sequence[Tensor]:
    x, g, alpha = use.input(), use.g, use.number("alpha", 1.0)
    return [g.silu(x) if alpha == 1 else g.multiply(x, g.sigmoid(g.multiply(x, g.like(alpha, x))))]


def _shrink(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    bias, limit = use.number("bias", 0.0), use.number("lambd", 0.5)
    zero = g.like(0, x)
    if not x.dtype.is_float:
        use.fail(f"takes floats, not {x.dtype}", code="unsupported-dtype")
    above = g.where(g.greater(x, g.like(limit, x)), g.subtract(x, g.like(bias, x)), zero)
    return [g.where(g.less(x, g.like(-limit, x)), g.add(x, g.like(bias, x)), above)]


def _drop(use: Use, x: Tensor, ratio: Tensor | None, training: Tensor) -> Sequence[Tensor]:
    """Drops the same elements as the reference implementation of the standard. Its generator starts from the seed in
    every call, so the random numbers are constants of the graph."""
    g = use.g
    shape = tuple(size for size in x.shape if isinstance(size, int))
    if len(shape) != x.rank or math.prod(shape) > _MOST_RANDOM:
        use.fail(f"drops elements of {x.type}; at most {_MOST_RANDOM} are dropped at random", code="random")
    wide = F64 if x.dtype == F64 else F32
    numbers = known(np.random.RandomState(use.integer("seed") % (1 << 32)).uniform(0, 1, shape), F64)
    limit = known(0.5, F64) if ratio is None else g.cast(g.reshape(ratio, shape=()), dtype=F64)
    is_on = g.reshape(training, shape=())
    kept = g.logical_or(g.greater_equal(numbers, limit), g.logical_not(is_on))
    scale = g.divide(known(1.0, F64), g.subtract(known(1.0, F64), limit))
    scale = g.where(g.logical_and(is_on, g.less(limit, known(1.0, F64))), scale, known(1.0, F64))
    scaled = g.multiply(g.cast(x, dtype=wide), g.cast(scale, dtype=wide))
    result = g.where(kept, g.cast(scaled, dtype=x.dtype), g.like(0, x))
    return [result, kept if use.version >= 10 else g.cast(kept, dtype=x.dtype)]


def _dropout(use: Use) -> Sequence[Tensor]:
    x, g = use.input(), use.g
    training = use.optional(2)
    if training is not None:
        ratio = use.optional(1)
        is_off = training.array is not None and not training.array.any()
        keeps_all = ratio is not None and ratio.array is not None and not ratio.array.any()
        if use.has("seed") and not is_off and not keeps_all:
            return _drop(use, x, ratio, training)
        if training.array is None and not keeps_all:
            off = g.logical_not(g.reshape(training, shape=()))
            if ratio is not None:
                off = g.logical_or(off, g.equal(g.reshape(ratio, shape=()), g.like(0, ratio)))
            use.require(off)
        elif not is_off and not keeps_all:
            use.fail("drops elements at random", code="random")
    mask = g.broadcast_to(known(True, BOOL if use.version >= 10 else x.dtype), shape=x.shape)
    return [x, mask]


CONVERTERS: Converters = {
    "Relu": _plain("relu"),
    "Sigmoid": _plain("sigmoid"),
    "Softplus": _plain("softplus"),
    "Softsign": _plain("softsign"),
    "HardSwish": _plain("hard_swish"),
    "Mish": _plain("mish"),
    "Elu": _elu,
    "Celu": _celu,
    "Selu": _selu,
    "LeakyRelu": _leaky_relu,
    "ThresholdedRelu": _thresholded_relu,
    "HardSigmoid": _hard_sigmoid,
    "Gelu": _gelu,
    "Swish": _swish,
    "Shrink": _shrink,
    "Dropout": _dropout,
}
