"""Named values: the values of the optimised graph that are also values of the original model.

A pass that replaces a value keeps its name, so two builds of a model share named values even if their graphs differ.
A value that a pass stores channels-last is a named value, with the order of its axes. Two kinds of values are not:

- values that passes introduced;
- carried results of loops: one memory holds the value of all iterations, and kernels that update it in place write it
  under another name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from ...dialect.control_flow import carried_count, condition_of
from ...dialect.diagnostics import Span
from ...dialect.graph import Function, Node, Value, walk
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops.support.layouts import first_order
from ...dialect.types import TensorType
from ...passes.layout.channels_last import LAST_SUFFIX
from ..artifact.spec import NamedValueSpec
from .calls import maker_inside

_COPY = re.compile(r"(.+)_\d+")
"""The name of a copy of a value in a loop."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A value of the original model: the node that computes it, and the label of its named value within its scope."""

    value: Value
    node: Node
    label: str
    repeated: bool

    def is_made_by(self, node: Node, type: TensorType) -> bool:
        """Returns whether the node computes the value, after passes. A name alone is not enough: a free name may have
        been reused."""
        scope = re.escape(self.node.scope).replace(r"\{\}", r"\d+")
        return (
            type == self.value.type
            and _line(node.span) == _line(self.node.span)
            and re.fullmatch(scope, node.scope) is not None
        )


def find_named_values(model: Function, optimized: Function) -> Mapping[str, NamedValueSpec]:
    """Returns the named values of a function after its passes, by the value's name there. A named value is called
    `scope.name`, or `scope.operator@line:column` where the model gives the value no name."""
    written = {w.value.name: w for w in _written(model)}
    named: dict[str, NamedValueSpec] = {}
    for node in optimized.body:
        for number, value in enumerate(node.outputs[_carried(node) :], _carried(node)):
            maker = maker_inside(node, number)
            axes: tuple[int, ...] = ()
            found = _origin(written, maker, value)
            if found is None and value.name.endswith(LAST_SUFFIX) and value.type.rank > 2:
                axes = first_order(value.type.rank)
                shape = tuple(value.type.shape[axis] for axis in axes)
                turned = Value(value.name.removesuffix(LAST_SUFFIX), value.type.with_shape(shape))
                found = _origin(written, maker, turned)
            if found is not None:
                named[value.name] = NamedValueSpec(".".join(filter(None, (maker.scope, found.label))), axes)
    often, plain = Counter(named.values()), {spec.name for spec in named.values() if not spec.axes}
    # The iterations of a loop in an unnumbered scope cannot be distinguished. For a value in both axis orders, one
    # named value is enough.
    return {
        name: spec for name, spec in named.items() if often[spec] == 1 and (not spec.axes or spec.name not in plain)
    }


def _carried(node: Node) -> int:
    """Returns the number of carried results of a loop, which come first; 0 for another node."""
    if condition_of(node) is not None:
        return len(node.outputs)
    return carried_count(node) if node.op == "scan" else 0


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
