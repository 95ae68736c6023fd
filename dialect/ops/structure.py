"""Structural operators of the graph: constants, parameters, loops, branches and fused groups.

Code that walks the graph runs and lowers the regions of `repeat`, `fusion` and the operators of `control_flow`. Their
records hold only the fields that every record has, and the interpreter and the lowering select them by their property
`structure`.

- `constant`: attribute `value`
- `parameter`: attribute `name`; its operands are the i64 indices of the loops that its name has braces for
- `repeat`: attribute `count`; operands are the initial carried values; one region whose arguments are the i64 index and
  the carried values
- `fusion`: operands are the tensors that the group reads; one region with an argument for each of them
- `scan`, `while`, `if`, `custom`: see `control_flow`
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..emitter import Emitter, Tensor
from ..graph import Constant
from ..operator import Attributes, AttributeSpec, Case, LateCases, Operand, Operator
from ..types import ANY, BOOL, I64, Array, TensorType

ELEMENTS_INLINE = 16
"""The largest constant that is embedded in the code; a larger one becomes a weight of the artifact."""


def _infer_constant(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    value = attributes["value"]
    assert isinstance(value, Constant)
    return (value.type,)


def _lower_constant(
    e: Emitter, operands: Sequence[Tensor], attributes: Attributes, types: Sequence[TensorType]
) -> Sequence[Tensor]:
    array = attributes["value"].data
    return [e.constant(types[0], [x.item() for x in array.reshape(-1)])]


constant = Operator(
    name="constant",
    summary="an array known at compile time",
    operands=(),
    attributes=(AttributeSpec("value", "constant"),),
    infer=_infer_constant,
    reference=lambda value: value.data,
    gradient=lambda b, use: (),
    lower=_lower_constant,
    cases=LateCases(
        lambda: tuple(
            Case((), {"value": Constant(np.arange(n).astype(dtype.numpy))}, dtypes=(dtype,))
            for dtype in ANY
            for n in (0, 1, 7)
        )
    ),
    properties=frozenset({"structure", "stored"}),
)


def _told_by_graph(types: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    return ()


def _skeleton(
    name: str, summary: str, operands: tuple[Operand, ...], *attributes: AttributeSpec, properties: Sequence[str] = ()
) -> Operator:
    """Builds the record of an operator whose types and meaning come from the graph: parameters by name, regions by
    their body."""

    def reference(*arrays: Array, **attributes: object) -> Array:
        raise AssertionError(f"{name} is run by the interpreter itself")

    return Operator(
        name=name,
        summary=summary,
        operands=operands,
        attributes=attributes,
        infer=_told_by_graph,
        reference=reference,
        gradient=None,
        cases=(),
        properties=frozenset({"structure", *properties}),
    )


_ANY_NUMBER = Operand("values", ANY, variadic=True, optional=True)

parameter = _skeleton(
    "parameter",
    "a tensor loaded from the checkpoint",
    (Operand("indices", (I64,), variadic=True, optional=True),),
    AttributeSpec("name", "str"),
    properties=("stored",),
)
repeat = _skeleton("repeat", "a loop with carried values", (_ANY_NUMBER,), AttributeSpec("count", "int"))
fusion = _skeleton("fusion", "a group of nodes that becomes one kernel", (_ANY_NUMBER,), properties=("group",))
scan = _skeleton(
    "scan",
    "a loop with carried values and collected results",
    (_ANY_NUMBER,),
    AttributeSpec("carried", "int"),
    AttributeSpec("count", "size"),
)
while_loop = _skeleton("while", "a loop that runs as long as a condition holds", (_ANY_NUMBER,))
branch = _skeleton("if", "a choice between two regions", (Operand("condition", (BOOL,)),))
custom = _skeleton("custom", "a block with a custom gradient", (_ANY_NUMBER,), AttributeSpec("name", "str"))

OPERATORS = (constant, parameter, repeat, fusion, scan, while_loop, branch, custom)
