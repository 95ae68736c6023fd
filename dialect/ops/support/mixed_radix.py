"""The discrete Fourier transform of the last axis as products with small matrices (mixed radix).

A length n = p * q is transformed in three steps: p-point transforms of the columns, a twiddle factor for each element,
and q-point transforms of the rows. The rows are split further, so an element costs the sum of the factors of n, times
four multiplications for complex numbers:

    n           64      400       1024       1031 (a prime)
    factors     64      20, 20    32, 32     32, 64 of the padded length 2048

    x[q * j + l] -> y[k + p * m] = sum(l) w(l, m; q) * w(k * l; n) * sum(j) w(j, k; p) * x[q * j + l]

A length up to 64, and a prime up to 1024, is one matrix. A greater prime factor p is a convolution with a chirp
(Bluestein, 1970) of a power of two from 2 * p - 1 on. A length that is known at run time only is one matrix of n * n
angles, which the call computes.

A `Method` other than `PRODUCTS` transforms the lengths that it takes itself. Of other lengths, it takes the columns: p
is then the product of all factors that it takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...dims import Size, add, ceil_divide, floor_divide
from ...graph import Constant, Value
from ...lazy_dataclass import dataclass
from ...operator import Builder
from ...types import F64, I64
from .accumulate import Numbers
from .common import size_as

SMALL = 64
"""The greatest length that is not split."""
PRIME = 1024
"""The greatest prime that is one matrix; above it, a convolution costs less."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Complex numbers: their real and imaginary parts. Real numbers have no second part."""

    real: Value
    imaginary: Value | None = None


def angles(rows: Numbers, columns: Numbers, size: int, sign: int) -> Numbers:
    """Returns `exp(sign * 2 pi i * rows * columns / size)`; the products are reduced exactly."""
    turns = (rows[:, None] * columns[None, :]) % size
    return np.asarray(np.exp(sign * 2j * np.pi * turns / size))


def _constant(b: Builder, array: Numbers, like: Value) -> Value:
    return b.apply("constant", (), {"value": Constant(np.asarray(array).astype(like.type.dtype.numpy))})[0]


def _times(b: Builder, x: Pair, factor: Numbers) -> Pair:
    """Multiplies elements by complex constants that broadcast."""
    real, imaginary = _constant(b, factor.real, x.real), _constant(b, factor.imag, x.real)
    if x.imaginary is None:
        return Pair(b.multiply(x.real, real), b.multiply(x.real, imaginary))
    return Pair(
        b.subtract(b.multiply(x.real, real), b.multiply(x.imaginary, imaginary)),
        b.add(b.multiply(x.real, imaginary), b.multiply(x.imaginary, real)),
    )


def _product(b: Builder, x: Pair, real: Value, imaginary: Value, *, left: bool = False) -> Pair:
    """Multiplies rows by a complex matrix, or columns if the matrix is on the `left`."""

    def times(part: Value, matrix: Value) -> Value:
        return b.matmul(matrix, part) if left else b.matmul(part, matrix)

    if x.imaginary is None:
        return Pair(times(x.real, real), times(x.real, imaginary))
    return Pair(
        b.subtract(times(x.real, real), times(x.imaginary, imaginary)),
        b.add(times(x.real, imaginary), times(x.imaginary, real)),
    )


def _matrix(b: Builder, x: Pair, size: int, sign: int, *, left: bool = False, count: int | None = None) -> Pair:
    line = np.arange(size)
    matrix = angles(line, line if count is None else line[:count], size, sign)
    matrix = matrix.T if left else matrix
    return _product(b, x, _constant(b, matrix.real, x.real), _constant(b, matrix.imag, x.real), left=left)


def _computed(b: Builder, x: Pair, size: Size, sign: int) -> Pair:
    """Multiplies by a matrix that the call computes, since its size is not known before."""
    line, dtype = b.iota(shape=(size,)), x.real.type.dtype
    products = b.multiply(b.unsqueeze(line, axes=1), b.unsqueeze(line, axes=0))
    turns = b.remainder(products, size_as(b, size, I64))
    turn = b.divide(b.scalar(sign * 2 * np.pi, F64), size_as(b, size, F64))
    angle = b.multiply(b.cast(turns, dtype=F64), turn)
    return _product(b, x, b.cast(b.cos(angle), dtype=dtype), b.cast(b.sin(angle), dtype=dtype))


def factors(size: int) -> list[int]:
    """Returns the lengths of the transforms that make up one of `size` elements; primes above the limit are last."""
    groups: list[int] = []
    for prime in sorted(prime_factors(size), reverse=True):
        best = max((i for i, g in enumerate(groups) if g * prime <= SMALL), key=lambda i: -groups[i], default=None)
        if best is None:
            groups.append(prime)
        else:
            groups[best] *= prime
    return sorted(groups) or [1]


def prime_factors(size: int) -> list[int]:
    rest, primes = size, []
    for number in range(2, size + 1):
        if number * number > rest:
            break
        while rest % number == 0:
            primes.append(number)
            rest //= number
    return [*primes, rest] if rest > 1 else primes


@dataclass(frozen=True, slots=True)
class Method:
    """A method for lengths whose prime factors are at most `most`: `columns(b, x, size, sign)` transforms axis -2. A
    greater prime above `prime` becomes a convolution."""

    most: int = 1
    prime: int = PRIME
    columns: Callable[[Builder, Pair, int, int], Pair] | None = None

    def part(self, size: int) -> int:
        """Returns the greatest divisor of a length that the method takes."""
        return math.prod(p for p in prime_factors(size) if p <= self.most)


PRODUCTS = Method()


def transform(b: Builder, x: Pair, size: Size, sign: int, count: int | None = None, method: Method = PRODUCTS) -> Pair:
    """Returns the transform of the last axis, without a scale; `sign` is -1, or 1 for the inverse. With `count`, only
    the first elements of the result are wanted."""
    if not isinstance(size, int):
        return _computed(b, x, size, sign)
    parts, part = factors(size), method.part(size)
    if (size <= SMALL and part < size) or size == 1 or (part == 1 and len(parts) == 1 and size <= method.prime):
        return _matrix(b, x, size, sign, count=count)
    if part > 1:
        result = _split(b, x, part, size // part, sign, method)
    elif len(parts) == 1:
        result = _chirped(b, x, size, sign, method)
    else:
        result = _split(b, x, parts[0], math.prod(parts[1:]), sign, method)
    if count is None or count == size:
        return result
    assert result.imaginary is not None
    return Pair(first(b, result.real, count), first(b, result.imaginary, count))


def first(b: Builder, x: Value, count: Size) -> Value:
    """Returns the first elements of the last axis."""
    before = (None,) * (x.type.rank - 1)
    return b.slice(x, starts=(*before, 0), stops=(*before, count), steps=(1,) * x.type.rank)


def _split(b: Builder, x: Pair, p: int, q: int, sign: int, method: Method) -> Pair:
    outer = x.real.type.shape[:-1]
    apart = _each(x, lambda part: b.reshape(part, shape=(*outer, p, q)))
    if method.columns is not None and method.part(p) == p:
        columns = method.columns(b, apart, p, sign)
    else:
        columns = _matrix(b, apart, p, sign, left=True)
    if q == 1:
        return _each(columns, lambda part: b.reshape(part, shape=(*outer, p)))
    turned = _times(b, columns, angles(np.arange(p), np.arange(q), p * q, sign))
    rows = transform(b, turned, q, sign, method=method)
    rank = len(outer) + 2
    order = (*range(rank - 2), rank - 1, rank - 2)
    return _each(rows, lambda part: b.reshape(b.transpose(part, axes=order), shape=(*outer, p * q)))


def _each(x: Pair, change: object) -> Pair:
    assert callable(change)
    return Pair(change(x.real), None if x.imaginary is None else change(x.imaginary))


def _chirped(b: Builder, x: Pair, size: int, sign: int, method: Method) -> Pair:
    """Transforms a great prime number of elements: j * k = (j * j + k * k - (k - j) * (k - j)) / 2 makes the sum a
    convolution with a chirp."""
    line = np.arange(size)
    chirp = np.exp(sign * 1j * np.pi * (line * line % (2 * size)) / size)
    length = 1 << (2 * size - 2).bit_length()
    kernel = np.zeros(length, complex)
    kernel[:size] = chirp.conj()
    kernel[length - size + 1 :] = chirp.conj()[1:][::-1]
    widths = (*((0, 0),) * (x.real.type.rank - 1), (0, length - size))
    padded = _each(_times(b, x, chirp), lambda part: b.pad(part, widths=widths))
    spectrum = transform(b, padded, length, -1, method=method)
    product = _times(b, spectrum, np.fft.fft(kernel) / length)
    back = transform(b, product, length, 1, method=method)
    return _times(b, _each(back, lambda part: first(b, part, size)), chirp)


def half_spectrum(b: Builder, x: Value, sign: int = -1, method: Method = PRODUCTS) -> Pair:
    """Returns the first half of the transform of real rows; the other half is its conjugate."""
    size = x.type.shape[-1]
    if isinstance(size, int):
        return transform(b, Pair(x), size, sign, size // 2 + 1, method)
    whole = transform(b, Pair(x), size, sign)
    assert whole.imaginary is not None
    half = add(floor_divide(size, 2), 1)
    return Pair(first(b, whole.real, half), first(b, whole.imaginary, half))


def whole_signal(b: Builder, x: Pair, size: Size, sign: int = 1, method: Method = PRODUCTS) -> Value:
    """Returns real rows of `size` elements from the first half of their spectrum, without a scale.

    The imaginary parts of the first element, and of the last one if the size is even, do not count.
    """
    assert x.imaginary is not None
    real, imaginary = x.real, x.imaginary
    # Elements ceil(size / 2) - 1 down to 1 once more, conjugated.
    before, rank = (None,) * (real.type.rank - 1), real.type.rank
    stop = ceil_divide(size, 2)

    def mirrored(part: Value) -> Value:
        inner = b.slice(part, starts=(*before, 1), stops=(*before, stop), steps=(1,) * rank)
        return b.flip(inner, axes=(rank - 1,))

    whole = Pair(
        b.concat(real, mirrored(real), axis=-1),
        b.concat(imaginary, b.negate(mirrored(imaginary)), axis=-1),
    )
    return transform(b, whole, size, sign, method=method).real
