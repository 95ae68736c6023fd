"""Operators that take numbers or strings, when they take strings.

An operator that moves elements moves the indices of strings instead: [a, b] and [c] are the table a, b, c and the
indices [0, 1] and [2]; the operator's own converter joins these to [0, 1, 2], and the table is read there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .....dialect.dims import Size, product
from ...writing.graph_writer import GraphWriter
from ...writing.tensors import Held, Strings, Tensor
from ..writing.string_tensors import equal_strings, equally_wide, rows_of
from ..writing.use import Convert, Use

_MOVES = frozenset(
    {
        "Compress", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Reshape",
        "ReverseSequence", "Scatter", "ScatterElements", "ScatterND", "Slice", "Split", "Squeeze", "Tile", "Transpose",
        "Unsqueeze", "Where", "ai.onnx.ml::ArrayFeatureExtractor",
    }
)  # fmt: skip
"""The operators that move elements and take strings."""
_MEASURES = frozenset({"Shape", "Size"})


def for_strings(name: str, convert: Convert) -> Convert:
    """Returns the converter of an operator for operands that are strings."""
    if name in _MOVES:
        return lambda use: _moved(use, convert)
    if name in _MEASURES:
        return lambda use: convert(replace(use, operands=_indexed(use)[1]))
    return _OTHERS.get(name, convert)


def _moved(use: Use, convert: Convert) -> Sequence[Held]:
    if use.string("reduction", "none") != "none":
        use.fail("reduces strings", code="unsupported-dtype")
    table, operands = _indexed(use)
    made = convert(replace(use, operands=operands))
    return [rows_of(use.g, table, held) if isinstance(held, Tensor) else held for held in made]


def _indexed(use: Use) -> tuple[Strings, tuple[Held | None, ...]]:
    """Returns all strings of the operands as a vector, and the operands with indices in place of strings."""
    g = use.g
    given = [held for held in use.operands if isinstance(held, Strings)]
    flat = [g.reshape(strings.data, shape=(product(strings.shape), strings.width)) for strings in given]
    wide = equally_wide(g, *flat)
    operands: list[Held | None] = []
    start: Size = 0
    for held in use.operands:
        if isinstance(held, Strings):
            operands.append(_indices(g, held.shape, start))
            start = start + product(held.shape)
        else:
            operands.append(held)
    return Strings(wide[0] if len(wide) == 1 else g.concat(*wide, axis=0)), tuple(operands)


def _indices(g: GraphWriter, shape: Sequence[Size], start: Size) -> Tensor:
    line = g.iota(shape=(product(shape),))
    return g.reshape(line if start == 0 else g.add(line, g.size(start)), shape=tuple(shape))


def _equal(use: Use) -> Sequence[Tensor]:
    return [equal_strings(use.g, use.strings(0).data, use.strings(1).data)]


def _identity(use: Use) -> Sequence[Held]:
    return [use.strings()]


_OTHERS: Mapping[str, Convert] = {"Equal": _equal, "Identity": _identity}
