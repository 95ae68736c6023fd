"""Indices that rows find by comparing bytes and by looking up tables of a few hundred words, in vectors of bytes.

`find_byte_index` reads the index of a load, such as that of a leaf of a tree. These are its parts; any other one leaves
the index to `row_values.py`:

    rows[block, c + row]                            the bytes of a column, if c is equal in all rows
    select, cmpi, ..., and bytes of all rows        vectors of bytes and of truth values
    number = 2 * number + bit                       an integer: its low byte, and single bits
    table[number + constant]                        a word; registers hold the bytes of it that are read
    rows[block, (word & mask) + row]                a choice among a few columns by the bits of a number in the word

A register holds a byte of each of LINE words. The low byte of a number, modulo LINE, is the position in a line; the
further bits select the line. A table of four lines has numbers of eight bits:

    number    7 6 | 5 4 3 2 1 0        the line, and the position in it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ....dialect.lazy_dataclass import dataclass
from ..structured.body_nodes import Node
from .structure import Op, View

LINE = 64
"""The number of words of a line: a register holds one byte of each."""
LINE_BITS = LINE.bit_length() - 1
MOST_LINES, MOST_COLUMNS = 32, 32
"""The lines of a table in registers, and the columns of a choice."""
MOST_ENTRIES = 1 << 16
_BYTES = ("i1", "i8")
_ELEMENTWISE = ("arith.select", "arith.cmpi", "arith.andi", "arith.ori", "arith.xori")
Test = Callable[[Node], bool]


@dataclass(frozen=True, slots=True)
class Table:
    """Words of a tensor, `lines` lines of them. `number` counts from the word `first` of the last axis; `others` are
    the indices on the other axes."""

    view: View
    others: tuple[Node, ...]
    first: int
    number: Node
    lines: int


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice among `columns` columns: the number in the bits of a word from `shift` on, modulo `columns`."""

    word: Node
    shift: int
    columns: int


@dataclass(frozen=True, slots=True)
class ByteIndex:
    """An index into the elements of a view: `number`, which is at most `most`, and the addends `shared` by all rows.
    All columns are those of `rows`, [blocks, width]. The other fields have parts of the index by the identity of a
    node: `columns` the addends of the position of a column that is equal in all rows."""

    values: View
    shared: tuple[Node, ...]
    number: Node
    most: int
    rows: View
    width: int
    tables: dict[int, Table]
    choices: dict[int, Choice]
    columns: dict[int, tuple[Node, ...]]


def find_byte_index(op: Op, root: Node, lane: int, varies: Test, moves: Test) -> ByteIndex | None:
    """Returns the parts of the index of an `extract`; None if they have another form, or if there is no table. `lane`
    is the loop of the rows. `varies` tells which nodes differ between the rows of a block, and `moves` which of them
    differ between blocks."""
    try:
        return _Finder(op, lane, varies, moves).find(root)
    except _Unknown:
        return None


class _Unknown(Exception):  # noqa: N818 (a reason, not an error)
    """A node that is no part of such an index."""


class _Finder:
    def __init__(self, op: Op, lane: int, varies: Test, moves: Test) -> None:
        self.lane, self.varies, self.moves = lane, varies, moves
        size = op.loops[lane]
        assert isinstance(size, int), op.location
        self.size = size
        self.rows: tuple[View, int] | None = None
        self.tables: dict[int, Table] = {}
        self.choices: dict[int, Choice] = {}
        self.columns: dict[int, tuple[Node, ...]] = {}
        self.known: set[int] = set()

    def find(self, root: Node) -> ByteIndex:
        view = _view(root)
        if view.strides != (1,):
            raise _Unknown
        shared, number = self._split(root.operands[0])
        most = greatest(number)
        self._read_number(number)
        if most >= MOST_ENTRIES or self.rows is None or not self.tables or any(map(self.moves, shared)):
            raise _Unknown
        return ByteIndex(view, shared, number, most, *self.rows, self.tables, self.choices, self.columns)

    def _split(self, index: Node) -> tuple[tuple[Node, ...], Node]:
        """Returns the addends of an index that are equal in all rows of a block, and the one that is not."""
        node, shared = plain(index), list[Node]()
        while node.kind == "arith.addi" and not all(map(self.varies, node.operands)):
            left, right = node.operands
            node, other = (left, right) if self.varies(left) else (right, left)
            node = plain(node)
            shared.append(other)
        return tuple(shared), node

    def _read_number(self, node: Node) -> None:
        """Checks an integer: bytes that are widened, or twice an integer and a bit."""
        node = plain(node)
        parts = doubled(node)
        if parts is not None:
            for part in parts:
                self._read_number(part)
        elif node.kind == "arith.extui" and self.varies(node):
            self._read_bytes(node.operands[0])
        else:
            raise _Unknown

    def _read_bytes(self, node: Node) -> None:
        """Checks a vector of bytes or of truth values."""
        if id(node) in self.known:
            return
        self.known.add(id(node))
        if node.type not in _BYTES:
            raise _Unknown
        if not self.varies(node):
            return
        if node.kind in _ELEMENTWISE:
            for operand in node.operands:
                self._read_bytes(operand)
        elif node.kind == "arith.trunci" and node.type == "i8":
            self._read_word(node.operands[0])
        else:
            self._read_column(node)

    def _read_column(self, node: Node) -> None:
        view = _view(node)
        assert node.tensor is not None, node
        width = node.tensor.shape[-1]
        *others, position = node.operands
        are_blocks = len(others) == 1 and plain(others[0]).kind == "index" and not self.varies(others[0])
        if node.type != "i8" or not are_blocks or view.strides[-1] != 1 or not isinstance(width, int):
            raise _Unknown
        if width % self.size or (self.rows is not None and self.rows != (view, width)):
            raise _Unknown
        self.rows = view, width
        parts = list(_addends(position))
        own = [part for part in parts if self.varies(part)]
        words = [part for part in own if part.kind != "index"]
        if len(own) - len(words) != 1:
            raise _Unknown
        if not words:
            shared = tuple(part for part in parts if part not in own)
            if not all(map(self._begins_column, shared)):
                raise _Unknown
            self.columns[id(node)] = shared
        elif len(parts) == 2:
            self.choices[id(node)] = self._read_choice(words[0], width // self.size)
        else:
            raise _Unknown

    def _begins_column(self, position: Node) -> bool:
        """Returns whether a position is known to be a multiple of the rows of a block."""
        factors = [integer_of(part) for part in (position.operands if position.kind == "arith.andi" else (position,))]
        return any(factor is not None and factor % self.size == 0 for factor in factors) and self.size.bit_count() == 1

    def _read_choice(self, position: Node, columns: int) -> Choice:
        """Reads the position of a column: `word >> shift & (columns - 1) * rows`."""
        bits, mask = self.size.bit_length() - 1, (columns - 1) * self.size
        if position.kind != "arith.andi" or columns > MOST_COLUMNS or columns & columns - 1 or self.size != 1 << bits:
            raise _Unknown
        masked = [left for left, right in (position.operands, position.operands[::-1]) if integer_of(right) == mask]
        if not masked:
            raise _Unknown
        word, shift = plain(masked[0]), 0
        while word.kind in ("arith.extui", "arith.shrui"):
            if word.kind == "arith.shrui":
                by = integer_of(word.operands[1])
                if by is None:
                    raise _Unknown
                shift += by
            word = plain(word.operands[0])
        self._read_word(word)
        return Choice(word, shift + bits, columns)

    def _read_word(self, node: Node) -> None:
        """Checks a word of a table, which is inside of it for all numbers."""
        if id(node) in self.tables:
            return
        view, (*others, last) = _view(node), node.operands
        assert node.tensor is not None, node
        if node.type != "i32" or view.strides[-1] != 1 or any(self.varies(n) or self.moves(n) for n in others):
            raise _Unknown
        shared, number = self._split(last)
        constants = [constant for part in shared if (constant := integer_of(part)) is not None]
        first, lines, size = sum(constants), -(-(greatest(number) + 1) // LINE), node.tensor.shape[-1]
        is_inside = isinstance(size, int) and first >= 0 and first + lines * LINE <= size
        if len(constants) < len(shared) or not is_inside or lines > MOST_LINES or lines & lines - 1:
            raise _Unknown
        self.tables[id(node)] = Table(view, tuple(others), first, number, lines)
        self._read_number(number)


def _view(node: Node) -> View:
    """Returns the memory of an `extract`."""
    if node.kind != "extract" or node.guard is not None or node.tensor is None or node.tensor.view is None:
        raise _Unknown
    view: View = node.tensor.view
    return view


def plain(node: Node) -> Node:
    """Returns an index without casts."""
    while node.kind == "arith.index_cast":
        (node,) = node.operands
    return node


def _addends(node: Node) -> Iterator[Node]:
    node = plain(node)
    if node.kind != "arith.addi":
        yield node
        return
    for operand in node.operands:
        yield from _addends(operand)


def integer_of(node: Node) -> int | None:
    """Returns the value of an integer constant."""
    node = plain(node)
    return int(node.text.partition(" ")[0]) if node.kind == "constant" and node.type.startswith("i") else None


def doubled(node: Node) -> tuple[Node, Node] | None:
    """Returns `x` and `bit` of x + x + bit."""
    if node.kind != "arith.addi":
        return None
    for twice, bit in (node.operands, node.operands[::-1]):
        is_bit = bit.kind == "arith.extui" and bit.operands[0].type == "i1"
        if is_bit and twice.kind == "arith.addi" and twice.operands[0] is twice.operands[1]:
            return plain(twice.operands[0]), bit
    return None


def greatest(number: Node) -> int:
    """Returns an upper bound of an integer, which is not negative. Raises _Unknown."""
    number = plain(number)
    parts = doubled(number)
    if parts is not None:
        return 2 * greatest(parts[0]) + 1
    if number.kind == "arith.extui":
        return 1 if number.operands[0].type == "i1" else greatest(number.operands[0])
    if number.kind == "arith.select":
        return max(map(greatest, number.operands[1:]))
    value = integer_of(number)
    if value is None or value < 0:
        raise _Unknown
    return value
