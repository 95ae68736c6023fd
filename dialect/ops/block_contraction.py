"""Products of floats or quantized values with a matrix that is stored as quantized values and scales.

The weight is dequantized during the multiplication and never stored. Only passes create these operators. The planes are
those of `block_quantization`, or 8-bit floats as quantized values. The dequantized weight is `rounded` to f32, bf16 or
f16, usually the dtype of the other factor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..dims import multiply
from ..emitter import ZERO, Emitter, IndexMap, Loop, Result, Scalar, ScalarEmitter, Tensor, loop, loops
from ..operator import Attributes, AttributeSpec, Case, InferenceError, LateCases, Operand, Operator
from ..types import BF16, F16, F32, I8, I32, STORAGE, TABLES, U8, DType, TensorType, dtype_of
from .support.accumulate import SPARSE, Numbers
from .support.block_codes import table_words

_PARTS = {8: 1, 4: 2}
"""The quantized values per byte, by their bits."""
_NIBBLE = 4
_HALVES = {dtype.name: dtype for dtype in (BF16, F16)}
_TABLE = AttributeSpec("table", "ints?", None)
"""The sixteen signed bytes that 4-bit values index; without it, they are integers less 8 or less their zero point."""


def _infer(name: str, types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, codes, scales, *zeros = types
    parts = _PARTS.get(attributes["bits"])
    if parts is None or x.rank == 0 or codes.rank != 3:
        raise InferenceError("bad-attribute", f"`{name}` of {x} and {codes} has codes of 4 or 8 bits")
    table = attributes["table"]
    if table is not None and (attributes["bits"] != _NIBBLE or zeros or len(table) != 1 << _NIBBLE):
        raise InferenceError("bad-attribute", f"`{name}` has a table of 16 values of 4 bits, and no zero points")
    if table is not None and not all(I8.integer_range[0] <= value <= I8.integer_range[1] for value in table):
        raise InferenceError("bad-attribute", f"`{name}` has a table of signed bytes")
    columns, blocks, width = codes.shape
    inner = multiply(multiply(blocks, width), parts)
    if codes.dtype.is_storage and (attributes["bits"] != codes.dtype.bits or zeros):
        raise InferenceError(
            "bad-attribute", f"`{name}` has whole quantized values of {codes.dtype}, and no zero points"
        )
    if x.shape[-1] != inner or any(plane.shape != (columns, blocks) for plane in (scales, *zeros)):
        shown = ", ".join(map(str, types))
        raise InferenceError("shape-mismatch", f"`{name}` cannot multiply {shown}", operand=0)
    return (TensorType(F32, (*x.shape[:-1], columns)),)


def _whole(codes: Numbers, zeros: Numbers | None, bits: int, table: Sequence[int] | None) -> Numbers:
    """Returns the quantized values minus their zero points, [columns, blocks, block]: integers, unless they are floats.
    Zero points have as many bits as the values."""
    if dtype_of(codes).is_float:
        return codes
    whole = codes.astype(np.int16)
    if bits == _NIBBLE:
        whole = np.concatenate([whole & 15, whole >> 4], -1)
    if table is not None:
        return np.asarray(np.asarray(table, np.int16)[whole])
    if zeros is not None:
        middle = zeros & 15 if bits == _NIBBLE else zeros
        return np.asarray(whole - middle[..., None].astype(np.int16))
    return np.asarray(whole - 8 if bits == _NIBBLE else whole)


def _factors(
    x: Numbers,
    codes: Numbers,
    scales: Numbers,
    zeros: Numbers | None,
    bits: int,
    rounded: str,
    table: Sequence[int] | None,
) -> tuple[Numbers, Numbers]:
    """Returns x and the dequantized weight, [columns, steps], in the dtype of the products."""
    wide = np.dtype(np.float32) if dtype_of(x).is_half else np.promote_types(x.dtype, np.float32)
    weight = _whole(codes, zeros, bits, table).astype(wide) * scales[..., None].astype(wide)
    if rounded in _HALVES:
        weight = weight.astype(np.float32).astype(_HALVES[rounded].numpy).astype(wide)
    return x.astype(wide), np.asarray(weight.reshape(len(weight), x.shape[-1]))


def _multiply(
    x: Numbers,
    codes: Numbers,
    scales: Numbers,
    zeros: Numbers | None = None,
    *,
    bits: int,
    rounded: str,
    sparse: bool | None = None,
    table: Sequence[int] | None = None,
) -> Numbers:
    rows, weight = _factors(x, codes, scales, zeros, bits, rounded, table)
    return np.asarray(np.matmul(rows, weight.T))


def _magnitudes(
    x: Numbers,
    codes: Numbers,
    scales: Numbers,
    zeros: Numbers | None = None,
    *,
    bits: int,
    rounded: str,
    sparse: bool | None = None,
    table: Sequence[int] | None = None,
) -> Numbers:
    """Sums |x * weight|: every product is a term that may be rounded."""
    rows, weight = _factors(x, codes, scales, zeros, bits, rounded, table)
    return np.asarray(np.matmul(np.abs(rows), np.abs(weight).T))


def _dot(
    x: Numbers,
    codes: Numbers,
    scales: Numbers,
    zeros: Numbers | None = None,
    *,
    bits: int,
    zero: int,
    table: Sequence[int] | None = None,
) -> Numbers:
    whole = _whole(codes, zeros, bits, table)
    sums = _block_sums(x, whole, zero)
    return np.asarray((sums.astype(np.float32) * scales.T.astype(np.float32)).sum(-2, dtype=np.float32))


def _block_sums(x: Numbers, whole: Numbers, zero: int) -> Numbers:
    steps = x.reshape(*x.shape[:-1], *whole.shape[1:]).astype(np.int16) - zero
    # Sums of a block are integers below 2**53, and so exact in any order.
    return np.asarray(np.einsum("...bk,cbk->...bc", steps.astype(np.float64), whole.astype(np.float64), optimize=True))


def _dot_magnitudes(
    x: Numbers,
    codes: Numbers,
    scales: Numbers,
    zeros: Numbers | None = None,
    *,
    bits: int,
    zero: int,
    table: Sequence[int] | None = None,
) -> Numbers:
    """Sums |sum of a block * scale|: sums within blocks are exact, so that each block is one term."""
    sums = np.abs(_block_sums(x, _whole(codes, zeros, bits, table), zero))
    return np.asarray((sums * np.abs(scales.T.astype(np.float64))).sum(-2))


def _lower_multiply(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    def scaled(s: ScalarEmitter, numbers: Sequence[Scalar], codes: Sequence[Scalar], scale: Scalar) -> Scalar:
        products = [s.binary("mul", s.cast(x, F32), s.cast(code, F32)) for x, code in zip(numbers, codes, strict=True)]
        return s.binary("mul", _sum(s, products), s.cast(scale, F32))

    def rounded(s: ScalarEmitter, numbers: Sequence[Scalar], codes: Sequence[Scalar], scale: Scalar) -> Scalar:
        weights = [s.binary("mul", s.cast(code, F32), s.cast(scale, F32)) for code in codes]
        factors = [s.cast(s.cast(weight, _HALVES[attributes["rounded"]]), F32) for weight in weights]
        return _sum(s, [s.binary("mul", s.cast(x, F32), y) for x, y in zip(numbers, factors, strict=True)])

    return _lower(e, operands, attributes, types, rounded if attributes["rounded"] in _HALVES else scaled)


def _lower_dot(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    def scaled(s: ScalarEmitter, numbers: Sequence[Scalar], codes: Sequence[Scalar], scale: Scalar) -> Scalar:
        zero = s.constant(attributes["zero"], I32)
        steps = [s.binary("sub", s.cast(x, I32), zero) for x in numbers]
        products = [s.binary("mul", x, code) for x, code in zip(steps, codes, strict=True)]
        return s.binary("mul", s.cast(_sum(s, products), F32), s.cast(scale, F32))

    return _lower(e, operands, attributes, types, scaled)


def _sum(s: ScalarEmitter, products: Sequence[Scalar]) -> Scalar:
    return products[0] if len(products) == 1 else s.binary("add", *products)


Scaled = Callable[[ScalarEmitter, Sequence[Scalar], Sequence[Scalar], Scalar], Scalar]
"""A function that multiplies numbers by the quantized values of one byte and by their scale."""


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType], scaled: Scaled
) -> Sequence[Tensor]:
    x, codes, scales, *zeros = operands
    (result,) = types
    parts, table = _PARTS[attributes["bits"]], attributes["table"]
    columns, blocks, width = codes.type.shape
    outer = result.shape[:-1]
    n, sparse = len(outer), bool(attributes.get("sparse"))
    rows, block, position, column = loops(*range(n)), loop(n), loop(n + 1), loop(n + 2)
    split = e.reshape(x, (*outer, blocks, parts, width))
    halves: list[tuple[Tensor, IndexMap]] = [(split, (*rows, block, ZERO + part, position)) for part in range(parts)]

    def body(s: ScalarEmitter, *elements: Scalar) -> Sequence[Scalar]:
        *numbers, total = elements
        code, scale, *zero = numbers[parts:]
        return [s.binary("add", total, scaled(s, numbers[:parts], _codes(s, code, parts, zero, table), scale))]

    return e.structured(
        [*map(Loop, outer), *(Loop(size, parallel=False, sparse=sparse) for size in (blocks, width)), Loop(columns)],
        [*halves, (codes, (column, block, position)), *((plane, (column, block)) for plane in (scales, *zeros))],
        [Result(result, (*rows, column), initial=0)],
        body,
    )


def _codes(
    s: ScalarEmitter, code: Scalar, parts: int, zero: Sequence[Scalar], table: Sequence[int] | None
) -> list[Scalar]:
    """Returns the quantized values in a byte, minus the zero point; integers as i32."""
    if code.dtype.is_storage:
        return [code]
    whole = s.cast(code, I32)
    if parts == 1:
        return [s.binary("sub", whole, s.cast(zero[0], I32)) if zero else whole]
    low, high = s.binary("and", whole, s.constant(15, I32)), s.binary("shr", whole, s.constant(_NIBBLE, I32))
    if table is not None:
        return [_look_up(s, half, table) for half in (low, high)]
    middle = s.binary("and", s.cast(zero[0], I32), s.constant(15, I32)) if zero else s.constant(8, I32)
    return [s.binary("sub", half, middle) for half in (low, high)]


def _look_up(s: ScalarEmitter, index: Scalar, table: Sequence[int]) -> Scalar:
    """Returns a value of a table of signed bytes as i32. Bits 3 and 2 of the index select one of four words, bits 1 and
    0 a byte of it."""

    def has(bit: int) -> Scalar:
        return s.compare("ne", s.binary("and", index, s.constant(bit, I32)), s.constant(0, I32))

    first, second, third, fourth = (s.constant(word, I32) for word in table_words(table))
    is_odd = has(4)
    word = s.select(has(8), s.select(is_odd, fourth, third), s.select(is_odd, second, first))
    for bit in (2, 1):
        word = s.select(has(bit), s.binary("shr", word, s.constant(8 * bit, I32)), word)
    return s.binary("shr", s.binary("shl", word, s.constant(24, I32)), s.constant(24, I32))


def _shapes(
    rows: tuple[int, ...], columns: int, blocks: int, width: int, *, bits: int, zero: bool
) -> tuple[tuple[int, ...], ...]:
    inner = blocks * width * _PARTS[bits]
    planes = ((columns, blocks),) * (2 if zero else 1)
    return ((*rows, inner), (columns, blocks, width), *planes)


def _cases(**attributes: int | str) -> tuple[Case, ...]:
    return tuple(
        Case(
            _shapes(rows, columns, blocks, width, bits=bits, zero=zero),
            {"bits": bits, **attributes},
            terms=max(1, blocks * width * _PARTS[bits]),
        )
        for rows, columns, blocks, width, bits, zero in (
            ((3,), 5, 2, 16, 4, False),
            ((1,), 17, 3, 16, 4, True),
            ((9,), 49, 1, 32, 8, False),
            ((2, 3), 33, 2, 32, 8, True),
            ((), 16, 4, 32, 8, False),
            ((70,), 33, 2, 16, 4, False),
            ((0,), 5, 2, 16, 4, False),
            ((1,), 1, 0, 16, 4, False),
            ((5,), 0, 1, 32, 8, True),
        )
    )


def _table_cases(**attributes: int | str) -> tuple[Case, ...]:
    return tuple(
        Case(
            _shapes(rows, columns, blocks, width, bits=_NIBBLE, zero=False),
            {"bits": _NIBBLE, "table": table, **attributes},
            terms=blocks * width * _PARTS[_NIBBLE],
        )
        for rows, columns, blocks, width, table in (
            ((3,), 5, 2, 16, TABLES["nl"][0]),
            ((1,), 49, 3, 8, TABLES["e2m1"][0]),
            ((2, 35), 33, 2, 16, TABLES["nl"][0]),
        )
    )


def _byte_case(rows: tuple[int, ...], columns: int, blocks: int, width: int, dtype: DType) -> Case:
    """Returns a case with another dtype of quantized values than u8."""
    shapes = _shapes(rows, columns, blocks, width, bits=8, zero=False)
    return Case(shapes, {"bits": 8}, mixed={1: dtype}, terms=max(1, blocks * width))


def _planes(*codes: DType) -> tuple[Operand, ...]:
    return (
        Operand("codes", codes, group="codes"),
        Operand("scales", (F16, BF16, F32), group="scales"),
        Operand("zeros", (U8,), group="zeros", optional=True),
    )


block_matmul = Operator(
    name="block_matmul",
    summary="x @ w.T for a block-quantized matrix w, given by its quantized values, scales and zero points",
    operands=(Operand("x", (F32, BF16, F16), group="x"), *_planes(U8, I8, *STORAGE)),
    attributes=(
        AttributeSpec("bits", "int"),
        AttributeSpec("rounded", "str", "f32", ("f32", *_HALVES)),
        SPARSE,
        _TABLE,
    ),
    infer=lambda types, attributes: _infer("block_matmul", types, attributes),
    reference=_multiply,
    magnitudes=_magnitudes,
    gradient=None,
    lower=_lower_multiply,
    cases=LateCases(
        lambda: (
            *_cases(),
            *_table_cases(),
            *_table_cases(rounded="bf16")[1:],
            *_cases(rounded="bf16")[:4],
            *_cases(rounded="f16")[:4],
            _byte_case((3,), 49, 1, 37, I8),
            *(_byte_case((1,), 49, 1, 37, dtype) for dtype in STORAGE),
            *(_byte_case((2, 3), 17, 2, 16, dtype) for dtype in STORAGE),
        )
    ),
    properties=frozenset({"contraction", "internal"}),
)

block_dot = Operator(
    name="block_dot",
    summary="(x - zero) @ w.T for quantized x and a block-quantized matrix w; sums are exact within a block and "
    "added in f32",
    operands=(Operand("x", (U8,)), *_planes(U8, I8)),
    attributes=(AttributeSpec("bits", "int"), AttributeSpec("zero", "int"), _TABLE),
    infer=lambda types, attributes: _infer("block_dot", types, attributes),
    reference=_dot,
    magnitudes=_dot_magnitudes,
    gradient=None,
    lower=_lower_dot,
    cases=LateCases(lambda: (*_cases(zero=128), *_cases(zero=0), *_cases(zero=37), *_table_cases(zero=128))),
    properties=frozenset({"contraction", "internal"}),
)

OPERATORS = (block_matmul, block_dot)
