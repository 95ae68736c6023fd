"""The entry function of a graph function, as LLVM IR: it finds every tensor's memory and calls the kernels in order.

An entry computes nothing itself. Its sizes and offsets are formulas of the dims, each evaluated once per call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...dialect.dims import FloorDiv, Monomial, Size, Symbol, bounds
from .writer import UNITS

ARGUMENTS = "ptr noalias %inputs, ptr noalias %outputs, ptr noalias %workspace, ptr noalias %weights, ptr noalias %dims"


@dataclass(frozen=True, slots=True)
class Input:
    """An argument of the function."""

    number: int


@dataclass(frozen=True, slots=True)
class Output:
    """A result of the function."""

    number: int


@dataclass(frozen=True, slots=True)
class Weight:
    offset: int


@dataclass(frozen=True, slots=True)
class Workspace:
    offset: Size


Place = Input | Output | Weight | Workspace


@dataclass(frozen=True, slots=True)
class Call:
    """One kernel with the values of its dims and the places of its tensors; `comment` says what it computes."""

    kernel: str
    dims: tuple[Symbol, ...]
    places: tuple[Place, ...]
    comment: str = ""


class _EntryText:
    def __init__(self, dims: Sequence[Symbol]) -> None:
        self.lines: list[str] = []
        self._memo: dict[str, str] = {}
        self._dims = {symbol: number for number, symbol in enumerate(dims)}

    def define(self, expression: str) -> str:
        """A value, each expression once: none of them has an effect, and what is loaded does not change."""
        if expression not in self._memo:
            name = self._memo[expression] = f"%v{len(self._memo)}"
            self.lines.append(f"  {name} = {expression}")
        return self._memo[expression]

    def place(self, place: Place) -> str:
        if isinstance(place, Input):
            return self._table("%inputs", place.number)
        if isinstance(place, Output):
            return self._table("%outputs", place.number)
        base = "%weights" if isinstance(place, Weight) else "%workspace"
        if place.offset == 0:
            return base
        return self.define(f"getelementptr i8, ptr {base}, i64 {self.size(place.offset)}")

    def _table(self, table: str, number: int) -> str:
        slot = table if number == 0 else self.define(f"getelementptr ptr, ptr {table}, i64 {number}")
        return self.define(f"load ptr, ptr {slot}, align 8")

    def dim(self, symbol: Symbol) -> str:
        number = self._dims[symbol]
        slot = "%dims" if number == 0 else self.define(f"getelementptr i64, ptr %dims, i64 {number}")
        return self.define(f"load i64, ptr {slot}, align 8")

    def size(self, size: Size) -> str:
        if isinstance(size, int):
            return str(size)
        total = ""
        for monomial, coefficient in size.terms:
            part = self._term(monomial, coefficient)
            total = self.define(f"add i64 {total}, {part}") if total else part
        return total

    def _term(self, monomial: Monomial, coefficient: int) -> str:
        value = ""
        for atom, power in monomial:
            if isinstance(atom, Symbol):
                factor = self.dim(atom)
                if atom.multiple != 1:
                    factor = self.define(f"udiv i64 {factor}, {atom.multiple}")
            elif isinstance(atom, FloorDiv):
                factor = self._floor_divide(atom)
            else:
                operands = f"i64 {self.size(atom.left)}, i64 {self.size(atom.right)}"
                factor = self.define(f"call i64 @llvm.s{atom.kind}.i64({operands})")
            for _ in range(power):
                value = self.define(f"mul i64 {value}, {factor}") if value else factor
        if not value:
            return str(coefficient)
        return value if coefficient == 1 else self.define(f"mul i64 {value}, {coefficient}")

    def _floor_divide(self, atom: FloorDiv) -> str:
        operands = f"i64 {self.size(atom.numerator)}, {self.size(atom.denominator)}"
        if bounds(atom.numerator)[0] >= 0:
            return self.define(f"udiv {operands}")
        quotient, rest = self.define(f"sdiv {operands}"), self.define(f"srem {operands}")
        # The denominator is positive: a negative rest means that truncating went up.
        step = self.define(f"sext i1 {self.define(f'icmp slt i64 {rest}, 0')} to i64")
        return self.define(f"add i64 {quotient}, {step}")


def write_entry(symbol: str, dims: Sequence[Symbol], calls: Sequence[Call]) -> str:
    """The definition of an entry, hidden from whoever links the object."""
    text = _EntryText(dims)
    for call in calls:
        dims = [f"i64 {text.dim(s)}" for s in call.dims]
        units = text.define(f"call i64 @{call.kernel}{UNITS}({', '.join(dims)})")
        arguments = [*dims, *(f"ptr {text.place(p)}" for p in call.places), "i64 0", f"i64 {units}"]
        text.lines.append(f"  call void @{call.kernel}({', '.join(arguments)}) ; {call.comment}")
    return "\n".join([f"define hidden void @{symbol}({ARGUMENTS}) {{", *text.lines, "  ret void", "}", ""])


def declare(calls: Iterable[Call]) -> str:
    """Declarations of whatever the entries with these calls refer to: the text of entries stands alone."""
    lines = {"i64 @llvm.smin.i64(i64, i64)", "i64 @llvm.smax.i64(i64, i64)"}
    for call in calls:
        dims = ["i64"] * len(call.dims)
        lines.add(f"void @{call.kernel}({', '.join([*dims, *['ptr'] * len(call.places), 'i64', 'i64'])})")
        lines.add(f"i64 @{call.kernel}{UNITS}({', '.join(dims)})")
    return "".join(f"declare {line}\n" for line in sorted(lines))
