"""Normalization layers. Batch normalization uses the stored statistics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...writing.tensors import Tensor
from ..writing.use import Converters, Use


def _axes(use: Use, rank: int) -> tuple[int, ...]:
    found = use.value("axis", -1)
    listed = found if isinstance(found, (list, tuple)) else [found]
    if not all(type(axis) is int and -rank <= axis < rank for axis in listed):
        use.fail(f"has `axis` = {found!r} for rank {rank}", code="bad-axis")
    return tuple(sorted(axis % rank for axis in listed))


def _batch_norm(use: Use) -> Sequence[Tensor]:
    axes = _axes(use, use.x.rank)
    if len(axes) != 1:
        use.fail(f"has the axes {axes}")
    names = [word for word in ("gamma", "beta") if use.flag("scale" if word == "gamma" else "center", True)]
    held = {
        word: use.weight(position, 1, word) for position, word in enumerate([*names, "moving_mean", "moving_variance"])
    }
    size = use.array(len(names), 1).size
    gamma = held.get("gamma") or use.tensor(np.ones(size, np.float32), "gamma")
    beta = held.get("beta") or use.tensor(np.zeros(size, np.float32), "beta")
    given = [use.x, held["moving_mean"], held["moving_variance"], gamma, beta]
    return use.g.apply("batch_norm", given, {"axis": axes[0], "eps": use.number("epsilon", 1e-3)})


def _layer_norm(use: Use) -> Sequence[Tensor]:
    x, g = use.x, use.g
    axes = _axes(use, x.rank)
    if axes != tuple(range(x.rank - len(axes), x.rank)):
        use.fail(f"has the axes {axes}")
    if use.flag("rms_scaling"):
        use.fail("has `rms_scaling`")
    made = g.layer_norm(x, axes=axes, eps=use.number("epsilon", 1e-3))
    position = 0
    if use.flag("scale", True):
        made = g.multiply(made, use.weight(position, len(axes), "gamma"))
        position += 1
    if use.flag("center", True):
        made = g.add(made, use.weight(position, len(axes), "beta"))
    return [made]


def _rms_norm(use: Use) -> Sequence[Tensor]:
    x, g = use.x, use.g
    axes = _axes(use, x.rank)
    if axes != tuple(range(x.rank - len(axes), x.rank)):
        use.fail(f"has the axes {axes}")
    mean = g.mean(g.square(x), axis=axes, keepdims=True)
    made = g.multiply(x, g.rsqrt(g.add(mean, g.like(use.number("epsilon", 1e-6), x))))
    return [g.multiply(made, use.weight(0, len(axes), "scale"))]


def _group_norm(use: Use) -> Sequence[Tensor]:
    x, g = use.x, use.g
    (axis,) = _axes(use, x.rank)
    channels, groups = x.shape[axis], use.integer("groups", 32)
    if not isinstance(channels, int):
        use.fail(f"gets {x.type}, whose number of channels is not known", code="data-dependent")
    groups = channels if groups == -1 else groups
    if groups < 1 or channels % groups or not axis:
        use.fail(f"has {groups} groups of {channels} channels", code="bad-keras")
    split = g.reshape(x, shape=(*x.shape[:axis], groups, channels // groups, *x.shape[axis + 1 :]))
    others = tuple(number for number in range(1, split.rank) if number != axis)
    centred = g.subtract(split, g.mean(split, axis=others, keepdims=True))
    variance = g.mean(g.square(centred), axis=others, keepdims=True)
    made = g.multiply(centred, g.rsqrt(g.add(variance, g.like(use.number("epsilon", 1e-3), x))))
    made = g.reshape(made, shape=x.shape)
    shape = (channels, *(1,) * (x.rank - axis - 1))
    position = 0
    for word, flag, apply in (("gamma", "scale", g.multiply), ("beta", "center", g.add)):
        if use.flag(flag, True):
            made = apply(made, use.tensor(use.array(position, 1).reshape(shape), word))
            position += 1
    return [made]


def _unit_norm(use: Use) -> Sequence[Tensor]:
    x, g = use.x, use.g
    total = g.sum(g.square(x), axis=_axes(use, x.rank), keepdims=True)
    return [g.multiply(x, g.rsqrt(g.maximum(total, g.like(1e-12, x))))]


def _rescaling(use: Use) -> Sequence[Tensor]:
    x, g = use.x, use.g
    if not x.dtype.is_float:
        use.fail(f"gets {x.type}, expected floats", code="unsupported-dtype")
    parts = []
    for name, default in (("scale", 1.0), ("offset", 0.0)):
        array = use.numbers(name, default)
        parts.append(use.tensor(array, name) if array.ndim else g.like(float(array), x))
    return [g.add(g.multiply(x, parts[0]), parts[1])]


def _normalization(use: Use) -> Sequence[Tensor]:
    x, g = use.x, use.g
    axis = use.value("axis", -1)
    if use.flag("invert"):
        use.fail("has `invert`")
    if use.value("mean", None) is not None:
        mean, variance = use.numbers("mean"), use.numbers("variance")
    else:
        rank = 0 if axis is None else len(axis) if isinstance(axis, (list, tuple)) else 1
        mean, variance = use.array(0, rank), use.array(1, rank)
    if (mean.ndim == 1 and axis not in (-1, x.rank - 1, [-1], [x.rank - 1])) or mean.ndim > 1:
        use.fail(f"has `axis` = {axis!r}")
    deviation = np.maximum(np.sqrt(variance), np.float32(1e-7)).astype(np.float32)
    return [g.divide(g.subtract(x, use.tensor(mean, "mean")), use.tensor(deviation, "deviation"))]


CONVERTERS: Converters = {
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "GroupNormalization": _group_norm,
    "UnitNormalization": _unit_norm,
    "Rescaling": _rescaling,
    "Normalization": _normalization,
}
