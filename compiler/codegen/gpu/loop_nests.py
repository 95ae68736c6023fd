"""Finds the loops of a nest whose iterations touch different elements, so that threads may run them in any order.

    for i, j:  y[i, position + j] = x[i, j]      i and j: each is an index of all that is written, plus a fixed number
    for u, j:  y[at[u], j] += x[u, j]            j; the steps of u that touch the same row have an order
    for i:     while ...: y[i, n] = ...          i
    for i:     for j < 8: y[8 * i + j] = ...     i; it is a block of elements

Elements at places that only the call knows, such as the row `at[u]`, are shared out instead: if each step touches one
place, which depends on nothing written, then a thread runs the steps whose places it owns, in their order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ....dialect.lazy_dataclass import dataclass
from ...base.mlir import ir
from ..structured.values import constant_of, root_of
from .body_slices import operations_for
from .index_sums import constant_of_index, most_of, scale_of, summands

FOR, LOAD, STORE = "scf.for", "memref.load", "memref.store"
_PURE = ("arith.", "math.")
_LOOPS, _BRANCHES = (FOR, "scf.while"), ("scf.if", "scf.yield", "scf.condition")
_Form = tuple[int, int, tuple[Any, ...]]
"""A loop, a factor of its variable, and the numbers that are added to the product; the loop -1 is none."""


@dataclass(frozen=True)
class LoopNest:
    """Loops, the outermost one first: their variables, their ends, and the operations inside the innermost one. The
    loops `parallel` touch different elements. `owned` are the indices, besides these loops, of the one place that each
    step touches; none unless places may be shared out. `places` is their number, if it is the same in every call."""

    variables: tuple[Any, ...]
    ends: tuple[Any, ...]
    operations: tuple[Any, ...]
    parallel: tuple[int, ...] = ()
    owned: tuple[Any, ...] = ()
    places: int | None = None

    @property
    def ordered(self) -> tuple[int, ...]:
        """The loops whose steps run in their order."""
        return tuple(loop for loop in range(len(self.variables)) if loop not in self.parallel)

    @property
    def has_loops(self) -> bool:
        """Whether the operations run loops of their own."""
        return any(op.name in _LOOPS for op in _walk(self.operations))


def find_loops(op: Any) -> LoopNest | None:
    """Returns the loops of a nest; None unless several threads may run it."""
    if not _is_loop(op):
        return None
    found = _peel(op)
    accesses = _accesses(found)
    if accesses is None:
        return None
    written = [root_of(_memory(access)) for access in accesses]
    places = [[_form(found, written, index) for index in _indices(access)] for access in accesses]
    parallel = tuple(n for n in range(len(found.variables)) if _has_own_place(n, places, written))
    nest = replace(found, parallel=parallel)
    if nest.ordered:
        nest = _share_places(nest, accesses, places[0])
    return nest if nest.parallel or nest.owned else None


def _peel(op: Any) -> LoopNest:
    """Returns the loops that contain each other and nothing else but operations that may be repeated."""
    variables, ends, operations = [], [], list[Any]()
    while op is not None:
        block = op.regions[0].blocks[0]
        variables.append(block.arguments[0])
        ends.append(op.operands[1])
        inner = [each.operation for each in block.operations][:-1]
        last = inner[-1] if inner else None
        others = inner[:-1]
        inside = {result for each in (*operations, *others) for result in each.results} | set(variables)
        is_nested = last is not None and _is_loop(last) and last.operands[1] not in inside
        if is_nested and all(each.name.startswith(_PURE) for each in others):
            operations += others
            op = last
        else:
            operations += inner
            op = None
    return LoopNest(tuple(variables), tuple(ends), tuple(operations))


def _is_loop(op: Any) -> bool:
    """Returns whether an op is a loop from 0 by steps of 1 that carries no values."""
    steps = [constant_of_index(op.operands[n]) for n in (0, 2)] if op.name == FOR and len(op.operands) == 3 else []
    return steps == [0, 1]


def _accesses(nest: LoopNest) -> list[Any] | None:
    """Returns the loads and stores of the memory that a nest writes, besides alarms; None if it has operations of
    another kind, or several views of this memory."""
    inside = _walk(nest.operations)
    if not all(op.name.startswith(_PURE) or op.name in (LOAD, STORE, *_LOOPS, *_BRANCHES) for op in inside):
        return None
    loaded = {root_of(_memory(op)) for op in inside if op.name == LOAD}
    stores = [op for op in inside if op.name == STORE and not _is_alarm(op, loaded)]
    views = {_memory(op) for op in stores}
    written = {root_of(view) for view in views}
    found = stores + [op for op in inside if op.name == LOAD and root_of(_memory(op)) in written]
    return found if found and len(views) == len(written) and all(_memory(op) in views for op in found) else None


def _is_alarm(store: Any, loaded: Collection[Any]) -> bool:
    """Returns whether a store writes a constant into a number that is not read: any iteration may do so."""
    is_constant = constant_of(store.operands[0]) is not None
    return is_constant and not _indices(store) and root_of(_memory(store)) not in loaded


def _walk(operations: Iterable[Any]) -> list[Any]:
    """Returns operations and those in their regions."""
    found: list[Any] = []

    def visit(op: Any) -> Any:
        found.append(op)
        return ir.WalkResult.ADVANCE

    for op in operations:
        op.walk(visit)
    return found


def _memory(access: Any) -> Any:
    return access.operands[access.name == STORE]


def _indices(access: Any) -> list[Any]:
    return list(access.operands)[1 + (access.name == STORE) :]


def _has_own_place(loop: int, places: Sequence[Sequence[_Form | None]], written: Sequence[Any]) -> bool:
    """Returns whether, in all accesses of each memory, the same index is the variable of a loop plus the same
    numbers."""
    for memory in dict.fromkeys(written):
        own = [place for place, root in zip(places, written, strict=True) if root == memory]
        axes = zip(*own, strict=True)
        if not any(forms[0] is not None and forms[0][0] == loop and len(set(forms)) == 1 for forms in axes):
            return False
    return True


def _form(nest: LoopNest, written: Sequence[Any], value: Any) -> _Form | None:
    """Returns the loop that a value depends on, if it is the variable times a factor, plus numbers that no loop
    changes, plus numbers that are below the factor together, such as the row of a block. None for another value."""
    parts = [(*scale_of(part), part) for part in summands(value)]
    moving = [
        (factor, -nest.variables.index(scaled), part) for scaled, factor, part in parts if scaled in nest.variables
    ]
    if not moving:
        return (-1, 1, (value,)) if _is_fixed(nest, written, value) else None
    factor, number, largest = max(moving, key=lambda each: each[:2])
    others = [part for _, _, part in parts if part is not largest]
    offsets = [most_of(part) if factor > 1 else None for part in others]
    fixed = [part for part, most in zip(others, offsets, strict=True) if most is None]
    if sum(most or 0 for most in offsets) >= factor or not all(_is_fixed(nest, written, part) for part in fixed):
        return None
    return -number, factor, tuple(sorted(fixed, key=hash))


def _is_fixed(nest: LoopNest, written: Sequence[Any], value: Any) -> bool:
    """Returns whether no loop changes a value."""
    is_argument = isinstance(value.owner, ir.Block)
    made = value.owner if is_argument else value.owner.operation
    outermost = nest.variables[0].owner.owner.operation
    if (made if is_argument else made.block) == outermost.block:
        return True
    if is_argument or made not in nest.operations or list(made.regions):
        return False
    if made.name == LOAD and root_of(_memory(made)) in written:
        return False
    return all(_is_fixed(nest, written, operand) for operand in made.operands)


def _share_places(nest: LoopNest, accesses: Sequence[Any], place: Sequence[_Form | None]) -> LoopNest:
    """Returns a nest with the indices of the one place that each step touches, without those that are parallel loops;
    the nest as it is if a step touches several places, or if a place depends on what the steps write or on loops."""
    indices, memory = _indices(accesses[0]), _memory(accesses[0])
    same = (each for each in accesses if _indices(each) == indices and _memory(each) == memory)
    if any(each not in nest.operations for each in accesses) or len(list(same)) < len(accesses):
        return nest
    axes = [axis for axis, form in enumerate(place) if form is None or form[0] not in (-1, *nest.parallel)]
    owned = tuple(indices[axis] for axis in axes)
    if any(op in accesses or list(op.regions) for op in operations_for(nest.operations, owned)):
        return nest
    type = ir.MemRefType(memory.type)
    is_known = not any(type.is_dynamic_dim(axis) for axis in axes)
    return replace(nest, owned=owned, places=prod(type.shape[axis] for axis in axes) if is_known else None)
