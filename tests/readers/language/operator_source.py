"""For a case of an operator, a program that calls it: the language must be able to say everything that a graph can."""

from __future__ import annotations

from typing import Any

import numpy as np
from nacre.dialect.dims import Poly
from nacre.dialect.operator import Case, Operator
from nacre.dialect.types import F32, I64, DType, TensorType, dtype_of


def attribute_text(value: Any) -> str:
    """An attribute as the language writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "(" + ", ".join(map(attribute_text, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, float) and not np.isfinite(value):
        return {np.inf: "inf", -np.inf: "-inf"}.get(value, "nan")
    assert value is None or isinstance(value, (int, float, np.number, DType, Poly)), value
    return str(value)


def operand_types(operator: Operator, case: Case) -> list[TensorType]:
    """The types of the operands of a case, f32 where it may be."""
    types = []
    groups: dict[str, DType] = {}
    for number, shape in enumerate(case.shapes):
        operand = operator.operands[min(number, len(operator.operands) - 1)]
        admitted = operand.dtypes
        if case.dtypes is not None and operand.group == operator.operands[0].group:
            admitted = case.dtypes
        dtype = F32 if F32 in admitted else I64 if I64 in admitted else admitted[0]
        if number in case.arrays:
            array = np.asarray(case.arrays[number])
            shape, stored = array.shape, dtype_of(array)
            dtype = stored if stored in operand.dtypes and not stored.is_float else dtype
        types.append(TensorType(case.mixed.get(number, groups.setdefault(operand.group, dtype)), tuple(shape)))
    return types


def program(operator: Operator, case: Case) -> str:
    """A model that does nothing but call the operator."""
    types = operand_types(operator, case)
    results = operator.check(types, case.attributes)
    names = [f"x{number}" for number in range(len(types))]
    parameters = ", ".join(f"{name}: {type}" for name, type in zip(names, types, strict=True))
    lists = len(operator.operands) == 1 and operator.operands[0].variadic and operator.name != "einsum"
    first = len(operator.operands) - len(operator.named)
    named = [f"{o.name}={name}" for o, name in zip(operator.operands[first:], names[first:], strict=False)]
    arguments = [f"[{', '.join(names)}]"] if lists else [*names[:first], *named] if operator.named else names
    arguments = arguments + [f"{name}={attribute_text(value)}" for name, value in case.attributes.items()]
    shown = ", ".join(map(str, results))
    return f"model call({parameters}) -> {shown} {{ return {operator.name}({', '.join(arguments)}) }}\n"
