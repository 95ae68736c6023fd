"""Compares symbolic sizes for all values of the dims. Samples refute an order, proofs confirm it.

B*T >= T        for B in 1..8: proven, as (1 + B')*T - T == B'*T with B' = B - 1
B*64 >= T       for T in 1..512: refuted by B = 1, T = 512
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import add as add_floats
from operator import ge

import numpy as np

from ...dialect.dims import (
    INFINITY,
    FloorDiv,
    Monomial,
    Poly,
    Size,
    Symbol,
    add,
    bounds,
    evaluate,
    multiply,
    substitute,
    subtract,
    symbols,
    symbols_of,
    total,
)
from ...dialect.lazy_dataclass import dataclass


def never_less(left: Size, right: Size) -> bool:
    """Returns whether `left >= right` for every value of the dims; False if unknown."""
    return _never_negative(subtract(left, right))


@lru_cache(maxsize=1 << 16)
def _never_negative(size: Size) -> bool:
    """Returns whether the size is provably never negative.

    Each dim is rewritten as its least value plus a dim that starts at 0. A polynomial without negative coefficients is
    then never negative. This proves `B*T - T >= 0` for `B >= 1`, which interval bounds cannot show.
    """
    difference = _without_quotients(size)
    if bounds(difference)[0] >= 0:
        return True
    return all(
        coefficient >= 0 and _is_product_of_naturals(monomial) for monomial, coefficient in _terms(_shifted(difference))
    )


def _shifted(size: Size) -> Size:
    """Returns the size in dims that start at 0."""
    return substitute(size, {s.name: _from_least(s) for s in symbols(size)})


@lru_cache(maxsize=1 << 14)
def _is_product_of_naturals(monomial: Monomial) -> bool:
    return all(bounds(Poly(((((atom, 1),), 1),)))[0] >= 0 for atom, _ in monomial)


def _terms(size: Size) -> tuple[tuple[Monomial, int], ...]:
    return size.terms if isinstance(size, Poly) else (((), size),)


def _without_quotients(size: Size) -> Size:
    """Returns a size that is never more than `size`: `n - (d - 1) <= d * (n // d) <= n`."""
    bounds = [
        _bound_of_quotient(monomial[0][0], coefficient)
        for monomial, coefficient in _terms(size)
        if len(monomial) == 1 and monomial[0][1] == 1 and isinstance(monomial[0][0], FloorDiv)
    ]
    return total([size, *bounds]) if bounds else size


@lru_cache(maxsize=1 << 14)
def _bound_of_quotient(quotient: FloorDiv, coefficient: int) -> Size:
    """Returns a lower bound of the term, minus the term; 0 if there is none."""
    divisor = quotient.denominator
    if not isinstance(divisor, int) or coefficient % divisor:
        return 0
    times = coefficient // divisor
    bound = add(quotient.numerator, 1 - divisor) if times > 0 else quotient.numerator
    return add(multiply(times, bound), Poly(((((quotient, 1),), -coefficient),)))


def _from_least(symbol: Symbol) -> Size:
    """Returns the dim as its least value plus a dim that starts at 0."""
    least = -(-symbol.low // symbol.multiple) * symbol.multiple
    high = INFINITY if symbol.high == INFINITY else symbol.high - least
    return add(Symbol(symbol.name, 0, high, symbol.multiple).size, least)


def _terms_from_least(size: Size) -> Mapping[Monomial, int] | None:
    """Returns the coefficients of the size in dims that start at 0; None where a factor may be negative."""
    terms = dict(_terms(_shifted(size)))
    return terms if all(map(_is_product_of_naturals, terms)) else None


def _read_quotient(monomial: Monomial) -> tuple[Mapping[Monomial, int], int] | None:
    """Returns the numerator's coefficients and the divisor of a quotient in dims that start at 0; None for any other
    monomial, and where a factor of the numerator may be negative."""
    if len(monomial) != 1 or monomial[0][1] != 1:
        return None
    quotient = monomial[0][0]
    if not isinstance(quotient, FloorDiv) or not isinstance(quotient.denominator, int):
        return None
    # A constant is subtracted from the numerator.
    numerator = {(): 0, **dict(_terms(quotient.numerator))}
    return (numerator, quotient.denominator) if all(map(_is_product_of_naturals, numerator)) else None


Coefficients = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
_EXACT = 2.0**53
"""Coefficients below it are exact."""


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A size and its values for a few assignments of the dims. Each size has one point."""

    size: Size
    values: tuple[float, ...]
    coefficients: Coefficients
    """The coefficients of the size as a polynomial in dims that start at 0, in one column for each monomial. Every
    element is NaN if the size is no such polynomial. A size is never less than another one if none of its coefficients
    is less."""


def _samples(sizes: Sequence[Size]) -> list[dict[str, int]]:
    """Returns some values of the dims. An overlap for one of them needs no proof, and samples decide most
    comparisons."""
    dims = symbols_of(sizes)
    least = {s.name: -(-s.low // s.multiple) * s.multiple for s in dims}
    larger = {s.name: min(s.high // s.multiple, least[s.name] // s.multiple + 61) * s.multiple for s in dims}
    one_larger = [least | {name: larger[name]} for name in list(larger)[:6]]
    return [least, larger, *(one_larger if len(dims) > 1 else [])] if dims else [{}]


class Points:
    """The points of one plan, and their known order. Every pair is decided once. `sizes` are those from which all
    others are summed."""

    def __init__(self, sizes: Sequence[Size]) -> None:
        self.samples = _samples(sizes)
        terms = [_terms_from_least(size) for size in dict.fromkeys(sizes)]
        monomials = {m: None for t in terms for m in t or ()}
        quotients = {m: found for m in monomials if (found := _read_quotient(m)) is not None}
        monomials |= {m: None for numerator, _ in quotients.values() for m in numerator}
        self._columns = {monomial: column for column, monomial in enumerate(monomials)}
        self._known: dict[Size, Point] = {}
        self._sums: dict[tuple[Point, Point], Point] = {}
        self._ordered: dict[tuple[Point, Point], bool] = {}
        self._quotients = [self._columns[monomial] for monomial in quotients]
        """The columns of quotients `n // d`. For each of them there are `d`, and in a column of each matrix the
        coefficients of `n - (d - 1) - d * (n // d)` and of `n - d * (n // d)`."""
        self._divisors = np.array([divisor for _, divisor in quotients.values()], np.float64)
        self._low, self._high = np.zeros((2, self.width, len(quotients)))
        for number, (monomial, (numerator, divisor)) in enumerate(quotients.items()):
            self._high[:, number] = self._row({**numerator, monomial: numerator.get(monomial, 0) - divisor})
            self._low[:, number] = self._high[:, number] + self._row({(): 1 - divisor})
        self._moved = np.abs(self._low) + np.abs(self._high)

    @property
    def width(self) -> int:
        """The number of coefficients of a point."""
        return len(self._columns)

    def of(self, size: Size) -> Point:
        if size not in self._known:
            values = tuple(float(evaluate(size, sample)) for sample in self.samples)
            self._known[size] = Point(size, values, self._coefficients(size))
        return self._known[size]

    def sum(self, left: Point, right: Point) -> Point:
        pair = left, right
        known = self._sums.get(pair)
        if known is None:
            size = add(left.size, right.size)
            if size not in self._known:
                values = tuple(map(add_floats, left.values, right.values))
                self._known[size] = Point(size, values, _exact(left.coefficients + right.coefficients))
            known = self._sums[pair] = self._known[size]
        return known

    def never_less(self, left: Point, right: Point) -> bool:
        pair = left, right
        known = self._ordered.get(pair)
        if known is None:
            known = self._ordered[pair] = all(map(ge, left.values, right.values)) and (
                self._proves(left.coefficients - right.coefficients) or never_less(left.size, right.size)
            )
        return known

    def _proves(self, difference: Coefficients) -> bool:
        """Returns whether coefficients prove that a size is never negative. It is at least the size in which `n` or
        `n - (d - 1)` replaces `d * (n // d)`. This takes a quarter of the time of `never_less`."""
        if (difference >= 0).all():
            return True
        times = difference[self._quotients] / self._divisors
        times[times != np.floor(times)] = 0
        if not (self._moved @ np.abs(times) < _EXACT / 2).all():
            return False  # it might be rounded
        least = difference + self._low @ np.maximum(times, 0) + self._high @ np.minimum(times, 0)
        return bool((least >= 0).all())

    def _coefficients(self, size: Size) -> Coefficients:
        terms = _terms_from_least(size)
        if terms is None or not terms.keys() <= self._columns.keys():
            return np.full(self.width, np.nan)
        return _exact(self._row(terms))

    def _row(self, terms: Mapping[Monomial, int]) -> Coefficients:
        coefficients = np.zeros(self.width)
        for monomial, coefficient in terms.items():
            coefficients[self._columns[monomial]] = coefficient
        return coefficients


def _exact(coefficients: Coefficients) -> Coefficients:
    """Returns the coefficients, or those of an unknown size if some may be rounded."""
    return coefficients if (np.abs(coefficients) < _EXACT).all() else np.full_like(coefficients, np.nan)
