"""Offsets in an entry are formulas of the dims: the code that is made of them computes what they say."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Mapping

import llvmlite.binding as llvm
import pytest
from nacre.compiler.host.entry import Call, write_entry
from nacre.compiler.host.launchers import Signature
from nacre.compiler.lower.storage import Output, Workspace
from nacre.dialect.dims import Size, Symbol, add, ceil_divide, evaluate, floor_divide, maximum, minimum, multiply

T, S = Symbol("T", 0, 64), Symbol("S", 1, 64)
E = Symbol("E", 8, 64, 8)
"""A multiple of 8, which formulas count in eights."""
t, s, e = T.size, S.size, E.size

SIZES: Mapping[str, Size] = {
    "T": t,
    "T*T": t * t,
    "T*T*T": t * t * t,
    "T*T*S": t * t * s,
    "T*S*S*S": t * s * s * s,
    "E": e,
    "E*E": e * e,
    "E*T + 3": e * t + 3,
    "5*T*T + 7*T + 9": 5 * t * t + 7 * t + 9,
    "T*T - S*S": add(t * t, multiply(-1, s * s)),
    "T//4": floor_divide(t, 4),
    "(T//4)*(T//4)": multiply(floor_divide(t, 4), floor_divide(t, 4)),
    "ceil(T/S)": ceil_divide(t, s),
    "(T - S)//3, which may be negative": floor_divide(add(t, multiply(-1, s)), 3),
    "min(T, S)": minimum(t, s),
    "max(T, S)*max(T, S)": multiply(maximum(t, s), maximum(t, s)),
    "T*T//(2*S)": floor_divide(t * t, 2 * s),
}
DIMS = (T, S, E)
BASE = 1 << 40
"""Where the workspace is said to be."""
PROBE = f"""
@probe_pace = internal global i64 0
define internal void @probe() {{
  ret void
}}
define internal void @probe_items() {{
  ret void
}}
define internal void @{Signature(0, 2).launcher}(ptr %team, ptr %kernel, ptr %count, ptr %pace, ptr %place, ptr %to) {{
  store ptr %place, ptr %to
  ret void
}}
"""


def compile_entry(size: Size) -> tuple[Callable[[Mapping[str, int]], int], object]:
    """Gives the offset that an entry computes for the only operand of a kernel, and what holds its code."""
    text = PROBE + write_entry("entry", DIMS, [Call("probe", (), (Workspace(size), Output(0)))])
    text += "declare i64 @llvm.smin.i64(i64, i64)\ndeclare i64 @llvm.smax.i64(i64, i64)\n"
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text.replace("define hidden", "define")), machine)
    engine.finalize_object()
    entry = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 6)(engine.get_function_address("entry"))

    def compute(dims: Mapping[str, int]) -> int:
        found = ctypes.c_int64()
        outputs = (ctypes.c_void_p * 1)(ctypes.addressof(found))
        values = (ctypes.c_int64 * len(DIMS))(*(dims[d.name] for d in DIMS))
        entry(None, ctypes.addressof(outputs), BASE, None, ctypes.addressof(values), None)
        return found.value - BASE

    return compute, engine


@pytest.mark.parametrize("name", SIZES)
def test_offsets(name: str) -> None:
    compute, _engine = compile_entry(SIZES[name])
    for values in itertools.product((0, 1, 7, 64), (1, 5, 64), (8, 40)):
        dims = dict(zip(("T", "S", "E"), values, strict=True))
        assert compute(dims) == evaluate(SIZES[name], dims), dims
