"""Reductions over axes, and cumulative operators."""

from __future__ import annotations

from collections.abc import Sequence

from .....dialect.types import BOOL, F32, I64
from ...writing.tensors import Tensor, known
from ..writing.use import Convert, Converters, Use
from .comparisons import truth


def widened(use: Use, x: Tensor) -> Tensor:
    return use.to(x, F32) if x.dtype.is_half else x


def reduce(name: str) -> Convert:
    """Returns a converter that reduces in the dtype of the result."""

    def convert(use: Use) -> Sequence[Tensor]:
        x = use.tensor()
        if x.dtype == BOOL and use.dtype != BOOL:
            x = use.to(x, use.dtype)
        x = use.to(x, use.dtype)
        return [_over_axes(use, name, x)]

    return convert


def _over_axes(use: Use, name: str, x: Tensor) -> Tensor:
    if not x.rank:
        return x
    attributes = {"axis": use.axes(rank=x.rank), "keepdims": use.flag("keepdim")}
    return use.g.apply(name, [x], attributes)[0]


def _extreme(name: str) -> Convert:
    """Returns the converter of amax or amin; bools are compared as numbers."""

    def convert(use: Use) -> Sequence[Tensor]:
        x = use.tensor()
        if x.dtype == BOOL:
            return [_over_axes(use, "any" if name == "max" else "all", x)]
        return [_over_axes(use, name, x)]

    return convert


def _logical(name: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x = truth(use, use.tensor())
        if not x.rank:
            return [use.to(x, use.dtype)]
        # An empty list of axes means all axes here, as for other reductions.
        attributes = {"axis": use.axes(), "keepdims": use.flag("keepdim")}
        return [use.to(use.g.apply(name, [x], attributes)[0], use.dtype)]

    return convert


def _with_index(name: str) -> Convert:
    """Returns the converter of max.dim or min.dim, with the values and their indices as results."""

    def convert(use: Use) -> Sequence[Tensor]:
        x, g = use.tensor(), use.g
        if not x.rank:
            return [x, known(0, I64)]
        axis, keep = use.axis(), use.flag("keepdim")
        numbers = use.to(x, I64) if x.dtype == BOOL else x
        index = g.apply(f"arg{name}", [numbers], {"axis": axis, "keepdims": True})[0]
        values = g.take_along_axis(x, index, axis=axis, mode="clamp")
        if keep:
            return [values, index]
        return [g.squeeze(values, axes=(axis,)), g.squeeze(index, axes=(axis,))]

    return convert


def _position(name: str) -> Convert:
    """Returns the converter of argmax or argmin; without an axis, the result is the position in the flat tensor."""

    def convert(use: Use) -> Sequence[Tensor]:
        x, g = use.tensor(), use.g
        x = use.to(x, I64) if x.dtype == BOOL else x
        if not x.rank:
            return [known(0, I64)]
        if use.has("dim"):
            return [g.apply(name, [x], {"axis": use.axis(), "keepdims": use.flag("keepdim")})[0]]
        flat = g.reshape(x, shape=(x.type.elements,))
        found = g.apply(name, [flat], {"axis": 0, "keepdims": False})[0]
        return [g.reshape(found, shape=use.shape)]

    return convert


def _variance(name: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x, g = use.tensor(), use.g
        given = use.arguments.get("correction")
        if given is None:
            unbiased = use.arguments.get("unbiased")
            given = 1 if unbiased is None else int(unbiased)
        if not x.rank:
            x = g.reshape(x, shape=(1,))
            return [_spread(use, name, x, (0,), float(given), keep=False)]
        return [_spread(use, name, x, use.axes(), float(given), keep=use.flag("keepdim"))]

    return convert


def _spread(use: Use, name: str, x: Tensor, axes: tuple[int, ...], correction: float, keep: bool) -> Tensor:
    g, wide = use.g, widened(use, x)
    total = g.sum(g.square(g.subtract(wide, g.mean(wide, axis=axes, keepdims=True))), axis=axes, keepdims=keep)
    count = 1
    for axis in axes:
        count = count * x.shape[axis]  # type: ignore[assignment]  # sizes multiply
    rest = g.subtract(g.size(count, total.dtype), g.like(correction, total))
    found = g.divide(total, g.maximum(rest, g.like(0, rest)))
    return use.to(g.sqrt(found) if name == "standard_deviation" else found, use.dtype)


def _cumulative(name: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x = use.cast("self", use.dtype)
        if not x.rank:
            return [x]
        return [use.to(use.g.apply(name, [widened(use, x)], {"axis": use.axis()})[0], use.dtype)]

    return convert


def _mean(use: Use) -> Sequence[Tensor]:
    return [_over_axes(use, "mean", use.cast("self", use.dtype))]


def _logsumexp(use: Use) -> Sequence[Tensor]:
    return [_over_axes(use, "logsumexp", use.cast("self", use.dtype))]


def _prod_dim(use: Use) -> Sequence[Tensor]:
    x = use.cast("self", use.dtype)
    if not x.rank:
        return [x]
    return [use.g.prod(x, axis=use.axis(), keepdims=use.flag("keepdim"))]


CONVERTERS: Converters = {
    "sum.default": reduce("sum"),
    "sum.dim_IntList": reduce("sum"),
    "prod.default": reduce("prod"),
    "prod.dim_int": _prod_dim,
    "mean.default": _mean,
    "mean.dim": _mean,
    "amax.default": _extreme("max"),
    "amin.default": _extreme("min"),
    "max.default": _extreme("max"),
    "min.default": _extreme("min"),
    "any.default": _logical("any"),
    "any.dim": _logical("any"),
    "any.dims": _logical("any"),
    "all.default": _logical("all"),
    "all.dim": _logical("all"),
    "all.dims": _logical("all"),
    "max.dim": _with_index("max"),
    "min.dim": _with_index("min"),
    "argmax.default": _position("argmax"),
    "argmin.default": _position("argmin"),
    "var.correction": _variance("variance"),
    "var.dim": _variance("variance"),
    "std.correction": _variance("standard_deviation"),
    "cumsum.default": _cumulative("cumsum"),
    "cumprod.default": _cumulative("cumprod"),
    "logsumexp.default": _logsumexp,
}
