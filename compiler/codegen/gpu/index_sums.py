"""Reads an index as a sum: its summands, the factors of these, and the most that they can be.

first + i    where first = 8 * block and i < min(left, 8):   8 * block, and a number from 0 to 7
"""

from __future__ import annotations

from typing import Any

from ...base.mlir import ir
from ..structured.values import integer_of, made_by

_SLT, _SLE, _SGT, _SGE = 2, 3, 4, 5
"""Predicates of `arith.cmpi`."""


def summands(value: Any) -> list[Any]:
    """Returns the values whose sum a value is."""
    value = without_casts(value)
    made = made_by(value, "arith.addi")
    return [value] if made is None else [part for operand in made.operands for part in summands(operand)]


def scale_of(value: Any) -> tuple[Any, int]:
    """Returns a value and the constant by which it is multiplied."""
    value = without_casts(value)
    made = made_by(value, "arith.muli")
    for number, operand in enumerate(() if made is None else made.operands):
        factor = constant_of_index(operand)
        if made is not None and factor is not None and factor > 0:
            inner, more = scale_of(made.operands[1 - number])
            return inner, factor * more
    return value, 1


def most_of(value: Any) -> int | None:
    """Returns the greatest number that a constant or the variable of a loop from 0 can be; None for another value, and
    for one that may be negative."""
    value = without_casts(value)
    constant = constant_of_index(value)
    if constant is not None:
        return constant if constant >= 0 else None
    if not isinstance(value.owner, ir.Block) or ir.BlockArgument(value).arg_number != 0:
        return None
    loop = value.owner.owner.operation
    if loop.name != "scf.for" or constant_of_index(loop.operands[0]) != 0:
        return None
    end = _bound(loop.operands[1])
    return None if end is None else max(end - 1, 0)


def _bound(value: Any) -> int | None:
    """Returns a number that the end of a loop does not exceed."""
    value = without_casts(value)
    constant = constant_of_index(value)
    if constant is not None:
        return constant
    least = made_by(value, "arith.minsi")
    if least is not None:
        return min((bound for bound in map(_bound, least.operands) if bound is not None), default=None)
    chosen = made_by(value, "arith.select")
    return None if chosen is None else _bound_of_choice(*chosen.operands)


def _bound_of_choice(condition: Any, yes: Any, no: Any) -> int | None:
    """Returns the bound of `left >= 8 ? 0 : left`, or of one with a known bound on both sides."""
    made = made_by(condition, "arith.cmpi")
    if made is None:
        return None
    predicate, limit = ir.IntegerAttr(made.attributes["predicate"]).value, constant_of_index(made.operands[1])
    bounds = [_bound(yes), _bound(no)]
    compared = without_casts(made.operands[0])
    if limit is not None and without_casts(no) == compared and predicate in (_SGE, _SGT):
        bounds[1] = limit - (predicate == _SGE)
    if limit is not None and without_casts(yes) == compared and predicate in (_SLT, _SLE):
        bounds[0] = limit - (predicate == _SLT)
    known = [bound for bound in bounds if bound is not None]
    return max(known) if len(known) == len(bounds) else None


def without_casts(value: Any) -> Any:
    made = made_by(value, "arith.index_cast")
    return value if made is None else without_casts(made.operands[0])


def constant_of_index(value: Any) -> int | None:
    """Returns the number that a value is in every call."""
    return integer_of(without_casts(value))
