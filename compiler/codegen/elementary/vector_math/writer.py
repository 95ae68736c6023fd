"""Writes straight-line arithmetic as MLIR text, on scalars or on vectors, from formulas in Python.

A formula is written once, with operators on `Lanes`; the writer decides the types. Python numbers become constants.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Union

from .....dialect.lazy_dataclass import dataclass
from ...isa import FUSED, find, supports

INFINITY, NAN = float("inf"), float("nan")


def f32_bits(value: float) -> int:
    """Returns the bit pattern of a number rounded to f32."""
    bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return bits


def _literal(value: float, element: str) -> str:
    if element == "f32":
        return f"0x{f32_bits(value):08X}"
    if element == "f64":
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return str(value).lower()


class Writer:
    """The lines of one function; `lanes` is None for scalars.

    features: the target's features, by their LLVM names; the arithmetic may use their instructions.
    """

    def __init__(self, lanes: int | None = None, features: frozenset[str] = FUSED) -> None:
        self.lanes = lanes
        self.fuses = supports("multiply-add", features)
        self.scaling = None if lanes is None else find("scale-by-power", lanes, features)
        self.scaling_doubles = None if lanes is None else find("scale-doubles-by-power", 2 * lanes, features)
        self._lines: list[str] = []
        self._constants: dict[tuple[str, str], str] = {}
        self._count = 0

    def type_of(self, element: str) -> str:
        return element if self.lanes is None else f"vector<{self.lanes}x{element}>"

    def let(self, text: str, element: str) -> Lanes:
        name = self.fresh_name()
        self.write(f"{name} = {text}")
        return Lanes(self, name, element)

    def fresh_name(self) -> str:
        self._count += 1
        return f"%{self._count}"

    def write(self, line: str) -> None:
        self._lines.append(line)

    @contextmanager
    def apart(self) -> Iterator[list[str]]:
        """Collects the lines that are written inside; the caller writes them later."""
        before, self._lines = self._lines, []
        try:
            yield self._lines
        finally:
            self._lines = before

    def constant(self, value: float, element: str) -> Lanes:
        literal = _literal(value, element)
        name = self._constants.setdefault((literal, element), f"%c{len(self._constants)}")
        return Lanes(self, name, element)

    def _spelled(self, literal: str, element: str) -> str:
        if self.lanes is not None:
            return f"dense<{literal}> : {self.type_of(element)}"
        return literal if element == "i1" else f"{literal} : {element}"

    def body(self) -> str:
        """Returns all lines; constants come first, so that branches see them too."""
        constants = [
            f"{name} = arith.constant {self._spelled(literal, element)}"
            for (literal, element), name in self._constants.items()
        ]
        return "\n".join(f"  {line}" for line in (*constants, *self._lines))


Operand = Union["Lanes", float]


@dataclass(frozen=True, slots=True)
class Lanes:
    """A scalar or a vector of type `element`. Operands have the same type, or are Python numbers."""

    writer: Writer
    name: str
    element: str

    @property
    def is_float(self) -> bool:
        return self.element.startswith("f")

    def lift(self, other: Operand) -> Lanes:
        return other if isinstance(other, Lanes) else self.writer.constant(other, self.element)

    def _apply(self, operation: str, other: Operand) -> Lanes:
        other = self.lift(other)
        assert other.element == self.element, (operation, self.element, other.element)
        type = self.writer.type_of(self.element)
        return self.writer.let(f"arith.{operation} {self.name}, {other.name} : {type}", self.element)

    def _arithmetic(self, operation: str, other: Operand) -> Lanes:
        return self._apply(f"{operation}{'f' if self.is_float else 'i'}", other)

    def _compare(self, float_predicate: str, integer_predicate: str, other: Operand) -> Lanes:
        operation = f"cmpf {float_predicate}," if self.is_float else f"cmpi {integer_predicate},"
        result = self._apply(operation, other)
        return Lanes(self.writer, result.name, "i1")

    def _convert(self, operation: str, element: str) -> Lanes:
        source, target = self.writer.type_of(self.element), self.writer.type_of(element)
        return self.writer.let(f"arith.{operation} {self.name} : {source} to {target}", element)

    def __add__(self, other: Operand) -> Lanes:
        return self._arithmetic("add", other)

    def __sub__(self, other: Operand) -> Lanes:
        return self._arithmetic("sub", other)

    def __rsub__(self, other: float) -> Lanes:
        return self.lift(other) - self

    def __mul__(self, other: Operand) -> Lanes:
        return self._arithmetic("mul", other)

    def __truediv__(self, other: Operand) -> Lanes:
        return self._apply("divf", other)

    def __rtruediv__(self, other: float) -> Lanes:
        return self.lift(other) / self

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Lanes:
        return self.writer.let(f"arith.negf {self.name} : {self.writer.type_of(self.element)}", self.element)

    def __and__(self, other: Operand) -> Lanes:
        return self._apply("andi", other)

    def __or__(self, other: Operand) -> Lanes:
        return self._apply("ori", other)

    def __xor__(self, other: Operand) -> Lanes:
        return self._apply("xori", other)

    def __invert__(self) -> Lanes:
        return self._apply("xori", True)

    def __lshift__(self, other: Operand) -> Lanes:
        return self._apply("shli", other)

    def __rshift__(self, other: Operand) -> Lanes:
        """Shifts right arithmetically, keeping the sign."""
        return self._apply("shrsi", other)

    def shift_down(self, other: Operand) -> Lanes:
        """Shifts right logically, filling with zeros."""
        return self._apply("shrui", other)

    # Comparisons are false for NaN.

    def __lt__(self, other: Operand) -> Lanes:
        return self._compare("olt", "slt", other)

    def __gt__(self, other: Operand) -> Lanes:
        return self._compare("ogt", "sgt", other)

    def equals(self, other: Operand) -> Lanes:
        return self._compare("oeq", "eq", other)

    def not_below(self, other: Operand) -> Lanes:
        """Returns whether the number is not below the other; true for NaN."""
        return self._compare("uge", "sge", other)

    def is_nan(self) -> Lanes:
        return self._compare("uno", "", self)

    def choose(self, yes: Lanes | float, no: Lanes | float) -> Lanes:
        """Selects `yes` where this condition is true, else `no`."""
        if not isinstance(yes, Lanes):
            yes = no.lift(yes) if isinstance(no, Lanes) else self.writer.constant(yes, "f32")
        no = yes.lift(no)
        condition, type = self.writer.type_of("i1"), self.writer.type_of(yes.element)
        # Vectors are selected by lane; the type of the condition is written only where it is a vector.
        types = type if self.writer.lanes is None else f"{condition}, {type}"
        return self.writer.let(f"arith.select {self.name}, {yes.name}, {no.name} : {types}", yes.element)

    def bits(self) -> Lanes:
        """Returns the bit pattern of an f32."""
        return self._convert("bitcast", "i32")

    def as_float(self) -> Lanes:
        """Returns the f32 with this bit pattern."""
        return self._convert("bitcast", "f32")

    def to_float(self, element: str = "f32") -> Lanes:
        """Returns the float nearest to this integer."""
        return self._convert("sitofp", element)

    def to_integer(self) -> Lanes:
        """Returns the i32 toward zero; the result must fit an i32."""
        return self._convert("fptosi", "i32")

    def narrow(self) -> Lanes:
        """Returns the f32 nearest to an f64, or the lower half of an i64."""
        return self._convert("truncf", "f32") if self.is_float else self._convert("trunci", "i32")

    def to_f64(self) -> Lanes:
        """Returns an f32 as an f64."""
        return self._convert("extf", "f64")

    def widen(self) -> Lanes:
        """Returns the i64 of an unsigned i32."""
        return self._convert("extui", "i64")
