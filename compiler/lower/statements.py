"""Scalar statements: appends `arith` and `math` operations to a function's text, one line each.

Operands have dtypes that MLIR computes in directly; f16 and bf16 are widened by the callers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...dialect.lazy_dataclass import dataclass
from ...dialect.types import BOOL, DType, Kind
from .text import FunctionText, element_type

INDENT = "  "


@dataclass(frozen=True, slots=True)
class Element:
    """A scalar value: its name in the text, and its dtype."""

    name: str
    dtype: DType


class Statements:
    """A writer of statements to the lines of a function, indented by `depth`; `location` ends each definition."""

    def __init__(self, text: FunctionText, depth: int = 1) -> None:
        self.text = text
        self.depth = depth
        self.location = ""

    def line(self, text: str) -> None:
        self.text.lines.append(INDENT * self.depth + text)

    def define(self, expression: str, dtype: DType) -> Element:
        name = self.text.fresh()
        self.line(f"{name} = {expression}{self.location}")
        return Element(name, dtype)

    def op(self, name: str, *operands: Element, dtype: DType | None = None) -> Element:
        """Applies `name` to operands of one type; the result has that type, or `dtype` of the same representation."""
        names = ", ".join(x.name for x in operands)
        return self.define(f"{name} {names} : {element_type(operands[0].dtype)}", dtype or operands[0].dtype)

    def convert(self, name: str, x: Element, dtype: DType) -> Element:
        return self.define(f"{name} {x.name} : {element_type(x.dtype)} to {element_type(dtype)}", dtype)

    @contextmanager
    def deeper(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    def constant(self, value: float | int | bool, dtype: DType) -> Element:
        return Element(self.text.constant(value, dtype), dtype)

    def compare(self, predicate: str, x: Element, y: Element) -> Element:
        assert x.dtype == y.dtype, (predicate, x, y)
        if x.dtype.kind is Kind.FLOAT:
            # Ordered predicates are false for NaN; `ne` alone is unordered.
            return self.op(f"arith.cmpf {'une' if predicate == 'ne' else f'o{predicate}'},", x, y, dtype=BOOL)
        sign = "" if predicate in ("eq", "ne") else "s" if x.dtype.is_signed else "u"
        return self.op(f"arith.cmpi {sign}{predicate},", x, y, dtype=BOOL)

    def select(self, condition: Element, x: Element, y: Element) -> Element:
        assert condition.dtype == BOOL and x.dtype == y.dtype, (condition, x, y)
        operands = f"{condition.name}, {x.name}, {y.name}"
        return self.define(f"arith.select {operands} : {element_type(x.dtype)}", x.dtype)
