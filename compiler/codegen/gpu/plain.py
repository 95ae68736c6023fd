"""The plain schedule: a thread for each element of the results, which runs the reduction loops alone.

Every structured op whose parallel iterations write different elements has this schedule:

    thread t of block b:  n = b * THREADS + t, if n is below the product of the parallel sizes
                          positions of the parallel loops: n split by their sizes, the last one the fastest
                          accumulate over the reduction loops, then write
"""

from __future__ import annotations

from collections.abc import Sequence

from .alignment import bytes_of
from .nest import Beside, Nest, Operand, arguments_of, call_body
from .text import Text

THREADS = 256
"""The threads of a block."""
_FEW_LOOPS = 7
"""The loops of a convolution of images, whose indices fit 32 registers."""
BYTES = {"f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i16": 2, "i8": 1}
"""The bytes of the elements that are loaded and stored several at once."""


def blocks_at_once(nest: Nest) -> int:
    """Returns the least number of blocks of a processor. By default, ptxas limits the registers of a thread so that
    eight blocks fit, and the indices of many loops need more."""
    return 4 if len(nest.parallel) > _FEW_LOOPS else 0


def write_plain(nest: Nest) -> str:
    """Returns the text of the schedule: the function of the threads, and the one that counts the blocks."""
    text = Text()
    sizes = write_sizes(text, nest)
    block, thread = text.special("ctaid.x"), text.special("tid.x")
    number = text.add(text.multiply(block, text.constant(THREADS)), thread)
    with text.block(f"scf.if {text.below(number, count_elements(text, nest, sizes))}"):
        positions = split_number(text, number, [sizes[loop] for loop in nest.outer])
        loops = dict(zip(nest.outer, positions, strict=True))
        accumulate_results(text, nest, sizes, loops)
    arguments = ", ".join(f"{name}: {type}" for name, type in arguments_of(nest))
    return text.function(f"@{nest.name}({arguments})") + write_count(nest, THREADS)


def write_count(nest: Nest, per_block: int) -> str:
    """Returns the text of the function that counts the blocks: `per_block` elements in each."""
    text = Text()
    total = count_elements(text, nest, write_sizes(text, nest))
    blocks = text.let(f"arith.ceildivui {total}, {text.constant(per_block)} : index")
    arguments = ", ".join(f"%m{number}: {operand.type}" for number, operand in enumerate(nest.operands))
    return text.function(f"@{nest.name}_count({arguments}) -> index", [blocks], ["index"])


def write_sizes(text: Text, nest: Nest) -> list[str]:
    """Returns the number of iterations of every loop."""
    sizes = []
    for loop in range(len(nest.parallel)):
        operand, axis = nest.extent(loop)
        type, known = nest.operands[operand].type, nest.operands[operand].shape[axis]
        measured = f"memref.dim %m{operand}, {text.constant(axis)} : {type}"
        sizes.append(text.let(measured) if known is None else text.constant(known))
    return sizes


def count_elements(text: Text, nest: Nest, sizes: Sequence[str]) -> str:
    return text.multiply(text.constant(1), *(sizes[loop] for loop in nest.outer))


def split_number(text: Text, number: str, sizes: Sequence[str]) -> list[str]:
    """Returns the positions in loops of these sizes, the last one the fastest, of an iteration by its number."""
    positions: list[str] = []
    for size in reversed(sizes[1:]):
        positions.append(text.index("remui", number, size))
        number = text.index("divui", number, size)
    return [*([number] if sizes else []), *reversed(positions)]


def load(text: Text, nest: Nest, operand: int, loops: Sequence[str], prefix: str = "%m") -> str:
    """Returns the element of an operand at positions of the loops."""
    what = nest.operands[operand]
    if not what.in_memory:
        return f"{prefix}{operand}"
    return load_element(text, what, f"{prefix}{operand}", loops)


def load_element(text: Text, operand: Operand, name: str, loops: Sequence[str]) -> str:
    """Returns the element of a tensor at positions of the loops, or the value of its padding."""
    indices = [text.apply(expression, loops) for expression in operand.index]
    return load_inside(text, operand, name, indices, is_inside(text, operand, name, indices))


def load_inside(text: Text, operand: Operand, name: str, indices: Sequence[str], inside: str) -> str:
    """Returns the element of a tensor at an index, or the value of its padding unless it lies `inside`, a condition. An
    empty one always holds."""
    read = f"memref.load {name}[{', '.join(indices)}] : {operand.type}"
    if not inside:
        return text.let(read)
    value = text.fresh()
    with text.block(f"{value} = scf.if {inside} -> ({operand.element})", "} else {"):
        text.carry([text.let(read)], [operand.element])
    with text.next_region():
        text.carry([text.let(f"arith.constant {operand.padding}")], [operand.element])
    return value


def is_inside(text: Text, operand: Operand, name: str, indices: Sequence[str]) -> str:
    """Returns whether an index lies in the tensor along the axes that are padded. An index below 0 is a large number
    without a sign."""
    inside = ""
    for axis in operand.padded:
        size = text.let(f"memref.dim {name}, {text.constant(axis)} : {operand.type}")
        known = text.below(indices[axis], size)
        inside = text.let(f"arith.andi {inside}, {known} : i1") if inside else known
    return inside


def store(text: Text, nest: Nest, result: int, values: Sequence[str], loops: Sequence[str], prefix: str = "%m") -> None:
    """Stores neighbouring elements of a result: several by one aligned store."""
    what, number = nest.results[result], len(nest.inputs) + result
    indices = ", ".join(text.apply(expression, loops) for expression in what.index)
    target = f"{prefix}{number}[{indices}]"
    if len(values) == 1:
        text.line(f"memref.store {values[0]}, {target} : {what.type}")
        return
    vector = f"vector<{len(values)}x{what.element}>"
    joined = text.let(f"vector.from_elements {', '.join(values)} : {vector}")
    alignment = f"{{alignment = {bytes_of(what, len(values))} : i64}}"
    text.line(f"vector.store {joined}, {target} {alignment} : {what.type}, {vector}")


def store_total(text: Text, nest: Nest, result: int, value: str, loops: Sequence[str]) -> None:
    """Stores a complete element of a result, or the values that the epilogue computes from it."""
    for number, after in enumerate(complete_total(text, nest, result, value, loops)):
        store_completed(text, nest, result + number, (after,), loops)


def complete_total(text: Text, nest: Nest, result: int, value: str, loops: Sequence[str]) -> Sequence[str]:
    """Returns a complete element of a result, or the values that the epilogue computes from it."""
    element = nest.results[result].element
    if nest.prologue is not None:
        (first,) = call_beside(text, nest, nest.prologue, "b", "", loops)
        value = text.let(f"{nest.combines[result]} {value}, {first} : {element}")
    return [value] if nest.epilogue is None else call_beside(text, nest, nest.epilogue, "e", value, loops)


def store_completed(text: Text, nest: Nest, number: int, values: Sequence[str], loops: Sequence[str]) -> None:
    """Stores neighbouring values of a result, or of a result of the epilogue: several by one aligned store."""
    end = nest.epilogue
    if end is None:
        store(text, nest, number, values, loops)
    else:
        store(text, end.nest, number, values, _positions_beside(nest, end, loops), "%em")


def _positions_beside(nest: Nest, beside: Beside, loops: Sequence[str]) -> list[str]:
    own = dict(zip(beside.axes, nest.results[0].plain_axes(), strict=True))
    return [loops[own[loop] or 0] for loop in range(len(beside.nest.parallel))]


def call_beside(text: Text, nest: Nest, beside: Beside, letter: str, value: str, loops: Sequence[str]) -> Sequence[str]:
    """Returns the values that a prologue or an epilogue computes at positions of the loops of the reduction."""
    own, at = beside.nest, _positions_beside(nest, beside, loops)
    elements = [value if n in beside.value else load(text, own, n, at, f"%{letter}m") for n in range(len(own.inputs))]
    for number, operand in enumerate(own.results, len(elements)):
        known = load(text, own, number, at, f"%{letter}m") if operand.used else undefined(text, operand)
        elements.append(known)
    return text.let_many(len(own.results), call_body(own, elements, at, f"%{letter}c"))


def accumulate_results(text: Text, nest: Nest, sizes: Sequence[str], outer: dict[int, str]) -> None:
    """Runs the reduction loops. A result whose index depends on them is written in every iteration."""
    zero, one = text.constant(0), text.constant(1)
    at = [outer.get(loop, zero) for loop in range(len(nest.parallel))]
    total_of = [n for n, result in enumerate(nest.results) if not result.loops() & set(nest.reductions)]
    types = [nest.results[n].element for n in total_of]

    def run_body(totals: Sequence[str]) -> list[str]:
        elements = [load(text, nest, number, at) for number in range(len(nest.inputs))]
        known = dict(zip(total_of, totals, strict=True))
        before = [known[n] if n in known else first_value(text, nest, n, at) for n in range(len(nest.results))]
        after = text.let_many(len(before), call_body(nest, [*elements, *before], at))
        for number, value in enumerate(after):
            if number not in known:
                store(text, nest, number, (value,), at)
        return [after[n] for n in total_of]

    def iterate(left: Sequence[int], totals: Sequence[str]) -> list[str]:
        if not left:
            return run_body(totals)
        loop, *inner = left
        carried, at[loop] = [text.fresh() for _ in types], text.fresh()
        bounds = f"{at[loop]} = {zero} to {sizes[loop]} step {one}"
        with text.loop(bounds, carried, totals, types) as results:
            text.carry(iterate(inner, carried), types)
        return results

    starts = [first_value(text, nest, n, at) for n in total_of]
    for number, value in zip(total_of, iterate(nest.reductions, starts), strict=True):
        store_total(text, nest, number, value, at)


def first_value(text: Text, nest: Nest, result: int, loops: Sequence[str]) -> str:
    """Returns the value that an element of a result begins with; a body that only writes does not read it."""
    operand = nest.results[result]
    if nest.started[result]:
        return f"%s{result}"
    if operand.used:
        return load(text, nest, len(nest.inputs) + result, loops)
    return undefined(text, operand)


def undefined(text: Text, operand: Operand) -> str:
    return text.let(f"llvm.mlir.undef : {operand.element}")
