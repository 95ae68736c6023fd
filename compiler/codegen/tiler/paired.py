"""Register tiles of a product of bf16 that no pass has packed, on CPUs with an instruction that adds two products of
bf16 to each sum: the panel of columns on the stack is copied in pairs of steps, as words.

    w in memory: rows of N columns          panel on the stack: a word is two steps of a column
    w[k, n]      w[k, n + 1]      ...  ->   | w[k, n] w[k + 1, n] | w[k, n + 1] w[k + 1, n + 1] | ...
    w[k + 1, n]  w[k + 1, n + 1]  ...       | w[k + 2, n] w[k + 3, n] | ...

In `x @ w.T`, pairs of steps are adjacent in memory, and the panel is a transpose of words. The steps of x are adjacent
too, or, as in `x.T @ w`, a word is composed of two elements. The second step of the last pair is 0 in both factors
where the number of steps is odd.

The instruction treats denormal inputs as zero and flushes denormal sums, as for packed weights: see `dots.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ....dialect.dims import Size
from ..isa import find
from ..structured.body_nodes import Node
from .dots import WORD, add_products
from .evaluate import Evaluator, Iteration, Kept
from .forms import LANES, Form, variable
from .maps import transpose
from .stretches import StretchedTiles, is_plain
from .structure import Buffer, Op
from .text import Value, stored_type

PAIR = 2
"""The steps of a word."""
_DOT = Node("dot", "f32", text="arith.extf arith.extf")


def takes_pairs(evaluator: Evaluator, op: Op, number: int) -> bool:
    """Returns whether a product with the shared factor `number` may be summed in pairs of steps."""
    writer, rows = evaluator.writer, op.reads[1 - number]
    if len(op.summed) != 1 or any(access.tensor.element != "bf16" or not is_plain(access) for access in op.reads):
        return False
    if rows.step(op.summed[0]) is None or rows.group is not None or evaluator.stage.holds(rows.tensor):
        return False
    return find("dot-bfloats", writer.lanes, writer.features) is not None


class PairedTiles(StretchedTiles):
    """The writer of blocks of rows of one op, with a panel of words."""

    takes_triangles = False

    def _stack_panel(self, length: int) -> Buffer:
        return self.evaluator.stack("panel", self.op, -(-length // PAIR) * self.roles.width, WORD)

    def _sum(
        self,
        loops: list[tuple[tuple[int, ...], Size]],
        iterations: Sequence[Iteration],
        masks: Sequence[str | None],
        totals: list[Value],
        rows: int,
        within: bool = False,
    ) -> list[Value]:
        writer, span = self.writer, self.evaluator.span(self.sum)
        pairs, odd = self._pairs(span.first, span.last)
        together = self.together if isinstance(self.size, int) and self.size % (PAIR * self.together) == 0 else 1
        with writer.carrying(writer.size(0), pairs, together, totals) as loop:
            totals = loop.values
            for word in range(together):
                totals = self._add_words(span.first, variable(loop.index).plus(word), PAIR, iterations, totals, rows)
            loop.after = totals
        if self._is_even():
            return loop.results
        with writer.carrying(pairs, writer.let(f"arith.addi {pairs}, {odd} : index"), 1, loop.results) as last:
            last.after = self._add_words(span.first, variable(last.index), 1, iterations, last.values, rows)
        return last.results

    def _add_words(
        self, first: str, word: Form, count: int, iterations: Sequence[Iteration], totals: list[Value], rows: int
    ) -> list[Value]:
        """Returns the sums after the word with the index `word` of the panel, of `count` steps."""
        writer, vectors, after = self.writer, len(iterations) // rows, list[Value]()
        access, (loop,) = self.op.reads[1 - self.number], self.op.summed
        apart = access.step(loop)
        assert apart is not None, self.op.location
        panel = [
            writer.load(self.panel, word.times(self.roles.width).plus(v * writer.lanes) + LANES) for v in range(vectors)
        ]
        for row in range(rows):
            at = {**iterations[row * vectors], self.sum: variable(first) + word.times(PAIR)}
            memory = self.evaluator.home(access, self.op, at)
            pair = writer.broadcast(writer.load_words(*memory, PAIR, count, apart))
            for v in range(vectors):
                with writer.at(self.op.body.location):
                    after.append(add_products(writer, _DOT, totals[row * vectors + v], [panel[v], pair]))
        return after

    def _is_even(self) -> bool:
        return isinstance(self.size, int) and self.size % PAIR == 0

    def _pairs(self, start: str, stop: str) -> tuple[str, str]:
        """Returns the numbers of whole pairs and of single steps in a stretch."""
        writer = self.writer
        steps, two = writer.let(f"arith.subi {stop}, {start} : index"), writer.size(PAIR)
        return writer.let(f"arith.divui {steps}, {two} : index"), writer.let(f"arith.remui {steps}, {two} : index")

    def _fill(
        self, iteration: Iteration, column: Form, masks: Sequence[str | None], start: str, stop: str, kept: Kept
    ) -> str | None:
        """Copies the columns, all vectors of a word before the next one: they share cache lines."""
        writer, lanes = self.writer, self.writer.lanes

        def copy(word: Form, count: int) -> None:
            for v, mask in enumerate(masks):
                at = {**iteration, self.roles.lane: column.plus(v * lanes) + LANES}
                with writer.masked(mask):
                    joined = self._join(at, variable(start) + word.times(PAIR), count)
                writer.store(self.panel, word.times(self.roles.width).plus(v * lanes) + LANES, joined)

        self._each_word(*self._pairs(start, stop), copy)
        return None

    def _join(self, at: Iteration, step: Form, count: int) -> Value:
        """Returns words of `count` steps of the columns, from `step` on."""
        writer = self.writer
        first, *second = [self._as_word({**at, self.sum: step.plus(i)}) for i in range(count)]
        if not second:
            return first
        sixteen = writer.constant("16", WORD)
        shifted = writer.apply("arith.shli", "", [*second, sixteen], WORD)
        return writer.apply("arith.ori", "", [first, shifted], WORD)

    def _as_word(self, at: Iteration) -> Value:
        """Returns numbers of the columns as bits, in the lower halves of words."""
        buffer, form = self.evaluator.home(self.access, self.op, at)
        bits = self.writer.load(replace(buffer, element=stored_type(buffer.element)), form)
        return self.writer.apply("arith.extui", "", [bits], WORD)

    def _each_word(self, pairs: str, odd: str, copy: Callable[[Form, int], None], begin: str | None = None) -> None:
        """Writes the words of pairs from `begin` on, and the word of a single step."""
        writer = self.writer
        with writer.loop(writer.size(0) if begin is None else begin, pairs, 1) as word:
            copy(variable(word), PAIR)
        if not self._is_even():
            with writer.loop(pairs, writer.let(f"arith.addi {pairs}, {odd} : index"), 1) as word:
                copy(variable(word), 1)


class TurnedPairs(PairedTiles):
    """The writer of blocks of rows of one op, whose columns are rows of memory."""

    def _fill(
        self, iteration: Iteration, column: Form, masks: Sequence[str | None], start: str, stop: str, kept: Kept
    ) -> str | None:
        pairs, odd = self._pairs(start, stop)
        for v, mask in enumerate(masks):
            lanes = column.plus(v * self.writer.lanes)
            self._fill_vector({**iteration, self.roles.lane: lanes}, v * self.writer.lanes, mask, start, pairs, odd)
        return None

    def _fill_vector(self, at: Iteration, lane: int, mask: str | None, start: str, pairs: str, odd: str) -> None:
        """Copies a vector of columns from `at` on to the lanes from `lane` on of all words."""
        writer, lanes, column = self.writer, self.writer.lanes, at[self.roles.lane]
        end = writer.size(self.stage.sizes[self.roles.lane])

        def words_of(word: Form, i: int, count: int) -> Value:
            """Returns the words of column i, or of the last column: lanes beyond it are not used."""
            here = column.plus(i)
            if mask is not None:
                last = writer.let(f"arith.subi {end}, {writer.size(1)} : index")
                here = variable(writer.let(f"arith.minui {writer.index(here)}, {last} : index"))
            step = variable(start) + word.times(PAIR)
            memory = self.evaluator.home(self.access, self.op, {**at, self.roles.lane: here, self.sum: step})
            return writer.load_words(*memory, PAIR, count)

        def slot(word: Form) -> Form:
            return word.times(self.roles.width).plus(lane)

        whole = writer.rounded(writer.size(0), pairs, lanes)
        with writer.loop(writer.size(0), whole, lanes) as first:
            rows = [words_of(variable(first) + LANES, i, PAIR) for i in range(lanes)]
            for i, words in enumerate(transpose(writer, rows)):
                writer.store(self.panel, slot(variable(first).plus(i)) + LANES, words)

        def copy(word: Form, count: int) -> None:
            for i in range(lanes):
                writer.store(self.panel, slot(word).plus(i), words_of(word, i, count))

        self._each_word(pairs, odd, copy, whole)
