"""Generates test inputs of a function: small sizes, and ordinary or special numbers.

An array depends only on the seed, its name, its shape and the kind, so that it does not change while a function is
reduced. This module runs nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ...dialect.dims import INFINITY, Size, Symbol, evaluate, maximum, minimum, symbols
from ...dialect.graph import Function, Node, Parameter, Value, walk
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import OPERATORS, axis_order, conv_transpose
from ...dialect.ops.support.common import integer_range
from ...dialect.ops.support.index_modes import FAILING_MODES
from ...dialect.requirements import call_requirements
from ...dialect.types import BOOL, F64, Array, DType

ORDINARY, SPECIAL, EDGES, OUTSIDE = "ordinary", "special", "edge", "out-of-range"
KINDS = (ORDINARY, SPECIAL, EDGES)
"""The kinds of numbers: normally distributed; the same with NaN, infinities, zeros of either sign, denormal and huge
numbers among them; and entire rows or columns of one such number. `OUTSIDE` numbers are ordinary, with one of the
checked indices out of range."""
UNUSUAL = frozenset({SPECIAL, EDGES})
"""The kinds with NaN and infinities."""

_TRANSPOSED = frozenset(operator.name for operator in conv_transpose.OPERATORS)

# Row fillers: a maximum starts at -inf, not at the least finite number; -0 + 0 is 0; the reciprocal of a denormal
# number is infinite; range reduction differs for large arguments.
_ROWS: tuple[Callable[[np.random.Generator, tuple[int, ...], DType], npt.NDArray[Any]], ...] = (
    lambda rng, shape, dtype: np.full(shape, -np.inf),
    lambda rng, shape, dtype: rng.choice((0.0, -0.0), shape),
    lambda rng, shape, dtype: float(_limits(dtype).smallest_normal) * rng.uniform(-0.05, 0.05, shape),
    lambda rng, shape, dtype: _huge(rng, shape, dtype),
    lambda rng, shape, dtype: np.full(shape, np.nan),
    lambda rng, shape, dtype: rng.standard_normal(shape),
)
_NO_NUMBERS = (np.nan, np.inf, -np.inf)
_WANTED: tuple[tuple[int, ...], ...] = ((5, 3, 7, 2), (0,), (1,), (19, 2, 3))
"""Sizes for the dims in order; each set uses the nearest sizes that its dims admit: different odd ones, the least, one,
and one beyond the width of a vector."""
_LARGE: tuple[tuple[int, ...], ...] = ((147, 3, 2), (3, 147, 5))
"""Sizes that reach every loop of a kernel: 147 == 2 * 64 + 19 is two iterations of four vectors of 16 lanes, one
vector, and 3 lanes under a mask; with 8 lanes it is four iterations, two vectors, 3 lanes. Blocks of 8 rows leave 3."""


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
        """Returns the trial of a function that takes some of the arguments."""
        by_name = dict(zip(self.names, self.arguments, strict=True))
        names = tuple(v.name for v in function.arguments)
        return Trial(function.name, self.dims, self.kind, names, tuple(by_name[name] for name in names))

    def save(self, folder: Path) -> Path:
        """Writes `inputs.npz` with the arrays by name."""
        path = folder / "inputs.npz"
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, **dict(zip(self.names, self.arguments, strict=True)))
        return path


def _huge(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> npt.NDArray[Any]:
    """Returns huge numbers that leave room for sums of products with quantized values, which are scaled afterwards.
    In float64 their products do not overflow: no wider dtype tells whether a sum of infinities is NaN in any order."""
    exponents = rng.uniform(0.3, 0.48 if dtype is F64 else 0.75, shape)
    return np.asarray(rng.choice((-1, 1), shape) * float(_limits(dtype).max) ** exponents)


def _limits(dtype: DType) -> Any:
    return ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]  # the package has no types for it


def _random_rows(rng: np.random.Generator, dtype: DType, shape: Sequence[int], number: int) -> npt.NDArray[Any]:
    """Returns rows along the last axis, each of one kind of numbers, or along the first axis if `number` is odd. For an
    array with one axis, each element is a row."""
    turned = tuple(shape) if number % 2 == 0 else tuple(reversed(shape))
    length = turned[-1] if len(turned) > 1 else 1
    rows = int(np.prod(turned)) // length if length else 0
    values = np.empty((rows, length))
    for first, fill in enumerate(_ROWS):
        those = values[first :: len(_ROWS)]
        those[:] = fill(rng, those.shape, dtype)
    values = values.reshape(turned)
    return values if number % 2 == 0 else values.T.copy()


def _special(dtype: DType) -> tuple[float, ...]:
    infinities = () if dtype.float_format.finite else (np.inf, -np.inf)
    return (0.0, -0.0, *infinities, np.nan, *dtype.samples)


def random_array(rng: np.random.Generator, dtype: DType, shape: Sequence[int], kind: str, number: int = 0) -> Array:
    """Returns numbers of a kind. Integers are from -5 to 5; special ones of 8 bits span the whole range. One special
    float is NaN or an infinity, selected by `number`, which also selects rows or columns for edges."""
    values: npt.NDArray[Any]
    if dtype.is_float and kind == EDGES:
        values = _random_rows(rng, dtype, shape, number)
    elif dtype.is_float:
        values = rng.standard_normal(shape)
        if kind == SPECIAL:
            # The share is small, so that most rows stay ordinary.
            share = rng.choice((0.002, 0.02, 0.2))
            chosen = rng.choice(_special(dtype), rng.integers(1, 4))
            values = np.where(rng.random(shape) < share, rng.choice(chosen, shape), values)
            if values.size:
                values.reshape(-1)[rng.integers(values.size)] = _NO_NUMBERS[number % len(_NO_NUMBERS)]
    elif dtype is BOOL:
        values = rng.random(shape) < rng.choice((0.1, 0.5, 0.9))
    elif kind in UNUSUAL and dtype.bits == 8:
        # Small numbers do not reveal whether the highest bit is treated as a sign.
        values = rng.integers(*integer_range(dtype), shape, endpoint=True)
    else:
        values = rng.integers(-5 if dtype.is_signed else 0, 6, shape)
    with np.errstate(over="ignore"):
        return np.asarray(values).astype(dtype.numpy)


@dataclass(frozen=True, slots=True)
class Limit:
    """The range of indices: windows of axes of size `size` or more. `checked`: other indices make a call fail.
    `from_end`: negative ones count from the end. `computed`: no call has other ones, besides -1."""

    size: Size
    window: Size = 1
    checked: bool = False
    from_end: bool = True
    computed: bool = False

    def both(self, other: Limit) -> Limit:
        """Returns the limit of indices that are used twice."""
        size, window = minimum(self.size, other.size), maximum(self.window, other.window)
        from_end, computed = self.from_end and other.from_end, self.computed or other.computed
        return Limit(size, window, self.checked or other.checked, from_end, computed)


def random_argument(value: Value, dims: Mapping[str, int], kind: str, seed: int, limit: Limit | None = None) -> Array:
    """Returns an array for an argument. Indices have a `limit`: checked ones are in range unless the kind is `OUTSIDE`,
    others are mostly in range."""
    shape, dtype = value.type.concrete(dims), value.type.dtype
    rng = np.random.default_rng([seed, zlib.crc32(f"{value.name} {kind} {shape}".encode())])
    if limit is None or not dtype.is_integer:
        return random_array(rng, dtype, shape, kind, seed)
    size, window = evaluate(limit.size, dims), evaluate(limit.window, dims)
    least = -size if dtype.is_signed and window == 1 and limit.from_end else 0
    if limit.computed:
        return rng.integers(-1, size - window + 1, shape).astype(dtype.numpy)
    ids = rng.integers(least, max(size - window + 1, 1), shape)
    outside = rng.random(shape) < 0.03
    if limit.checked:
        outside = np.zeros(shape, np.bool_)
        if kind == OUTSIDE and outside.size:
            outside.reshape(-1)[rng.integers(outside.size)] = True
    return np.asarray(np.where(outside, 3 * size, ids)).astype(dtype.numpy)


def random_trial(function: Function, dims: Mapping[str, int], kind: str = ORDINARY, *, seed: int = 0) -> Trial:
    """Returns arrays for all arguments of a function at sizes of its dims, or at the nearest that it admits."""
    dims = _admitted(function, dims)
    limits, triangles, weights = place_limits(function), place_triangles(function), find_transposed_weights(function)
    arrays = []
    for value in function.arguments:
        numbers = ORDINARY if value.name in weights and kind in UNUSUAL else kind
        array = random_argument(value, dims, numbers, seed, limits.get(value.name))
        for triangle in triangles.get(value.name, ()):
            array = triangle.select(array)
        arrays.append(array)
    return Trial(function.name, dict(dims), kind, tuple(v.name for v in function.arguments), tuple(arrays))


def _admitted(function: Function, dims: Mapping[str, int]) -> dict[str, int]:
    """Returns sizes at which no extent of the function is negative, where raising single dims achieves that."""
    found = dict(dims)
    for requirement in call_requirements(function):
        for symbol in sorted(symbols(requirement.size), key=lambda symbol: symbol.name):
            if requirement.holds(found) or not requirement.extent:
                break
            lacking = -evaluate(requirement.size, found)
            raised = found | {symbol.name: nearest_size(symbol, found[symbol.name] + lacking)}
            if evaluate(requirement.size, raised) > -lacking:
                found = raised
    return found


def random_dims(symbols: Sequence[Symbol]) -> tuple[dict[str, int], ...]:
    """Returns sets of small sizes for dims: odd ones first, then the least, one, and slightly more than the width of a
    vector. Returns one empty set if there are no dims."""
    return _draw(symbols, _WANTED)


def random_large_dims(symbols: Sequence[Symbol]) -> tuple[dict[str, int], ...]:
    """Returns sets of sizes that reach the main loops of kernels, with one large dim in each; none if there are no
    dims, or none can exceed the sizes of `random_dims`."""
    small = random_dims(symbols)
    return tuple(dims for dims in _draw(symbols, _LARGE) if dims not in small)


def _draw(symbols: Sequence[Symbol], sets: Sequence[Sequence[int]]) -> tuple[dict[str, int], ...]:
    sampled = [{s.name: nearest_size(s, wanted[i % len(wanted)]) for i, s in enumerate(symbols)} for wanted in sets]
    return tuple(dims for i, dims in enumerate(sampled) if dims not in sampled[:i])


def nearest_size(symbol: Symbol, wanted: int) -> int:
    """Returns the admissible size nearest to the wanted one, above it if possible."""
    least = -(-symbol.low // symbol.multiple) * symbol.multiple
    size = max(least, -(-wanted // symbol.multiple) * symbol.multiple)
    if symbol.high == INFINITY or size <= symbol.high:
        return size
    return int(symbol.high) // symbol.multiple * symbol.multiple


def made_up(parameter: Parameter) -> Array:
    """Returns generated data of a parameter by its key, as a checkpoint would hold it, before its transpose."""
    shape = [s for s in parameter.type.shape if isinstance(s, int)]
    order = parameter.transpose or tuple(range(len(shape)))
    stored = [shape[order.index(axis)] for axis in range(len(shape))]
    rng = np.random.default_rng(zlib.crc32(parameter.key.encode()))
    return random_array(rng, parameter.type.dtype, stored, ORDINARY).transpose(order)


def place_limits(function: Function) -> dict[str, Limit]:
    """Returns the limits of integer arguments that are used as indices."""
    arguments = {v.name for v in function.arguments if v.type.dtype.is_integer}
    makers = {v.name: node for node in function.body for v in node.outputs}
    limits: dict[str, Limit] = {}
    for node in walk(function.body):
        operator, attributes = OPERATORS[node.op], dict(node.attributes)
        addresses, computed = operator.addresses or operator.positions, operator.positions is not None
        if addresses is None:
            continue
        checked = not computed and attributes.get("mode", "error") in FAILING_MODES
        for use in addresses([v.type for v in node.inputs], attributes):
            limit = Limit(reduce(minimum, use.sizes), use.window, checked, use.from_end, computed)
            for name in _sources(node.inputs[use.operand], makers) & arguments:
                limits[name] = limits[name].both(limit) if name in limits else limit
    return limits


@dataclass(frozen=True, slots=True)
class Triangle:
    """Matrices along two axes of an array that are 0 above a diagonal."""

    row: int
    column: int
    diagonal: int

    def select(self, array: Array) -> Array:
        """Returns the array with 0 above the diagonal."""
        moved = np.moveaxis(array, (self.row, self.column), (-2, -1))
        return np.moveaxis(np.tril(moved, self.diagonal), (-2, -1), (self.row, self.column)).astype(array.dtype)


def place_triangles(function: Function) -> dict[str, list[Triangle]]:
    """Returns the triangles that products assume of arguments: kernels leave out what these multiply by 0."""
    makers = {v.name: node for node in walk(function.body) for v in node.outputs}
    given = {
        inner.name: outer
        for node in walk(function.body)
        if OPERATORS[node.op].has("group")
        for region in node.regions
        for inner, outer in zip(region.arguments, node.inputs, strict=True)
    }
    found: dict[str, list[Triangle]] = {v.name: [] for v in function.arguments}

    def place(value: Value, triangle: Triangle) -> None:
        value = given.get(value.name, value)
        if value.name in found:
            found[value.name].append(triangle)
            return
        node = makers.get(value.name)
        if node is None or not node.inputs:
            return
        order, x = axis_order(node), node.inputs[0]
        if order is not None:
            place(x, replace(triangle, row=order[triangle.row], column=order[triangle.column]))
        elif x.type == value.type and (node.op in ("multiply", "divide") or len(node.inputs) == 1):
            place(x, triangle)

    for node in walk(function.body):
        for name, number in (("x_diagonal", 0), ("y_diagonal", 1)):
            diagonal = node.attribute(name) if node.op == "matmul" else None
            if isinstance(diagonal, int):
                rank = node.inputs[number].type.rank
                place(node.inputs[number], Triangle(rank - 2, rank - 1, diagonal))
    return found


def find_transposed_weights(function: Function) -> set[str]:
    """Returns the arguments that are weights of transposed convolutions. These have finite numbers: kernels multiply
    weights by zeros between the elements and beside them, where the reference has no products."""
    makers = {v.name: node for node in walk(function.body) for v in node.outputs}
    nodes = [node for node in walk(function.body) if node.op in _TRANSPOSED]
    return {name for node in nodes for name in _sources(node.inputs[1], makers)}


def has_checked_indices(function: Function) -> bool:
    """Returns whether values of some arguments can make a call fail."""
    return any(limit.checked for limit in place_limits(function).values())


def _sources(value: Value, makers: Mapping[str, Node]) -> set[str]:
    """Returns the values whose elements this value contains, moved or converted to another dtype."""
    found = {value.name}
    node = makers.get(value.name)
    if node is not None and (OPERATORS[node.op].has("movement") or OPERATORS[node.op].has("view") or node.op == "cast"):
        found |= _sources(node.inputs[0], makers)
    return found
