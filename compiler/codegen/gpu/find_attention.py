"""Finds attention among the launches of a kernel: two products, and the softmax between them.

    scores   = q k^T                     perhaps with an epilogue: scale, masks; f32
    greatest = maximum of scores along the keys
    weights  = exp(scores - greatest)
    total    = sum of weights along the keys
    shares   = weights / total           rounded to the dtype of the values
    result   = shares v                  perhaps with an epilogue: rounding

The search depends neither on names of operators nor on dims.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ...base.mlir import ir
from .attention import Attention, describe_attention
from .bodies import describe_nest, maps_of, operands_of, take_beside, take_body
from .causal import constant_of, find_causal
from .groups import Group, root_of, touches


def join_attention(
    computing: Sequence[Any],
    groups: Sequence[Group],
    scratch: Collection[Any],
    fits: Callable[[Attention | None], bool],
) -> list[Group]:
    """Returns the launches; one launch replaces each group of six that form an attention which `fits`."""
    made: list[Group] = []
    position = 0
    while position < len(groups):
        six = groups[position : position + 6]
        found = len(six) == 6 and _is_attention(computing, six, scratch)
        if found and fits(_read_attention(computing, six)):
            made.append(Group(tuple(n for group in six for n in group.members), attention=tuple(six)))
            position += 6
        else:
            made.append(groups[position])
            position += 1
    return made


def _read_attention(computing: Sequence[Any], six: Sequence[Group]) -> Attention | None:
    first, last = six[0], six[-1]
    scores, values = (describe_nest(computing[group.members[1]], "", [True]) for group in (first, last))
    end = computing[first.members[2]] if first.has_epilogue else None
    causal = None if end is None else find_causal(end)
    return describe_attention(scores, values, causal)


def take_attention(module: Any, name: str, first: Sequence[Any], last: Sequence[Any]) -> tuple[Attention, list[Any]]:
    """Moves the bodies of an attention's products, and of their epilogues, into functions of a module: those of two
    launches, each the fill, the product and perhaps the epilogue. Returns it, and the values its schedule takes."""
    causal = find_causal(first[2]) if len(first) > 2 else None
    scores, _ = take_body(module, first[1], f"{name}_scores", [True])
    (q, k), results = operands_of(first[1])
    passed = [q, k]
    if len(first) > 2:
        epilogue, others = take_beside(module, f"{scores.name}_last", results[0], first[2])
        scores, passed = replace(scores, epilogue=epilogue), passed + others
    values, _ = take_body(module, last[1], name, [True])
    inputs, results = operands_of(last[1])
    passed += [*inputs, *results, operands_of(last[0])[0][0]]
    if len(last) > 2:
        epilogue, others = take_beside(module, f"{name}_last", results[0], last[2])
        values, passed = replace(values, epilogue=epilogue), passed + others
    found = describe_attention(scores, values, causal)
    assert found is not None, name
    return found, passed


def _is_attention(computing: Sequence[Any], six: Sequence[Group], scratch: Collection[Any]) -> bool:
    first, most, weights, total, shares, last = six
    if any(group.has_prologue for group in six) or any(g.has_epilogue for g in (most, weights, total, shares)):
        return False
    lengths = [len(group.members) - group.has_epilogue for group in six]
    if lengths != [2, 2, 1, 2, 1, 2]:
        return False
    ops = [computing[group.members[length - 1]] for group, length in zip(six, lengths, strict=True)]
    if any(op.name != "linalg.generic" for op in ops):
        return False
    scores = operands_of(computing[first.members[-1]])[1]
    made = [scores, *(operands_of(op)[1] for op in ops[1:])]
    if any(len(results) != 1 for results in made):
        return False
    memory = [root_of(results[0]) for results in made]
    rank = ir.MemRefType(scores[0].type).rank
    return (
        str(ir.MemRefType(scores[0].type).element_type) == "f32"
        and (not first.has_epilogue or maps_of(computing[first.members[-1]])[-1] == _identity(rank))
        and _starts_with(computing[most.members[0]], lambda value: value == -float("inf"))
        and all(_starts_with(computing[g.members[0]], lambda value: value == 0) for g in (first, total, last))
        and _folds(ops[1], "arith.maximumf", memory[0], rank)
        and _computes(ops[2], ["arith.subf", "math.exp"], memory[:2], rank)
        and _folds(ops[3], "arith.addf", memory[2], rank)
        and _computes(ops[4], ["arith.divf"], [memory[2], memory[3]], rank)
        and root_of(operands_of(ops[5])[0][0]) == memory[4]
        and _are_own(computing, six, memory[:5], scratch)
    )


def _identity(rank: int) -> Any:
    return ir.AffineMap.get_identity(rank)


def _names(op: Any) -> list[str]:
    return [inner.operation.name for inner in op.regions[0].blocks[0].operations][:-1]


def _starts_with(fill: Any, holds: Callable[[float], bool]) -> bool:
    """Returns whether a fill writes a constant that a condition holds for."""
    value = operands_of(fill)[0][0]
    number = constant_of(value)
    return number is not None and holds(number)


def _folds(op: Any, name: str, memory: Any, rank: int) -> bool:
    """Returns whether an op combines the last axis of a tensor by an operation."""
    (inputs, _), block = operands_of(op), op.regions[0].blocks[0]
    source, target = maps_of(op)[0], maps_of(op)[-1]
    kept = [str(expression) for expression in target.results] == [f"d{axis}" for axis in range(rank - 1)]
    alone = len(inputs) == 1 and root_of(inputs[0]) == memory and source == _identity(rank) and kept
    return alone and _names(op) == [name] and set(block.operations[0].operands) == set(block.arguments)


def _computes(op: Any, names: Sequence[str], read: Sequence[Any], rank: int) -> bool:
    """Returns whether an op computes elements of one tensor, and of another one that has no last axis, by a chain of
    operations, the first of both; the result may be rounded."""
    (inputs, _), block = operands_of(op), op.regions[0].blocks[0]
    if len(inputs) != 2 or [root_of(value) for value in inputs] != list(read):
        return False
    whole, row, target = maps_of(op)
    rows = [str(e) for e in row.results if str(e) != "0"] == [f"d{axis}" for axis in range(rank - 1)]
    operations = [inner.operation for inner in block.operations]
    found = [operation.name for operation in operations[:-1]]
    if whole != _identity(rank) or target != whole or not rows or found not in ([*names], [*names, "arith.truncf"]):
        return False
    if list(operations[0].operands) != list(block.arguments)[:2]:
        return False
    return all(after.operands[0] == before.results[0] for before, after in pairwise(operations))


def _are_own(computing: Sequence[Any], six: Sequence[Group], memory: Sequence[Any], scratch: Collection[Any]) -> bool:
    """Returns whether no other op reads or writes the tensors between the products and the softmax."""
    members = {number for group in six for number in group.members}
    own = [each for each in memory if each in scratch]
    return len(own) == len(memory) and not any(
        touches(op, each) for number, op in enumerate(computing) if number not in members for each in own
    )
