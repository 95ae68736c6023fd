"""Every instruction computes its meaning, on CPUs that have it."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import ml_dtypes
import nacre.compiler
import numpy as np
import pytest
from differential.emulated import HOST, emulate
from nacre.compiler.codegen.isa import INSTRUCTIONS, Instruction, find
from nacre.compiler.codegen.isa.instruction import WIDTHS, ZERO

LLVM_TYPES = {"bf16": "bfloat", "f32": "float", "f64": "double"}
NUMPY: dict[str, Any] = {
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "f32": np.float32,
    "f64": np.float64,
    "bf16": np.dtype(ml_dtypes.bfloat16),
}
ROUNDS = 200


def llvm_type(instruction: Instruction, element: str) -> str:
    return f"<{instruction.lanes * 32 // WIDTHS[element]} x {LLVM_TYPES.get(element, element)}>"


def llvm_text(instruction: Instruction) -> str:
    """A function that reads the operands from memory and writes the result."""
    result = llvm_type(instruction, instruction.result)
    types = [llvm_type(instruction, element) for element in instruction.operands]
    pointers = ", ".join(f"ptr %p{n}" for n in range(len(types)))
    loads = [f"%v{n} = load {type}, ptr %p{n}, align 1" for n, type in enumerate(types)]
    constants = [
        f"{result} zeroinitializer" if t == ZERO else " ".join(t.split(" : ")[::-1]) for t in instruction.trailing
    ]
    operands = ", ".join([*(f"{type} %v{n}" for n, type in enumerate(types)), *constants])
    lines = [*loads, f"%r = call {result} @{instruction.intrinsic}({operands})"]
    lines += [f"store {result} %r, ptr %out, align 1", "ret void"]
    declared = ", ".join([*types, *(c.split(" zero")[0] if "zero" in c else c.split(" ")[0] for c in constants)])
    head = f"declare {result} @{instruction.intrinsic}({declared})\ndefine void @f({pointers}, ptr %out) {{"
    return "\n  ".join([head, *lines]) + "\n}"


def runs_here(instruction: Instruction) -> bool:
    if not instruction.intrinsic.startswith("llvm.x86.") or not llvm.get_process_triple().startswith("x86_64"):
        return False
    there = {name for name, has in llvm.get_host_cpu_features().items() if has}
    widest = {4: "sse2", 8: "avx2", 16: "avx512f"}[instruction.lanes]
    return {*instruction.needs, widest} <= there


def operand(element: str, count: int, random: np.random.Generator, name: str) -> Any:
    if element in ("f32", "f64", "bf16"):
        return (random.standard_normal(count) * 100).astype(NUMPY[element])
    if name == "look-up":
        return random.integers(0, 16, count).astype(np.int32)
    info = np.iinfo(NUMPY[element])
    return random.integers(info.min // 2 if element == "i32" else info.min, info.max // 2, count).astype(NUMPY[element])


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=lambda i: i.intrinsic)
def test_meaning(instruction: Instruction) -> None:
    if not runs_here(instruction):
        pytest.skip(f"this CPU lacks {', '.join(sorted(instruction.needs))}")
    check(instruction, llvm_text(instruction))


@pytest.mark.skipif(not HOST.runs_here, reason=f"emulation needs {HOST.name}")
@pytest.mark.parametrize("intrinsic", sorted({i.intrinsic for i in INSTRUCTIONS if ".avx512" in i.intrinsic}))
def test_emulation_computes_the_meaning(intrinsic: str) -> None:
    """Tests of other variants rely on it."""
    instruction = next(i for i in INSTRUCTIONS if i.intrinsic == intrinsic)
    text = emulate(llvm_text(instruction))
    assert "llvm.x86" not in text
    check(instruction, text)


def check(instruction: Instruction, text: str) -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=str(llvm.get_host_cpu_features().flatten())
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(instruction.operands) + 1))(engine.get_function_address("f"))
    random = np.random.default_rng(0)
    for _ in range(ROUNDS):
        counts = [instruction.lanes * 32 // WIDTHS[element] for element in instruction.operands]
        given = [
            operand(element, count, random, instruction.operation)
            for element, count in zip(instruction.operands, counts, strict=True)
        ]
        expected = instruction.meaning(*given)
        actual = np.zeros(instruction.lanes * 32 // WIDTHS[instruction.result], NUMPY[instruction.result])
        run(*(array.ctypes.data for array in (*given, actual)))
        if instruction.result == "f32":
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-2)
        else:
            np.testing.assert_array_equal(actual, expected)


def test_an_instruction_is_found_by_features_and_lanes() -> None:
    features = {"sse2", "fma", "avxvnni"}
    assert (found := find("dot-bytes", 8, features)) is not None and found.intrinsic.endswith("vpdpbusd.256")
    assert find("dot-bytes", 16, features) is None
    assert find("nearest", 4, {"fma"}) is None


def test_no_other_file_names_an_intrinsic_of_an_architecture() -> None:
    root = Path(nacre.compiler.__file__).parent
    own = re.compile(r"llvm\.(x86|aarch64|arm|riscv|wasm)\.")
    found = {path.relative_to(root) for path in root.rglob("*.py") if own.search(path.read_text(encoding="utf-8"))}
    isa = Path("codegen", "isa")
    assert found == {isa / "amx.py", isa / "neon.py", isa / "x86.py"}
