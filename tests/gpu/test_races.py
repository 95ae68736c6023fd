"""Accesses of two threads of a block without a barrier between them are found, in whichever order the threads run."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from compile_kernels import compile_ptx
from fake_driver import Machine
from handwritten import HEAD, run_kernel

THREADS = 64
KERNEL = """
.visible .entry NAME(
	.param .u64 .ptr .align 1 NAME_param_0
)
.maxntid 64
{
	.reg .b32 	%r<12>;
	.reg .b64 	%rd<5>;

	ld.param.b64 	%rd1, [NAME_param_0];
	mov.u32 	%r1, %tid.x;
	mul.wide.u32 	%rd2, %r1, 16;
	add.s64 	%rd3, %rd1, %rd2;
	shl.b32 	%r2, %r1, 4;
	sub.s32 	%r3, 1008, %r2;
	xor.b32 	%r10, %r2, 16;
	and.b32 	%r11, %r2, 512;
	st.shared.v4.b32 	[%r2], {%r1, %r1, %r1, %r1};
	bar.sync 	0;
	BODY
	ret;
}
"""
"""Each thread has 16 bytes at %r2; those of a thread of the other warp are at %r3, and of its own warp at %r10. The
first bytes of each warp are at %r11."""
COPIED = "cp.async.cg.shared.global [%r2], [%rd3], 16; cp.async.commit_group; cp.async.wait_group 0;"
ORDERED = {
    "reads": "ld.shared.b32 %r4, [%r3]; ld.shared.b32 %r4, [%r10];",
    "a write after a barrier": "ld.shared.b32 %r4, [%r3]; bar.sync 0; st.shared.b32 [%r2], %r1;",
    "a thread alone": "st.shared.b32 [%r2], %r1; ld.shared.b32 %r4, [%r2]; st.shared.b32 [%r2], %r1;",
    "bytes of a word": "st.shared.b8 [%r1], %r1;",
    "one instruction of a warp": "st.shared.b32 [%r11], %r10;",
    "a copy": f"ld.shared.b32 %r4, [%r3]; bar.sync 0; {COPIED} bar.sync 0; ld.shared.b32 %r4, [%r3];",
    "matrices": """ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r2]; bar.sync 0;
        st.shared.b32 [%r3], %r1;""",
    "global memory": "st.global.b32 [%rd3], %r1; bar.sync 0; ld.global.b32 %r4, [%rd1];",
}
"""The ends of kernels that have no race."""
RACES = {
    "a write after a read": "ld.shared.b32 %r4, [%r3]; st.shared.b32 [%r2], %r1;",
    "a write after several reads": "ld.shared.b32 %r4, [0]; st.shared.b32 [%r11], %r10;",
    "a write after a read of its warp": "ld.shared.b32 %r4, [%r10]; st.shared.b32 [%r2], %r1;",
    "a write after a shuffle": """ld.shared.b32 %r4, [%r10]; shfl.sync.bfly.b32 %r5, %r4, 1, 31, -1;
        st.shared.b32 [%r2], %r1;""",
    "a read after a write": "st.shared.b32 [%r2], %r1; ld.shared.b32 %r4, [%r3];",
    "writes of two warps": "st.shared.b32 [0], %r10;",
    "two instructions of a warp": "st.shared.b32 [%r11], %r10; st.shared.b32 [%r11+0], %r10;",
    "a copy after a read": f"ld.shared.b32 %r4, [%r3]; {COPIED}",
    "a write after a copy": COPIED.replace("cp.async.wait", "bar.sync 0; cp.async.wait") + "st.shared.b32 [%r3], %r1;",
    "a write after matrices": """ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r2];
        st.shared.b32 [%r3], %r1;""",
    "global memory": "st.global.b32 [%rd3], %r1; ld.global.b32 %r4, [%rd1];",
}
"""The ends of kernels that have one, which no order of the threads shows: what is read was written before."""
BODIES = [*ORDERED.values(), *RACES.values()]


@pytest.fixture(scope="module")
def kernels(machine_folder: Path) -> Path:
    """The program of all kernels."""
    texts = [KERNEL.replace("NAME", f"end{n}").replace("BODY", body) for n, body in enumerate(BODIES)]
    return compile_ptx("\n".join([HEAD, ".shared .align 16 .b8 tile[1024];", *texts]), machine_folder)


def run(kernels: Path, driver: ctypes.CDLL, body: str, *, finds_races: bool) -> str:
    """Runs the kernel with an end; returns the error."""
    memory = np.zeros((THREADS, 4), np.int32)
    name = f"end{BODIES.index(body)}"
    return run_kernel(driver, kernels, name, THREADS, memory, launches=2, finds_races=finds_races)


@pytest.mark.parametrize("name", ORDERED)
def test_barriers_order_accesses(machine: Machine, kernels: Path, name: str) -> None:
    assert run(kernels, machine.library, ORDERED[name], finds_races=True) == ""


@pytest.mark.parametrize("name", RACES)
def test_races_are_found(machine: Machine, kernels: Path, name: str) -> None:
    assert "a race: no barrier is between" in run(kernels, machine.library, RACES[name], finds_races=True)
    assert run(kernels, machine.library, RACES[name], finds_races=False) == ""
