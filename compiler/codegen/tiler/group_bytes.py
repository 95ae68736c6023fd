"""Single bytes of a weight that is stored in groups of four steps of a sum, for an op that multiplies them one by one.

A group is a word, as in `dots.py`. The op becomes one whose step is a group; it adds the four products of its bytes:

    total += f(w[i]) * x[i]     ->     total += f(byte 0 of word[g]) * x[4*g] + ... + f(byte 3 of word[g]) * x[4*g + 3]

So vectors of columns are vectors of words, which are contiguous in memory.
"""

from __future__ import annotations

from dataclasses import replace

from ....dialect.dims import divide_exactly
from ....dialect.emitter import Index
from ..structured.body_nodes import Node
from ..structured.positions import Panel, linear
from .dots import SIZES, WORD, by_group, grouped_loop
from .structure import Access, Group, Op, Position

BYTE = "i8"
SIZE = SIZES[BYTE]
ADDITION = "arith.addf"


def unpack_groups(op: Op) -> Op:
    """Returns the op with a group as one step, where it adds up floats computed from single bytes of groups."""
    kind, added = op.combination or ("", op.body)
    packed = {n: loop for n, a in enumerate(op.reads) if (loop := _grouped_loop(a)) is not None}
    if kind != ADDITION or not packed or len(set(packed.values())) > 1:
        return op
    (loop,) = set(packed.values())
    groups = divide_exactly(op.loops[loop], SIZE)
    others = [a for n, a in enumerate(op.reads) if n not in packed and loop in a.loops()]
    if (
        op.parallel[loop]
        or groups is None
        or any(isinstance(p, Panel) and _moves(p, loop) for a in others for p in a.index)
    ):
        return op
    if any(node.kind in ("index", "extract") for node in added.walk()):
        return op
    reads: list[Access] = []
    numbers: dict[tuple[int, int], int] = {}
    """The new number of a read for each byte of a group."""
    for number, access in enumerate(op.reads):
        for byte in range(SIZE) if loop in access.loops() and number not in packed else (0,):
            numbers[number, byte] = len(reads)
            reads.append(_of_group(access, loop, byte, number in packed))
    products = [_of_byte(added, byte, numbers, set(packed), {}) for byte in range(SIZE)]
    total = products[0]
    for product in products[1:]:
        total = replace(added, kind=ADDITION, operands=(total, product), number=0, text="")
    start = next(node for node in op.body.operands if node.kind == "start")
    sizes = tuple(groups if n == loop else size for n, size in enumerate(op.loops))
    body = replace(op.body, operands=(start, total))
    return Op(sizes, op.parallel, tuple(reads), op.map, body, op.start, op.location)


def _grouped_loop(access: Access) -> int | None:
    return grouped_loop(access, SIZE) if access.group is None and access.tensor.element == BYTE else None


def _moves(position: Position, loop: int) -> bool:
    return loop in dict(linear(position).coefficients)


def _of_group(access: Access, loop: int, byte: int, packed: bool) -> Access:
    """Returns the read of a word, or of the element beside a byte of it."""
    if packed:
        return replace(access, index=by_group(access.index, loop, SIZE), group=Group(SIZE, loop, 0))
    return replace(access, index=tuple(_element(p, loop, byte) for p in access.index))


def _element(position: Position, loop: int, byte: int) -> Position:
    if not isinstance(position, Index):
        return position
    coefficients = dict(position.coefficients)
    moved = coefficients.get(loop, 0)
    scaled = tuple((n, c * SIZE if n == loop else c) for n, c in position.coefficients)
    return Index(scaled, position.constant + moved * byte)


def _of_byte(
    node: Node, byte: int, numbers: dict[tuple[int, int], int], packed: set[int], done: dict[int, Node]
) -> Node:
    """Returns a value of the body for one byte of a group."""
    if id(node) not in done:
        operands = tuple(_of_byte(operand, byte, numbers, packed, done) for operand in node.operands)
        if node.kind != "read":
            done[id(node)] = replace(node, operands=operands)
        elif node.number in packed:
            word = replace(node, type=WORD, number=numbers[node.number, 0])
            shift = Node("constant", WORD, text=f"{8 * byte} : {WORD}")
            moved = Node("arith.shrui", WORD, (word, shift), location=node.location)
            done[id(node)] = Node("arith.trunci", BYTE, (moved,), location=node.location)
        else:
            number = numbers.get((node.number, byte), numbers[node.number, 0])
            done[id(node)] = replace(node, number=number)
    return done[id(node)]
