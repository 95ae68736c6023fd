"""The protocol by which an operator lowers itself to structured ops; the compiler implements it with MLIR linalg.

The interface for operators consists of tensors with symbolic shapes, index maps and elementwise bodies. It contains no
MLIR. Lowerings prefer parallel maps and reductions, since the tiler supports exactly these; `scan` is for sequential
computations.

Elements of f16 and bf16 are computed in f32 and rounded after each operation, as in numpy. Integer arithmetic wraps.

The product of x [B, K] and w [K, N], with index maps from the three loops to elements:

    loops      Loop(B), Loop(K, parallel=False), Loop(N)
    inputs     (x, loops(0, 1)), (w, loops(1, 2))
    results    Result(f32[B, N], loops(0, 2), initial=0.0)
    body       (s, a, b, total) -> s.binary("add", total, s.binary("mul", a, b))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

from .dims import Shape, Size
from .lazy_dataclass import dataclass
from .types import DType, TensorType


@dataclass(frozen=True, slots=True)
class Index:
    """A linear form over the loops of a structured op: `sum(coefficient * loop) + constant`, both integers."""

    coefficients: tuple[tuple[int, int], ...]
    constant: int = 0

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.coefficients, self.constant + other)
        total = dict(self.coefficients)
        for loop, coefficient in other.coefficients:
            total[loop] = total.get(loop, 0) + coefficient
        kept = tuple(sorted((k, c) for k, c in total.items() if c))
        return Index(kept, self.constant + other.constant)

    def __mul__(self, factor: int) -> Index:
        if factor == 1:
            return self
        return Index(tuple((k, c * factor) for k, c in self.coefficients if c * factor), self.constant * factor)


# The same few forms stand in nearly all index maps.
@lru_cache(maxsize=256)
def loop(number: int) -> Index:
    """Returns the form of loop `number` itself."""
    return Index(((number, 1),))


ZERO = Index(())
IndexMap = tuple[Index, ...]


@lru_cache(maxsize=64)
def identity(rank: int) -> IndexMap:
    return tuple(loop(i) for i in range(rank))


def loops(*numbers: int) -> IndexMap:
    """Returns a map that picks loops by number, in order."""
    return tuple(loop(n) for n in numbers)


def broadcast_map(shape: Shape, result: Shape) -> IndexMap:
    """Returns the index map of an operand of `shape` that is broadcast to `result` by the rules of the array API."""
    offset = len(result) - len(shape)
    return tuple(ZERO if size == 1 and result[offset + i] != 1 else loop(offset + i) for i, size in enumerate(shape))


class Tensor(Protocol):
    """A tensor value during lowering."""

    @property
    def type(self) -> TensorType: ...


class Scalar(Protocol):
    """An element inside a body; an index or a size is an i64."""

    @property
    def dtype(self) -> DType: ...


class ScalarEmitter(Protocol):
    """Arithmetic on elements. Operands of one call have one dtype; comparisons give bool.

    unary: neg abs sign ceil floor round trunc sqrt rsqrt cbrt exp exp2 expm1 log log2 log1p log10 sin cos tan asin acos
    atan sinh cosh tanh asinh acosh atanh erf erfc not isnan isinf isfinite; `round` takes halves to even, `not` is
    logical for bool and bitwise for integers
    binary: add sub mul div floordiv mod rem pow atan2 max min and or xor shl shr; integer `div` truncates toward zero,
    `mod` has the sign of the divisor and `rem` that of the dividend, all of them give 0 where the divisor is 0; of
    floats `floordiv` and `mod` are those of Python; an integer `pow` with a negative exponent is 0 unless the base is
    1 or -1; `shl` and `shr` shift everything out (`shr` all but the sign) where the count is negative or not below the
    width; `max` and `min` give NaN if either operand is
    """

    def constant(self, value: float | int | bool, dtype: DType) -> Scalar: ...

    def size(self, size: Size) -> Scalar:
        """Returns the run-time value of a symbolic size, as i64."""
        ...

    def unary(self, function: str, x: Scalar) -> Scalar: ...

    def binary(self, function: str, x: Scalar, y: Scalar) -> Scalar: ...

    def compare(self, predicate: str, x: Scalar, y: Scalar) -> Scalar:
        """Compares with a `predicate` of eq ne lt le gt ge; every one but `ne` is false if an operand is NaN."""
        ...

    def select(self, condition: Scalar, x: Scalar, y: Scalar) -> Scalar: ...

    def cast(self, x: Scalar, dtype: DType) -> Scalar:
        """Converts to a dtype. Float to integer truncates toward zero and saturates, NaN gives 0; integers wrap; to
        bool is `!= 0`."""
        ...

    def whole(self, x: Scalar, dtype: DType) -> Scalar:
        """Converts a float to an integer, if it is known to be within the range of the dtype."""
        ...

    def bits(self, x: Scalar, dtype: DType) -> Scalar:
        """Returns the element of a dtype of the same width that has the same representation."""
        ...

    def load(self, tensor: Tensor, indices: Sequence[Scalar]) -> Scalar:
        """Loads one element; the indices must be inside the tensor."""
        ...

    def load_if(self, condition: Scalar, tensor: Tensor, indices: Sequence[Scalar]) -> Scalar:
        """Loads one element where the condition holds, and returns 0 elsewhere without access to memory."""
        ...

    def watch(self, index: Scalar, outside: Scalar) -> Scalar:
        """Returns the index. If `outside` is true, the kernel raises the alarm of its call."""
        ...

    def iterate(
        self,
        count: Scalar,
        initial: Sequence[Scalar],
        body: Callable[[ScalarEmitter, Scalar, Sequence[Scalar]], Sequence[Scalar]],
    ) -> tuple[Scalar, ...]:
        """Emits a loop of `count` iterations (an i64, possibly 0) over carried scalars: `body(s, index, carried) ->
        carried`."""
        ...


def clamp(s: ScalarEmitter, x: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """Clamps `x` to the range from `low` to `high`; NaN stays NaN."""
    above = s.select(s.compare("gt", low, x), low, x)
    return s.select(s.compare("lt", high, above), high, above)


class BodyEmitter(ScalarEmitter, Protocol):
    """Arithmetic inside a structured op."""

    def index(self, number: int) -> Scalar:
        """Returns the value of loop `number`, as i64."""
        ...


ROUNDED_STEPS = 128
"""The most steps of a sum of products whose rounded factors share a scale, the greatest magnitude of a row, or of a
column, divided by `ROUNDED_LIMIT`. The sum of as many products of integers fits in 32 bits."""
ROUNDED_LIMIT = 4095
ROUNDED_ROWS = 48
"""The fewest rows of a call whose factors code rounds: rounding the columns takes as long as the products of a dozen
rows."""
ROUNDED_LEAST = 2.0**-100
"""The least magnitude that determines a scale: the reciprocals of smaller ones are not finite."""


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop of a structured op. A loop of a sum of products may be `sparse`: its steps may be omitted where the
    factor from the first input is 0. `until` and `since` are the number of a parallel loop and a distance: steps after,
    or before, the index of that loop plus the distance may be omitted, since a factor is 0. With `rounds_factors`, the
    factors may be rounded to 16-bit integers with a scale for each block of up to `ROUNDED_STEPS` steps."""

    size: Size
    parallel: bool = True
    sparse: bool = False
    until: tuple[int, int] | None = None
    since: tuple[int, int] | None = None
    rounds_factors: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """One result of a structured op: its initial value (`initial`: a number or a tensor) and its index map."""

    type: TensorType
    map: IndexMap
    initial: float | int | bool | Tensor | None = None


Turn = Callable[[Scalar, Sequence[Tensor], Sequence[Scalar]], tuple[Sequence[Tensor], Sequence[Scalar]]]
"""`turn(index, tensors, scalars) -> (tensors, scalars)`: one iteration of a loop that carries tensors and scalars."""


class SequenceEmitter(ScalarEmitter, Protocol):
    """Arithmetic inside `scan`, where single elements may also be written."""

    def repeat(
        self, count: Scalar, tensors: Sequence[Tensor], scalars: Sequence[Scalar], body: Turn
    ) -> tuple[tuple[Tensor, ...], tuple[Scalar, ...]]:
        """Emits a loop of `count` iterations (an i64, possibly 0)."""
        ...

    def store(self, tensor: Tensor, indices: Sequence[Scalar], value: Scalar) -> Tensor: ...

    def branch(
        self, condition: Scalar, then: Callable[[], Sequence[Tensor]], otherwise: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Returns the tensors of `then()` if the condition holds, else the given ones."""
        ...


class Emitter(Protocol):
    """Writes structured ops on tensors. All shapes are symbolic; sizes may be 0."""

    def map(
        self,
        result: TensorType,
        inputs: Sequence[tuple[Tensor, IndexMap]],
        body: Callable[..., Scalar],
    ) -> Tensor:
        """Emits one parallel loop per axis of the result: `body(s: BodyEmitter, *elements) -> element`."""
        ...

    def structured(
        self,
        loops: Sequence[Loop],
        inputs: Sequence[tuple[Tensor, IndexMap]],
        results: Sequence[Result],
        body: Callable[..., Sequence[Scalar]],
    ) -> tuple[Tensor, ...]:
        """Emits the general op: `body(s: BodyEmitter, *elements, *accumulators) -> new accumulators`.

        Reductions run in the order of the loops. A `Result` without `initial` must be parallel in every loop.
        """
        ...

    def scan(
        self,
        sizes: Sequence[Size],
        carried: Sequence[Tensor],
        body: Callable[[SequenceEmitter, Sequence[Scalar], Sequence[Tensor]], Sequence[Tensor]],
        *,
        work_items: bool = False,
    ) -> tuple[Tensor, ...]:
        """Emits nested sequential loops, `body(s, indices, tensors) -> tensors`; elements may be read and written.

        The iterations of the first loop, of a known size, may be `work_items`: then none reads elements that another
        one writes, and the carried tensors are `memory`.
        """
        ...

    def full(self, type: TensorType, value: float | int | bool) -> Tensor: ...

    def memory(self, type: TensorType) -> Tensor:
        """Returns a tensor of unspecified elements, for a `scan` that writes each one before it reads it."""
        ...

    def constant(self, type: TensorType, values: Sequence[float | int | bool]) -> Tensor:
        """Returns a small static tensor, row-major."""
        ...

    def reshape(self, x: Tensor, shape: Shape) -> Tensor:
        """Returns the same elements in row-major order under another shape."""
        ...

    def slice(self, x: Tensor, starts: Sequence[Size], sizes: Sequence[Size], steps: Sequence[int]) -> Tensor:
        """Returns the elements `start + i * step` of each axis; steps are positive and the slice lies inside `x`."""
        ...

    def insert(self, source: Tensor, target: Tensor, starts: Sequence[Size], steps: Sequence[int]) -> Tensor:
        """Returns `target` with `source` written into the slice of its shape at `starts`."""
        ...
