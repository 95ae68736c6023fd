"""Pooling over windows, and to a given size."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....dialect.dims import Size, divide_exactly, product, static_size
from .....dialect.types import F32
from ...writing.tensors import Tensor, known
from ...writing.weighted_sums import weighted_sums
from ..writing.use import Convert, Converters, Use


def _batched(use: Use, rank: int) -> tuple[Tensor, bool]:
    """Returns the operand with an axis for the batch, and whether it was added."""
    x = use.tensor()
    alone = x.rank == rank + 1
    return (use.g.unsqueeze(x, axes=(0,)) if alone else x), alone


def _windows(use: Use, rank: int) -> dict[str, Any]:
    kernel = use.integers("kernel_size", rank)
    given = use.integers("stride", rank)
    widths = use.integers("padding", rank)
    return {
        "kernel": kernel,
        "stride": given or kernel,
        "padding": tuple((width, width) for width in widths),
        "ceil_mode": use.flag("ceil_mode"),
    }


def _max_pool(rank: int, *, indices: bool) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x, alone = _batched(use, rank)
        attributes = {**_windows(use, rank), "dilation": use.integers("dilation", rank)}
        made = [use.g.apply(f"max_pool{rank}d", [x], attributes)[0]]
        if indices:
            made.append(use.g.apply("max_pool_indices", [x], attributes)[0])
        return [use.g.squeeze(each, axes=(0,)) for each in made] if alone else made

    return convert


def _average_pool(rank: int) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x, alone = _batched(use, rank)
        g, attributes = use.g, _windows(use, rank)
        counts = use.flag("count_include_pad")
        divisor = use.arguments.get("divisor_override")
        made = g.apply(f"avg_pool{rank}d", [x], {**attributes, "count_include_pad": counts})[0]
        if divisor is not None:
            made = _with_divisor(use, x, attributes, rank, int(divisor))
        return [g.squeeze(made, axes=(0,)) if alone else made]

    return convert


def _with_divisor(use: Use, x: Tensor, attributes: dict[str, Any], rank: int, divisor: int) -> Tensor:
    """Returns the sum of each window divided by the argument `divisor_override`. The operand is padded explicitly."""
    g, widths = use.g, [(0, 0), (0, 0)]
    for axis in range(rank):
        low, high = attributes["padding"][axis]
        reach = (use.shape[axis - rank] - 1) * attributes["stride"][axis] + attributes["kernel"][axis]
        beyond = reach - (x.shape[2 + axis] + low + high)
        if not isinstance(beyond, int):
            beyond = 0
            if attributes["ceil_mode"]:
                use.fail("rounds up the number of windows of a symbolic size", code="data-dependent")
        widths.append((low, high + max(beyond, 0)))
    padded = g.pad(x, widths=tuple(widths)) if any(map(any, widths)) else x
    windows = {"kernel": attributes["kernel"], "stride": attributes["stride"]}
    mean = g.apply(f"avg_pool{rank}d", [padded], windows)[0]
    return g.multiply(mean, g.like(float(np.prod(attributes["kernel"])) / divisor, mean))


def _adaptive_average(rank: int) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x, g = use.tensor(), use.g
        wanted = use.sizes("output_size")
        wanted = wanted * rank if len(wanted) == 1 else wanted
        if all(size == 1 for size in wanted):
            return [g.mean(x, axis=tuple(range(x.rank - rank, x.rank)), keepdims=True)]
        wide = use.to(x, F32) if x.dtype.is_half else x
        for number, count in enumerate(wanted):
            wide = _averaged_axis(use, wide, x.rank - rank + number, count)
        return [use.to(wide, x.dtype)]

    return convert


def _averaged_axis(use: Use, x: Tensor, axis: int, count: Size) -> Tensor:
    """Averages an axis of n elements to `count`: element i is the mean of the elements from floor(i n / count) to
    ceil((i + 1) n / count), exclusive."""
    g, size = use.g, x.shape[axis]
    if size == count:
        return x
    each = divide_exactly(size, count)
    if each is not None:
        split = g.reshape(x, shape=(*x.shape[:axis], count, each, *x.shape[axis + 1 :]))
        return g.mean(split, axis=(axis + 1,))
    if not isinstance(size, int) or not isinstance(count, int):
        use.fail("averages windows that depend on a symbolic size unevenly", code="data-dependent")
    return weighted_sums(g, x, axis, shares_of_windows(size, count))


def shares_of_windows(size: int, count: int) -> np.ndarray[Any, Any]:
    """Returns the weights [count, size] of the averages."""
    weights = np.zeros((count, size))
    for i in range(count):
        first, last = i * size // count, -(-(i + 1) * size // count)
        weights[i, first:last] = 1 / (last - first)
    return weights


def _adaptive_max(rank: int) -> Convert:
    def convert(use: Use) -> Sequence[Tensor]:
        x, alone = _batched(use, rank)
        g, wanted = use.g, use.integers("output_size", rank)
        kernel = [divide_exactly(size, count) for size, count in zip(x.shape[2:], wanted, strict=True)]
        if all(isinstance(each, int) for each in kernel):
            attributes = {"kernel": tuple(kernel), "stride": tuple(kernel)}
            made = [g.apply(f"max_pool{rank}d", [x], attributes)[0], g.apply("max_pool_indices", [x], attributes)[0]]
        else:
            made = _uneven_maxima(use, x, wanted)
        return [g.squeeze(each, axes=(0,)) for each in made] if alone else made

    return convert


def _uneven_maxima(use: Use, x: Tensor, wanted: Sequence[int]) -> list[Tensor]:
    """Returns maxima of windows of different sizes and their positions: each window is a separate slice."""
    g, sizes = use.g, x.shape[2:]
    if not all(isinstance(size, int) for size in sizes):
        use.fail("divides a symbolic size into uneven windows", code="data-dependent")
    positions = known(np.arange(np.prod([static_size(size) for size in sizes])).reshape(1, 1, *sizes))
    values, indices = [], []
    for cell in itertools.product(*map(range, wanted)):
        bounds = [(i * s // n, -(-(i + 1) * s // n)) for i, s, n in zip(cell, sizes, wanted, strict=True)]
        part = {"starts": (0, 0, *(a for a, _ in bounds)), "stops": (None, None, *(b for _, b in bounds))}
        window, numbers = g.slice(x, **part), g.slice(positions, **part)
        flat = g.reshape(window, shape=(*x.shape[:2], product(window.shape[2:])))
        at = g.argmax(flat, axis=2, keepdims=True)
        values.append(g.take_along_axis(flat, at, axis=2, mode="clamp"))
        indices.append(g.gather(g.reshape(numbers, shape=(numbers.type.elements,)), at, axis=0, mode="clamp"))
    return [g.reshape(g.concat(*each, axis=2), shape=(*x.shape[:2], *wanted)) for each in (values, indices)]


CONVERTERS: Converters = {
    **{f"max_pool{rank}d_with_indices.default": _max_pool(rank, indices=True) for rank in (1, 2, 3)},
    **{f"max_pool{rank}d.default": _max_pool(rank, indices=False) for rank in (1, 2, 3)},
    **{f"avg_pool{rank}d.default": _average_pool(rank) for rank in (1, 2, 3)},
    "adaptive_avg_pool1d.default": _adaptive_average(1),
    **{f"_adaptive_avg_pool{rank}d.default": _adaptive_average(rank) for rank in (2, 3)},
    **{f"adaptive_avg_pool{rank}d.default": _adaptive_average(rank) for rank in (2, 3)},
    **{f"adaptive_max_pool{rank}d.default": _adaptive_max(rank) for rank in (1, 2, 3)},
}
