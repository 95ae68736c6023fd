"""Divisions of a whole row by one number, as multiplications by its reciprocal.

y[j] = e[j] / total    ->    r = 1 / total, y[j] = e[j] * r      if 1e-37 <= |total| <= 1e37
                             y[j] = e[j] / total                 otherwise
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..structured.body_nodes import Node
from .evaluate import Evaluator, Iteration
from .forms import constant
from .schedule import Stage
from .structure import Op
from .text import Value

LEAST_DIVISOR, MOST_DIVISOR = "1.0e-37", "1.0e+37"
"""The range in which a divisor and its reciprocal are normal numbers of f32."""


def with_reciprocals(
    evaluator: Evaluator, ops: Sequence[Op], iteration: Iteration, inner: Sequence[int], write: Callable[[], None]
) -> None:
    """Writes `ops` over the `inner` classes twice: with multiplications by the reciprocals of row-invariant divisors,
    and with divisions for divisors with a reciprocal that is not a normal number."""
    writer = evaluator.writer
    divisors = [found for op in ops for found in _row_divisors(evaluator, op, inner)]
    if not divisors or evaluator.exact_division:
        write()
        return
    row = {**iteration, **{c: constant(0) for c in inner}}
    reciprocals: dict[tuple[int, int], Value] = {}
    normal = ""
    for op, node in divisors:
        divisor = writer.scalar(evaluator.body(op, row, root=node))
        one = writer.constant("1.0", divisor.type)
        reciprocals[id(op), id(node)] = writer.apply("arith.divf", "", [one, divisor], divisor.type)
        size = writer.let(f"math.absf {divisor.name} : {divisor.type}")
        least, most = writer.constant(LEAST_DIVISOR, divisor.type), writer.constant(MOST_DIVISOR, divisor.type)
        for predicate, bound in (("oge", least), ("ole", most)):
            fits = writer.let(f"arith.cmpf {predicate}, {size}, {bound.name} : {divisor.type}")
            normal = writer.let(f"arith.andi {normal}, {fits} : i1") if normal else fits

    def multiplying() -> None:
        evaluator.reciprocals = reciprocals
        write()
        evaluator.reciprocals = {}

    writer.either(normal, multiplying, write)


def _row_divisors(evaluator: Evaluator, op: Op, inner: Sequence[int]) -> list[tuple[Op, Node]]:
    """Returns the row-invariant divisors of vectors of a row, in the ops after a result."""
    found: list[tuple[Op, Node]] = []
    pending, seen = [op], {id(op)}
    while pending:
        current = pending.pop()
        for node in current.body.walk():
            if node.kind == "arith.divf" and node.type in ("f32", "f64"):
                numerator, divisor = node.operands
                varies = divisor.kind != "constant" and _varies(evaluator.stage, current, numerator, inner)
                if varies and not _varies(evaluator.stage, current, divisor, inner):
                    found.append((current, divisor))
        for access in current.reads:
            source = access.tensor.op
            within = source is not None and evaluator.stage.holds(access.tensor) and not source.reduced
            if source is not None and within and id(source) not in seen and id(source) not in evaluator.kept:
                seen.add(id(source))
                pending.append(source)
    return found


def _varies(stage: Stage, op: Op, node: Node, inner: Sequence[int]) -> bool:
    """Returns whether a value differs between the elements of a row."""
    loops = {i for i in range(len(op.loops)) if stage.of(op, i) in inner}
    for part in node.walk():
        if part.kind == "extract" or (part.kind == "index" and part.number in loops):
            return True
        if part.kind == "read" and op.reads[part.number].loops() & loops:
            return True
    return False
