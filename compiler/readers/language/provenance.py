"""Provenance of sizes: the notes of a diagnostic about sizes.

A size is an axis of a tensor, and the note names the hyper-parameter that the declared type of the tensor has for that
axis. A tensor without a declared type takes the axis from an operand, if the operator keeps the sizes of that operand.
Equal values prove nothing: an axis of unknown origin, such as a result of `reshape`, has no note. The note of a
symbolic size points to the declaration of its dim.

    block Linear<inputs, outputs>(x: f32[..., inputs]) -> f32[..., outputs] {
      param weight: f32[outputs, inputs]
      return relu(x) @ weight             # relu(x) has the sizes of x: `inputs` for the last axis
    }                                     # weight has `outputs` for the first axis
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from ....dialect.diagnostics import Note, Span
from ....dialect.dims import INFINITY, Size, format_size, symbols
from ....dialect.graph import Node, Value
from ....dialect.lazy_dataclass import dataclass
from ....dialect.ops import OPERATORS
from . import syntax
from .context import Context
from .values import Frame, Hyper

NOTES = 4
_MOST_STEPS = 256
"""The most tensors that one search passes through."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A hyper-parameter, by its name in its block. Two are equal if they have the same source location."""

    name: str
    hyper: Hyper = field(compare=False)
    span: Span


@dataclass(frozen=True, slots=True)
class TracedSize:
    """A size in a diagnostic, with its origin if that is known."""

    size: Size
    origin: Origin | None = None


def trace_type(frame: Frame, declared: syntax.Type | None, axis: int, size: Size) -> Origin | None:
    """Returns the hyper-parameter of a declared type for an axis, counted from the last, -1."""
    if declared is None or -axis > len(declared.dims):
        return None
    dim = declared.dims[axis]
    if not isinstance(dim, syntax.Name) or dim.name not in frame.hypers:
        return None
    hyper = frame.hypers[dim.name]
    return Origin(dim.name, hyper, hyper.span) if hyper.value == size else None


def trace_axis(context: Context, frame: Frame, value: Value, axis: int) -> TracedSize:
    """Returns the size of an axis of a tensor, as seen from the code of `frame`."""
    size = value.type.shape[axis]
    return TracedSize(size, _Search(context, frame).find(value, axis % value.type.rank))


def trace_axes(context: Context, frame: Frame, values: Iterable[Value]) -> list[TracedSize]:
    """Returns the sizes of all axes of the tensors."""
    return [trace_axis(context, frame, value, axis) for value in values for axis in range(value.type.rank)]


@dataclass(slots=True)
class _Search:
    context: Context
    frame: Frame
    makers: Mapping[str, Node] | None = None
    seen: set[tuple[str, int]] = field(default_factory=set)

    def find(self, value: Value, axis: int) -> Origin | None:
        """Returns the origin of an axis; `axis` counts from the first, 0."""
        if (value.name, axis) in self.seen or len(self.seen) >= _MOST_STEPS:
            return None
        self.seen.add((value.name, axis))
        declared = self._declared(value, axis)
        if declared:
            return declared[0] if len(set(declared)) == 1 else None
        node = self._maker(value)
        positions = () if node is None else _kept_axes(node, axis)
        return next((origin for v, a in positions if (origin := self.find(v, a)) is not None), None)

    def _declared(self, value: Value, axis: int) -> list[Origin]:
        """Returns the origins from declared types: those in the innermost running block that declares one, else those
        in the last block that received or returned the value."""
        size, found = value.type.shape[axis], dict[int, list[Origin]]()
        for frame, type in self.context.writer.declared.get(value.name, ()):
            origin = trace_type(frame, type, axis - value.type.rank, size)
            if origin is not None:
                found.setdefault(id(frame), []).append(origin)
        running = [found[id(frame)] for frame in _frames(self.frame) if id(frame) in found]
        return next(iter([*running, *reversed(found.values())]), [])

    def _maker(self, value: Value) -> Node | None:
        if self.makers is None:
            bodies = self.context.writer.bodies
            self.makers = {v.name: node for body in bodies for node in body.nodes for v in node.outputs}
        return self.makers.get(value.name)


def _frames(frame: Frame | None) -> Iterator[Frame]:
    while frame is not None:
        yield frame
        frame = frame.caller


def _kept_axes(node: Node, axis: int) -> Sequence[tuple[Value, int]]:
    """Returns the axes of operands that the operator keeps as the axis of the result."""
    operator = OPERATORS[node.op]
    if operator.has("elementwise"):
        return _aligned(node.inputs, node.output, axis)
    if operator.has("rowwise") and node.inputs[0].type.shape == node.output.type.shape:
        return ((node.inputs[0], axis),)
    rule = _RULES.get(node.op)
    return () if rule is None else rule(node, axis)


def _aligned(operands: Iterable[Value], result: Value, axis: int) -> list[tuple[Value, int]]:
    """Returns the operand axes that broadcasting aligns with an axis. Stretched axes of size 1 are excluded."""
    positions = [(v, axis - result.type.rank + v.type.rank) for v in operands]
    return [(v, a) for v, a in positions if a >= 0 and v.type.shape[a] == result.type.shape[axis]]


def _matmul_axes(node: Node, axis: int) -> Sequence[tuple[Value, int]]:
    left, right = node.inputs[:2]
    last = node.output.type.rank - 1
    if axis == last:
        return ((right, right.type.rank - 1),)
    return ((left, left.type.rank - 2),) if axis == last - 1 else _aligned(node.inputs[:2], node.output, axis)


def _transposed_axes(node: Node, axis: int) -> Sequence[tuple[Value, int]]:
    axes = node.attribute("axes")
    source = axes[axis] if isinstance(axes, tuple) else None
    return ((node.inputs[0], source % node.output.type.rank),) if isinstance(source, int) else ()


def _swapped_axes(node: Node, axis: int) -> Sequence[tuple[Value, int]]:
    last = node.output.type.rank - 1
    return ((node.inputs[0], {last: last - 1, last - 1: last}.get(axis, axis)),)


_RULES: Mapping[str, Callable[[Node, int], Sequence[tuple[Value, int]]]] = {
    "matmul": _matmul_axes,
    "matrix_transpose": _swapped_axes,
    "transpose": _transposed_axes,
}


def _describe(size: Size, origin: Origin) -> Note:
    """Describes a size: `384 is `width`, given at model.nacre:41:38 (c.hidden_size)`."""
    hyper = origin.hyper
    given = "by default" if hyper.by_default else "given"
    text = f" ({hyper.text})" if hyper.text not in (format_size(size), origin.name, "") else ""
    return Note(f"{format_size(size)} is `{origin.name}`, {given} at {hyper.span}{text}")


def _declared_dim(context: Context, size: Size) -> Note | None:
    for symbol in sorted(symbols(size), key=lambda s: s.name):
        if symbol.name in context.program.dims:
            high = "" if symbol.high == INFINITY else str(symbol.high)
            text = f"`{symbol.name}` is any of {symbol.low}..{high}"
            if symbol.multiple != 1:
                text += f" that is a multiple of {symbol.multiple}"
            return Note(f"{text}, declared at {context.program.dims[symbol.name][1]}")
    return None


def size_notes(context: Context, sizes: Iterable[TracedSize], text: str) -> list[Note]:
    """Returns notes on the sizes that the text of a diagnostic mentions.

    The text does not distinguish equal sizes: a note is added only if they have one origin.
    """
    origins: dict[Size, list[Origin | None]] = {}
    for traced in sizes:
        origins.setdefault(traced.size, []).append(traced.origin)
    notes: list[Note] = []
    for size, found in origins.items():
        mentioned = re.search(rf"(?<![\w.-]){re.escape(format_size(size))}(?![\w.])", text)
        if size in (0, 1) or not mentioned or len(notes) == NOTES:
            continue
        origin = found[0] if len(set(found)) == 1 else None
        note = _declared_dim(context, size) if origin is None else _describe(size, origin)
        if note is not None and note not in notes:
            notes.append(note)
    return notes
