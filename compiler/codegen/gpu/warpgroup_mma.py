"""The instructions of Hopper: copies of tiles, barriers in shared memory, and products of warpgroups.

LLVM has no intrinsics for some of them, so all are assembly. Addresses of shared memory are numbers of 32 bits. The
tile of an operand has rows of 128 bytes, whose pieces of 16 bytes are exchanged (swizzled): bits 4 to 6 of an address
are xored with bits 7 to 9. Copies and products both do that, at multiples of 1024 bytes.

https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions
"""

from __future__ import annotations

from collections.abc import Sequence

from .text import Text

ROW_BYTES = 128
"""The bytes of a row of a tile."""
ATOM = 8 * ROW_BYTES
"""The bytes of the least part of a tile whose pieces are exchanged."""
DEPTH = 16
"""The depth of a product of 16-bit elements."""
ROWS = 64
"""The rows of a product."""
_SWIZZLED = 1 << 62


def _run(text: Text, code: str, constraints: str, operands: Sequence[tuple[str, str]], result: str = "") -> str:
    """Writes an instruction, which nothing else is moved across. Operands are names and types."""
    names = ", ".join(name for name, _ in operands)
    types = ", ".join(type for _, type in operands)
    clobbered = ",".join(part for part in (constraints, "~{memory}") if part)
    line = f'llvm.inline_asm has_side_effects "{code}", "{clobbered}" {names} : ({types}) -> {result or "()"}'
    if result:
        return text.let(line)
    text.line(line)
    return ""


def word(text: Text, number: str) -> str:
    """Returns an index as a number of 32 bits."""
    return text.let(f"arith.index_cast {number} : index to i32")


# Barriers


def create_barrier(text: Text, address: str, arrivals: int) -> None:
    """Prepares a barrier whose phase ends with so many arrivals, and with the bytes that were announced."""
    count = text.constant(arrivals, "i32")
    _run(text, "mbarrier.init.shared::cta.b64 [$0], $1;", "r,r", [(address, "i32"), (count, "i32")])


def publish_barriers(text: Text) -> None:
    """Makes barriers that this thread has created known to copies."""
    _run(text, "fence.proxy.async.shared::cta;", "", [])


def arrive(text: Text, address: str) -> None:
    _run(text, "mbarrier.arrive.shared::cta.b64 _, [$0];", "r", [(address, "i32")])


def announce(text: Text, address: str, bytes: int) -> None:
    """Arrives, and lets the phase end only after copies of so many bytes."""
    count = text.constant(bytes, "i32")
    code = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
    _run(text, code, "r,r", [(address, "i32"), (count, "i32")])


def wait_for(text: Text, address: str, parity: str) -> None:
    """Waits until the phase with a parity has ended; before the first phase, that of parity 1 has."""
    with text.block("scf.while : () -> ()", "} do {"):
        code = "mbarrier.try_wait.parity.shared::cta.b64 $0, [$1], $2;"
        done = _run(text, code, "=b,r,r", [(address, "i32"), (parity, "i32")], "i1")
        again = text.let(f"arith.xori {done}, {text.constant(1, 'i1')} : i1")
        text.line(f"scf.condition({again})")
    with text.next_region():
        text.line("scf.yield")


# Copies


def address_of_map(text: Text, number: int) -> str:
    """Returns the address of a tensor map, an argument of the launch that `ptx.mark_kernels` adds."""
    return text.let(f'llvm.inline_asm "map {number}", "=l" : () -> i64')


def copy_tile(text: Text, map: str, positions: Sequence[str], target: str, barrier: str) -> None:
    """Begins to copy the box of a tensor map at a position, the fastest axis first; elements outside are 0.
    `map` is its address."""
    rank = len(positions)
    listed = ", ".join(f"${3 + n}" for n in range(rank))
    name = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
    code = f"{name} [$0], [$1, {{{listed}}}], [$2];"
    operands = [
        (target, "i32"),
        (map, "i64"),
        (barrier, "i32"),
        *((word(text, position), "i32") for position in positions),
    ]
    _run(text, code, ",".join(["r", "l", "r", *["r"] * rank]), operands)


# Products


def describe_tile(text: Text, address: str, *, is_deep: bool, group: int) -> str:
    """Returns the descriptor of a tile. Its rows are rows or columns of the product if it `is_deep`, with the depth
    along each of them; else they are the depth, and 64 rows or columns follow after `group` bytes."""
    leading = 1 if is_deep else group // 16
    rest = text.constant(_SWIZZLED | ATOM // 16 << 32 | leading << 16, "i64")
    low = text.let(f"arith.andi {address}, {text.constant((1 << 18) - 1, 'i32')} : i32")
    units = text.let(f"arith.shrui {low}, {text.constant(4, 'i32')} : i32")
    wide = text.let(f"arith.extui {units} : i32 to i64")
    return text.let(f"arith.ori {wide}, {rest} : i64")


def depth_step(*, is_deep: bool) -> int:
    """Returns by how much a descriptor grows from one product to the next one along the depth."""
    return (DEPTH * 2 if is_deep else DEPTH * ROW_BYTES) // 16


def begin_products(text: Text, sums: Sequence[str]) -> list[str]:
    """Comes before the first product that uses registers which other instructions have written. Returns the sums, which
    are in their registers by then: a constant would else be moved there between the fence and the product."""
    return _pass_through(text, "wgmma.fence.sync.aligned;", sums)


def multiply_tiles(
    text: Text, element: str, a: str, b: str, sums: Sequence[str], *, turned: tuple[bool, bool]
) -> list[str]:
    """Adds the product of two tiles to sums of f32. `turned` tells which tiles are not deep."""
    count = len(sums)
    listed = ", ".join(f"${n}" for n in range(count))
    flags = ", ".join(str(int(flag)) for flag in turned)
    name = f"wgmma.mma_async.sync.aligned.m64n{2 * count}k{DEPTH}.f32.{element}.{element}"
    code = f"{name} {{{listed}}}, ${2 * count}, ${2 * count + 1}, ${2 * count + 2}, 1, 1, {flags};"
    constraints = ",".join([*["=f"] * count, *map(str, range(count)), "l", "l", "b"])
    operands = [*((each, "f32") for each in sums), (a, "i64"), (b, "i64"), (text.constant(1, "i1"), "i1")]
    result = f"!llvm.struct<({', '.join(['f32'] * count)})>"
    made = _run(text, code, constraints, operands, result)
    return [text.let(f"llvm.extractvalue {made}[{n}] : {result}") for n in range(count)]


def group_products(text: Text, left: int) -> None:
    """Ends a group of products, and waits until those of all groups but the last `left` have read their tiles."""
    _run(text, "wgmma.commit_group.sync.aligned;", "", [])
    _run(text, f"wgmma.wait_group.sync.aligned {left};", "", [])


def end_products(text: Text, sums: Sequence[str]) -> list[str]:
    """Waits until this warp's products are complete, and returns their sums. Only these results depend on the wait:
    nothing keeps a computation with the given sums, which are in registers, after it."""
    return _pass_through(text, "wgmma.wait_group.sync.aligned 0;", sums)


def _pass_through(text: Text, code: str, sums: Sequence[str]) -> list[str]:
    """Writes an instruction that comes after all writes of the given registers, and before all reads of the results."""
    count, result = len(sums), f"!llvm.struct<({', '.join(['f32'] * len(sums))})>"
    constraints = ",".join([*["=f"] * count, *map(str, range(count))])
    made = _run(text, code, constraints, [(each, "f32") for each in sums], result)
    return [text.let(f"llvm.extractvalue {made}[{n}] : {result}") for n in range(count)]


def share_registers(text: Text, way: str, count: int) -> None:
    """Lets every thread of a warpgroup have so many registers: `inc` takes more, `dec` gives some back."""
    _run(text, f"setmaxnreg.{way}.sync.aligned.u32 {count};", "", [])
