"""Attention over keys in stretches: the rows of scores on the stack are as long as a stretch, for any number of keys.

For each row of a block, three values are carried from stretch to stretch: the greatest score so far, and the sum of
powers and the product with the values relative to it. Two stretches of keys, J and K:

    m = max of s[J]                     w = max(m, max of s[K])
    e = exp(s[J] - m)                   f = exp(s[K] - w),  c = exp(m - w)
    l = sum of e                        l = l * c + sum of f
    y = sum of e[j] * v[j]              y = y * c + sum of f[j] * v[j]              result: y / l

Powers and their products are in f32 or f64, also where the weights of the model are rounded to bf16 or f16.

Powers are multiplied by a power of 2 that is less than 1 over the number of keys. The quotient stays the same, and no
sum is greater than the greatest value. An infinite value whose weight is too small for the dtype gives an infinity
where the product with whole rows is NaN.

Stretches begin at multiples of their length, also where a mask bounds the keys of a block, so that a row has the same
bits in every block. A row whose scores so far are all -inf has the powers exp(-inf - 0) = 0. If none follow, its result
is 0 / 0, which is the NaN of a softmax without a maximum.

Each block copies the keys and values. As more rows of a stretch fit on the stack than whole rows, a copy serves more
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf

from ....dialect.dims import bounds
from ..structured.body_nodes import Node
from .bounded import BoundedRows
from .evaluate import Evaluator, Iteration, Kept, Span
from .forms import Form, constant, variable
from .row_loops import Rows, each_row
from .rows import RowWriter
from .softmaxes import Softmax
from .structure import Buffer, Op
from .text import Value, float_text

STRETCH = 384
"""The keys of a stretch, or the next smaller multiple of the steps of its loops, at least one step."""


class OnlineSoftmax:
    """The writer of a softmax along stretches of `keys` keys, for blocks of up to `rows` rows of the class `row`."""

    def __init__(
        self, evaluator: Evaluator, row: RowWriter, softmax: Softmax, keys: int, rows: int, of_row: int
    ) -> None:
        self.evaluator, self.row, self.softmax, self.keys, self.rows = evaluator, row, softmax, keys, rows
        self.writer, self.stage, self.of_row = evaluator.writer, evaluator.stage, of_row
        self.shift = constant(0)
        """The negated position of the present stretch."""
        softmax.take_powers()
        power = softmax.powers.body
        (difference,) = power.operands
        earlier = replace(difference, operands=(Node("start", softmax.element), difference.operands[1]))
        self.factor = replace(power, operands=(earlier,))
        """The factor that a greater score demands of earlier powers, as an expression in the body of the powers."""
        most = bounds(self.stage.sizes[softmax.keys])[1]
        share = Node("constant", power.type, text=float_text(2.0 ** -most.bit_length(), power.type))
        softmax.powers.body = Node("arith.mulf", power.type, (power, share), location=power.location)

    # Blocks

    @contextmanager
    def stretches(self, product: Kept, batch: Iteration, row: Form, count: Rows) -> Iterator[None]:
        """Within the context, a stretch of a block of rows is written; `product` are its rows of the product."""
        writer, keys = self.writer, self.softmax.keys
        self.carried = {
            id(self.softmax.greatest): self._numbers(self.softmax.greatest, row),
            id(self.softmax.total): self._numbers(self.softmax.total, row),
            id(self.softmax.product): product,
        }
        self._begin(batch, row, count)
        around, span, size = self.evaluator.spans.get(keys), self.evaluator.span(keys), self.stage.sizes[keys]
        is_whole = around is None and isinstance(size, int) and size % self.keys == 0

        def let(operation: str, left: str, right: str) -> str:
            return writer.let(f"arith.{operation} {left}, {right} : index")

        length = writer.size(self.keys)
        with writer.loop(let("muli", let("divui", span.begin, length), length), span.end, self.keys) as start:
            past = let("addi", start, length)
            begin, end = let("maxui", start, span.begin), past if is_whole else let("minui", past, span.end)
            stretch = Span(begin, end, let("maxui", begin, span.first), let("minui", end, span.last))
            self.evaluator.spans[keys], self.shift = stretch, variable(start, -1)
            self.evaluator.carried |= self.carried
            yield
            for key in self.carried:
                del self.evaluator.carried[key]
            del self.evaluator.spans[keys]
            self.shift = constant(0)
        if around is not None:
            self.evaluator.spans[keys] = around

    def _numbers(self, op: Op, row: Form) -> Kept:
        return Kept(self.evaluator.stack("carried", op, self.rows), {self.of_row: 1}, row.times(-1))

    def _begin(self, batch: Iteration, row: Form, count: Rows) -> None:
        """Writes the values before the first stretch."""
        softmax, evaluator = self.softmax, self.evaluator
        with each_row(self.writer, count) as index:
            at = {**batch, self.of_row: row + index}
            for op in (softmax.greatest, softmax.total):
                kept = self.carried[id(op)]
                self.writer.store(kept.buffer, kept.at(at), evaluator.starting(op, at))
            zero = self._number(0.0)
            self._over_product(at, lambda _, buffer, form: self.writer.store(buffer, form, zero))

    def _over_product(self, iteration: Iteration, write: Callable[[Iteration, Buffer, Form], None]) -> None:
        """Calls `write` for every vector of a row of the product."""
        single, product = self.evaluator.single, self.softmax.product
        kept = self.carried[id(product)]
        (lane,) = (c for c in self.stage.parallel(product) if c not in self.row.outer and c not in single)
        self.row.chunks(lane, iteration, lambda at, _: write(at, kept.buffer, kept.at({**single, **at})))

    # Rows

    def take(self, iteration: Iteration, powers: Kept) -> None:
        """Writes the powers of a row's stretch, and the values that the row carries on."""
        writer, evaluator, softmax = self.writer, self.evaluator, self.softmax
        greatest, total = (self.carried[id(op)] for op in (softmax.greatest, softmax.total))
        before = writer.load(greatest.buffer, greatest.at(iteration))
        self.row.reduce(softmax.greatest, iteration)
        after = evaluator.value(softmax.greatest, iteration)
        writer.store(greatest.buffer, greatest.at(iteration), after)
        evaluator.define(softmax.greatest, iteration, self._or_zero(after))
        # Before the first score, there is nothing to scale.
        differs = writer.let(f"arith.cmpf une, {after.name}, {before.name} : {after.type}")
        follows = writer.let(f"arith.cmpf une, {before.name}, {self._number(-inf).name} : {before.type}")
        with writer.when(writer.let(f"arith.andi {differs}, {follows} : i1")):
            self._scale(iteration, before)
        self.row.reduce(softmax.total, iteration, {softmax.powers: powers})
        writer.store(total.buffer, total.at(iteration), evaluator.value(softmax.total, iteration))

    def _scale(self, iteration: Iteration, before: Value) -> None:
        """Multiplies the sums of a row by the power of an earlier greatest score relative to the present one."""
        writer, softmax = self.writer, self.softmax
        at = {**iteration, softmax.keys: constant(0)}
        factor = self.evaluator.body(softmax.powers, at, writer.broadcast(before), self.factor)

        def scale(buffer: Buffer, form: Form, by: Value) -> None:
            writer.store(buffer, form, writer.apply("arith.mulf", "", [writer.load(buffer, form), by], by.type))

        self._over_product(iteration, lambda _, buffer, form: scale(buffer, form, factor))
        one = writer.let(f"vector.extract {factor.name}[0] : {factor.type} from {writer.type(factor)}")
        total = self.carried[id(softmax.total)]
        scale(total.buffer, total.at(iteration), Value(one, factor.type))

    def _or_zero(self, greatest: Value) -> Value:
        """Returns the number that is subtracted from scores: 0 where there is none yet."""
        writer = self.writer
        element = greatest.type
        is_none = writer.let(f"arith.cmpf oeq, {greatest.name}, {self._number(-inf).name} : {element}")
        number = writer.let(f"arith.select {is_none}, {self._number(0.0).name}, {greatest.name} : {element}")
        return Value(number, element)

    def _number(self, number: float) -> Value:
        return self.writer.number(number, self.softmax.element)

    def _is_empty(self, bounded: BoundedRows | None) -> str | None:
        """Returns whether the rows of a block have no weights, so that the sum of products is 0; None if they have."""
        if self.softmax.hides and bounded is not None:
            return bounded.is_empty()
        writer, size = self.writer, self.stage.sizes[self.softmax.keys]
        if bounds(size)[0] > 0:
            return None
        return writer.let(f"arith.cmpi eq, {writer.size(size)}, {writer.size(0)} : index")

    def finish(self, batch: Iteration, row: Form, count: Rows, bounded: BoundedRows | None) -> None:
        """Divides the products of a block, and stores the results of the stage."""
        writer, evaluator, softmax = self.writer, self.evaluator, self.softmax
        greatest, total = (self.carried[id(op)] for op in (softmax.greatest, softmax.total))
        doubts = bounded.doubts([softmax.greatest]) if bounded is not None else []
        end = count if isinstance(count, str) else writer.size(count)
        with writer.carrying(writer.size(0), end, 1, doubts) as loop:
            at = {**batch, self.of_row: row + variable(loop.index)}
            sum = writer.load(total.buffer, total.at(at))
            empty = self._is_empty(bounded)
            if empty is not None:
                one = self._number(1.0)
                sum = Value(writer.let(f"arith.select {empty}, {one.name}, {sum.name} : {sum.type}"), sum.type)

            def divide(here: Iteration, buffer: Buffer, form: Form) -> None:
                quotient = writer.apply("arith.divf", "", [writer.load(buffer, form), sum], sum.type)
                evaluator.define(softmax.product, here, quotient)
                evaluator.write(self.stage.sinks, [here])

            self._over_product(at, divide)
            if bounded is not None and doubts:
                evaluator.define(softmax.greatest, at, writer.load(greatest.buffer, greatest.at(at)))
                loop.after = bounded.look_at(at, loop.values)
        if bounded is not None and doubts:
            (bounded.doubt,) = loop.results
