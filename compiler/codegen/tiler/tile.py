"""Register tiles: a contraction becomes loops around a block of accumulators that stay in vector registers.

The lane loop runs along contiguous memory of the result; the row loop is a parallel loop that some vector operand
does not use, so that its loads are shared by all rows of the tile. What is neither goes outside. Every size may be a
run-time value: rows that are left over run through smaller tiles, lanes through a mask.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from .model import Contraction, Operand


@dataclass(frozen=True, slots=True)
class Machine:
    """What tiles are made for: `lanes` elements of f32 in a vector, and blocks of (rows, vectors) accumulators.

    The first block does the bulk; each of the others takes the rows that those before it leave over, and is the wider
    the fewer rows it has, so that there are always enough sums under way. The last block has one row.
    """

    lanes: int
    blocks: tuple[tuple[int, int], ...]


AVX512 = Machine(lanes=16, blocks=((8, 3), (4, 6), (2, 8), (1, 8)))
AVX2 = Machine(lanes=8, blocks=((4, 3), (2, 4), (1, 6)))


def choose_machine(features: Collection[str]) -> Machine | None:
    """The tile for a CPU with these features of LLVM's; None where products and sums are not fused into one."""
    if "fma" not in features:
        return None
    return AVX512 if "avx512f" in features else AVX2


@dataclass(frozen=True, slots=True)
class Roles:
    """Which loop is which."""

    lane: int
    row: int | None
    outer: tuple[int, ...]
    inner: tuple[int, ...]


def assign_roles(op: Contraction) -> Roles | None:
    """The roles of the loops, or None where no loop can be the lane."""
    outer = [i for i, parallel in enumerate(op.parallel) if parallel]
    inner = tuple(i for i, parallel in enumerate(op.parallel) if not parallel)
    lanes = [i for i in outer if op.result.unit_stride(i)]
    if len(lanes) != 1 or not inner:
        return None
    lane = lanes[0]
    sources = op.operands[:2]
    if not all(o.unit_stride(lane) or not o.depends_on(lane) for o in sources):
        return None
    outer.remove(lane)
    vectors = [o for o in sources if o.depends_on(lane)]
    rows = [i for i in outer if any(not o.depends_on(i) for o in vectors) and _plain(op.result, i)]
    row = rows[-1] if rows and vectors else None
    return Roles(lane, row, tuple(i for i in outer if i != row), inner)


def _plain(operand: Operand, loop: int) -> bool:
    return any(axis == ((loop, 1),) for axis in operand.index)


@dataclass
class _Text:
    """Lines with indentation and fresh names."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1
    count: int = 0

    def add(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def let(self, expression: str) -> str:
        name = self.fresh()
        self.add(f"{name} = {expression}")
        return name


class TileWriter:
    """Writes `func.func private @name(left, right, result)` for one contraction."""

    def __init__(self, op: Contraction, roles: Roles, machine: Machine) -> None:
        self.op, self.roles = op, roles
        self.lanes = machine.lanes if op.element == "f32" else machine.lanes // 2
        self.machine = machine
        self.vector = f"vector<{self.lanes}x{op.element}>"
        self.text = _Text()

    def write(self, name: str) -> str:
        types = [o.type for o in self.op.operands]
        arguments = ", ".join(f"%m{i}: {t}" for i, t in enumerate(types))
        body = self.text
        steps = {self.lanes, *(rows for rows, _ in self.machine.blocks)}
        widths = {self.lanes * vectors for _, vectors in self.machine.blocks}
        for number in sorted({0, 1, *steps, *widths, *(axis for _, axis in self.op.sizes)}):
            body.add(f"%c{number} = arith.constant {number} : index")
        body.add(f"%zero = arith.constant 0.0 : {self.op.element}")
        body.add(f"%pass = vector.broadcast %zero : {self.op.element} to {self.vector}")
        sizes = [body.let(f"memref.dim %m{o}, %c{axis} : {types[o]}") for o, axis in self.op.sizes]
        self._outer(list(self.roles.outer), {}, sizes)
        lines = "\n".join(body.lines)
        return f"func.func private @{name}({arguments}) {{\n{lines}\n  return\n}}\n"

    def _outer(self, rest: list[int], loops: dict[int, str], sizes: Sequence[str]) -> None:
        if rest:
            index = self._begin(f"scf.for {{}} = %c0 to {sizes[rest[0]]} step %c1")
            self._outer(rest[1:], loops | {rest[0]: index}, sizes)
            self._end()
            return
        if self.roles.row is None:
            self._lanes(loops, sizes, None, 1, self.machine.blocks[-1][1])
            return
        start, size = "%c0", sizes[self.roles.row]
        for rows, vectors in self.machine.blocks:
            end = size if rows == 1 else self._rounded(start, size, rows)
            self._lanes(loops, sizes, (start, end), rows, vectors)
            start = end

    def _lanes(
        self, loops: dict[int, str], sizes: Sequence[str], span: tuple[str, str] | None, rows: int, vectors: int
    ) -> None:
        """All lanes for the rows of a span: panels of whole vectors, then single vectors under a mask."""
        lane, width = self.roles.lane, self.lanes * vectors
        full = self._rounded("%c0", sizes[lane], width)
        index = self._begin(f"scf.for {{}} = %c0 to {full} step %c{width}")
        self._rows(loops | {lane: index}, sizes, span, rows, vectors, None)
        self._end()
        index = self._begin(f"scf.for {{}} = {full} to {sizes[lane]} step %c{self.lanes}")
        left = self.text.let(f"arith.subi {sizes[lane]}, {index} : index")
        mask = self.text.let(f"vector.create_mask {left} : vector<{self.lanes}xi1>")
        self._rows(loops | {lane: index}, sizes, span, rows, 1, mask)
        self._end()

    def _begin(self, head: str) -> str:
        index = self.text.fresh()
        self.text.add(head.format(index) + " {")
        self.text.depth += 1
        return index

    def _end(self) -> None:
        self.text.depth -= 1
        self.text.add("}")

    def _rounded(self, start: str, end: str, step: int) -> str:
        """The last point that whole steps from `start` reach without passing `end`."""
        count = self.text.let(f"arith.subi {end}, {start} : index")
        steps = self.text.let(f"arith.divui {count}, %c{step} : index")
        way = self.text.let(f"arith.muli {steps}, %c{step} : index")
        return self.text.let(f"arith.addi {start}, {way} : index")

    def _rows(
        self,
        loops: dict[int, str],
        sizes: Sequence[str],
        span: tuple[str, str] | None,
        rows: int,
        vectors: int,
        mask: str | None,
    ) -> None:
        if span is None or self.roles.row is None:
            self._tile(loops, sizes, rows, vectors, mask)
            return
        index = self._begin(f"scf.for {{}} = {span[0]} to {span[1]} step %c{rows}")
        self._tile(loops | {self.roles.row: index}, sizes, rows, vectors, mask)
        self._end()

    def _address(self, operand: Operand, loops: dict[int, str], row: int, vector: int) -> str:
        """The indices of an element, `row` rows and `vector` vectors from where the tile starts."""
        texts = []
        for axis, offset in zip(operand.index, operand.offsets, strict=True):
            shift = offset
            for loop, factor in axis:
                shift += factor * (row if loop == self.roles.row else 0)
                shift += factor * (vector * self.lanes if loop == self.roles.lane else 0)
            dims = ", ".join(f"d{i}" for i in range(len(axis)))
            form = " + ".join([*(f"d{i} * {factor}" for i, (_, factor) in enumerate(axis)), str(shift)])
            values = ", ".join(loops[loop] for loop, _ in axis)
            texts.append(self.text.let(f"affine.apply affine_map<({dims}) -> ({form})>({values})"))
        return "[" + ", ".join(texts) + "]"

    def _load(self, number: int, loops: dict[int, str], row: int, vector: int, mask: str | None) -> str:
        operand = self.op.operands[number]
        place = f"%m{number}{self._address(operand, loops, row, vector)}"
        if not operand.depends_on(self.roles.lane):
            scalar = self.text.let(f"memref.load {place} : {operand.type}")
            return self.text.let(f"vector.broadcast {scalar} : {self.op.element} to {self.vector}")
        if mask is None:
            return self.text.let(f"vector.load {place} : {operand.type}, {self.vector}")
        masks = f"vector<{self.lanes}xi1>"
        return self.text.let(
            f"vector.maskedload {place}, {mask}, %pass : {operand.type}, {masks}, {self.vector} into {self.vector}"
        )

    def _tile(self, loops: dict[int, str], sizes: Sequence[str], rows: int, vectors: int, mask: str | None) -> None:
        cells = [(r, v) for r in range(rows) for v in range(vectors)]
        start = [self._load(2, loops, r, v, mask) for r, v in cells]
        totals = self._sum(list(self.roles.inner), loops, sizes, cells, start, mask)
        for (r, v), total in zip(cells, totals, strict=True):
            place = f"%m2{self._address(self.op.result, loops, r, v)}"
            if mask is None:
                self.text.add(f"vector.store {total}, {place} : {self.op.result.type}, {self.vector}")
            else:
                masks = f"vector<{self.lanes}xi1>"
                self.text.add(
                    f"vector.maskedstore {place}, {mask}, {total} : {self.op.result.type}, {masks}, {self.vector}"
                )

    def _sum(
        self,
        rest: list[int],
        loops: dict[int, str],
        sizes: Sequence[str],
        cells: Sequence[tuple[int, int]],
        totals: Sequence[str],
        mask: str | None,
    ) -> list[str]:
        if not rest:
            return self._multiply_add(loops, cells, totals, mask)
        carried = [self.text.fresh() for _ in totals]
        results = self.text.fresh()
        index = self.text.fresh()
        initial = ", ".join(f"{c} = {t}" for c, t in zip(carried, totals, strict=True))
        types = ", ".join([self.vector] * len(totals))
        count = f":{len(totals)}" if len(totals) > 1 else ""
        loop = f"scf.for {index} = %c0 to {sizes[rest[0]]} step %c1"
        self.text.add(f"{results}{count} = {loop} iter_args({initial}) -> ({types}) {{")
        self.text.depth += 1
        sums = self._sum(rest[1:], loops | {rest[0]: index}, sizes, cells, carried, mask)
        self.text.add(f"scf.yield {', '.join(sums)} : {types}")
        self._end()
        return [f"{results}#{i}" for i in range(len(totals))] if count else [results]

    def _multiply_add(
        self, loops: dict[int, str], cells: Sequence[tuple[int, int]], totals: Sequence[str], mask: str | None
    ) -> list[str]:
        loaded: dict[tuple[int, int, int], str] = {}

        def load(number: int, row: int, vector: int) -> str:
            operand = self.op.operands[number]
            own_row = row if self.roles.row is not None and operand.depends_on(self.roles.row) else 0
            own_vector = vector if operand.depends_on(self.roles.lane) else 0
            key = (number, own_row, own_vector)
            if key not in loaded:
                loaded[key] = self._load(number, loops, own_row, own_vector, mask)
            return loaded[key]

        # What all rows share is loaded first, so that the loads are under way while rows are broadcast.
        for number in (0, 1):
            if self.op.operands[number].depends_on(self.roles.lane):
                for _, v in [c for c in cells if c[0] == 0]:
                    load(number, 0, v)
        return [
            self.text.let(f"vector.fma {load(0, r, v)}, {load(1, r, v)}, {total} : {self.vector}")
            for (r, v), total in zip(cells, totals, strict=True)
        ]
