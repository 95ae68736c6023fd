"""Products of floats with a bf16 matrix in 12 bits: sign and fraction of each number, and an index of its exponent.

Trained and random weights have few exponents: 15 of them cover all but some ten thousandths of the numbers. `packed_*`
are the planes of a matrix [columns, steps] of bf16, whose values they represent bit for bit:

    packed_table    u16[32]                     the exponents that indices stand for, at their place in a bf16, twice
    packed_words    u32[columns, steps / 8, 3]  eight indices of 4 bits, the first in the lowest bits; then signs and
                                                fractions of steps 0, 1, 4 and 5, and those of 2, 3, 6 and 7
    packed_places   i32[escapes] x 2            the column and the step of each number with another exponent
    packed_escapes  bf16[escapes]               these numbers, followed by zeros

The last of the 16 entries is the exponent of zeros and denormal numbers. A number with an exponent that has no entry is
stored as 0 in its place. Steps i and i + 4 form a pair, two bf16 in a word. Signs and fractions of a pair take half of
the bits of a word, and those of the next pair the other half, rotated by a byte:

    pair      s....... .fffffff s....... .fffffff     s and f at their places in two bf16
    next      .fffffff s....... .fffffff s.......     rotated to the right by 8 bits

An instruction looks up both exponents of a pair. Since it takes five bits of each index, the table is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from ..dims import divide_exactly, multiply
from ..emitter import ZERO, Emitter, Index, Loop, Result, Scalar, ScalarEmitter, Tensor, loop, loops
from ..operator import Attributes, AttributeSpec, Case, InferenceError, LateCases, Operand, Operator
from ..types import BF16, F32, I32, I64, U16, U32, DType, TensorType
from .support.accumulate import ROUNDED, Numbers, check_rounding

TOGETHER = 8
"""The steps whose indices share a word."""
HALF = 4
WORDS = 3
"""The words of a group of steps."""
ENTRIES = 16
_BITS = 4
_PARTS = 0x807F807F
"""The signs and the fractions of a pair of bf16."""
_UPPER = 0xFFFF0000
_EXPONENT = 0x7F80
"""The exponent of a bf16. The table has no other bits; with the mask, a CPU may look up the exponents as bytes."""
_CHUNK = 1 << 16
"""The numbers that are counted or packed at once."""


# Planes


def _bits(w: Numbers) -> npt.NDArray[np.uint16]:
    return np.ascontiguousarray(w).view(np.uint16)


def exponents_of(w: Numbers) -> tuple[npt.NDArray[np.int64], int]:
    """Returns the exponents with an entry, the most frequent ones first, and the number of elements without one."""
    bits, others = _bits(w).reshape(-1), np.zeros(256, np.int64)
    for first in range(0, len(bits), _CHUNK):
        others += np.bincount((bits[first : first + _CHUNK] >> 7) & 255, minlength=256)
    others[0] = 0
    chosen = np.argsort(-others, kind="stable")[: ENTRIES - 1]
    return chosen, int(others.sum() - others[chosen].sum())


def _entries(w: Numbers) -> npt.NDArray[np.uint8]:
    """Returns the entry of each of the 65536 numbers; 16 for those that have none."""
    entries = np.full(256, ENTRIES, np.uint8)
    entries[exponents_of(w)[0]], entries[0] = np.arange(ENTRIES - 1), ENTRIES - 1
    return np.asarray(entries[(np.arange(1 << 16) >> 7) & 255])


def _chunks(w: Numbers) -> Iterator[tuple[int, npt.NDArray[np.uint16]]]:
    """Yields the bits of some rows, whose temporaries stay in a cache, and the number of the first one."""
    bits = _bits(w)
    rows = max(1, _CHUNK // max(1, w.shape[1]))
    for first in range(0, len(w), rows):
        yield first, bits[first : first + rows]


def _find_escapes(w: Numbers) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Returns the rows and the columns of the numbers without an entry."""
    is_escape, width = _entries(w) == ENTRIES, max(1, w.shape[1])
    found = [first * width + np.flatnonzero(np.take(is_escape, bits)) for first, bits in _chunks(w)]
    places = np.concatenate([np.zeros(0, np.int64), *found])
    return (places // width).astype(np.int32), (places % width).astype(np.int32)


def _table(w: Numbers) -> Numbers:
    table = np.zeros(ENTRIES, np.uint16)
    table[: ENTRIES - 1] = exponents_of(w)[0] << 7
    return np.tile(table, 2)


def _words(w: Numbers) -> Numbers:
    entries = _entries(w)
    words = np.empty((len(w), w.shape[1] // TOGETHER, WORDS), np.uint32)
    for first, bits in _chunks(w):
        found = np.take(entries, bits)
        escaped = found == ENTRIES
        if escaped.any():
            bits, found = np.where(escaped, 0, bits), np.where(escaped, ENTRIES - 1, found).astype(np.uint8)
        place = words[first : first + len(bits)]
        bytes = found[:, 0::2] | found[:, 1::2] << np.uint8(_BITS)
        place[..., 0] = bytes.view("<u4")
        steps = bits.reshape(*place.shape[:2], 2, HALF).astype(np.uint32)
        pairs = (steps[:, :, 0] | steps[:, :, 1] << np.uint32(16)) & np.uint32(_PARTS)
        turned = pairs[..., 1::2] >> np.uint32(8) | pairs[..., 1::2] << np.uint32(24)
        place[..., 1:] = pairs[..., 0::2] | turned
    return words


def _places(w: Numbers, escapes: int, axis: int) -> Numbers:
    found = _find_escapes(w)[axis]
    places = np.zeros(escapes, np.int32)
    places[: len(found)] = found
    return places


def _escapes(w: Numbers, escapes: int) -> Numbers:
    found = w[_find_escapes(w)]
    values = np.zeros(escapes, BF16.numpy)
    values[: len(found)] = found
    return values


def _infer_words(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    (w,) = types
    groups = None if w.rank != 2 else divide_exactly(w.shape[1], TOGETHER)
    if groups is None:
        raise InferenceError("shape-mismatch", f"{w} has no rows of whole groups of {TOGETHER}", operand=0)
    return (TensorType(U32, (w.shape[0], groups, WORDS)),)


_ESCAPES = AttributeSpec("escapes", "int")


def _plane(name: str, summary: str, infer: object, reference: object, *attributes: AttributeSpec) -> Operator:
    return Operator(
        name=name,
        summary=summary,
        operands=(Operand("w", (BF16,)),),
        attributes=attributes,
        infer=infer,  # type: ignore[arg-type]  # one of the functions above
        reference=reference,  # type: ignore[arg-type]  # one of the functions above
        gradient=None,
        cases=(),
        properties=frozenset({"packed", "bitwise", "exact", "internal"}),
    )


packed_table = _plane(
    "packed_table",
    "the most frequent exponents of a bf16 matrix, and 0",
    lambda types, attributes: (TensorType(U16, (2 * ENTRIES,)),),
    _table,
)
packed_words = _plane(
    "packed_words", "the indices of exponents, the signs and the fractions of a bf16 matrix", _infer_words, _words
)
packed_places = _plane(
    "packed_places",
    "the columns, or the steps, of the numbers of a bf16 matrix without an index",
    lambda types, attributes: (TensorType(I32, (attributes["escapes"],)),),
    lambda w, escapes, axis: _places(w, escapes, axis),
    _ESCAPES,
    AttributeSpec("axis", "int"),
)
packed_escapes = _plane(
    "packed_escapes",
    "the numbers of a bf16 matrix without an index",
    lambda types, attributes: (TensorType(BF16, (attributes["escapes"],)),),
    lambda w, escapes: _escapes(w, escapes),
    _ESCAPES,
)


# Products


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    x, table, words, *start = types
    if x.rank == 0 or words.rank != 4 or words.shape[-1] != WORDS:
        raise InferenceError("shape-mismatch", f"`packed_matmul` cannot multiply {x} and {words}", operand=0)
    check_rounding("packed_matmul", attributes["factors"], x.dtype)
    columns, blocks, groups, _ = words.shape
    result = TensorType(F32, (*x.shape[:-1], columns))
    steps = multiply(multiply(blocks, groups), TOGETHER)
    if x.shape[-1] != steps or table.shape != (2 * ENTRIES,) or start not in ([], [result]):
        shown = ", ".join(map(str, types))
        raise InferenceError("shape-mismatch", f"`packed_matmul` cannot multiply {shown}", operand=0)
    return (result,)


def unpack(table: Numbers, words: Numbers) -> Numbers:
    """Returns the numbers of words [columns, ..., 3], without the escapes, as f32 [columns, steps]."""
    indices, fractions = words[..., 0], words[..., 1:, None]
    shifts = np.arange(TOGETHER, dtype=np.uint32) * _BITS
    exponents = table.astype(np.uint32)[(indices[..., None] >> shifts) & np.uint32(ENTRIES - 1)]
    turned = np.concatenate([fractions, fractions << np.uint32(8) | fractions >> np.uint32(24)], -1)
    pairs = turned.reshape(*indices.shape, HALF) & np.uint32(_PARTS)
    parts = np.concatenate([pairs & np.uint32(0xFFFF), pairs >> np.uint32(16)], -1)
    numbers = ((parts | exponents) << np.uint32(16)).view(np.float32)
    return np.asarray(numbers.reshape(indices.shape[0], prod(indices.shape[1:]) * TOGETHER))


def _wide(x: Numbers, paired: bool) -> Numbers:
    """Returns rows in f32, or wider, in the order of steps."""
    wide = x.astype(np.float32) if x.dtype == BF16.numpy else x
    if not paired:
        return wide
    grouped = wide.reshape(*x.shape[:-1], x.shape[-1] // TOGETHER, HALF, 2)
    return np.asarray(np.swapaxes(grouped, -1, -2).reshape(x.shape))


def _multiply(
    x: Numbers,
    table: Numbers,
    words: Numbers,
    start: Numbers | None = None,
    *,
    paired: bool = False,
    factors: DType | None = None,
) -> Numbers:
    wide = _wide(x, paired)
    products = np.matmul(wide, unpack(table, words).astype(wide.dtype).T)
    return np.asarray(products if start is None else start + products)


def _magnitudes(
    x: Numbers,
    table: Numbers,
    words: Numbers,
    start: Numbers | None = None,
    *,
    paired: bool = False,
    factors: DType | None = None,
) -> Numbers:
    wide = np.abs(_wide(x, paired))
    products = np.matmul(wide, np.abs(unpack(table, words)).astype(wide.dtype).T)
    return np.asarray(products if start is None else np.abs(start) + products)


def _lower(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    x, table, words, *start = operands
    (result,) = types
    columns, blocks, groups, _ = words.type.shape
    outer = result.shape[:-1]
    n = len(outer)
    rows, block, position, column = loops(*range(n)), loop(n), loop(n + 1), loop(n + 2)
    split = e.reshape(x, (*outer, blocks, groups, TOGETHER))
    places = [2 * (step % HALF) + step // HALF if attributes["paired"] else step for step in range(TOGETHER)]
    steps: list[tuple[Index, ...]] = [(*rows, block, position, ZERO + place) for place in places]

    def body(s: ScalarEmitter, *elements: Scalar) -> Sequence[Scalar]:
        *numbers, indices, first, second, total = elements
        products: Scalar | None = None
        for pair in range(HALF):
            parts = _turned(s, first if pair < HALF // 2 else second, pair % 2)
            bits = s.binary("or", s.binary("and", parts, s.constant(_PARTS, U32)), _exponents(s, table, indices, pair))
            even = s.bits(_moved(s, bits, "shl", 16), F32)
            odd = s.bits(s.binary("and", bits, s.constant(_UPPER, U32)), F32)
            for step, factor in ((pair, even), (pair + HALF, odd)):
                number = numbers[step] if x.type.dtype is F32 else s.cast(numbers[step], F32)
                product = s.binary("mul", number, factor)
                products = product if products is None else s.binary("add", products, product)
        assert products is not None
        return [s.binary("add", total, products)]

    return e.structured(
        [
            *map(Loop, outer),
            Loop(blocks, parallel=False),
            Loop(groups, parallel=False, rounds_factors=attributes["factors"] is not None),
            Loop(columns),
        ],
        [*((split, map) for map in steps), *((words, (column, block, position, ZERO + n)) for n in range(WORDS))],
        [Result(result, (*rows, column), initial=start[0] if start else 0)],
        body,
    )


def _moved(s: ScalarEmitter, word: Scalar, direction: str, bits: int) -> Scalar:
    return s.binary(direction, word, s.constant(bits, U32)) if bits else word


def _turned(s: ScalarEmitter, word: Scalar, next: int) -> Scalar:
    """Returns the signs and fractions of a pair, or of the next one, at their places in two bf16, among other bits."""
    return s.binary("or", _moved(s, word, "shl", 8), _moved(s, word, "shr", 24)) if next else word


def _exponents(s: ScalarEmitter, table: Tensor, indices: Scalar, pair: int) -> Scalar:
    """Returns the exponents of a pair at their places in two bf16."""

    def entry(step: int) -> Scalar:
        index = s.binary("and", _moved(s, indices, "shr", step * _BITS), s.constant(ENTRIES - 1, U32))
        return s.binary("and", s.cast(s.load(table, [s.cast(index, I64)]), U32), s.constant(_EXPONENT, U32))

    return s.binary("or", entry(pair), _moved(s, entry(pair + HALF), "shl", 16))


def _planes_of(
    rows: tuple[int, ...], columns: int, blocks: int, groups: int, *, start: bool = True, paired: bool = False
) -> Case:
    table = np.tile(np.asarray([*range(115, 115 + ENTRIES - 1), 0], np.uint16) << 7, 2)
    random = np.random.default_rng(columns + groups)
    words = random.integers(0, 1 << 32, (columns, blocks, groups, WORDS), dtype=np.uint32)
    steps = blocks * groups * TOGETHER
    started = ((*rows, columns),) if start else ()
    shapes = ((*rows, steps), (2 * ENTRIES,), words.shape, *started)
    dtypes = (BF16 if paired else F32,)
    given = {"paired": True} if paired else {}
    return Case(shapes, given, arrays={1: table, 2: words}, terms=max(1, steps), dtypes=dtypes)


packed_matmul = Operator(
    name="packed_matmul",
    summary="x @ w.T, plus start if it is given, for a bf16 matrix w, given by its planes; in x, the steps of a "
    "group may be in pairs: 0, 4, 1, 5, and so on; `factors` as for `matmul`",
    operands=(
        Operand("x", (F32, BF16), group="x"),
        Operand("table", (U16,), group="table"),
        Operand("words", (U32,), group="words"),
        Operand("start", (F32,), group="start", optional=True),
    ),
    attributes=(AttributeSpec("paired", "bool", default=False), ROUNDED),
    infer=_infer,
    reference=_multiply,
    magnitudes=_magnitudes,
    gradient=None,
    lower=_lower,
    cases=LateCases(
        lambda: (
            _planes_of((3,), 5, 2, 4),
            _planes_of((1,), 49, 1, 3, start=False),
            _planes_of((70,), 33, 2, 4),
            _planes_of((), 16, 1, 2),
            _planes_of((0,), 5, 2, 4),
            _planes_of((1,), 1, 0, 4),
            _planes_of((5,), 0, 1, 2),
            _planes_of((3,), 5, 2, 4, paired=True),
            _planes_of((1,), 49, 1, 3, paired=True),
            _planes_of((70,), 33, 2, 4, start=False, paired=True),
        )
    ),
    properties=frozenset({"contraction", "internal"}),
)

OPERATORS = (packed_table, packed_words, packed_places, packed_escapes, packed_matmul)
