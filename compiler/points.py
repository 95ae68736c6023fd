"""Named points: the values of a graph after its passes that are values of the model as it was written.

A pass that replaces a value keeps its name, so that two builds of a model have points in common however different
their graphs are. What the passes made up in between is no point; what they keep with its channels last is one, told
with the order of its axes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..dialect.diagnostics import Span
from ..dialect.graph import Function, Node, Value, walk
from ..dialect.ops.layouts import first_order
from ..dialect.types import TensorType
from ..passes.channels_last import LAST_SUFFIX
from .artifact.spec import PointSpec
from .calls import maker_inside

_COPY = re.compile(r"(.+)_\d+")
"""The name of a copy of a value that stands in a loop."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A value as the model has it: where it is made, and what its point is called within its scope."""

    value: Value
    node: Node
    label: str
    repeated: bool

    def is_made_by(self, node: Node, type: TensorType) -> bool:
        """Is it what the node makes, after passes? A name alone may have become free and been given once more."""
        scope = re.escape(self.node.scope).replace(r"\{\}", r"\d+")
        return (
            type == self.value.type
            and _line(node.span) == _line(self.node.span)
            and re.fullmatch(scope, node.scope) is not None
        )


def name_points(model: Function, optimized: Function) -> Mapping[str, PointSpec]:
    """The points among the values of a function after its passes, by the name that a value has there. They are called
    `scope.name`, or `scope.operator@line:column` where the model gives a value no name."""
    written = {w.value.name: w for w in _written(model)}
    points: dict[str, PointSpec] = {}
    for node in optimized.body:
        for number, value in enumerate(node.outputs):
            maker = maker_inside(node, number)
            axes: tuple[int, ...] = ()
            found = _origin(written, maker, value)
            if found is None and value.name.endswith(LAST_SUFFIX) and value.type.rank > 2:
                axes = first_order(value.type.rank)
                shape = tuple(value.type.shape[axis] for axis in axes)
                turned = Value(value.name.removesuffix(LAST_SUFFIX), value.type.with_shape(shape))
                found = _origin(written, maker, turned)
            if found is not None:
                points[value.name] = PointSpec(".".join(filter(None, (maker.scope, found.label))), axes)
    often, plain = Counter(points.values()), {point.name for point in points.values() if not point.axes}
    # What a loop computes in a scope that does not number it cannot be told apart; and of what is there in both orders
    # of axes one is enough.
    return {
        name: point
        for name, point in points.items()
        if often[point] == 1 and (not point.axes or point.name not in plain)
    }


def _origin(written: Mapping[str, _Written], maker: Node, value: Value) -> _Written | None:
    copied = _COPY.fullmatch(value.name)
    for name, repeated in ((value.name, False), (copied[1] if copied else "", True)):
        found = written.get(name)
        if found is not None and found.repeated == repeated and found.is_made_by(maker, value.type):
            return found
    return None


def _written(model: Function) -> Iterator[_Written]:
    top = {value.name for node in model.body for value in node.outputs}
    labels: Counter[tuple[str, str]] = Counter()
    for node in walk(model.body):
        for value in node.outputs:
            label = value.name if not value.name.isdigit() else f"{node.op}@{_line(node.span)}"
            labels[node.scope, label] += 1
            if labels[node.scope, label] > 1:
                label += f"#{labels[node.scope, label]}"
            yield _Written(value, node, label, value.name not in top)


def _line(span: Span | None) -> str:
    return "" if span is None else f"{span.line}:{span.column}"
