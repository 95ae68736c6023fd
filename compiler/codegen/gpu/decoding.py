"""Products with weights that are decoded from quantized values: the function that decodes, apart from the product.

    out + (x0 * low(q) + x1 * high(q)) * scale       body of a product with 4-bit weights, two in a byte
    decode(q, scale) = low(q) * scale, high(q) * scale       weights of x0 and x1; nothing else of the body remains

    out + (x * f32(q)) * scale       8 bits with a scale that is the same in all steps of the sum
    decode(q) = q; the sum is multiplied by scale

The body must be a sum of products of an activation and a weight. Weights of products in f16 and bf16 must be rounded to
that dtype by the body, so that the factors on tensor cores are those of the body; or they are integers of 8 bits, which
both dtypes hold exactly. For tf32, factors are rounded anyway, and a common factor of several products is distributed
over them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ....dialect.lazy_dataclass import dataclass
from ...base.mlir import ir
from ..structured.body_nodes import Node
from ..structured.operations import body_of, iterators
from .bodies import describe_nest
from .body_slices import begin_slice
from .body_values import read_body
from .contraction import find_groups
from .nest import Decoding, Nest

_ROUNDED = ("f16", "bf16")


def take_decoding(module: Any, op: Any, name: str, starts: Sequence[Any], *, tf32: bool) -> Decoding | None:
    """Adds the function that decodes the weights of an op to the module; returns None if the op is not a product of
    activations, which are its rows, with decoded weights."""
    if all(iterators(op)):
        return None
    nest = describe_nest(op, name, starts)
    groups = find_groups(nest) if nest.is_independent() else None
    if groups is None or nest.is_product:
        return None
    activations = {number for number, side in enumerate(groups.sides) if side == 0}
    elements = {nest.inputs[number].element for number in activations}
    if len(elements) != 1:
        return None
    (element,) = elements
    if element not in (*_ROUNDED, *(["f32"] if tf32 else [])):
        return None
    (value, *_), symbol = read_body(op).values, f"{name}_decode"
    found = _Terms(activations, distributes=element == "f32").find(value)
    weights = [_weight_of(term, element) for term in found or ()]
    scales: tuple[Node, ...] = ()
    if found is None or None in weights:
        found = _Terms(activations, distributes=True).find(value) if element != "f32" else None
        if found is None or not (scales := _scales_of(nest, groups.depth, found)):
            return None
        weights = [tuple(factor for factor in term.factors if factor not in scales) for term in found]
    if sorted(term.activation for term in found) != sorted(activations):
        return None
    arguments = (module, op, nest, activations)
    if not _write_function(*arguments, symbol, weights, element):
        return None
    scale = f"{symbol}_scale" if scales else ""
    if scale and not _write_function(*arguments, scale, [scales], "f32"):
        return None
    return Decoding(symbol, element, tuple(term.activation for term in found), scale)


@dataclass(frozen=True, slots=True)
class _Term:
    """A product in a sum: the number of the input that is the activation, and the other factors."""

    activation: int
    factors: tuple[Node, ...]


class _Terms:
    """Finds the products whose sum a body adds to its result; if it `distributes`, also those that have a common
    factor."""

    def __init__(self, activations: set[int], *, distributes: bool) -> None:
        self.activations, self.distributes = activations, distributes

    def find(self, value: Node) -> list[_Term] | None:
        found = self._sum(value, ())
        if found is None or found.count(None) != 1:
            return None
        return [term for term in found if term is not None]

    def _sum(self, value: Node, factors: tuple[Node, ...]) -> list[_Term | None] | None:
        """Returns the products in a sum that is multiplied by factors; None among them is the sum before."""
        if value.kind == "start":
            return None if factors else [None]
        if value.kind == "read":
            return [_Term(value.number, factors)] if value.number in self.activations else None
        if value.kind == "arith.extf" and value.operands[0].kind in ("read", "start"):
            return self._sum(value.operands[0], factors)
        if value.kind == "arith.addf" and (self.distributes or not factors):
            parts = [self._sum(operand, factors) for operand in value.operands]
            return None if None in parts else [term for part in parts if part is not None for term in part]
        if value.kind == "arith.mulf":
            moving = [operand for operand in value.operands if self._moves(operand)]
            others = [operand for operand in value.operands if not self._moves(operand)]
            if len(moving) == 1 and (self.distributes or not factors):
                return self._sum(moving[0], (*factors, *others))
        return None

    def _moves(self, value: Node) -> bool:
        """Returns whether a value depends on an activation, or on the sum before."""
        return any(n.kind == "start" or (n.kind == "read" and n.number in self.activations) for n in value.walk())


def _weight_of(term: _Term, element: str) -> tuple[Node, ...] | None:
    """Returns the factors of a weight: one value that the body rounds to the dtype of the activation, or several of
    f32; None if the body does not round the weight."""
    if element == "f32":
        return term.factors or None
    if len(term.factors) != 1:
        return None
    (factor,) = term.factors
    rounded = factor.kind == "arith.extf" and factor.operands[0].type == element
    return factor.operands if rounded else None


def _scales_of(nest: Nest, depth: Sequence[int], terms: Sequence[_Term]) -> tuple[Node, ...]:
    """Returns the factors that all products have in common and that are the same in all steps of the sum, if the other
    factor of each product is an integer of 8 bits; none otherwise."""
    moving = {loop for loop in depth if nest.static_extent(loop) != 1}
    fixed = {n for n, operand in enumerate(nest.inputs) if not operand.loops() & moving}
    scales: tuple[Node, ...] = ()
    for number, term in enumerate(terms):
        own = tuple(factor for factor in term.factors if _is_one_of(factor, fixed))
        others = [factor for factor in term.factors if factor not in own]
        if len(others) != 1 or not _is_byte(others[0]) or (number and own != scales):
            return ()
        scales = own
    return scales


def _is_one_of(value: Node, inputs: Collection[int]) -> bool:
    """Returns whether a value is an element of one of some inputs, or a widened one."""
    while value.kind == "arith.extf":
        (value,) = value.operands
    return value.kind == "read" and value.number in inputs


def _is_byte(value: Node) -> bool:
    """Returns whether a value of f32 is an integer of 8 bits."""
    while value.kind in ("arith.sitofp", "arith.extsi"):
        (value,) = value.operands
        if value.type == "i8":
            return True
    return False


def _write_function(
    module: Any,
    op: Any,
    nest: Nest,
    activations: set[int],
    symbol: str,
    weights: Sequence[tuple[Node, ...] | None],
    element: str,
) -> bool:
    """Writes the function of the quantized values, the loops and the captured values that returns the weights. Returns
    whether the body has no loops or branches among the operations that decode."""
    arguments = list(body_of(op).arguments)
    values = [factor.value for factors in weights for factor in factors or ()]
    given = [argument for n, argument in enumerate(arguments[: len(nest.inputs)]) if n not in activations]
    result = {"f16": ir.F16Type, "bf16": ir.BF16Type, "f32": ir.F32Type}[element].get()
    begun = begin_slice(module, op, symbol, given, values, [result] * len(weights))
    if begun is None:
        return False
    target, known = begun
    with ir.InsertionPoint(target), op.location:
        made = [_rounded(_multiply([known[factor.value] for factor in factors or ()]), result) for factors in weights]
        ir.Operation.create("func.return", operands=made)
    return True


def _multiply(factors: Sequence[Any]) -> Any:
    first, *others = factors
    for factor in others:
        first = ir.Operation.create("arith.mulf", results=[first.type], operands=[first, factor]).results[0]
    return first


def _rounded(value: Any, type: Any) -> Any:
    """Returns a number in a dtype, which may be narrower."""
    if value.type == type:
        return value
    return ir.Operation.create("arith.truncf", results=[type], operands=[value]).results[0]
