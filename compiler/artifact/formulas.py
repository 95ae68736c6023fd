"""Sizes as C expressions and functions, with arithmetic that detects overflow (the helpers are in `tables.h`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import reduce

from ...dialect.dims import Atom, FloorDiv, Size, Symbol
from ...dialect.lazy_dataclass import dataclass

_INT64_LIMIT = 1 << 63


def _constant(value: int) -> str:
    return f"INT64_C({value})" if -_INT64_LIMIT < value < _INT64_LIMIT else "NACRE_OVERFLOW"


def _atom(atom: Atom, index: Mapping[Symbol, int]) -> str:
    if isinstance(atom, Symbol):
        dim = f"d[{index[atom]}]"
        return dim if atom.multiple == 1 else f"({dim} / {_constant(atom.multiple)})"
    if isinstance(atom, FloorDiv):
        return f"nacre_floor_div({c_expression(atom.numerator, index)}, {c_expression(atom.denominator, index)})"
    return f"nacre_{atom.kind}({c_expression(atom.left, index)}, {c_expression(atom.right, index)})"


def c_expression(size: Size, index: Mapping[Symbol, int]) -> str:
    """Returns the size as a C expression over `d`, the values of the dims; `index` is the index of each dim in `d`."""
    if isinstance(size, int):
        return _constant(size)
    terms: list[str] = []
    for monomial, coefficient in size.terms:
        factors = [_atom(atom, index) for atom, power in monomial for _ in range(power)]
        if coefficient != 1 or not factors:
            factors.append(_constant(coefficient))
        terms.append(reduce("nacre_mul({}, {})".format, factors))
    return reduce("nacre_add({}, {})".format, terms)


@dataclass
class Functions:
    """Collects the functions that the tables reference, one for each distinct formula."""

    names: dict[str, str] = field(default_factory=dict)

    def add(self, signature: str, body: str, prefix: str) -> str:
        text = f"({signature}) {{ {body} }}"
        return self.names.setdefault(text, f"{prefix}{len(self.names)}")

    def formula(self, size: Size, index: Mapping[Symbol, int]) -> str:
        return self.add("const int64_t *d", f"return {c_expression(size, index)};", "size_")

    def definitions(self) -> list[str]:
        return [f"static int64_t {name}{text}" for text, name in self.names.items()]
