"""States in lowered functions: where a state's value after a call is, and the order that keeps states of failed calls.

A call that fails leaves all states unchanged. Therefore the checks of indices, and what they depend on, come first in a
function with states; the memory plan lets no kernel write into a state before a check.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dialect.dims import Size
from ...dialect.graph import Function, Node, read_values
from ...dialect.lazy_dataclass import dataclass
from ...dialect.ops import may_fail
from ...dialect.types import TensorType
from .nodes import Computed
from .storage import Input


@dataclass(frozen=True, slots=True)
class StateValue:
    """A state that a function changes: the numbers of its memory among the inputs and the outputs of the entry, its
    bytes, and the source of its value after the call."""

    name: str
    argument: int
    result: int
    size: Size
    source: Input | Computed


@dataclass(frozen=True, slots=True)
class LoweredState:
    """A state of the artifact; `initial` is the offset of its initial value among the weights, None for zeros."""

    name: str
    type: TensorType
    initial: int | None
    initial_bytes: int


def checks_first(function: Function) -> tuple[Node, ...]:
    """Returns the body with the nodes that can fail a call, and those that they depend on, before all others."""
    if not function.states or not any(map(may_fail, function.body)):
        return function.body
    needed: set[str] = set()
    first: set[int] = set()
    for number in reversed(range(len(function.body))):
        node = function.body[number]
        if may_fail(node) or any(v.name in needed for v in node.outputs):
            first.add(number)
            needed |= {value.name for value in read_values(node)}
    return (*_pick(function.body, first), *(n for i, n in enumerate(function.body) if i not in first))


def _pick(nodes: Sequence[Node], numbers: set[int]) -> tuple[Node, ...]:
    return tuple(nodes[number] for number in sorted(numbers))
