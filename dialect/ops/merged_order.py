"""Sorting in parallel: `merged_order` is `top_k` by counting and merging; the pass `parallel-order` inserts it.

The methods of `ordering` have steps that depend on each other. `support/merging` has the algorithm.
"""

from __future__ import annotations

import numpy as np

from ..operator import AttributeSpec, Case, LateCases, Operand, Operator
from ..types import COMPUTED, F32, I64
from .ordering import infer_top, reference_top
from .support.common import normalize_axis
from .support.merging import merge_rows

_TIES = np.asarray([3, 1, 3, 2, 1, 1, 3, 0, 2], np.int64)
_ZEROS = np.resize(np.asarray([2.0, 0.0, -np.inf, -0.0, 1.5, np.inf], np.float32), 150)

merged_order = Operator(
    name="merged_order",
    summary="the result of `top_k`, computed by merging ordered runs in parallel",
    operands=(Operand("x", COMPUTED),),
    attributes=(AttributeSpec("k", "size"), AttributeSpec("axis", "axis", -1), AttributeSpec("largest", "bool", True)),
    infer=infer_top,
    reference=reference_top,
    gradient=None,
    lower=lambda e, operands, attributes, types: merge_rows(
        e,
        operands[0],
        normalize_axis(attributes["axis"], operands[0].type.rank, "merged_order"),
        attributes["largest"],
        types[0].shape[attributes["axis"]],
    ),
    cases=LateCases(
        lambda: (
            Case(((7,),), {"k": 7}),
            Case(((2, 300),), {"k": 300, "largest": False}),
            Case(((5, 67),), {"k": 3, "axis": 0}),
            Case(((2, 65, 3),), {"k": 65, "axis": 1}),
            Case(((2, 400),), {"k": 5}),
            Case(((1,),), {"k": 1}),
            Case(((3,),), {"k": 0}),
            Case(((0, 3),), {"k": 2}),
            Case(((9,),), {"k": 9, "largest": False}, arrays={0: _TIES}, dtypes=(I64,)),
            Case(((150,),), {"k": 140}, arrays={0: _ZEROS}, dtypes=(F32,)),
        )
    ),
    results=("values", "indices"),
    properties=frozenset({"exact", "internal"}),
)

OPERATORS = (merged_order,)
