"""Linear forms of indices and addresses: sums of sizes times index values.

A variable is the name of an index value in the generated text, or LANE, which counts the elements of a vector. The
coefficient of LANE determines how a vector is read: 0 is one element for all lanes, 1 is contiguous memory.

Element [row, 8 * block + lane] of a matrix with 64 columns is at one position of memory for each lane:

    64*row + 8*block + lane        LANE has the coefficient 1: 8 lanes are one load
    64*lane + column               LANE has the coefficient 64: the lanes run down a column
    64*row + 8*block               LANE is missing: one element for all lanes

In memory of panels, 16 columns wide, `split` divides a column into the panel and the column in it:

    16*p + lane + 8    ->    p, lane + 8        8 lanes from column 8 on stay in the panel
    16*p + lane + 12   ->    None               8 lanes from column 12 on reach into the next one
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ....dialect.dims import Size, add, divide_exactly, multiply

LANE = "lane"


class Form(NamedTuple):
    """A linear form `sum(coefficient * variable) + constant`; terms are sorted by variable, none has the coefficient
    0. It is a tuple, since a kernel makes and hashes thousands of forms, and a tuple takes a third of the time of a
    frozen dataclass."""

    terms: tuple[tuple[str, Size], ...] = ()
    constant: Size = 0

    def __add__(self, other: Form) -> Form:  # type: ignore[override]  # the sum of forms, not of tuples
        if not other.terms:
            return self.plus(other.constant)
        if not self.terms:
            return other.plus(self.constant)
        total = dict(self.terms)
        for variable, coefficient in other.terms:
            total[variable] = add(total.get(variable, 0), coefficient)
        return _form(total, add(self.constant, other.constant))

    def plus(self, constant: Size) -> Form:
        return Form(self.terms, add(self.constant, constant)) if constant != 0 else self

    def times(self, factor: Size) -> Form:
        if factor == 1:
            return self
        if not self.terms:
            return Form((), multiply(self.constant, factor))
        return _form({v: multiply(c, factor) for v, c in self.terms}, multiply(self.constant, factor))

    def divided(self, divisor: int) -> Form | None:
        """Returns the form divided by an integer, where all of it is a multiple."""
        terms = {v: divide_exactly(c, divisor) for v, c in self.terms}
        rest = divide_exactly(self.constant, divisor)
        known = {v: c for v, c in terms.items() if c is not None}
        return None if rest is None or len(known) < len(terms) else _form(known, rest)

    @property
    def lane(self) -> Size:
        """The coefficient of LANE."""
        for variable, coefficient in self.terms:
            if variable == LANE:
                return coefficient
        return 0

    @property
    def base(self) -> Form:
        """The form of the first lane."""
        return Form(tuple([t for t in self.terms if t[0] != LANE]), self.constant)

    def split(self, width: int, lanes: int) -> tuple[Form, Form] | None:
        """Returns the quotient and remainder by `width` where they are forms too: the variable parts are multiples of
        `width`, and a vector of `lanes` elements stays within one multiple."""
        if not isinstance(self.constant, int) or self.lane not in (0, 1):
            return None
        quotients: dict[str, Size] = {}
        for variable, coefficient in self.base.terms:
            if not isinstance(coefficient, int) or coefficient % width:
                return None
            quotients[variable] = coefficient // width
        whole, rest = divmod(self.constant, width)
        if self.lane == 1 and rest + lanes > width:
            return None
        remainder = {LANE: 1} if self.lane == 1 else {}
        return _form(quotients, whole), _form(remainder, rest)


def _form(terms: Mapping[str, Size], constant: Size) -> Form:
    kept = [term for term in terms.items() if term[1] != 0]
    if len(kept) > 1:
        kept.sort()  # no two terms have the same variable, so that coefficients are not compared
    # The same as `Form(tuple(kept), constant)` without a call in Python: a kernel makes thousands of forms.
    return _NEW(Form, (tuple(kept), constant))


_NEW = tuple.__new__


def combine(constant: Size, products: Iterable[tuple[Form, Size]]) -> Form:
    """Returns `constant + sum(form * factor)`, in one pass over the terms."""
    terms: dict[str, Size] = {}
    for form, factor in products:
        if form.constant != 0:
            constant = add(constant, multiply(form.constant, factor))
        for variable, coefficient in form.terms:
            step = coefficient if factor == 1 else multiply(coefficient, factor)
            terms[variable] = add(terms[variable], step) if variable in terms else step
    return _form(terms, constant)


def variable(name: str, coefficient: Size = 1) -> Form:
    return _form({name: coefficient}, 0)


def constant(value: Size) -> Form:
    return Form((), value)


LANES = variable(LANE)
"""The index of the lane itself."""
