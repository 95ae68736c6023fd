"""Products with weights that are decoded from quantized values: the function that decodes, apart from the product.

    out + (x0 * low(q) + x1 * high(q)) * scale       body of a product with 4-bit weights, two in a byte
    decode(q, scale) = low(q) * scale, high(q) * scale       weights of x0 and x1; nothing else of the body remains

The body must be a sum of products of an activation and a weight. Weights of products in f16 and bf16 must be rounded to
that dtype by the body, so that the factors on tensor cores are those of the body. For tf32, factors are rounded anyway,
and a common factor of several products is distributed over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...base.mlir import ir
from .bodies import captured_by, describe_nest, empty_function
from .contraction import find_groups
from .nest import Decoding, Nest

_ROUNDED = ("f16", "bf16")


def take_decoding(module: Any, op: Any, name: str, starts: Sequence[Any], *, tf32: bool) -> Decoding | None:
    """Adds the function that decodes the weights of an op to the module; returns None if the op is not a product of
    activations, which are its rows, with decoded weights."""
    nest = describe_nest(op, name, starts)
    groups = find_groups(nest) if nest.is_independent() else None
    if groups is None or nest.is_product:
        return None
    activations = {number for number, side in enumerate(groups.sides) if side == 0}
    found = _Terms(op.regions[0].blocks[0], len(nest.inputs), activations, tf32=tf32).find()
    elements = {nest.inputs[number].element for number in activations}
    if found is None or len(elements) != 1 or sorted(term.activation for term in found) != sorted(activations):
        return None
    (element,) = elements
    weights = [_weight_of(term, element) for term in found]
    if element not in (*_ROUNDED, *(["f32"] if tf32 else [])) or any(weight is None for weight in weights):
        return None
    symbol = f"{name}_decode"
    if not _write_function(module, op, nest, symbol, activations, weights, element):
        return None
    return Decoding(symbol, element, tuple(term.activation for term in found))


@dataclass(frozen=True, slots=True)
class _Term:
    """A product in a sum: the number of the input that is the activation, and the other factors."""

    activation: int
    factors: tuple[Any, ...]


class _Terms:
    """Finds the products whose sum a body adds to its result."""

    def __init__(self, block: Any, inputs: int, activations: set[int], *, tf32: bool) -> None:
        self.block, self.activations, self.tf32 = block, activations, tf32
        self.arguments = list(block.arguments)
        self.total = self.arguments[inputs]

    def find(self) -> list[_Term] | None:
        (value,) = list(self.block.operations)[-1].operation.operands
        found = self._sum(value, ())
        if found is None or found.count(None) != 1:
            return None
        return [term for term in found if term is not None]

    def _sum(self, value: Any, factors: tuple[Any, ...]) -> list[_Term | None] | None:
        """Returns the products in a sum that is multiplied by factors; None among them is the sum before."""
        if value == self.total:
            return None if factors else [None]
        if isinstance(value.owner, ir.Block):
            number = self.arguments.index(value) if value in self.arguments else -1
            return [_Term(number, factors)] if number in self.activations else None
        made = value.owner
        if made.name == "arith.extf":
            return self._sum(made.operands[0], factors) if isinstance(made.operands[0].owner, ir.Block) else None
        if made.name == "arith.addf" and (self.tf32 or not factors):
            parts = [self._sum(operand, factors) for operand in made.operands]
            return None if None in parts else [term for part in parts if part is not None for term in part]
        if made.name == "arith.mulf":
            moving = [operand for operand in made.operands if self._moves(operand)]
            others = [operand for operand in made.operands if not self._moves(operand)]
            if len(moving) == 1 and (self.tf32 or not factors):
                return self._sum(moving[0], (*factors, *others))
        return None

    def _moves(self, value: Any) -> bool:
        """Returns whether a value depends on an activation, or on the sum before."""
        if isinstance(value.owner, ir.Block):
            fixed = [argument for n, argument in enumerate(self.arguments) if n in self.activations]
            return value in (*fixed, self.total)
        return any(self._moves(operand) for operand in value.owner.operands)


def _weight_of(term: _Term, element: str) -> tuple[Any, ...] | None:
    """Returns the factors of a weight: one value that the body rounds to the dtype of the activation, or several of
    f32; None if the body does not round the weight."""
    if element == "f32":
        return term.factors or None
    if len(term.factors) != 1 or isinstance(term.factors[0].owner, ir.Block):
        return None
    made = term.factors[0].owner
    rounded = made.name == "arith.extf" and str(made.operands[0].type) == element
    return (made.operands[0],) if rounded else None


def _write_function(
    module: Any,
    op: Any,
    nest: Nest,
    symbol: str,
    activations: set[int],
    weights: Sequence[tuple[Any, ...] | None],
    element: str,
) -> bool:
    """Writes the function of the quantized values, the loops and the captured values that returns the weights. Returns
    whether the body has no loops or branches among the operations that decode."""
    block = op.regions[0].blocks[0]
    values = [value for factors in weights for value in factors or ()]
    needed = _needed(block, values)
    if any(len(list(each.regions)) for each in needed):
        return False
    captured = list(captured_by(block))
    given = [argument for n, argument in enumerate(list(block.arguments)[: len(nest.inputs)]) if n not in activations]
    types = [*(value.type for value in given), *[ir.IndexType.get()] * len(nest.parallel), *(v.type for v in captured)]
    result = {"f16": ir.F16Type, "bf16": ir.BF16Type, "f32": ir.F32Type}[element].get()
    target = empty_function(module, symbol, types, [result] * len(weights)).regions[0].blocks[0]
    arguments = list(target.arguments)
    loops = arguments[len(given) : len(given) + len(nest.parallel)]
    known = dict(
        zip((*given, *captured), (*arguments[: len(given)], *arguments[len(given) + len(loops) :]), strict=True)
    )
    for each in needed:
        if each.name == "linalg.index":
            known[each.results[0]] = loops[ir.IntegerAttr(each.attributes["dim"]).value]
            continue
        with ir.InsertionPoint(target):
            clone = each.clone().operation
        for operand in list(clone.operands):
            if operand in known:
                clone.replace_uses_of_with(operand, known[operand])
        known |= dict(zip(each.results, clone.results, strict=True))
    with ir.InsertionPoint(target), op.location:
        made = [_multiply([known[value] for value in factors or ()]) for factors in weights]
        ir.Operation.create("func.return", operands=made)
    return True


def _multiply(factors: Sequence[Any]) -> Any:
    first, *others = factors
    for factor in others:
        first = ir.Operation.create("arith.mulf", results=[first.type], operands=[first, factor]).results[0]
    return first


def _needed(block: Any, values: Sequence[Any]) -> list[Any]:
    """Returns the operations of a block that compute values, in their order."""
    wanted, found = list(values), []
    for op in reversed([each.operation for each in block.operations]):
        if any(result in wanted for result in op.results):
            found.append(op)
            wanted += list(op.operands)
    return found[::-1]
