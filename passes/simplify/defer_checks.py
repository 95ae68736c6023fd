"""`defer-checks`: lets the kernels that use indices watch them, so that a check runs only after an alarm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from ...dialect.dims import at_least, product
from ...dialect.graph import Function, Module, Node, Value
from ...dialect.lazy_dataclass import dataclass
from ...dialect.operator import Addressing
from ...dialect.ops import OPERATORS, may_fail
from ...dialect.ops.support.index_modes import WATCH
from ..manager import Context, Pass

_READING = ("reading", "gathering", "elementwise", "view", "structure")
"""The properties of operators whose kernels compute every element of their operands, unless they are `choosing`."""


@dataclass(frozen=True)
class DeferChecks(Pass):
    """Moves a check after a node that reads or writes by the same indices, and lets this node raise the alarm.

        %c = check_indices(%i) {sizes = (5,), window = 1}
        %y = gather(%x, %i) {mode = "clamp"}
        ->
        %y = gather(%x, %i) {mode = "watch"}
        %c = check_indices(%i) {sizes = (5,), window = 1, deferred = true}

    The kernel of a node with the mode `watch` clamps indices, and sets a flag, the alarm, if one is out of range. The
    entry runs a deferred check only if the flag is set; the check then finds the index that the error reports.

    Assumes that groups are final. A node watches only if it certainly uses every index: no size may be 0, and its group
    has no operator that may skip elements, such as a masked softmax. A node that writes several elements by one index
    does not watch. Checks keep their order, so that the reported
    index is the same as without this pass. In functions with states, checks stay in front, since a call that fails
    leaves states unchanged.
    """

    name: ClassVar[str] = "defer-checks"

    def rewrite(self, module: Module, context: Context) -> Module:
        return module.map_functions(lambda function: function if function.states else _defer(function, context))


def _defer(function: Function, context: Context) -> Function:
    body = list(function.body)
    behind = _behind(body, function.results)
    moved: dict[int, list[Node]] = {}
    for position, target in sorted(behind.items()):
        check = body[position]
        if target == position or not context.allow("defer", check):
            continue
        watching = _watch(body[target], check)
        assert watching is not None, (check, body[target])
        body[target] = watching
        moved.setdefault(target, []).append(_with(check, deferred=True))
    deferred = {_name(check) for checks in moved.values() for check in checks}
    order: list[Node] = []
    for position, node in enumerate(body):
        if _name(node) not in deferred:
            order.append(node)
        order += moved.get(position, [])
    return replace(function, body=tuple(order))


def _behind(body: Sequence[Node], results: Sequence[Value]) -> dict[int, int]:
    """Returns for each check the position of the node that it moves after, or its own position. No check overtakes
    another one."""
    positions: dict[int, int] = {}
    last, needed = len(body), _needed(body, results)
    for position, check in reversed(list(enumerate(body))):
        if not OPERATORS[check.op].has("checking"):
            continue
        indices = check.inputs[0]
        later = (i for i in range(position + 1, len(body)) if indices in body[i].inputs)
        live = (i for i in later if all(v.name in needed for v in body[i].outputs))
        target = next((i for i in live if _watch(body[i], check) is not None), position)
        free = not any(v.name in needed for v in check.outputs) and target <= last
        last = positions[position] = target if free else position
    return positions


def _needed(body: Sequence[Node], results: Sequence[Value]) -> set[str]:
    """Returns the values that the results, or a check, depend on."""
    needed = {v.name for v in results}
    for node in reversed(body):
        if may_fail(node) or any(v.name in needed for v in node.outputs):
            needed |= {v.name for v in node.inputs}
    return needed


def _watch(node: Node, check: Node) -> Node | None:
    """Returns the node with the mode `watch` where it reads by the indices of the check, or None."""
    if not OPERATORS[node.op].has("group"):
        return _watching(node, check.inputs[0], check)
    (region,) = node.regions
    if not all(_computes_all(inner) for inner in region.body):
        return None
    indices = next(inner for v, inner in zip(node.inputs, region.arguments, strict=True) if v == check.inputs[0])
    if not _has_elements([v for inner in region.body for v in inner.outputs], indices):
        return None
    needed = _needed(region.body, region.results)
    for number, inner in enumerate(region.body):
        watching = _watching(inner, indices, check) if inner.outputs[0].name in needed else None
        if watching is not None:
            body = (*region.body[:number], watching, *region.body[number + 1 :])
            return replace(node, regions=(replace(region, body=body),))
    return None


def _watching(node: Node, indices: Value, check: Node) -> Node | None:
    operator, attributes = OPERATORS[node.op], dict(node.attributes)
    can_watch = any(spec.name == "mode" and WATCH in spec.internal for spec in operator.attributes)
    if operator.addresses is None or not can_watch or attributes.get("mode") not in ("clamp", WATCH):
        return None
    used = node.inputs if operator.has("overwriting") else node.inputs[:1]
    if not _has_elements([node.output, *used], indices) or _writes_rows(node, indices):
        return None
    types = [v.type for v in node.inputs]
    uses = operator.addresses(types, operator.complete(attributes))
    return _with(node, mode=WATCH) if any(_is_checked(node, use, indices, check) for use in uses) else None


def _writes_rows(node: Node, indices: Value) -> bool:
    """Returns whether an index is that of several elements to write. Their loop is vector code without an alarm, and
    a check of the few indices takes less time than an alarm in it."""
    rows = [v.type.shape for v in node.inputs[1:] if v != indices]
    return OPERATORS[node.op].has("overwriting") and any(product(s) != product(indices.type.shape) for s in rows)


def _has_elements(values: Sequence[Value], indices: Value) -> bool:
    """Returns whether no value is empty, unless there are no indices either: then none is out of range."""
    return all(at_least(size, 1) for v in values for size in v.type.shape if size not in indices.type.shape)


def _is_checked(node: Node, use: Addressing, indices: Value, check: Node) -> bool:
    attributes = dict(check.attributes)
    if not (attributes.get("from_end", True) and use.from_end):
        return False  # an alarm takes negative indices from the end
    same = attributes["sizes"] == use.sizes and attributes.get("window", 1) == use.window
    return same and node.inputs[use.operand].name == indices.name


def _computes_all(node: Node) -> bool:
    operator = OPERATORS[node.op]
    return any(map(operator.has, _READING)) and not operator.has("choosing") and not node.regions


def _with(node: Node, **attributes: object) -> Node:
    return replace(node, attributes=tuple(sorted((dict(node.attributes) | attributes).items())))  # type: ignore[arg-type]  # they are attributes


def _name(node: Node) -> str:
    return node.outputs[0].name
