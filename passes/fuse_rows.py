"""Growing a group of rows: reductions and what is rowwise, over the same rows, with what is elementwise around them.

Every tensor of the group is FULL (rows and their elements), KEPT (one element per row, the reduced axes of size 1),
DROPPED (the same without these axes), or SMALL (what broadcasts to full, and is cheap to make again for every row).
A row depends on no other row, so that a kernel can take as many as it likes at a time. That asks for rows along the
last axes; a reduction over other axes takes what computes its operand, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from ..dialect.dims import Shape
from ..dialect.graph import Node, Value
from ..dialect.types import DType
from .fuse_flow import Flow, has
from .fuse_rules import (
    BEHIND_CONTRACTION,
    CIRCLE,
    COSTLY,
    MOST_MEMBERS,
    OTHER_AXIS,
    OTHER_SHAPE,
    OTHER_TYPE,
    TOO_LARGE,
    USED_TWICE,
    are_last,
    broadcasts_to,
    fits_type,
    float_type,
    follows,
    is_cheap,
    is_elementwise,
    moves_linearly,
    row_axes,
)


class Form(Enum):
    FULL, KEPT, DROPPED, SMALL = range(4)


def starts_rows(flow: Flow, number: int) -> bool:
    return has(flow.nodes[number], "rowwise", "reduction") and row_axes(flow.nodes[number]) is not None


def grow_rows(flow: Flow, number: int) -> set[int]:
    """The group around a reduction of floats or something rowwise."""
    node = flow.nodes[number]
    dtype = float_type(node)
    if dtype is None or not fits_type(flow, node, dtype) or len(node.outputs) != 1:
        return set()
    return _Rows(flow, number, dtype).grow()


class _Rows:
    def __init__(self, flow: Flow, seed: int, dtype: DType) -> None:
        self.flow, self.seed, self.dtype = flow, seed, dtype
        node = flow.nodes[seed]
        axes = row_axes(node)
        assert axes is not None, node
        self.axes = axes
        self.full: Shape = node.inputs[0].type.shape
        self.kept: Shape = tuple(1 if i in axes else size for i, size in enumerate(self.full))
        self.dropped: Shape = tuple(size for i, size in enumerate(self.full) if i not in axes)
        self.whole = are_last(axes, len(self.full))
        self.forms: dict[int, Form] = {seed: Form.FULL if has(node, "rowwise") else self._reduced(node)}

    def _reduced(self, node: Node) -> Form:
        return Form.KEPT if node.output.type.shape == self.kept else Form.DROPPED

    def grow(self) -> set[int]:
        if not self.whole:
            self._refuse_readers()
            if has(self.flow.nodes[self.seed], "rowwise"):
                for source in self.flow.sources(self.seed):
                    self.flow.refuse(source, self.seed, OTHER_AXIS)
                return set()
        changed = True
        while changed:
            changed = any([self._take_sources(), self.whole and self._take_readers()])
        return set(self.forms)

    def _refuse_readers(self) -> None:
        for reader in self.flow.readers[self.seed]:
            if not has(self.flow.nodes[reader], "sequential"):
                self.flow.refuse(self.seed, reader, OTHER_AXIS)

    # --- upwards ---

    def _take_sources(self) -> bool:
        """Adds nodes that compute what members read, the last first."""
        took = False
        pending = {s for m in self.forms for s in self.flow.sources(m)} - self.forms.keys()
        while pending:
            number = max(pending)
            pending.discard(number)
            if number in self.forms or not self.flow.is_free(number):
                continue
            form, reason = self._form_above(number)
            if form is None:
                for reader in self.flow.readers[number]:
                    if reader in self.forms and reason is not None:
                        self.flow.refuse(number, reader, reason)
                continue
            self.forms[number] = form
            pending.update(self.flow.sources(number))
            took = True
        return took

    def _form_above(self, number: int) -> tuple[Form | None, str | None]:
        """What a node would be in the group, or why it cannot be in it."""
        if len(self.forms) >= MOST_MEMBERS:
            return None, TOO_LARGE
        flow, node = self.flow, self.flow.nodes[number]
        readers = [r for r in flow.readers[number] if r in self.forms]
        inside = flow.stays_inside(number, self.forms)
        if has(node, "contraction"):
            return None, BEHIND_CONTRACTION
        if has(node, "reduction", "rowwise"):
            return self._rows_above(number, readers)
        moves = (moves_linearly(node) or has(node, "gathering")) and len(node.outputs) == 1
        if not (is_elementwise(node) or moves):
            return None, None
        if not fits_type(flow, node, self.dtype):
            return None, OTHER_TYPE
        shape = node.output.type.shape
        if has(node, "gathering") and not self._gathers_rows(node):
            return None, OTHER_SHAPE
        if moves and not inside:
            return None, USED_TWICE
        if shape == self.full and all(self._reads_full(r, node.output) for r in readers):
            if has(node, "view"):
                return None, OTHER_SHAPE
            if not inside and not self.whole:
                return None, USED_TWICE
            if not inside and flow.leads_back({*self.forms, number}):
                return None, CIRCLE
            return Form.FULL, None
        if not broadcasts_to(shape, self.full) or not all(self._reads_small(r, node.output) for r in readers):
            return None, OTHER_SHAPE
        if not inside:
            return None, USED_TWICE
        return (Form.SMALL, None) if moves or is_cheap(node) else (None, COSTLY)

    def _rows_above(self, number: int, readers: Sequence[int]) -> tuple[Form | None, str | None]:
        """A second reduction of the same rows, that members read."""
        node = self.flow.nodes[number]
        if not self.whole or row_axes(node) != self.axes:
            return None, OTHER_AXIS
        form = Form.FULL if has(node, "rowwise") else self._reduced(node)
        lined_up = {form, Form.FULL} if form is Form.KEPT else {form}
        if node.inputs[0].type.shape != self.full or not all(
            self.forms[r] in lined_up and has(self.flow.nodes[r], "elementwise") for r in readers
        ):
            return None, OTHER_SHAPE
        if not fits_type(self.flow, node, self.dtype) or node.output.type.dtype != self.dtype:
            return None, OTHER_TYPE
        return (None, CIRCLE) if self.flow.leads_back({*self.forms, number}) else (form, None)

    def _gathers_rows(self, node: Node) -> bool:
        """Are whole rows taken, and from a table that is read as it is?"""
        axis = dict(node.attributes).get("axis", 0)
        assert isinstance(axis, int), node
        table = node.inputs[0].type
        return table.rank - 1 - axis % table.rank >= len(self.axes)

    def _reads_full(self, reader: int, value: Value) -> bool:
        """Does a member read a full tensor in its place?"""
        node, form = self.flow.nodes[reader], self.forms[reader]
        if has(node, "reduction", "rowwise"):
            return node.inputs[0] == value and value not in node.inputs[1:]
        return form is Form.FULL and is_elementwise(node) and follows(node, [value])

    def _reads_small(self, reader: int, value: Value) -> bool:
        """Does a member read it broadcast to full, or make what is?"""
        node, form = self.flow.nodes[reader], self.forms[reader]
        if has(node, "reduction", "rowwise"):
            return False
        return form in (Form.FULL, Form.SMALL) and (has(node, "elementwise") or moves_linearly(node))

    # --- downwards ---

    def _take_readers(self) -> bool:
        """Adds nodes that read what members compute, the first first."""
        took = False
        pending = {r for m in self.forms for r in self.flow.readers[m]} - self.forms.keys()
        while pending:
            number = min(pending)
            pending.discard(number)
            if number in self.forms or not self.flow.is_free(number):
                continue
            form, reason = self._form_below(number)
            if form is None:
                for source in self.flow.sources(number):
                    if source in self.forms and reason is not None:
                        self.flow.refuse(source, number, reason)
                continue
            self.forms[number] = form
            pending.update(self.flow.readers[number])
            took = True
        return took

    def _form_below(self, number: int) -> tuple[Form | None, str | None]:
        if len(self.forms) >= MOST_MEMBERS:
            return None, TOO_LARGE
        flow, node = self.flow, self.flow.nodes[number]
        given = [v for v in node.inputs if flow.source(v) in self.forms]
        forms = {self.forms[source] for v in given if (source := flow.source(v)) is not None}
        if has(node, "reduction", "rowwise"):
            form, reason = self._rows_below(node, given, forms)
        elif is_elementwise(node):
            form, reason = self._elements_below(node, given, forms)
        elif has(node, "view") and forms <= {Form.KEPT, Form.DROPPED}:
            shapes = {self.kept: Form.KEPT, self.dropped: Form.DROPPED}
            form, reason = shapes.get(node.output.type.shape), OTHER_SHAPE
        else:
            return None, None
        if form is None:
            return None, reason
        if not fits_type(flow, node, self.dtype):
            return None, OTHER_TYPE
        if flow.leads_back({*self.forms, number}):
            return None, CIRCLE
        return form, None

    def _rows_below(self, node: Node, given: list[Value], forms: set[Form]) -> tuple[Form | None, str | None]:
        axes = row_axes(node)
        if axes is None:
            return None, None
        if axes != self.axes or forms != {Form.FULL}:
            return None, OTHER_AXIS
        if given != [node.inputs[0]] or node.inputs[0].type.shape != self.full:
            return None, OTHER_SHAPE
        if node.output.type.dtype != self.dtype:
            return None, OTHER_TYPE
        return (Form.FULL if has(node, "rowwise") else self._reduced(node)), None

    def _elements_below(self, node: Node, given: list[Value], forms: set[Form]) -> tuple[Form | None, str | None]:
        shape = node.output.type.shape
        if not follows(node, given):
            return None, OTHER_SHAPE
        if forms <= {Form.FULL, Form.KEPT} and shape in (self.full, self.kept):
            return (Form.FULL if shape == self.full else Form.KEPT), None
        # Without their axes the rows do not line up with full tensors, unless there is but one row.
        if forms == {Form.DROPPED} and shape == self.dropped:
            return Form.DROPPED, None
        if not self.dropped and shape in (self.full, self.kept):
            return (Form.FULL if shape == self.full else Form.KEPT), None
        return None, OTHER_SHAPE
