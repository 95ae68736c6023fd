"""Races of asynchronous operations are found, also where the threads here run in an order that gives right numbers."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from compile_kernels import compile_ptx
from fake_driver import Machine
from handwritten import HEAD, run_kernel

THREADS = 128
BYTES = 1 << 15
KERNEL = """
.visible .entry NAME(
	.param .u64 .ptr .align 1024 NAME_param_0
)
.maxntid 128
{
	.reg .pred 	%p<6>;
	.reg .b32 	%r<12>;
	.reg .b32 	%s<4>;
	.reg .b64 	%rd<8>;

	ld.param.b64 	%rd1, [NAME_param_0];
	add.s64 	%rd2, %rd1, 16384;
	mov.u32 	%r1, %tid.x;
	mov.b32 	%r9, 0;
	mov.b32 	%s0, 0;
	mov.b32 	%s1, 0;
	mov.b32 	%s2, 0;
	mov.b32 	%s3, 0;
	shl.b32 	%r2, %r1, 2;
	setp.eq.u32 	%p1, %r1, 0;
	setp.eq.u32 	%p2, %r1, 127;
	setp.lt.u32 	%p3, %r1, 32;
	setp.ge.u32 	%p4, %r1, 32;
	and.b32 	%r10, %r1, 31;
	setp.eq.u32 	%p0, %r10, 0;
	EARLY
	@%p1 mbarrier.init.shared::cta.b64 [12288], 1;
	@%p1 mbarrier.init.shared::cta.b64 [12296], 1;
	@%p1 mbarrier.init.shared::cta.b64 [12304], 128;
	BODY
	ret;
}
"""
"""The tile of the rows of a product is at 0, that of the columns at 8192. Each thread has 4 bytes at %r2. A predicate
holds in the first lane of each warp (%p0), the first thread (%p1), the last one (%p2), the first warp (%p3), or all
other warps (%p4)."""
PUBLISHED = "fence.proxy.async.shared::cta; bar.sync 0; "
FENCE, BARRIER = "fence.proxy.async.shared::cta; ", "bar.sync 0; "
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [12304]; "
READ, WRITE, READ_FIRST = "ld.shared.b32 %r9, [%r2]; ", "st.shared.b32 [%r2], %r1; ", "ld.shared.b32 %r9, [0]; "
READ_OTHER = "xor.b32 %r3, %r2, 256; ld.shared.b32 %r9, [%r3]; "


def announce(who: str, barrier: int = 12288, bytes: int = 8192) -> str:
    return f"@{who} mbarrier.arrive.expect_tx.shared::cta.b64 _, [{barrier}], {bytes}; "


def begin(who: str, barrier: int = 12288, target: int = 0, bytes: int = 8192) -> str:
    name = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    return f"@{who} {name} [{target}], [%rd1], {bytes}, [{barrier}]; "


def copy(who: str, barrier: int = 12288, target: int = 0, bytes: int = 8192) -> str:
    """A thread announces and begins a copy."""
    return announce(who, barrier, bytes) + begin(who, barrier, target, bytes)


def wait(barrier: int = 12288, parity: int = 0, who: str = "") -> str:
    return f"{who and f'@{who} '}mbarrier.try_wait.parity.shared::cta.b64 %p5, [{barrier}], {parity}; "


def store(who: str = "%p1") -> str:
    """A thread begins a copy from shared memory, and ends its group."""
    return f"@{who} cp.async.bulk.global.shared::cta.bulk_group [%rd2], [0], 8192; @{who} cp.async.bulk.commit_group; "


def descriptor(address: int) -> int:
    return 1 << 62 | 64 << 32 | 1 << 16 | address >> 4


PRODUCT = f"""mov.b64 %rd3, {descriptor(0)}; mov.b64 %rd4, {descriptor(8192)};
    wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%s0, %s1, %s2, %s3}}, %rd3, %rd4,
    %p1, 1, 1, 0, 0; """.replace("%p1,", "-1,")
COMMIT, COMPLETE = "wgmma.commit_group.sync.aligned; ", "wgmma.wait_group.sync.aligned 0; "
OTHER = copy("%p1", 12296, 8192, 1024)
ARRIVED = wait(12304, who="%p2")
THREE_PHASES = PUBLISHED + announce("%p1", 12296, 1024) + copy("%p1") + wait(who="%p1") + copy("%p1", 12288, 8192, 1024)
THREE_PHASES += wait(parity=1, who="%p1") + "PHASE" + begin("%p1", 12296, 10240, 1024) + wait(12296)
"""The first thread waits for two phases of a barrier, and for what stands at PHASE. When the others have waited for the
other barrier, these phases have ended, but nothing tells them so."""
LOADED = PUBLISHED + copy("%p1") + OTHER + wait() + wait(12296)
"""Both tiles have arrived, and all threads have waited for them."""
WRITTEN = "cp.async.bulk.wait_group 0; "
READ_DONE = "cp.async.bulk.wait_group.read 0; "

ORDERED = {
    "a read after a copy": PUBLISHED + copy("%p1") + wait() + READ,
    "a read after another thread's wait": PUBLISHED + copy("%p1") + wait(who="%p3") + BARRIER + READ,
    "a copy after reads": PUBLISHED
    + copy("%p1")
    + wait()
    + READ
    + FENCE
    + ARRIVE
    + ARRIVED
    + copy("%p2")
    + wait(parity=1)
    + READ,
    "a copy after reads and a fence of its thread": PUBLISHED
    + copy("%p1")
    + wait()
    + READ
    + BARRIER
    + FENCE
    + copy("%p2")
    + wait(parity=1),
    "a copy over written memory": PUBLISHED
    + announce("%p2")
    + WRITE
    + FENCE
    + ARRIVE
    + ARRIVED
    + begin("%p2")
    + wait()
    + READ_OTHER,
    "a copy after products": LOADED + PRODUCT + COMMIT + COMPLETE + ARRIVE + ARRIVED + copy("%p2") + wait(parity=1),
    "products of written tiles": LOADED + WRITE + FENCE + BARRIER + PRODUCT + COMMIT + COMPLETE,
    "a write after products": LOADED + PRODUCT + COMMIT + COMPLETE + BARRIER + WRITE,
    "sums after products": LOADED + PRODUCT + COMMIT + COMPLETE + "mov.b32 %r9, %s1; ",
    "a copy from written memory": LOADED + WRITE + FENCE + BARRIER + store() + READ_DONE,
    "a write after a copy from its bytes": LOADED + store() + READ_DONE + BARRIER + WRITE,
    "a read of what was copied": LOADED + store() + WRITTEN + "@%p1 ld.global.b32 %r9, [%rd2]; ",
    "a copy from bytes that were copied": PUBLISHED + copy("%p1") + wait() + store() + READ_DONE,
    "a copy of global memory that threads have written": PUBLISHED
    + "@%p1 st.global.b32 [%rd1], %r1; "
    + BARRIER
    + copy("%p2")
    + wait(),
    "a copy after reads at different times": PUBLISHED
    + copy("%p1")
    + wait()
    + READ_FIRST
    + FENCE
    + 2 * f"@%p1 {ARRIVE}"
    + f"@%p1 {READ_FIRST}"
    + f"@%p1 {FENCE}"
    + BARRIER
    + copy("%p2")
    + wait(parity=1),
    "a write after a copy over what products have read": LOADED
    + announce("%p1")
    + PRODUCT
    + COMMIT
    + COMPLETE
    + ARRIVE
    + ARRIVED
    + begin("%p2")
    + wait(parity=1)
    + WRITE,
    "copies from shared memory by two threads": LOADED
    + 2 * (store() + f"@%p1 {WRITTEN}")
    + 2 * (store("%p2").replace("%rd2", "%rd1") + f"@%p2 {WRITTEN}")
    + READ_DONE
    + BARRIER
    + WRITE,
    "accesses of neighbours of copied bytes": PUBLISHED
    + announce("%p1", bytes=16)
    + begin("%p1", 12288, 16, 16)
    + "@%p1 st.shared.b32 [12], %r1; "
    + wait(),
    "ordinary accesses": PUBLISHED + WRITE + ARRIVE + wait(12304) + READ_OTHER,
    "a write after reads of several": PUBLISHED
    + WRITE
    + BARRIER
    + READ_FIRST
    + ARRIVE
    + wait(12304, who="%p1")
    + "@%p1 "
    + WRITE,
}
"""The ends of kernels that have no race."""
RACES = {
    "a read before the copy's wait": (
        PUBLISHED + copy("%p1") + OTHER + wait(who="%p3") + wait(12296, who="%p4") + READ,
        "no wait is between a copy to shared memory, which writes",
    ),
    "a wait for the phase before": (
        PUBLISHED + copy("%p1") + OTHER + wait(parity=1) + wait(who="%p3") + wait(12296) + READ,
        "no wait is between a copy to shared memory, which writes",
    ),
    "a wait for a parity of two phases": (
        THREE_PHASES.replace("PHASE", "") + wait(parity=1) + READ,
        "no wait is between a copy to shared memory, which writes",
    ),
    "a wait for a parity of the first of three phases": (
        THREE_PHASES.replace("PHASE", copy("%p1", 12288, 9216, 1024) + wait(who="%p1"))
        + wait()
        + "ld.shared.b32 %r9, [8192]; ",
        "no wait is between a copy to shared memory, which writes",
    ),
    "a write to what a copy reads": (
        PUBLISHED + copy("%p1") + "@%p1 st.global.b32 [%rd1], %r1; " + wait(),
        "no wait is between a copy to shared memory, which reads",
    ),
    "a copy before reads": (
        PUBLISHED + copy("%p1") + wait() + READ + FENCE + copy("%p2") + wait(parity=1),
        "no barrier is between thread 0, which reads",
    ),
    "a copy after an early arrival": (
        PUBLISHED + copy("%p1") + wait() + FENCE + ARRIVE + READ + ARRIVED + copy("%p2") + wait(parity=1),
        "no barrier is between thread 0, which reads",
    ),
    "a copy after reads without a fence": (
        PUBLISHED + copy("%p1") + wait() + READ + ARRIVE + ARRIVED + copy("%p2") + wait(parity=1),
        "no fence.proxy.async is between thread 0, which reads",
    ),
    "a copy before reads of several threads": (
        PUBLISHED + copy("%p1") + wait() + READ_FIRST + FENCE + copy("%p2") + wait(parity=1),
        "no barrier is between thread 0, which reads",
    ),
    "products after the wait of the first lanes": (
        LOADED.replace(wait() + wait(12296), "setp.lt.u32 %p0, %r10, 16; " + wait(12296, who="%p0") + wait())
        + PRODUCT
        + COMMIT
        + COMPLETE,
        "no wait is between a copy to shared memory, which writes",
    ),
    "a write after the wait of another warp's products": (
        LOADED + PRODUCT + COMMIT + BARRIER + f"@%p3 {COMPLETE}" + "@%p3 st.shared.b32 [%r2+8192], %r1; " + COMPLETE,
        "no wait is between a product, which reads",
    ),
    "a write of the first thread after a barrier": (
        LOADED + BARRIER + f"@%p1 {WRITE}" + f"@%p2 {READ_FIRST}",
        "no barrier is between thread 0, which writes",
    ),
    "a write after the wait of another thread": (
        LOADED
        + store()
        + "@%p2 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [8192], 1024; @%p2 cp.async.bulk.commit_group; "
        + BARRIER
        + f"@%p2 {READ_DONE}"
        + f"@%p2 {WRITE}"
        + READ_DONE,
        "no wait is between a copy from shared memory, which reads",
    ),
    "an arrival at a new barrier": (FENCE + ARRIVE, "no barrier is between thread 0, which creates the barrier"),
    "a wait at a new barrier": (
        FENCE + wait(12304, parity=1),
        "no barrier is between thread 0, which creates the barrier",
    ),
    "a copy to a new barrier": (
        FENCE + announce("%p1") + begin("%p2") + wait(who="%p1"),
        "no barrier is between thread 0, which creates the barrier",
    ),
    "a write after a wait for the first of two groups": (
        LOADED + 2 * (PRODUCT + COMMIT) + COMPLETE.replace("0", "1") + f"@%p1 {WRITE}" + COMPLETE,
        "no wait is between a product, which reads",
    ),
    "a copy over a copy": (
        PUBLISHED + copy("%p1") + copy("%p1", 12296) + wait() + wait(12296),
        "no wait is between a copy to shared memory, which writes",
    ),
    "a read of what the thread of a copy has written": (
        WRITE
        + PUBLISHED
        + announce("%p1", bytes=1024)
        + "@%p1 "
        + WRITE
        + begin("%p1", 12288, 8192, 1024)
        + wait()
        + READ_FIRST,
        "no barrier is between thread 0, which writes",
    ),
    "a copy during products": (
        LOADED + PRODUCT + COMMIT + ARRIVE + ARRIVED + copy("%p2") + wait(parity=1) + COMPLETE,
        "no wait is between a product, which reads",
    ),
    "a copy after products without a group": (
        LOADED + PRODUCT + COMPLETE + ARRIVE + ARRIVED + copy("%p2") + wait(parity=1),
        "no wait is between a product, which reads",
    ),
    "products before a copy's wait": (
        LOADED.replace(wait() + wait(12296), wait(12296, who="%p3") + wait()) + PRODUCT + COMMIT + COMPLETE,
        "no wait is between a copy to shared memory, which writes",
    ),
    "products after the wait of a lane": (
        LOADED.replace(wait() + wait(12296), wait(12296, who="%p0") + wait()) + PRODUCT + COMMIT + COMPLETE,
        "no wait is between a copy to shared memory, which writes",
    ),
    "products of written tiles without a fence": (
        LOADED + WRITE + BARRIER + PRODUCT + COMMIT + COMPLETE,
        "no fence.proxy.async is between thread 0, which writes",
    ),
    "products of tiles that are written after a fence": (
        LOADED + FENCE + WRITE + BARRIER + PRODUCT + COMMIT + COMPLETE,
        "no fence.proxy.async is between thread 0, which writes",
    ),
    "products of written tiles without a barrier": (
        LOADED + WRITE + FENCE + PRODUCT + COMMIT + COMPLETE,
        "no barrier is between thread",
    ),
    "a write during products": (
        LOADED + PRODUCT + COMMIT + "@%p1 " + WRITE + COMPLETE,
        "no wait is between a product, which reads",
    ),
    "sums during products": (
        LOADED + PRODUCT + COMMIT + "mov.b32 %r9, %s1; " + COMPLETE,
        "no wgmma.wait_group is between products and another access to their sums: mov.b32",
    ),
    "a write to sums during products": (
        LOADED + PRODUCT + COMMIT + "mov.b32 %s1, 0; " + COMPLETE,
        "no wgmma.wait_group is between products and another access to their sums: mov.b32",
    ),
    "a copy from written memory without a fence": (
        LOADED + WRITE + BARRIER + store() + READ_DONE,
        "no fence.proxy.async is between thread 0, which writes",
    ),
    "a write during a copy from its bytes": (
        LOADED + store() + BARRIER + WRITE + READ_DONE,
        "no wait is between a copy from shared memory, which reads",
    ),
    "a write before its thread has seen a wait": (
        LOADED + store("%p2") + READ_DONE + WRITE,
        "no wait is between a copy from shared memory, which reads",
    ),
    "a write after a wait for other groups": (
        LOADED
        + store()
        + store().replace("[0]", "[0]").replace("%rd2", "%rd1")
        + READ_DONE.replace("0", "1")
        + BARRIER
        + WRITE
        + READ_DONE,
        "no wait is between a copy from shared memory, which reads",
    ),
    "a read of what is copied": (
        LOADED + store() + READ_DONE + "@%p1 ld.global.b32 %r9, [%rd2]; ",
        "no wait is between a copy from shared memory, which writes",
    ),
    "a copy over bytes that are copied": (
        LOADED + store() + copy("%p1") + wait(parity=1) + READ_DONE,
        "no wait is between a copy from shared memory, which reads",
    ),
    "barriers without a fence": (
        BARRIER + copy("%p1") + wait() + READ,
        "no fence.proxy.async is between thread 0, which creates the barrier",
    ),
    "barriers without a barrier": (
        FENCE + ARRIVE + wait(12304),
        "no barrier is between thread 0, which creates the barrier",
    ),
    "ordinary accesses": (
        WRITE
        + PUBLISHED
        + WRITE
        + ARRIVE
        + wait(12304, who="%p3")
        + "xor.b32 %r3, %r2, 256; ld.shared.b32 %r9, [%r3]; ",
        "no barrier is between another thread, which reads",
    ),
    "accesses after a barrier": (
        WRITE + PUBLISHED + WRITE + READ_OTHER,
        "no barrier is between another thread, which reads",
    ),
    "a write after reads that come before the barriers": (
        WRITE + BARRIER + "@%p4 " + READ_FIRST + "INIT" + "@%p1 " + READ_FIRST + "@%p1 " + WRITE,
        "no barrier is between another thread, which reads",
    ),
    "a write after some of the reads": (
        PUBLISHED
        + WRITE
        + BARRIER
        + READ_FIRST
        + ARRIVE
        + "@%p4 "
        + READ_FIRST
        + wait(12304, who="%p1")
        + "@%p1 "
        + WRITE,
        "no barrier is between another thread, which reads",
    ),
}
"""The ends of kernels that have one, and its message. What stands before INIT comes before the barriers are created."""
BODIES = [*ORDERED.values(), *(body for body, _ in RACES.values())]


@pytest.fixture(scope="module")
def kernels(machine_folder: Path) -> Path:
    """The program of all kernels."""
    parts = {body: body.split("INIT") for body in BODIES}
    texts = [
        KERNEL.replace("NAME", f"end{n}").replace("BODY", parts[body][-1]).replace("EARLY", "".join(parts[body][:-1]))
        for n, body in enumerate(BODIES)
    ]
    return compile_ptx("\n".join([HEAD, ".shared .align 1024 .b8 tiles[12312];", *texts]), machine_folder)


def run(kernels: Path, driver: ctypes.CDLL, body: str, *, finds_races: bool) -> str:
    """Runs the kernel with an end; returns the error."""
    memory, name = np.zeros((BYTES // 16, 2), np.int64), f"end{BODIES.index(body)}"
    return run_kernel(driver, kernels, name, THREADS, memory, launches=2, finds_races=finds_races)


@pytest.mark.parametrize("name", ORDERED)
def test_ordered_operations_are_accepted(machine: Machine, kernels: Path, name: str) -> None:
    assert run(kernels, machine.library, ORDERED[name], finds_races=True) == ""


@pytest.mark.parametrize("name", RACES)
def test_races_are_found(machine: Machine, kernels: Path, name: str) -> None:
    body, message = RACES[name]
    found = run(kernels, machine.library, body, finds_races=True)
    assert "a race: " in found and message in found
    assert run(kernels, machine.library, body, finds_races=False) == ""


def test_sums_are_written_before_a_fence(machine: Machine, machine_folder: Path) -> None:
    body = LOADED + PRODUCT.replace("wgmma.mma", "mov.b32 %s2, 0; wgmma.mma") + COMMIT + COMPLETE
    text = KERNEL.replace("NAME", "written").replace("BODY", body).replace("EARLY", "")
    program = compile_ptx("\n".join([HEAD, ".shared .align 1024 .b8 tiles[12312];", text]), machine_folder)
    memory = np.zeros((BYTES // 16, 2), np.int64)
    assert "no wgmma.fence comes before a product" in run_kernel(machine.library, program, "written", THREADS, memory)
