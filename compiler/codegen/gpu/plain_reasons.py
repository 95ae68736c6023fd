"""Says why an op has the plain schedule: which property, that the other schedules need, its loops or operands lack."""

from __future__ import annotations

from ....dialect.wrapping import counted
from . import rows
from .alignment import BYTES
from .nest import Nest
from .vectors import WIDTH


def explain_plain(nest: Nest) -> str:
    """Returns the reason, as the end of a sentence."""
    if nest.has_loops:
        return "each element takes loops of its own"
    if nest.reductions:
        return _explain_reduction(nest)
    last = nest.outer[-1] if nest.outer else None
    if last is None:
        return "there is one element"
    moving = [operand for operand in nest.operands if operand.in_memory and last in operand.loops()]
    if moving and all(operand.element not in BYTES for operand in moving):
        return f"elements of {moving[0].element} are not read several at once"
    size = nest.static_extent(last)
    if size is not None and size % WIDTH:
        return f"the last axis has {counted(size, 'element')}, not a multiple of {WIDTH}"
    return "neighbouring elements of an operand are not neighbours in memory"


def _explain_reduction(nest: Nest) -> str:
    reductions = set(nest.reductions)
    if any(result.loops() & reductions for result in nest.results):
        return "each step of the reduction writes elements"
    combined = zip(nest.combines, nest.results, strict=True)
    if any(combine is None or rows.neutral_of(combine, result.element) is None for combine, result in combined):
        return "steps of the reduction are not combined by one operation"
    length = nest.static_count(nest.reductions)
    if length is not None and length < rows.WARP:
        return f"the reduction has {counted(length, 'step')}, fewer than the threads of a warp"
    return "elements of one reduction are not neighbours in memory"
