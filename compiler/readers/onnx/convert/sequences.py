"""Sequences of tensors and optional values, which exist only while the file is read."""

from __future__ import annotations

from collections.abc import Sequence

from ...writing.tensors import Held, Tensor, TensorSequence, known, of_size
from ..writing.use import Converters, Use


def _construct(use: Use) -> Sequence[Held]:
    return [TensorSequence(use.inputs)]


def _empty(use: Use) -> Sequence[Held]:
    return [TensorSequence(())]


def _position(use: Use, index: int, length: int) -> int:
    position = use.ints(index, "a position")[0]
    if not -length <= position < length:
        use.fail(f"reads position {position} of a sequence of {length}", code="bad-index")
    return position % length


def _at(use: Use) -> Sequence[Held]:
    items = use.sequence().items
    return [items[_position(use, 1, len(items))]]


def _insert(use: Use) -> Sequence[Held]:
    items = use.sequence().items
    if len(use.operands) < 3 or use.operands[2] is None:
        return [TensorSequence((*items, use.input(1)))]
    position = use.ints(2, "a position")[0]
    position += len(items) if position < 0 else 0
    return [TensorSequence((*items[:position], use.input(1), *items[position:]))]


def _erase(use: Use) -> Sequence[Held]:
    items = use.sequence().items
    given = len(use.operands) > 1 and use.operands[1] is not None
    position = _position(use, 1, len(items)) if given else len(items) - 1
    return [TensorSequence((*items[:position], *items[position + 1 :]))]


def _length(use: Use) -> Sequence[Tensor]:
    return [of_size(len(use.sequence().items))]


def _optional(use: Use) -> Sequence[Held]:
    held = use.operands[0] if use.operands else None
    if held is None:
        use.fail("is empty", code="unsupported-type")
    return [held]


def _has_element(use: Use) -> Sequence[Tensor]:
    return [known(bool(use.operands) and use.operands[0] is not None)]


def _get_element(use: Use) -> Sequence[Held]:
    held = use.operands[0] if use.operands else None
    if held is None:
        use.fail("reads an empty optional value", code="unsupported-type")
    return [held]


def _map(use: Use) -> Sequence[Held]:
    body = use.graph("body")
    first, *rest = use.operands
    assert isinstance(first, TensorSequence)
    made: list[list[Held]] = []
    for number, item in enumerate(first.items):
        others = [held.items[number] if isinstance(held, TensorSequence) else held for held in rest]
        made.append(use.run_graph(body, [item, *(held for held in others if isinstance(held, Tensor))]))
    columns = list(zip(*made, strict=True)) or [() for _ in body.outputs]
    return [TensorSequence(tuple(x for x in column if isinstance(x, Tensor))) for column in columns]


CONVERTERS: Converters = {
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceAt": _at,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SequenceLength": _length,
    "SequenceMap": _map,
    "Optional": _optional,
    "OptionalHasElement": _has_element,
    "OptionalGetElement": _get_element,
}
