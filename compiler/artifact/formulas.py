"""Sizes as formulas of the artifact's tables: `tables.h` defines the encoding, and `formula.c` evaluates it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...dialect.dims import Atom, FloorDiv, Size, Symbol

CONSTANT, DIM, SUM, PRODUCT, FLOOR_DIV, MIN, MAX = range(7)
"""The operations, in the order of `tables.h`."""
OVERFLOW = -(1 << 63)
"""The value of a size that exceeds 64 bits."""


def encode_constant(value: int) -> int:
    return value if -(1 << 63) < value < 1 << 63 else OVERFLOW


def encode_formula(size: Size, index: Mapping[Symbol, int]) -> tuple[int, ...]:
    """Returns the size as pairs of an operation and a number, in prefix order; `index` is the index of each dim among
    the dims of a call.

        encode_formula(2*T + 1, {T: 0}) == (SUM, 2, PRODUCT, 2, DIM, 0, CONSTANT, 2, CONSTANT, 1)
    """
    if isinstance(size, int):
        return (CONSTANT, encode_constant(size))
    terms: list[tuple[int, ...]] = []
    for monomial, coefficient in size.terms:
        factors = [_atom(atom, index) for atom, power in monomial for _ in range(power)]
        if coefficient != 1 or not factors:
            factors.append((CONSTANT, encode_constant(coefficient)))
        terms.append(_combine(PRODUCT, factors))
    return _combine(SUM, terms)


def _combine(operation: int, operands: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    if len(operands) == 1:
        return operands[0]
    return (operation, len(operands), *(word for operand in operands for word in operand))


def _atom(atom: Atom, index: Mapping[Symbol, int]) -> tuple[int, ...]:
    if isinstance(atom, Symbol):
        dim = (DIM, index[atom])
        # The atom is the number of multiples in the dim.
        return dim if atom.multiple == 1 else _combine(FLOOR_DIV, [dim, (CONSTANT, encode_constant(atom.multiple))])
    if isinstance(atom, FloorDiv):
        operation, operands = FLOOR_DIV, (atom.numerator, atom.denominator)
    else:
        operation, operands = MIN if atom.kind == "min" else MAX, (atom.left, atom.right)
    return _combine(operation, [encode_formula(operand, index) for operand in operands])
