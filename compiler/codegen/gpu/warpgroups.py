"""The schedule of contractions on Hopper, for f16 and bf16: a warpgroup begins copies, two others multiply.

A block computes ROWS x COLUMNS results. Its tiles, 64 deep, pass through STAGES buffers in shared memory. Each buffer
has two barriers: `full` ends a phase when the copies into it have arrived, `empty` when all warps have used them.

    producer, a thread            wait for empty; announce the bytes to full; begin to copy x and w
    consumers, 64 rows each       wait for full; begin 4 products of depth 16; wait for those of the step before; each
                                  warp arrives at empty of that step's buffer

The device copies tiles by tensor maps, which put zeros beyond the ends of the operands. Rows and columns are one loop
each; outer loops of their groups are batch axes. If the tensors of a call cannot have maps, or are smaller than a tile,
this schedule launches no blocks, and the launch of `tensor_cores` that follows it computes the results.

Where `grids` finds a gain, blocks are persistent: there are no more of them than run at once, and each loops over
tiles. The buffers and their phases go on from one tile to the next, so that the producer copies the first steps of a
tile while the consumers store the results of the one before:

    copies      0 0 0 0 2 2 2 2   4 4 4 4              the tile of each step, in the first one of two blocks
    products      0 0 0 0     2 2 2 2     4 4 4 4
    stores                0           2           4
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ....dialect.lazy_dataclass import dataclass
from ...targets.chips import CHIPS
from .contraction import Groups
from .grids import TileWork, gains_from_persistence
from .mma import product_of
from .nest import Nest, arguments_of
from .pairs import find_pairs
from .plain import split_number, write_sizes
from .text import Text
from .tile_maps import BYTES, CHUNK, TileMap, all_of, can_have_map
from .tile_order import find_tile
from .warpgroup_mma import (
    DEPTH,
    ROW_BYTES,
    address_of_map,
    announce,
    arrive,
    begin_products,
    copy_tile,
    create_barrier,
    depth_step,
    describe_tile,
    end_products,
    group_products,
    multiply_tiles,
    publish_barriers,
    share_registers,
    wait_for,
    word,
)
from .warpgroup_mma import ROWS as _WARPGROUP_ROWS

CHIP = CHIPS["h100"]
"""The chip whose figures decide about the grid."""
THREADS = 384
BLOCKS_AT_ONCE = 1
"""The blocks of a processor, whose tiles fill its shared memory."""
ROWS = 2 * _WARPGROUP_ROWS
_STAGE_BYTES = 192 << 10
"""The bytes of the tiles of all stages."""
_FEWEST = 64
"""The least size of a side: a smaller one would leave most of a tile empty."""
_CONSUMING_WARPS = 8
_REGISTERS = {"dec": 40, "inc": 232}
"""The registers of a thread that copies, and of one that multiplies."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The loops of a contraction: one for the rows, the columns and the depth each, the others are the batch."""

    batch: tuple[int, ...]
    row: int
    column: int
    depth: int
    columns: int
    maps: tuple[TileMap, TileMap]
    persistent: bool

    @property
    def stages(self) -> int:
        return _STAGE_BYTES // self.stage_bytes

    @property
    def stage_bytes(self) -> int:
        return sum(map.boxes * map.box_bytes for map in self.maps)


def _plan(nest: Nest, groups: Groups) -> _Plan | None:
    if len(groups.depth) != 1 or groups.sides != (0, 1) or nest.inputs[0].element not in ("f16", "bf16"):
        return None
    row, column, (depth,) = groups.rows[-1], groups.columns[-1], groups.depth
    small = [nest.static_extent(loop) for loop in (row, column, depth)]
    if any(size is not None and size < _FEWEST for size in small):
        return None
    if not all(can_have_map(nest, number, side, depth) for number, side in enumerate((row, column))):
        return None
    wide = nest.static_extent(column)
    columns = 256 if wide is not None and wide % 256 == 0 and wide >= 1024 else 128
    maps = (TileMap("%m0", nest.inputs[0], row, depth, ROWS), TileMap("%m1", nest.inputs[1], column, depth, columns))
    batch = tuple(loop for loop in (*groups.batch, *groups.rows, *groups.columns) if loop not in (row, column))
    return _Plan(batch, row, column, depth, columns, maps, _is_persistent(nest, batch, row, column, depth, columns))


def _is_persistent(nest: Nest, batch: Sequence[int], row: int, column: int, depth: int, columns: int) -> bool:
    """Returns whether the blocks of a plan gain from looping over tiles."""
    batches, height, width = nest.static_count(batch), nest.static_extent(row), nest.static_extent(column)
    tiles = None
    if batches is not None and height is not None and width is not None:
        tiles = batches * -(-height // ROWS) * -(-width // columns)
    work = TileWork(ROWS, columns, nest.static_extent(depth), nest.inputs[0].element, BYTES, BYTES)
    return gains_from_persistence(work, CHIP, BLOCKS_AT_ONCE, tiles)


def is_persistent(nest: Nest, groups: Groups) -> bool:
    """Returns whether this schedule launches persistent blocks for a nest that has it."""
    plan = _plan(nest, groups)
    assert plan is not None, nest.name
    return plan.persistent


def fits_warpgroups(nest: Nest, groups: Groups | None) -> bool:
    """Returns whether a nest has this schedule."""
    return groups is not None and product_of(nest, tf32=False) is not None and _plan(nest, groups) is not None


def write_warpgroups(nest: Nest, groups: Groups) -> str:
    """Returns the text of the schedule: the device function, the function that counts its blocks, and `NAME_tiles`.

    `NAME_tiles` returns the numbers of the tensor maps.
    """
    plan = _plan(nest, groups)
    assert plan is not None, nest.name
    return _Writer(nest, plan).write() + _write_count(nest, plan) + _write_maps(nest, plan)


def fits_call(text: Text, nest: Nest, groups: Groups) -> str:
    """Returns whether a call's tensors have maps, and are large enough."""
    plan = _plan(nest, groups)
    assert plan is not None, nest.name
    return _fits(text, plan, write_sizes(text, nest))


def _fits(text: Text, plan: _Plan, sizes: Sequence[str]) -> str:
    large = [text.below(text.constant(_FEWEST - 1), sizes[loop]) for loop in (plan.row, plan.column)]
    return all_of(text, [*large, *(map.fits(text) for map in plan.maps)])


def _arguments(nest: Nest) -> str:
    return ", ".join(f"%m{number}: {operand.type}" for number, operand in enumerate(nest.operands))


def _grid(text: Text, plan: _Plan, sizes: Sequence[str]) -> tuple[str, str, str]:
    """Returns the numbers of batches, and of blocks along the rows and the columns."""
    rows, columns = (
        text.index("ceildivui", sizes[loop], text.constant(tile))
        for loop, tile in ((plan.row, ROWS), (plan.column, plan.columns))
    )
    return text.multiply(text.constant(1), *(sizes[loop] for loop in plan.batch)), rows, columns


def _write_count(nest: Nest, plan: _Plan) -> str:
    text = Text()
    sizes = write_sizes(text, nest)
    blocks = text.multiply(*_grid(text, plan, sizes))
    count = text.let(f"arith.select {_fits(text, plan, sizes)}, {blocks}, {text.constant(0)} : index")
    return text.function(f"@{nest.name}_count({_arguments(nest)}) -> index", [count], ["index"])


def _write_maps(nest: Nest, plan: _Plan) -> str:
    text = Text()
    words = [each for map in plan.maps for each in map.words(text)]
    types = ["index"] * len(words)
    return text.function(f"@{nest.name}_tiles({_arguments(nest)}) -> ({', '.join(types)})", words, types)


class _Writer:
    """The writer of the threads' function. `at` maps loops of the batch to their positions."""

    def __init__(self, nest: Nest, plan: _Plan) -> None:
        self.nest, self.plan, self.text = nest, plan, Text()
        self.bytes = plan.stages * (plan.stage_bytes + 16)

    def write(self) -> str:
        text, nest, plan = self.text, self.nest, self.plan
        self.sizes = write_sizes(text, nest)
        self.block, self.thread = text.special("ctaid.x"), text.special("tid.x")
        if not plan.persistent:
            self.enter_tile(self.block)
        self.place_tiles()
        # A call that does not fit has no blocks; the condition also shows that this launch reads the operands.
        with text.block(f"scf.if {_fits(text, plan, self.sizes)}"):
            self.create_barriers()
            group = text.index("divui", self.thread, text.constant(128))
            copies = text.let(f"arith.cmpi eq, {group}, {text.constant(0)} : index")
            with text.block(f"scf.if {copies}", "} else {"):
                self.produce()
            with text.next_region():
                self.consume(text.index("subi", group, text.constant(1)))
        arguments = ", ".join(f"{name}: {type}" for name, type in arguments_of(nest))
        memory = f'memref.global "private" @{nest.name}_tiles_memory : {self.memory} = uninitialized'
        return f"{memory} {{alignment = 1024 : i64}}\n" + text.function(f"@{nest.name}({arguments})")

    def enter_tile(self, number: str) -> None:
        """Finds the first row and column of a tile, and its positions in the loops of the batch."""
        text, plan = self.text, self.plan
        _, rows, columns = _grid(text, plan, self.sizes)
        batch, row, column = find_tile(text, number, rows, columns)
        positions = split_number(text, batch, [self.sizes[loop] for loop in plan.batch])
        self.at = dict(zip(plan.batch, positions, strict=True))
        self.first = [text.multiply(row, text.constant(ROWS)), text.multiply(column, text.constant(plan.columns))]

    def place_tiles(self) -> None:
        """Finds the addresses of the first stage's tiles and barriers, as numbers of 32 bits."""
        text, plan = self.text, self.plan
        self.memory = f"memref<{self.bytes}xi8, 3>"
        memory = text.let(f"memref.get_global @{self.nest.name}_tiles_memory : {self.memory}")
        begin = word(text, text.let(f"memref.extract_aligned_pointer_as_index {memory} : {self.memory} -> index"))
        self.tiles = [begin, self.add(begin, plan.maps[0].boxes * plan.maps[0].box_bytes)]
        self.full = self.add(begin, plan.stages * plan.stage_bytes)
        self.empty = self.add(self.full, 8 * plan.stages)

    def add(self, number: str, other: int | str) -> str:
        """Adds numbers of 32 bits."""
        by = self.text.constant(other, "i32") if isinstance(other, int) else other
        return self.text.let(f"arith.addi {number}, {by} : i32")

    def multiply(self, number: str, by: int) -> str:
        return self.text.let(f"arith.muli {number}, {self.text.constant(by, 'i32')} : i32")

    def create_barriers(self) -> None:
        text = self.text
        first = text.let(f"arith.cmpi eq, {self.thread}, {text.constant(0)} : index")
        with text.block(f"scf.if {first}"):
            for stage in range(self.plan.stages):
                create_barrier(text, self.add(self.full, 8 * stage), 1)
                create_barrier(text, self.add(self.empty, 8 * stage), _CONSUMING_WARPS)
            publish_barriers(text)
        text.barrier()

    @contextmanager
    def tiles_of_block(self, first_parity: int) -> Iterator[list[str]]:
        """Encloses the work on a tile. Yields the stage of its first step, and the parity of that stage's phase; the
        body ends with `leave_tile`."""
        text = self.text
        first = [text.constant(0, "i32"), text.constant(first_parity, "i32")]
        if not self.plan.persistent:
            yield first
            return
        carried, number = [text.fresh() for _ in first], text.fresh()
        count = text.multiply(*_grid(text, self.plan, self.sizes))
        bounds = f"{number} = {self.block} to {count} step {text.special('nctaid.x')}"
        with text.loop(bounds, carried, first, ["i32", "i32"]):
            self.enter_tile(number)
            yield carried

    def leave_tile(self, ring: Sequence[str]) -> None:
        """Passes the stage and the parity after a tile on to the next one."""
        if self.plan.persistent:
            self.text.carry(ring, ["i32", "i32"])

    @contextmanager
    def steps(
        self, ring: Sequence[str], starts: Sequence[str], types: Sequence[str]
    ) -> Iterator[tuple[str, str, str, list[str], list[str]]]:
        """Encloses the steps along the depth, from a stage and the parity of its phase on. Yields the begin of a step,
        its stage, the parity of the stage's phase, the carried values, and the results, which are the next stage, its
        parity, and the values; the body ends with `carry_on`."""
        text = self.text
        zero, end, by = text.constant(0), self.sizes[self.plan.depth], text.constant(CHUNK)
        all_types = ["i32", "i32", *types]
        carried, begin = [text.fresh() for _ in all_types], text.fresh()
        with text.loop(f"{begin} = {zero} to {end} step {by}", carried, [*ring, *starts], all_types) as results:
            yield begin, carried[0], carried[1], carried[2:], results

    def carry_on(self, stage: str, parity: str, values: Sequence[str], types: Sequence[str]) -> None:
        text = self.text
        after = self.add(stage, 1)
        last = text.let(f"arith.cmpi eq, {after}, {text.constant(self.plan.stages, 'i32')} : i32")
        turned = text.let(f"arith.xori {parity}, {text.constant(1, 'i32')} : i32")
        after = text.let(f"arith.select {last}, {text.constant(0, 'i32')}, {after} : i32")
        parity = text.let(f"arith.select {last}, {turned}, {parity} : i32")
        text.carry([after, parity, *values], ["i32", "i32", *types])

    def stage_before(self, stage: str) -> str:
        text, last = self.text, self.text.constant(self.plan.stages - 1, "i32")
        is_first = text.let(f"arith.cmpi eq, {stage}, {text.constant(0, 'i32')} : i32")
        return text.let(f"arith.select {is_first}, {last}, {self.add(stage, -1)} : i32")

    def produce(self) -> None:
        text = self.text
        share_registers(text, "dec", _REGISTERS["dec"])
        first = text.let(f"arith.cmpi eq, {self.thread}, {text.constant(0)} : index")
        with text.block(f"scf.if {first}"):
            maps = [address_of_map(text, number) for number in range(2)]
            with self.tiles_of_block(1) as ring:
                with self.steps(ring, [], []) as (begin, stage, parity, _, after):
                    self.copy_step(maps, begin, stage, parity)
                    self.carry_on(stage, parity, [], [])
                self.leave_tile(after)

    def copy_step(self, maps: Sequence[str], begin: str, stage: str, parity: str) -> None:
        """Begins the copies of a step, once the products that read its stage have ended."""
        text, plan = self.text, self.plan
        barrier = self.multiply(stage, 8)
        wait_for(text, self.add(self.empty, barrier), parity)
        full = self.add(self.full, barrier)
        announce(text, full, plan.stage_bytes)
        distance = self.multiply(stage, plan.stage_bytes)
        for number, map in enumerate(plan.maps):
            target = self.add(self.tiles[number], distance)
            for box in range(map.boxes):
                side = text.add(self.first[number], text.constant(box * CHUNK))
                positions = map.positions(side, begin, self.at)
                copy_tile(text, maps[number], positions, self.add(target, box * map.box_bytes), full)

    def consume(self, group: str) -> None:
        text, plan = self.text, self.plan
        share_registers(text, "inc", _REGISTERS["inc"])
        lane, warp = (text.index(operation, self.thread, text.constant(32)) for operation in ("remui", "divui"))
        leader = text.let(f"arith.cmpi eq, {lane}, {text.constant(0)} : index")
        rows, columns = plan.maps
        own = self.add(self.tiles[0], self.multiply(word(text, group), _WARPGROUP_ROWS * ROW_BYTES))
        # Either way, 64 rows follow after the same distance.
        a = describe_tile(text, own, is_deep=rows.is_deep, group=rows.box_bytes)
        b = describe_tile(text, self.tiles[1], is_deep=columns.is_deep, group=columns.box_bytes)
        count = plan.columns // 2
        types = ["f32"] * count
        own_rows = text.multiply(text.index("subi", warp, text.constant(4)), text.constant(16))
        with self.tiles_of_block(0) as ring:
            with self.steps(ring, ["%s0"] * count, types) as (begin, stage, parity, sums, after):
                sums = self.multiply_step((a, b), stage, parity, sums)
                later = text.let(f"arith.cmpi ne, {begin}, {text.constant(0)} : index")
                self.give_back(text.let(f"arith.andi {leader}, {later} : i1"), stage)
                self.carry_on(stage, parity, sums, types)
            totals = end_products(text, after[2:])
            if plan.persistent:
                self.give_back(leader, after[0])
            self.store_totals(text.add(self.first[0], own_rows), lane, totals)
            self.leave_tile(after[:2])

    def multiply_step(self, tiles: tuple[str, str], stage: str, parity: str, sums: list[str]) -> list[str]:
        """Begins the products of a step, once its tiles are there, and waits for those of the step before."""
        text, plan = self.text, self.plan
        wait_for(text, self.add(self.full, self.multiply(stage, 8)), parity)
        distance = self.multiply(stage, plan.stage_bytes // 16)
        moved = text.let(f"arith.extui {distance} : i32 to i64")
        by = [depth_step(is_deep=map.is_deep) for map in plan.maps]
        rows, columns = plan.maps
        turned = (not rows.is_deep, not columns.is_deep)
        sums = begin_products(text, sums)
        for step in range(CHUNK // DEPTH):
            a, b = (
                text.let(
                    f"arith.addi {text.let(f'arith.addi {tile}, {moved} : i64')}, "
                    f"{text.constant(step * each, 'i64')} : i64"
                )
                for tile, each in zip(tiles, by, strict=True)
            )
            sums = multiply_tiles(text, rows.operand.element, a, b, sums, turned=turned)
        group_products(text, 1)
        return sums

    def give_back(self, condition: str, stage: str) -> None:
        """Lets the producer copy into the stage before another one."""
        with self.text.block(f"scf.if {condition}"):
            arrive(self.text, self.add(self.empty, self.multiply(self.stage_before(stage), 8)))

    def store_totals(self, first: str, lane: str, totals: Sequence[str]) -> None:
        """Stores the sums of a thread, of 16 rows from the first one of its warp on."""
        text, plan = self.text, self.plan
        own = [text.add(first, text.index("divui", lane, text.constant(4)))]
        own.append(text.add(own[0], text.constant(8)))
        pair = text.multiply(text.index("remui", lane, text.constant(4)), text.constant(2))
        begin = text.add(self.first[1], pair)
        pairs = find_pairs(text, self.nest, plan.column)
        for number in range(0, len(totals), 2):
            tile, part = divmod(number, 4)
            row = own[part // 2]
            columns = [text.add(begin, text.constant(8 * tile + n)) for n in range(2)]

            def at(column: str, row: str = row) -> list[str]:
                known = {**self.at, plan.row: row, plan.column: column}
                return [known.get(loop, text.constant(0)) for loop in range(len(self.nest.parallel))]

            with text.block(f"scf.if {text.below(row, self.sizes[plan.row])}"):
                pairs.store_inside(totals[number : number + 2], columns, self.sizes[plan.column], at)
