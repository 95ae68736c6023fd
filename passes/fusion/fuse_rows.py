"""Grows a group of rows: reductions and rowwise nodes over the same rows, with the elementwise nodes around them.

Every tensor of the group has one of four forms: FULL (rows and their elements), KEPT (one element per row, the reduced
axes have size 1), DROPPED (the same without these axes), or SMALL (broadcasts to full, and is cheap to recompute for
every row). A row depends on no other row, so a kernel can compute any number of rows at a time. This requires rows
along the last axes; a reduction over other axes takes only the nodes that compute its operand, and, with `in-place`,
elementwise nodes that read each result where it is computed.

    x - mean(x, axis=-1, keepdims=True)        x [B, T, C] FULL, mean [B, T, 1] KEPT
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from ...dialect.dims import Shape
from ...dialect.graph import Node, Value
from ...dialect.types import DType
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
    """Returns the group around a reduction of floats or a rowwise node."""
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
        # Whether nodes that read the results may join; those of rows along other axes end the group.
        self.ends = self.whole or (flow.in_place and has(node, "reduction"))
        self.forms: dict[int, Form] = {seed: Form.FULL if has(node, "rowwise") else self._reduced(node)}

    def _reduced(self, node: Node) -> Form:
        return Form.KEPT if node.output.type.shape == self.kept else Form.DROPPED

    def grow(self) -> set[int]:
        if not self.ends:
            self._refuse_readers()
            if has(self.flow.nodes[self.seed], "rowwise"):
                for source in self.flow.sources(self.seed):
                    self.flow.refuse(source, self.seed, OTHER_AXIS)
                return set()
        changed = True
        while changed:
            changed = any([self._take_sources(), self.ends and self._take_readers()])
        return set(self.forms)

    def _refuse_readers(self) -> None:
        for reader in self.flow.readers[self.seed]:
            if not has(self.flow.nodes[reader], "sequential"):
                self.flow.refuse(self.seed, reader, OTHER_AXIS)

    # --- towards operands ---

    def _take_sources(self) -> bool:
        """Adds nodes that compute operands of members, last first."""
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
        """Returns the role of a node in the group, or the reason why it cannot join."""
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
        if self.ends and not self.whole and broadcasts_to(shape, self.dropped) and self._end_reads(readers):
            return (Form.SMALL, None) if inside and is_cheap(node) else (None, COSTLY)
        if not broadcasts_to(shape, self.full) or not all(self._reads_small(r, node.output) for r in readers):
            return None, OTHER_SHAPE
        if not inside:
            return None, USED_TWICE
        return (Form.SMALL, None) if moves or is_cheap(node) else (None, COSTLY)

    def _rows_above(self, number: int, readers: Sequence[int]) -> tuple[Form | None, str | None]:
        """Returns the form of a second reduction of the same rows, which members read."""
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
        """Returns whether the node gathers whole rows of a table that is read unmoved."""
        axis = dict(node.attributes).get("axis", 0)
        assert isinstance(axis, int), node
        table = node.inputs[0].type
        return table.rank - 1 - axis % table.rank >= len(self.axes)

    def _reads_full(self, reader: int, value: Value) -> bool:
        """Returns whether a member reads a full tensor at its own index."""
        node, form = self.flow.nodes[reader], self.forms[reader]
        if has(node, "reduction", "rowwise"):
            return node.inputs[0] == value and value not in node.inputs[1:]
        return form is Form.FULL and is_elementwise(node) and follows(node, [value])

    def _reads_small(self, reader: int, value: Value) -> bool:
        """Returns whether a member reads the value broadcast to full, or computes such a value."""
        node, form = self.flow.nodes[reader], self.forms[reader]
        if has(node, "reduction", "rowwise"):
            return False
        return form in (Form.FULL, Form.SMALL) and (has(node, "elementwise") or moves_linearly(node))

    def _end_reads(self, readers: Sequence[int]) -> bool:
        """Returns whether all members that read a value are elementwise nodes after the reduction."""
        return all(self.forms[r] is Form.DROPPED and is_elementwise(self.flow.nodes[r]) for r in readers)

    # --- towards readers ---

    def _take_readers(self) -> bool:
        """Adds nodes that read results of members, first to last."""
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
        if not self.whole and (form is Form.FULL or not is_elementwise(node)):
            return None, OTHER_AXIS
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
        # Without their axes, rows line up with full tensors only if there is one row.
        if forms == {Form.DROPPED} and shape == self.dropped:
            return Form.DROPPED, None
        if not self.dropped and shape in (self.full, self.kept):
            return (Form.FULL if shape == self.full else Form.KEPT), None
        return None, OTHER_SHAPE
