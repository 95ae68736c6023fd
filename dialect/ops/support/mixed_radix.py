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
"""

from __future__ import annotations

import numpy as np

from ...dims import Size
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
    rest, primes = size, []
    for number in range(2, size + 1):
        if number * number > rest:
            break
        while rest % number == 0:
            primes.append(number)
            rest //= number
    primes += [rest] if rest > 1 else []
    groups: list[int] = []
    for prime in sorted(primes, reverse=True):
        best = max((i for i, g in enumerate(groups) if g * prime <= SMALL), key=lambda i: -groups[i], default=None)
        if best is None:
            groups.append(prime)
        else:
            groups[best] *= prime
    return sorted(groups) or [1]


def transform(b: Builder, x: Pair, size: Size, sign: int, count: int | None = None) -> Pair:
    """Returns the transform of the last axis, without a scale; `sign` is -1, or 1 for the inverse. With `count`, only
    the first elements of the result are wanted."""
    if not isinstance(size, int):
        return _computed(b, x, size, sign)
    parts = factors(size)
    whole = size <= SMALL or (len(parts) == 1 and size <= PRIME)
    if whole:
        return _matrix(b, x, size, sign, count=count)
    result = _chirped(b, x, size, sign) if len(parts) == 1 else _split(b, x, parts, sign)
    if count is None or count == size:
        return result
    assert result.imaginary is not None
    return Pair(first(b, result.real, count), first(b, result.imaginary, count))


def first(b: Builder, x: Value, count: Size) -> Value:
    """Returns the first elements of the last axis."""
    before = (None,) * (x.type.rank - 1)
    return b.slice(x, starts=(*before, 0), stops=(*before, count), steps=(1,) * x.type.rank)


def _split(b: Builder, x: Pair, parts: list[int], sign: int) -> Pair:
    p, q = parts[0], int(np.prod(parts[1:]))
    outer = x.real.type.shape[:-1]
    apart = _each(x, lambda part: b.reshape(part, shape=(*outer, p, q)))
    columns = _matrix(b, apart, p, sign, left=True)
    turned = _times(b, columns, angles(np.arange(p), np.arange(q), p * q, sign))
    rows = transform(b, turned, q, sign)
    rank = len(outer) + 2
    order = (*range(rank - 2), rank - 1, rank - 2)
    return _each(rows, lambda part: b.reshape(b.transpose(part, axes=order), shape=(*outer, p * q)))


def _each(x: Pair, change: object) -> Pair:
    assert callable(change)
    return Pair(change(x.real), None if x.imaginary is None else change(x.imaginary))


def _chirped(b: Builder, x: Pair, size: int, sign: int) -> Pair:
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
    spectrum = transform(b, padded, length, -1)
    product = _times(b, spectrum, np.fft.fft(kernel) / length)
    back = transform(b, product, length, 1, count=None)
    return _times(b, _each(back, lambda part: first(b, part, size)), chirp)
