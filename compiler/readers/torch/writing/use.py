"""The interface of one node to its converter: arguments by the names of the operator's schema, the types that PyTorch
inferred for its results, and the writer of the graph.

A converter takes a `Use` and returns the results. `fail` ends it with a diagnostic at the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from .....dialect.diagnostics import Diagnostic, DiagnosticError, Span
from .....dialect.dims import Poly, Size
from .....dialect.types import DType, TensorType
from ...writing.graph_writer import GraphWriter
from ...writing.tensors import Tensor, known, of_size
from .arrays import DTYPES


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """A node for its converter.

    types: the types of the results; None for results that are not tensors.
    values: the arguments as PyTorch describes them: tensors without data, numbers and None.
    promote: returns the name of the dtype to which PyTorch promotes some of the arguments.
    count_axes: for an argument with axes whose size depends on data, returns the number of valid elements of each.
    """

    name: str
    operator: str
    arguments: Mapping[str, Any]
    values: Mapping[str, Any]
    promote: Callable[[Sequence[Any]], str]
    types: tuple[TensorType | None, ...]
    g: GraphWriter
    span: Span
    count_axes: Callable[[Any], Mapping[int, Tensor]] = lambda described: {}

    def fail(self, message: str, *, code: str = "unsupported-attribute", help: str = "") -> NoReturn:
        text = f"`{self.operator}` of node `{self.name}` {message}"
        raise DiagnosticError([Diagnostic(code, text, self.span, help=help)])

    # --- results ---

    @property
    def type(self) -> TensorType:
        """The type of the first result."""
        found = self.types[0]
        assert found is not None, self.operator
        return found

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.type.shape

    # --- arguments ---

    def counts(self, described: Any) -> Mapping[int, Tensor]:
        """Returns the axes of an argument, as PyTorch describes it, whose size depends on data, with their counts."""
        return self.count_axes(described)

    def has(self, name: str) -> bool:
        return self.arguments.get(name) is not None

    def tensor(self, name: str = "self") -> Tensor:
        held = self.arguments.get(name)
        if isinstance(held, (bool, int, float, Poly, Tensor)):
            return scalar(held)
        self.fail(f"takes a tensor as `{name}`", code="wrong-operands")

    def optional(self, name: str) -> Tensor | None:
        return self.tensor(name) if self.has(name) else None

    def tensors(self, name: str = "tensors") -> list[Tensor]:
        held = self.arguments.get(name)
        found = list(held) if isinstance(held, (list, tuple)) else []
        if not all(isinstance(each, Tensor) for each in found):
            self.fail(f"takes a list of tensors as `{name}`", code="wrong-operands")
        return found

    def cast(self, name: str, dtype: DType) -> Tensor:
        """Returns a tensor or a number as a tensor of a dtype."""
        return self.to(self.tensor(name), dtype)

    def to(self, x: Tensor, dtype: DType) -> Tensor:
        return x if x.dtype == dtype else self.g.cast(x, dtype=dtype)

    def number(self, name: str, default: float | None = None) -> Any:
        """Returns a number that is known while the program is read."""
        held = self.arguments.get(name)
        if held is None and default is not None:
            return default
        if isinstance(held, Tensor) and held.array is not None and held.rank == 0:
            return held.array.item()
        if not isinstance(held, (bool, int, float)):
            self.fail(f"takes a number that is computed in a call as `{name}`", code="data-dependent")
        return held

    def flag(self, name: str) -> bool:
        return bool(self.arguments.get(name))

    def word(self, name: str, default: str = "") -> str:
        return str(self.arguments.get(name) or default)

    def size(self, name: str) -> Size:
        held = self.arguments.get(name)
        if isinstance(held, Tensor) and held.sizes is not None and len(held.sizes) == 1:
            return held.sizes[0]
        if not isinstance(held, (int, Poly)):
            self.fail(f"takes a size that is computed in a call as `{name}`", code="data-dependent")
        return held

    def sizes(self, name: str) -> tuple[Size, ...]:
        held = self.arguments.get(name)
        listed = list(held) if isinstance(held, (list, tuple)) else [] if held is None else [held]
        if not all(isinstance(each, (int, Poly)) for each in listed):
            self.fail(f"takes sizes that are computed in a call as `{name}`", code="data-dependent")
        return tuple(listed)

    def integers(self, name: str, count: int = 0) -> tuple[int, ...]:
        """Returns a list of numbers; a single number is repeated `count` times."""
        listed = self.sizes(name)
        if not all(isinstance(each, int) for each in listed):
            self.fail(f"takes numbers as `{name}`, and they depend on dims", code="data-dependent")
        found = tuple(int(each) for each in listed if isinstance(each, int))
        return found * count if count and len(found) == 1 else found

    def axis(self, name: str = "dim", rank: int | None = None) -> int:
        """Returns an axis counted from 0. A scalar counts as a vector of one element."""
        among = self.tensor("self").rank if rank is None else rank
        return int(self.number(name)) % max(among, 1)

    def axes(self, name: str = "dim", rank: int | None = None) -> tuple[int, ...]:
        """Returns a list of axes counted from 0; all axes if there is none."""
        among = self.tensor("self").rank if rank is None else rank
        given = self.integers(name)
        return tuple(axis % max(among, 1) for axis in given) if given else tuple(range(among))

    def result_dtype(self, *names: str) -> DType:
        """Returns the dtype to which PyTorch promotes arguments."""
        return DTYPES[self.promote([self.values[name] for name in names])]


def scalar(value: float | int | bool | Poly | Tensor) -> Tensor:
    """Returns a number as a tensor: a bool, an i64 or an f64."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Poly) or (isinstance(value, int) and not isinstance(value, bool)):
        return of_size(value)
    return known(value)


Convert: TypeAlias = Callable[[Use], Sequence[Any]]
Converters: TypeAlias = Mapping[str, Convert]
"""Converters by the name of an overload, such as `add.Tensor`."""
