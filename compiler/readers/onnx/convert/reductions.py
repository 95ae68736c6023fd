"""Reductions over axes, and the index of an extreme element.

Axes are an attribute in old versions, and an operand from version 13 (`ReduceSum`) or 18 (others) on. Axes that are
computed in a call are deduced from the declared type of the result, and the call checks them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .....dialect.dims import Size
from .....dialect.types import BOOL, I64
from ...writing.tensors import Tensor, known
from ...writing.truncated import divide_truncated
from ..writing.use import Convert, Converters, Use

Reduce = Callable[[Use, Tensor, tuple[int, ...], bool], Tensor]


@dataclass(frozen=True, slots=True)
class _Choice:
    """A set of axes that gives the declared shape; `chosen` is a boolean scalar, true if the call passes these axes."""

    axes: tuple[int, ...]
    chosen: Tensor


def reduced_axes(use: Use, x: Tensor, keepdims: bool) -> tuple[int, ...] | list[_Choice]:
    """Returns the axes of a reduction, counted from 0; all axes if none are given, unless an attribute of the node
    disables it. For axes that the call gives, returns the choices."""
    if use.has("axes"):
        given = use.ints_of("axes")
    elif len(use.operands) > 1 and use.operands[1] is not None:
        axes = use.input(1)
        if axes.sizes is None:
            return _deduced(use, x, axes, keepdims)
        given = use.ints(1, "axes")
    else:
        given = ()
    if not given:
        return () if use.integer("noop_with_empty_axes", 0) else tuple(range(x.rank))
    if any(not -x.rank <= axis < x.rank for axis in given):
        use.fail(f"has no axes {list(given)}: the operand has rank {x.rank}", code="bad-axis")
    return tuple(sorted({axis % x.rank for axis in given}))


def _deduced(use: Use, x: Tensor, axes: Tensor, keepdims: bool) -> tuple[int, ...] | list[_Choice]:
    """Returns all sets of axes that give the declared shape, and adds a check that the call passes one of them."""
    shape, g = use.declared_shape("axes"), use.g
    if axes.rank != 1 or not isinstance(axes.shape[0], int):
        use.fail_unknown("axes")
    noop = bool(use.integer("noop_with_empty_axes", 0))
    if axes.shape[0] == 0:
        return () if noop else tuple(range(x.rank))
    found = [
        subset
        for count in range(1, x.rank + 1)
        for subset in itertools.combinations(range(x.rank), count)
        if _reduced_shape(x.shape, subset, keepdims) == shape and count <= axes.shape[0]
    ]
    if not found:
        use.fail("has operands that contradict the declared type of its result", code="type-mismatch")
    normal = g.remainder(g.cast(axes, dtype=I64), known(np.int64(max(x.rank, 1))))
    hits = g.any(g.equal(g.unsqueeze(normal, axes=(1,)), known(np.arange(x.rank))), axis=0)
    masks = [known(np.isin(np.arange(x.rank), subset)) for subset in found]
    choices = [_Choice(subset, g.all(g.equal(hits, mask))) for subset, mask in zip(found, masks, strict=True)]
    is_one = choices[0].chosen
    for choice in choices[1:]:
        is_one = g.logical_or(is_one, choice.chosen)
    use.require(is_one)
    return choices


def _reduced_shape(shape: tuple[Size, ...], axes: Sequence[int], keepdims: bool) -> tuple[Size, ...]:
    kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
    return tuple(kept) if keepdims else tuple(size for axis, size in enumerate(kept) if axis not in axes)


def _converter(reduce: Reduce, before: Callable[[Use, Tensor], Tensor] | None = None) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x = use.input()
        keepdims = bool(use.integer("keepdims", 1))
        axes = reduced_axes(use, x, keepdims)
        if before is not None:
            x = before(use, x)
        if isinstance(axes, tuple):
            return [reduce(use, x, axes, keepdims)]
        result = reduce(use, x, axes[0].axes, keepdims)
        for choice in axes[1:]:
            result = use.g.where(choice.chosen, reduce(use, x, choice.axes, keepdims), result)
        return [result]

    return convert


def _plain(name: str) -> Reduce:
    return lambda use, x, axes, keepdims: use.g.apply(name, [x], {"axis": axes, "keepdims": keepdims})[0]


def _sum(use: Use, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return use.g.sum(x, axis=axes, keepdims=keepdims)


def _mean(use: Use, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    if x.dtype.is_float:
        return use.g.mean(x, axis=axes, keepdims=keepdims)
    total = use.g.sum(x, axis=axes, keepdims=keepdims)
    count = use.g.size(1)
    for axis in axes:
        count = use.g.multiply(count, use.g.size(x.shape[axis]))
    return divide_truncated(use.g, total, use.g.cast(count, dtype=x.dtype))


def _extreme(name: str, of_booleans: str, empty: float) -> Reduce:
    def reduce(use: Use, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        if x.dtype == BOOL:
            return use.g.apply(of_booleans, [x], {"axis": axes, "keepdims": keepdims})[0]
        if any(x.shape[axis] == 0 for axis in axes):
            value = x.dtype.integer_range[empty > 0] if x.dtype.is_integer else empty
            shape = _reduced_shape(x.shape, axes, keepdims)
            return use.g.broadcast_to(use.g.like(value, x), shape=shape)
        return use.g.apply(name, [x], {"axis": axes, "keepdims": keepdims})[0]

    return reduce


def _l2(use: Use, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    if x.dtype.is_float:
        return use.g.sqrt(_sum(use, use.g.square(x), axes, keepdims))
    from_integers = _sum(use, use.g.square(x), axes, keepdims)
    return use.g.cast(use.g.sqrt(use.g.cast(from_integers, dtype=use.dtype(11))), dtype=x.dtype)


def _log_sum(use: Use, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return use.g.log(_sum(use, x, axes, keepdims))


def _log_sum_exp(use: Use, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return use.g.logsumexp(x, axis=axes, keepdims=keepdims) if axes else x


def _arg(name: str) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x, g = use.input(), use.g
        axis, keepdims = use.axis(x.rank, 0), bool(use.integer("keepdims", 1))
        if not use.integer("select_last_index", 0):
            return [g.apply(name, [x], {"axis": axis, "keepdims": keepdims})[0]]
        found = g.apply(name, [g.flip(x, axes=(axis,))], {"axis": axis, "keepdims": keepdims})[0]
        return [g.subtract(g.size(x.shape[axis] - 1), found)]

    return convert


CONVERTERS: Converters = {
    "ReduceSum": _converter(_sum),
    "ReduceMean": _converter(_mean),
    "ReduceProd": _converter(_plain("prod")),
    "ReduceMax": _converter(_extreme("max", "any", -np.inf)),
    "ReduceMin": _converter(_extreme("min", "all", np.inf)),
    "ReduceL1": _converter(_sum, lambda use, x: use.g.abs(x)),
    "ReduceL2": _converter(_l2),
    "ReduceSumSquare": _converter(_sum, lambda use, x: use.g.square(x)),
    "ReduceLogSum": _converter(_log_sum),
    "ReduceLogSumExp": _converter(_log_sum_exp),
    "ArgMax": _arg("argmax"),
    "ArgMin": _arg("argmin"),
}
