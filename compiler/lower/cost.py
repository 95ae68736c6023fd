"""The cost of a node, as formulas of the dims: arithmetic operations, counted in its own lowering, and bytes.

The emitter writes nothing: it runs an operator's lowering and counts the operations of the bodies, times the loops
around them. A multiplication and an addition are two operations; comparisons, selections and casts are none. Arithmetic
on integers counts in contractions only. Bytes are those of the tensors that are read and written, each once, regardless
of caches.

For relu(x @ w + bias) with x [B, K] and w [K, N]:

    operations    2*B*K*N for the product, B*N for the bias, B*N for the maximum of `relu`
    bytes         4 * (B*K + K*N + N + B*N)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from ...dialect.control_flow import called_regions, is_choice, trip_count
from ...dialect.dims import Size, add, maximum, minimum, multiply, product
from ...dialect.emitter import IndexMap, Loop, Result
from ...dialect.graph import Constant, Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Builder
from ...dialect.ops import OPERATORS
from ...dialect.ops.structure import ELEMENTS_INLINE
from ...dialect.type_emitter import TypeEmitter
from ...dialect.types import BOOL, I64, DType, TensorType


@dataclass(frozen=True, slots=True)
class _Tensor:
    type: TensorType


@dataclass(frozen=True, slots=True)
class _Scalar:
    """An element. `most` is its upper bound, if it is a size, a constant, or the minimum of such a value and others."""

    dtype: DType
    most: Size | None = None


class _Scalars:
    """The counter of scalar operations in bodies. `times` is the number of runs of the current code; with `integers`,
    integer arithmetic counts too."""

    def __init__(self, *, integers: bool) -> None:
        self.integers = integers
        self.total: Size = 0
        self.times: Size = 1
        self.counts_loops = False

    def _count(self, x: _Scalar) -> None:
        if x.dtype.is_float or self.integers:
            self.total = add(self.total, self.times)

    def constant(self, value: Any, dtype: DType) -> _Scalar:
        return _Scalar(dtype, value if dtype is I64 else None)

    def size(self, size: Size) -> _Scalar:
        return _Scalar(I64, size)

    def index(self, number: int) -> _Scalar:
        return _Scalar(I64)

    def unary(self, function: str, x: _Scalar) -> _Scalar:
        self._count(x)
        return _Scalar(BOOL if function in ("isnan", "isinf", "isfinite") else x.dtype)

    def binary(self, function: str, x: _Scalar, y: _Scalar) -> _Scalar:
        self._count(x)
        known = [z.most for z in (x, y) if z.most is not None]
        return _Scalar(x.dtype, reduce(minimum, known) if known and function == "min" else None)

    def compare(self, predicate: str, x: _Scalar, y: _Scalar) -> _Scalar:
        return _Scalar(BOOL)

    def select(self, condition: _Scalar, x: _Scalar, y: _Scalar) -> _Scalar:
        return x

    def cast(self, x: _Scalar, dtype: DType) -> _Scalar:
        return _Scalar(dtype)

    whole = cast

    def load(self, tensor: _Tensor, indices: Sequence[_Scalar]) -> _Scalar:
        return _Scalar(tensor.type.dtype)

    def load_if(self, condition: _Scalar, tensor: _Tensor, indices: Sequence[_Scalar]) -> _Scalar:
        return _Scalar(tensor.type.dtype)

    def watch(self, index: _Scalar, outside: _Scalar) -> _Scalar:
        return index

    def store(self, tensor: _Tensor, indices: Sequence[_Scalar], value: _Scalar) -> _Tensor:
        return tensor

    def iterate(self, count: _Scalar, initial: Sequence[_Scalar], body: Callable[..., Any]) -> tuple[_Scalar, ...]:
        # The trip count is a run-time value: one is the only safe lower bound.
        return tuple(body(self, _Scalar(I64), tuple(initial)))

    def bits(self, x: _Scalar, dtype: DType) -> _Scalar:
        return _Scalar(dtype)

    def repeat(
        self, count: _Scalar, tensors: Sequence[_Tensor], scalars: Sequence[_Scalar], body: Callable[..., Any]
    ) -> tuple[tuple[_Tensor, ...], tuple[_Scalar, ...]]:
        # Other scans sort, in as many passes as the elements need: one is the only safe lower bound.
        with _Times(self, (count.most,) if self.counts_loops and count.most is not None else ()):
            written, computed = body(_Scalar(I64), tuple(tensors), tuple(scalars))
        return tuple(written), tuple(computed)

    def branch(self, condition: _Scalar, then: Callable[[], Any], otherwise: Sequence[_Tensor]) -> tuple[_Tensor, ...]:
        return tuple(then())


class _Counter(TypeEmitter[_Tensor]):
    """The tensor emitter around the scalars of bodies."""

    def __init__(self, *, integers: bool) -> None:
        super().__init__(_Tensor)
        self.scalars = _Scalars(integers=integers)

    def map(self, result: TensorType, inputs: Sequence[tuple[_Tensor, IndexMap]], body: Callable[..., Any]) -> _Tensor:
        with _Times(self.scalars, result.shape):
            body(self.scalars, *(_Scalar(x.type.dtype) for x, _ in inputs))
        return _Tensor(result)

    def structured(
        self,
        loops: Sequence[Loop],
        inputs: Sequence[tuple[_Tensor, IndexMap]],
        results: Sequence[Result],
        body: Callable[..., Any],
    ) -> tuple[_Tensor, ...]:
        elements = [_Scalar(x.type.dtype) for x, _ in inputs]
        # As in a linalg op: a result without an initial value has no accumulator to read.
        accumulators = [_Scalar(r.type.dtype) for r in results]
        with _Times(self.scalars, [each.size for each in loops]):
            body(self.scalars, *elements, *accumulators)
        return tuple(_Tensor(r.type) for r in results)

    def scan(
        self,
        sizes: Sequence[Size],
        carried: Sequence[_Tensor],
        body: Callable[..., Any],
        *,
        work_items: bool = False,
    ) -> tuple[_Tensor, ...]:
        self.scalars.counts_loops = work_items
        with _Times(self.scalars, sizes):
            body(self.scalars, tuple(_Scalar(I64) for _ in sizes), tuple(carried))
        return tuple(carried)


class _Times:
    """A context in which each operation counts once for each iteration of the loops."""

    def __init__(self, counter: _Scalars, sizes: Iterable[Size]) -> None:
        self.counter, self.around, self.sizes = counter, counter.times, product(sizes)

    def __enter__(self) -> None:
        self.counter.times = multiply(self.around, self.sizes)

    def __exit__(self, *_: object) -> None:
        self.counter.times = self.around


def count_operations(nodes: Iterable[Node]) -> Size:
    """Returns the number of operations of the nodes and of their regions; loops count as often as they run,
    and a branch as its more expensive side."""
    total: Size = 0
    for node in nodes:
        total = add(total, _count_node(node))
    return total


def _count_node(node: Node) -> Size:
    operator = OPERATORS[node.op]
    if node.regions:
        bodies = [count_operations(region.body) for region in called_regions(node)]
        return multiply(trip_count(node), maximum(*bodies) if is_choice(node) else reduce(add, bodies))
    if operator.has("structure") or operator.has("blocked") or operator.has("packed"):
        return 0
    attributes = operator.complete(dict(node.attributes))
    if operator.decompose is not None:
        builder = Builder(OPERATORS, "c")
        operator.decompose(builder, [Value(f"i{i}", v.type) for i, v in enumerate(node.inputs)], attributes)
        return count_operations(builder.nodes)
    assert operator.lower is not None, node
    counter: Any = _Counter(
        integers=operator.has("contraction")
    )  # stands in for an Emitter, with scalars and tensors of its own
    operator.lower(counter, [_Tensor(v.type) for v in node.inputs], attributes, [v.type for v in node.outputs])
    result: Size = counter.scalars.total
    return result


def count_bytes(node: Node, makers: Mapping[str, Node], outputs: Collection[str] | None = None) -> Size:
    """Returns the bytes that a node, or a group as one, reads and writes; of its results only `outputs`, if given.

    A gather counts only the gathered slices of its table, and a slice only the elements that it reads. Constants that
    are written into the code do not count; `makers` maps values to their nodes, which identifies these constants.
    """
    inner = node.regions[0].body if node.regions else (node,)
    arguments = node.regions[0].arguments if node.regions else node.inputs
    results = frozenset(node.regions[0].results if node.regions else node.outputs)
    total: Size = 0
    for argument, value in dict(zip(arguments, node.inputs, strict=True)).items():
        if not _is_inline(makers.get(value.name)):
            total = add(total, _bytes_read(argument, inner, results))
    for value in node.outputs:
        total = add(total, value.type.bytes if outputs is None or value.name in outputs else 0)
    return total


def _is_inline(node: Node | None) -> bool:
    if node is None or node.op != "constant":
        return False
    constant = node.attribute("value")
    assert isinstance(constant, Constant), node
    return constant.type.elements <= ELEMENTS_INLINE  # type: ignore[operator]  # the size of an array is a number


def _bytes_read(value: Value, nodes: Sequence[Node], results: Collection[Value]) -> Size:
    """Returns the bytes of a value that nodes use. A data movement uses no more than its result."""
    if value in results:
        return value.type.bytes
    gathered: Size = 0
    moved: Size = 0
    for node in nodes:
        if value not in node.inputs:
            continue
        operator = OPERATORS[node.op]
        if node.regions or not operator.has("movement") or value in node.inputs[1:]:
            return value.type.bytes
        if operator.has("gathering"):
            gathered = add(gathered, node.output.type.bytes)
            continue
        for output in node.outputs:
            moved = add(moved, _bytes_read(output, nodes, results))
    return add(gathered, minimum(value.type.bytes, moved))
