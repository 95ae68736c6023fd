"""The schedule of loops that write each element at a place of its own, such as the tokens that a call adds to a cache.

    for i, j:  y[i, position + j] = x[i, j]         a thread for each (i, j)

Loops run in their order in one thread, unless every iteration is known to write other elements: each loop is the only
one in an index of what is written, as itself plus a number that no loop changes. Nothing that they write is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...base.mlir import ir
from .bodies import empty_function
from .groups import root_of
from .plain import THREADS, split_number
from .text import Text

_FOR, _LOAD, _STORE, _YIELD = "scf.for", "memref.load", "memref.store", "scf.yield"


@dataclass(frozen=True)
class Updates:
    """Loops that may run in any order, the outermost one first: their variables, their ends, and the operations inside
    them."""

    variables: tuple[Any, ...]
    ends: tuple[Any, ...]
    operations: tuple[Any, ...]


def find_updates(op: Any) -> Updates | None:
    """Returns the loops of a nest; None unless each iteration writes elements that no other one reads or writes."""
    variables, ends, operations = [], [], list[Any]()
    while op is not None:
        if op.name != _FOR or len(op.operands) != 3 or not (_is(op.operands[0], 0) and _is(op.operands[2], 1)):
            return None
        block = op.regions[0].blocks[0]
        variables.append(block.arguments[0])
        ends.append(op.operands[1])
        inner = [each.operation for each in block.operations][:-1]
        loops = [each for each in inner if each.name == _FOR]
        if loops and (len(loops) > 1 or inner[-1] != loops[0]):
            return None
        operations += [each for each in inner if each.name != _FOR]
        op = loops[0] if loops else None
    found = Updates(tuple(variables), tuple(ends), tuple(operations))
    return found if _are_apart(found) else None


def _is(value: Any, number: int) -> bool:
    made = value.owner
    if isinstance(made, ir.Block) or made.name != "arith.constant":
        return False
    return bool(ir.IntegerAttr(made.attributes["value"]).value == number)


def _are_apart(updates: Updates) -> bool:
    stores = [op for op in updates.operations if op.name == _STORE]
    loads = [op for op in updates.operations if op.name == _LOAD]
    others = [op for op in updates.operations if op.name not in (_STORE, _LOAD)]
    if not stores or any(not op.name.startswith(("arith.", "math.")) or list(op.regions) for op in others):
        return False
    written = [root_of(op.operands[1]) for op in stores]
    if len(set(written)) != len(written) or any(root_of(op.operands[0]) in written for op in loads):
        return False
    return all(_writes_own_place(updates, list(op.operands)[2:]) for op in stores)


def _writes_own_place(updates: Updates, indices: Sequence[Any]) -> bool:
    """Returns whether each loop has an index of its own."""
    parts = [_variable_of(updates, index) for index in indices]
    if any(part is None for part in parts):
        return False
    found = [part for part in parts if part is not None and part >= 0]
    return sorted(found) == list(range(len(updates.variables)))


def _variable_of(updates: Updates, value: Any) -> int | None:
    """Returns the loop whose variable, plus a number that no loop changes, a value is; -1 if no loop changes it; None
    for another value."""
    if value in updates.variables:
        return updates.variables.index(value)
    made = value.owner
    if isinstance(made, ir.Block) or made not in updates.operations:
        return -1
    parts = [_variable_of(updates, operand) for operand in made.operands]
    if all(part == -1 for part in parts):
        return -1
    if made.name == "arith.index_cast":
        return parts[0]
    moving = [part for part in parts if part != -1]
    return moving[0] if made.name == "arith.addi" and len(moving) == 1 else None


def take_updates(module: Any, name: str, updates: Updates) -> tuple[str, list[Any]]:
    """Moves the operations of loops into a function of a module. Returns the text of the schedule, and the values that
    it takes: the ends of the loops, then what the operations capture."""
    inside = {result for op in updates.operations for result in op.results} | set(updates.variables)
    used = [operand for op in updates.operations for operand in op.operands]
    captured = list(dict.fromkeys(value for value in used if value not in inside))
    loops = len(updates.variables)
    types = [*[ir.IndexType.get()] * loops, *(value.type for value in captured)]
    target = empty_function(module, f"{name}_body", types, []).regions[0].blocks[0]
    arguments = list(target.arguments)
    for variable, argument in zip(updates.variables, arguments, strict=False):
        variable.replace_all_uses_with(argument)
    for op in updates.operations:
        target.append(op)
        for value, argument in zip(captured, arguments[loops:], strict=True):
            op.replace_uses_of_with(value, argument)
    with ir.InsertionPoint(target), ir.Location.unknown():
        ir.Operation.create("func.return")
    return _write(name, loops, [str(value.type) for value in captured]), [*updates.ends, *captured]


def _write(name: str, loops: int, captured: Sequence[str]) -> str:
    text = Text()
    sizes = [f"%n{number}" for number in range(loops)]
    number = text.add(text.multiply(text.special("ctaid.x"), text.constant(THREADS)), text.special("tid.x"))
    with text.block(f"scf.if {text.below(number, text.multiply(*sizes))}"):
        names = [*split_number(text, number, sizes), *(f"%c{n}" for n in range(len(captured)))]
        types = ", ".join([*["index"] * loops, *captured])
        text.line(f"func.call @{name}_body({', '.join(names)}) : ({types}) -> ()")
    ends = [f"{size}: index" for size in sizes]
    given = ", ".join([*ends, *(f"%c{n}: {type}" for n, type in enumerate(captured))])
    body = f"func.func private @{name}_body({', '.join([*['index'] * loops, *captured])})\n"
    count = Text()
    blocks = count.index("ceildivui", count.multiply(*sizes), count.constant(THREADS))
    counted = count.function(f"@{name}_count({', '.join(ends)}) -> index", [blocks], ["index"])
    return body + text.function(f"@{name}({given})") + counted
