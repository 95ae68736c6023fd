"""Arithmetic on elements as MLIR text: the scalar half of the emitter protocol.

Elements of f16 and bf16 are extended to f32, computed, and rounded; those of 8 bits are only converted. Corner cases
are exact: NaN, infinities, division by zero, shifts past the width, casts out of range. `arithmetic` defines each
function per kind of dtype, `float8` the conversions of 8-bit floats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...dialect import emitter as protocol
from ...dialect.dims import Size
from ...dialect.emitter import clamp
from ...dialect.types import BOOL, F32, F64, I32, I64, DType, Kind
from . import arithmetic, float8
from .statements import Element, Statements
from .text import FunctionText, element_type


def is_narrow(dtype: DType) -> bool:
    """Returns whether the dtype is a float that is widened to f32 before every operation."""
    return dtype.is_float and dtype.bits < F32.bits


def as_element(x: protocol.Scalar) -> Element:
    assert isinstance(x, Element), x
    return x


LoadElement = Callable[["ScalarWriter", protocol.Tensor, Sequence[protocol.Scalar]], Element]
Alarm = Callable[[], str]


class ScalarWriter(Statements):
    """Appends scalar statements to a function's text. `load_element` reads an element of a tensor; `alarm` returns the
    memory of the alarm."""

    def __init__(self, text: FunctionText, load_element: LoadElement, alarm: Alarm, depth: int = 1) -> None:
        super().__init__(text, depth)
        self._load_element, self._alarm = load_element, alarm

    def size(self, size: Size) -> Element:
        return Element(self.text.size_i64(size), I64)

    def unary(self, function: str, x: protocol.Scalar) -> Element:
        x = as_element(x)
        assert not x.dtype.is_storage, (function, x)
        if is_narrow(x.dtype) and function not in arithmetic.PREDICATES:
            return self.cast(self.unary(function, self.cast(x, F32)), x.dtype)
        if is_narrow(x.dtype):
            x = self.cast(x, F32)
        return arithmetic.UNARY[x.dtype.kind, function](self, x)

    def binary(self, function: str, x: protocol.Scalar, y: protocol.Scalar) -> Element:
        x, y = as_element(x), as_element(y)
        assert x.dtype == y.dtype and not x.dtype.is_storage, (function, x, y)
        if is_narrow(x.dtype):
            return self.cast(self.binary(function, self.cast(x, F32), self.cast(y, F32)), x.dtype)
        return arithmetic.BINARY[x.dtype.kind, function](self, x, y)

    def compare(self, predicate: str, x: protocol.Scalar, y: protocol.Scalar) -> Element:
        x, y = as_element(x), as_element(y)
        if is_narrow(x.dtype):
            x, y = self.cast(x, F32), self.cast(y, F32)
        return super().compare(predicate, x, y)

    def select(self, condition: protocol.Scalar, x: protocol.Scalar, y: protocol.Scalar) -> Element:
        return super().select(as_element(condition), as_element(x), as_element(y))

    def cast(self, x: protocol.Scalar, dtype: DType) -> Element:
        x = as_element(x)
        if x.dtype == dtype:
            return x
        if dtype is BOOL:
            return self.compare("ne", x, self.constant(0, x.dtype))
        return _CASTS[x.dtype.kind is Kind.FLOAT, dtype.kind is Kind.FLOAT](self, x, dtype)

    def whole(self, x: protocol.Scalar, dtype: DType) -> Element:
        return self.convert("arith.fptosi" if dtype.is_signed else "arith.fptoui", as_element(x), dtype)

    def bits(self, x: protocol.Scalar, dtype: DType) -> Element:
        x = as_element(x)
        if element_type(x.dtype) == element_type(dtype):
            return Element(x.name, dtype)
        return self.convert("arith.bitcast", x, dtype)

    def load(self, tensor: protocol.Tensor, indices: Sequence[protocol.Scalar]) -> Element:
        return self._load_element(self, tensor, indices)

    def load_if(
        self, condition: protocol.Scalar, tensor: protocol.Tensor, indices: Sequence[protocol.Scalar]
    ) -> Element:
        dtype, otherwise = tensor.type.dtype, self.constant(0, tensor.type.dtype)
        return self._branch(condition, lambda: self.load(tensor, indices), otherwise, dtype)

    def watch(self, index: protocol.Scalar, outside: protocol.Scalar) -> Element:
        index = as_element(index)
        raised, one = self._alarm(), self.constant(1, I64)

        def report() -> Element:
            self.line(f"memref.store {one.name}, {raised}[] : memref<i64>")
            return index

        return self._branch(outside, report, index, index.dtype)

    def _branch(
        self, condition: protocol.Scalar, then: Callable[[], Element], otherwise: Element, dtype: DType
    ) -> Element:
        name, type = self.text.fresh(), element_type(dtype)
        self.line(f"{name} = scf.if {as_element(condition).name} -> ({type}) {{")
        with self.deeper():
            self.line(f"scf.yield {then().name} : {type}")
        self.line("} else {")
        with self.deeper():
            self.line(f"scf.yield {otherwise.name} : {type}")
        self.line("}")
        return Element(name, dtype)

    def position(self, index: protocol.Scalar) -> str:
        """Converts an i64 to the `index` that addresses a tensor."""
        return self.define(f"arith.index_cast {as_element(index).name} : i64 to index", I64).name

    def iterate(
        self,
        count: protocol.Scalar,
        initial: Sequence[protocol.Scalar],
        body: Callable[[ScalarWriter, Element, Sequence[Element]], Sequence[protocol.Scalar]],
    ) -> tuple[Element, ...]:
        start = [as_element(x) for x in initial]
        assert start, "a loop that carries nothing computes nothing"
        limit = self.position(count)
        variable = self.text.fresh()
        carried = [Element(self.text.fresh(), x.dtype) for x in start]
        types = ", ".join(element_type(x.dtype) for x in start)
        arguments = ", ".join(f"{c.name} = {x.name}" for c, x in zip(carried, start, strict=True))
        bounds = f"{self.text.index(0)} to {limit} step {self.text.index(1)}"
        label, names = self.text.results(len(start))
        self.line(f"{label} = scf.for {variable} = {bounds} iter_args({arguments}) -> ({types}) {{")
        with self.deeper():
            index = self.define(f"arith.index_cast {variable} : index to i64", I64)
            after = [as_element(x) for x in body(self, index, carried)]
            assert [x.dtype for x in after] == [x.dtype for x in start], (after, start)
            self.line(f"scf.yield {', '.join(x.name for x in after)} : {types}")
        self.line("}")
        return tuple(Element(name, x.dtype) for name, x in zip(names, start, strict=True))


def _cast_to_float(s: ScalarWriter, x: Element, dtype: DType) -> Element:
    if is_narrow(dtype):
        return _cast_float(s, _cast_to_float(s, x, F32), dtype)
    return s.convert("arith.sitofp" if x.dtype.is_signed else "arith.uitofp", x, dtype)


def _cast_float(s: ScalarWriter, x: Element, dtype: DType) -> Element:
    if x.dtype.is_storage:
        return s.cast(float8.decode(s, x), dtype)
    if x.dtype == F64 and is_narrow(dtype) and not dtype.through_f32:
        x = s.define(f"arith.truncf {_round_to_odd(s, x).name} : f64 to f32", F32)
    elif x.dtype == F64 and dtype.through_f32:
        x = s.convert("arith.truncf", x, F32)
    elif is_narrow(x.dtype) and is_narrow(dtype):
        x = s.convert("arith.extf", x, F32)
    if dtype.is_storage:
        return float8.encode(s, x, dtype)
    if dtype == x.dtype:
        return x
    return s.convert("arith.truncf" if dtype.bits < x.dtype.bits else "arith.extf", x, dtype)


def _round_to_odd(s: ScalarWriter, x: Element) -> Element:
    """Returns an f64 with its lowest 29 bits merged into one, so that rounding it to f32 and then to a shorter format
    rounds once."""
    bits = s.convert("arith.bitcast", x, I64)
    rest = s.op("arith.andi", bits, s.constant((1 << 29) - 1, I64))
    kept = s.op("arith.andi", bits, s.constant(-(1 << 29), I64))
    odd = s.op("arith.ori", kept, s.constant(1 << 29, I64))
    return s.convert("arith.bitcast", s.select(s.compare("ne", rest, s.constant(0, I64)), odd, bits), F64)


def _cast_integer(s: ScalarWriter, x: Element, dtype: DType) -> Element:
    if dtype.bits == x.dtype.bits:
        return Element(x.name, dtype)
    if dtype.bits < x.dtype.bits:
        return s.convert("arith.trunci", x, dtype)
    return s.convert("arith.extsi" if x.dtype.is_signed else "arith.extui", x, dtype)


def _cast_to_integer(s: ScalarWriter, x: Element, dtype: DType) -> Element:
    if is_narrow(x.dtype):
        x = s.cast(x, F32)
    low, high = (-(1 << (dtype.bits - 1)), 1 << (dtype.bits - 1)) if dtype.is_signed else (0, 1 << dtype.bits)
    if dtype.bits < 32:
        # All integers of the dtype are floats too: a value clamped to the range needs no further handling.
        inside = as_element(clamp(s, x, s.constant(low, x.dtype), s.constant(high - 1, x.dtype)))
        known = s.select(s.compare("eq", inside, inside), inside, s.constant(0, x.dtype))
        return s.cast(s.whole(known, I32), dtype)
    # Both limits are powers of two, so exact. NaN is neither inside nor outside, and becomes 0.
    below = s.compare("lt", x, s.constant(low, x.dtype))
    above = s.compare("ge", x, s.constant(high, x.dtype))
    inside = s.op("arith.andi", s.compare("ge", x, s.constant(low, x.dtype)), s.unary("not", above))
    safe = s.select(inside, x, s.constant(0, x.dtype))
    return s.select(above, s.constant(high - 1, dtype), s.select(below, s.constant(low, dtype), s.whole(safe, dtype)))


_CASTS: Mapping[tuple[bool, bool], Callable[[ScalarWriter, Element, DType], Element]] = {
    (False, False): _cast_integer,
    (False, True): _cast_to_float,
    (True, False): _cast_to_integer,
    (True, True): _cast_float,
}
"""The casts, by whether the operand is a float and whether the result is one."""
