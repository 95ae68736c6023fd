"""Operators of strings alone: concatenation, splitting, normalization and regular expressions.

Each works on all bytes of all strings at once. Characters of several bytes need no decoding: a byte of one character
never equals a whole other character in UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....dialect.dims import Size, ceil_divide, floor_divide, minimum
from .....dialect.types import BOOL, I64, U8, TensorType
from ...writing.graph_writer import GraphWriter
from ...writing.tensors import BoundedTensor, Held, Strings, Tensor, known
from ..expressions.parser import ExpressionError, compile_expression
from ..writing.string_tensors import ONE, ZERO, index_in, lengths_of, positions, widened
from ..writing.use import REQUIRED, Converters, Use
from .control_flow import scan

_SPACES = (*range(9, 14), *range(28, 33))
"""The spaces of ASCII, at which a string without a delimiter is split."""


def _flag(g: GraphWriter, x: Tensor) -> Tensor:
    return g.cast(x, dtype=I64)


def _is_one_of(g: GraphWriter, data: Tensor, values: Sequence[int]) -> Tensor:
    table = np.zeros(256, np.bool_)
    table[list(values)] = True
    return g.gather(known(table), g.cast(data, dtype=I64), axis=0, mode="clamp")


def _concat(use: Use) -> Sequence[Held]:
    g, x, y = use.g, use.strings(0).data, use.strings(1).data
    width = x.shape[-1] + y.shape[-1]
    line = g.iota(shape=(width,))
    # Byte i of the result is byte i of x, or byte i - length of y.
    position = g.subtract(line, lengths_of(g, x))
    second = g.take_along_axis(widened(g, y, width), g.maximum(position, ZERO), axis=-1, mode="clamp")
    return [Strings(g.where(g.less(position, ZERO), widened(g, x, width), second))]


# --- splitting ---


_MOST_SPLITS = 1 << 62
"""A number of splits that no string reaches."""


def _split(use: Use) -> Sequence[Held]:
    """Splits at delimiters from left to right. The result has the maximum possible number of pieces, with empty strings
    after the last one."""
    g, data = use.g, use.strings().data
    delimiter, most = use.string("delimiter", "").encode(), use.integer("maxsplit")
    if most is not None and most < 0:
        use.fail(f"splits at most {most} times", code="bad-attribute")
    most = most if most is None else min(most, _MOST_SPLITS)
    if not delimiter:
        piece, inside, count = _split_at_spaces(g, data, most)
        bound = ceil_divide(data.shape[-1], 2)
    else:
        if any(delimiter.endswith(delimiter[:size]) for size in range(1, len(delimiter))):
            use.fail(f"splits at {delimiter.decode()!r}, which may overlap itself", code="unsupported-attribute")
        piece, inside, count = _split_at(g, data, delimiter, most)
        bound = floor_divide(data.shape[-1], len(delimiter)) + 1
    if most is not None:
        bound = minimum(bound, most + 1)
    pieces = _pieces(g, data, piece, inside, bound)
    flat = g.reshape(count, shape=(count.type.elements,))
    size = g.max(g.concat(flat, g.reshape(ZERO, shape=(1,)), axis=0), axis=0)
    return [BoundedTensor(pieces, pieces.rank - 2, size), count]


def _split_at(g: GraphWriter, data: Tensor, delimiter: bytes, most: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the index of the piece of each byte, a mask that is false for bytes of delimiters, and the number of
    pieces."""
    width, before = data.shape[-1], (None,) * (data.rank - 1)
    size = len(delimiter)
    longer = widened(g, data, width + size - 1)
    starts: Tensor | None = None
    for position, byte in enumerate(delimiter):
        part = g.slice(longer, starts=(*before, position), stops=(*before, width + position))
        same = g.equal(part, known(byte, U8))
        starts = same if starts is None else g.logical_and(starts, same)
    assert starts is not None, delimiter
    if most is not None:
        number = g.cumsum(_flag(g, starts), axis=data.rank - 1)
        starts = g.logical_and(starts, g.less_equal(number, known(np.int64(most))))
    piece = g.cumsum(_flag(g, starts), axis=data.rank - 1)
    covered = starts
    for position in range(1, size):
        none = g.broadcast_to(known(False, BOOL), shape=(*data.shape[:-1], position))
        earlier = g.concat(none, starts, axis=data.rank - 1)
        shifted = g.slice(earlier, starts=(*before, 0), stops=(*before, width))
        covered = g.logical_or(covered, shifted)
    inside = g.logical_and(g.logical_not(covered), g.not_equal(data, known(0, U8)))
    return piece, inside, g.add(g.sum(_flag(g, starts), axis=-1), ONE)


def _split_at_spaces(g: GraphWriter, data: Tensor, most: int | None) -> tuple[Tensor, Tensor, Tensor]:
    width, before = data.shape[-1], (None,) * (data.rank - 1)
    text = g.not_equal(data, known(0, U8))
    solid = g.logical_and(text, g.logical_not(_is_one_of(g, data, _SPACES)))
    none = g.broadcast_to(known(False, BOOL), shape=(*data.shape[:-1], 1))
    previous = g.slice(g.concat(none, solid, axis=data.rank - 1), starts=(*before, 0), stops=(*before, width))
    starts = g.logical_and(solid, g.logical_not(previous))
    piece = g.subtract(g.cumsum(_flag(g, starts), axis=data.rank - 1), ONE)
    count = g.sum(_flag(g, starts), axis=-1)
    if most is None:
        return piece, solid, count
    last = known(np.int64(most))
    # The last piece is the rest of the string, spaces included.
    inside = g.logical_or(solid, g.logical_and(text, g.greater_equal(piece, last)))
    return g.minimum(piece, last), inside, g.minimum(count, known(np.int64(most + 1)))


def _pieces(g: GraphWriter, data: Tensor, piece: Tensor, inside: Tensor, bound: Size) -> Tensor:
    """Returns the bytes of each piece, moved to the start of its row: u8[..., bound, width]."""
    width, axis = data.shape[-1], data.rank - 1
    numbers = g.reshape(g.iota(shape=(bound,)), shape=(bound, 1))
    belongs = g.logical_and(g.equal(g.unsqueeze(piece, axes=(axis,)), numbers), g.unsqueeze(inside, axes=(axis,)))
    first = g.min(g.where(belongs, positions(g, data), g.size(width)), axis=-1, keepdims=True)
    length = g.sum(_flag(g, belongs), axis=-1, keepdims=True)
    line = positions(g, data)
    found = g.take_along_axis(g.unsqueeze(data, axes=(axis,)), g.add(first, line), axis=-1, mode="clamp")
    return g.where(g.less(line, length), found, known(0, U8))


# --- normalization ---


def _cased(use: Use, data: Tensor, action: str) -> Tensor:
    """Returns the strings in upper or in lower case. A call with a letter outside of ASCII fails."""
    g = use.g
    if action == "NONE":
        return data
    if action not in ("LOWER", "UPPER"):
        use.fail(f"has the action {action!r}", code="bad-attribute")
    use.require(g.all(g.less(data, known(128, U8))))
    table = np.arange(256, dtype=np.uint8)
    capital, small = np.arange(65, 91), np.arange(97, 123)
    source, target = (small, capital) if action == "UPPER" else (capital, small)
    table[source] = target
    return g.gather(known(table), g.cast(data, dtype=I64), axis=0, mode="clamp")


def _normalize(use: Use) -> Sequence[Held]:
    """Removes the stop words and changes the case of the other strings. Without any, one empty string remains."""
    g, strings = use.g, use.strings()
    axis = len(strings.shape) - 1
    if axis not in (0, 1) or (axis == 1 and strings.shape[0] != 1):
        use.fail(f"takes strings [C] or [1, C], not {list(strings.shape)}", code="wrong-operands")
    action, stop = use.string("case_change_action", "NONE"), list(use.strings_of("stopwords", ()) or ())
    if not stop:
        return [Strings(_cased(use, strings.data, action))]
    compared = strings
    if not use.integer("is_case_sensitive", 0):
        if not all(word.isascii() for word in stop):
            use.fail("has stop words outside of ASCII, and compares without case", code="unsupported-attribute")
        compared, stop = Strings(_cased(use, strings.data, "LOWER")), [word.lower() for word in stop]
    removed = g.less(index_in(g, compared, stop), known(np.int64(len(stop))))
    # A stable sort puts the strings that remain first, in their order.
    order = g.argsort(_flag(g, removed), axis=axis)
    rows = g.take_along_axis(_cased(use, strings.data, action), g.unsqueeze(order, axes=(axis + 1,)), axis=axis)
    count = g.sum(g.reshape(_flag(g, g.logical_not(removed)), shape=(strings.shape[axis],)), axis=0)
    line = g.reshape(g.iota(shape=(strings.shape[axis],)), shape=(strings.shape[axis], 1))
    return [BoundedTensor(g.where(g.less(line, count), rows, known(0, U8)), axis, g.maximum(count, ONE))]


# --- regular expressions ---


def _full_match(use: Use) -> Sequence[Tensor]:
    """Runs the automaton of the pattern over all strings at once, one byte of each in a step."""
    g, data = use.g, use.strings().data
    pattern = use.string("pattern", REQUIRED)
    try:
        machine = compile_expression(pattern)
    except ExpressionError as error:
        use.fail(f"has the pattern {pattern!r}: {error}", code="bad-attribute")
    classes, count = known(machine.classes.astype(np.int64)), machine.steps.shape[1]
    steps = known(machine.steps.astype(np.int64).reshape(-1))
    bytes_first = g.transpose(data, axes=(data.rank - 1, *range(data.rank - 1)))
    start = g.broadcast_to(ZERO, shape=data.shape[:-1])

    def step(arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        number, state = arguments
        byte = g.gather(bytes_first, number, axis=0)
        column = g.gather(classes, g.cast(byte, dtype=I64), axis=0, mode="clamp")
        position = g.add(g.multiply(state, known(np.int64(count))), column)
        after = g.gather(steps, position, axis=0, mode="clamp")
        return [g.where(g.equal(byte, known(0, U8)), state, after)]

    region = g.region([TensorType(I64), start.type], step)
    (state,) = scan(use, [start], region, data.shape[-1])
    return [g.gather(known(machine.accepts), state, axis=0, mode="clamp")]


CONVERTERS: Converters = {
    "StringConcat": _concat,
    "StringSplit": _split,
    "StringNormalizer": _normalize,
    "RegexFullMatch": _full_match,
}
