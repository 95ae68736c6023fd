"""Finds attention among the launches of a kernel: two products, and the softmax between them.

    scores   = q k^T                     perhaps with an epilogue: scale, masks; f32
    greatest = maximum of scores along the keys
    weights  = exp(scores - greatest)
    total    = sum of weights along the keys
    shares   = weights / total           rounded to the dtype of the values; those of f32 perhaps scaled, or masked by 0
    result   = shares v                  perhaps with an epilogue: rounding

The values may be zeros from a length on, and before a start: an op that copies them so, between the shares and the
result, is left out. The search depends neither on names of operators nor on dims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from ....dialect.emitter import ZERO, identity
from ...base.mlir import ir
from ..structured.body_nodes import Node
from ..structured.operations import body_of, captured_by, maps_of, operands_of
from ..structured.positions import Position
from ..structured.values import float_of, root_of
from .attention import Attention, describe_attention
from .bodies import describe_nest, take_beside, take_body
from .body_values import number_of, numbers_read, read_body
from .causal import find_causal
from .flash_split import can_split
from .groups import Group, touches
from .lengths import (
    Bound,
    Length,
    MaskedOperand,
    find_bounds,
    have_one_length,
    masked_operand,
    read_condition,
    take_length,
)
from .widened_reads import read_narrow


def join_attention(
    computing: Sequence[Any],
    groups: Sequence[Group],
    scratch: Collection[Any],
    fits: Callable[[Attention | None], bool],
) -> list[Group]:
    """Returns the launches; one launch replaces each group of six that form an attention which `fits`, or two if its
    keys may be split."""
    made: list[Group] = []
    position = 0
    while position < len(groups):
        for count in (6, 7):
            several = groups[position : position + count]
            if len(several) == count and (found := _find(computing, several, scratch)) is not None and fits(found):
                joined = Group(tuple(n for group in several for n in group.members), attention=tuple(several))
                made += [joined, *([replace(joined, combines=True)] if can_split(found) else [])]
                break
        else:
            count = 1
            made.append(groups[position])
        position += count
    return made


def _find(computing: Sequence[Any], groups: Sequence[Group], scratch: Collection[Any]) -> Attention | None:
    """Returns the attention of six launches, or of seven with a mask of the values; None if they are none."""
    masks = [computing[group.members[-1]] for group in groups[5:-1]]
    if not _is_attention(computing, groups, scratch):
        return None
    first, last = groups[0], groups[-1]
    scores, values = (describe_nest(computing[group.members[1]], "", [True]) for group in (first, last))
    end = computing[first.members[2]] if first.has_epilogue else None
    found = describe_attention(scores, values, None if end is None else find_causal(end))
    shares = computing[groups[4].members[0]]
    if _is_scaled(shares):
        hides = bool(_hiding(shares))
        is_bound = found is not None and bool(masks) and end is not None and _hides_as(shares, found, end)
        if scores.inputs[0].element != "f32" or (hides and not is_bound):
            return None
    return found if found is None or not masks or _mask_of_values(found, masks[0]) is not None else None


def _bound_of_scores(attention: Attention, end: Any, *, is_start: bool) -> Bound | None:
    """Returns the length from which on scores are -inf, or the start, if it is the same for all rows."""
    bounds = _bounds_of_keys(attention, end, is_start)
    return next((bound for bound in bounds if bound.loops <= set(attention.batch)), None)


def _bounds_of_rows(attention: Attention, end: Any, *, is_start: bool) -> list[Bound]:
    """Returns the lengths from which on scores are -inf, or the starts, which differ between rows."""
    known, rows = {*attention.batch, *attention.rows}, set(attention.rows)
    return [b for b in _bounds_of_keys(attention, end, is_start) if b.loops & rows and b.loops <= known]


def _bounds_of_keys(attention: Attention, end: Any, is_start: bool) -> list[Bound]:
    bounds = find_bounds(end, -float("inf"))
    return [bound for bound in bounds if bound.axis == attention.key and bound.is_start == is_start]


def _mask_of_values(attention: Attention, mask: Any) -> MaskedOperand | None:
    """Returns the values that are 0 from a length on, and before a start, if these are the same for all columns."""
    found = masked_operand(mask)
    if found is None:
        return None
    axes, later = attention.values.inputs[1].plain_axes(), attention.of_values()
    batch = {later[axis] for axis in attention.batch}
    own = all(axes[b.axis] == later[attention.key] and {axes[n] for n in b.loops} <= batch for b in found.bounds)
    return found if own else None


def unmask_values(product: Any, mask: Any) -> None:
    """Makes a product read the values that a mask copies, or widens."""
    found = masked_operand(mask)
    assert found is not None, mask
    source, masked = operands_of(mask)[0][found.number], product.operands[1]
    if ir.MemRefType(source.type).element_type == ir.MemRefType(masked.type).element_type:
        product.operands[1] = source
    else:
        read_narrow(product, source, masked, found.value.kind)


def take_attention(
    module: Any, name: str, first: Sequence[Any], shares: Any, last: Sequence[Any], mask: Any = None
) -> tuple[Attention, list[Any]]:
    """Moves the bodies of an attention's products, and of their epilogues, into functions of a module: those of two
    launches, each the fill, the product and perhaps the epilogue, and that of the op which computes the `shares`, if it
    scales them. The product reads values that are 0 outside of bounds if there is a `mask`, an op. Returns the
    attention, and the values its schedule takes."""
    end = first[2] if len(first) > 2 else None
    causal = None if end is None else find_causal(end)
    found = describe_attention(describe_nest(first[1], "", [True]), describe_nest(last[1], "", [True]), causal)
    assert found is not None, name
    if end is not None:
        found = _take_bounds(module, name, found, end)
    of_values: list[Length] = []
    if mask is not None:
        found, of_values = _take_bounds_of_values(module, name, found, mask)
    scores, _ = take_body(module, first[1], f"{name}_scores", [True])
    (q, k), results = operands_of(first[1])
    parts, passed = results, list[Any]()
    if end is not None:
        epilogue, passed = take_beside(module, f"{scores.name}_last", results[0], end)
        scores = replace(scores, epilogue=epilogue)
    scaled, hidden = None, len(_hiding(shares)) if _is_scaled(shares) else 0
    if _is_scaled(shares):
        # The schedule divides by the totals at the end.
        weights, total = operands_of(shares)[0][:2]
        with ir.InsertionPoint(shares), shares.location:
            element = ir.MemRefType(total.type).element_type
            one = ir.Operation.create("arith.constant", [element], attributes={"value": ir.FloatAttr.get(element, 1.0)})
        shares.operands[1] = one.results[0]
        scaled, others = take_beside(module, f"{name}_shares", weights, shares)
        passed += others
    for each in of_values:
        inputs, _ = operands_of(mask)
        passed += [*(inputs[number] for number in each.reads), *captured_by(body_of(mask))]
    values, _ = take_body(module, last[1], name, [True])
    inputs, results = operands_of(last[1])
    passed += [*inputs, *results, operands_of(last[0])[0][0]]
    if len(last) > 2:
        epilogue, others = take_beside(module, f"{name}_last", results[0], last[2])
        values, passed = replace(values, epilogue=epilogue), passed + others
    found = replace(found, scores=scores, values=values, shares=scaled, hides=hidden > 0, hides_start=hidden > 1)
    return found, [q, k, *(parts if can_split(found) else ()), *passed]


def _take_bounds(module: Any, name: str, found: Attention, end: Any) -> Attention:
    """Moves the bounds of the keys into functions of a module: those of all rows, and those of single ones."""

    def of_all(is_start: bool, what: str) -> Length | None:
        bound = _bound_of_scores(found, end, is_start=is_start)
        return None if bound is None else take_length(module, end, bound, f"{name}_{what}", "%x")

    def of_rows(is_start: bool, what: str) -> tuple[Length, ...]:
        bounds = enumerate(_bounds_of_rows(found, end, is_start=is_start))
        made = [take_length(module, end, bound, f"{name}_{what}{number}", "%x") for number, bound in bounds]
        return tuple(each for each in made if each is not None)

    return replace(
        found,
        length=of_all(False, "length"),
        start=of_all(True, "start"),
        ends=of_rows(False, "end"),
        begins=of_rows(True, "begin"),
    )


def _take_bounds_of_values(module: Any, name: str, found: Attention, mask: Any) -> tuple[Attention, list[Length]]:
    """Moves the bounds of the values into functions of a module. Returns the attention with them, and the bounds."""
    masked = _mask_of_values(found, mask)
    assert masked is not None, name
    kept = since = None
    if masked.length is not None:
        kept = take_length(module, mask, masked.length, f"{name}_kept", "%l")
    if masked.start is not None:
        since = take_length(module, mask, masked.start, f"{name}_since", "%n")
    made = [each for each in (kept, since) if each is not None]
    assert len(made) == len(masked.bounds), name
    return replace(found, kept=kept, since=since), made


def _is_attention(computing: Sequence[Any], groups: Sequence[Group], scratch: Collection[Any]) -> bool:
    first, most, _, total, _, *masks, last = groups
    if any(group.has_prologue for group in groups) or any(g.has_epilogue for g in groups[1:-1]):
        return False
    lengths = [len(group.members) - group.has_epilogue for group in groups]
    if lengths != [2, 2, 1, 2, 1, *(1 for _ in masks), 2]:
        return False
    ops = [computing[group.members[length - 1]] for group, length in zip(groups, lengths, strict=True)]
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
        and (not first.has_epilogue or _keeps_axes(computing[first.members[-1]], operands_of(ops[0])[1][0], rank))
        and _starts_with(computing[most.members[0]], lambda value: value == -float("inf"))
        and all(_starts_with(computing[g.members[0]], lambda value: value == 0) for g in (first, total, last))
        and _folds(ops[1], "arith.maximumf", memory[0], rank)
        and _computes(ops[2], ["arith.subf", "math.exp"], memory[:2], rank)
        and _folds(ops[3], "arith.addf", memory[2], rank)
        and (
            _computes(ops[4], ["arith.divf"], [memory[2], memory[3]], rank)
            or _scales_shares(ops[4], [memory[2], memory[3]], rank)
        )
        and root_of(operands_of(ops[-1])[0][0]) == memory[4]
        and (not masks or operands_of(ops[-1])[0][1] == made[5][0])
        and _are_own(computing, groups, memory[:-1], scratch)
    )


def _keeps_axes(end: Any, total: Any, rank: int) -> bool:
    """Returns whether an epilogue reads each sum where it writes its result."""
    inputs, _ = operands_of(end)
    maps = maps_of(end)
    read = [map for value, map in zip(inputs, maps, strict=False) if value == total]
    return all(map == identity(rank) for map in (*read, maps[-1]))


def _starts_with(fill: Any, holds: Callable[[float], bool]) -> bool:
    """Returns whether a fill writes a constant that a condition holds for."""
    number = float_of(operands_of(fill)[0][0])
    return number is not None and holds(number)


def _folds(op: Any, name: str, memory: Any, rank: int) -> bool:
    """Returns whether an op combines the last axis of a tensor by an operation."""
    (inputs, _), (source, *_, target) = operands_of(op), maps_of(op)
    kept = source == identity(rank) and target == identity(rank - 1)
    if len(inputs) != 1 or root_of(inputs[0]) != memory or not kept:
        return False
    found = read_body(op).combination(0)
    return found is not None and found[0] == name and found[1].kind == "read"


def _computes(op: Any, names: Sequence[str], read: Sequence[Any], rank: int) -> bool:
    """Returns whether an op computes elements of one tensor, and of another one that has no last axis, by a chain of
    operations, the first of both; the result may be rounded."""
    inputs, _ = operands_of(op)
    if len(inputs) != 2 or [root_of(value) for value in inputs] != list(read):
        return False
    whole, row, target = maps_of(op)
    if whole != identity(rank) or target != whole or not _is_of_rows(row, rank):
        return False
    (value,) = read_body(op).values
    first, *others = names
    for name in (*(["arith.truncf"] if value.kind == "arith.truncf" else []), *reversed(others)):
        if value.kind != name:
            return False
        (value,) = value.operands
    return value.kind == first and [(each.kind, each.number) for each in value.operands] == [("read", 0), ("read", 1)]


def _is_of_rows(map: Sequence[Position], rank: int) -> bool:
    """Returns whether an index has all axes of a tensor but the last one, which may be there with the size 1."""
    return tuple(position for position in map if position != ZERO) == identity(rank - 1)


def _is_scaled(shares: Any) -> bool:
    """Returns whether an op computes more than a weight divided by a total."""
    return len(operands_of(shares)[0]) > 2


def _scales_shares(op: Any, read: Sequence[Any], rank: int) -> bool:
    """Returns whether an op divides elements of one tensor by those of another one that has no last axis, and then only
    multiplies them by other numbers, or replaces them by 0: this may as well come before the division."""
    (inputs, _), body, maps = operands_of(op), read_body(op), maps_of(op)
    if [root_of(value) for value in inputs[:2]] != list(read) or not _is_of_rows(maps[1], rank):
        return False
    if any(map != identity(rank) for map in maps[:: len(maps) - 1]):
        return False
    nodes = {id(node): node for root in (*body.values, *body.effects) for node in root.walk()}.values()
    uses = Counter(id(operand) for operand in (*body.values, *(each for node in nodes for each in node.operands)))
    value: Node | None = body.values[0]
    while value is not None and uses[id(value)] == 1:
        if value.kind == "arith.divf":
            own = [(each.kind, each.number) for each in value.operands] == [("read", 0), ("read", 1)]
            return own and all(uses[id(each)] == 1 for each in value.operands)
        if value.kind == "arith.mulf":
            # The others depend on neither, as both have one use.
            value = next((each for each in value.operands if _has_weight(each)), None)
        elif value.kind == "arith.select" and number_of(value.operands[2]) == 0:
            value = value.operands[1]
        else:
            return False
    return False


def _hiding(shares: Any) -> list[Node]:
    """Returns the values that replace shares by 0 in a body, the outermost first."""
    value, made = read_body(shares).values[0], list[Node]()
    while value.kind in ("arith.mulf", "arith.select"):
        if value.kind == "arith.select":
            made.append(value)
            value = value.operands[1]
        else:
            value = next(each for each in value.operands if _has_weight(each))
    return made


def _hides_as(shares: Any, found: Attention, end: Any) -> bool:
    """Returns whether shares are 0 from the length on from which scores are -inf, and perhaps before the start too."""
    hidden = _hiding(shares)
    for value, is_start in zip(hidden, (False, True), strict=False):
        bound, own = _bound_of_scores(found, end, is_start=is_start), read_condition(shares, *value.operands[:2])
        if bound is None or own is None or not have_one_length((end, bound), (shares, own)):
            return False
    return len(hidden) in (1, 2)


def _has_weight(value: Node) -> bool:
    """Returns whether a value in the body of shares depends on the weight, its first input."""
    return 0 in numbers_read(value)


def _are_own(
    computing: Sequence[Any], groups: Sequence[Group], memory: Sequence[Any], scratch: Collection[Any]
) -> bool:
    """Returns whether no other op reads or writes the tensors between the products and the softmax."""
    members = {number for group in groups for number in group.members}
    own = [each for each in memory if each in scratch]
    return len(own) == len(memory) and not any(
        touches(op, each) for number, op in enumerate(computing) if number not in members for each in own
    )
