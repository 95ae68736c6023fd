"""Steps of optimizers."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.types import DType
from ...writing.tensors import Tensor
from ..writing.use import Converters, Use


def _scalar(use: Use, x: Tensor, dtype: DType) -> Tensor:
    return use.g.cast(use.g.reshape(x, shape=()), dtype=dtype)


def _groups(use: Use, kinds: int) -> list[tuple[Tensor, ...]]:
    """Returns the operands of each tensor: its value, its gradient and its accumulators."""
    tensors = use.inputs[2:]
    if len(tensors) % kinds:
        use.fail(f"has {len(tensors)} tensors, not {kinds} for each value", code="wrong-operands")
    count = len(tensors) // kinds
    return [tuple(tensors[kind * count + i] for kind in range(kinds)) for i in range(count)]


def _momentum(use: Use) -> Sequence[Tensor]:
    g = use.g
    alpha, beta, decay = use.number("alpha"), use.number("beta"), use.number("norm_coefficient")
    mode = use.string("mode")
    if mode not in ("nesterov", "standard"):
        use.fail(f"has the mode {mode!r}", code="bad-attribute")
    nesterov = mode == "nesterov"
    values, moments = [], []
    for x, gradient, moment in _groups(use, 3):
        rate, step = _scalar(use, use.input(0), x.dtype), use.input(1)
        gradient = g.add(gradient, g.multiply(x, g.like(decay, x)))
        first = g.equal(g.reshape(step, shape=()), g.like(0, step))
        factor = g.where(first, g.like(1, x), g.like(beta, x))
        new = g.add(g.multiply(moment, g.like(alpha, x)), g.multiply(gradient, factor))
        change = g.add(gradient, g.multiply(new, g.like(alpha, x))) if nesterov else new
        values.append(g.subtract(x, g.multiply(change, rate)))
        moments.append(new)
    return [*values, *moments]


def _decayed_rate(use: Use, x: Tensor) -> Tensor:
    g = use.g
    rate, step = _scalar(use, use.input(0), x.dtype), _scalar(use, use.input(1), x.dtype)
    decay = use.number("decay_factor", 0.0)
    return g.divide(rate, g.add(g.multiply(step, g.like(decay, x)), g.like(1, x)))


def _adagrad(use: Use) -> Sequence[Tensor]:
    g = use.g
    norm, eps = use.number("norm_coefficient", 0.0), use.number("epsilon", 1e-6)
    values, squares = [], []
    for x, gradient, square in _groups(use, 3):
        gradient = g.add(gradient, g.multiply(x, g.like(norm, x)))
        new = g.add(square, g.square(gradient))
        step = g.divide(g.multiply(gradient, _decayed_rate(use, x)), g.add(g.sqrt(new), g.like(eps, x)))
        values.append(g.subtract(x, step))
        squares.append(new)
    return [*values, *squares]


def _adam(use: Use) -> Sequence[Tensor]:
    g = use.g
    alpha, beta, eps = use.number("alpha", 0.9), use.number("beta", 0.999), use.number("epsilon", 1e-6)
    norm, after = use.number("norm_coefficient", 0.0), use.number("norm_coefficient_post", 0.0)
    values, firsts, seconds = [], [], []
    for x, gradient, first, second in _groups(use, 4):
        gradient = g.add(gradient, g.multiply(x, g.like(norm, x)))
        first = g.add(g.multiply(first, g.like(alpha, x)), g.multiply(gradient, g.like(1 - alpha, x)))
        second = g.add(g.multiply(second, g.like(beta, x)), g.multiply(g.square(gradient), g.like(1 - beta, x)))
        rate, step = _scalar(use, use.input(0), x.dtype), _scalar(use, use.input(1), x.dtype)
        one = g.like(1, x)
        bias = g.divide(
            g.sqrt(g.subtract(one, g.power(g.like(beta, x), step))), g.subtract(one, g.power(g.like(alpha, x), step))
        )
        rate = g.where(g.greater(step, g.like(0, x)), g.multiply(rate, bias), rate)
        new = g.subtract(x, g.divide(g.multiply(first, rate), g.add(g.sqrt(second), g.like(eps, x))))
        values.append(g.multiply(new, g.like(1 - after, x)))
        firsts.append(first)
        seconds.append(second)
    return [*values, *firsts, *seconds]


CONVERTERS: Converters = {
    "ai.onnx.preview.training::Momentum": _momentum,
    "ai.onnx.preview.training::Adagrad": _adagrad,
    "ai.onnx.preview.training::Adam": _adam,
}
