"""Functions of some values inside the body of a structured op: the operations that compute them, and no others.

body of an op       %0 = index_cast d2;  %1 = cmpi %0, n;  select %1, x, 0
slice of n          a function of the loops, and of the elements and captured values that n depends on
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.mlir import ir
from ..structured.operations import body_of, captured_by, iterators, operations_in
from .bodies import empty_function


def operations_for(operations: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Returns the operations that compute values, in their order."""
    wanted, found = list(values), []
    for op in reversed(operations):
        if any(result in wanted for result in op.results):
            found.append(op)
            wanted += list(op.operands)
    return found[::-1]


def begin_slice(
    module: Any, op: Any, symbol: str, given: Sequence[Any], values: Sequence[Any], results: Sequence[Any]
) -> tuple[Any, dict[Any, Any]] | None:
    """Adds a function of the `given` block arguments, of all loops and of all captured values of an op to a module. It
    computes the `values` of the body. Returns its block, which lacks the end, and the values inside it by those of the
    body; None if the operations have loops or branches. `results` are the types that it will return."""
    block = body_of(op)
    needed = operations_for(operations_in(block), values)
    if any(len(list(each.regions)) for each in needed):
        return None
    loops = len(iterators(op))
    captured = captured_by(block)
    types = [*(value.type for value in given), *[ir.IndexType.get()] * loops, *(value.type for value in captured)]
    target = empty_function(module, symbol, types, results).regions[0].blocks[0]
    arguments = list(target.arguments)
    positions = arguments[len(given) : len(given) + loops]
    known = dict(zip((*given, *captured), (*arguments[: len(given)], *arguments[len(given) + loops :]), strict=True))
    for each in needed:
        if each.name == "linalg.index":
            known[each.results[0]] = positions[ir.IntegerAttr(each.attributes["dim"]).value]
            continue
        with ir.InsertionPoint(target):
            clone = each.clone().operation
        for operand in list(clone.operands):
            if operand in known:
                clone.replace_uses_of_with(operand, known[operand])
        known |= dict(zip(each.results, clone.results, strict=True))
    return target, known
