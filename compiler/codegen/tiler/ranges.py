"""Finds the part of each row that a mask of positions keeps, so that the rest need not be computed.

    masked   = select(column <= row + c, scores, low)     low everywhere outside of [begin, end), both affine in row
    greatest = max of masked along the row
    weights  = exp(masked - greatest)                     0 outside, as soon as low is far enough below greatest
    total    = sum of weights along the row               unchanged by zeros
    result   = sum of weights / total * values            unchanged by zeros, as long as the values are finite

Two facts hold at run time only: `greatest` is far above `low`, and the values are finite. `bounded.py` checks them and
computes whole rows where they do not hold.

A mask may instead keep the columns before a length that is known at run time, the same for all rows of a block. Then
the values are selected by the same length, and need not be finite after it:

    masked   = select(column < length, scores, -inf)
    result   = sum of weights / total * select(column < length, values, 0)

Inside of such a mask, each row may have a length of its own, such as the number of tokens before the call plus the row.
The largest one of a block bounds its rows. The two facts above are checked then, for the values before `length`:

    masked   = select(column < length, select(column < own length of the row, scores, low), -inf)

Rows may begin at a start as well, such as the number of tokens before the call less a sliding window. The values are
then selected by it too. Inside of its mask, each row may have a start of its own:

    masked   = select(column < length, select(column >= start, select(column >= own start, scores, low), -inf), -inf)
    result   = sum of weights / total * select(column < length, select(column >= start, values, 0), 0)

This file reads structured ops and writes no code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf, isnan

from ....dialect.dims import Size, add, multiply
from ....dialect.emitter import Index
from ....dialect.lazy_dataclass import dataclass
from ..structured.body_nodes import FLOAT_BITS, Node, number_of
from .pages import is_in_pages
from .schedule import Stage
from .selections import ROUNDED, WIDENED, WIDENINGS, without
from .structure import Access, Op

_PREDICATES: Mapping[str, str] = {
    "predicate = 2 : i64": "<",
    "predicate = 3 : i64": "<=",
    "predicate = 4 : i64": ">",
    "predicate = 5 : i64": ">=",
}
"""The signed comparisons, as MLIR prints them."""
_NEGATED: Mapping[str, str] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MIRRORED: Mapping[str, str] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Affine:
    """An affine form: `sum(coefficient * position of the class) + constant`."""

    terms: tuple[tuple[int, int], ...]
    constant: Size

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        total = dict(self.terms)
        for c, coefficient in other.terms:
            total[c] = total.get(c, 0) + factor * coefficient
        constant = add(self.constant, multiply(other.constant, factor))
        return Affine(tuple((c, k) for c, k in sorted(total.items()) if k), constant)

    def times(self, factor: int) -> Affine:
        return Affine((), 0).plus(self, factor)


@dataclass(frozen=True, slots=True)
class Kept:
    """The range of a mask: kept elements are at or after all of `lower` and before all of `upper`, or before `length`,
    a node in the body of an op; the others are `low`. Those before `length` may be kept before `ends` only, and from
    `begins` on, nodes of the same body that depend on the row; those outside of one of them are at most the greatest of
    `lows`. Those before `start`, which is the same for all rows, are `low` too."""

    low: float
    lower: tuple[Affine, ...]
    upper: tuple[Affine, ...]
    length: tuple[Op, Node] | None = None
    start: Node | None = None
    ends: tuple[Node, ...] = ()
    begins: tuple[Node, ...] = ()
    lows: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class MaskedRows:
    """A stage whose rows, along the class `column`, matter only where a mask keeps them.

    `greatest` are the maxima of the masked rows, `sums` the contractions over them with the factor that multiplies each
    weight, and `factors` the numbers that weights are multiplied by before. `hidden` holds if weights after a length
    are 0 even in a row without a maximum, `started` if values before a start are 0, and `ended` if each row may end at
    the ends of its block, and begin at its begins.
    """

    column: int
    kept: Kept
    greatest: Op
    sums: tuple[tuple[Op, Node], ...]
    hidden: bool = False
    started: bool = False
    ended: bool = False
    factors: tuple[tuple[Op, Node], ...] = ()


def find_masked_rows(stage: Stage, row: int | None) -> MaskedRows | None:
    """Returns the masked rows of a stage, whose blocks hold several positions of the class `row`, or a single one if it
    is None; returns None where an op needs all of a row."""
    for op in stage.ops:
        for loop in op.outer:
            column = stage.of(op, loop)
            if op.reduced or column in stage.outer or stage.sizes[column] == 1:
                continue
            kept = _Masks(stage, column, row).kept(op, op.body)
            found = None if kept is None else _Uses(stage, column, row, op, kept).find()
            if found is not None:
                return found
    return None


def find_kept(stage: Stage, op: Op, column: int, row: int | None) -> Kept | None:
    """Returns the range of the class `column` beyond which all elements of an op are one constant."""
    return _Masks(stage, column, row).kept(op, op.body)


class _Masks:
    """The analysis of conditions on positions."""

    def __init__(self, stage: Stage, column: int, row: int | None) -> None:
        self.stage, self.column, self.row = stage, column, row

    def kept(self, op: Op, node: Node) -> Kept | None:
        """Returns the range of indices beyond which all elements of the op are one constant."""
        node = without(node, WIDENED)
        if node.kind != "arith.select":
            return None
        condition, then, otherwise = node.operands
        for wanted, inside, low in ((True, then, otherwise), (False, otherwise, then)):
            number = number_of(low)
            if number is None:
                continue
            length = self.length(op, condition) if wanted and number == -inf else None
            if length is not None:
                return self._kept_before(number, op, length, inside)
            bounds = list(self._bounds(op, condition, wanted))
            inner = self.kept(op, inside)
            if inner is not None and inner.low == number:
                bounds += [(True, a) for a in inner.lower] + [(False, a) for a in inner.upper]
            if bounds:
                return Kept(
                    number, tuple(a for below, a in bounds if below), tuple(a for below, a in bounds if not below)
                )
        return None

    def _kept_before(self, low: float, op: Op, length: Node, node: Node) -> Kept:
        """Returns the range that a mask keeps before a length, with the bounds in the masks within a node, and the
        numbers that these masks select."""
        start: Node | None = None
        rows: dict[bool, list[Node]] = {False: [], True: []}
        lows: list[float] = []
        seen: list[float] = []
        while node.kind == "arith.select" and (number := number_of(node.operands[2])) is not None and not isnan(number):
            seen.append(number)
            same = self.length(op, node.operands[0], is_start=True) if number == -inf and start is None else None
            start = same or start
            for is_start in (False, True) if same is None else ():
                bound = self.length(op, node.operands[0], of_row=True, is_start=is_start)
                if bound is not None:
                    rows[is_start].append(bound)
                    lows = [*seen]
            node = node.operands[1]
        return Kept(low, (), (), (op, length), start, tuple(rows[False]), tuple(rows[True]), tuple(lows))

    def length(self, op: Op, condition: Node, *, of_row: bool = False, is_start: bool = False) -> Node | None:
        """Returns the length of a condition `column < length`, or the start of `column >= start`: a number that is
        known at run time, and equal for all rows of a block unless it is one `of_row`."""
        wanted = ">=" if is_start else "<"
        if condition.kind != "arith.cmpi" or _PREDICATES.get(condition.text) != wanted:
            return None
        column, length = condition.operands
        if self._affine(op, column) != Affine(((self.column, 1),), 0):
            return None
        outer = {c for c in self.stage.outer if of_row or c != self.row}
        for node in length.walk():
            if node.kind == "index" and of_row and self.stage.of(op, node.number) in outer:
                continue
            if node.kind in ("start", "index", "extract", "watch"):
                return None
            if node.kind == "read":
                access = op.reads[node.number]
                if self.stage.holds(access.tensor) or not {self.stage.of(op, i) for i in access.loops()} <= outer:
                    return None
        return length if of_row or any(node.kind == "read" for node in length.walk()) else None

    def _bounds(self, op: Op, node: Node, wanted: bool) -> Iterator[tuple[bool, Affine]]:
        """Yields the bounds on the column (True for lower ones) that hold wherever the condition equals `wanted`."""
        if node.kind == ("arith.andi" if wanted else "arith.ori"):
            for operand in node.operands:
                yield from self._bounds(op, operand, wanted)
        elif node.kind == "arith.xori" and node.operands[1].text == "true":
            yield from self._bounds(op, node.operands[0], not wanted)
        elif node.kind == "arith.cmpi" and _PREDICATES.get(node.text):
            left, right = (self._affine(op, operand) for operand in node.operands)
            if left is not None and right is not None:
                predicate = _PREDICATES[node.text]
                yield from self._compared(left.plus(right, -1), predicate if wanted else _NEGATED[predicate])
        elif node.kind == "read" and (source := self._source(op, node)) is not None:
            yield from self._bounds(source, source.body, wanted)

    def _compared(self, difference: Affine, predicate: str) -> Iterator[tuple[bool, Affine]]:
        """Yields the bounds that `difference predicate 0` sets."""
        factor = dict(difference.terms).get(self.column, 0)
        if factor not in (1, -1):
            return
        rest = difference.plus(Affine(((self.column, factor),), 0), -1)
        bound = rest.times(-factor)
        predicate = predicate if factor == 1 else _MIRRORED[predicate]
        if any(c not in self.stage.outer for c, _ in bound.terms):
            return
        one = Affine((), 1)
        yield predicate in (">", ">="), bound.plus(one) if predicate in ("<=", ">") else bound

    def _affine(self, op: Op, node: Node) -> Affine | None:
        if node.kind == "index":
            return Affine(((self.stage.of(op, node.number), 1),), 0)
        if node.kind == "size":
            return Affine((), node.size)
        if node.kind == "constant" and node.type in ("index", "i64", "i32"):
            return Affine((), int(node.text.partition(" ")[0]))
        if node.kind == "read":
            source = self._source(op, node)
            return None if source is None else self._affine(source, source.body)
        if node.kind in ("arith.index_cast", "arith.extsi"):
            return self._affine(op, node.operands[0])
        if node.kind in ("arith.addi", "arith.subi", "arith.muli"):
            left, right = (self._affine(op, operand) for operand in node.operands)
            if left is None or right is None:
                return None
            if node.kind != "arith.muli":
                return left.plus(right, 1 if node.kind == "arith.addi" else -1)
            for this, other in ((left, right), (right, left)):
                if not this.terms and isinstance(this.constant, int):
                    return other.times(this.constant)
        return None

    def _source(self, op: Op, node: Node) -> Op | None:
        """Returns the stage's op that a node reads, if that op is not a reduction."""
        tensor = op.reads[node.number].tensor
        return tensor.op if tensor.op is not None and self.stage.holds(tensor) and not tensor.op.reduced else None


class _Uses:
    """The analysis of the ops that read masked rows."""

    def __init__(self, stage: Stage, column: int, row: int | None, masked: Op, kept: Kept) -> None:
        self.stage, self.column, self.masked, self.kept = stage, column, masked, kept
        self.masks = _Masks(stage, column, row)
        self.greatest: list[Op] = []
        self.zero: list[Op] = []
        """Ops that are 0 outside of the kept range."""
        self.sums: list[tuple[Op, Node]] = []
        self.hidden: list[Op] = []
        """Ops that select 0 after the length."""
        self.started = kept.start is not None
        self.ended = bool(kept.ends or kept.begins)
        self.factors: list[tuple[Op, Node]] = []

    def find(self) -> MaskedRows | None:
        """Returns the masked rows; None where an op along the rows is not recognised."""
        stage = self.stage
        along = [op for op in stage.ops if self.column in stage.loops(op)]
        before = along[: along.index(self.masked)]
        later = along[len(before) + 1 :]
        if any(op in stage.sinks for op in along if self.column in stage.parallel(op)):
            return None
        if any(self._reads(op, earlier) for op in later for earlier in before):
            return None
        if any(self.column in stage.reduced(op) for op in before):
            return None
        if not all(self._take(op) for op in later) or len(self.greatest) != 1 or not self.sums:
            return None
        weights = [a.tensor.op for op, _ in self.sums for a in op.reads if a.tensor.op in self.zero]
        hidden = all(op in self.hidden for op in weights)
        sums, factors = tuple(self.sums), tuple(self.factors)
        return MaskedRows(self.column, self.kept, self.greatest[0], sums, hidden, self.started, self.ended, factors)

    def _take(self, op: Op) -> bool:
        if self.column in self.stage.reduced(op):
            return self._take_reduction(op)
        if op.reduced or not self._is_zero(op, op.body):
            return False
        self.zero.append(op)
        if self._selects(op, without(op.body, WIDENED, ROUNDED)):
            self.hidden.append(op)
        return True

    def _take_reduction(self, op: Op) -> bool:
        if len(op.reduced) != 1:
            return False
        kind, added = op.combination or ("", op.body)
        if kind == "arith.maximumf" and self._is_read_of(op, added, [self.masked]):
            self.greatest.append(op)
            return True
        if kind != "arith.addf":
            return False
        if self._is_read_of(op, added, self.zero):
            return True
        return self._take_product(op)

    def _take_product(self, op: Op) -> bool:
        if op.product is None:
            return False
        for weight, value in (op.product, op.product[::-1]):
            if not self._is_read_of(op, without(weight, WIDENED), self.zero):
                continue
            if self.kept.length is not None:
                selection = without(value, WIDENED)
                if self._selects(op, selection):
                    self.sums.append((op, value))
                    has_start, inner = self._selected(op, selection)
                    self.started &= has_start
                    self.ended &= self._is_plain(op, inner)
                    return True
            elif self._is_plain(op, value):
                self.sums.append((op, value))
                return True
        return False

    def _is_plain(self, op: Op, value: Node) -> bool:
        """Returns whether a value is a product of numbers in memory, so that a loop before the stage can check it."""
        reads = [op.reads[n.number] for n in value.walk() if n.kind == "read"]
        kinds = ("read", "constant", "arith.mulf", *WIDENINGS)
        plain = value.type in FLOAT_BITS and all(n.kind in kinds for n in value.walk())
        return plain and not any(self.stage.holds(read.tensor) or is_in_pages(read) for read in reads)

    def _is_zero(self, op: Op, node: Node) -> bool:
        """Returns whether the value is 0 outside of the range: a weight, a weight divided by the sum of weights, or the
        exponential that computes weights."""
        node = without(node, WIDENED, ROUNDED)
        if self._is_read_of(op, node, self.zero):
            return True
        if self._selects(op, node):
            has_start, inner = self._selected(op, node)
            self.started &= has_start
            self.ended &= self._is_zero(op, inner) or self._is_scaled(op, inner)
            return True
        if node.kind == "arith.divf":
            weight, total = node.operands
            return (
                self._is_zero(op, weight) and total.kind == "read" and self._is_total(op.reads[total.number].tensor.op)
            )
        if node.kind != "math.exp" or node.operands[0].kind != "arith.subf":
            return False
        score, most = node.operands[0].operands
        return self._is_read_of(op, score, [self.masked]) and self._is_read_of(op, most, self.greatest)

    def _is_scaled(self, op: Op, node: Node) -> bool:
        """Returns whether a node is a weight times a number in memory."""
        if node.kind != "arith.mulf":
            return False
        for weight, factor in (node.operands, node.operands[::-1]):
            if self._is_zero(op, weight) and self._is_plain(op, factor):
                self.factors.append((op, factor))
                return True
        return False

    def _selects(self, op: Op, node: Node, *, is_start: bool = False) -> bool:
        """Returns whether a node is 0 after the length that masks the rows, or before the start."""
        if self.kept.length is None or node.kind != "arith.select" or number_of(node.operands[2]) != 0:
            return False
        masked, length = self.kept.length
        own, bound = self.masks.length(op, node.operands[0], is_start=is_start), self.kept.start if is_start else length
        return own is not None and bound is not None and self._is_same(op, own, masked, bound)

    def _selected(self, op: Op, node: Node) -> tuple[bool, Node]:
        """Returns the value that a node selects before the length, without a selection from the start on, and whether
        there is one."""
        inner = node.operands[1]
        has_start = self._selects(op, inner, is_start=True)
        return has_start, inner.operands[1] if has_start else inner

    def _is_same(self, op: Op, node: Node, other: Op, second: Node) -> bool:
        """Returns whether two nodes are one number in a block of rows."""
        if node.kind == "read" == second.kind:
            left, right = op.reads[node.number], other.reads[second.number]
            same = left.tensor.view == right.tensor.view and left.tensor.element == right.tensor.element
            return same and self._steps(op, left) == self._steps(other, right)
        alike = (node.kind, node.type, node.text, node.size) == (second.kind, second.type, second.text, second.size)
        if not alike or node.kind == "read" or len(node.operands) != len(second.operands):
            return False
        pairs = zip(node.operands, second.operands, strict=True)
        return all(self._is_same(op, a, other, b) for a, b in pairs)

    def _steps(self, op: Op, access: Access) -> list[dict[int, int] | None]:
        """Returns the index of an access by classes."""
        return [
            {self.stage.of(op, loop): factor for loop, factor in p.coefficients} | {-1: p.constant}
            if isinstance(p, Index)
            else None
            for p in access.index
        ]

    def _is_total(self, op: Op | None) -> bool:
        """Returns whether the op is the sum of exponentials with a maximum of 1, so that it is neither 0 nor
        infinite."""
        if op is None or op not in self.stage.ops or op.combination is None or op.combination[0] != "arith.addf":
            return False
        added = op.combination[1]
        source = op.reads[added.number].tensor.op if added.kind == "read" else None
        return source in self.zero and source is not None and source.body.kind == "math.exp"

    def _is_read_of(self, op: Op, node: Node, sources: list[Op]) -> bool:
        return node.kind == "read" and any(op.reads[node.number].tensor.op is source for source in sources)

    def _reads(self, op: Op, source: Op) -> bool:
        return any(a.tensor.op is source for a in op.reads)
