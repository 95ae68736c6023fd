"""Expressions over the graph, in the notation of numpy, and the writer that converters of estimators receive.

`x - w.const(mean)` writes a `subtract`; any operator of the graph is a method: `x.sum(axis=1)`, `x.exp()`. Arrays and
numbers beside a tensor become constants of its dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....dialect.diagnostics import Diagnostic, DiagnosticError
from ....dialect.dims import Size
from ....dialect.graph import Constant, Node, Parameter, Value
from ....dialect.operator import Builder
from ....dialect.ops import OPERATORS
from ....dialect.types import F64, I64, DType, TensorType, dtype_of

Numbers = np.ndarray[Any, np.dtype[Any]]
_INLINE = 16
"""The maximum number of elements of a constant; larger arrays become parameters."""


def unsupported(estimator: Any, reason: str) -> DiagnosticError:
    name = type(estimator).__name__
    return DiagnosticError([Diagnostic("unsupported-estimator", f"`{name}` cannot be compiled: {reason}")])


class Tensor:
    """A tensor of the graph that is being written."""

    __array_ufunc__ = None

    def __init__(self, writer: Writer, value: Value) -> None:
        self.writer, self.value = writer, value

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.value.type.shape

    @property
    def dtype(self) -> DType:
        return self.value.type.dtype

    def width(self) -> int:
        """Returns the size of the last axis."""
        size = self.shape[-1]
        if not isinstance(size, int):
            raise ValueError(f"a matrix is expected, not the shape {self.shape}")
        return size

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        if name not in OPERATORS:
            raise AttributeError(name)
        return lambda *others, **attributes: self.writer.apply(name, self, *others, **attributes)

    def __getitem__(self, columns: slice | int) -> Tensor:
        """Returns columns of a matrix; a single one as a vector."""
        width = self.width()
        if isinstance(columns, int):
            at = columns % width
            return self.columns([at]).reshape(shape=self.shape[:-1])
        return self.columns(list(range(width))[columns])

    def columns(self, positions: Sequence[int]) -> Tensor:
        positions = [int(p) for p in positions]
        if positions == list(range(self.width())):
            return self
        return self.gather(self.writer.const(np.asarray(positions, np.int64)), axis=-1, mode="clamp")

    def __add__(self, other: Any) -> Tensor:
        return self.add(other)

    def __radd__(self, other: Any) -> Tensor:
        return self.writer.lift(other, self).add(self)

    def __sub__(self, other: Any) -> Tensor:
        return self.subtract(other)

    def __rsub__(self, other: Any) -> Tensor:
        return self.writer.lift(other, self).subtract(self)

    def __mul__(self, other: Any) -> Tensor:
        return self.multiply(other)

    def __rmul__(self, other: Any) -> Tensor:
        return self.writer.lift(other, self).multiply(self)

    def __truediv__(self, other: Any) -> Tensor:
        return self.divide(other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self.writer.lift(other, self).divide(self)

    def __matmul__(self, other: Any) -> Tensor:
        return self.matmul(other)

    def __pow__(self, other: Any) -> Tensor:
        return self.square() if isinstance(other, int) and other == 2 else self.power(other)

    def __neg__(self) -> Tensor:
        return self.negate()

    def __lt__(self, other: Any) -> Tensor:
        return self.less(other)

    def __le__(self, other: Any) -> Tensor:
        return self.less_equal(other)

    def __gt__(self, other: Any) -> Tensor:
        return self.greater(other)

    def __ge__(self, other: Any) -> Tensor:
        return self.greater_equal(other)

    def same(self, other: Any) -> Tensor:
        return self.equal(other)

    def floats(self) -> Tensor:
        return self if self.dtype == F64 else self.cast(dtype=F64)

    def row(self) -> Tensor:
        """Returns a matrix [B, N] as [B, 1, N]."""
        return self.unsqueeze(axes=1)


Convert = Callable[["Writer", Any, Tensor], Tensor]
"""`convert(writer, estimator, x) -> result`: one method of an estimator."""
Methods = Mapping[str, Convert]


@dataclass
class Writer:
    """Writes the nodes of one entry. `table` holds the converters by class and method."""

    table: Mapping[str, Methods]
    builder: Builder = field(default_factory=lambda: Builder(OPERATORS))
    parameters: dict[str, Parameter] = field(default_factory=dict)
    arrays: dict[str, Numbers] = field(default_factory=dict)
    _known: dict[str, str] = field(default_factory=dict)
    """The names of parameters by digests of their arrays, so that all entries share equal arrays."""

    def apply(self, name: str, *inputs: Any, **attributes: Any) -> Tensor:
        first = next((x for x in inputs if isinstance(x, Tensor)), None)
        if first is None:
            raise ValueError(f"`{name}` has no operand, since a list of parts is empty")
        values = [self.lift(x, first).value for x in inputs]
        return Tensor(self, self.builder.apply(name, values, attributes)[0])

    def several(self, name: str, *inputs: Tensor, **attributes: Any) -> tuple[Tensor, ...]:
        return tuple(Tensor(self, v) for v in self.builder.apply(name, [x.value for x in inputs], attributes))

    def lift(self, x: Any, like: Tensor) -> Tensor:
        return x if isinstance(x, Tensor) else self.const(np.asarray(x).astype(like.dtype.numpy))

    def const(self, array: Any) -> Tensor:
        """Returns an array as a constant, or as a parameter if it is large. Floats other than f32 become f64."""
        data = np.asarray(array)
        if data.dtype.kind == "f" and data.dtype != np.float32:
            data = data.astype(np.float64)
        data = np.ascontiguousarray(data).reshape(data.shape)
        constant = Constant(data)
        if data.size <= _INLINE:
            return Tensor(self, self.builder.apply("constant", (), {"value": constant})[0])
        name = self._known.setdefault(constant.digest, f"array.{len(self._known)}")
        type = TensorType(dtype_of(data), data.shape)
        self.parameters.setdefault(name, Parameter(name, type))
        self.arrays.setdefault(name, data)
        value = self.builder.fresh(type)
        self.builder.nodes.append(Node("parameter", (), (value,), (("name", name),)))
        return Tensor(self, value)

    def full(self, x: Tensor, value: float, width: int | None = None) -> Tensor:
        """Returns f64[B], or f64[B, width], for a matrix x [B, N]."""
        shape = x.shape[:1] if width is None else (x.shape[0], width)
        return Tensor(self, self.builder.apply("full", (), {"shape": shape, "value": value, "dtype": F64})[0])

    def zeros_of_rows(self, x: Tensor) -> Tensor:
        return self.full(x, 0.0)

    def stack(self, parts: Sequence[Tensor]) -> Tensor:
        """Returns vectors [B] as the columns of a matrix."""
        return self.join([part.unsqueeze(axes=1) for part in parts])

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Returns matrices side by side."""
        return parts[0] if len(parts) == 1 else self.apply("concat", *parts, axis=1)

    # Estimators

    def has(self, estimator: Any, method: str) -> bool:
        """Returns whether a fitted estimator has a method, with a converter that supports its options."""
        return method in self.table.get(type(estimator).__name__, {}) and hasattr(estimator, method)

    def run(self, estimator: Any, method: str, x: Tensor) -> Tensor:
        """Writes a method of an estimator. Raises DiagnosticError if there is no converter."""
        name = type(estimator).__name__
        if name not in self.table:
            raise unsupported(estimator, "it has no converter")
        if method not in self.table[name]:
            raise unsupported(estimator, f"its method `{method}` has no converter")
        try:
            return self.table[name][method](self, estimator, x)
        except DiagnosticError:
            raise
        except Exception as error:
            error.add_note(f"`{method}` of `{name}`")
            raise

    def labels(self, classes: Any, index: Tensor) -> Tensor:
        """Returns the classes at indices. Classes that are strings remain indices."""
        known = np.asarray(classes)
        if known.dtype.kind in "iu":
            known = known.astype(np.int64)
        elif known.dtype.kind not in "fb":
            return index
        if known.dtype.kind == "i" and np.array_equal(known, np.arange(len(known))):
            return index
        return self.const(known).gather(index, axis=0, mode="clamp")

    def choose(self, classes: Any, scores: Tensor) -> Tensor:
        """Returns the class with the largest score, the first one among equal scores."""
        return self.labels(classes, scores.argmax(axis=1))


def as_index(x: Tensor) -> Tensor:
    """Returns a mask or whole numbers as i64."""
    return x.cast(dtype=I64)
