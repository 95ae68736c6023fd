"""The schedule of contractions: blocks of results in registers, operands in shared memory.

The inputs of a contraction have two sides. Its loops fall into four groups by the sides that depend on them, and each
group is one number, split by sizes where it is used. A convolution is a contraction too: its windows are part of an
index. A side may have several inputs, such as quantized values of 4 bits and their scales, which the body decodes in
registers.

    z[b, m, n] += x[b, m, k] * w[k, n]    rows m: x alone    columns n: w alone    depth k: reduced    batch: others

A block of 256 threads computes ROWS x COLUMNS results, each thread 4 x 4 of them:

    for every DEPTH of k:  copy x[rows, DEPTH] and w[DEPTH, columns] to shared memory, zeros outside; wait
                           each thread: for k: 4 elements of x, 4 of w, 16 calls of the body; wait

The last step has only as many iterations as are left, so that zeros never enter a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ....dialect.lazy_dataclass import dataclass
from .nest import Nest, arguments_of, call_body
from .plain import load_element, split_number, store_total, write_sizes
from .text import Text

ROWS = COLUMNS = 64
DEPTH = 16
SIDE = 4
"""The results of a thread along each side."""
THREADS = ROWS * COLUMNS // SIDE**2
_BYTES = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i16": 2, "i8": 1}
_MOST_BYTES = 32
"""The bytes of all inputs at one position, so that tiles fit the shared memory of a block."""
FEWEST = 16
"""The fewest elements of a side: with fewer, most threads would have no work."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The loops of a contraction; `rows` belong to the first side, `columns` to the second one. `sides` has the side of
    each input, 0 or 1."""

    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    depth: tuple[int, ...]
    sides: tuple[int, ...]


def find_groups(nest: Nest, fewest_rows: int = FEWEST) -> Groups | None:
    """Returns the groups of the loops; None if the nest is not a contraction or is too small."""
    if len(nest.inputs) < 2 or len(nest.results) != 1 or not nest.reductions or nest.started != (True,):
        return None
    if nest.combines[0] is None or not all(o.in_memory and o.element in _BYTES for o in nest.operands):
        return None
    sides = _find_sides(nest)
    if sides is None or nest.results[0].loops() & set(nest.reductions):
        return None
    loops = [{loop for n, o in enumerate(nest.inputs) if sides[n] == side for loop in o.loops()} for side in range(2)]
    rows, columns = (tuple(n for n in nest.outer if n in own - other) for own, other in (loops, loops[::-1]))
    batch = tuple(n for n in nest.outer if n not in rows + columns)
    shared = {n for n in nest.reductions if n in loops[0] & loops[1]}
    small = _static(nest, rows, fewest_rows) or _static(nest, columns, FEWEST) or _static(nest, nest.reductions, 4)
    if not shared or small or sum(_BYTES[o.element] for o in nest.inputs) > _MOST_BYTES:
        return None
    return Groups(batch, rows, columns, nest.reductions, sides)


def _find_sides(nest: Nest) -> tuple[int, ...] | None:
    """Returns the side of each input. Inputs of one side depend on the same parallel loops, the others on none of
    them, except for loops that all inputs depend on."""
    own = [frozenset(operand.loops()) & set(nest.outer) for operand in nest.inputs]
    common = frozenset.intersection(*own)
    kinds = dict.fromkeys(loops - common for loops in own)
    if len(kinds) != 2 or not all(kinds) or frozenset.intersection(*kinds):
        return None
    return tuple(list(kinds).index(loops - common) for loops in own)


def _static(nest: Nest, loops: Sequence[int], least: int) -> bool:
    """Returns whether loops together have fewer than `least` iterations in every call."""
    total = nest.static_count(loops)
    return total is not None and total < least


def blocks_at_once(nest: Nest, groups: Groups) -> int:
    """Returns the least number of blocks of a processor. By default, ptxas limits the registers of a thread so that
    four blocks fit. Products of i64 need more, and so do indices of several loops and the addresses of columns along
    which memory is not contiguous."""
    if nest.results[0].element == "i64" or any(len(loops) > 1 for loops in (groups.rows, groups.columns, groups.depth)):
        return 2
    columns = [operand for operand, side in zip(nest.inputs, groups.sides, strict=True) if side == 1]
    return 2 if any(operand.plain_axes()[-1] != groups.columns[0] for operand in columns) else 0


def write_contraction(nest: Nest, groups: Groups, has_other: Callable[[Text, Sequence[str]], str] | None = None) -> str:
    """Returns the text of the schedule: the function of the threads, and the one that counts the blocks. There are none
    in calls that have another schedule, by the sizes of the loops."""
    text = Text()
    sizes = write_sizes(text, nest)
    blocks = text.multiply(*_grid(text, nest, groups, sizes))
    if has_other is not None:
        blocks = text.let(f"arith.select {has_other(text, sizes)}, {text.constant(0)}, {blocks} : index")
    arguments = ", ".join(f"%m{number}: {operand.type}" for number, operand in enumerate(nest.operands))
    count = text.function(f"@{nest.name}_count({arguments}) -> index", [blocks], ["index"])
    return ContractionWriter(nest, groups).write() + count


def _product(text: Text, sizes: Sequence[str], loops: Sequence[int]) -> str:
    return text.multiply(text.constant(1), *(sizes[loop] for loop in loops))


def _grid(text: Text, nest: Nest, groups: Groups, sizes: Sequence[str]) -> tuple[str, str, str]:
    """Returns the numbers of batches, and of blocks along the rows and the columns."""
    rows, columns = (
        text.index("ceildivui", _product(text, sizes, loops), text.constant(tile))
        for loops, tile in ((groups.rows, ROWS), (groups.columns, COLUMNS))
    )
    return _product(text, sizes, groups.batch), rows, columns


class ContractionWriter:
    """The writer of the threads' function. `at` maps loops to their positions; `tiles` are the copies of the inputs,
    each as [k, row] or [k, column]."""

    def __init__(self, nest: Nest, groups: Groups) -> None:
        self.nest, self.groups, self.text = nest, groups, Text()
        self.at: dict[int, str] = {}
        self.element = nest.results[0].element
        self.tiles = [self.tile_type(number) for number in range(len(nest.inputs))]

    def tile_type(self, number: int) -> str:
        """Returns the type of the copy of an input; elements after each row spread the columns over the banks."""
        return (
            f"memref<{DEPTH}x{(ROWS, COLUMNS)[self.groups.sides[number]] + SIDE}x{self.nest.inputs[number].element}, 3>"
        )

    def tile_index(self, k: str, side: str) -> str:
        """Returns the index of an element of a copy."""
        return f"{k}, {side}"

    def own_offsets(self) -> list[str]:
        """Returns the first row and column of the thread in the block."""
        text = self.text
        side = text.constant(COLUMNS // SIDE)
        own = [text.index(operation, self.thread, side) for operation in ("divui", "remui")]
        return [text.multiply(number, text.constant(SIDE)) for number in own]

    def write(self) -> str:
        text, nest, groups = self.text, self.nest, self.groups
        self.sizes = write_sizes(text, nest)
        batches, _, columns = _grid(text, nest, groups, self.sizes)
        self.total = {loops: _product(text, self.sizes, loops) for loops in (groups.rows, groups.columns, groups.depth)}
        block, self.thread = text.special("ctaid.x"), text.special("tid.x")
        column = text.index("remui", block, columns)
        rest = text.index("divui", block, columns)
        row, batch = text.index("divui", rest, batches), text.index("remui", rest, batches)
        self._place(groups.batch, batch)
        first = [text.multiply(row, text.constant(ROWS)), text.multiply(column, text.constant(COLUMNS))]
        self.shared = [
            text.let(f"memref.get_global @{nest.name}_tile{n} : {type}") for n, type in enumerate(self.tiles)
        ]
        own = self.own_offsets()
        totals = self.run_steps(first, own)
        self.store_totals(first, own, totals)
        arguments = ", ".join(f"{name}: {type}" for name, type in arguments_of(nest))
        globals = [
            f'memref.global "private" @{nest.name}_tile{n} : {type} = uninitialized {{alignment = 16 : i64}}\n'
            for n, type in enumerate(self.tiles)
        ]
        return "".join(globals) + text.function(f"@{nest.name}({arguments})")

    def _place(self, loops: Sequence[int], number: str) -> None:
        positions = split_number(self.text, number, [self.sizes[loop] for loop in loops])
        self.at.update(zip(loops, positions, strict=True))

    def positions(self) -> list[str]:
        zero = self.text.constant(0)
        return [self.at.get(loop, zero) for loop in range(len(self.nest.parallel))]

    def run_steps(self, first: Sequence[str], own: Sequence[str]) -> list[str]:
        text, groups = self.text, self.groups
        zero, one, step, depth = text.constant(0), text.constant(1), text.constant(DEPTH), self.total[groups.depth]
        count = SIDE * SIDE
        types = [self.element] * count
        outer, inner = ([text.fresh() for _ in types] for _ in range(2))
        begin, k = text.fresh(), text.fresh()
        with text.loop(f"{begin} = {zero} to {depth} step {step}", outer, ["%s0"] * count, types) as totals:
            for number, side in enumerate(groups.sides):
                self.copy(number, first[side], begin)
            text.barrier()
            left = text.let(f"arith.subi {depth}, {begin} : index")
            bound = text.index("minui", left, self._most_steps())
            with text.loop(f"{k} = {zero} to {bound} step {one}", inner, outer, types) as sums:
                values = [self._read(number, k, own[side]) for number, side in enumerate(groups.sides)]
                self._place(groups.depth, text.add(begin, k))
                text.carry(self._multiply(values, inner, first, own), types)
            text.barrier()
            text.carry(sums, types)
        return totals

    def _most_steps(self) -> str:
        """Returns the most iterations of one step. Where they are the same in every call, ptxas would write out all of
        them and read their elements long before they are used, with registers in memory. It does not know the threads
        of a block, from which the number is computed then."""
        count = self.nest.static_count(self.groups.depth)
        if count is None or count > DEPTH:
            return self.text.constant(DEPTH)
        return self.text.index("divui", self.text.special("ntid.x"), self.text.constant(THREADS // DEPTH))

    def copy(self, number: int, first: str, begin: str) -> None:
        """Copies the elements of one step of an input to shared memory; neighbouring threads read along the axis that
        is contiguous in memory."""
        text, operand = self.text, self.nest.inputs[number]
        loops, width = ((self.groups.rows, ROWS), (self.groups.columns, COLUMNS))[self.groups.sides[number]]
        along_depth = operand.plain_axes()[-1] in self.groups.depth
        inner = text.constant(DEPTH if along_depth else width)
        for part in range(width * DEPTH // THREADS):
            offset = text.add(self.thread, text.constant(part * THREADS))
            fast, slow = text.index("remui", offset, inner), text.index("divui", offset, inner)
            k, side = (fast, slow) if along_depth else (slow, fast)
            here, deep = text.add(first, side), text.add(begin, k)
            known = [text.below(here, self.total[loops]), text.below(deep, self.total[self.groups.depth])]
            inside = text.let(f"arith.andi {known[0]}, {known[1]} : i1")
            value = text.fresh()
            with text.block(f"{value} = scf.if {inside} -> ({operand.element})", "} else {"):
                self._place(loops, here)
                self._place(self.groups.depth, deep)
                read = load_element(text, operand, f"%m{number}", self.positions())
                text.carry([read], [operand.element])
            with text.next_region():
                zero = "0" if operand.element.startswith("i") else "0.0"
                text.carry([text.let(f"arith.constant {zero} : {operand.element}")], [operand.element])
            text.line(f"memref.store {value}, {self.shared[number]}[{self.tile_index(k, side)}] : {self.tiles[number]}")

    def _read(self, number: int, k: str, first: str) -> list[str]:
        text = self.text
        offsets = [text.add(first, text.constant(i)) for i in range(SIDE)]
        return [text.let(f"memref.load {self.shared[number]}[{k}, {p}] : {self.tiles[number]}") for p in offsets]

    def _multiply(
        self, values: Sequence[Sequence[str]], sums: Sequence[str], first: Sequence[str], own: Sequence[str]
    ) -> list[str]:
        text, made = self.text, []
        for i in range(SIDE):
            self._place(self.groups.rows, self._number(first[0], own[0], i))
            for j in range(SIDE):
                self._place(self.groups.columns, self._number(first[1], own[1], j))
                elements = [each[(i, j)[side]] for each, side in zip(values, self.groups.sides, strict=True)]
                call = call_body(self.nest, [*elements, sums[i * SIDE + j]], self.positions())
                made.append(text.let(call))
        return made

    def _number(self, first: str, own: str, step: int) -> str:
        return self.text.add(self.text.add(first, own), self.text.constant(step))

    def store_totals(self, first: Sequence[str], own: Sequence[str], totals: Sequence[str]) -> None:
        for i in range(SIDE):
            for j in range(SIDE):
                with self.inside(self._number(first[0], own[0], i), self._number(first[1], own[1], j)):
                    store_total(self.text, self.nest, 0, totals[i * SIDE + j], self.positions())

    @contextmanager
    def inside(self, row: str, column: str) -> Iterator[None]:
        """Writes a branch for threads whose row and column exist."""
        text, groups = self.text, self.groups
        known = [text.below(row, self.total[groups.rows]), text.below(column, self.total[groups.columns])]
        with text.block(f"scf.if {text.let(f'arith.andi {known[0]}, {known[1]} : i1')}"):
            self._place(groups.rows, row)
            self._place(groups.columns, column)
            yield
