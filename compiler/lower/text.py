"""The text of one function under construction: fresh names, and a prologue of constants and sizes, each once.

The prologue depends on the function's dims alone, so its values may be used anywhere below. This module is independent
of tensors and operators.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...dialect.dims import FloorDiv, Monomial, Size, Symbol
from ...dialect.types import BOOL, U8, DType, Kind


def printable(text: str) -> str:
    """Returns the text as one line in any file encoding, for comments and locations."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def element_type(dtype: DType) -> str:
    return dtype.mlir


def literal(value: float | int | bool, dtype: DType) -> str:
    """Returns the value in the dtype, as MLIR spells it: the shortest decimal that reads back exactly, else the
    bits."""
    if dtype is BOOL:
        return "true" if value else "false"
    if dtype.kind is not Kind.FLOAT:
        wrapped = int(value) & ((1 << dtype.bits) - 1)
        return str(wrapped - (1 << dtype.bits) if wrapped >> (dtype.bits - 1) else wrapped)
    with np.errstate(over="ignore"):
        exact = np.asarray(value, dtype=dtype.numpy)
    if dtype.is_storage:
        return literal(int(exact.view(np.uint8)), U8)
    number = float(exact)
    if not math.isfinite(number):
        bits = int(exact.view(f"u{dtype.bytes}"))
        return f"0x{bits:0{2 * dtype.bytes}X}"
    for text in (repr(float(str(exact))), repr(number)):
        # MLIR reads decimals as f64 and then rounds: the f64 of the text must round back to the value.
        if float(np.asarray(float(text), dtype=dtype.numpy)) == number:
            break
    mantissa, _, exponent = text.partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}e{exponent}" if exponent else mantissa


class FunctionText:
    """The names and lines of one function. `dims` maps each symbol to the name of its index value."""

    def __init__(self, dims: Mapping[Symbol, str]) -> None:
        self.dims = dims
        self.prologue: list[str] = []
        self.lines: list[str] = []
        self._count = 0
        self._memo: dict[tuple[str, ...], str] = {}
        self._sizes: dict[Size, str] = {}

    def fresh(self) -> str:
        self._count += 1
        return f"%{self._count - 1}"

    def results(self, count: int) -> tuple[str, list[str]]:
        """Returns a name for an operation with `count` results, as it is defined and as each result is used."""
        name = self.fresh()
        return (name, [name]) if count == 1 else (f"{name}:{count}", [f"{name}#{i}" for i in range(count)])

    def define(self, *expression: str) -> str:
        """Defines a value of the prologue, each expression once."""
        if expression not in self._memo:
            name = self._memo[expression] = self.fresh()
            self.prologue.append(f"{name} = {' '.join(expression)}")
        return self._memo[expression]

    def constant(self, value: float | int | bool, dtype: DType) -> str:
        text = literal(value, dtype)
        if dtype is BOOL:
            return self.define("arith.constant", text)
        return self.define("arith.constant", text, ":", element_type(dtype))

    def dense(self, values: Sequence[float | int | bool], shape: Sequence[int], dtype: DType) -> str:
        type = f"tensor<{''.join(f'{s}x' for s in shape)}{element_type(dtype)}>"
        return self.define("arith.constant", f"dense<{_nest([literal(v, dtype) for v in values], shape)}>", ":", type)

    def index(self, value: int) -> str:
        return self.define("arith.constant", str(value), ": index")

    def size(self, size: Size) -> str:
        """Returns the run-time value of a size, as `index`."""
        if size not in self._sizes:
            self._sizes[size] = self._size(size)
        return self._sizes[size]

    def size_i64(self, size: Size) -> str:
        if isinstance(size, int):
            return self.define("arith.constant", str(size), ": i64")
        return self.define("arith.index_cast", self.size(size), ": index to i64")

    def _size(self, size: Size) -> str:
        if isinstance(size, int):
            return self.index(size)
        total: str | None = None
        for monomial, coefficient in size.terms:
            part = self._term(monomial, coefficient)
            total = part if total is None else self.define("arith.addi", f"{total}, {part}", ": index")
        assert total is not None
        return total

    def _term(self, monomial: Monomial, coefficient: int) -> str:
        value: str | None = None
        for atom, power in monomial:
            if isinstance(atom, Symbol):
                factor = self.dims[atom]
                if atom.multiple != 1:
                    # A dim is a multiple of its divisor, as its declaration requires.
                    factor = self.define("arith.divui", f"{factor}, {self.index(atom.multiple)}", ": index")
            elif isinstance(atom, FloorDiv):
                parts = f"{self.size(atom.numerator)}, {self.size(atom.denominator)}"
                factor = self.define("arith.floordivsi", parts, ": index")
            else:
                parts = f"{self.size(atom.left)}, {self.size(atom.right)}"
                factor = self.define(f"arith.{atom.kind}si", parts, ": index")
            for _ in range(power):
                value = factor if value is None else self.define("arith.muli", f"{value}, {factor}", ": index")
        if value is None:
            return self.index(coefficient)
        if coefficient == 1:
            return value
        return self.define("arith.muli", f"{value}, {self.index(coefficient)}", ": index")


def _nest(items: Sequence[str], shape: Sequence[int]) -> str:
    if math.prod(shape) == 0:
        return ""
    if not shape:
        return items[0]
    step = len(items) // shape[0]
    return "[" + ", ".join(_nest(items[i : i + step], shape[1:]) for i in range(0, len(items), step)) + "]"
