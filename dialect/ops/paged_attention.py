"""Attention of several sequences to keys and values in pages of one pool; a table lists the pages of each sequence.

    pool        page 0   page 1   page 2   page 3       keys [P, heads, page, d], values [P, heads, page, e]
    table       2, 0    row 0: the pages of sequence 0, in their order
                3, 3    row 1: those of sequence 1
    lengths     7, 2    with pages of 4 tokens, sequence 0 fills page 2, and 3 tokens of page 0

It is `cached_attention` to `gather_pages` of the pools. A kernel reads the pages where they are, up to the length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..differentiate import by_decomposition
from ..dims import multiply
from ..graph import Value
from ..operator import (
    Addressing,
    Attributes,
    AttributeSpec,
    Builder,
    Case,
    InferenceError,
    LateCases,
    Operand,
    Operator,
)
from ..types import BOOL, FLOATS, TensorType
from .cached_attention import cached_attention
from .pages import gather_pages
from .support.accumulate import Numbers
from .support.index_modes import INDICES, WINDOW_MODE, index_operand

_PAGES: dict[str, Any] = {"axis": -2, "mode": "clamp"}
_OPERANDS = (0, 1, 2, 4, 5)
"""The operand of this operator for each of `cached_attention`."""


def _infer(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    q, keys, values, table, *rest = types
    for number, pool in ((1, keys), (2, values)):
        if pool.rank != 4 or q.rank != 4:
            raise InferenceError(
                "rank-mismatch",
                f"`paged_attention` takes q [B, heads, T, d] and pages [P, heads, page, d], not {q} and {pool}",
                operand=0 if q.rank != 4 else number,
            )
    if keys.shape[0] != values.shape[0]:
        raise InferenceError(
            "shape-mismatch", f"`paged_attention` has pages of keys {keys} and of values {values}", operand=2
        )
    if table.rank != 2 or table.shape[0] != q.shape[0]:
        raise InferenceError(
            "shape-mismatch",
            f"`paged_attention` cannot apply the table {table} to {q}",
            label="expected a row for each sequence, [B, M]",
            operand=3,
        )
    seen = [gather_pages.infer([pool, table], _PAGES)[0] for pool in (keys, values)]
    try:
        return cached_attention.infer([q, *seen, *rest], attributes)
    except InferenceError as error:
        message = error.message.replace("`cached_attention`", "`paged_attention`")
        operand = None if error.operand is None else _OPERANDS[error.operand]
        raise InferenceError(error.code, message, label=error.label, operand=operand, help=error.help) from None


def _decompose(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    q, keys, values, table, *rest = operands
    seen = [b.gather_pages(pool, table, axis=-2, mode=attributes["mode"]) for pool in (keys, values)]
    assert cached_attention.decompose is not None
    return cached_attention.decompose(b, [q, *seen, *rest], attributes)


def _reference(
    q: Numbers, keys: Numbers, values: Numbers, table: Numbers, lengths: Numbers, *mask: Numbers, **attributes: Any
) -> Numbers:
    seen = [gather_pages.reference(pool, table, **_PAGES) for pool in (keys, values)]
    return np.asarray(cached_attention.reference(q, *seen, lengths, *mask, **attributes))


def _addresses(types: Sequence[TensorType], attributes: Attributes) -> tuple[Addressing, ...]:
    keys, table = types[1], types[3]
    return Addressing(3, (keys.shape[0],)), Addressing(4, (multiply(table.shape[-1], keys.shape[-2]),), 0)


def _case(
    shapes: tuple[tuple[int, ...], ...], table: object, lengths: object, *, mask: Numbers | None = None, **more: Any
) -> Case:
    arrays: dict[int, Numbers] = {3: np.asarray(table, np.int32), 4: np.asarray(lengths, np.int64)}
    arrays |= {} if mask is None else {5: mask}
    terms = max(1, shapes[0][-1] * shapes[1][-2] * arrays[3].shape[-1])
    return Case(shapes, more, arrays=arrays, tolerance=16.0, terms=terms)


_MASK = np.asarray(np.arange(8).reshape(1, 8) % 3 != 1)

paged_attention = Operator(
    name="paged_attention",
    summary="`cached_attention` of sequences [B, heads, T, d] to keys [P, heads, page, d] and values "
    "[P, heads, page, e] in pages of one pool: the keys of sequence b are the pages `table[b, 0]`, `table[b, 1]`, ... "
    "in this order, up to `lengths[b]`; sequences may share pages",
    operands=(
        Operand("q", FLOATS),
        Operand("keys", FLOATS),
        Operand("values", FLOATS),
        index_operand("table"),
        Operand("lengths", INDICES, group="L"),
        Operand("mask", (BOOL, *FLOATS), group="M", optional=True),
    ),
    attributes=(AttributeSpec("scale", "any", None), AttributeSpec("causal", "bool", False), WINDOW_MODE),
    infer=_infer,
    reference=_reference,
    gradient=by_decomposition(_decompose),
    decompose=_decompose,
    addresses=_addresses,
    cases=LateCases(
        lambda: (
            _case(((2, 2, 3, 4), (5, 2, 4, 4), (5, 2, 4, 3)), ((4, 0), (1, 4)), (7, 2)),
            _case(((3, 4, 2, 4), (3, 2, 4, 4), (3, 2, 4, 5)), ((2, 1), (2, 0), (1, 1)), (0, 5, 8), causal=True),
            _case(((2, 2, 1, 4), (4, 2, 16, 4), (4, 2, 16, 4)), ((3, 0, 2), (1, -1, 2)), (17, 48), scale=0.7),
            _case(((1, 2, 3, 4), (2, 1, 4, 4), (2, 1, 4, 2)), ((1, 0),), (6,), mask=_MASK),
            _case(((1, 1, 2, 3), (2, 1, 2, 3), (2, 1, 2, 3)), ((9, -9),), (9,), mode="clamp"),
            _case(((0, 2, 3, 4), (2, 2, 4, 4), (2, 2, 4, 3)), np.zeros((0, 2)), ()),
            _case(((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1)), ((0,),), (1,)),
        )
    ),
    properties=frozenset({"contraction", "attention"}),
)

OPERATORS = (paged_attention,)
