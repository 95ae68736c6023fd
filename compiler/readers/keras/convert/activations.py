"""Activations: as layers, and as parts of other layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...writing.tensors import Tensor
from ..writing.use import Converters, Use

Function = Callable[[Use, Tensor], Tensor]


def _named(name: str, **attributes: Any) -> Function:
    return lambda use, x: use.g.apply(name, [x], attributes)[0]


def _hard_sigmoid(use: Use, x: Tensor) -> Tensor:
    g = use.g
    if use.version >= 3:
        return g.hard_sigmoid(x)
    return g.clip(g.add(g.multiply(x, g.like(0.2, x)), g.like(0.5, x)), low=0.0, high=1.0)


FUNCTIONS: Mapping[str, Function] = {
    "linear": lambda use, x: x,
    "relu": _named("relu"),
    "relu6": _named("relu6"),
    "leaky_relu": _named("leaky_relu", slope=0.2),
    "elu": _named("elu"),
    "celu": _named("celu"),
    "selu": _named("selu"),
    "gelu": _named("gelu"),
    "mish": _named("mish"),
    "sigmoid": _named("sigmoid"),
    "hard_sigmoid": _hard_sigmoid,
    "log_sigmoid": _named("log_sigmoid"),
    "softplus": _named("softplus"),
    "softsign": _named("softsign"),
    "tanh": _named("tanh"),
    "tanh_shrink": _named("tanh_shrink"),
    "silu": _named("silu"),
    "swish": _named("silu"),
    "hard_silu": _named("hard_swish"),
    "hard_swish": _named("hard_swish"),
    "exponential": _named("exp"),
    "softmax": _named("softmax", axis=-1),
    "log_softmax": _named("log_softmax", axis=-1),
}
"""The functions that the configuration of a layer names."""


def activation_name(use: Use, name: str = "activation", default: str = "linear") -> str:
    """Returns the name of a function in the configuration."""
    found = use.value(name, default)
    if isinstance(found, Mapping):
        # An object of Keras, such as a registered function, with its own configuration.
        found = found.get("config")
    if found is None:
        return "linear"
    if not isinstance(found, str) or found not in FUNCTIONS:
        use.fail(f"has the activation {found!r}", help=f"known ones are {', '.join(sorted(FUNCTIONS))}")
    return found


def activated(use: Use, x: Tensor) -> Tensor:
    """Returns a tensor after the activation that is part of a layer."""
    return FUNCTIONS[activation_name(use)](use, x)


def _activation(use: Use) -> Sequence[Tensor]:
    return [activated(use, use.x)]


def _relu(use: Use) -> Sequence[Tensor]:
    x, g = use.x, use.g
    most = use.value("max_value", None)
    slope, threshold = use.number("negative_slope", 0.0), use.number("threshold", 0.0)
    if threshold:
        low = g.multiply(g.subtract(x, g.like(threshold, x)), g.like(slope, x))
        made = g.where(g.greater_equal(x, g.like(threshold, x)), x, low)
    else:
        made = g.leaky_relu(x, slope=slope) if slope else g.relu(x)
    return [made if most is None else g.minimum(made, g.like(use.number("max_value"), x))]


def _leaky_relu(use: Use) -> Sequence[Tensor]:
    slope = use.number("negative_slope", use.config.get("alpha", 0.3))
    return [use.g.leaky_relu(use.x, slope=slope)]


def _prelu(use: Use) -> Sequence[Tensor]:
    x, g = use.x, use.g
    slope = use.weight(0, x.rank - 1, "alpha")
    return [g.where(g.greater_equal(x, g.like(0, x)), x, g.multiply(x, slope))]


def _elu(use: Use) -> Sequence[Tensor]:
    return [use.g.elu(use.x, alpha=use.number("alpha", 1.0))]


def _thresholded(use: Use) -> Sequence[Tensor]:
    x, g = use.x, use.g
    return [g.where(g.greater(x, g.like(use.number("theta", 1.0), x)), x, g.like(0, x))]


def _softmax(use: Use) -> Sequence[Tensor]:
    axis = use.value("axis", -1)
    if not isinstance(axis, int):
        use.fail(f"has `axis` = {axis!r}")
    return [use.g.softmax(use.x, axis=axis)]


CONVERTERS: Converters = {
    "Activation": _activation,
    "ReLU": _relu,
    "LeakyReLU": _leaky_relu,
    "PReLU": _prelu,
    "ELU": _elu,
    "ThresholdedReLU": _thresholded,
    "Softmax": _softmax,
}
