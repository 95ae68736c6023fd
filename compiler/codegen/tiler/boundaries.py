"""The numbers at which the code of a kernel changes with a size: steps of loops, divisors, and bounds of comparisons.

The tiler records the steps of the loops that it writes. A kernel that it leaves unchanged has loops of its own, whose
numbers are read from its operations:

    %blocks = arith.floordivsi %n, %c64     64: at its multiples, there is one more block
    %short = arith.cmpi sle, %n, %c96       96: longer rows are ordered in another way

Constants that elements are compared with count too, and only cause more trials.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base.mlir import ir
from ..structured.values import integer_of

_DIVISIONS = ("divui", "divsi", "ceildivui", "ceildivsi", "floordivsi", "remui", "remsi")
_LIMITS = ("cmpi", "minui", "minsi", "maxui", "maxsi")
_NUMBERS: Mapping[str, tuple[int, ...]] = {
    "scf.for": (2,),
    **{f"arith.{name}": (1,) for name in _DIVISIONS},
    **{f"arith.{name}": (0, 1) for name in _LIMITS},
}
"""The operands that may be such numbers."""


def read_boundaries(function: Any) -> tuple[int, ...]:
    """Returns the constants above 1 that loops of a function step by, and that integers are divided by or compared
    with, in ascending order."""
    found: set[int] = set()

    def visit(operation: Any) -> Any:
        for number in _NUMBERS.get(operation.name, ()):
            constant = integer_of(operation.operands[number])
            found.update([] if constant is None else [constant])
        return ir.WalkResult.ADVANCE

    function.operation.walk(visit)
    return tuple(sorted(n for n in found if n > 1))
