"""Sizes and numbers to try a function with: small sizes, ordinary numbers, or with whatever floats can be among them.

An array depends on the seed, its name, its shape and the kind alone, so that it stays what it is while a function is
reduced. Nothing here runs anything.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...dialect.dims import INFINITY, Size, Symbol, evaluate, maximum, minimum
from ...dialect.graph import Function, Node, Parameter, Value, walk
from ...dialect.ops import OPERATORS
from ...dialect.ops.common import integer_range
from ...dialect.types import BOOL, Array, DType

ORDINARY, SPECIAL, OUTSIDE = "ordinary", "special", "out-of-range"
KINDS = (ORDINARY, SPECIAL)
"""The kinds of numbers: of a normal distribution, and the same with NaN, infinities, zeros of either sign, denormal and
huge ones among them. `OUTSIDE` are ordinary ones, and of the indices that are checked one is out of range."""

# Products of two of the huge ones overflow, whatever the order of a sum; no sum of them alone does.
_SPECIAL: Mapping[str, tuple[float, ...]] = {
    "f8e4m3": (0.0, -0.0, np.nan, 2.0**-9, -(2.0**-8), 1.0, 448.0, -448.0),
    "f8e5m2": (0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-16, -(2.0**-15), 1.0, 57344.0),
    "f16": (0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, -1e-7, 1.0, 60000.0),
    "bf16": (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-39, 1.0, 1e30, -1e30),
    "f32": (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -1e-40, 1.0, 1e30, -1e30),
    "f64": (0.0, -0.0, np.inf, -np.inf, np.nan, 5e-320, 1.0, 1e250, -1e250),
}
_NO_NUMBERS = (np.nan, np.inf, -np.inf)
_WANTED: tuple[tuple[int, ...], ...] = ((5, 3, 7, 2), (0,), (1,), (19, 2, 3))
"""Sizes for the dims in order, of which each set takes the nearest that its dims may have: different odd ones, the
least, one, and one beyond the width of a vector."""
_LARGE: tuple[tuple[int, ...], ...] = ((147, 3, 2), (3, 147, 5))
"""Sizes that reach every loop of a kernel: 147 == 2 * 64 + 19 is two turns of four vectors of 16 lanes, one vector, and
3 lanes under a mask; with 8 lanes it is four turns, two vectors and 3 lanes. Blocks of 8 rows are left with 3."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One call of a function: the sizes of its dims, the kind of its numbers, the arrays of its arguments in order."""

    function: str
    dims: Mapping[str, int]
    kind: str
    names: tuple[str, ...]
    arguments: tuple[Array, ...]

    def __str__(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.dims.items())
        return f"{self.kind} inputs" + (f" with {sizes}" if sizes else "")

    def select(self, function: Function) -> Trial:
        """The same for a function that takes some of the arguments."""
        by_name = dict(zip(self.names, self.arguments, strict=True))
        names = tuple(v.name for v in function.arguments)
        return Trial(function.name, self.dims, self.kind, names, tuple(by_name[name] for name in names))

    def save(self, folder: Path) -> Path:
        """Writes `inputs.npz` with the arrays by name."""
        path = folder / "inputs.npz"
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, **dict(zip(self.names, self.arguments, strict=True)))
        return path


def draw_array(rng: np.random.Generator, dtype: DType, shape: Sequence[int], kind: str, number: int = 0) -> Array:
    """Numbers of a kind. Integers are from -5 to 5; special ones of 8 bits are drawn from the whole range. One special
    float is NaN or an infinity, by `number`."""
    values: npt.NDArray[Any]
    if dtype.is_float:
        values = rng.standard_normal(shape)
        if kind == SPECIAL:
            # Few enough that most rows stay ordinary.
            share = rng.choice((0.002, 0.02, 0.2))
            chosen = rng.choice(_SPECIAL[dtype.name], rng.integers(1, 4))
            values = np.where(rng.random(shape) < share, rng.choice(chosen, shape), values)
            if values.size:
                values.reshape(-1)[rng.integers(values.size)] = _NO_NUMBERS[number % len(_NO_NUMBERS)]
    elif dtype is BOOL:
        values = rng.random(shape) < rng.choice((0.1, 0.5, 0.9))
    elif kind == SPECIAL and dtype.bits == 8:
        # The highest bit is a sign or is not, which small numbers do not show.
        values = rng.integers(*integer_range(dtype), shape, endpoint=True)
    else:
        values = rng.integers(-5 if dtype.is_signed else 0, 6, shape)
    return np.asarray(values).astype(dtype.numpy)


@dataclass(frozen=True, slots=True)
class Limit:
    """What indices address: windows of axes whose least size is `size`. Is the call refused if one is out of range?"""

    size: Size
    window: Size = 1
    checked: bool = False

    def both(self, other: Limit) -> Limit:
        """The limit of indices that are used twice."""
        size, window = minimum(self.size, other.size), maximum(self.window, other.window)
        return Limit(size, window, self.checked or other.checked)


def draw_argument(value: Value, dims: Mapping[str, int], kind: str, seed: int, limit: Limit | None = None) -> Array:
    """An array for an argument. Indices have a `limit`: checked ones are in range unless the kind is `OUTSIDE`, others
    are mostly in range."""
    shape, dtype = value.type.concrete(dims), value.type.dtype
    rng = np.random.default_rng([seed, zlib.crc32(f"{value.name} {kind} {shape}".encode())])
    if limit is None or not dtype.is_integer:
        return draw_array(rng, dtype, shape, kind, seed)
    size, window = evaluate(limit.size, dims), evaluate(limit.window, dims)
    # A negative index counts from the end.
    least = -size if dtype.is_signed and window == 1 else 0
    ids = rng.integers(least, max(size - window + 1, 1), shape)
    outside = rng.random(shape) < 0.03
    if limit.checked:
        outside = np.zeros(shape, np.bool_)
        if kind == OUTSIDE and outside.size:
            outside.reshape(-1)[rng.integers(outside.size)] = True
    return np.asarray(np.where(outside, 3 * size, ids)).astype(dtype.numpy)


def draw_trial(function: Function, dims: Mapping[str, int], kind: str = ORDINARY, *, seed: int = 0) -> Trial:
    """Arrays for all arguments of a function at sizes of its dims."""
    limits = place_limits(function)
    arrays = tuple(draw_argument(v, dims, kind, seed, limits.get(v.name)) for v in function.arguments)
    return Trial(function.name, dict(dims), kind, tuple(v.name for v in function.arguments), arrays)


def draw_dims(symbols: Sequence[Symbol]) -> tuple[dict[str, int], ...]:
    """Sets of sizes for dims, all of them small: odd ones first, then the least, one, and a few more than a vector has
    elements. One empty set where there are no dims."""
    return _draw(symbols, _WANTED)


def draw_large_dims(symbols: Sequence[Symbol]) -> tuple[dict[str, int], ...]:
    """Sets of sizes that reach the main loops of kernels, one dim being large in each; none where there are no dims, or
    none can be larger than those of `draw_dims`."""
    small = draw_dims(symbols)
    return tuple(dims for dims in _draw(symbols, _LARGE) if dims not in small)


def _draw(symbols: Sequence[Symbol], sets: Sequence[Sequence[int]]) -> tuple[dict[str, int], ...]:
    drawn = [{s.name: _nearest(s, wanted[i % len(wanted)]) for i, s in enumerate(symbols)} for wanted in sets]
    return tuple(dims for i, dims in enumerate(drawn) if dims not in drawn[:i])


def _nearest(symbol: Symbol, wanted: int) -> int:
    """The size next to the wanted one, above it where it can be."""
    least = -(-symbol.low // symbol.multiple) * symbol.multiple
    size = max(least, -(-wanted // symbol.multiple) * symbol.multiple)
    if symbol.high == INFINITY or size <= symbol.high:
        return size
    return int(symbol.high) // symbol.multiple * symbol.multiple


def made_up(parameter: Parameter) -> Array:
    """The data of a parameter that no checkpoint holds: by key, as one would, before it is transposed."""
    shape = [s for s in parameter.type.shape if isinstance(s, int)]
    order = parameter.transpose or tuple(range(len(shape)))
    stored = [shape[order.index(axis)] for axis in range(len(shape))]
    rng = np.random.default_rng(zlib.crc32(parameter.key.encode()))
    return draw_array(rng, parameter.type.dtype, stored, ORDINARY).transpose(order)


def place_limits(function: Function) -> dict[str, Limit]:
    """The limits of integer arguments that are used as indices."""
    arguments = {v.name for v in function.arguments if v.type.dtype.is_integer}
    makers = {v.name: node for node in function.body for v in node.outputs}
    limits: dict[str, Limit] = {}
    for node in walk(function.body):
        addresses, attributes = OPERATORS[node.op].addresses, dict(node.attributes)
        if addresses is None:
            continue
        checked = attributes.get("mode", "error") == "error"
        for use in addresses([v.type for v in node.inputs], attributes):
            limit = Limit(reduce(minimum, use.sizes), use.window, checked)
            for name in _sources(node.inputs[use.operand], makers) & arguments:
                limits[name] = limits[name].both(limit) if name in limits else limit
    return limits


def has_checked_indices(function: Function) -> bool:
    """Are there arguments whose values may have a call refused?"""
    return any(limit.checked for limit in place_limits(function).values())


def _sources(value: Value, makers: Mapping[str, Node]) -> set[str]:
    """The values whose elements are those of this one, moved or of another integer dtype."""
    found = {value.name}
    node = makers.get(value.name)
    if node is not None and (OPERATORS[node.op].has("movement") or OPERATORS[node.op].has("view") or node.op == "cast"):
        found |= _sources(node.inputs[0], makers)
    return found
