"""Driver of the tiler: rewrites kernels of structured ops on tensors as loops over vectors.

Each kernel is either tiled or left unchanged; the report gives the reason for each unchanged one.

The ops of a stage decide its schedule:

    no reduction                               map             maps.py
    a sequential loop that carries a value     scan            scans.py
    one sum of elements at computed indices    table sum       table_sums.py
    the same with indices of bytes             byte sum        byte_sums.py
    one contraction                            tile            tiles.py; decoded.py for a block-quantized weight
    the same of words, on a matrix unit        matrix tile     matrices.py; decoded_matrices.py for quantized weights
    the same of words of bytes or bf16          word panels     word_panels.py, where no instruction multiplies them
    the same with unpacked columns, many rows  copied tile     copied.py; turned.py for columns that are rows of memory
    the same with packed columns               packed tile     packed_stretches.py
    the same of bf16                           copied tile     paired.py, where an instruction adds pairs of products
    the same with both operands apart          blocked tile    blocked.py
    the same with panels that exceed the cache split tile      split_sums.py
    the same with factors that may be rounded  fixed-point     fixed_point.py, for packed columns and many rows
                                               tile
    other reductions, also with contractions   rows            rows.py, row_blocks.py
    the same under a mask of positions         bounded rows    bounded.py
    the same with a length for each row        own lengths     bounded.py
    stages that are computed slice by slice    slices          slices.py, with the schedule of each stage inside
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from ....dialect.dims import Size, product
from ....dialect.lazy_dataclass import dataclass
from ...base.mlir import ir
from ...lower.parts import FIXED_POINT, MATRIX_TILE, SEQUENCE
from ...lower.text import FunctionText
from ...lower.writer import ITEMS, part_name
from ...targets.vector_unit import VectorUnit
from ..elementary.find import Elementary
from ..elementary.functions import append_functions
from .blocked import plan_blocks, write_blocked
from .boundaries import read_boundaries
from .byte_sums import plan_byte_sum
from .copied import plan_copies, write_copied
from .decoded_matrices import find_decoded_matrices, write_decoded_matrices
from .decoded_schedule import decoded_roles, write_decoded
from .evaluate import Evaluator
from .fixed_point import plan_fixed_point, write_fixed_point
from .forms import Form, constant, variable
from .lanes import count_lanes
from .level_tiles import plan_levels, write_levels
from .maps import MapStage
from .matrices import find_matrices, write_matrices
from .nest import divisors
from .nonzeros import find_sparse_sum
from .order import choose_order
from .packed_stretches import plan_packed, write_packed
from .pages import take_pages
from .read import read_kernel
from .roles import assign_roles, even_rows
from .row_blocks import RowStage
from .scans import ScanStage
from .schedule import BLOCK_BYTES, Stage, is_tiled, merge_loops, plan_stages
from .selections import take_selections
from .sharing import Sharing, share_elements, share_rows
from .slices import Slices, plan_slices
from .split_sums import is_split, write_split
from .starts import take_starts
from .structure import Kernel, Op, Sequential, Unsupported
from .table_sums import TableSumStage, is_table_sum
from .text import Writer, stored_type
from .tiles import write_tiles
from .word_panels import plan_word_panels, write_word_panels

IN_PLACE = "nacre.in_place"
"""The function attribute that lists pairs of tensor indices that may share memory."""
WITHOUT = "nacre.without"
"""The function attribute that lists features of the CPU that LLVM does not use for a function."""


@dataclass(frozen=True, slots=True)
class Report:
    """The schedules of a kernel's loop nests and the steps of its loops, or the reason why it was not tiled.

    A kernel of the schedule SEQUENCE is unchanged; its steps, and those of a kernel that was not tiled, are the numbers
    at which its code changes.
    """

    name: str
    reason: str = ""
    schedules: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Text:
    """The functions generated from a kernel, and the locations of their lines."""

    lines: tuple[str, ...]
    locations: tuple[Any, ...]
    schedules: tuple[str, ...]
    steps: tuple[int, ...]
    functions: frozenset[Elementary]


def tile_kernels(module: Any, unit: VectorUnit, *, strict: bool = False, debug: bool = False) -> list[Report]:
    """Tiles every supported kernel of the module in place; `strict` keeps divisions unchanged, `debug` keeps the
    locations of ops."""
    functions = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in module.body.operations}
    reports: list[Report] = []
    needed: set[Elementary] = set()
    for name, function in functions.items():
        if name + ITEMS not in functions:
            continue
        try:
            written = write_kernel(function, unit, strict=strict)
        except Sequential:
            reports.append(Report(name, "", (SEQUENCE,), read_boundaries(function)))
            continue
        except Unsupported as reason:
            reports.append(Report(name, str(reason), steps=read_boundaries(function)))
            continue
        for old in (function, functions[name + ITEMS]):
            old.operation.erase()
        declared = [function.declare() for function in sorted(written.functions, key=lambda f: f.symbol)]
        append_functions(module, "\n".join([*written.lines, *declared]), written.locations if debug else ())
        needed |= written.functions
        reports.append(Report(name, "", written.schedules, written.steps))
    for wanted in sorted(needed, key=lambda f: f.symbol):
        append_functions(module, wanted.emit(unit.features))
    return reports


def write_kernel(function: Any, unit: VectorUnit, *, strict: bool) -> _Text:
    """Writes two functions for each stage of the kernel, or for each run of stages computed slice by slice: the loops,
    and the count of work items. The first function has the kernel's name.

    A function depends on all results of the previous one, so the caller synchronises between them. Raises Unsupported.
    """
    try:
        return _write_kernel(read_kernel(function), unit, None, strict=strict)
    except Sequential:
        raise
    except Unsupported:
        # Longer rows are in stages of their own. The ops are read again, since writing has changed them.
        return _write_kernel(read_kernel(function), unit, BLOCK_BYTES, strict=strict)


def _write_kernel(kernel: Kernel, unit: VectorUnit, most: int | None, *, strict: bool) -> _Text:
    """Writes a kernel whose blocks of rows between contractions have `most` bytes, or any number of bytes."""
    lines: list[str] = []
    locations: list[Any] = []
    schedules: list[str] = []
    steps: set[int] = set()
    functions: set[Elementary] = set()
    if strict:
        unit = unit.exact()
    if not kernel.ops:
        raise Unsupported("nothing is computed")
    take_pages(kernel)
    take_selections(kernel)
    take_starts(kernel)
    for number, slices in enumerate(plan_slices(kernel, plan_stages(kernel, most), unit.caches)):
        writer = Writer(kernel.dims, _main(slices.stages[-1]).location, unit.features)
        schedule = _write_slices(writer, slices, unit, strict=strict)
        head, tail = _frame(kernel, part_name(kernel.name, number), writer, schedule)
        lines += [*head, *writer.lines, *tail]
        locations += [writer.location] * len(head) + writer.locations + [writer.location] * len(tail)
        schedules.append(schedule.name)
        steps |= writer.steps
        functions |= writer.functions
    return _Text(tuple(lines), tuple(locations), tuple(schedules), tuple(sorted(steps - {1})), frozenset(functions))


def _write_slices(writer: Writer, slices: Slices, unit: VectorUnit, *, strict: bool) -> _Schedule:
    """Writes the stages; returns the schedule of the whole run, which needs no further writing."""

    def prepare(stage: Stage) -> _Schedule:
        merge_loops(stage)
        writer.lanes = count_lanes(stage, unit)
        schedule = _choose(Evaluator(writer, stage, strict=strict), unit)
        writer.steps.update(step for count in schedule.counts for step in divisors(count))
        return schedule

    if len(slices.stages) == 1 and not slices.locals:
        schedule = prepare(slices.stages[0])
        schedule.write("%begin", "%end")
        return schedule
    depth, memory = len(slices.counts), {}
    for local in slices.locals:
        if local.slot not in memory:
            memory[local.slot] = writer.on_stack(local.elements, local.buffer.element)
        local.move(memory[local.slot])

    def write(stage: Stage, number: Form) -> None:
        schedule = prepare(stage)
        items = product(schedule.counts[depth:])
        schedule.write(writer.index(number.times(items)), writer.index(number.plus(1).times(items)))

    for stage in slices.constant:
        write(stage, constant(0))
    with writer.loop("%begin", "%end", 1) as number:
        for stage in slices.stages:
            write(stage, variable(number))
    return _Schedule("slices", slices.counts, lambda begin, end: None)


def _main(stage: Stage) -> Op:
    """Returns the op that most of a stage's code belongs to."""
    return next((op for op in stage.ops if op.reduced), stage.ops[-1])


def read_in_place(function: Any) -> tuple[tuple[int, int], ...]:
    """Returns the attribute of a generated function: pairs of tensors that may share memory, the written one and the
    read one, by their indices among the kernel's inputs, results and scratch."""
    if IN_PLACE not in function.attributes:
        return ()
    numbers = list(ir.DenseI64ArrayAttr(function.attributes[IN_PLACE]))
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def read_without(function: Any) -> tuple[str, ...]:
    """Returns the attribute of a generated function: the features that LLVM does not use for it."""
    if WITHOUT not in function.attributes:
        return ()
    return tuple(ir.StringAttr(name).value for name in ir.ArrayAttr(function.attributes[WITHOUT]))


def _function_attributes(kernel: Kernel, sharing: Sharing, without: Collection[str]) -> str:
    tensors = [name for name, type, _ in kernel.signature if type != "index"]
    numbers = ", ".join(str(tensors.index(buffer.name)) for pair in sharing for buffer in pair)
    found = [f"{IN_PLACE} = array<i64: {numbers}>"] if sharing else []
    if without:
        quoted = ", ".join(f'"{feature}"' for feature in sorted(without))
        found.append(f"{WITHOUT} = [{quoted}]")
    return f" attributes {{{', '.join(found)}}}" if found else ""


def _frame(kernel: Kernel, name: str, writer: Writer, schedule: _Schedule) -> tuple[list[str], list[str]]:
    """Returns the lines of a stage's functions before and after those of the writer."""
    names = [*(argument for argument, _, _ in kernel.signature[:-2]), "%begin", "%end"]
    shared = {buffer.name for pair in schedule.sharing for buffer in pair}
    arguments = [
        f"{argument}: {_argument_type(type)}{_attributes(extra, argument in shared)}"
        for argument, (_, type, extra) in zip(names, kernel.signature, strict=True)
    ]
    described = _function_attributes(kernel, schedule.sharing, writer.without)
    head = [f"func.func @{name}({', '.join(arguments)}){described} {{"]
    head += ["  " + line for line in (*writer.function.prologue, *writer.stack)]
    counter = FunctionText(kernel.dims)
    count = counter.size(product(schedule.counts))
    dims = ", ".join(f"{dim}: index" for dim in kernel.dims.values())
    tail = ["  return", "}", f"func.func @{name}{ITEMS}({dims}) -> index {{"]
    tail += ["  " + line for line in counter.prologue]
    tail += [f"  return {count} : index", "}"]
    return head, tail


def _attributes(extra: str, shared: bool) -> str:
    """Returns the attributes of an argument. An argument that may share memory with another one is not `noalias`;
    `noalias` on the others is enough to separate them from it."""
    kept = [a for a in extra.strip("{}").split(", ") if a and not (shared and a == "llvm.noalias")]
    return f" {{{', '.join(kept)}}}" if kept else ""


def _argument_type(type: str) -> str:
    if not type.startswith("memref<"):
        return type
    return f"memref<{stored_type(type.removeprefix('memref<').removesuffix('>'))}>"


@dataclass(frozen=True)
class _Schedule:
    """The schedule of a stage: `counts` are its work items, by loops; `write(begin, end)` writes a range of them.
    `sharing` holds the pairs of buffers that may share memory."""

    name: str
    counts: Sequence[Size]
    write: Callable[[str, str], None]
    sharing: Sharing = ()


def _choose(evaluator: Evaluator, unit: VectorUnit) -> _Schedule:
    stage = evaluator.stage
    if all(any(size == 0 for size in sink.result.shape) for sink in stage.sinks):
        return _Schedule("nothing", [0], lambda begin, end: None)
    reductions = [op for op in stage.ops if op.reduced]
    if not reductions:
        maps = MapStage(evaluator, in_step=unit.in_step, every_chain=unit.every_chain)
        return _Schedule("map", maps.counts(), maps.write, share_elements(stage))
    if reductions[0].carried is not None:
        scan = ScanStage(evaluator)
        return _Schedule("scan", scan.counts(), scan.write, share_elements(stage))
    if is_table_sum(stage):
        in_bytes = plan_byte_sum(evaluator, unit)
        if in_bytes is not None:
            return _Schedule("byte sum", in_bytes.counts(), in_bytes.write)
        sums = TableSumStage(evaluator, unit)
        return _Schedule("table sum", sums.counts(), sums.write)
    if len(reductions) == 1 and is_tiled(reductions[0]):
        (op,) = reductions
        roles = assign_roles(stage, op, unit, evaluator.writer.lanes)
        matrices = find_matrices(evaluator, op, roles)
        if matrices is not None:
            order = choose_order(stage, op, matrices.roles)
            written = partial(write_matrices, evaluator, op, matrices, order)
            return _Schedule(MATRIX_TILE, order.counts, written, share_elements(stage))
        numbers = find_decoded_matrices(evaluator, op, roles)
        if numbers is not None:
            order = choose_order(stage, op, numbers.roles)
            written = partial(write_decoded_matrices, evaluator, op, numbers, order)
            return _Schedule(MATRIX_TILE, order.counts, written, share_elements(stage))
        bytes = plan_word_panels(evaluator, op, roles, unit)
        if bytes is not None:
            written = partial(write_word_panels, evaluator, op, roles, bytes)
            return _Schedule("word panels", bytes.counts, written, share_elements(stage))
        blocks = plan_blocks(evaluator, op, roles)
        if blocks is not None:
            order = choose_order(stage, op, blocks.roles, copied=True)
            written = partial(write_blocked, evaluator, op, blocks, order)
            return _Schedule("blocked tile", order.counts, written, share_elements(stage))
        rounded = plan_fixed_point(evaluator, op, roles, unit)
        if rounded is not None:
            order = choose_order(stage, op, rounded.item, copied=True)
            written = partial(write_fixed_point, evaluator, op, rounded, unit, order)
            return _Schedule(FIXED_POINT, order.counts, written, share_elements(stage))
        decoded, copies = decoded_roles(evaluator, op, roles), plan_copies(evaluator, op, roles)
        if decoded is None and copies is not None:
            order = choose_order(stage, op, copies.roles, copied=True)
            written = partial(write_copied, evaluator, op, copies, order)
            return _Schedule("copied tile", order.counts, written, share_elements(stage))
        packed = None if decoded is not None else plan_packed(evaluator, op, roles, unit)
        if packed is not None:
            order = choose_order(stage, op, packed.roles, copied=True)
            written = partial(write_packed, evaluator, op, packed, order)
            return _Schedule("packed tile", order.counts, written, share_elements(stage))
        order = choose_order(stage, op, decoded or even_rows(stage, roles))
        levels = None if decoded is not None else plan_levels(evaluator, op, order.roles, unit)
        if levels is not None and find_sparse_sum(evaluator, op, order) is None:
            order = choose_order(stage, op, levels[0])
            written = partial(write_levels, evaluator, op, levels[1], order)
            return _Schedule("level tile", order.counts, written, share_elements(stage))
        if decoded is not None:
            name, write = "tile", write_decoded
        else:
            name, write = ("split tile", write_split) if is_split(evaluator, op, order) else ("tile", write_tiles)
        return _Schedule(name, order.counts, partial(write, evaluator, op, order), share_elements(stage))
    rows = RowStage(evaluator, unit)
    name = "rows" if rows.bounded is None else rows.bounded.schedule
    if rows.online is not None:
        name += ", online softmax"
    # Blocks of rows between contractions may be moved back over rows that are already computed.
    return _Schedule(
        name, rows.counts(), rows.write, () if rows.tiles else share_rows(stage, rows.row.kept_in_result())
    )
