"""The schedule of products of a few rows with a matrix, which is read once, by 8 or 16 bytes.

Products of several rows with a matrix of 16-bit elements have that of `tensor_cores` instead.

    z[b, m, n] += x[b, m, k] * w[b, k, n]    rows m: all in each thread, 16 at most     columns n: contiguous
    z[b, n] += x[b, k] * w[b, k, n]          one row

A block of 256 threads computes 8 groups of neighbouring columns, as many in a group as are read together. 32 slices
share the depth:

    group g, slice s:   for k = s, s + 32, ...:  a part of w[k]; x[m, k] of each row; sums of each row and column
    the 4 slices of a warp are combined by exchanges in registers, the 8 warps in shared memory, in a fixed order

Several blocks share a depth that is known in a call only: see `part_ranges`.
"""

from __future__ import annotations

from collections.abc import Sequence

from .nest import Nest, arguments_of, call_body
from .part_ranges import divide_nest, number_results, store_part, take_part
from .plain import THREADS, load, split_number, store_total, write_sizes
from .rows import WARP, neutral_of
from .text import Text

GROUPS = 8
SLICES = THREADS // GROUPS
_WARPS = THREADS // WARP
_MOST_SUMS = 64
"""The sums of a thread that stay in registers."""
_FEW_SUMS = 32
"""The sums of a thread for which 80 registers suffice."""
_LEAST_BYTES, _MOST_BYTES = 8, 16
_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i8": 1}


def fits_few_rows(nest: Nest) -> bool:
    """Returns whether an op is such a product: its sizes are static, except the depth."""
    if len(nest.inputs) != 2 or len(nest.results) != 1 or len(nest.reductions) != 1 or nest.started != (True,):
        return False
    (_, w), (result,), (depth,) = nest.inputs, nest.results, nest.reductions
    if neutral_of(nest.combines[0], result.element) is None or not all(o.in_memory for o in nest.operands):
        return False
    axes = w.plain_axes()
    if w.element not in _BYTES or len(axes) < 2 or axes[-2] != depth or not set(axes) - {depth} <= set(nest.outer):
        return False
    column, rows = _column(nest), _rows(nest)
    columns = nest.static_extent(column)
    if "strided" in w.type or column in nest.inputs[0].loops() or not columns:
        return False
    if any(nest.static_extent(loop) is None for loop in rows):
        return False
    return _count(nest) * _width(nest) <= _MOST_SUMS and columns % _width(nest) == 0


def fits_tensor_cores(nest: Nest) -> bool:
    """Returns whether tensor cores can transpose the elements of the matrix, and there is more than one row."""
    return _BYTES[nest.inputs[1].element] == 2 and _count(nest) > 1


def _column(nest: Nest) -> int:
    column = nest.inputs[1].plain_axes()[-1]
    assert column is not None
    return column


def _batch(nest: Nest) -> list[int]:
    """Returns the loops over several matrices."""
    return [loop for loop in nest.outer if loop != _column(nest) and loop in nest.inputs[1].loops()]


def _rows(nest: Nest) -> list[int]:
    return [loop for loop in nest.outer if loop not in nest.inputs[1].loops()]


def _count(nest: Nest) -> int:
    """Returns the number of rows."""
    count = 1
    for loop in _rows(nest):
        count *= nest.static_extent(loop) or 1
    return count


def _width(nest: Nest) -> int:
    """Returns the neighbouring columns of a thread: fewer where there are many rows, or where parts of rows would not
    be aligned."""
    bytes, columns = _BYTES[nest.inputs[1].element], nest.static_extent(_column(nest)) or 0
    width = _MOST_BYTES // bytes
    while (width * _count(nest) > _MOST_SUMS or columns % width) and width * bytes > _LEAST_BYTES:
        width //= 2
    return width


def blocks_at_once(nest: Nest) -> int:
    """Returns the least number of blocks of a processor. By default, ptxas limits the registers of a thread so that
    three blocks fit; with many sums and the elements that a step reads, they do not suffice."""
    return 2 if _count(nest) * _width(nest) > _FEW_SUMS else 0


def write_few_rows(nest: Nest) -> str:
    """Returns the text of the schedule: the function of the threads, and the one that counts the blocks."""
    return _Writer(nest).write() + _write_count(nest)


def _write_count(nest: Nest) -> str:
    text = Text()
    sizes = write_sizes(text, nest)
    batches, columns = _blocks(text, nest, sizes)
    if nest.parts is not None:
        batches = text.multiply(batches, divide_nest(text, nest, sizes)[2].parts)
    arguments = ", ".join(f"%m{number}: {operand.type}" for number, operand in enumerate(nest.operands))
    blocks = text.multiply(batches, columns)
    return text.function(f"@{nest.name}_count({arguments}) -> index", [blocks], ["index"])


def _blocks(text: Text, nest: Nest, sizes: Sequence[str]) -> tuple[str, str]:
    """Returns the numbers of matrices, and of blocks along their columns."""
    batches = text.multiply(text.constant(1), *(sizes[loop] for loop in _batch(nest)))
    return batches, text.index("ceildivui", sizes[_column(nest)], text.constant(GROUPS * _width(nest)))


class _Writer:
    """The writer of the threads' function. A row is a number, split by the sizes of its loops."""

    def __init__(self, nest: Nest) -> None:
        self.nest, self.text, self.column, self.rows = nest, Text(), _column(nest), _rows(nest)
        self.width, self.count = _width(nest), _count(nest)
        self.bytes = self.width * _BYTES[nest.inputs[1].element]
        self.sizes = write_sizes(self.text, nest)
        self.element, self.combine = nest.results[0].element, str(nest.combines[0])
        self.tile = f"memref<{_WARPS}x{self.count}x{GROUPS * self.width}x{self.element}, 3>"

    def write(self) -> str:
        text, nest = self.text, self.nest
        block, thread = text.special("ctaid.x"), text.special("tid.x")
        group, part = (text.index(name, thread, text.constant(GROUPS)) for name in ("remui", "divui"))
        batches, columns = _blocks(text, nest, self.sizes)
        zero, depth = text.constant(0), self.sizes[nest.reductions[0]]
        self.begin, self.end, self.is_first, self.part = zero, depth, "", zero
        if nest.parts is not None:
            *_, self.division = divide_nest(text, nest, self.sizes)
            blocks = text.multiply(batches, columns)
            self.part, block = (text.index(name, block, blocks) for name in ("divui", "remui"))
            taken = take_part(text, self.division, (block, block, self.part), blocks, depth)
            self.begin, self.end, self.is_first, self.is_whole = taken.begin, taken.end, taken.is_first, taken.is_whole
        batch = _batch(nest)
        positions = split_number(text, text.index("divui", block, columns), [self.sizes[loop] for loop in batch])
        self.at = dict(zip(batch, positions, strict=True))
        begin = text.multiply(text.index("remui", block, columns), text.constant(GROUPS * self.width))
        own = text.multiply(group, text.constant(self.width))
        totals = self._sum(part, text.add(begin, own))
        distance = GROUPS
        while distance < WARP:
            others = [text.exchange(value, self.element, distance) for value in totals]
            totals = [self._add(value, other) for value, other in zip(totals, others, strict=True)]
            distance *= 2
        self.memory = text.let(f"memref.get_global @{nest.name}_totals : {self.tile}")
        warp, lane = (text.index(name, thread, text.constant(WARP)) for name in ("divui", "remui"))
        with text.block(f"scf.if {text.below(lane, text.constant(GROUPS))}"):
            for number, value in enumerate(totals):
                row, position = divmod(number, self.width)
                column = text.add(own, text.constant(position))
                text.line(f"memref.store {value}, {self.memory}[{warp}, {text.constant(row)}, {column}] : {self.tile}")
        text.barrier()
        self._store(thread, begin)
        arguments = ", ".join(f"{name}: {type}" for name, type in arguments_of(nest))
        memory = f'memref.global "private" @{nest.name}_totals : {self.tile} = uninitialized\n'
        return memory + text.function(f"@{nest.name}({arguments})")

    def _add(self, left: str, right: str) -> str:
        return self.text.let(f"{self.combine} {left}, {right} : {self.element}")

    def _positions(self, row: str, column: str, depth: str) -> list[str]:
        positions = split_number(self.text, row, [self.sizes[loop] for loop in self.rows])
        own = {self.column: column, self.nest.reductions[0]: depth}
        known = self.at | dict(zip(self.rows, positions, strict=True)) | own
        return [known[loop] for loop in range(len(self.nest.parallel))]

    def _sum(self, part: str, column: str) -> list[str]:
        """Sums the elements of a slice. A group after the last column has none."""
        text, nest = self.text, self.nest
        zero = text.constant(0)
        neutral = text.let(f"arith.constant {neutral_of(self.combine, self.element)} : {self.element}")
        first = text.let(f"arith.cmpi eq, {part}, {zero} : index")
        if self.is_first:
            first = text.let(f"arith.andi {first}, {self.is_first} : i1")
        start = text.let(f"arith.select {first}, %s0, {neutral} : {self.element}")
        inside = text.below(column, self.sizes[self.column])
        limit = text.let(f"arith.select {inside}, {self.end}, {zero} : index")
        types = [self.element] * (self.count * self.width)
        carried, depth, sums = [text.fresh() for _ in types], text.fresh(), []
        aligned = self._is_aligned()
        bounds = f"{depth} = {text.add(self.begin, part)} to {limit} step {text.constant(SLICES)}"
        with text.loop(bounds, carried, [start] * len(types), types) as totals:
            weights = self._read(column, depth, aligned)
            for row in range(self.count):
                at = self._positions(text.constant(row), column, depth)
                x = load(text, nest, 0, at)
                for position, w in enumerate(weights):
                    at[self.column] = text.add(column, text.constant(position))
                    before = carried[row * self.width + position]
                    sums.append(text.let(call_body(nest, [x, w, before], at)))
            text.carry(sums, types)
        return totals

    def _is_aligned(self) -> str:
        text, type = self.text, self.nest.inputs[1].type
        address = text.let(f"memref.extract_aligned_pointer_as_index %m1 : {type} -> index")
        rest = text.index("andi", address, text.constant(self.bytes - 1))
        return text.let(f"arith.cmpi eq, {rest}, {text.constant(0)} : index")

    def _read(self, column: str, depth: str, aligned: str) -> Sequence[str]:
        """Returns neighbouring elements of the matrix: by one load, or one by one."""
        text, w, at = self.text, self.nest.inputs[1], self._positions(self.text.constant(0), column, depth)
        vector, found = f"vector<{self.width}x{w.element}>", text.fresh()
        with text.block(f"{found} = scf.if {aligned} -> ({vector})", "} else {"):
            position = ", ".join(text.apply(expression, at) for expression in w.index)
            loaded = text.let(f"vector.load %m1[{position}] {{alignment = {self.bytes} : i64}} : {w.type}, {vector}")
            text.carry([loaded], [vector])
        with text.next_region():
            single = []
            for number in range(self.width):
                at[self.column] = text.add(column, text.constant(number))
                single.append(load(text, self.nest, 1, at))
            text.carry([text.let(f"vector.from_elements {', '.join(single)} : {vector}")], [vector])
        return [text.let(f"vector.extract {found}[{n}] : {w.element} from {vector}") for n in range(self.width)]

    def _store(self, thread: str, begin: str) -> None:
        """Combines the totals of the warps, in the same order for each element, and stores them."""
        text, wide, number = self.text, GROUPS * self.width, self.text.fresh()
        bounds = f"{number} = {thread} to {text.constant(self.count * wide)} step {text.constant(THREADS)}"
        with text.loop(bounds, [], [], []):
            position, row = (text.index(name, number, text.constant(wide)) for name in ("remui", "divui"))
            column = text.add(begin, position)
            with text.block(f"scf.if {text.below(column, self.sizes[self.column])}"):
                parts = [
                    text.let(f"memref.load {self.memory}[{text.constant(n)}, {row}, {position}] : {self.tile}")
                    for n in range(_WARPS)
                ]
                total = parts[0]
                for part in parts[1:]:
                    total = self._add(total, part)
                self._store_total(total, self._positions(row, column, text.constant(0)))

    def _store_total(self, total: str, positions: Sequence[str]) -> None:
        text, nest = self.text, self.nest
        if nest.parts is None:
            store_total(text, nest, 0, total, positions)
            return
        with text.block(f"scf.if {self.is_whole}", "} else {"):
            store_total(text, nest, 0, total, positions)
        with text.next_region():
            number = number_results(text, nest, self.sizes, positions)
            store_part(text, nest, text.add(text.multiply(number, self.division.parts), self.part), total)
