"""Masked stores of one lane write one element: LLVM alone would write an element of the type before a `trunc`."""

from __future__ import annotations

import ctypes
import itertools

import llvmlite.binding as llvm  # type: ignore[import-untyped]  # has no stubs
import pytest
from nacre.compiler.codegen.llvm.machine import Machine, Options, create_target_machine
from nacre.compiler.codegen.llvm.single_lanes import rewrite_single_lanes
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.validate.guarded_memory import Memory
from nacre.compiler.validate.isolated import run_isolated

LANES = 16
PAIRS = [pair[::-1] for pair in itertools.combinations((1, 2, 4, 8), 2)]
STORE = """
define void @narrow_{wide}_{narrow}_{lane}(ptr %from, ptr %to) {{
  %wide = load <16 x i{wide}>, ptr %from, align 1
  %narrow = trunc <16 x i{wide}> %wide to <16 x i{narrow}>
  tail call void @llvm.masked.store.v16i{narrow}.p0(<16 x i{narrow}> %narrow, ptr align 1 %to, <16 x i1> <{mask}>)
  ret void
}}
"""
DECLARATION = "declare void @llvm.masked.store.v16i{0}.p0(<16 x i{0}>, ptr, <16 x i1>)"


def module_text(lane: int) -> str:
    mask = ", ".join("i1 true" if i == lane else "i1 false" for i in range(LANES))
    stores = (STORE.format(wide=8 * wide, narrow=8 * narrow, lane=lane, mask=mask) for wide, narrow in PAIRS)
    return "\n".join([*stores, *(DECLARATION.format(bits) for bits in (8, 16, 32))])


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3"])
def test_one_element_is_written(cpu: str) -> None:
    (target,) = parse_targets(cpu)
    if not target.runs_here:
        pytest.skip(f"this CPU does not run {cpu}")
    machine = Machine(target, Options())
    texts = {lane: rewrite_single_lanes(module_text(lane)) for lane in (0, 1, LANES - 1)}
    assert not any("call" in text for text in texts.values())
    modules = {lane: machine.parse(text) for lane, text in texts.items()}
    # An engine destroys its machine.
    engines = {
        lane: llvm.create_mcjit_compiler(module, create_target_machine(target, Options().level))
        for lane, module in modules.items()
    }

    def write(lane: int, wide: int, narrow: int) -> bool:
        """Is the lane written to the last element before an unmapped page, and nothing else?"""
        memory = Memory({"from": LANES * wide, "to": (lane + 1) * narrow}, at_end=True, alignments={})
        source, result = memory.buffers["from"], memory.buffers["to"]
        source.data[:] = range(1, source.data.size + 1)
        result.data[:] = 0
        address = engines[lane].get_function_address(f"narrow_{8 * wide}_{8 * narrow}_{lane}")
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)(source.address, result.address)
        expected = bytes(lane * narrow) + source.data[lane * wide :][:narrow].tobytes()
        return memory.check() is None and result.data.tobytes() == expected

    cases = [(lane, *pair) for lane in texts for pair in PAIRS]
    answers = run_isolated([lambda tell, case=case: write(*case) for case in cases])
    wrong = {case: answer for case, answer in zip(cases, answers, strict=True) if answer is not True}
    assert not wrong


def line(mask: str, rest: str = "", value: str = "%7") -> str:
    return f"  call void @llvm.masked.store.v2i8.p0(<2 x i8> {value}, ptr align 4 %1, <2 x i1> {mask}){rest}"


def test_locations_and_alignments_are_kept() -> None:
    assert rewrite_single_lanes(line("<i1 true, i1 false>", " #3, !dbg !12")).splitlines() == [
        "  %one.0.value = extractelement <2 x i8> %7, i64 0, !dbg !12",
        "  %one.0.address = getelementptr i8, ptr %1, i64 0, !dbg !12",
        "  store i8 %one.0.value, ptr %one.0.address, align 4, !dbg !12",
    ]
    assert rewrite_single_lanes(line("<i1 false, i1 true>")).splitlines()[-1].endswith("align 1")


@pytest.mark.parametrize("mask", ["<i1 true, i1 true>", "%5", "zeroinitializer", "<i1 false, i1 false>"])
def test_other_masks_stay(mask: str) -> None:
    assert rewrite_single_lanes(line(mask)) == line(mask)
