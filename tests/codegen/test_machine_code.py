"""What objects hold: the same bytes each time, entries and nothing else, calls of libc and libm alone, and dumps."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from nacre.compiler.artifact.link import find_linker, merge_objects
from nacre.compiler.codegen.jit import build_functions
from nacre.compiler.codegen.llvm.machine import Machine, Options, Pipeline
from nacre.compiler.codegen.objects import CodeGenerator, CodeOptions, generate_objects
from nacre.compiler.lower.module import lower_module
from nacre.compiler.lower.writer import ITEMS
from nacre.compiler.targets.target import Target
from nacre.dialect.dims import Symbol
from nacre.dialect.graph import Function, Module, Value
from nacre.dialect.operator import Builder
from nacre.dialect.ops import OPERATORS
from nacre.dialect.types import BF16, F16, F32, F64, FLOATS, I8, I32, I64, DType, TensorType

T = Symbol("T", 1, 512)


def module(*functions: Function) -> Module:
    return Module("m", (T,), (), functions)


def function(name: str, dtype: DType, write: Callable[[Builder, Value], Value]) -> Function:
    x = Value("x", TensorType(dtype, (T.size, 8)))
    b = Builder(OPERATORS, "t")
    result = write(b, x)
    return Function(name, (x,), tuple(b.nodes), (result,))


def busy(b: Builder, x: Value) -> Value:
    """Casts and functions, of which some are calls on some CPUs."""
    y = b.add(b.tanh(b.exp(x)), b.sqrt(b.abs(x)))
    y = b.add(y, b.floor(b.erf(y)))
    for dtype in (F16, BF16, F64, I8, I64, F32):
        y = b.cast(y, dtype=dtype)
    return b.cast(y, dtype=x.type.dtype)


def undefined_symbols(objects: Sequence[bytes], folder: Path) -> set[str]:
    path = folder / "merged.o"
    path.write_bytes(merge_objects(find_linker(), objects))
    done = subprocess.run(
        ["nm", "--undefined-only", "--format=posix", str(path)], check=True, capture_output=True, text=True
    )
    return {line.split()[0] for line in done.stdout.splitlines()}


def defined_symbols(objects: Sequence[bytes], folder: Path) -> dict[str, str]:
    path = folder / "merged.o"
    path.write_bytes(merge_objects(find_linker(), objects))
    done = subprocess.run(["readelf", "-sW", str(path)], check=True, capture_output=True, text=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return {r[7]: r[5] for r in rows if len(r) == 8 and r[4] == "GLOBAL" and r[6] != "UND"}


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs readelf")
def test_entries_and_kernels_are_hidden(tmp_path: Path) -> None:
    lowered = lower_module(module(function("f", F32, busy), function("g", F64, busy)))
    program, objects = generate_objects(lowered, CodeOptions(level=1))
    launchers = {call.signature.launcher for entry in program.entries for call in entry.calls}
    kernels = {symbol for kernel in lowered.kernels for symbol in (kernel.symbol, kernel.symbol + ITEMS)}
    entries = {f"{copy}nacre_entry_{name}" for copy in ("", "observed_") for name in "fg"}
    expected = {*entries, *kernels, *launchers}
    # The entries, their observed copies, and the launchers.
    assert len(objects) == len(lowered.kernels) + 2 + len(launchers)
    assert defined_symbols(objects, tmp_path) == dict.fromkeys(expected, "HIDDEN")


def instructions(b: Builder, x: Value) -> Value:
    for write in (b.round, b.floor, b.ceil, b.trunc, b.abs, b.sqrt):
        x = write(b.add(b.multiply(x, x), x))
    return b.cast(x, dtype=I8)


@pytest.mark.parametrize("cpu", ["x86-64-v3", "native"])
def test_single_instructions_are_not_calls(cpu: str, tmp_path: Path) -> None:
    lowered = lower_module(module(function("f", F32, instructions)))
    _, objects = generate_objects(lowered, CodeOptions((Target(cpu=cpu),)), tmp_path / "dump")
    assert undefined_symbols(objects, tmp_path) == set()
    # LLVM turns some calls back into instructions, but for one element each.
    (text,) = (path.read_text() for path in (tmp_path / "dump").glob("*llvm-dialect.mlir"))
    assert "llvm.intr.fabs" in text and "llvm.call @fabsf" not in text and "llvm.call @sqrtf" not in text


@pytest.mark.parametrize("cpu", ["x86-64-v3", "native"])
def test_only_libc_and_libm_are_called(cpu: str, tmp_path: Path) -> None:
    """No helper of a compiler's own library: instructions convert half floats, integer arithmetic bfloats."""
    functions = [function(f"f_{d}", d, busy) for d in FLOATS]
    lowered = lower_module(module(*functions))
    _, objects = generate_objects(lowered, CodeOptions((Target(cpu=cpu),), level=1))
    kernels = {symbol for kernel in lowered.kernels for symbol in (kernel.symbol, kernel.symbol + ITEMS)}
    libm = {f"{name}{suffix}" for name in ("tanh", "exp", "erf", "sqrt", "fabs", "floor") for suffix in ("", "f")}
    assert undefined_symbols(objects, tmp_path) - kernels <= libm | {
        "memset",
        "memcpy",
        "memmove",
        "_GLOBAL_OFFSET_TABLE_",
    }


def test_the_oldest_cpu_runs_it(tmp_path: Path) -> None:
    """Without instructions for half floats, what converts them comes from the compiler's static library."""
    m = module(function("f", F32, busy))
    x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(3, 8)
    (old,) = build_functions(m, target=Target(cpu="x86-64"))["f"]([x])
    (new,) = build_functions(m)["f"]([x])
    assert np.array_equal(old, new)


def test_code_is_the_same_each_time() -> None:
    lowered = lower_module(module(function("f", F32, busy), function("g", F16, busy)))
    options = CodeOptions((Target(cpu="x86-64-v3"),), cache=False)
    assert generate_objects(lowered, options)[1] == generate_objects(lowered, options)[1]


@pytest.mark.parametrize("level", [0, 2])
def test_dumps_tell_every_stage(tmp_path: Path, level: int) -> None:
    lowered = lower_module(module(function("f", F32, busy)))
    generate_objects(lowered, CodeOptions(level=level), tmp_path / "a")
    generate_objects(lowered, CodeOptions(level=level), tmp_path / "b")
    names = sorted(p.name for p in (tmp_path / "a").iterdir())
    stages = [name.split("-", 1)[1] for name in names]
    expected = [
        "linalg.mlir",
        "bufferized.mlir",
        "loops.mlir",
        "llvm-dialect.mlir",
        "llvm-ir.ll",
        "optimized.ll",
        "assembly.s",
    ]
    assert [s for s in stages if s in expected] == expected
    assert [int(name.split("-")[0]) for name in names] == list(range(len(names)))
    for name in names:
        assert (tmp_path / "a" / name).read_text() == (tmp_path / "b" / name).read_text()


def test_times_name_the_stages() -> None:
    generator = CodeGenerator(CodeOptions(level=0, cache=False))
    generator.compile_kernels(lower_module(module(function("f", F32, busy))))
    expected = {"linalg", "bufferized", "loops", "llvm-dialect", "literals", "optimize", "emit"}
    assert expected <= set(generator.times)
    assert all(seconds >= 0 for seconds in generator.times.values())


CHOICE = """
define float @choose(float %x, float %y, ptr %at) {
  %is_less = fcmp ole float %x, %y
  %next = getelementptr float, ptr %at, i64 1
  %second = load float, ptr %next
  %first = load float, ptr %at
  %chosen = select i1 %is_less, float %second, float %first
  ret float %chosen
}
define float @choose_other(float %x, float %y, ptr %at) {
  %is_less = fcmp ole float %x, %y
  %next = getelementptr float, ptr %at, i64 1
  %first = load float, ptr %at
  %second = load float, ptr %next
  %chosen = select i1 %is_less, float %second, float %first
  ret float %chosen
}
"""


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_choice_reads_no_more_than_its_elements(level: int) -> None:
    machine = Machine(Target("x86-64-v3"), Options(level))
    text = machine.emit_assembly(machine.parse(CHOICE))
    assert text.count("ss\t") >= 2  # instructions of single numbers
    # In memory, the operand of a blend has 16 bytes.
    assert not [line for line in text.splitlines() if "vblendvps" in line and "(%r" in line]


@pytest.mark.parametrize(("size", "short"), [(1 << 20, True), (1 << 33, False)])
def test_gathers_in_small_tensors_take_short_indices(size: int, short: bool, tmp_path: Path) -> None:
    """One instruction loads 16 elements whose distances fit 32 bits, and 8 others. LLVM does not find it out where the
    index is compared with the size, and 0 takes its place."""
    inputs = [Value("x", TensorType(F32, (size,))), Value("i", TensorType(I64, (32,)))]
    b = Builder(OPERATORS, "t")
    (result,) = b.apply("gather", inputs, {"mode": "watch"})
    flags = b.check_indices(inputs[1], sizes=(size,), operator="gather", window=1, deferred=True)
    m = Module("m", (), (), (Function("f", tuple(inputs), tuple(b.nodes), (result, flags)),))
    generate_objects(lower_module(m), CodeOptions((Target(cpu="sapphirerapids"),)), tmp_path)
    (assembly,) = tmp_path.glob("*-assembly.s")
    text = assembly.read_text()
    assert ("vgatherdps" in text, "vgatherqps" in text) == (short, not short)


def test_alarms_are_set_under_a_branch(tmp_path: Path) -> None:
    """LLVM's vectorizer would set the alarm by a masked scatter in each step of a loop."""
    types = ((F32, (8, 1024)), (I64, (8, 256)), (F32, (8, 256)))
    inputs = [Value(f"x{i}", TensorType(*kind)) for i, kind in enumerate(types)]
    b = Builder(OPERATORS, "t")
    (result,) = b.apply("scatter", inputs, {"axis": 1, "mode": "watch"})
    flags = b.check_indices(inputs[1], sizes=(1024,), operator="scatter", window=1, deferred=True)
    m = Module("m", (), (), (Function("f", tuple(inputs), tuple(b.nodes), (result, flags)),))
    generate_objects(lower_module(m), CodeOptions((Target(cpu="x86-64-v4"),)), tmp_path)
    text = "".join(path.read_text() for path in tmp_path.glob("*-assembly.s"))
    assert "movq\t$1, (" in text and "vscatter" not in text and "vpscatter" not in text


TREE_TYPES: tuple[tuple[DType, tuple[int, ...]], ...] = (
    *((F64, (33, 4)), (F64, (4, 255)), (I32, (4,)), (I32, (4,))),
    *((I32, (1, 5, 3)), (I8, (1, 5, 3)), (I32, (1, 5)), (I64, (0,)), (F64, (20,)), (F64, (2, 1, 32))),
)
"""The operands of `feature_ranks` and those of `ranked_trees`: 5 trees of 3 nodes for 33 rows."""


@pytest.mark.parametrize(
    ("cpu", "gathers"), [("cascadelake", False), ("x86-64-v4", False), ("sapphirerapids", True), ("x86-64-v3", False)]
)
def test_trees_avoid_slow_instructions(cpu: str, gathers: bool, tmp_path: Path) -> None:
    """Bytes are compared into vectors, their lanes are loaded from memory, and elements are gathered where that is
    fast. The registers for masks still serve comparisons of floats."""
    inputs = [Value(f"x{i}", TensorType(*kind)) for i, kind in enumerate(TREE_TYPES)]
    b = Builder(OPERATORS, "t")
    x, thresholds, feature, flags, column, border, first, nodes, values, initial = inputs
    ranks = b.feature_ranks(x, thresholds, feature, flags)
    total = b.ranked_trees(ranks, column, border, first, nodes, values, initial)
    own = b.row_ranks(x, thresholds, feature, flags)
    m = Module("m", (), (), (Function("f", tuple(inputs), tuple(b.nodes), (total, own)),))
    generate_objects(lower_module(m), CodeOptions((Target(cpu=cpu),)), tmp_path)
    (assembly,) = tmp_path.glob("*-assembly.s")
    text = assembly.read_text()
    byte_comparisons = [line for line in text.splitlines() if "vpcmpgtb" in line]
    assert len(byte_comparisons) >= 3 and not [line for line in byte_comparisons if "%k" in line]
    (walk,) = re.findall(r"^ranked_trees_[0-9a-f]+:(.*?)\bret", text, re.MULTILINE | re.DOTALL)
    assert "vpcmpgtb" in walk and "vpextrb" not in walk
    assert ("vgather" in text) == gathers


_PRODUCT = """
define float @product(ptr %p, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %before = phi float [ 1.0, %entry ], [ %after, %loop ]
  %address = getelementptr float, ptr %p, i64 %i
  %x = load float, ptr %address
  %after = fmul float %before, %x
  %next = add nuw nsw i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret float %after
}
"""


def test_scalar_loops_are_unrolled_from_level_2_on() -> None:
    products = {}
    for level in (1, 2):
        machine = Machine(Target("x86-64-v3", "x86_64-unknown-linux-gnu"), Options(level))
        module = machine.parse(_PRODUCT)
        machine.optimize(module, Pipeline.LOOPS)
        products[level] = str(module).count(" fmul ")
    assert products[1] == 1
    assert products[2] > 4
