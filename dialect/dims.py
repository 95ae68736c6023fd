"""Symbolic sizes: integer polynomials over dims, with floor division, minimum and maximum as atoms.

A size is an `int` or a `Poly`; arithmetic between them normalises, so that equal sizes are equal Python values and a
constant is always an `int`. A `Symbol` carries its own range and divisor, so facts about a size need no context. This
module decides equality, divisibility and bounds of sizes, and refuses non-integers.

    floor_divide(2*T + 4, 2) == T + 2
    bounds(B*T) == (1, 4096)                for B in 1..8, T in 1..512
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import SupportsIndex

from .lazy_dataclass import dataclass

INFINITY = 1 << 62
"""The value for "no upper bound"; larger than any size that fits memory."""
_LARGEST = (1 << 63) - 1
"""The largest value of a dim without an upper bound: a call passes it as a 64-bit number."""


class DimError(ValueError):
    """An operation on sizes that has no integer result for every value of the dims."""


class _Hashed:
    """A value whose hash is computed once: sizes are keys of many tables, and refer to one another.

    Hashes of text differ between processes, so a copy for another process is made from the fields alone.
    """

    __slots__ = ("_hash",)
    _hash: int
    __match_args__: tuple[str, ...]

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            found = hash(self._fields())
            object.__setattr__(self, "_hash", found)
            return found

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), self._fields()

    def _fields(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__)


@dataclass(frozen=True, slots=True, order=True)
class Symbol(_Hashed):
    """A dim named in the model, `low <= dim <= high`, always a multiple of `multiple`."""

    name: str
    low: int = 0
    high: int = INFINITY
    multiple: int = 1
    __hash__ = _Hashed.__hash__

    def __str__(self) -> str:
        text = f"dim {self.name} in {self.low}..{'' if self.high == INFINITY else self.high}"
        return text + (f" multiple {self.multiple}" if self.multiple != 1 else "")

    @property
    def size(self) -> Size:
        """Returns the symbol as a size. A dim that is a multiple of m is m times an atom, so that division by m is
        exact."""
        return _poly({((self, 1),): self.multiple})


@dataclass(frozen=True, slots=True)
class FloorDiv(_Hashed):
    """An inexact `numerator // denominator`; the denominator is a positive size."""

    numerator: Size
    denominator: Size
    __hash__ = _Hashed.__hash__


@dataclass(frozen=True, slots=True)
class Extreme(_Hashed):
    """The minimum or the maximum (`kind` is "min" or "max") of two sizes that cannot be ordered."""

    kind: str
    left: Size
    right: Size
    __hash__ = _Hashed.__hash__


Atom = Symbol | FloorDiv | Extreme
Monomial = tuple[tuple[Atom, int], ...]
"""Atoms with their powers, in a fixed order. A Symbol atom represents `dim / multiple`."""


@dataclass(frozen=True, slots=True)
class Poly(_Hashed):
    """A non-constant polynomial: terms in a fixed order, without zero coefficients."""

    terms: tuple[tuple[Monomial, int], ...]
    __hash__ = _Hashed.__hash__

    def __add__(self, other: Size) -> Size:
        return add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Size) -> Size:
        return add(self, multiply(-1, other))

    def __rsub__(self, other: Size) -> Size:
        return add(other, multiply(-1, self))

    def __neg__(self) -> Size:
        return multiply(-1, self)

    def __mul__(self, other: Size) -> Size:
        return multiply(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        return floor_divide(self, other)

    def __rfloordiv__(self, other: Size) -> Size:
        return floor_divide(other, self)

    def __mod__(self, other: Size) -> Size:
        return add(self, multiply(-1, multiply(floor_divide(self, other), other)))

    def __str__(self) -> str:
        return _format(self, _INFIX)

    __repr__ = __str__


Size = int | Poly
Shape = tuple[Size, ...]


@lru_cache(maxsize=1 << 14)
def _atom_key(atom: Atom) -> tuple[str, str]:
    if isinstance(atom, Symbol):
        return ("0", atom.name)
    return ("1", _format_atom(atom, _INFIX))


def _poly(terms: Mapping[Monomial, int]) -> Size:
    kept = {m: c for m, c in terms.items() if c != 0}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    # A graded lexical order, as polynomial division requires: higher degrees first, the constant last.
    order = sorted(kept, key=_monomial_key) if len(kept) > 1 else kept
    return Poly(tuple((m, kept[m]) for m in order))


@lru_cache(maxsize=1 << 14)
def _monomial_key(monomial: Monomial) -> tuple[int, list[tuple[str, str, int]]]:
    return -sum(power for _, power in monomial), [(*_atom_key(atom), -power) for atom, power in monomial]


def _terms(size: Size) -> dict[Monomial, int]:
    if isinstance(size, int):
        return {(): size} if size else {}
    return dict(size.terms)


def static_size(size: object) -> int:
    """Returns a size, or an attribute that holds one, as a number. Raises DimError if it depends on a dim."""
    if isinstance(size, int):
        return size
    if isinstance(size, SupportsIndex):  # an integer of numpy
        return int(size)
    raise DimError(f"size `{size}` depends on a dim, where a number is required")


def add(left: Size, right: Size) -> Size:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    return _add(left, right)


# The same few sizes are added and multiplied again and again, for every value of every graph.
@lru_cache(maxsize=1 << 14)
def _add(left: Size, right: Size) -> Size:
    terms = _terms(left)
    for monomial, coefficient in _terms(right).items():
        terms[monomial] = terms.get(monomial, 0) + coefficient
    return _poly(terms)


def subtract(left: Size, right: Size) -> Size:
    """Returns `left - right`, in one pass over the terms."""
    if isinstance(left, int) and isinstance(right, int):
        return left - right
    return _subtract(left, right)


@lru_cache(maxsize=1 << 14)
def _subtract(left: Size, right: Size) -> Size:
    terms = _terms(left)
    for monomial, coefficient in _terms(right).items():
        terms[monomial] = terms.get(monomial, 0) - coefficient
    return _poly(terms)


def total(sizes: Iterable[Size]) -> Size:
    """Returns the sum of many sizes, which takes one pass over their terms."""
    terms: dict[Monomial, int] = {}
    for size in sizes:
        for monomial, coefficient in _poly_terms(size):
            terms[monomial] = terms.get(monomial, 0) + coefficient
    return _poly(terms)


def _times(left: Monomial, right: Monomial) -> Monomial:
    powers: dict[Atom, int] = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: _atom_key(item[0])))


def multiply(left: Size, right: Size) -> Size:
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    return _multiply(left, right)


@lru_cache(maxsize=1 << 14)
def _multiply(left: Size, right: Size) -> Size:
    terms: dict[Monomial, int] = {}
    for m1, c1 in _terms(left).items():
        for m2, c2 in _terms(right).items():
            monomial = _times(m1, m2)
            terms[monomial] = terms.get(monomial, 0) + c1 * c2
    return _poly(terms)


def product(sizes: Iterable[Size]) -> Size:
    result: Size = 1
    for size in sizes:
        result = multiply(result, size)
    return result


def _without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    powers = dict(monomial)
    for atom, power in divisor:
        if powers.get(atom, 0) < power:
            return None
        powers[atom] -= power
    return tuple((a, powers[a]) for a, _ in monomial if powers[a])


@lru_cache(maxsize=1 << 14)
def divide_exactly(left: Size, right: Size) -> Size | None:
    """Returns `left / right` if that is a polynomial with integer coefficients for every value of the dims, else
    None."""
    if isinstance(right, int) and right == 0:
        return None
    remainder = _terms(left)
    quotient: dict[Monomial, int] = {}
    lead, lead_coefficient = _poly_terms(right)[0]
    # Polynomial long division in the fixed order of terms; each step removes the leading term.
    for _ in range(64):
        if not remainder:
            return _poly(quotient)
        monomial, coefficient = _poly_terms(_poly(remainder))[0]
        rest = _without(monomial, lead)
        if rest is None or coefficient % lead_coefficient:
            return None
        factor = coefficient // lead_coefficient
        quotient[rest] = quotient.get(rest, 0) + factor
        remainder = _terms(add(_poly(remainder), multiply(multiply(-1, right), _poly({rest: factor}))))
    return None


def _poly_terms(size: Size) -> tuple[tuple[Monomial, int], ...]:
    return (((), size),) if isinstance(size, int) else size.terms


def divisible(left: Size, right: Size) -> bool:
    """Returns whether `left` is a multiple of `right` for every value of the dims; False if unknown."""
    return divide_exactly(left, right) is not None


@lru_cache(maxsize=1 << 14)
def floor_divide(left: Size, right: Size) -> Size:
    """Returns `left // right`. Raises DimError if `right` may be zero or negative."""
    if bounds(right)[0] <= 0:
        raise DimError(f"cannot divide {left} by {right}, which may be zero or negative")
    if isinstance(left, int) and isinstance(right, int):
        return left // right
    exact = divide_exactly(left, right)
    if exact is not None:
        return exact
    if isinstance(right, int):
        # (r*q + rest) // r == q + rest // r, so that equal sizes have equal forms.
        whole = {m: c // right for m, c in _terms(left).items()}
        rest = {m: c % right for m, c in _terms(left).items()}
        low, high = _range(_poly(rest))
        if low >= 0 and high < right:
            return _poly(whole)
        return add(_poly(whole), _quotient(rest, right))
    low, high = bounds(left)[0], bounds(add(left, multiply(-1, right)))[1]
    if low >= 0 and high < 0:
        return 0
    return _poly({((FloorDiv(left, right), 1),): 1})


def _quotient(rest: Mapping[Monomial, int], right: int) -> Size:
    """Returns a quotient that is not known; (x // m + k) // n == (x + k*m) // (m*n)."""
    kept = {monomial: c for monomial, c in rest.items() if c}
    (monomial, factor), *others = sorted(kept.items(), key=lambda item: not item[0])
    if factor == 1 and len(monomial) == 1 and all(not other for other, _ in others):
        atom, power = monomial[0]
        if isinstance(atom, FloorDiv) and power == 1 and isinstance(atom.denominator, int):
            shift = sum(c for _, c in others) * atom.denominator
            return floor_divide(add(atom.numerator, shift), atom.denominator * right)
    return _poly({((FloorDiv(_poly(rest), right), 1),): 1})


def ceil_divide(left: Size, right: Size) -> Size:
    return floor_divide(add(left, add(right, -1)), right)


def _extreme(kind: str, left: Size, right: Size) -> Size:
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right) if kind == "min" else max(left, right)
    low, high = bounds(add(left, multiply(-1, right)))
    if high <= 0:
        return left if kind == "min" else right
    if low >= 0:
        return right if kind == "min" else left
    first, second = sorted((left, right), key=str)
    return _poly({((Extreme(kind, first, second), 1),): 1})


def minimum(left: Size, right: Size) -> Size:
    return _extreme("min", left, right)


def maximum(left: Size, right: Size) -> Size:
    return _extreme("max", left, right)


def _product_bounds(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    products = [x * y for x in a for y in b]
    return min(products), max(products)


def _atom_bounds(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Symbol):
        high = _LARGEST if atom.high == INFINITY else atom.high // atom.multiple
        return -(-atom.low // atom.multiple), high
    if isinstance(atom, FloorDiv):
        low, high = _range(atom.numerator)
        small, large = _range(atom.denominator)
        quotients = [x // y for x in (low, high) for y in (small, large)]
        return min(quotients), max(quotients)
    (a, b), (c, d) = _range(atom.left), _range(atom.right)
    return (min(a, c), min(b, d)) if atom.kind == "min" else (max(a, c), max(b, d))


def _interval(size: Size) -> tuple[int, int]:
    """Returns interval bounds that treat atoms as independent."""
    if isinstance(size, int):
        return size, size
    low = high = 0
    for monomial, coefficient in size.terms:
        part = (coefficient, coefficient)
        for atom, power in monomial:
            for _ in range(power):
                part = _product_bounds(part, _atom_bounds(atom))
        low, high = low + part[0], high + part[1]
    return low, high


_MOST_REPLACED = 6
"""The most atoms of a size that are expanded; each minimum or maximum doubles the work."""


def _split(size: Poly, atom: Atom) -> tuple[Size, Size] | None:
    """Returns `a` and `b` of `size == a * atom + b`, or None if the atom occurs with a higher power."""
    factor: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in size.terms:
        power = dict(monomial).get(atom, 0)
        if power > 1:
            return None
        others = tuple(part for part in monomial if part[0] != atom)
        (factor if power else rest)[others] = coefficient
    return _poly(factor), _poly(rest)


def _least(size: Size, depth: int = _MOST_REPLACED) -> int:
    """Returns a lower bound that uses the relation of atoms such as `S//3` and `min(S, 5)` to `S`."""
    least = _interval(size)[0]
    if isinstance(size, int) or depth == 0:
        return least
    for atom in _atoms(size):
        if isinstance(atom, Symbol) or (isinstance(atom, FloorDiv) and not isinstance(atom.denominator, int)):
            continue
        parts = _split(size, atom)
        if parts is None:
            continue
        factor, rest = parts
        low, high = _interval(factor)
        if low < 0 < high:
            continue
        if isinstance(atom, FloorDiv):
            # n - d + 1 <= d * (n // d) <= n
            d = atom.denominator
            assert isinstance(d, int), d
            numerator = atom.numerator if high <= 0 else add(atom.numerator, 1 - d)
            found = _least(add(multiply(d, rest), multiply(factor, numerator)), depth - 1)
            return max(least, -(-found // d))
        # The extreme equals one of its parts, and a minimum is at most each of them.
        found_both = [_least(add(rest, multiply(factor, part)), depth - 1) for part in (atom.left, atom.right)]
        either = (atom.kind == "min") == (high <= 0)
        return max(least, max(found_both) if either else min(found_both))
    return least


# Sizes nest: without a cache, shared parts would be visited once per path to them.
@lru_cache(maxsize=1 << 16)
def _range(size: Size) -> tuple[int, int]:
    """Returns the bounds of a size as exact numbers: a bound that was cut off would be wrong after a subtraction or a
    division."""
    low, high = _interval(size)
    if all(isinstance(atom, Symbol) for atom in _atoms(size)):
        return low, high
    return max(low, _least(size)), min(high, -_least(multiply(-1, size)))


def bounds(size: Size) -> tuple[int, int]:
    """Returns the bounds of a size over all values of its dims; `INFINITY` if there is no upper bound."""
    low, high = _range(size)
    return max(low, -INFINITY), min(high, INFINITY)


def at_least(left: Size, right: Size) -> bool:
    """Returns whether `left >= right` for every value of the dims; False if unknown."""
    return bounds(add(left, multiply(-1, right)))[0] >= 0


def _atoms(size: Size) -> Iterator[Atom]:
    if isinstance(size, Poly):
        for monomial, _ in size.terms:
            for atom, _ in monomial:
                yield atom


def operands(size: Size) -> Iterator[Size]:
    """Yields the operands of the quotients, minima and maxima in a size, and those inside of them."""
    for atom in _atoms(size):
        if not isinstance(atom, Symbol):
            for part in _parts(atom):
                yield part
                yield from operands(part)


def _parts(atom: FloorDiv | Extreme) -> tuple[Size, Size]:
    return (atom.numerator, atom.denominator) if isinstance(atom, FloorDiv) else (atom.left, atom.right)


def symbols(size: Size) -> set[Symbol]:
    """Returns every dim that the size depends on."""
    found: set[Symbol] = set()
    for atom in _atoms(size):
        if isinstance(atom, Symbol):
            found.add(atom)
        else:
            left, right = _parts(atom)
            found |= symbols(left) | symbols(right)
    return found


def symbols_of(sizes: Iterable[Size]) -> tuple[Symbol, ...]:
    """Returns every dim that any of the sizes depends on, by name."""
    symbolic = [size for size in sizes if not isinstance(size, int)]
    return tuple(sorted(set().union(*map(symbols, symbolic)), key=lambda s: s.name)) if symbolic else ()


def substitute(size: Size, values: Mapping[str, Size]) -> Size:
    """Returns the size with dims replaced by name. Raises DimError if a value is not a multiple of the divisor of its
    dim."""
    if isinstance(size, int):
        return size
    parts: list[Size] = []
    for monomial, coefficient in size.terms:
        part: Size = coefficient
        for atom, power in monomial:
            value = _substitute_atom(atom, values)
            for _ in range(power):
                part = multiply(part, value)
        parts.append(part)
    return total(parts)


def _substitute_atom(atom: Atom, values: Mapping[str, Size]) -> Size:
    if isinstance(atom, Symbol):
        if atom.name not in values:
            return _poly({((atom, 1),): 1})
        unit = divide_exactly(values[atom.name], atom.multiple)
        if unit is None:
            raise DimError(f"`{atom.name}` must be a multiple of {atom.multiple}, not {values[atom.name]}")
        return unit
    if isinstance(atom, FloorDiv):
        return floor_divide(substitute(atom.numerator, values), substitute(atom.denominator, values))
    return _extreme(atom.kind, substitute(atom.left, values), substitute(atom.right, values))


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """Returns the value of a size. Raises DimError if a dim has no value, or one that its declaration does not
    admit."""
    try:
        return _number(size, values)
    except KeyError:  # a dim without a value, which the size may not depend on with those of the others
        result = substitute(size, dict(values))
    if not isinstance(result, int):
        missing = ", ".join(f"`{s.name}`" for s in sorted(symbols(result)))
        raise DimError(f"no value for {missing}")
    return result


def _number(size: Size, values: Mapping[str, int]) -> int:
    """Returns the number that `substitute` returns, without polynomials. Raises KeyError for a dim without a value."""
    if isinstance(size, int):
        return size
    number = 0
    for monomial, coefficient in size.terms:
        for atom, power in monomial:
            coefficient *= _atom_number(atom, values) ** power
        number += coefficient
    return number


def _atom_number(atom: Atom, values: Mapping[str, int]) -> int:
    if isinstance(atom, Symbol):
        unit, rest = divmod(values[atom.name], atom.multiple)
        if rest:
            raise DimError(f"`{atom.name}` must be a multiple of {atom.multiple}, not {values[atom.name]}")
        return unit
    if isinstance(atom, FloorDiv):
        return static_size(floor_divide(_number(atom.numerator, values), _number(atom.denominator, values)))
    return static_size(_extreme(atom.kind, _number(atom.left, values), _number(atom.right, values)))


@dataclass(frozen=True, slots=True)
class Style:
    """The notation of operations without a common infix form: floor division, minimum, maximum, and a constant."""

    divide: Callable[[str, str], str]
    extreme: Callable[[str, str, str], str]
    constant: Callable[[int], str] = str
    symbol: Callable[[str], str] = str


_INFIX = Style(lambda a, b: f"{a}//{b}", lambda kind, a, b: f"{kind}({a}, {b})")


def format_size(size: Size, style: Style = _INFIX) -> str:
    """Returns the size as text: by default in the notation of the language, `4*T + 1`, which `parse_size` reads."""
    return style.constant(size) if isinstance(size, int) else _format(size, style)


def _wrapped(size: Size, style: Style) -> str:
    text = format_size(size, style)
    return text if re.fullmatch(r"\w+", text) else f"({text})"


def _format_atom(atom: Atom, style: Style) -> str:
    if isinstance(atom, Symbol):
        name = style.symbol(atom.name)
        return name if atom.multiple == 1 else style.divide(name, style.constant(atom.multiple))
    if isinstance(atom, FloorDiv):
        return style.divide(_wrapped(atom.numerator, style), _wrapped(atom.denominator, style))
    return style.extreme(atom.kind, format_size(atom.left, style), format_size(atom.right, style))


def _format_term(monomial: Monomial, coefficient: int, style: Style) -> str:
    factors: list[str] = []
    for atom, power in monomial:
        text = None
        if isinstance(atom, Symbol) and atom.multiple != 1:
            while power and coefficient % atom.multiple == 0:
                # multiple * (dim // multiple) == dim
                coefficient //= atom.multiple
                power -= 1
                factors.append(style.symbol(atom.name))
            text = f"({_format_atom(atom, style)})"
        elif isinstance(atom, FloorDiv):
            text = f"({_format_atom(atom, style)})"
        factors += [text or _format_atom(atom, style)] * power
    if coefficient != 1 or not factors:
        factors.insert(0, style.constant(coefficient))
    return factors[0][1:-1] if len(factors) == 1 and factors[0].startswith("(") else "*".join(factors)


def _format(size: Poly, style: Style) -> str:
    text = ""
    for monomial, coefficient in size.terms:
        sign = "-" if coefficient < 0 else "+"
        term = _format_term(monomial, abs(coefficient), style)
        text += f" {sign} {term}" if text else (f"-{term}" if sign == "-" else term)
    return text


_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|(//|[-+*%(),]))")


def parse_size(text: str, dims: Mapping[str, Symbol]) -> Size:
    """Parses the output of `format_size`. Raises DimError at an unknown dim or malformed text."""
    tokens: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise DimError(f"cannot read the size `{text}`")
        tokens.append(match.group().strip())
        position = match.end()
    tokens.append("")

    def take(expected: str | None = None) -> str:
        if expected is not None and tokens[0] != expected:
            raise DimError(f"expected `{expected}` in the size `{text}`")
        return tokens.pop(0)

    def primary() -> Size:
        token = take()
        if token == "(":
            value = total()
            take(")")
            return value
        if token == "-":
            return multiply(-1, factors())
        if token in ("min", "max") and tokens[0] == "(":
            take("(")
            left = total()
            take(",")
            right = total()
            take(")")
            return _extreme(token, left, right)
        if token.isdigit():
            return int(token)
        if token in dims:
            return dims[token].size
        if not token.isidentifier():
            raise DimError(f"cannot read the size `{text}`")
        raise DimError(f"unknown dim `{token}` in the size `{text}`")

    def factors() -> Size:
        value = primary()
        while tokens[0] in ("*", "//", "%"):
            operator, right = take(), primary()
            if operator == "*":
                value = multiply(value, right)
            elif operator == "//":
                value = floor_divide(value, right)
            else:
                value = add(value, multiply(-1, multiply(floor_divide(value, right), right)))
        return value

    def total() -> Size:
        value = factors()
        while tokens[0] in ("+", "-"):
            value = add(value, factors()) if take() == "+" else add(value, multiply(-1, factors()))
        return value

    result = total()
    take("")
    return result
