"""The machine that stands for a GPU finds what a GPU would not forgive: the tests of kernels depend on it."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from compile_kernels import build_driver, compile_ptx
from handwritten import HEAD, run_kernel
from ptx_operands import UnknownError
from translate_ptx import translate

TURN = """
.shared .align 4 .b8 tile[256];
.visible .entry turn(
	.param .u64 .ptr .align 1 turn_param_0
)
.maxntid 64
{
	.reg .b32 	%r<6>;
	.reg .b64 	%rd<5>;

	ld.param.b64 	%rd1, [turn_param_0];
	cvta.to.global.u64 	%rd2, %rd1;
	mov.u32 	%r1, %tid.x;
	shl.b32 	%r2, %r1, 2;
	st.shared.b32 	[%r2], %r1;
	bar.sync 	0;
	sub.s32 	%r3, 252, %r2;
	ld.shared.b32 	%r4, [%r3];
	mul.wide.u32 	%rd3, %r1, 4;
	add.s64 	%rd4, %rd2, %rd3;
	st.global.b32 	[%rd4], %r4;
	ret;
}
"""
SUM = """
.visible .entry sum(
	.param .u64 .ptr .align 1 sum_param_0
)
{
	.reg .pred 	%p<2>;
	.reg .b32 	%r<8>;
	.reg .b64 	%rd<5>;

	ld.param.b64 	%rd1, [sum_param_0];
	mov.u32 	%r1, %tid.x;
	mov.b32 	%r2, 16;
	mov.b32 	%r6, %r1;
$L__BB0_1:
	shfl.sync.bfly.b32 	%r4, %r6, %r2, 31, -1;
	add.s32 	%r6, %r6, %r4;
	shr.u32 	%r2, %r2, 1;
	setp.ne.b32 	%p1, %r2, 0;
	@%p1 bra 	$L__BB0_1;
	mul.wide.u32 	%rd3, %r1, 4;
	add.s64 	%rd4, %rd1, %rd3;
	st.global.b32 	[%rd4], %r6;
	ret;
}
"""


BLOCKS = """
.visible .entry parts(
	.param .u64 .ptr .align 1 parts_param_0
)
{
	.reg .b32 	%r<4>;
	.reg .b64 	%rd<5>;

	ld.param.b64 	%rd1, [parts_param_0];
	mov.u32 	%r1, %ctaid.x;
	mul.wide.u32 	%rd3, %r1, 4;
	add.s64 	%rd4, %rd1, %rd3;
	mov.b32 	%r2, 7;
	st.global.b32 	[%rd4], %r2;
	ld.global.b32 	%r3, [%rd4];
	ret;
}
"""


def run(
    ptx: str,
    name: str,
    threads: int,
    result: np.ndarray,
    folder: Path,
    *,
    blocks: int = 1,
    launches: int = 1,
    is_written: bool = False,
) -> str:
    """Runs a kernel whose parameter is the result, which may be written before; returns the error."""
    program, driver = compile_ptx(HEAD + ptx, folder), ctypes.CDLL(str(build_driver(folder)))
    given = {"blocks": blocks, "launches": launches, "is_written": is_written}
    return run_kernel(driver, program, name, threads, result, **given)


def test_threads_exchange_through_shared_memory(machine_folder: Path) -> None:
    result = np.zeros(64, np.int32)
    assert run(TURN, "turn", 64, result, machine_folder) == ""
    np.testing.assert_array_equal(result, np.arange(64)[::-1])


def test_warp_sums_by_shuffles(machine_folder: Path) -> None:
    result = np.zeros(64, np.int32)
    assert run(SUM, "sum", 64, result, machine_folder) == ""
    np.testing.assert_array_equal(result, [496] * 32 + [496 + 1024] * 32)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bar.sync \t0;", "", "was never written: ld.shared"),
        ("sub.s32 \t%r3, 252", "sub.s32 \t%r3, 256", "shared address 256 is beyond 256"),
        ("sub.s32 \t%r3, 252", "sub.s32 \t%r3, 253", "not aligned to 4: ld.shared"),
        ("%r1, 4;", "%r1, 8;", "is outside of all allocations: st.global"),
        ("%r1, 4;", "%r1, 3;", "not aligned to 4: st.global"),
        ("st.global.b32 \t[%rd4], %r4", "ld.global.b32 \t%r4, [%rd4]", "was never written: ld.global"),
    ],
)
def test_fault_is_found(machine_folder: Path, old: str, new: str, message: str) -> None:
    assert old in TURN
    result = np.zeros(64, np.int32)
    assert message in run(TURN.replace(old, new), "turn", 64, result, machine_folder)


def test_threads_of_a_warp_that_part_before_a_shuffle(machine_folder: Path) -> None:
    text = SUM.replace("\tmov.b32 \t%r2, 16;", "\tmov.b32 \t%r2, 16;\n\tsetp.eq.b32 \t%p1, %r1, 3;\n\t@%p1 ret;")
    assert "deadlock" in run(text, "sum", 32, np.zeros(32, np.int32), machine_folder)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("%rd3, %r1, 4;", "%rd3, %r1, 0;", "block 0 has written address"),
        ("%r3, [%rd4];", "%r3, [%rd1];", "block 0 has written address"),
        ("ld.global.b32 \t%r3, [%rd4];", "ld.global.b32 \t%r3, [%rd4+4];", "another block has read address"),
    ],
    ids=["both write", "one reads after the other", "one writes after the other"],
)
def test_blocks_of_a_launch_have_no_order(machine_folder: Path, old: str, new: str, message: str) -> None:
    """The numbers are right in the order in which the blocks run here."""
    assert old in BLOCKS
    result = np.full(5, 7, np.int32)
    assert run(BLOCKS, "parts", 1, result, machine_folder, blocks=4, launches=2) == ""
    assert message in run(BLOCKS.replace(old, new), "parts", 1, result, machine_folder, blocks=4, is_written=True)
    np.testing.assert_array_equal(result, 7)


def test_comparisons_with_and_without_nan(machine_folder: Path) -> None:
    orders = [("-1", "less"), ("1", "equal"), ("2", "greater"), ("nan", "unordered")]
    holds = {"eq": "equal", "ne": "less greater", "lt": "less", "le": "less equal", "gt": "greater"}
    holds |= {"ge": "greater equal", "num": "less equal greater", "nan": "unordered"}
    holds |= {f"{name}u": f"{holds[name]} unordered" for name in ("eq", "ne", "lt", "le", "gt", "ge")}
    body = ".reg .pred %p<2>; .reg .b32 %r<3>; .reg .b64 %rd<2>;\nld.param.b64 %rd1, [compare_param_0];\n"
    numbers = [int(np.float32(number).view(np.uint32)) for number, _ in orders]
    # The second operand is a constant, and the first one a register or a constant.
    for n, (name, bits, is_register) in enumerate((c, b, r) for c in holds for b in numbers for r in (0, 1)):
        first = "%r1" if is_register else f"0f{bits:08X}"
        body += f"mov.b32 %r1, {bits}; setp.{name}.f32 %p1, {first}, 0f3F800000;\n"
        body += f"selp.b32 %r2, 1, 0, %p1; st.global.b32 [%rd1+{4 * n}], %r2;\n"
    kernel = f".visible .entry compare(\n.param .u64 .ptr .align 1 compare_param_0\n)\n{{\n{body}ret;\n}}\n"
    result = np.full(2 * len(holds) * len(orders), 7, np.int32)
    assert run(kernel, "compare", 1, result, machine_folder) == ""
    expected = [order in where.split() for where in holds.values() for _, order in orders]
    np.testing.assert_array_equal(result, np.repeat(expected, 2))


def test_instructions_of_one_form_share_a_function() -> None:
    """Registers, numbers and labels are operands: the C compiler would take seconds for a function of each kernel."""
    other = TURN.replace("%r4", "%r5").replace("252", "128").replace("entry turn(", "entry other(")
    (one,), (two,) = (translate(HEAD + text).kernels for text in (TURN, other))
    assert one.rows != two.rows and [form for form, _ in one.rows] == [form for form, _ in two.rows]


def test_unknown_instruction_is_refused() -> None:
    with pytest.raises(UnknownError, match=r"sad\.s32"):
        translate(HEAD + SUM.replace("add.s32 \t%r6, %r6, %r4", "sad.s32 \t%r6, %r6, %r4"))
