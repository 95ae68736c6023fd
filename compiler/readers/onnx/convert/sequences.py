"""Sequences of tensors and optional values, which exist only while the file is read."""

from __future__ import annotations

from collections.abc import Sequence

from ...writing.tensors import Held, Tensor, TensorSequence, known, of_size
from ..writing.use import Converters, Use


def _construct(use: Use) -> Sequence[Held]:
    return [TensorSequence(use.inputs)]


def _empty(use: Use) -> Sequence[Held]:
    return [TensorSequence(())]


def _position(use: Use, index: int, length: int, last: int) -> int:
    """Returns the position that an operand gives in a sequence of `length` items, at most `last`."""
    positions = use.ints(index, "a position")
    if len(positions) != 1:
        use.fail(f"has {len(positions)} positions, expected 1", code="wrong-operands")
    (position,) = positions
    if not -length <= position <= last:
        use.fail(f"has the position {position} for a sequence of {length}", code="bad-index")
    return position + length if position < 0 else position


def _at(use: Use) -> Sequence[Held]:
    items = use.sequence().items
    return [items[_position(use, 1, len(items), len(items) - 1)]]


def _insert(use: Use) -> Sequence[Held]:
    items = use.sequence().items
    if len(use.operands) < 3 or use.operands[2] is None:
        return [TensorSequence((*items, use.input(1)))]
    position = _position(use, 2, len(items), len(items))
    return [TensorSequence((*items[:position], use.input(1), *items[position:]))]


def _erase(use: Use) -> Sequence[Held]:
    items = use.sequence().items
    if not items:
        use.fail("erases from an empty sequence", code="bad-index")
    given = len(use.operands) > 1 and use.operands[1] is not None
    position = _position(use, 1, len(items), len(items) - 1) if given else len(items) - 1
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
    first, *rest = use.sequence().items, *use.operands[1:]
    lengths = {len(held.items) for held in rest if isinstance(held, TensorSequence)} - {len(first)}
    if lengths or len(body.inputs) != len(use.operands) or len(body.outputs) != len(use.node.outputs):
        use.fail("has sequences of different lengths, or a body that does not fit them", code="wrong-operands")
    made: list[list[Held]] = []
    for number, item in enumerate(first):
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
