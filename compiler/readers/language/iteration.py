"""The elements that a `repeat` or a comprehension runs over: a range, an array of instances, or a list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....dialect.diagnostics import Span
from ....dialect.dims import Poly
from ....dialect.graph import Value
from ....dialect.lazy_dataclass import dataclass
from . import syntax
from .context import Context
from .instances import element
from .statics import demand_integer, demand_truth
from .values import ERROR, AnyValue, Binding, Frame, InstanceArray, Kind, describe

REPEATS = 1 << 31
COMPREHENSION_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a loop: `items`, or the `indices` themselves if the loop runs over a range."""

    indices: range
    items: InstanceArray | tuple[AnyValue, ...] | None = None
    is_wrong: bool = False

    @property
    def is_varying(self) -> bool:
        """Whether the elements are instances with different hyper-parameters."""
        return isinstance(self.items, InstanceArray) and bool(self.items.varying)

    @property
    def is_list(self) -> bool:
        return isinstance(self.items, tuple)


def read_elements(context: Context, frame: Frame, start: syntax.Expression, stop: syntax.Expression | None) -> Elements:
    """Returns the elements; one wrong element after reporting an error."""
    if stop is not None:
        return _range(context, frame, start, stop)
    value = context.evaluate(start, frame)
    if isinstance(value, InstanceArray):
        return Elements(range(value.count), value)
    if isinstance(value, tuple):
        return Elements(range(len(value)), value)
    if value is not ERROR:
        help_text = f"`0..{context.reporter.text(start.span)}` is a range" if isinstance(value, (int, Poly)) else ""
        if isinstance(value, Value) and value.type.rank:
            help_text = "`0..n` is a range of indices"
        message = f"a loop runs over a range, an array of instances or a list, not {describe(value)}"
        context.reporter.error("bad-range", message, start.span, help=help_text)
    return Elements(range(1), (ERROR,), is_wrong=True)


_SCAN = "`scan i in 0..n with x = x { ... }` is a loop over a range whose end depends on dims"


def _range(context: Context, frame: Frame, start: syntax.Expression, stop: syntax.Expression) -> Elements:
    bounds = []
    for node, what in ((start, "the first index"), (stop, "the end of the range")):
        bounds.append(demand_integer(context, context.evaluate(node, frame), node.span, what, _SCAN))
    first, last = bounds
    if first is ERROR or last is ERROR:
        return Elements(range(1), is_wrong=True)
    if not -REPEATS <= first <= last <= REPEATS:
        message = f"invalid loop range {first}..{last}"
        label = "expected first <= end, fewer than 2**31 iterations"
        context.reporter.error("bad-range", message, start.span.to(stop.span), label)
        return Elements(range(1), is_wrong=True)
    return Elements(range(first, last))


def comprehension(context: Context, node: syntax.Comprehension, frame: Frame) -> AnyValue:
    """Returns the list of `[value for variable in elements if condition]`."""
    elements = read_elements(context, frame, node.start, node.stop)
    if elements.is_wrong:
        return ERROR
    if len(elements.indices) > COMPREHENSION_LENGTH:
        message = f"a list has at most {COMPREHENSION_LENGTH} elements, not {len(elements.indices)}"
        return context.reporter.error("too-large", message, node.span)
    name, hidden = node.variable.name, frame.names.get(node.variable.name)
    found: list[AnyValue] = []
    try:
        for index in elements.indices:
            frame.names[name] = _element(context, elements, index, node.variable.span)
            if node.condition is not None and not _holds(context, frame, node.condition):
                continue
            found.append(context.evaluate(node.value, frame))
    finally:
        frame.names.pop(name, None)
        if hidden is not None:
            frame.names[name] = hidden
    return tuple(found)


def _element(context: Context, elements: Elements, index: int, span: Span) -> Binding:
    if isinstance(elements.items, InstanceArray):
        return Binding(element(context, elements.items, index, span), Kind.INSTANCE, span)
    return Binding(index if elements.items is None else elements.items[index], Kind.LOOP, span)


def _holds(context: Context, frame: Frame, node: syntax.Expression) -> bool:
    truth = demand_truth(context, context.evaluate(node, frame), node.span)
    return truth is not ERROR and truth


# --- loops whose bounds depend on an outer one ---


def depends(body: Sequence[syntax.Statement], variable: str) -> bool:
    """Returns whether the bounds of a loop in the body depend on the variable, also through assignments."""
    moving = {variable}
    while True:
        found = moving | {
            target.name
            for part in syntax.walk(body)
            if isinstance(part, syntax.Assign) and moving & set(_names(part.value))
            for target in part.targets
        }
        if found == moving:
            break
        moving = found
    loops = (p for p in syntax.walk(body) if isinstance(p, (syntax.Repeat, syntax.Comprehension)))
    return any(moving & {*_names(loop.start), *_names(loop.stop)} for loop in loops)


def _names(node: object) -> Iterator[str]:
    return (part.name for part in syntax.walk(node) if isinstance(part, syntax.Name))
