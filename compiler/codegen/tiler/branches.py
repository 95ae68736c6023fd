"""Reads and writes the two branches that a body may hold: a load under a condition, and the alarm for an index.

    %x = scf.if %some -> (f32) {                  %p = scf.if %outside -> (i64) {
      %e = tensor.extract %table[%i]                memref.store %one, %alarm[]
      scf.yield %e                                  scf.yield %index
    } else {                                      } else {
      scf.yield %zero                               scf.yield %index
    }                                             }

The condition of a load depends on sizes only, so it holds for all lanes or for none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import Any

from ..structured.body_nodes import Node
from .forms import constant
from .structure import Buffer, Unsupported
from .text import Outside, Value, Writer

BRANCH = "scf.if"
_STORE, _YIELD = "memref.store", "scf.yield"


def read_branch(
    operation: Any, value: Callable[[Any], Node], step: Callable[[Any], None], buffers: Mapping[Any, Buffer]
) -> Node:
    """Returns the value of a branch in a body. `step` reads the operations inside. Raises Unsupported."""
    then, otherwise = ([o.operation for o in region.blocks[0].operations] for region in operation.regions)
    condition, type = value(operation.operands[0]), str(operation.results[0].type)
    if len(otherwise) != 1:
        raise Unsupported("a branch in a body")
    if [o.name for o in then] == [_STORE, _YIELD] and then[1].operands[0] == otherwise[0].operands[0]:
        alarm = buffers[then[0].operands[1]]
        return Node("watch", type, (value(then[1].operands[0]), condition), text=alarm.name)
    for inner in then[:-1]:
        step(inner)
    loaded, zero = value(then[-1].operands[0]), value(otherwise[0].operands[0])
    if all(n.kind != "extract" for n in loaded.walk()):
        return Node("arith.select", type, (condition, loaded, zero))
    if loaded.kind != "extract" or zero.kind != "constant" or not _is_uniform(condition):
        raise Unsupported("a branch in a body")
    return replace(loaded, guard=condition)


def _is_uniform(condition: Node) -> bool:
    return all(n.operands or n.kind in ("size", "constant") for n in condition.walk())


@contextmanager
def watching(writer: Writer) -> Iterator[None]:
    """Sets the alarms of whole vectors at the end of the block, with one test for all of them."""
    outer, writer.outside = writer.outside, Outside(writer.depth)
    yield
    found, writer.outside = writer.outside, outer
    for alarm, lanes in found.lanes.items():
        type = writer.vector_type("i1")
        _raise(writer, alarm, _any(writer, reduce(lambda x, y: writer.let(f"arith.ori {x}, {y} : {type}"), lanes)))


def raise_alarm(writer: Writer, alarm: str, outside: Value) -> None:
    """Sets the alarm if the condition holds in a lane that is computed."""
    if not outside.vector:
        _raise(writer, alarm, writer.scalar(outside).name)
    elif writer.mask is not None:
        type = writer.type(outside)
        _raise(writer, alarm, _any(writer, writer.let(f"arith.andi {outside.name}, {writer.mask} : {type}")))
    elif writer.outside is not None and writer.outside.depth == writer.depth:
        writer.outside.lanes.setdefault(alarm, []).append(outside.name)
    else:
        _raise(writer, alarm, _any(writer, outside.name))


def _any(writer: Writer, lanes: str) -> str:
    return writer.let(f"vector.reduction <or>, {lanes} : {writer.vector_type('i1')} into i1")


def _raise(writer: Writer, alarm: str, found: str) -> None:
    key, value = ("alarm", found), Value(found, "i1")
    if writer.recall(key) is None:
        writer.remember(key, value)
        with writer.when(found):
            writer.store(Buffer(alarm, "i64"), constant(0), writer.constant("1", "i64"))


def load_under(writer: Writer, condition: Value, type: str, zero: Value, load: Callable[[], Value]) -> str:
    """Returns the name of a value of the MLIR type `type`: the loaded one if the condition holds, else zero."""
    name = writer.fresh()
    writer.add(f"{name} = scf.if {writer.scalar(condition).name} -> ({type}) {{")
    with writer.scope():
        writer.add(f"scf.yield {load().name} : {type}")
    writer.add("} else {")
    with writer.scope():
        writer.add(f"scf.yield {zero.name} : {type}")
    writer.add("}")
    return name
