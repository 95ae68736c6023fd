"""Reads from pages that a table names, where they are: rows of joined pages are never in memory.

    joined[b, h, s, d] = pool[table[b, s / 32], h, s mod 32, d]          a separate op, with pages of 32
    y[b, h, i, d]      = sum of w[b, h, i, s] * joined[b, h, s, d] over s
    ->
    y[b, h, i, d]      = sum of w[b, h, i, s] * pool at (Page(s, 32), h, Panel(s, 32, within), d)

`Page` holds the node that computes `table[b, s / 32]` and moves it into the pool. Vectors that run along s stay within
a page: it is a power of two, and loops along s begin at multiples of their steps. Sums over s run page by page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ....dialect.emitter import Index
from ..structured.body_nodes import Node
from ..structured.positions import Panel, plain
from .forms import LANES, Form, constant, variable
from .structure import Access, Kernel, Op, Page, Position, Unsupported
from .text import Writer

_CASTS = ("arith.index_cast",)


def take_pages(kernel: Kernel) -> None:
    """Replaces reads of joined pages by reads of the pool, for sums of products and selections that they read."""
    summed = {id(op) for op in kernel.ops if op.product is not None}
    for op in reversed(kernel.ops):
        if id(op) in summed:
            # Operands of sums, and those of selections among them.
            summed |= {id(access.tensor.op) for access in op.reads}
            if op.product is not None or not any(tensor.op is op for tensor in kernel.written):
                _read_pool(op)
    for source in [op for op in kernel.ops if op.body.kind == "read" and is_in_pages(op.reads[0])]:
        readers = [(op, n) for op in kernel.ops for n, access in enumerate(op.reads) if access.tensor.op is source]
        moved = [_moved_access(source.reads[0], source, op.reads[n]) for op, n in readers]
        elsewhere = any(n.tensor is not None and n.tensor.op is source for op in kernel.ops for n in op.body.walk())
        if elsewhere or None in moved:
            continue
        for (op, number), access in zip(readers, moved, strict=True):
            assert access is not None
            op.reads = (*op.reads[:number], access, *op.reads[number + 1 :])
        kernel.ops.remove(source)


def is_in_pages(access: Access) -> bool:
    return any(isinstance(position, Page) for position in access.index)


def split_page(writer: Writer, total: Form, width: int) -> tuple[Form, Form]:
    """Returns a position of the page that a position, or a vector of positions, lies in, and the position within the
    page."""
    lanes = writer.lanes if total.lane == 1 else 1
    if total.lane not in (0, 1) or width % lanes:
        raise Unsupported("pages that are read across")
    known = [(v, k) for v, k in total.base.terms if isinstance(k, int) and k > 0]
    begin = tuple(t for t in known if writer.is_multiple(Form((t,)), width))
    inside = tuple(t for t in known if t not in begin and t[0] in writer.below)
    lane = LANES if total.lane == 1 else constant(0)
    if isinstance(total.constant, int) and len(begin) + len(inside) == len(total.base.terms):
        whole, rest = divmod(total.constant, width)
        if rest + sum(k * (writer.below[v] - 1) for v, k in inside) + lanes <= width:
            return Form(begin, whole * width), Form(inside, rest) + lane
    if lanes > 1 and not writer.is_multiple(total.base, lanes):
        raise Unsupported("vectors that may cross pages")
    rest_of = writer.let(f"arith.remui {writer.index(total.base)}, {writer.size(width)} : index")
    return total.base, variable(rest_of) + lane


# Recognition


def _read_pool(op: Op) -> None:
    """Replaces an element of joined pages in the body of an op by a read of the pool."""
    for node in [n for n in op.body.walk() if n.kind == "extract"]:
        access = _joined(node)
        if access is not None:
            # The node stays the operand of others.
            node.kind, node.number, node.tensor, node.operands = "read", len(op.reads), None, ()
            op.reads = (*op.reads, access)
            return


def _joined(node: Node) -> Access | None:
    """Returns the access of an element of joined pages, in the loops of its op; None for other elements."""
    if node.guard is not None or node.tensor is None or len(node.operands) < 2:
        return None
    number, *inner = node.operands
    within = [_within(part) for part in inner]
    found = [pair for pair in within if pair is not None]
    if len(found) != 1:
        return None
    loop, width = found[0]
    if not _is_number(number, loop, width):
        return None
    positions: list[Position] = []
    for part, pair in zip(inner, within, strict=True):
        own = _loop(part)
        if pair is None and own is None:
            return None
        positions.append(Panel(Index(((loop, 1),)), width, True) if own is None else Index(((own, 1),)))
    beside = frozenset(n.number for n in number.walk() if n.kind == "index" and n.number != loop)
    return Access(node.tensor, (Page(Index(((loop, 1),)), width, number, beside), *positions))


def _bare(node: Node) -> Node:
    while node.kind in _CASTS:
        (node,) = node.operands
    return node


def _loop(node: Node) -> int | None:
    node = _bare(node)
    return node.number if node.kind == "index" else None


def _constant(node: Node) -> int | None:
    node = _bare(node)
    return int(node.text.partition(" ")[0]) if node.kind == "constant" else None


def _within(node: Node) -> tuple[int, int] | None:
    """Returns the loop and the width of `index and (width - 1)`."""
    node = _bare(node)
    if node.kind != "arith.andi":
        return None
    loop, mask = _loop(node.operands[0]), _constant(node.operands[1])
    if loop is None or mask is None or mask < 0 or mask & (mask + 1):
        return None
    return loop, mask + 1


def _is_number(node: Node, loop: int, width: int) -> bool:
    """Returns whether a node depends on the loop only through `table[..., loop / width]`."""
    tables = [n for n in node.walk() if n.kind == "extract"]
    if len(tables) != 1 or tables[0].guard is not None:
        return False
    *outer, last = tables[0].operands
    last = _bare(last)
    if last.kind != "arith.shrsi" or _loop(last.operands[0]) != loop:
        return False
    shift = _constant(last.operands[1])
    if shift is None or 1 << shift != width or any(_loop(n) in (None, loop) for n in outer):
        return False
    return all(n.kind not in ("read", "start", "watch") for n in node.walk())


# Replacement


def _moved_access(joined: Access, source: Op, access: Access) -> Access | None:
    """Returns the access to the pool for a read of the op's result; None if the read is not simple."""
    axes, positions = access.tensor.axes, dict[int, Index]()
    if axes is None or access.group is not None:
        return None
    for computed, axis in zip(source.map, axes, strict=True):
        loop = plain(computed)
        position = Index(()) if axis is None else access.index[axis]
        if loop is None or not isinstance(position, Index):
            return None
        positions[loop] = position
    moved = [move(position, positions) for position in joined.index]
    if len(positions) != len(source.loops) or any(position is None for position in moved):
        return None
    return replace(joined, index=tuple(position for position in moved if position is not None))


def move(position: Position, positions: Mapping[int, Index]) -> Position | None:
    """Returns a position in other loops, with the index of each old loop; None if it cannot be written."""
    if isinstance(position, Index):
        total = Index((), position.constant)
        for loop, coefficient in position.coefficients:
            total = total + positions[loop] * coefficient
        return total
    index = move(position.index, positions)
    assert isinstance(index, Index), position
    if isinstance(position, Panel):
        # A vector that begins at a sum could begin in the middle of a panel.
        return replace(position, index=index) if not index.coefficients or plain(index) is not None else None
    loops = {loop: plain(positions[loop]) for loop in (*position.beside, *dict(position.index.coefficients))}
    fixed = {loop for loop in position.beside if positions[loop] == Index(())}
    if any(new is None for loop, new in loops.items() if loop not in fixed):
        return None
    made: dict[int, Node] = {}

    def copy(node: Node) -> Node:
        if id(node) not in made:
            if node.kind == "index" and node.number in fixed:
                made[id(node)] = Node("constant", node.type, text="0")
            elif node.kind == "index":
                made[id(node)] = replace(node, number=loops[node.number] or 0)
            else:
                made[id(node)] = replace(node, operands=tuple(copy(operand) for operand in node.operands))
        return made[id(node)]

    beside = frozenset(new for loop in position.beside - fixed if (new := loops[loop]) is not None)
    return Page(index, position.width, copy(position.number), beside)
