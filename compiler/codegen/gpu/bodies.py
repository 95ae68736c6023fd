"""Reads structured ops on memory through MLIR's bindings: a body becomes a function, the rest of an op a `Nest`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.mlir import ir
from ..structured.operations import body_of, captured_by, iterators, maps_of, operands_of, walk
from ..structured.positions import Position
from .body_values import CONVERSION, read_body, signs_of_product
from .nest import Beside, Nest, Operand

COMBINING = frozenset(
    f"arith.{name}"
    for name in (
        *("addf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf"),
        *("addi", "muli", "maxsi", "minsi", "maxui", "minui", "andi", "ori", "xori"),
    )
)
"""Operations that are associative, up to rounding."""
_SUMS = ("arith.addf", "arith.addi")
_LOOPS = ("scf.for", "scf.while")


def is_fill(op: Any) -> bool:
    """Returns whether an op writes one number that it is given into all elements."""
    (inputs, results), block = operands_of(op), body_of(op)
    yielded = block.operations[0].operation
    given = len(inputs) == len(results) == 1 and not _in_memory(inputs[0])
    return given and yielded.name == "linalg.yield" and yielded.operands[0] == block.arguments[0]


def describe_nest(op: Any, name: str, starts: Sequence[Any]) -> Nest:
    """Returns the nest of an op, whose schedule is the function `name`. `starts` has the first value of each result, or
    None."""
    inputs, results = operands_of(op)
    block = body_of(op)
    used = [bool(list(argument.uses)) for argument in block.arguments]
    body = read_body(op)
    found = [body.combination(number) for number in range(len(results))]
    first = body.first_combination() if len(results) == 2 else None
    combines = tuple(each[0] if each is not None and each[0] in COMBINING else None for each in found)
    # The addend of a sum over two inputs.
    added = found[0][1] if found[0] and len(inputs) == 2 and len(results) == 1 and combines[0] in _SUMS else None
    signs = None if added is None else signs_of_product(added)
    described = [describe_operand(*each) for each in zip((*inputs, *results), maps_of(op), used, strict=True)]
    return Nest(
        name,
        f"{name}_body",
        tuple(described[: len(inputs)]),
        tuple(described[len(inputs) :]),
        iterators(op),
        tuple(str(value.type) for value in captured_by(block)),
        tuple(start is not None for start in starts),
        combines,
        signs is not None,
        signs is None and added is not None and signs_of_product(added, CONVERSION) is not None,
        signs or (False, False),
        any(inner.name in _LOOPS for inner in walk(block)),
        any(inner.name == "linalg.index" for inner in walk(block)),
        any(inner.name == "arith.divf" and str(inner.results[0].type) == "f64" for inner in walk(block)),
        running=first[0] if first is not None and first[0] in COMBINING else None,
    )


def take_body(
    module: Any, op: Any, name: str, starts: Sequence[Any], *, strict: bool = False
) -> tuple[Nest, list[Any]]:
    """Moves the body of an op into a function of the module. Returns the nest of the op and the values that the op
    captures, in the order of the nest. Unless the code is `strict`, a product is not rounded before it is added to a
    sum."""
    nest = describe_nest(op, name, starts)
    block = body_of(op)
    captured = captured_by(block)
    loops = len(nest.parallel)
    types = [*(a.type for a in block.arguments), *[ir.IndexType.get()] * loops, *(v.type for v in captured)]
    function = empty_function(module, nest.body, types, [a.type for a in list(block.arguments)[len(nest.inputs) :]])
    _move(block, function.regions[0].blocks[0], loops, captured)
    if not strict and not all(nest.parallel):
        _fuse_products(function.regions[0].blocks[0])
    return nest, captured


def take_beside(module: Any, name: str, total: Any, op: Any) -> tuple[Beside, list[Any]]:
    """Moves the body of an elementwise op on the memory `total` of sums into a function of the module. Returns the op
    as the prologue or the epilogue of a nest, and the values that the nest's schedule takes for it."""
    inputs, results = operands_of(op)
    nest, captured = take_body(module, op, name, [None] * len(results))
    value = frozenset(number for number, each in enumerate(inputs) if each == total)
    known = nest.inputs[min(value)] if value else nest.results[0]
    axes = tuple(axis for axis in known.plain_axes() if axis is not None)
    beside = Beside(nest, value, axes)
    return beside, [*(v for n, v in enumerate((*inputs, *results)) if beside.takes(n)), *captured]


def _in_memory(value: Any) -> bool:
    return str(value.type).startswith("memref")


def describe_operand(value: Any, index: tuple[Position, ...], used: bool) -> Operand:
    """Returns an operand with a position for each of its axes."""
    if not _in_memory(value):
        return Operand(str(value.type), str(value.type), (), ())
    type = ir.MemRefType(value.type)
    strides, _ = type.get_strides_and_offset()
    dynamic, unknown = ir.ShapedType.get_dynamic_size(), ir.ShapedType.get_dynamic_stride_or_offset()
    shape = tuple(None if size == dynamic else size for size in type.shape)
    steps = tuple(None if step == unknown else step for step in strides)
    return Operand(str(type), str(type.element_type), shape, index, used, steps)


def combining(op: Any, result: int) -> str | None:
    """Returns the operation that combines a result with a new value, if the body reads the result nowhere else."""
    found = read_body(op).combination(result)
    return found[0] if found is not None and found[0] in COMBINING else None


def empty_function(module: Any, symbol: str, types: Sequence[Any], results: Sequence[Any]) -> Any:
    attributes = {
        "sym_name": ir.StringAttr.get(symbol),
        "sym_visibility": ir.StringAttr.get("private"),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(list(types), list(results))),
    }
    with ir.InsertionPoint(module.body), ir.Location.unknown():
        function = ir.Operation.create("func.func", attributes=attributes, regions=1)
    locations = [ir.Location.unknown(function.context)] * len(types)
    function.regions[0].blocks.append(*types, arg_locs=locations)
    return function


def _fuse_products(block: Any) -> None:
    """Lets LLVM make one instruction of a multiplication and the addition of its result."""
    flags = ir.Attribute.parse("#arith.fastmath<contract>")
    for op in walk(block):
        if op.name in ("arith.mulf", "arith.addf"):
            op.attributes["fastmath"] = flags


def _move(block: Any, target: Any, loops: int, captured: Sequence[Any]) -> None:
    """Moves the operations of a body; `target` has the arguments of the body, then the loops, then captured values."""
    own = list(block.arguments)
    arguments = list(target.arguments)
    positions, outside = arguments[len(own) : len(own) + loops], arguments[len(own) + loops :]
    for old, new in zip(own, arguments, strict=False):
        old.replace_all_uses_with(new)
    for op in list(block.operations):
        if op.operation.name == "linalg.yield":
            with ir.InsertionPoint(target), op.location:
                ir.Operation.create("func.return", operands=list(op.operands))
            op.operation.erase()
        else:
            target.append(op)
    for op in list(walk(target)):
        if op.name == "linalg.index":
            op.results[0].replace_all_uses_with(positions[ir.IntegerAttr(op.attributes["dim"]).value])
            op.erase()
            continue
        for old, new in zip(captured, outside, strict=True):
            op.replace_uses_of_with(old, new)
