"""The literal fix-up: every spelling that a newer LLVM prints becomes bits that the pinned one reads."""

from __future__ import annotations

import random
import struct

import llvmlite.binding as llvm
import pytest
from hypothesis import strategies as st
from nacre.compiler.base import mlir
from nacre.compiler.codegen.llvm.literals import FORMATS, literal_bits, rewrite_literals, spell
from property_tests import given

MLIR_TYPES = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}


def special_patterns(type: str) -> list[int]:
    """Zeros, subnormals, borders, infinities, NaNs quiet and signalling with payloads; of both signs."""
    f = FORMATS[type]
    one = (f.infinity >> 1) & f.infinity
    positive = [0, 1, 2, f.quiet, (1 << f.fraction) - 1, 1 << f.fraction, one, one | 1, f.infinity - 1, f.infinity]
    positive += [f.infinity | p for p in (1, 2, 3, f.quiet - 1, f.quiet, f.quiet | 1, (1 << f.fraction) - 1)]
    return [*positive, *(f.sign | p for p in positive)]


def random_patterns(type: str, count: int = 300) -> list[int]:
    rng = random.Random(type)
    return [rng.getrandbits(FORMATS[type].width) for _ in range(count)]


def patterns(type: str) -> list[int]:
    return special_patterns(type) + random_patterns(type)


def object_words(ir: str, width: int, count: int) -> list[int]:
    """The words of the only constant of a module, from its machine code: what LLVM took the literals for."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(ir)
    module.verify()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
    directives = {16: (".short", ".hword"), 32: (".long",), 64: (".quad",)}[width]
    words = []
    for line in machine.emit_assembly(module).splitlines():
        parts = line.split("#")[0].split()
        if parts and parts[0] in directives:
            words.append(int(parts[1], 0) % (1 << width))
        elif parts and parts[0] == ".zero":
            words += [0] * (int(parts[1]) * 8 // width)
    assert len(words) == count, (len(words), count)
    return words


@pytest.mark.parametrize("type", FORMATS)
def test_spelling_is_exact(type: str) -> None:
    """Every pattern, as we spell it, is what LLVM puts into the object."""
    values = patterns(type)
    elements = ", ".join(f"{type} {spell(v, type)}" for v in values)
    ir = f"@g = constant [{len(values)} x {type}] [{elements}]\n"
    assert object_words(ir, FORMATS[type].width, len(values)) == values


@pytest.mark.parametrize("type", FORMATS)
def test_printed_literals_keep_their_bits(type: str) -> None:
    """From bits through MLIR's translation, its printer and the fix-up to bits: nothing is lost on the way."""
    values = patterns(type)
    digits = FORMATS[type].width // 4
    element = MLIR_TYPES[type]
    constants = [
        f"  %c{i} = llvm.mlir.constant(0x{v:0{digits}X} : {element}) : {element}" for i, v in enumerate(values)
    ]
    stores = [
        f"  %p{i} = llvm.getelementptr %p[{i}] : (!llvm.ptr) -> !llvm.ptr, {element}\n"
        f"  llvm.store %c{i}, %p{i} : {element}, !llvm.ptr"
        for i in range(len(values))
    ]
    body = "\n".join([*constants, *stores])
    with mlir.ir.Context():
        text = mlir.translate(mlir.ir.Module.parse(f"llvm.func @f(%p: !llvm.ptr) {{\n{body}\n  llvm.return\n}}"))
    fixed = rewrite_literals(text)
    literals = [line.split()[2].rstrip(",") for line in fixed.splitlines() if line.strip().startswith("store ")]
    elements = ", ".join(f"{type} {literal}" for literal in literals)
    ir = f"@g = constant [{len(values)} x {type}] [{elements}]\n"
    assert object_words(ir, FORMATS[type].width, len(values)) == values
    llvm.parse_assembly(fixed).verify()


@pytest.mark.parametrize(
    ("literal", "type", "bits"),
    [
        ("+inf", "float", 0x7F800000),
        ("-inf", "half", 0xFC00),
        ("+qnan", "double", 0x7FF8000000000000),
        ("-qnan", "bfloat", 0xFFC0),
        ("+nan(0x1)", "float", 0x7FC00001),
        ("-nan(0x1)", "half", 0xFE01),
        ("+snan(0x1)", "float", 0x7F800001),
        ("-snan(0x200000)", "float", 0xFFA00000),
        ("f0x7F7FFFFF", "float", 0x7F7FFFFF),
        ("f0x3C01", "half", 0x3C01),
        ("f0x0000000000000001", "double", 1),
        ("4.4715e-02", "float", 0x3D372713),
        ("1.000000e-01", "double", 0x3FB999999999999A),
        ("-0.000000e+00", "double", 1 << 63),
        ("9.997550e-02", "half", 0x2E66),
        ("1.401300e-45", "float", 1),
        ("4.940660e-324", "double", 1),
        ("9.183550e-41", "bfloat", 1),
        ("3.389530e+38", "bfloat", 0x7F7F),
        ("1.00390625", "bfloat", 0x3F80),  # halfway: to even, which is down
        ("1.01171875", "bfloat", 0x3F82),  # halfway: to even, which is up
        ("0x1.8p3", "float", 0x41400000),
        ("-0x1p-149", "float", 0x80000001),
        ("1.", "float", 0x3F800000),
    ],
)
def test_literal_bits(literal: str, type: str, bits: int) -> None:
    assert literal_bits(literal, type) == bits


@given(st.floats(width=32))
def test_decimals_of_floats(value: float) -> None:
    word = int.from_bytes(struct.pack("<f", value), "little")
    if value == value and abs(value) != float("inf"):
        assert literal_bits(f"{value:.9e}", "float") == word


LINES = [
    ("  %1 = fadd float %0, 1.000000e-01", "  %1 = fadd float %0, 0x3FB99999A0000000"),
    ("  %1 = fadd double %0, 1.0", "  %1 = fadd double %0, 0x3FF0000000000000"),
    ("  %1 = fadd <2 x float> %0, splat (float +inf)", "  %1 = fadd <2 x float> %0, splat (float 0x7FF0000000000000)"),
    ("  %1 = fadd <2 x half> %0, <half -inf, half 1.0>", "  %1 = fadd <2 x half> %0, <half 0xHFC00, half 0xH3C00>"),
    ("@g = constant { float, double } { float 0.1, double 0.1 }",
     "@g = constant { float, double } { float 0x3FB99999A0000000, double 0x3FB999999999999A }"),
    ("  %1 = phi float [ +qnan, %a ], [ -1.0, %b ]",
     "  %1 = phi float [ 0x7FF8000000000000, %a ], [ 0xBFF0000000000000, %b ]"),
    ("  %1 = select i1 %c, bfloat 1.0, bfloat f0x0001", "  %1 = select i1 %c, bfloat 0xR3F80, bfloat 0xR0001"),
    ("  store float -inf, ptr %p, align 4 ; float 1.5",
     "  store float 0xFFF0000000000000, ptr %p, align 4 ; float 1.5"),
    ("  ret double f0x7FF0000000000001", "  ret double 0x7FF0000000000001"),
    ("  call void @float.1.5(float 2.0, i32 3)", "  call void @float.1.5(float 0x4000000000000000, i32 3)"),
    ("!3 = !{float 2.5}", "!3 = !{float 0x4004000000000000}"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), LINES)
def test_lines(before: str, after: str) -> None:
    assert rewrite_literals(before) == after
    assert rewrite_literals(after) == after


UNTOUCHED = [
    'source_filename = "a 1.5 float f0x7F800000 +inf"',
    '!0 = !{!"float 1.5", i32 3}',
    "; float 1.5 +inf",
    '@"float 1.5" = external global i32',
    "@float.1.5 = external global i32",
    "%v.1.5 = add i32 %x.0.5, 1",
    "bb.1.5:                       ; preds = %bb.0.5",
    '  call void asm "# float 1.5", ""()',
    "attributes #0 = { \"target-cpu\"=\"x.1.5\" }",
    "declare float @llvm.maximum.f32(float, float)",
    "  %1 = getelementptr inbounds float, ptr %0, i64 -15",
]  # fmt: skip


@pytest.mark.parametrize("line", UNTOUCHED)
def test_lines_without_literals_are_unchanged(line: str) -> None:
    assert rewrite_literals(line) == line


def test_wider_types_are_refused() -> None:
    with pytest.raises(AssertionError, match="fp128"):
        rewrite_literals("@g = constant fp128 +inf")


@pytest.mark.parametrize("type", FORMATS)
def test_programs_are_accepted(type: str) -> None:
    program = f"define {type} @f({type} %x) {{\n  %y = fmul {type} %x, 1.000000e-01\n  ret {type} %y\n}}"
    llvm.parse_assembly(rewrite_literals(program)).verify()
