"""The number of lanes of a stage: that of its widest results, as vectors of one register.

Results narrower than f32 use its lanes, because most of their arithmetic is in f32. Maps that only move short numbers,
or compute with short integers, use all lanes of a register: 32 truth values instead of 8 for AVX2.
"""

from __future__ import annotations

from ...targets.vector_unit import VectorUnit
from .few import is_copy
from .schedule import Stage
from .structure import Op

WIDTHS = {"f64": 64, "i64": 64, "index": 64}
"""The element types, in bits, that halve the lanes of a stage that writes them; narrower types use the lanes of f32."""
SHORT = {"i1": 8, "i8": 8, "i16": 16, "f16": 16, "bf16": 16}
"""The bits of short elements in memory."""


def count_lanes(stage: Stage, unit: VectorUnit) -> int:
    short = [_short_width(stage, op) for op in stage.ops]
    if all(short):
        return unit.lanes(max(short))
    return unit.lanes(max(WIDTHS.get(op.result.element, 32) for op in stage.ops))


def _short_width(stage: Stage, op: Op) -> int:
    """Returns the bits of the longest element, if all are short; 0 for other ops, and for operands that are not
    contiguous where the result is: they are gathered, or transposed in blocks as high as the vectors are long."""
    if op.reduced or op.carried is not None or not is_copy(op):
        return 0
    types = {op.result.element, *(n.type for n in op.body.walk()), *(a.tensor.element for a in op.reads)}
    if not types <= SHORT.keys():
        return 0
    inner = [i for i, size in enumerate(op.loops) if size != 1 and op.written.step(i) == 1]
    accesses = [a for a in op.reads if not stage.holds(a.tensor)]
    if not inner or any(n.kind == "extract" for n in op.body.walk()):
        return 0
    return max(SHORT[type] for type in types) if all(a.step(inner[-1]) in (0, 1) for a in accesses) else 0
