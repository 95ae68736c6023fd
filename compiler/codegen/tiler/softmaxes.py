"""Finds a softmax between two contractions, as in attention, in the ops of a stage.

    scores                                          a contraction, and elementwise ops on its result
    greatest[i]   = max of x[i, j] along j
    powers[i, j]  = exp(x[i, j] - greatest[i])
    total[i]      = sum of powers[i, j] along j
    weights[i, j] = powers[i, j] / total[i]         or 0 where a condition holds; may be rounded to bf16 or f16
    product[i, c] = sum of weights[i, j] * v[j, c] along j

No other op reads `greatest`, `total`, `powers` or `weights`, and the scores do not depend on them. In exact arithmetic,
any number may then replace `greatest`, and `total` may divide the product in place of the weights: see
`online_softmax.py`. This file writes no code.
"""

from __future__ import annotations

from math import inf

from ....dialect.lazy_dataclass import dataclass
from ..structured.body_nodes import Node, number_of
from .schedule import Stage
from .selections import ROUNDED, WIDENED, replace_node, without
from .structure import Op


@dataclass(frozen=True, slots=True)
class Softmax:
    """The ops of a softmax along the class `keys`, and the product of its weights; `hides` holds where the weights are
    0 under a condition."""

    keys: int
    greatest: Op
    powers: Op
    total: Op
    weights: Op
    product: Op
    hides: bool

    @property
    def element(self) -> str:
        """The dtype of the sums: f32, or f64."""
        return self.product.result.element

    @property
    def rounds(self) -> bool:
        """Whether the weights are rounded to a shorter dtype."""
        return self.weights.result.element != self.element

    def take_powers(self) -> None:
        """Lets the product read powers in place of weights, in the dtype of the sums: it rounds no weights."""
        read = next(n for n in self.product.body.walk() if n.kind == "read" and self._is_weight(n))
        widened = [n for n in self.product.body.walk() if n.kind == WIDENED and n.operands[0] is read]
        self.weights.result.element = read.type = self.element
        for node in widened:
            replace_node(self.product, node, read)

    def _is_weight(self, node: Node) -> bool:
        return self.product.reads[node.number].tensor.op is self.weights


def find_softmax(stage: Stage) -> Softmax | None:
    """Returns the softmax of a stage whose other reductions come before it; None if there is none."""
    reductions = [op for op in stage.ops if op.reduced]
    if len(reductions) < 4:
        return None
    *_, greatest, total, product = reductions
    found = _read_softmax(stage, greatest, total, product)
    return found if found is not None and _is_apart(stage, found) else None


def _read_softmax(stage: Stage, greatest: Op, total: Op, product: Op) -> Softmax | None:
    """Returns the softmax of three reductions along one class in one dtype, each from its neutral element on."""
    classes = {c for op in (greatest, total, product) for c in stage.reduced(op) if stage.sizes[c] != 1}
    kinds = [(op.combination or ("", op.body))[0] for op in (greatest, total, product)]
    starts = [_start(op) for op in (greatest, total, product)]
    if len(classes) != 1 or kinds != ["arith.maximumf", "arith.addf", "arith.addf"] or starts != [-inf, 0, 0]:
        return None
    assert total.combination is not None
    powers = _source(stage, total, total.combination[1])
    factors = [(_source(stage, product, without(f, WIDENED)), f) for f in product.product or ()]
    weights = next((source for source, _ in factors if source is not None), None)
    if powers is None or weights is None or weights.reduced or powers.reduced:
        return None
    body = without(weights.body, ROUNDED)
    hides = body.kind == "arith.select"
    if hides:
        if number_of(body.operands[2]) != 0:
            return None
        body = without(body.operands[1], ROUNDED)
    power, value = powers.body, [f for source, f in factors if source is not weights]
    is_quotient = (
        body.kind == "arith.divf"
        and _is_read(weights, body.operands[0], powers)
        and _is_read(weights, body.operands[1], total)
    )
    is_power = (
        power.kind == "math.exp"
        and power.operands[0].kind == "arith.subf"
        and _is_read(powers, power.operands[0].operands[1], greatest)
        and not _reads(powers, power.operands[0].operands[0], greatest)
    )
    is_product = len(value) == 1 and not _reads(product, value[0], weights)
    ops = (greatest, powers, total, product)
    elements = {op.result.element for op in ops}
    if not (is_quotient and is_power and is_product and len(elements) == 1 and elements <= {"f32", "f64"}):
        return None
    (keys,) = classes
    return Softmax(keys, greatest, powers, total, weights, product, hides)


def _is_apart(stage: Stage, found: Softmax) -> bool:
    """Returns whether no result but those behind the product depends on the softmax or on whole rows of scores."""
    readers = (
        (found.greatest, [found.powers]),
        (found.powers, [found.total, found.weights]),
        (found.total, [found.weights]),
        (found.weights, [found.product]),
    )
    for op, allowed in readers:
        reads = [(other, a) for other in stage.ops for a in other.reads if a.tensor.op is op]
        if any(other not in allowed for other, _ in reads):
            return False
        if len(reads) != len(allowed):
            return False
    before = stage.ops[: stage.ops.index(found.product)]
    behind = stage.ops[len(before) + 1 :]
    along = [op for op in stage.ops if found.keys in stage.loops(op)]
    if any(op in stage.sinks for op in before) or any(op in behind for op in along):
        return False
    scores = [op for op in along if op not in (found.greatest, found.total, found.product)]
    return not any(found.keys in stage.reduced(op) for op in scores)


def _start(op: Op) -> float | None:
    """Returns the constant that a reduction starts from."""
    if op.start is None or op.start.splat is None:
        return None
    return number_of(Node("constant", op.result.element, text=op.start.splat))


def _source(stage: Stage, op: Op, node: Node) -> Op | None:
    """Returns the op of the stage whose result a node reads."""
    tensor = op.reads[node.number].tensor if node.kind == "read" else None
    return tensor.op if tensor is not None and stage.holds(tensor) else None


def _is_read(op: Op, node: Node, source: Op) -> bool:
    return node.kind == "read" and op.reads[node.number].tensor.op is source


def _reads(op: Op, node: Node, source: Op) -> bool:
    """Returns whether a value of an op's body depends on a result of another op."""
    return any(_is_read(op, each, source) for each in node.walk())
