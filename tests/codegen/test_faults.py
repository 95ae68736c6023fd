"""What happens when MLIR or LLVM fail, abort or hang: a fault that names the kernel, and a folder to show it again."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nacre.compiler.base.compiler_errors import CompilerError
from nacre.compiler.codegen import objects
from nacre.compiler.codegen.objects import CodeGenerator, CodeOptions, generate_objects
from nacre.compiler.codegen.workers.child import Children
from nacre.compiler.host.plan import EntryModule
from nacre.compiler.lower.lowered import Lowered, LoweredKernel
from nacre.compiler.lower.writer import NAME, Kernel
from nacre.compiler.targets.target import Target

GOOD = """func.func @{name}(%p: memref<f32>, %b: index, %e: index) {{
  %c = arith.constant 1.0 : f32
  memref.store %c, %p[] : memref<f32>
  return
}}
"""
# LLVM ends the process at an intrinsic that the target does not have.
ABORTING = """func.func @{name}(%p: memref<i32>, %b: index, %e: index) {{
  %t = llvm.call_intrinsic "llvm.nvvm.read.ptx.sreg.tid.x"() : () -> i32
  memref.store %t, %p[] : memref<i32>
  return
}}
"""
ALLOCATING = """func.func @{name}(%p: memref<4xf32>, %b: index, %end: index) {{
  %e = tensor.empty() : tensor<4xf32>
  %c = arith.constant 1.0 : f32
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %t = bufferization.to_tensor %p restrict writable : memref<4xf32> to tensor<4xf32>
  bufferization.materialize_in_destination %f in restrict writable %p : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}}
"""
MALFORMED = "func.func @{name}(%p: memref<f32>, %b: index, %e: index) {{ %c = arith.constant 1 : f32 return }}\n"
UNKNOWN = """func.func @{name}(%p: memref<f32>, %b: index, %e: index) {{
  gpu.barrier
  return
}}
"""


def program(bad: str, at: int, count: int) -> Lowered:
    """A function that calls so many kernels, of which one is bad."""
    texts = [(bad if i == at else GOOD).format(name=NAME.removeprefix("@")) for i in range(count)]
    kernels = [LoweredKernel(f"kernel_{i}", Kernel(text, (), (), (), ()), ()) for i, text in enumerate(texts)]
    return Lowered("m", tuple(kernels), (), ())


@pytest.fixture
def faults() -> Iterator[list[CompilerError]]:
    """Faults whose folders are removed after the test."""
    found: list[CompilerError] = []
    yield found
    for fault in found:
        shutil.rmtree(fault.reproducer)


def error_of(bad: Lowered, faults: list[CompilerError], timeout: float = 60) -> CompilerError:
    with pytest.raises(CompilerError) as caught:
        CodeGenerator(CodeOptions((Target("x86-64-v3"),), 1, timeout, cache=False)).compile_kernels(bad)
    faults.append(caught.value)
    return caught.value


def rerun(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", str(folder / "rerun.sh")], capture_output=True, text=True)


def test_an_abort_is_a_fault(faults: list[CompilerError]) -> None:
    fault = error_of(program(ABORTING, 2, 5), faults)
    assert fault.exit_code == 70 and fault.kernel == "kernel_2" and "SIGABRT" in fault.what
    assert fault.stage == "emit" and "kernel_2" in str(fault) and str(fault.reproducer) in str(fault)
    assert "@kernel_2(" in (fault.reproducer / "kernel.mlir").read_text()
    assert "llvmlite" in (fault.reproducer / "versions.txt").read_text()
    again = rerun(fault.reproducer)
    assert again.returncode != 0 and "tid.x" in again.stderr
    assert "tid.x" in (fault.reproducer / "dump" / "optimized.ll").read_text()


@pytest.mark.parametrize(
    ("bad", "stage", "words"),
    [
        (ALLOCATING, "bufferized", "kernel_1: bufferization made"),
        (MALFORMED, "linalg", "unexpected decimal integer literal"),
        (UNKNOWN, "llvm-dialect", "kernel_1: `gpu.barrier` has no lowering"),
    ],
    ids=["allocation", "malformed", "unknown"],
)
def test_a_failing_stage_is_a_fault(bad: str, stage: str, words: str, faults: list[CompilerError]) -> None:
    fault = error_of(program(bad, 1, 3), faults)
    assert (fault.kernel, fault.stage) == ("kernel_1", stage) and words in fault.what, fault
    assert rerun(fault.reproducer).returncode == 1


def test_entries_that_do_not_fit_are_a_fault_of_no_kernel(
    faults: list[CompilerError], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = EntryModule(("entry",), "define void @entry() { nonsense }")
    monkeypatch.setattr(objects, "entry_modules", lambda *_, **__: [bad])
    with pytest.raises(CompilerError) as caught:
        generate_objects(program(GOOD, 0, 2), CodeOptions(level=1))
    faults.append(caught.value)
    assert caught.value.kernel == "" and caught.value.stage == "llvm-ir"
    assert rerun(caught.value.reproducer).returncode == 1


def test_a_hang_is_a_fault(faults: list[CompilerError]) -> None:
    # For one block of so many operations, LLVM takes many times the limit: the time of its scheduler is quadratic.
    steps = "".join(f"  %x{i + 1} = arith.mulf %x{i}, %x{i // 2} : f32\n" for i in range(40_000))
    load, store = "%x0 = memref.load %p[] : memref<f32>", "memref.store %x40000, %p[] : memref<f32>"
    slow = f"func.func @{{name}}(%p: memref<f32>, %b: index, %e: index) {{{{\n{load}\n{steps}{store}\nreturn\n}}}}\n"
    fault = error_of(program(slow, 0, 1), faults, timeout=0.5)
    assert "within 0.5 seconds" in fault.what
    assert rerun(fault.reproducer).returncode == 124  # as `timeout` ends


class SlowChild:
    """A child that answers each job after a while."""

    def __init__(self, seconds: float) -> None:
        self.seconds, (reader, self._writer) = seconds, os.pipe()
        self.answers = os.fdopen(reader, "rb", buffering=0)
        self._answer = threading.Timer(0, lambda: None)

    def send(self, source: object) -> None:
        self._answer.cancel()
        self._answer = threading.Timer(self.seconds, os.write, (self._writer, b"."))
        self._answer.start()

    def outcome(self) -> bytes:
        return self.answers.read(1)

    def failed(self, why: str) -> str:
        return why

    def close(self) -> None:
        self._answer.cancel()
        if self._answer.is_alive():
            self._answer.join()
        self.answers.close()
        os.close(self._writer)


def test_the_time_limit_is_one_of_each_job() -> None:
    message: list[object] = []
    children: Any = Children([SlowChild(0.2)])  # type: ignore[list-item]  # a part of one
    children.run([None] * 8, 1.2, lambda _, outcome: message.append(outcome))
    children.close()
    assert message == [b"."] * 8
    children = Children([SlowChild(0.01), SlowChild(5)])  # type: ignore[list-item]
    children.run([None] * 40, 0.5, lambda number, outcome: message.append((number, outcome)))
    children.close()
    assert message[-1] == (1, "no answer within 0.5 seconds")


def test_one_child_does_many_kernels_and_ends_at_the_first_fault(faults: list[CompilerError]) -> None:
    fault = error_of(program(MALFORMED, 30, 40), faults)
    assert fault.kernel == "kernel_30"


def test_nothing_is_left_behind_without_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    generator = CodeGenerator(CodeOptions(level=1, cache=False))
    code = generator.compile_entries(generator.compile_kernels(program(GOOD, 0, 2)))
    assert len(code) == 2 and all(c.startswith(b"\x7fELF") for c in code)
    assert generator.times.keys() >= {"linalg", "optimize", "emit"}
    assert list(tmp_path.iterdir()) == []
