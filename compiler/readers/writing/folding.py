"""Evaluates operators on known tensors while a file is read, so that arithmetic on shapes leaves no node.

Known numbers go through the reference of the operator. Sizes that depend on dims go through the rules below, element by
element: `Shape(x)[0] * 2` of x f32[B, 3] is `2*B`. An element that no rule decides is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....dialect.dims import DimError, Poly, add, bounds, floor_divide, maximum, minimum, multiply
from ....dialect.operator import Operator
from ....dialect.types import TensorType
from .tensors import Elements, Tensor, settle

MOST_ELEMENTS = 1 << 16
"""The most elements of a tensor of integers that is evaluated."""
_MOST_FLOATS = 16
_MOST_SIZES = 64


def fold(
    operator: Operator, attributes: Mapping[str, Any], inputs: Sequence[Tensor], types: Sequence[TensorType]
) -> tuple[Tensor, ...] | None:
    """Returns the results as far as they are known; None if nothing is."""
    if operator.has("structure") or any(tensor.elements is None for tensor in inputs) or not _is_static(types):
        return None
    if _holds_size(tuple(attributes.values())):
        return None
    if all(tensor.array is not None for tensor in inputs):
        return _by_reference(operator, attributes, inputs, types)
    if len(types) == 1 and _count(types[0]) <= _MOST_SIZES:
        return _by_rule(operator, attributes, inputs, types[0])
    return None


def _is_static(types: Sequence[TensorType]) -> bool:
    return all(isinstance(size, int) for type in types for size in type.shape)


def _count(type: TensorType) -> int:
    total = 1
    for size in type.shape:
        assert isinstance(size, int), type
        total *= size
    return total


def _holds_size(value: Any) -> bool:
    return any(map(_holds_size, value)) if isinstance(value, tuple) else isinstance(value, Poly)


def _by_reference(
    operator: Operator, attributes: Mapping[str, Any], inputs: Sequence[Tensor], types: Sequence[TensorType]
) -> tuple[Tensor, ...] | None:
    shown = [*types, *(tensor.type for tensor in inputs)]
    for type in shown:
        if _count(type) > (_MOST_FLOATS if type.dtype.is_float else MOST_ELEMENTS):
            return None
    with np.errstate(all="ignore"):
        made = operator.reference(*(tensor.array for tensor in inputs), **attributes)
    results = made if isinstance(made, tuple) else (made,)
    arrays = [np.asarray(r) for r in results]
    if any(a.dtype != t.dtype.numpy or a.shape != t.shape for a, t in zip(arrays, types, strict=True)):
        return None
    return tuple(Tensor(t, None, a) for t, a in zip(types, arrays, strict=True))


def _by_rule(
    operator: Operator, attributes: Mapping[str, Any], inputs: Sequence[Tensor], type: TensorType
) -> tuple[Tensor, ...] | None:
    if not (type.dtype.is_integer or type.dtype.name == "bool"):
        return None
    elements = [_as_objects(tensor) for tensor in inputs]
    rule = _ELEMENTWISE.get(operator.name)
    try:
        if rule is not None:
            made = _map(rule, elements)
        elif operator.name in ("sum", "prod"):
            made = _reduce(np.add if operator.name == "sum" else np.multiply, elements[0], attributes)
        elif operator.name == "gather":
            indices = inputs[1].array
            if indices is None:
                return None
            made = _boxed(np.take(elements[0], indices.astype(np.int64), axis=attributes["axis"]))
        elif operator.has("movement") or operator.has("view"):
            made = _boxed(operator.reference(*elements, **attributes))
        else:
            return None
    except (TypeError, ValueError, IndexError, KeyError, DimError):
        return None
    if made.shape != type.shape:
        return None
    return (settle(type, made),)


def _as_objects(tensor: Tensor) -> Elements:
    assert tensor.elements is not None
    made = np.empty(tensor.elements.shape, object)
    made[...] = np.array(tensor.elements.tolist(), object).reshape(made.shape)
    return made


def _map(rule: Callable[..., Any], operands: Sequence[Elements]) -> Elements:
    return _boxed(np.frompyfunc(rule, len(operands), 1)(*operands))


def _boxed(made: Any) -> Elements:
    """Returns an array of objects; an operator on one element gives the element itself."""
    result = np.empty(np.shape(made), object)
    result[...] = made
    return result


def _reduce(function: np.ufunc, x: Elements, attributes: Mapping[str, Any]) -> Elements:
    axis = attributes["axis"]
    return _boxed(function.reduce(x, axis=axis, keepdims=attributes["keepdims"]))


def _known(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that gives None where an operand is unknown, or where it has no integer result."""

    def apply(*operands: Any) -> Any:
        if any(x is None for x in operands):
            return None
        try:
            return function(*operands)
        except DimError:
            return None

    return apply


def _compare(holds: Callable[[int, int], bool | None]) -> Callable[..., Any]:
    """Returns a comparison from a rule for the bounds of the difference x - y."""
    return _known(lambda x, y: holds(*bounds(add(x, multiply(-1, y)))))


def _decide(true: bool, false: bool) -> bool | None:
    return True if true else False if false else None


def _choose(condition: Any, x: Any, y: Any) -> Any:
    if condition is None:
        return x if x is not None and not isinstance(x, bool) and x == y else None
    return x if condition else y


_ELEMENTWISE: Mapping[str, Callable[..., Any]] = {
    "add": _known(add),
    "subtract": _known(lambda x, y: add(x, multiply(-1, y))),
    "multiply": _known(multiply),
    "negate": _known(lambda x: multiply(-1, x)),
    "floor_divide": _known(floor_divide),
    "remainder": _known(lambda x, y: add(x, multiply(-1, multiply(floor_divide(x, y), y)))),
    "maximum": _known(maximum),
    "minimum": _known(minimum),
    "abs": _known(lambda x: x if bounds(x)[0] >= 0 else None),
    "sign": _known(lambda x: 1 if bounds(x)[0] > 0 else None),
    "cast": _known(lambda x: x),
    "equal": _compare(lambda low, high: _decide(low == high == 0, low > 0 or high < 0)),
    "not_equal": _compare(lambda low, high: _decide(low > 0 or high < 0, low == high == 0)),
    "less": _compare(lambda low, high: _decide(high < 0, low >= 0)),
    "less_equal": _compare(lambda low, high: _decide(high <= 0, low > 0)),
    "greater": _compare(lambda low, high: _decide(low > 0, high <= 0)),
    "greater_equal": _compare(lambda low, high: _decide(low >= 0, high < 0)),
    "logical_not": _known(lambda x: not x),
    "logical_and": lambda x, y: False if x is False or y is False else (True if x and y else None),
    "logical_or": lambda x, y: True if x is True or y is True else (None if x is None or y is None else False),
    "where": _choose,
}
"""Rules for one element. `cast` is one between integers, of a size that both hold."""
