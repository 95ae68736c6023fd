"""Code for CPU variants that this machine lacks, made to run on it.

Kernels are tiled for the variant, with its vectors, masks and instructions, down to LLVM IR. There, each intrinsic that
only the variant has becomes a function with the meaning that `compiler/codegen/isa/` states, and LLVM compiles
vectors of 512 bits as pairs of 256 bits. So the schedules of a variant are tested, and the numbers that they give; the
instructions that LLVM selects for the variant are not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module

from nacre.compiler.codegen.objects import (
    CodeGenerator,
    CodeOptions,
    ObjectCode,
    Program,
    generate_objects,
    plan_program,
)
from nacre.compiler.codegen.workers.child import Source
from nacre.compiler.codegen.workers.job import Report
from nacre.compiler.codegen.workers.messages import Request
from nacre.compiler.codegen.workers.routes import LLVM_IR
from nacre.compiler.codegen.workers.serve import Task
from nacre.compiler.dumps.kernel_texts import Part
from nacre.compiler.host.plan import entry_modules
from nacre.compiler.lower.lowered import Lowered, LoweredKernel
from nacre.compiler.targets.target import Target
from nacre.compiler.validate.isolated import Progress, run_isolated

HOST = Target("x86-64-v3")
"""The variant that emulates the others: it has FMA, so that products are rounded as there."""

_MOST_SECONDS = 900.0
"""For the tiling of a kernel. The longest one takes ten seconds of CPU time, and the machine may be busy."""

_NAME = r"@(llvm\.x86\.(?:avx512|tile|ldtilecfg|tdp)[\w.]*)\("
_CALLED = re.compile(_NAME)
_DECLARED = re.compile(rf"^declare .*{_NAME}.*$", re.MULTILINE)


def generate_for_here(lowered: Lowered, options: CodeOptions) -> tuple[Program, tuple[bytes, ...]]:
    """Generates objects that this CPU can run; only one target may be one that it cannot run itself."""
    if all(target.runs_here for target in options.targets):
        return generate_objects(lowered, options)
    return generate_emulated(lowered, options)


@dataclass(frozen=True, slots=True)
class Tiled:
    """A kernel in LLVM IR, and the report on it."""

    text: str
    report: Report


def tile_for(kernels: Sequence[LoweredKernel], options: CodeOptions) -> dict[str, Tiled]:
    """Returns the kernels for the only target of the options, by symbol. LLVM makes no code of them."""
    (target,) = options.targets
    generator = CodeGenerator(options)
    sources = [generator._source(kernel, target) for kernel in kernels]
    made = run_isolated([partial(_tile, source) for source in sources], _MOST_SECONDS)
    tiled = {kernel.symbol: each for kernel, each in zip(kernels, made, strict=True)}
    for symbol, each in tiled.items():
        assert isinstance(each, Tiled), (symbol, each)
    return tiled  # type: ignore[return-value]  # checked above


def _tile(source: Source, tell: Progress) -> Tiled:
    tell(source.kernel)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)  # the worker reports its stages there
    # A fork imports MLIR, not the process of the tests.
    worker = import_module("nacre.compiler.codegen.workers.kernel_worker")
    task = Task(Request(source.job, source.files))
    text = worker.lower_kernel(task)
    return Tiled(text, task.report)


def generate_emulated(lowered: Lowered, options: CodeOptions) -> tuple[Program, tuple[bytes, ...]]:
    """Generates objects for the only target of the options, to be run on `HOST`."""
    (target,) = options.targets
    tiled = tile_for(lowered.kernels, options)
    program = plan_program(lowered, {target: {s: ObjectCode(b"", each.report) for s, each in tiled.items()}})
    parts = {symbol: each.report.parts for symbol, each in tiled.items()}
    given = {
        symbol: Part(emulate(each.text), symbol, (), each.report.schedules, functions=each.report.parts)
        for symbol, each in tiled.items()
    }
    for each in entry_modules(program.entries, "", parts, watched=not options.visible):
        given[each.symbols[0]] = Part(each.text, each.symbols[0], kind="entries")
    second = CodeGenerator(replace(options, targets=(HOST,), start=LLVM_IR), given=given)
    emulated = second.compile_kernels(lowered)
    return emulated, second.compile_entries(emulated)


def emulate(text: str) -> str:
    """Returns LLVM IR in which functions take the place of instructions that `HOST` lacks."""
    names = sorted(set(_CALLED.findall(text)))
    text = _CALLED.sub(lambda found: f"@{_emulated(found[1])}(", _DECLARED.sub("", text))
    tiles = [_TILES] if any("ldtilecfg" in name for name in names) else []
    return "\n".join([text, *tiles, *(_define(name) for name in names)])


def _emulated(name: str) -> str:
    return name.replace("llvm.x86", "emulated")


def _define(name: str) -> str:
    for pattern, define in _DEFINITIONS.items():
        if found := re.fullmatch(pattern, name):
            bits = int(found[1]) if found.groups() else 512
            return define(f"@{_emulated(name)}", bits // 32)
    raise KeyError(f"{name} has no definition here")


def _dot_bytes(name: str, lanes: int) -> str:
    bytes, sums = f"<{4 * lanes} x i8>", f"<{lanes} x i32>"
    parts = "\n".join(
        f"  %u{n} = lshr {sums} %x, splat (i32 {8 * n})\n"
        f"  %x{n} = and {sums} %u{n}, splat (i32 255)\n"
        f"  %v{n} = shl {sums} %y, splat (i32 {24 - 8 * n})\n"
        f"  %y{n} = ashr {sums} %v{n}, splat (i32 24)\n"
        f"  %p{n} = mul {sums} %x{n}, %y{n}\n"
        f"  %s{n} = add {sums} %{'total' if n == 0 else f's{n - 1}'}, %p{n}"
        for n in range(4)
    )
    return f"""
define internal {sums} {name}({sums} %total, {bytes} %a, {bytes} %b) noinline {{
  %x = bitcast {bytes} %a to {sums}
  %y = bitcast {bytes} %b to {sums}
{parts}
  ret {sums} %s3
}}"""


def _multiply_pairs(name: str, lanes: int) -> str:
    halves, sums = f"<{2 * lanes} x i16>", f"<{lanes} x i32>"
    split = "\n".join(
        f"  %{v}words = bitcast {halves} %{v} to {sums}\n"
        f"  %{v}moved = shl {sums} %{v}words, splat (i32 16)\n"
        f"  %{v}even = ashr {sums} %{v}moved, splat (i32 16)\n"
        f"  %{v}odd = ashr {sums} %{v}words, splat (i32 16)"
        for v in "ab"
    )
    return f"""
define internal {sums} {name}({halves} %a, {halves} %b) noinline {{
{split}
  %even = mul {sums} %aeven, %beven
  %odd = mul {sums} %aodd, %bodd
  %sums = add {sums} %even, %odd
  ret {sums} %sums
}}"""


def _dot_bfloats(name: str, lanes: int) -> str:
    """Denormal factors and sums count as zero, as in the instruction."""
    halves, words, sums = f"<{2 * lanes} x bfloat>", f"<{lanes} x i32>", f"<{lanes} x float>"

    def flushed(source: str, result: str) -> str:
        return (
            f"  %{result}exponents = and {words} %{source}, splat (i32 {0x7F800000})\n"
            f"  %{result}normal = icmp ne {words} %{result}exponents, zeroinitializer\n"
            f"  %{result}kept = select <{lanes} x i1> %{result}normal, {words} %{source}, {words} zeroinitializer\n"
            f"  %{result} = bitcast {words} %{result}kept to {sums}\n"
        )

    split = "".join(
        f"  %{v}words = bitcast {halves} %{v} to {words}\n"
        f"  %{v}low = shl {words} %{v}words, splat (i32 16)\n"
        f"  %{v}high = and {words} %{v}words, splat (i32 -65536)\n"
        f"{flushed(f'{v}low', f'{v}even')}{flushed(f'{v}high', f'{v}odd')}"
        for v in "ab"
    )
    return f"""
define internal {sums} {name}({sums} %total, {halves} %a, {halves} %b) noinline {{
{split}
  %even = fmul {sums} %aeven, %beven
  %odd = fmul {sums} %aodd, %bodd
  %pairs = fadd {sums} %even, %odd
  %sums = fadd {sums} %total, %pairs
  %sumwords = bitcast {sums} %sums to {words}
{flushed("sumwords", "result")}
  ret {sums} %result
}}"""


def _nearest(name: str, lanes: int) -> str:
    floats, words = f"<{lanes} x float>", f"<{lanes} x i32>"
    return f"""
declare {floats} @llvm.rint.v{lanes}f32({floats})
declare {floats} @llvm.fabs.v{lanes}f32({floats})
define internal {words} {name}({floats} %x, {words} %masked, i16 %mask, i32 %mode) noinline {{
  %whole = call {floats} @llvm.rint.v{lanes}f32({floats} %x)
  %size = call {floats} @llvm.fabs.v{lanes}f32({floats} %whole)
  %fits = fcmp olt {floats} %size, splat (float 0x41E0000000000000)
  %number = fptosi {floats} %whole to {words}
  %result = select <{lanes} x i1> %fits, {words} %number, {words} splat (i32 -2147483648)
{_where_asked(words, lanes)}
}}"""


def _scale_by_power(name: str, lanes: int) -> str:
    """The product with a power of two is exact in f64, and rounded once."""
    floats, doubles, longs = f"<{lanes} x float>", f"<{lanes} x double>", f"<{lanes} x i64>"
    return f"""
declare {floats} @llvm.floor.v{lanes}f32({floats})
declare {floats} @llvm.minnum.v{lanes}f32({floats}, {floats})
declare {floats} @llvm.maxnum.v{lanes}f32({floats}, {floats})
define internal {floats} {name}({floats} %x, {floats} %n, {floats} %masked, i16 %mask, i32 %mode) noinline {{
  %whole = call {floats} @llvm.floor.v{lanes}f32({floats} %n)
  %most = call {floats} @llvm.minnum.v{lanes}f32({floats} %whole, {floats} splat (float 300.0))
  %power = call {floats} @llvm.maxnum.v{lanes}f32({floats} %most, {floats} splat (float -300.0))
  %number = fptosi {floats} %power to {longs}
  %biased = add {longs} %number, splat (i64 1023)
  %bits = shl {longs} %biased, splat (i64 52)
  %factor = bitcast {longs} %bits to {doubles}
  %wide = fpext {floats} %x to {doubles}
  %product = fmul {doubles} %wide, %factor
  %result = fptrunc {doubles} %product to {floats}
{_where_asked(floats, lanes)}
}}"""


def _scale_doubles_by_power(name: str, lanes: int) -> str:
    """The first of two products is exact unless it leaves the range of f64, and the second one is rounded."""
    count = lanes // 2
    doubles, longs = f"<{count} x double>", f"<{count} x i64>"
    return f"""
declare {doubles} @llvm.floor.v{count}f64({doubles})
declare {doubles} @llvm.minnum.v{count}f64({doubles}, {doubles})
declare {doubles} @llvm.maxnum.v{count}f64({doubles}, {doubles})
define internal {doubles} {name}({doubles} %x, {doubles} %n, {doubles} %masked, i8 %mask, i32 %mode) noinline {{
  %whole = call {doubles} @llvm.floor.v{count}f64({doubles} %n)
  %most = call {doubles} @llvm.minnum.v{count}f64({doubles} %whole, {doubles} splat (double 2000.0))
  %power = call {doubles} @llvm.maxnum.v{count}f64({doubles} %most, {doubles} splat (double -2000.0))
  %number = fptosi {doubles} %power to {longs}
  %half = ashr {longs} %number, splat (i64 1)
  %rest = sub {longs} %number, %half
  %biased = add {longs} %half, splat (i64 1023)
  %bits = shl {longs} %biased, splat (i64 52)
  %factor = bitcast {longs} %bits to {doubles}
  %other_biased = add {longs} %rest, splat (i64 1023)
  %other_bits = shl {longs} %other_biased, splat (i64 52)
  %other = bitcast {longs} %other_bits to {doubles}
  %product = fmul {doubles} %x, %factor
  %result = fmul {doubles} %product, %other
{_where_asked(doubles, count)}
}}"""


def _where_asked(type: str, lanes: int) -> str:
    """Returns `%result` in the lanes of `%mask`, and `%masked` in the others."""
    return f"""  %asked = bitcast i{lanes} %mask to <{lanes} x i1>
  %chosen = select <{lanes} x i1> %asked, {type} %result, {type} %masked
  ret {type} %chosen"""


def _look_up(name: str, lanes: int) -> str:
    return _permutation(name, lanes, "float", "i32")


def _look_up_bytes(name: str, lanes: int) -> str:
    return _permutation(name, 4 * lanes, "i8", "i8")


def _look_up_halves(name: str, lanes: int) -> str:
    return _permutation(name, 2 * lanes, "i16", "i16")


def _shuffle_bytes(name: str, lanes: int) -> str:
    """Returns a function that takes bytes of the same group of sixteen, or 0 for negative indices."""
    bytes, count = f"<{4 * lanes} x i8>", 4 * lanes
    lines, taken = _taken(count, "i8", "i8", group=16)
    return f"""
define internal {bytes} {name}({bytes} %table, {bytes} %index) noinline {{
{lines}
  %past = icmp slt {bytes} %index, zeroinitializer
  %found = select <{count} x i1> %past, {bytes} zeroinitializer, {bytes} {taken}
  ret {bytes} %found
}}"""


def _permutation(name: str, count: int, element: str, number: str) -> str:
    """Returns a function that takes `count` elements of a table at numbers modulo `count`."""
    elements = f"<{count} x {element}>"
    lines, taken = _taken(count, element, number, group=count)
    return f"""
define internal {elements} {name}({elements} %table, <{count} x {number}> %index) noinline {{
{lines}
  ret {elements} {taken}
}}"""


def _taken(count: int, element: str, number: str, *, group: int) -> tuple[str, str]:
    """Returns instructions that take `count` elements of `%table`, each of its own group at the number in `%index`
    modulo `group`, and the name of their vector."""
    elements, numbers = f"<{count} x {element}>", f"<{count} x {number}>"
    begins = ", ".join(f"{number} {n // group * group}" for n in range(count))
    lines = [
        f"  %within = and {numbers} %index, splat ({number} {group - 1})",
        f"  %positions = add {numbers} %within, <{begins}>",
        f"  %v0 = freeze {elements} zeroinitializer",
    ]
    for n in range(count):
        lines += [
            f"  %i{n} = extractelement {numbers} %positions, i32 {n}",
            f"  %e{n} = extractelement {elements} %table, {number} %i{n}",
            f"  %v{n + 1} = insertelement {elements} %v{n}, {element} %e{n}, i32 {n}",
        ]
    return "\n".join(lines), f"%v{count}"


_TILES = """
@emulated.tiles = internal thread_local global [8 x [16 x <64 x i8>]] zeroinitializer
@emulated.rows = internal thread_local global [8 x i8] zeroinitializer
define internal ptr @emulated.row(i8 %tile, i64 %row) noinline {
  %number = zext i8 %tile to i64
  %pointer = getelementptr [8 x [16 x <64 x i8>]], ptr @emulated.tiles, i64 0, i64 %number, i64 %row
  ret ptr %pointer
}
define internal i64 @emulated.height(i8 %tile) noinline {
  %number = zext i8 %tile to i64
  %pointer = getelementptr [8 x i8], ptr @emulated.rows, i64 0, i64 %number
  %rows = load i8, ptr %pointer
  %wide = zext i8 %rows to i64
  ret i64 %wide
}
"""
"""The state of AMX: the rows of eight tiles, 64 bytes each, and the number of rows of each tile."""


def _each_row(head: str, tile: str, body: str) -> str:
    """Returns a function with a loop over the rows %m of a tile."""
    return f"""
define internal void {head} noinline {{
start:
  %height = call i64 @emulated.height(i8 {tile})
  br label %loop
loop:
  %m = phi i64 [ 0, %start ], [ %next, %body ]
  %more = icmp ult i64 %m, %height
  br i1 %more, label %body, label %end
body:
{body}
  %next = add i64 %m, 1
  br label %loop
end:
  ret void
}}"""


def _configure_tiles(name: str, lanes: int) -> str:
    return f"""
define internal void {name}(ptr %given) noinline {{
  %bytes = getelementptr i8, ptr %given, i64 48
  %rows = load <8 x i8>, ptr %bytes, align 1
  store <8 x i8> %rows, ptr @emulated.rows, align 1
  ret void
}}"""


def _release_tiles(name: str, lanes: int) -> str:
    return f"define internal void {name}() noinline {{\n  ret void\n}}"


def _move_tile(name: str, source: str, target: str) -> str:
    return _each_row(
        f"{name}(i8 %tile, ptr %memory, i64 %stride)",
        "%tile",
        f"""  %row = call ptr @emulated.row(i8 %tile, i64 %m)
  %offset = mul i64 %m, %stride
  %there = getelementptr i8, ptr %memory, i64 %offset
  %values = load <64 x i8>, ptr {source}, align 1
  store <64 x i8> %values, ptr {target}, align 1""",
    )


def _load_tile(name: str, lanes: int) -> str:
    return _move_tile(name, "%there", "%row")


def _store_tile(name: str, lanes: int) -> str:
    return _move_tile(name, "%row", "%there")


def _multiply_tiles(name: str, lanes: int) -> str:
    """Adds the products of the 16 words of a row and the rows of the right tile."""
    floats = name.endswith("ps")
    sums = "<16 x float>" if floats else "<16 x i32>"
    lines = [
        "  %c = call ptr @emulated.row(i8 %sums, i64 %m)",
        "  %a = call ptr @emulated.row(i8 %left, i64 %m)",
        "  %words = load <16 x i32>, ptr %a, align 64",
        f"  %total0 = load {sums}, ptr %c, align 64",
    ]
    for k in range(16):
        lines += [
            f"  %x{k} = shufflevector <16 x i32> %words, <16 x i32> poison, <16 x i32> splat (i32 {k})",
            f"  %b{k} = call ptr @emulated.row(i8 %right, i64 {k})",
            f"  %y{k} = load <16 x i32>, ptr %b{k}, align 64",
            f"  %total{k + 1} = call {sums} {name}.words({sums} %total{k}, <16 x i32> %x{k}, <16 x i32> %y{k})",
        ]
    lines.append(f"  store {sums} %total16, ptr %c, align 64")
    head = f"{name}(i8 %sums, i8 %left, i8 %right)"
    inner = _words_of_bfloats(f"{name}.words") if floats else _words_of_bytes(f"{name}.words", name[-3:-1])
    return inner + _each_row(head, "%sums", "\n".join(lines))


def _words_of_bfloats(name: str) -> str:
    halves, words, sums = "<32 x bfloat>", "<16 x i32>", "<16 x float>"
    return f"""{_dot_bfloats(f"{name}.pairs", 16)}
define internal {sums} {name}({sums} %total, {words} %x, {words} %y) noinline {{
  %a = bitcast {words} %x to {halves}
  %b = bitcast {words} %y to {halves}
  %r = call {sums} {name}.pairs({sums} %total, {halves} %a, {halves} %b)
  ret {sums} %r
}}"""


def _words_of_bytes(name: str, signs: str) -> str:
    words = "<16 x i32>"
    lines = []
    for n in range(4):
        for operand, sign in zip("xy", signs, strict=True):
            shift = "ashr" if sign == "s" else "lshr"
            lines += [
                f"  %{operand}high{n} = shl {words} %{operand}, splat (i32 {24 - 8 * n})",
                f"  %{operand}{n} = {shift} {words} %{operand}high{n}, splat (i32 24)",
            ]
        lines += [
            f"  %p{n} = mul {words} %x{n}, %y{n}",
            f"  %s{n} = add {words} %{'total' if n == 0 else f's{n - 1}'}, %p{n}",
        ]
    body = "\n".join(lines)
    head = f"define internal {words} {name}({words} %total, {words} %x, {words} %y) noinline {{"
    return f"\n{head}\n{body}\n  ret {words} %s3\n}}"


_DEFINITIONS: Mapping[str, Callable[[str, int], str]] = {
    r"llvm\.x86\.avx512\.vpdpbusd\.(\d+)": _dot_bytes,
    r"llvm\.x86\.avx512\.pmaddw\.d\.(512)": _multiply_pairs,
    r"llvm\.x86\.avx512bf16\.dpbf16ps\.(\d+)": _dot_bfloats,
    r"llvm\.x86\.avx512\.mask\.cvtps2dq\.(512)": _nearest,
    r"llvm\.x86\.avx512\.mask\.scalef\.ps\.(512)": _scale_by_power,
    r"llvm\.x86\.avx512\.mask\.scalef\.pd\.(512)": _scale_doubles_by_power,
    r"llvm\.x86\.avx512\.permvar\.sf\.(512)": _look_up,
    r"llvm\.x86\.avx512\.permvar\.hi\.(512)": _look_up_halves,
    r"llvm\.x86\.avx512\.permvar\.qi\.(512)": _look_up_bytes,
    r"llvm\.x86\.avx512\.pshuf\.b\.(512)": _shuffle_bytes,
    r"llvm\.x86\.ldtilecfg": _configure_tiles,
    r"llvm\.x86\.tilerelease": _release_tiles,
    r"llvm\.x86\.tileloadd64": _load_tile,
    r"llvm\.x86\.tilestored64": _store_tile,
    r"llvm\.x86\.tdpb(?:ss|su|us|uu)d": _multiply_tiles,
    r"llvm\.x86\.tdpbf16ps": _multiply_tiles,
}
