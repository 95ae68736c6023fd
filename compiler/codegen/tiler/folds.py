"""Reductions along rows in lanes: the carried vectors, one step, and the final reduction across the lanes.

The sum of a row with 8 lanes in 4 strands, so that an addition need not wait for the previous one:

    strand 0:  x[0..7]   + x[32..39] + x[64..71] + ...
    strand 1:  x[8..15]  + x[40..47] + x[72..79] + ...
    strand 2:  x[16..23] + x[48..55] + ...
    strand 3:  x[24..31] + x[56..63] + ...
    finish:    (strand 0 + strand 1) + (strand 2 + strand 3), then the sum over the 8 lanes
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ....dialect.lazy_dataclass import dataclass
from ....dialect.types import FLOATS, SIGNED
from ...lower.text import literal
from .structure import Op, Unsupported
from .text import Value, Writer

_INFINITIES, _MINUS, _NANS = (
    {dtype.mlir: literal(number, dtype) for dtype in FLOATS} for number in (math.inf, -math.inf, math.nan)
)
_LEAST: Mapping[str, str] = {dtype.mlir: str(dtype.integer_range[0]) for dtype in SIGNED}
_GREATEST: Mapping[str, str] = {dtype.mlir: str(dtype.integer_range[1]) for dtype in SIGNED}


RECORDS: Mapping[str, str] = {"f32": "i32", "f64": "i64"}
"""The words that record NaNs among elements of a type."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The reduction rule of an operation. `vector` is its name in `vector.reduction`; `neutral` its neutral element, by
    the longest prefix of an element type's name; `free` the attributes that permit any order of the lanes."""

    vector: str
    neutral: Mapping[str, str]
    free: str = ""


RULES: Mapping[str, Rule] = {
    "arith.addf": Rule("add", {"": "0.0"}, " fastmath<reassoc>"),
    "arith.mulf": Rule("mul", {"": "1.0"}, " fastmath<reassoc>"),
    "arith.maximumf": Rule("maximumf", _MINUS),
    "arith.minimumf": Rule("minimumf", _INFINITIES),
    "arith.maxsi": Rule("maxsi", _LEAST),
    "arith.minsi": Rule("minsi", _GREATEST),
    "arith.maxui": Rule("maxui", {"": "0"}),
    "arith.minui": Rule("minui", {"": "-1"}),
    "arith.addi": Rule("add", {"": "0"}),
    "arith.muli": Rule("mul", {"": "1"}),
    "arith.ori": Rule("or", {"i1": "false", "": "0"}),
    "arith.xori": Rule("xor", {"i1": "false", "": "0"}),
    "arith.andi": Rule("and", {"i1": "true", "": "-1"}),
}


class Fold:
    """A fold that carries one vector per strand and combines strands as the body combines elements."""

    def __init__(self, writer: Writer, op: Op) -> None:
        combination = op.combination
        if combination is None or combination[0] not in RULES:
            raise Unsupported(f"a reduction by `{op.body.kind}`")
        self.writer, self.op = writer, op
        self.name, self.added = combination
        self.rule = RULES[self.name]
        self.element = op.result.element
        self.neutral = next(
            self.rule.neutral[self.element[:n]] for n in (9, 3, 2, 0) if self.element[:n] in self.rule.neutral
        )

    def first(self) -> list[Value]:
        """Returns the initial values of a strand."""
        return [self.writer.broadcast(self.writer.constant(self.neutral, self.element))]

    def step(
        self, strand: Sequence[Value], accumulate: Callable[[Value], Value], add: Callable[[], Value]
    ) -> list[Value]:
        """Returns a strand after one more vector: `accumulate` is the op's body, `add` only its addend."""
        (total,) = strand
        return [self.masked(self.writer.broadcast(accumulate(total)), total)]

    def masked(self, after: Value, before: Value) -> Value:
        """Returns `after` in the lanes of the mask, `before` in the others."""
        if self.writer.mask is None:
            return after
        types = f"{self.writer.vector_type('i1')}, {self.writer.type(after)}"
        chosen = self.writer.let(f"arith.select {self.writer.mask}, {after.name}, {before.name} : {types}")
        return Value(chosen, after.type, True)

    def finish(self, strands: Sequence[Sequence[Value]], start: Value) -> Value:
        """Combines all strands with the initial value of the reduction."""
        totals = [strand[0] for strand in strands]
        total = self.pairwise(totals, lambda x, y: self.writer.apply(self.name, "", [x, y], self.element))
        types = f"{self.writer.type(total)} into {self.element}"
        text = f"vector.reduction <{self.rule.vector}>, {total.name}{self.rule.free} : {types}"
        return self.writer.apply(self.name, "", [start, Value(self.writer.let(text), self.element)], self.element)

    @staticmethod
    def pairwise(values: Sequence[Value], combine: Callable[[Value, Value], Value]) -> Value:
        left = list(values)
        while len(left) > 1:
            left = [combine(*left[i : i + 2]) if i + 1 < len(left) else left[i] for i in range(0, len(left), 2)]
        return left[0]


class Extreme(Fold):
    """A maximum or minimum of floats with an arbitrary sign of zero. NaNs are recorded separately, so that a step is
    one comparison that ignores them. Without mask registers, a record has words as wide as the elements, because a
    loop would carry truth values in a shorter form."""

    def __init__(self, writer: Writer, op: Op) -> None:
        super().__init__(writer, op)
        self.record = "i1" if "avx512f" in writer.features else RECORDS.get(self.element, "i1")

    def first(self) -> list[Value]:
        none = self.writer.constant("false" if self.record == "i1" else "0", self.record)
        return [*super().first(), self.writer.broadcast(none)]

    def step(
        self, strand: Sequence[Value], accumulate: Callable[[Value], Value], add: Callable[[], Value]
    ) -> list[Value]:
        total, unordered = strand
        value = self.writer.broadcast(add())
        nan = self.writer.apply("arith.cmpf", "predicate = 14 : i64", [value, value], "i1")
        if self.record != "i1":
            nan = self.writer.apply("arith.extsi", "", [nan], self.record)
        seen = self.writer.apply("arith.ori", "", [unordered, nan], self.record)
        return [self.masked(self.better(total, value), total), self.masked(seen, unordered)]

    def better(self, x: Value, y: Value) -> Value:
        predicate = 2 if self.name == "arith.maximumf" else 4
        comparison = self.writer.apply("arith.cmpf", f"predicate = {predicate} : i64", [x, y], "i1")
        return self.writer.apply("arith.select", "", [comparison, x, y], self.element)

    def finish(self, strands: Sequence[Sequence[Value]], start: Value) -> Value:
        writer = self.writer
        total = self.pairwise([s[0] for s in strands], self.better)
        record = self.record
        unordered = self.pairwise([s[1] for s in strands], lambda x, y: writer.apply("arith.ori", "", [x, y], record))
        if record != "i1":
            none = writer.constant("0", record)
            unordered = writer.apply("arith.cmpi", "predicate = 1 : i64", [unordered, none], "i1")
        lanes = writer.lanes
        name, width = total.name, lanes
        while width > 1:
            half = width // 2
            parts = []
            for offset in (0, half):
                bounds = f"{{offsets = [{offset}], sizes = [{half}], strides = [1]}}"
                types = f"vector<{width}x{self.element}> to vector<{half}x{self.element}>"
                parts.append(writer.let(f"vector.extract_strided_slice {name} {bounds} : {types}"))
            predicate = "ogt" if self.name == "arith.maximumf" else "olt"
            type = f"vector<{half}x{self.element}>"
            chosen = writer.let(f"arith.cmpf {predicate}, {parts[0]}, {parts[1]} : {type}")
            name = writer.let(f"arith.select {chosen}, {parts[0]}, {parts[1]} : vector<{half}xi1>, {type}")
            width = half
        best = Value(
            writer.let(f"vector.extract {name}[0] : {self.element} from vector<1x{self.element}>"), self.element
        )
        any_nan = writer.let(f"vector.reduction <or>, {unordered.name} : {writer.vector_type('i1')} into i1")
        nan = writer.constant(_NANS[self.element], self.element)
        marked = writer.let(f"arith.select {any_nan}, {nan.name}, {best.name} : {self.element}")
        return writer.apply(self.name, "", [start, Value(marked, self.element)], self.element)


class Magnitude(Fold):
    """The greatest absolute value of f32 numbers, computed on their bits: without the sign, the bits have the order of
    the numbers, and a NaN is above all others."""

    word = "i32"

    def first(self) -> list[Value]:
        return [self.as_word(value) for value in super().first()]

    def step(
        self, strand: Sequence[Value], accumulate: Callable[[Value], Value], add: Callable[[], Value]
    ) -> list[Value]:
        (total,) = strand
        return [self.masked(self.greater(total, self.as_word(self.writer.broadcast(add()))), total)]

    def as_word(self, value: Value) -> Value:
        return self.writer.apply("arith.bitcast", "", [value], self.word)

    def greater(self, x: Value, y: Value) -> Value:
        return self.writer.apply("arith.maxsi", "", [x, y], self.word)

    def finish(self, strands: Sequence[Sequence[Value]], start: Value) -> Value:
        total = self.pairwise([strand[0] for strand in strands], self.greater)
        text = f"vector.reduction <maxsi>, {total.name} : {self.writer.type(total)} into {self.word}"
        best = self.writer.apply("arith.bitcast", "", [Value(self.writer.let(text), self.word)], self.element)
        return self.writer.apply(self.name, "", [start, best], self.element)


def choose_fold(writer: Writer, op: Op) -> Fold:
    """Returns the fold of a reduction. Operators declare that the zero of an extreme may have either sign."""
    kind, added = op.combination or ("", op.body)
    if (kind, added.kind, added.type) == ("arith.maximumf", "math.absf", "f32"):
        return Magnitude(writer, op)
    return Extreme(writer, op) if kind in ("arith.maximumf", "arith.minimumf") else Fold(writer, op)
