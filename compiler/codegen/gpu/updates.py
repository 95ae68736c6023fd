"""The schedule of loops that write elements, such as tokens added to a cache, rows of a gradient, or trees.

    for i, j:  y[i, position + j] = x[i, j]      updates: a thread for each (i, j)
    for u, j:  y[at[u], j] += x[u, j]            updates: threads for each j; each runs all u, and updates its own rows
    for i:     while ...: y[i, n] = ...          loops: a thread for each i

A row belongs to the thread whose number equals the lowest bits of the row's. So every element gets its updates from one
thread, in the order of the loops: the last write wins, and sums have the order of the reference. The threads read all
places, a cached number for a whole warp, and no more than their own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...base.mlir import ir
from ..structured.values import integer_of
from .bodies import empty_function
from .body_slices import operations_for
from .loop_nests import LoopNest
from .plain import THREADS, split_number
from .rows import WARP
from .schedules import Schedule
from .text import Text

_LOOP_THREADS, _LOOP_BLOCKS = 64, 4
"""Steps of loops and branches need many registers, and are spread over the processors where they are few."""
_ALL_THREADS = 1 << 15
"""The threads that share out places: enough to hide the latency of a device."""
_MOST_OWNERS, _USUAL_OWNERS = 1024, 64
"""The threads that share the places of the same parallel loops, at most, and where the loops have sizes of the call."""


def take_updates(module: Any, name: str, nest: LoopNest) -> tuple[Schedule, list[Any]]:
    """Moves the operations of loops into a function of a module. Returns the schedule, and the values that it takes:
    the ends of the parallel loops, then of the others, then what the operations capture."""
    captured = _captured(nest)
    loops = len(nest.variables)
    owners = _count_owners(nest)
    types = [*[ir.IndexType.get()] * (loops + 1), *(value.type for value in captured)]
    target = empty_function(module, f"{name}_body", types, []).regions[0].blocks[0]
    arguments = list(target.arguments)
    address = operations_for(nest.operations, nest.owned)
    for op in nest.operations:
        target.append(op)
    if owners > 1:
        _update_own(target, [op for op in nest.operations if op not in address], nest.owned, arguments[loops], owners)
    known = dict(zip((*nest.variables, *captured), (*arguments[:loops], *arguments[loops + 1 :]), strict=True))
    _replace(target, known)
    with ir.InsertionPoint(target), ir.Location.unknown():
        ir.Operation.create("func.return")
    order = (*nest.parallel, *nest.ordered)
    kind, threads, blocks = ("loops", _LOOP_THREADS, _LOOP_BLOCKS) if nest.has_loops else ("updates", THREADS, 0)
    text = _write(name, nest, [str(value.type) for value in captured], owners, threads)
    return Schedule(kind, threads, text, blocks, reason=_explain_few(nest, owners)), [
        *(nest.ends[loop] for loop in order),
        *captured,
    ]


def _captured(nest: LoopNest) -> list[Any]:
    """Returns the values from outside that operations use."""
    inside, used = set(nest.variables), dict[Any, None]()

    def visit(op: Any) -> Any:
        inside.update(op.results)
        inside.update(argument for region in op.regions for block in region for argument in block.arguments)
        used.update(dict.fromkeys(op.operands))
        return ir.WalkResult.ADVANCE

    for op in nest.operations:
        op.walk(visit, ir.WalkOrder.PRE_ORDER)
    return [value for value in used if value not in inside]


def _replace(block: Any, known: dict[Any, Any]) -> None:
    """Exchanges values in all operations of a block, and in their regions."""

    def visit(op: Any) -> Any:
        for operand in dict.fromkeys(op.operands):
            if operand in known:
                op.replace_uses_of_with(operand, known[operand])
        return ir.WalkResult.ADVANCE

    for op in block.operations:
        op.operation.walk(visit)


def _explain_few(nest: LoopNest, owners: int) -> str:
    """Returns the reason why fewer threads than those of a warp run, as the end of a sentence; empty if more do."""
    count = _count_parallel(nest)
    if count is None or count * owners >= WARP:
        return ""
    return f"{count * owners} thread{'s' * (count * owners != 1)} can run the loops, fewer than those of a warp"


def _count_parallel(nest: LoopNest) -> int | None:
    """Returns the iterations of the parallel loops together, if they are the same in every call."""
    count = 1
    for loop in nest.parallel:
        end = integer_of(nest.ends[loop])
        if end is None:
            return None
        count *= end
    return count


def _count_owners(nest: LoopNest) -> int:
    """Returns the number of threads that share places, a power of two; 1 where none are shared out."""
    if not nest.owned:
        return 1
    most, count = min(_MOST_OWNERS, nest.places or _MOST_OWNERS), _count_parallel(nest)
    return _power_of_two(min(_USUAL_OWNERS if count is None else _ALL_THREADS // max(count, 1), most))


def _power_of_two(most: int) -> int:
    """Returns the largest power of two that is not above a number, and at least 1."""
    return 1 << max(most.bit_length() - 1, 0)


def _update_own(block: Any, operations: Sequence[Any], owned: Sequence[Any], owner: Any, owners: int) -> None:
    """Runs operations at the end of a block if the lowest bits of a place's number are those of an owner."""
    index = ir.IndexType.get()

    def make(name: str, *operands: Any, type: Any = index, **attributes: Any) -> Any:
        return ir.Operation.create(f"arith.{name}", [type], list(operands), attributes).results[0]

    def constant(value: int) -> Any:
        return make("constant", value=ir.IntegerAttr.get(index, value))

    with ir.InsertionPoint(block), ir.Location.unknown():
        place = owned[0]
        for more in owned[1:]:
            # An odd factor spreads the places of neighbouring rows.
            place = make("addi", make("muli", place, constant(31)), more)
        equal = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0)
        own = make(
            "cmpi",
            make("andi", place, constant(owners - 1)),
            owner,
            type=ir.IntegerType.get_signless(1),
            predicate=equal,
        )
        branch = ir.Operation.create("scf.if", [], [own], regions=2)
        inside = branch.regions[0].blocks.append()
    for op in operations:
        inside.append(op)
    with ir.InsertionPoint(inside), ir.Location.unknown():
        ir.Operation.create("scf.yield")


def _write(name: str, nest: LoopNest, captured: Sequence[str], owners: int, threads: int) -> str:
    text = Text()
    count = len(nest.variables)
    sizes = {loop: f"%n{loop}" for loop in range(count)}
    shared = [text.constant(owners), *(sizes[loop] for loop in nest.parallel)]
    number = text.add(text.multiply(text.special("ctaid.x"), text.constant(threads)), text.special("tid.x"))
    with text.block(f"scf.if {text.below(number, text.multiply(*shared))}"):
        owner, *positions = split_number(text, number, shared)
        at = dict(zip(nest.parallel, positions, strict=True))
        _write_ordered(text, nest.ordered, sizes, at, lambda: _call_body(text, name, at, owner, captured))
    order = (*nest.parallel, *nest.ordered)
    given = [*(f"{sizes[loop]}: index" for loop in order), *(f"%c{n}: {type}" for n, type in enumerate(captured))]
    body = f"func.func private @{name}_body({', '.join([*['index'] * (count + 1), *captured])})\n"
    counting = Text()
    total = counting.multiply(counting.constant(owners), *(sizes[loop] for loop in nest.parallel))
    blocks = counting.index("ceildivui", total, counting.constant(threads))
    ends = ", ".join(f"{sizes[loop]}: index" for loop in nest.parallel)
    counted = counting.function(f"@{name}_count({ends}) -> index", [blocks], ["index"])
    return body + text.function(f"@{name}({', '.join(given)})") + counted


def _write_ordered(
    text: Text, left: Sequence[int], sizes: dict[int, str], at: dict[int, str], write: Callable[[], None]
) -> None:
    """Writes the loops whose steps have an order around what `write` writes."""
    if not left:
        write()
        return
    loop, *inner = left
    at[loop] = text.fresh()
    with text.block(f"scf.for {at[loop]} = {text.constant(0)} to {sizes[loop]} step {text.constant(1)}"):
        _write_ordered(text, inner, sizes, at, write)


def _call_body(text: Text, name: str, at: dict[int, str], owner: str, captured: Sequence[str]) -> None:
    names = [*(at[loop] for loop in sorted(at)), owner, *(f"%c{n}" for n in range(len(captured)))]
    types = ", ".join([*["index"] * (len(at) + 1), *captured])
    text.line(f"func.call @{name}_body({', '.join(names)}) : ({types}) -> ()")
