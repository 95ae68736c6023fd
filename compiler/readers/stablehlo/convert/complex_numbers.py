"""Operations on complex numbers, which are pairs of tensors: the real and the imaginary parts.

An operation that moves elements or is linear applies to each part. A product of z = a + bi and w = c + di has four
products of parts: zw = (ac - bd) + (ad + bc)i.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...writing.tensors import Tensor
from ..writing.items import ComplexTensor, Item, describe
from ..writing.records import decode_complex
from ..writing.use import Convert, Converters, Use
from . import addressing, contractions, elementwise, reductions, shapes


def _parts(use: Use) -> tuple[ComplexTensor, ...]:
    """Returns the operands, which must be complex."""
    found = tuple(item for item in use.items if isinstance(item, ComplexTensor))
    if len(found) < len(use.items):
        other = next(item for item in use.items if not isinstance(item, ComplexTensor))
        use.fail(f"takes {describe(other)} beside complex numbers", code="bad-mlir")
    return found


def _of_parts(use: Use, items: Sequence[Item]) -> Use:
    """Returns the same operation on real tensors."""
    results = tuple((number, found.part) for number, found in use.record.results)
    return replace(use, items=tuple(items), record=replace(use.record, results=results))


def _by_parts(convert: Convert) -> Convert:
    """Returns the converter of an operation that applies to each part. Real operands, such as indices, are used for
    both."""

    def converted(use: Use) -> Sequence[Item]:
        _check_region_is_linear(use)
        made: list[list[Tensor]] = []
        for number in (0, 1):
            given = [item.parts[number] if isinstance(item, ComplexTensor) else item for item in use.items]
            made.append([each for each in convert(_of_parts(use, given)) if isinstance(each, Tensor)])
        return [ComplexTensor(*pair) for pair in zip(*made, strict=True)]

    return converted


def _check_region_is_linear(use: Use) -> None:
    """Reports a region that combines elements by another operation than an addition."""
    for region in use.record.regions:
        for operation in region.operations[:-1]:
            if operation.name != "add":
                use.fail(f"combines complex numbers by `{operation.name}`; `add` is supported")


def _bilinear(convert: Convert) -> Convert:
    """Returns the converter of a product."""

    def converted(use: Use) -> Sequence[Item]:
        x, y = _parts(use)
        g = use.g

        def product(left: Tensor, right: Tensor) -> Tensor:
            (made,) = convert(_of_parts(use, (left, right)))
            assert isinstance(made, Tensor), made
            return made

        real = g.subtract(product(x.real, y.real), product(x.imaginary, y.imaginary))
        return [ComplexTensor(real, g.add(product(x.real, y.imaginary), product(x.imaginary, y.real)))]

    return converted


def _divide(use: Use) -> Sequence[Item]:
    """Divides both numbers by the greatest part of the divisor first, so that its square is in range."""
    x, y = _parts(use)
    g = use.g
    scale = g.maximum(g.abs(y.real), g.abs(y.imaginary))
    c, d = g.divide(y.real, scale), g.divide(y.imaginary, scale)
    a, b = g.divide(x.real, scale), g.divide(x.imaginary, scale)
    square = g.add(g.square(c), g.square(d))
    real = g.divide(g.add(g.multiply(a, c), g.multiply(b, d)), square)
    return [ComplexTensor(real, g.divide(g.subtract(g.multiply(b, c), g.multiply(a, d)), square))]


def _magnitude(use: Use, z: ComplexTensor) -> Tensor:
    """Returns `m * sqrt(1 + (n/m)^2)` for the greater part m and the lesser part n."""
    g, a, b = use.g, use.g.abs(z.real), use.g.abs(z.imaginary)
    more, less = g.maximum(a, b), g.minimum(a, b)
    is_exact = g.logical_or(g.equal(less, g.like(0, a)), g.isinf(more))
    ratio = g.divide(less, g.where(is_exact, g.like(1, a), more))
    return g.where(is_exact, more, g.multiply(more, g.sqrt(g.add(g.like(1, a), g.square(ratio)))))


def _abs(use: Use) -> Sequence[Item]:
    return [_magnitude(use, _parts(use)[0])]


def _exponential(use: Use) -> Sequence[Item]:
    (z,) = _parts(use)
    g, size = use.g, use.g.exp(z.real)
    return [ComplexTensor(g.multiply(size, g.cos(z.imaginary)), g.multiply(size, g.sin(z.imaginary)))]


def _log(use: Use) -> Sequence[Item]:
    (z,) = _parts(use)
    return [ComplexTensor(use.g.log(_magnitude(use, z)), use.g.atan2(z.imaginary, z.real))]


def _compare(use: Use) -> Sequence[Item]:
    x, y = _parts(use)
    g = use.g
    is_equal = g.logical_and(g.equal(x.real, y.real), g.equal(x.imaginary, y.imaginary))
    return [is_equal if use.word("comparison_direction") == "EQ" else g.logical_not(is_equal)]


def _constant(use: Use) -> Sequence[Item]:
    real, imaginary = decode_complex(use.record.attributes["value"])
    return [ComplexTensor(shapes.stored(use, real), shapes.stored(use, imaginary))]


def _convert(use: Use) -> Sequence[Item]:
    """Converts each part; the imaginary part of a real number is zero."""
    (given,) = use.items
    if isinstance(given, ComplexTensor):
        return _by_parts(elementwise.CONVERTERS["convert"])(use)
    (real,) = elementwise.CONVERTERS["convert"](_of_parts(use, [given]))
    assert isinstance(real, Tensor), real
    return [ComplexTensor(real, use.g.full(shape=real.shape, value=0.0, dtype=real.dtype))]


def _complex(use: Use) -> Sequence[Item]:
    return [ComplexTensor(*use.operands)]


def _real(use: Use) -> Sequence[Item]:
    """Returns the real part; a real number is its own."""
    (given,) = use.items
    return [given.real if isinstance(given, ComplexTensor) else use.x]


def _imag(use: Use) -> Sequence[Item]:
    (given,) = use.items
    if isinstance(given, ComplexTensor):
        return [given.imaginary]
    return [use.g.full(shape=use.x.shape, value=0.0, dtype=use.x.dtype)]


def _fft(use: Use) -> Sequence[Item]:
    """Transforms the last axes, one for each length."""
    g, kind, lengths = use.g, use.word("fft_type"), use.integers("fft_length")
    (given,) = use.items
    if kind == "RFFT":
        x = use.x
        axes = tuple(range(x.rank - len(lengths), x.rank))
        return [ComplexTensor(*g.apply("rfft", [x], {"axes": axes}))]
    if not isinstance(given, ComplexTensor):
        use.fail(f"is of kind {kind} and takes {describe(given)}", code="bad-mlir")
    rank = given.real.rank
    axes = tuple(range(rank - len(lengths), rank))
    if kind == "IRFFT":
        return [g.irfft(*given.parts, axes=axes, size=lengths[-1])]
    return [ComplexTensor(*g.apply(kind.lower(), list(given.parts), {"axes": axes}))]


_PARTED: Mapping[str, Converters] = {
    "add subtract negate select": elementwise.CONVERTERS,
    "broadcast broadcast_in_dim concatenate dynamic_broadcast_in_dim dynamic_pad dynamic_reshape dynamic_slice "
    "dynamic_update_slice pad real_dynamic_slice reshape reverse slice transpose": shapes.CONVERTERS,
    "dynamic_gather gather scatter torch_index_select": addressing.CONVERTERS,
    "reduce": reductions.CONVERTERS,
}
"""Operations that apply to each part, and their family."""
_PRODUCTS: Mapping[str, Converters] = {
    "multiply": elementwise.CONVERTERS,
    "convolution dot dot_general dynamic_conv einsum": contractions.CONVERTERS,
}
OF_COMPLEX: Converters = {
    **{name: _by_parts(family[name]) for names, family in _PARTED.items() for name in names.split()},
    **{name: _bilinear(family[name]) for names, family in _PRODUCTS.items() for name in names.split()},
    "abs": _abs,
    "compare": _compare,
    "constant": _constant,
    "convert": _convert,
    "divide": _divide,
    "exponential": _exponential,
    "log": _log,
}
"""The converters of operations that take or return complex numbers and have another meaning for real ones."""
CONVERTERS: Converters = {"complex": _complex, "fft": _fft, "imag": _imag, "real": _real}
