"""Operators that reduce, move or choose elements, one element at a time with Python's lists, numbers and slices."""

from __future__ import annotations

import itertools
import math
import statistics
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import scipy.special
from independent_elements import Function
from nacre.dialect.types import Array

Place = tuple[int, ...]


def places(shape: Sequence[int]) -> Iterator[Place]:
    return itertools.product(*map(range, shape))


def build(shape: Sequence[int], element: Callable[[Place], Any]) -> Any:
    """An array of Python numbers, of which `element` gives the one at a place."""
    result = np.empty(tuple(shape), object)
    for place in places(shape):
        value = element(place)
        result[place] = value.item() if isinstance(value, np.generic) else value
    return result


def put(place: Place, axis: int, value: int) -> Place:
    return (*place[:axis], value, *place[axis + 1 :])


def wrapped(index: Any, size: int) -> int:
    """Counted from the end where negative, and moved inside where it is beyond."""
    index = int(index)
    return min(max(index + size if index < 0 else index, 0), size - 1)


# Reductions


def reduced(function: Callable[..., Any]) -> Function:
    """A function of the list of the elements that are reduced."""

    def computed(x: Array, *, axis: Any = None, keepdims: bool = False, **attributes: Any) -> Any:
        axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        gone = {a % x.ndim for a in axes} if x.ndim else set()
        kept = [1 if i in gone else n for i, n in enumerate(x.shape)]

        def element(place: Place) -> Any:
            inner = places([n if i in gone else 1 for i, n in enumerate(x.shape)])
            return function([x[tuple(map(sum, zip(place, p, strict=True)))].item() for p in inner], **attributes)

        result = build(kept, element)
        return result if keepdims else result.reshape([n for i, n in enumerate(x.shape) if i not in gone])

    return computed


def _total(values: list[Any]) -> Any:
    return sum(values) if all(isinstance(v, int) for v in values) else math.fsum(values)


def _mean(values: list[Any]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _variance(values: list[float], correction: int) -> float:
    count = len(values) - correction
    if not values or count <= 0:
        return math.nan if not values or not any(v != values[0] for v in values) else math.inf
    middle = Fraction(0) + sum(map(Fraction, values)) / len(values)
    return float(sum((Fraction(v) - middle) ** 2 for v in values) / count)


def _norm(values: list[float], order: float) -> float:
    sizes = [abs(v) for v in values]
    if math.isinf(order):
        return (max if order > 0 else min)(sizes, default=0.0)
    return math.fsum(v**order for v in sizes) ** (1 / order)


def _first(best: Callable[[list[Any]], Any]) -> Callable[[list[Any]], int]:
    return lambda values: values.index(best(values))


def _position(best: Callable[[list[Any]], Any]) -> Callable[..., int]:
    return lambda values, empty="error": 0 if empty == "zero" and not values else _first(best)(values)


# Along an axis


def along(function: Callable[..., Sequence[Any]]) -> Function:
    """A function of the lists along an axis that gives a list."""

    def computed(*arrays: Array, axis: int, **attributes: Any) -> Any:
        lines = [np.moveaxis(a, axis, -1) for a in arrays]
        shape = lines[0].shape
        rows = [list(function(*(a[p].tolist() for a in lines), **attributes)) for p in places(shape[:-1])]
        length = len(rows[0]) if rows else shape[-1]
        result = build((*shape[:-1], length), lambda p: rows[int(np.ravel_multi_index(p[:-1], shape[:-1]))][p[-1]])
        return np.moveaxis(result, -1, axis)

    return computed


def _cumulative(combine: Callable[[Any, Any], Any], start: Any) -> Callable[..., list[Any]]:
    def computed(values: list[Any], exclusive: bool, reverse: bool) -> list[Any]:
        values = values[::-1] if reverse else values
        sums = list(itertools.accumulate(values, combine, initial=start))
        sums = sums[:-1] if exclusive else sums[1:]
        return sums[::-1] if reverse else sums

    return computed


def _recurrence(decay: list[float], values: list[float], reverse: bool) -> list[float]:
    order = range(len(values))[:: -1 if reverse else 1]
    state, made = 0.0, [0.0] * len(values)
    for i in order:
        made[i] = state = decay[i] * state + values[i]
    return made


def _order(values: list[Any], descending: bool) -> list[int]:
    return (
        sorted(range(len(values)), key=lambda i: values[i], reverse=False)
        if not descending
        else sorted(range(len(values)), key=lambda i: -float(values[i]) if isinstance(values[i], float) else -values[i])
    )


def _top(x: Array, k: int, axis: int, largest: bool) -> Any:
    k = min(k, x.shape[axis])
    numbers = along(lambda values: _order(values, largest)[:k])(x, axis=axis)
    values = along(lambda values: [values[i] for i in _order(values, largest)[:k]])(x, axis=axis)
    return values, numbers


# Movement


def _transpose(x: Array, axes: Sequence[int] | None) -> Any:
    order = [a % x.ndim for a in axes] if axes is not None else list(range(x.ndim))[::-1]
    return build([x.shape[a] for a in order], lambda p: x[tuple(p[order.index(i)] for i in range(x.ndim))])


def _same_order(shape: Callable[..., Sequence[int]]) -> Function:
    """The elements in row-major order under another shape."""

    def computed(x: Array, **attributes: Any) -> Any:
        flat = [x[p].item() for p in places(x.shape)]
        wanted = list(shape(x.shape, **attributes))
        if -1 in wanted:
            wanted[wanted.index(-1)] = len(flat) // -math.prod(wanted)
        strides = [math.prod(wanted[i + 1 :]) for i in range(len(wanted))]
        return build(wanted, lambda p: flat[sum(i * s for i, s in zip(p, strides, strict=True))])

    return computed


def _flattened(shape: Place, start: int, end: int) -> Place:
    if not shape:
        return (1,)
    start, end = start % len(shape), end % len(shape)
    return (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :])


def _squeezed(shape: Place, axes: Any) -> Place:
    axes = (axes,) if isinstance(axes, int) else axes
    gone = {a % len(shape) for a in axes} if axes is not None else {i for i, n in enumerate(shape) if n == 1}
    return tuple(n for i, n in enumerate(shape) if i not in gone)


def _unsqueezed(shape: Place, axes: Any) -> Place:
    axes = (axes,) if isinstance(axes, int) else axes
    rank = len(shape) + len(axes)
    new, old = {a % rank for a in axes}, iter(shape)
    return tuple(1 if i in new else next(old) for i in range(rank))


def _flip(x: Array, axes: Sequence[int] | None) -> Any:
    turned = {a % x.ndim for a in axes} if axes is not None else set(range(x.ndim))
    return build(x.shape, lambda p: x[tuple(n - 1 - i if a in turned else i for a, (i, n) in _sized(p, x.shape))])


def _sized(place: Place, shape: Sequence[int]) -> Iterator[tuple[int, tuple[int, int]]]:
    return enumerate(zip(place, shape, strict=True))


def _roll(x: Array, shift: int, axis: int) -> Any:
    axis %= x.ndim
    return build(x.shape, lambda p: x[put(p, axis, (p[axis] - shift) % x.shape[axis])])


def _interleave(x: Array, repeats: int, axis: int) -> Any:
    axis %= x.ndim
    return build(put(x.shape, axis, x.shape[axis] * repeats), lambda p: x[put(p, axis, p[axis] // repeats)])


def _slices(shape: Place, starts: Any, stops: Any, steps: Any) -> list[range]:
    steps = steps or (None,) * len(starts)
    cut = [range(n)[slice(*bounds)] for n, bounds in zip(shape, zip(starts, stops, steps, strict=True), strict=False)]
    return [*cut, *map(range, shape[len(cut) :])]


def _slice(x: Array, **bounds: Any) -> Any:
    taken = _slices(x.shape, **bounds)
    return build([len(r) for r in taken], lambda p: x[tuple(r[i] for r, i in zip(taken, p, strict=True))])


def _slice_update(x: Array, update: Array, **bounds: Any) -> Any:
    taken = _slices(x.shape, **bounds)
    result = build(x.shape, lambda p: x[p])
    for p in places(update.shape):
        result[tuple(r[i] for r, i in zip(taken, p, strict=True))] = update[p].item()
    return result


def _begins(shape: Place, sizes: Sequence[int], starts: Sequence[Array]) -> list[int]:
    given = [int(s) for s in starts]
    return [min(max(s + n if s < 0 else s, 0), n - size) for s, n, size in zip(given, shape, sizes, strict=True)]


def _dynamic_slice(x: Array, *starts: Array, sizes: Sequence[int]) -> Any:
    begins = _begins(x.shape, sizes, starts)
    return build(sizes, lambda p: x[tuple(map(sum, zip(begins, p, strict=True)))])


def _dynamic_update(x: Array, update: Array, *starts: Array) -> Any:
    begins = _begins(x.shape, update.shape, starts)
    result = build(x.shape, lambda p: x[p])
    for p in places(update.shape):
        result[tuple(map(sum, zip(begins, p, strict=True)))] = update[p].item()
    return result


def _update_slice(x: Array, update: Array, *given: Array, axes: tuple[int, ...], starts: tuple[int, ...]) -> Any:
    begins = list(starts)
    for axis, start in zip(axes, given, strict=True):
        begins[axis] = _begins(x.shape[axis : axis + 1], update.shape[axis : axis + 1], [start])[0]
    result = build(x.shape, lambda p: x[p])
    for p in places(update.shape):
        result[tuple(map(sum, zip(begins, p, strict=True)))] = update[p].item()
    return result


def _gather(x: Array, indices: Array, axis: int) -> Any:
    axis %= x.ndim
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])

    def element(p: Place) -> Any:
        index = indices[p[axis : axis + indices.ndim]]
        return x[(*p[:axis], wrapped(index, x.shape[axis]), *p[axis + indices.ndim :])]

    return build(shape, element)


def _take_along(x: Array, indices: Array, axis: int) -> Any:
    axis %= x.ndim
    shape = [max(a, b) if 0 not in (a, b) else 0 for a, b in zip(x.shape, indices.shape, strict=True)]
    shape[axis] = indices.shape[axis]

    def element(p: Place) -> Any:
        index = indices[tuple(0 if n == 1 else i for _, (i, n) in _sized(p, indices.shape))]
        place = tuple(0 if n == 1 and a != axis else i for a, (i, n) in _sized(p, x.shape))
        return x[put(place, axis, wrapped(index, x.shape[axis]))]

    return build(shape, element)


def _row(row: Any, shape: Sequence[int]) -> Place:
    return tuple(wrapped(i, n) for i, n in zip(row, shape, strict=False))


def _gather_nd(x: Array, indices: Array) -> Any:
    depth, outer = indices.shape[-1], indices.ndim - 1
    shape = (*indices.shape[:-1], *x.shape[depth:])
    return build(shape, lambda p: x[(*_row(indices[p[:outer]], x.shape), *p[outer:])])


def _one_hot(ids: Array, depth: int, dtype: Any, ignored: int | None) -> Any:
    def element(i: int, j: int) -> bool:
        return i != ignored and (i + depth if i < 0 else i) == j

    return build((*ids.shape, depth), lambda p: element(int(ids[p[:-1]]), p[-1]))


def _scatter(add: bool) -> Function:
    def computed(x: Array, indices: Array, updates: Array, axis: int) -> Any:
        axis %= x.ndim
        result = build(x.shape, lambda p: x[p])
        for p in places(updates.shape):
            index = indices[tuple(0 if n == 1 else i for _, (i, n) in _sized(p, indices.shape))]
            place = put(p, axis, wrapped(index, x.shape[axis]))
            result[place] = updates[p].item() + (result[place] if add else 0)
        return result

    return computed


def _scatter_nd(add: bool) -> Function:
    def computed(x: Array, indices: Array, updates: Array) -> Any:
        result, outer = build(x.shape, lambda p: x[p]), indices.ndim - 1
        for p in places(updates.shape):
            place = (*_row(indices[p[:outer]], x.shape), *p[outer:])
            result[place] = updates[p].item() + (result[place] if add else 0)
        return result

    return computed


def _concat(*xs: Array, axis: int) -> Any:
    axis %= xs[0].ndim
    origins = [(x, i) for x in xs for i in range(x.shape[axis])]
    return build(put(xs[0].shape, axis, len(origins)), lambda p: origins[p[axis]][0][put(p, axis, origins[p[axis]][1])])


def _stack(*xs: Array, axis: int) -> Any:
    axis %= xs[0].ndim + 1
    shape = (*xs[0].shape[:axis], len(xs), *xs[0].shape[axis:])
    return build(shape, lambda p: xs[p[axis]][(*p[:axis], *p[axis + 1 :])])


def _split(x: Array, parts: Any, axis: int) -> Any:
    axis %= x.ndim
    sizes = [x.shape[axis] // parts] * parts if isinstance(parts, int) else list(parts)
    begins = list(itertools.accumulate(sizes, initial=0))
    return tuple(
        build(put(x.shape, axis, n), lambda p, b=b: x[put(p, axis, p[axis] + b)])  # type: ignore[misc]
        for n, b in zip(sizes, begins, strict=False)
    )


# Without operands


def _triangle(shape: Sequence[int], inside: Callable[[int, int], bool]) -> Any:
    return build(shape, lambda p: inside(p[0], p[1]))


def _band(lower: bool) -> Function:
    def computed(x: Array, diagonal: int) -> Any:
        kept = (lambda r, c: c <= r + diagonal) if lower else (lambda r, c: c >= r + diagonal)
        return build(x.shape, lambda p: x[p] if kept(p[-2], p[-1]) else type(x.ravel()[0].item())(0))

    return computed


# Sums of products


def _matmul(x: Array, y: Array, into: Any = None, **hints: Any) -> Any:
    a, b = (x[None] if x.ndim == 1 else x), (y[:, None] if y.ndim == 1 else y)
    outer = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = (np.broadcast_to(m, (*outer, *m.shape[-2:])) for m in (a, b))

    def element(p: Place) -> Any:
        left, right = a[(*p[:-2], p[-2])].tolist(), b[p[:-2]][:, p[-1]].tolist()
        return _total([u * v for u, v in zip(left, right, strict=True)])

    result = build((*outer, a.shape[-2], b.shape[-1]), element)
    result = result[..., 0, :] if x.ndim == 1 else result
    return result[..., 0] if y.ndim == 1 else result


def _einsum(*xs: Array, equation: str, into: Any) -> Any:
    """By numpy, in which integers of 64 bits wrap around as those of fewer bits do."""
    return np.einsum(equation, *(x.astype(np.int64 if x.dtype.kind in "iu" else np.float64) for x in xs))


def _rotary(x: Array, cos: Array, sin: Array, interleaved: bool) -> Any:
    half = x.shape[-1] // 2
    c, s = (np.broadcast_to(a, (*x.shape[:-1], a.shape[-1])) for a in (cos, sin))

    def element(p: Place) -> Any:
        pair = p[-1] // 2 if interleaved else p[-1] % half
        first = p[-1] % 2 == 0 if interleaved else p[-1] < half
        real, imaginary = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + half)
        angle = (*p[:-1], pair if c.shape[-1] == half else p[-1])
        turned = complex(x[(*p[:-1], real)], x[(*p[:-1], imaginary)]) * complex(c[angle], s[angle])
        return turned.real if first else turned.imag

    return build(x.shape, element)


def _heads(x: Array, count: int) -> Array:
    """Heads that are fewer serve several in a row."""
    if x.ndim < 3 or x.shape[-3] in (1, count) or count == 1:
        return x
    return np.stack([x[..., h * x.shape[-3] // count, :, :] for h in range(count)], -3)


def _mask_beside(x: Array, bounds: Array, *, axis: int, fill: float, after: bool) -> Any:
    axis %= x.ndim

    def element(p: Place) -> float:
        bound = int(bounds[tuple(p[i] if size != 1 else 0 for i, size in enumerate(bounds.shape))])
        position = bound if bound >= 0 else bound + x.shape[axis]
        return x[p].item() if (p[axis] < position) == after else fill

    return build(x.shape, element)


_mask_after = partial(_mask_beside, after=True)
_mask_before = partial(_mask_beside, after=False)


def _cached_attention(
    q: Array, k: Array, v: Array, lengths: Array, mask: Array | None = None, *, scale: Any, causal: bool
) -> Any:
    """Attends to the keys before the length, one position of the first axis at a time."""
    if lengths.ndim:
        parts = [
            _cached_attention(q[i], k[i], v[i], lengths[i], mask, scale=scale, causal=causal) for i in range(len(q))
        ]
        return np.stack(parts)
    end = lengths.item() if lengths >= 0 else lengths.item() + k.shape[-2]
    if end == 0:
        return np.zeros((*q.shape[:-1], v.shape[-1]))
    mask = None if mask is None else mask[..., :end]
    return _attention(q, k[..., :end, :], v[..., :end, :], mask, scale=scale, causal=causal)


def _gather_pages(x: Array, table: Array, *, axis: int) -> Any:
    axis %= x.ndim
    outer, width = table.ndim - 1, x.shape[axis]
    shape = (*table.shape[:-1], *put(x.shape[1:], axis - 1, table.shape[-1] * width))

    def element(p: Place) -> Any:
        number, within = divmod(p[outer + axis - 1], width)
        return x[(wrapped(table[(*p[:outer], number)], len(x)), *put(p[outer:], axis - 1, within))].item()

    return build(shape, element)


def _paged_attention(
    q: Array, keys: Array, values: Array, table: Array, lengths: Array, mask: Array | None = None, **more: Any
) -> Any:
    """Joins the pages of each text, and attends to those before its length."""
    rows = [[np.concatenate([pool[number] for number in row], 1) for row in table] for pool in (keys, values)]
    empty = [np.zeros((0, pool.shape[1], table.shape[1] * pool.shape[2], pool.shape[3])) for pool in (keys, values)]
    k, v = (np.stack(joined) if joined else none for joined, none in zip(rows, empty, strict=True))
    if not len(q):
        return np.zeros((*q.shape[:-1], v.shape[-1]))
    return _cached_attention(q, k, v, lengths, mask, **more)


def _attention(q: Array, k: Array, v: Array, mask: Array | None = None, *, scale: Any, causal: bool) -> Any:
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if q.ndim > 2:
        k, v = _heads(k, q.shape[-3]), _heads(v, q.shape[-3])
    outer = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    q, k, v = (np.broadcast_to(x, (*outer, *x.shape[-2:])) for x in (q, k, v))
    queries, keys = q.shape[-2], k.shape[-2]
    added = np.zeros((), q.dtype) if mask is None else mask
    added = np.broadcast_to(added, (*outer, queries, keys))

    def weights(place: Place) -> list[float]:
        outer, t = place[:-1], place[-1]
        row = q[(*outer, t)].tolist()
        scores = [
            scale * math.fsum(a * b for a, b in zip(row, k[(*outer, s)].tolist(), strict=True)) for s in range(keys)
        ]
        marks = added[place].tolist()
        seen = [(not causal or s <= t + keys - queries) and marks[s] is not False for s in range(keys)]
        if not any(seen):
            return [1 / keys] * keys
        scores = [
            score if mark is True or mark is False else score + mark for score, mark in zip(scores, marks, strict=True)
        ]
        top = max(score for score, is_seen in zip(scores, seen, strict=True) if is_seen)
        powers = [math.exp(score - top) if is_seen else 0.0 for score, is_seen in zip(scores, seen, strict=True)]
        return [power / math.fsum(powers) for power in powers]

    rows = {place: weights(place) for place in places(q.shape[:-1])}
    return build(
        (*q.shape[:-1], v.shape[-1]),
        lambda p: math.fsum(w * v[(*p[:-2], s, p[-1])].item() for s, w in enumerate(rows[p[:-1]])),
    )


def _group_norm(x: Array, weight: Any = None, bias: Any = None, *, groups: int, eps: float) -> Any:
    parts = x.reshape(x.shape[0], groups, -1)
    normal = np.asarray(_layer_norm(parts, axes=-1, eps=eps)).reshape(x.shape)
    inner = [1] * (x.ndim - 2)
    scaled = normal * (1 if weight is None else weight.reshape(-1, *inner))
    return scaled + (0 if bias is None else bias.reshape(-1, *inner))


def _layer_norm(x: Array, weight: Any = None, bias: Any = None, *, axes: Any, eps: float) -> Any:
    gone = tuple(a % x.ndim for a in ((axes,) if isinstance(axes, int) else axes))
    middle = reduced(_mean)(x, axis=gone, keepdims=True).astype(float)
    spread = reduced(lambda values: statistics.pvariance(values) if values else math.nan)(x, axis=gone, keepdims=True)
    normal = (x - middle) / np.sqrt(spread.astype(float) + eps)
    return normal * (1 if weight is None else weight) + (0 if bias is None else bias)


def _l2(x: Array, axis: int, eps: float) -> Any:
    length = reduced(lambda values: max(math.hypot(*values), eps))(x, axis=axis, keepdims=True)
    return x / length.astype(float)


def _block_numbers(codes: Array, zeros: Array | None, bits: int, table: Sequence[int] | None) -> list[list[list[Any]]]:
    """The whole numbers of each column and block: of 4 bits, those in the low half of the bytes come first."""
    columns: list[list[list[Any]]] = []
    for c, rows in enumerate(codes.tolist()):
        columns.append([])
        for b, row in enumerate(rows):
            numbers = [n & 15 for n in row] + [n >> 4 for n in row] if bits == 4 else row
            zero = 8 if bits == 4 else 0
            if zeros is not None:
                zero = int(zeros[c, b]) & 15 if bits == 4 else int(zeros[c, b])
            columns[-1].append([n - zero if table is None else table[n] for n in numbers])
    return columns


def _to_bfloat(number: float) -> float:
    """The nearest bf16 of the nearest f32, halves to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    bits += 0x7FFF + (bits >> 16 & 1)
    (rounded,) = struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))
    return float(rounded)


def _to_half(number: float) -> float:
    """The nearest f16 of the nearest f32, halves to even."""
    (single,) = struct.unpack("<f", struct.pack("<f", number))
    (rounded,) = struct.unpack("<e", struct.pack("<e", single))
    return float(rounded)


_ROUNDINGS: dict[str, Callable[[float], float]] = {"bf16": _to_bfloat, "f16": _to_half}


def _block_matmul(
    x: Array,
    codes: Array,
    scales: Array,
    zeros: Array | None = None,
    *,
    bits: int,
    zero: int = 0,
    rounded: str = "f32",
    sparse: Any = None,
    table: Sequence[int] | None = None,
) -> Any:
    codes = codes.astype(np.float64) if codes.dtype.kind not in "iu" else codes
    columns = _block_numbers(codes, zeros, bits, table)

    def element(p: Place) -> Any:
        blocks, row, total = columns[p[-1]], x[p[:-1]].tolist(), 0.0
        for b, numbers in enumerate(blocks):
            part = row[b * len(numbers) : (b + 1) * len(numbers)]
            if rounded in _ROUNDINGS:
                weights = [_ROUNDINGS[rounded](float(scales[p[-1], b]) * n) for n in numbers]
                total += math.fsum(u * w for u, w in zip(part, weights, strict=True))
                continue
            total += float(scales[p[-1], b]) * math.fsum((u - zero) * n for u, n in zip(part, numbers, strict=True))
        return total

    return build((*x.shape[:-1], codes.shape[0]), element)


TENSORS: Mapping[str, Function] = {
    "constant": lambda value: value.data,
    "sum": reduced(_total),
    "prod": reduced(math.prod),
    "max": reduced(max),
    "min": reduced(min),
    "any": reduced(any),
    "all": reduced(all),
    "argmax": reduced(_position(max)),
    "argmin": reduced(_position(min)),
    "mean": reduced(_mean),
    "variance": reduced(_variance),
    "standard_deviation": reduced(lambda values, correction: math.sqrt(_variance(values, correction))),
    "logsumexp": reduced(lambda values: float(scipy.special.logsumexp(values)) if values else -math.inf),
    "norm": reduced(_norm),
    "cumsum": along(_cumulative(lambda a, b: a + b, 0)),
    "cumprod": along(_cumulative(lambda a, b: a * b, 1)),
    "linear_recurrence": along(_recurrence),
    "softmax": lambda x, axis: scipy.special.softmax(x, axis=axis),
    "log_softmax": lambda x, axis: scipy.special.log_softmax(x, axis=axis),
    "l2_normalize": _l2,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "instance_norm": lambda x, *scales, eps: _group_norm(x, *scales, groups=x.shape[1], eps=eps),
    "matmul": _matmul,
    "einsum": _einsum,
    "global_max_pool": lambda x: reduced(max)(x, axis=tuple(range(2, x.ndim)), keepdims=True),
    "reshape": _same_order(lambda old, shape: shape),
    "flatten": _same_order(_flattened),
    "squeeze": _same_order(_squeezed),
    "unsqueeze": _same_order(_unsqueezed),
    "transpose": _transpose,
    "matrix_transpose": lambda x: build(
        (*x.shape[:-2], x.shape[-1], x.shape[-2]), lambda p: x[(*p[:-2], p[-1], p[-2])]
    ),
    "flip": _flip,
    "roll": _roll,
    "repeat_interleave": _interleave,
    "concat": _concat,
    "stack": _stack,
    "split": _split,
    "slice": _slice,
    "slice_update": _slice_update,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update,
    "update_slice": _update_slice,
    "gather": _gather,
    "gather_pages": _gather_pages,
    "take_along_axis": _take_along,
    "gather_nd": _gather_nd,
    "embedding": lambda table, ids: _gather(table, ids, 0),
    "one_hot": _one_hot,
    "scatter": _scatter(add=False),
    "scatter_add": _scatter(add=True),
    "scatter_nd": _scatter_nd(add=False),
    "scatter_nd_add": _scatter_nd(add=True),
    "sort": along(lambda values, descending: [values[i] for i in _order(values, descending)]),
    "argsort": along(_order),
    **dict.fromkeys(("top_k", "merged_order"), _top),
    "iota": lambda shape, axis, dtype: (lambda s: build(s, lambda p: p[axis]))(
        (shape,) if isinstance(shape, int) else shape
    ),
    "full": lambda shape, value, dtype: build((shape,) if isinstance(shape, int) else shape, lambda p: value),
    "size_value": lambda size: build((), lambda p: size),
    "triangular_mask": lambda rows, columns, diagonal, dtype: _triangle(
        (rows, columns), lambda r, c: c <= r + diagonal
    ),
    "eye": lambda n, m, dtype: _triangle((n, n if m is None else m), lambda r, c: r == c),
    "tril": _band(lower=True),
    "triu": _band(lower=False),
    "rotary_embedding": _rotary,
    "attention": _attention,
    "mask_after": _mask_after,
    "mask_before": _mask_before,
    "cached_attention": _cached_attention,
    "paged_attention": _paged_attention,
    "block_matmul": _block_matmul,
    "block_dot": _block_matmul,
}
