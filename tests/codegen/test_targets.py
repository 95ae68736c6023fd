"""What can be said of what to compile for, and what it means."""

from __future__ import annotations

import platform
import signal
import subprocess
from itertools import pairwise

import llvmlite.binding as llvm
import pytest
from nacre.compiler.codegen.jit import build_functions
from nacre.compiler.codegen.llvm.machine import vector_features
from nacre.compiler.codegen.objects import CodeOptions, Untiled, generate_objects
from nacre.compiler.lower.module import lower_module
from nacre.compiler.readers.language import load_module
from nacre.compiler.targets.cpus import ask_features
from nacre.compiler.targets.features import find_features, native_features, target_features
from nacre.compiler.targets.target import Target, choose_panels, parse_targets
from nacre.compiler.targets.variants import VARIANTS
from nacre.compiler.targets.vector_unit import PanelSizes
from nacre.compiler.targets.x86 import X86
from nacre.compiler.tools.reference.cpu_variants import PAGE, format_page
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.graph import Module


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("native", ["native"]),
        ("x86-64-v3", ["x86-64-v3"]),
        ("x86-64-v3,x86-64-v4", ["x86-64-v4", "x86-64-v3"]),
        ("x86-64-v4, x86-64-v3,x86-64-v4", ["x86-64-v4", "x86-64-v3"]),
        ("portable", ["x86-64-v4-vnni-bf16", "x86-64-v4-vnni", "x86-64-v4", "x86-64-v3"]),
        ("portable,x86-64-v2", ["x86-64-v4-vnni-bf16", "x86-64-v4-vnni", "x86-64-v4", "x86-64-v3", "x86-64-v2"]),
        ("znver4", ["znver4"]),
        ("x86-64-v3+avx512f", ["x86-64-v3+avx512f"]),
        ("x86-64-v4-avx512vl", ["x86-64-v4-avx512vl"]),
        ("x86-64-v4-vnni-bf16-avx512vl", ["x86-64-v4+avx512bf16+avx512vnni-avx512vl"]),
        ("native-avx512f", ["native-avx512f"]),
        ("native+prefer-256-bit-fma", ["native+prefer-256-bit-fma"]),
        ("skylake-avx512", ["skylake-avx512"]),
        ("skylake-avx512-avx512f", ["skylake-avx512-avx512f"]),
        ("aarch64-linux-gnu", ["aarch64-linux-gnu"]),
        ("riscv64-linux-gnu", ["riscv64-linux-gnu"]),
        ("wasm32-wasi", ["wasm32-wasi"]),
        ("wasm32-wasi+relaxed-simd", ["wasm32-wasi+relaxed-simd"]),
        ("aarch64-linux-gnu:neoverse-n1", ["aarch64-linux-gnu:neoverse-n1"]),
        ("aarch64-linux-gnu:neoverse-v1+sve2-lse", ["aarch64-linux-gnu:neoverse-v1+sve2-lse"]),
    ],
)
def test_names(text: str, names: list[str]) -> None:
    targets = parse_targets(text)
    assert [target.name for target in targets] == names
    assert len({target.suffix for target in targets}) == len(targets)
    for target in targets:
        assert parse_targets(target.name) == (target,)


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", "is not a known CPU"),
        ("?", "`\\?` is not a known CPU"),
        ("+avx2", "is not a known CPU"),
        ("native,x86-64-v3", "`native` is not a CPU variant, and only CPU variants"),
        ("x86-64-v3,znver4", "`znver4` is not a CPU variant"),
        ("x86-64-v3,", "`` is not a CPU variant"),
        ("x86-64-v5", "is not a CPU, or `v5` is not a CPU feature\n = help: did you mean `x86-64-v4`"),
        ("aarch64-linux-gnu:neoverse-n1-nothing", "is not a CPU, or `nothing` is not a CPU feature"),
        ("aarch64-:generic", "`aarch64-` is not a triple"),
        ("native-avx9", "is not a CPU, or `avx9` is not a CPU feature"),
    ],
)
def test_invalid_targets(text: str, reported: str) -> None:
    with pytest.raises(DiagnosticError, match=reported):
        parse_targets(text)


def test_features_of_variants() -> None:
    for name, variant in VARIANTS.items():
        (target,) = parse_targets(name)
        assert set(target.needs) == set(variant.features), name
        assert find_features(target.cpu, target.features) == set(variant.features), name
    assert Target("native").needs == ()


HERE = pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86 CPU")


def test_a_process_without_an_answer_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU without features would get slow code."""
    assert ask_features("i386", "") == frozenset(), "LLVM has no code for it"
    killed = subprocess.CompletedProcess((), -signal.SIGKILL, "", "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: killed)
    with pytest.raises(RuntimeError, match="asks LLVM for the features of `znver4` ended with -9"):
        ask_features("znver4", "+avx")


@HERE
def test_this_cpu_has_the_features_of_its_name() -> None:
    host = target_features(Target())
    assert find_features(llvm.get_host_cpu_name(), native_features(Target())) == host
    assert target_features(Target(features="+fma")) == host
    assert target_features(Target(features="-avx")).isdisjoint({"avx", "avx2", "fma", "avx512f"})


@HERE
@pytest.mark.parametrize(
    ("text", "bytes", "features"),
    [
        ("znver4", 64, "ssse3 f16c avx2 fma avx512f avx512bw avx512vbmi avx512vnni avx512bf16"),
        ("x86-64-v4-vnni-bf16", 64, "ssse3 f16c avx2 fma avx512f avx512bw avx512vnni avx512bf16"),
        # Its products of bfloats by AVX-512 are slow.
        (
            "sapphirerapids",
            64,
            "ssse3 f16c avx2 fma avx512f avx512bw avx512fp16 avx512vbmi avx512vnni avxvnni amx-tile amx-int8 amx-bf16",
        ),
        (
            "sapphirerapids+avx512bf16-amx-int8",
            64,
            "ssse3 f16c avx2 fma avx512f avx512bw avx512fp16 avx512vbmi avx512vnni avxvnni avx512bf16 "
            "amx-tile amx-bf16",
        ),
        ("x86-64-v3+avx512f", 64, "ssse3 f16c avx2 fma avx512f"),
        ("knl", 64, "ssse3 f16c avx2 fma avx512f"),
        ("haswell", 32, "ssse3 f16c avx2 fma"),
        ("znver4-avx512f", 32, "ssse3 f16c avx2 fma"),
        ("alderlake", 32, "ssse3 f16c avx2 fma avxvnni"),
        ("bdver2", 16, "ssse3 f16c fma"),
        ("sandybridge", 16, "ssse3"),
        ("haswell-fma", 16, "ssse3 f16c avx2"),
        ("x86-64", 16, ""),
    ],
)
def test_vectors_are_those_of_the_features(text: str, bytes: int, features: str) -> None:
    """Whatever name a CPU is given, the same features get the same code."""
    (target,) = parse_targets(text)
    machine = X86.choose_unit(vector_features(target))
    assert (machine.bytes, machine.features - X86.base) == (bytes, set(features.split()))
    assert target.unit is not None and target.unit.bytes == bytes


@pytest.mark.parametrize(
    ("text", "lanes", "most", "narrow"),
    [
        ("x86-64-v4", 16, 3, 0),
        ("x86-64-v3", 8, 3, 64),
        ("x86-64", 4, 2, 0),
        ("x86-64,x86-64-v3", 8, 3, 64),
        ("portable", 16, 3, 0),
        ("aarch64-linux-gnu", 4, 3, 0),
    ],
)
def test_panels_of_weights_are_as_wide_as_the_widest_tiles(text: str, lanes: int, most: int, narrow: int) -> None:
    assert choose_panels(parse_targets(text)) == PanelSizes(lanes, most, narrow, lanes_of_f64=max(lanes // 2, 4))


@HERE
def test_a_name_runs_where_its_features_are_there() -> None:
    assert parse_targets(llvm.get_host_cpu_name() + "-avx512f")[0].runs_here
    assert parse_targets("x86-64")[0].runs_here
    assert not parse_targets("bdver2")[0].runs_here  # with instructions that only CPUs of its time had


@pytest.mark.parametrize(
    ("target", "reported", "near"),
    [
        (Target("sapphire-rapids"), "unknown CPU `sapphire-rapids`", "did you mean `sapphirerapids`?"),
        (Target(features="+avx512vni"), "unknown CPU feature `avx512vni`", "did you mean `avx512vnni`"),
    ],
)
def test_unknown_names_suggest_near_ones(target: Target, reported: str, near: str) -> None:
    with pytest.raises(DiagnosticError) as caught:
        build_functions(_products(), level=2, target=target)
    (fault,) = caught.value.diagnostics
    assert fault.message == reported and near in fault.help


def _products() -> Module:
    """A small model with products of f32, of bytes, and elementary functions."""
    text = """model f(x: f32[5, 40], y: f32[40, 24]) -> a: f32[5, 24], b: f64[5, 24] {
  a = softmax(tanh(x @ y))
  return a, cast(a, f64) * 2
}
"""
    return load_module(text, text=True).module


@HERE
@pytest.mark.parametrize("cpu", ["x86-64", "sandybridge", "knl", "alderlake", "znver4"])
def test_every_kernel_is_vector_code_on_every_cpu(cpu: str) -> None:
    program, _ = generate_objects(lower_module(_products()), CodeOptions((Target(cpu),), quick=True))
    assert program.untiled == ()


def test_an_architecture_without_vector_code_is_reported() -> None:
    target = Target("generic", "armv7-linux-gnueabihf")
    lowered = lower_module(_products())
    program, _ = generate_objects(lowered, CodeOptions((target,), quick=True))
    reason = "there is no vector code for armv7"
    assert program.untiled == tuple(Untiled(kernel.symbol, target, reason) for kernel in lowered.kernels)


def test_variants_grow() -> None:
    for less, more in pairwise(VARIANTS):
        assert set(VARIANTS[less].features) < set(VARIANTS[more].features)


def test_the_page_lists_all_variants() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == format_page(page), "run python -m nacre.compiler.tools.reference.cpu_variants"
