"""Writes nodes on behalf of functions that several operators implement: `make("add", x, y)`."""

from __future__ import annotations

from collections.abc import Sequence

from ....dialect.diagnostics import Span
from ....dialect.dims import Poly, Size
from ....dialect.graph import Value
from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import I64, DType
from .context import Context, check_size
from .operators import apply, single
from .statics import demand_size
from .values import ERROR, Frame, Given, Poison


@dataclass(frozen=True, slots=True)
class Maker:
    """A writer of nodes. Operands and attributes must be valid, since the function has checked its arguments."""

    context: Context
    frame: Frame
    span: Span

    def __call__(self, operator: str, *operands: Value, **attributes: object) -> Value:
        spans = [self.span] * len(operands)
        value = single(apply(self.context, self.frame, operator, operands, attributes, self.span, spans))
        assert isinstance(value, Value), operator
        return value

    def number(self, value: float | Size, dtype: DType) -> Value:
        """Returns a number of a dtype, or a size as an i64."""
        if isinstance(value, Poly):
            assert dtype == I64, dtype
            return self.context.writer.size_value(value, self.frame.scope, self.span)
        return self.context.writer.scalar(value, dtype, self.frame.scope, self.span)

    def cast(self, value: Value, dtype: DType) -> Value:
        return value if value.type.dtype == dtype else self("cast", value, dtype=dtype)


def demand_shape(context: Context, given: Given) -> tuple[Size, ...] | Poison:
    """Returns an argument as a shape: a size, or a tuple of sizes."""
    parts: Sequence[object] = given.value if isinstance(given.value, tuple) else (given.value,)
    sizes: list[Size] = []
    for part in parts:
        size = demand_size(context, part, given.span)  # type: ignore[arg-type]  # a part of a value is a value
        size = size if size is ERROR else check_size(context, size, given.span)
        if size is ERROR:
            return ERROR
        sizes.append(size)
    return tuple(sizes)
