"""An emitter that runs lowerings element by element and checks every access: what compiled code cannot tell.

Tensors hold numpy arrays beside their types, which may be symbolic. A read or write outside of a tensor, an index map
that leaves it, a result that no iteration writes, or arithmetic on two dtypes is an assertion. It is slow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from nacre.dialect.dims import Shape, Size, evaluate
from nacre.dialect.emitter import Index, IndexMap, Loop, Result
from nacre.dialect.ops.support.common import integer_range
from nacre.dialect.types import BOOL, I64, Array, DType, TensorType

Numbers = np.ndarray[Any, np.dtype[Any]]

UNARY: Mapping[str, Callable[[Any], Any]] = {
    "neg": np.negative,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "isnan": np.isnan,
    "not": np.invert,
}
BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": lambda x, y: np.where(y == 0, 0, np.trunc(x / np.where(y == 0, 1, y))) if x.dtype.kind in "iu" else x / y,
    "mod": lambda x, y: np.where(y == 0, 0, np.mod(x, np.where(y == 0, 1, y))),
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
}
COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@dataclass(frozen=True, eq=False)
class CheckedTensor:
    type: TensorType
    data: Numbers


@dataclass(eq=False, slots=True)
class CheckedScalar:
    """Millions of them are made, which takes three times as long if they are frozen."""

    dtype: DType
    value: Any


def element(dtype: DType, value: Any) -> CheckedScalar:
    if type(value) is dtype.numpy.type:
        return CheckedScalar(dtype, value)
    return CheckedScalar(dtype, np.asarray(value).astype(dtype.numpy)[()])


@cache
def position(number: int) -> CheckedScalar:
    return element(I64, number)


class CheckedScalars:
    """Arithmetic on elements, at one iteration of the loops around it."""

    def __init__(self, values: Mapping[str, int], loops: Sequence[int] = ()) -> None:
        self.values, self.loops = values, loops

    def constant(self, value: float | int | bool, dtype: DType) -> CheckedScalar:
        return element(dtype, value)

    def size(self, size: Size) -> CheckedScalar:
        return element(I64, evaluate(size, self.values))

    def index(self, number: int) -> CheckedScalar:
        return position(self.loops[number])

    def unary(self, function: str, x: CheckedScalar) -> CheckedScalar:
        return element(BOOL if function == "isnan" else x.dtype, UNARY[function](x.value))

    def binary(self, function: str, x: CheckedScalar, y: CheckedScalar) -> CheckedScalar:
        assert x.dtype == y.dtype, (function, x, y)
        return element(x.dtype, BINARY[function](x.value, y.value))

    def compare(self, predicate: str, x: CheckedScalar, y: CheckedScalar) -> CheckedScalar:
        assert x.dtype == y.dtype, (predicate, x, y)
        return element(BOOL, COMPARE[predicate](x.value, y.value))

    def select(self, condition: CheckedScalar, x: CheckedScalar, y: CheckedScalar) -> CheckedScalar:
        assert condition.dtype == BOOL and x.dtype == y.dtype, (condition, x, y)
        return x if condition.value else y

    def cast(self, x: CheckedScalar, dtype: DType) -> CheckedScalar:
        return element(dtype, x.value)

    def whole(self, x: CheckedScalar, dtype: DType) -> CheckedScalar:
        low, high = integer_range(dtype)
        assert low <= x.value <= high, (x, dtype)
        return element(dtype, x.value)

    def bits(self, x: CheckedScalar, dtype: DType) -> CheckedScalar:
        return CheckedScalar(dtype, x.value.view(dtype.numpy))

    def load(self, tensor: CheckedTensor, indices: Sequence[CheckedScalar]) -> CheckedScalar:
        return CheckedScalar(tensor.type.dtype, tensor.data[self._inside(tensor, indices)])

    def load_if(
        self, condition: CheckedScalar, tensor: CheckedTensor, indices: Sequence[CheckedScalar]
    ) -> CheckedScalar:
        assert condition.dtype == BOOL, condition
        return self.load(tensor, indices) if condition.value else element(tensor.type.dtype, 0)

    def watch(self, place: CheckedScalar, outside: CheckedScalar) -> CheckedScalar:
        assert outside.dtype == BOOL, outside
        return place

    def iterate(
        self, count: CheckedScalar, initial: Sequence[CheckedScalar], body: Callable[..., Sequence[CheckedScalar]]
    ) -> tuple[CheckedScalar, ...]:
        carried = tuple(initial)
        for turn in range(count.value):
            after = tuple(body(self, element(I64, turn), carried))
            assert [c.dtype for c in after] == [c.dtype for c in carried], (after, carried)
            carried = after
        return carried

    def repeat(
        self,
        count: CheckedScalar,
        tensors: Sequence[CheckedTensor],
        scalars: Sequence[CheckedScalar],
        body: Callable[..., tuple[Sequence[CheckedTensor], Sequence[CheckedScalar]]],
    ) -> tuple[tuple[CheckedTensor, ...], tuple[CheckedScalar, ...]]:
        written, computed = tuple(tensors), tuple(scalars)
        for turn in range(count.value):
            after = body(element(I64, turn), written, computed)
            assert [c.dtype for c in after[1]] == [c.dtype for c in computed], (after, computed)
            written, computed = tuple(after[0]), tuple(after[1])
        return written, computed

    def store(self, tensor: CheckedTensor, indices: Sequence[CheckedScalar], value: CheckedScalar) -> CheckedTensor:
        assert value.dtype == tensor.type.dtype, (tensor.type, value)
        data = tensor.data.copy()
        data[self._inside(tensor, indices)] = value.value
        return CheckedTensor(tensor.type, data)

    def _inside(self, tensor: CheckedTensor, indices: Sequence[CheckedScalar]) -> tuple[int, ...]:
        assert all([i.dtype == I64 for i in indices]), indices
        place = tuple([int(i.value) for i in indices])
        assert len(place) == tensor.data.ndim, (place, tensor.type)
        assert all([0 <= p < n for p, n in zip(place, tensor.data.shape, strict=True)]), (place, tensor.data.shape)
        return place


def place_of(index: Index, loops: Sequence[int]) -> int:
    return sum([loops[loop] * coefficient for loop, coefficient in index.coefficients], index.constant)


class CheckingEmitter:
    """Runs structured ops as they are written."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self.values = values

    def tensor(self, type: TensorType, data: Array) -> CheckedTensor:
        assert type.concrete(self.values) == data.shape, (type, data.shape)
        assert type.dtype.numpy == data.dtype, (type, data.dtype)
        return CheckedTensor(type, np.asarray(data))

    def sizes(self, sizes: Shape) -> tuple[int, ...]:
        return tuple(evaluate(size, self.values) for size in sizes)

    def map(
        self, result: TensorType, inputs: Sequence[tuple[CheckedTensor, IndexMap]], body: Callable[..., CheckedScalar]
    ) -> CheckedTensor:
        loops = [Loop(size) for size in result.shape]
        identity = tuple(Index(((i, 1),)) for i in range(result.rank))
        return self.structured(loops, inputs, [Result(result, identity)], lambda s, *x: [body(s, *x[:-1])])[0]

    def structured(
        self,
        loops: Sequence[Loop],
        inputs: Sequence[tuple[CheckedTensor, IndexMap]],
        results: Sequence[Result],
        body: Callable[..., Sequence[CheckedScalar]],
    ) -> tuple[CheckedTensor, ...]:
        outputs, written = [], []
        for result in results:
            shape = result.type.concrete(self.values)
            initial: Any = 0 if result.initial is None else result.initial
            data = initial.data if isinstance(initial, CheckedTensor) else np.asarray(initial)
            outputs.append(np.broadcast_to(data, shape).astype(result.type.dtype.numpy))
            written.append(np.full(shape, result.initial is not None))
        for place in np.ndindex(*self.sizes(tuple(loop.size for loop in loops))):
            s = CheckedScalars(self.values, place)
            read = [s.load(x, [position(place_of(i, place)) for i in map]) for x, map in inputs]
            at = [tuple(place_of(i, place) for i in result.map) for result in results]
            sums = [CheckedScalar(r.type.dtype, out[p]) for r, out, p in zip(results, outputs, at, strict=True)]
            for result, out, done, p, value in zip(results, outputs, written, at, body(s, *read, *sums), strict=True):
                assert value.dtype == result.type.dtype, (result.type, value)
                out[p] = value.value
                done[p] = True
        assert all(done.all() for done in written), "an element is never written"
        return tuple(self.tensor(r.type, out) for r, out in zip(results, outputs, strict=True))

    def scan(
        self,
        sizes: Sequence[Size],
        carried: Sequence[CheckedTensor],
        body: Callable[..., Sequence[CheckedTensor]],
        *,
        work_items: bool = False,
    ) -> tuple[CheckedTensor, ...]:
        tensors = tuple(carried)
        for place in np.ndindex(*self.sizes(tuple(sizes))):
            s = CheckedScalars(self.values, place)
            tensors = tuple(body(s, [element(I64, p) for p in place], tensors))
        return tensors

    def full(self, type: TensorType, value: float | int | bool) -> CheckedTensor:
        return self.tensor(type, np.full(type.concrete(self.values), value).astype(type.dtype.numpy))

    def memory(self, type: TensorType) -> CheckedTensor:
        """A NaN spreads to every element that is computed from one that is not written."""
        return self.full(type, math.nan if type.dtype.is_float else 0)

    def reshape(self, x: CheckedTensor, shape: Shape) -> CheckedTensor:
        assert x.type.elements == x.type.with_shape(shape).elements, (x.type, shape)
        return self.tensor(x.type.with_shape(shape), x.data.reshape(self.sizes(shape)))

    def slice(
        self, x: CheckedTensor, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[int]
    ) -> CheckedTensor:
        return self.tensor(x.type.with_shape(sizes), x.data[self._place(x, starts, sizes, steps)])

    def insert(
        self, source: CheckedTensor, target: CheckedTensor, starts: Sequence[Size], steps: Sequence[int]
    ) -> CheckedTensor:
        data = target.data.copy()
        data[self._place(target, starts, source.type.shape, steps)] = source.data
        return self.tensor(target.type, data)

    def _place(
        self, x: CheckedTensor, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[int]
    ) -> tuple[slice, ...]:
        place = []
        for n, first, count, step in zip(
            x.data.shape, self.sizes(tuple(starts)), self.sizes(tuple(sizes)), steps, strict=True
        ):
            assert step > 0, step
            assert 0 <= first <= n, (first, n)
            assert count == 0 or first + (count - 1) * step < n, (first, count, step, n)
            place.append(slice(first, first + (count - 1) * step + 1 if count else first, step))
        return tuple(place)
