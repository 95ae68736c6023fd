"""Loads at computed indices, with the part of the address that rows share in one register.

    table[first + index], with `index` different in each row
    ->
    pointer = address of table + first           once for all rows, outside of loops that do not change it
    load pointer + index

LLVM would otherwise add `first` for each row, or keep it as a counter that is added in each address. A pointer made of
an integer is opaque to that rewrite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..structured.body_nodes import Node
from .forms import Form, constant
from .structure import Buffer
from .text import ENDLESS, Value, Writer, element_bytes, stored_type


def addends(index: Node, is_shared: Callable[[Node], bool]) -> list[Node]:
    """Returns the nodes whose sum an index is: those that rows share, and one that they do not."""
    if index.kind == "arith.index_cast":
        return addends(index.operands[0], is_shared)
    is_sum = index.kind == "arith.addi" and index.type in ("index", "i64")
    if is_sum and any(is_shared(operand) for operand in index.operands):
        return [part for operand in index.operands for part in addends(operand, is_shared)]
    return [index]


def load_at_address(
    writer: Writer,
    node: Node,
    is_shared: Callable[[Node], bool],
    form_of: Callable[[Node], Form | None],
    value_of: Callable[[Node], Value],
) -> Value | None:
    """Returns the element that an `extract` loads. `form_of` gives the forms of the addends that rows share, and of
    loop indices; `value_of` the scalars of the others. None if an addend has no form."""
    assert node.tensor is not None and node.tensor.view is not None, node
    view = node.tensor.view
    shared, own = constant(view.offset), list[tuple[Value, int]]()
    for index, stride in zip(node.operands, view.strides, strict=True):
        for part in addends(index, is_shared):
            if is_shared(part):
                form = form_of(part)
                if form is None:
                    return None
                shared = shared + form.times(stride)
            elif not isinstance(stride, int):
                return None
            else:
                own.append((value_of(part), stride))
    if not isinstance(shared.constant, int) or node.guard is not None:
        return None
    return load_sum(writer, view.buffer, shared, own)


def load_sum(writer: Writer, buffer: Buffer, shared: Form, own: Sequence[tuple[Value, int]]) -> Value:
    """Returns the element at the sum of a form, which rows share, and of numbers of the row with their strides."""
    element = stored_type(buffer.element)
    pointer = pointer_to(writer, buffer, Form(shared.terms))
    for value, stride in own:
        pointer = _step(writer, pointer, _scaled(writer, value, stride), element)
    if shared.constant:
        name = f"llvm.getelementptr {pointer}[{shared.constant}] : (!llvm.ptr) -> !llvm.ptr, {element}"
        pointer = writer.let(name)
    loaded = Value(writer.let(f"llvm.load {pointer} : !llvm.ptr -> {element}"), element)
    return writer.as_read(loaded, buffer)


def pointer_to(writer: Writer, buffer: Buffer, form: Form) -> str:
    """Returns a pointer to the element at a form."""
    type = f"memref<{ENDLESS}x{stored_type(buffer.element)}>"
    start = writer.let(f"memref.extract_aligned_pointer_as_index {writer.memory(buffer)} : {type} -> index")
    offset = writer.index(form.times(element_bytes(buffer.element)))
    address = _as_integer(writer, writer.let(f"arith.addi {start}, {offset} : index"), "index")
    return writer.let(f"llvm.inttoptr {address} : i64 to !llvm.ptr")


def _step(writer: Writer, pointer: str, index: str, element: str) -> str:
    return writer.let(f"llvm.getelementptr {pointer}[{index}] : (!llvm.ptr, i64) -> !llvm.ptr, {element}")


def _scaled(writer: Writer, value: Value, stride: int) -> str:
    name = _as_integer(writer, writer.scalar(value).name, value.type)
    if stride == 1:
        return name
    factor = writer.scalar(writer.constant(str(stride), "i64")).name
    return writer.let(f"arith.muli {name}, {factor} : i64")


def _as_integer(writer: Writer, name: str, type: str) -> str:
    return name if type == "i64" else writer.let(f"arith.index_cast {name} : {type} to i64")
