"""Kernels that were plain loops once: the tiler supports each of them now."""

from __future__ import annotations

import pytest
from codegen import untiled
from codegen.untiled import Tiled, find_untiled
from nacre.compiler.checking import read_model
from nacre.compiler.codegen.llvm.machine import vector_features
from nacre.compiler.codegen.tiler.structure import Unsupported
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.families import FAMILIES
from nacre.compiler.targets.target import parse_targets
from nacre.compiler.targets.vector_unit import VectorUnit

TEXT = """dim B in 0..20
dim N in 0..9

model gathered(x: f32[10], i: i64[B]) -> f32[B] { return x[i] }
model rows(x: f32[N, 4], i: i32[B]) -> f32[B, 4] { return gather(x, i) }
model columns(x: bf16[3, N], i: i64[5]) -> bf16[3, 5] { return relu(gather(x, i, axis=1, mode="drop")) }
model written(x: f32[N], i: i64[B], u: f32[B]) -> f32[N], f32[B] { return scatter_add(x, i, u), x[i] }
model pooled1(x: f16[2, 3, 20]) -> f16[2, 3, 10] { return max_pool1d(x, kernel=2) }
model pooled2(x: bf16[2, 3, 9, 9]) -> bf16[2, 3, 5, 5] { return max_pool2d(x, kernel=3, stride=2, padding=1) }
model pooled3(x: f16[2, 3, 4, 4, 4]) -> f16[2, 3, 2, 2, 2] { return max_pool3d(x, kernel=3, stride=2, padding=1) }
model places(x: f32[2, 3, 9, 9]) -> i64[2, 3, 5, 5] { return max_pool_indices(x, kernel=3, stride=2, padding=1) }
model wide(x: u8[2, 3, 40]) -> i64[2, 3, 40] { return max_pool_indices(x, kernel=5, stride=1, padding=2) }
model nothing(x: f32[4], i: i64[0]) -> f32[0] { return x[i] }
model single(x: f32[4], i: i64[1], u: f32) -> f32[4] { return scatter_nd(x, i, u) }
model joined(x: f8e4m3[B, 7]) -> f8e4m3[B+1, 7] { return concat([x, full((1, 7), 0.5, dtype=f8e4m3)], axis=0) }
model between(x: f32[B, 7]) -> f32[B+2, 7] { return concat([full((1, 7), 1.0), x, full((1, 7), 0.5)], axis=0) }
"""
WEIGHTS = """dim B in 0..20

model product(x: DTYPE[B, 33]) -> DTYPE[B, 100] {
  param w: DTYPE[33, 100]
  return x @ w
}
model turned(x: DTYPE[5, 33]) -> DTYPE[5, 17] {
  param v: DTYPE[17, 33]
  return x @ v.T
}
model windows(x: DTYPE[2, 8, 9, 9]) -> DTYPE[2, 12, 9, 9] {
  param u: DTYPE[12, 8, 3, 3]
  return relu(conv2d(x, u, padding=1))
}
"""
OTHERS = [name for name, family in FAMILIES.items() if name != "x86_64" and not family.device]
LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


@pytest.mark.parametrize("passes", [None, "check-indices,unroll-repeat,fold-constants,dce"], ids=["default", "no-fuse"])
def test_kernels_are_tiled(passes: str | None) -> None:
    build = Build(read_model(TEXT), Options(level=2, passes=passes))
    machines = units_of(*LEVELS)
    kernels = build.lower(build.optimize()).kernels
    assert len(kernels) > 10 and len(machines) == len(LEVELS)
    left = [f"{k.origins}: {line}" for k in kernels for line in find_untiled(Tiled(k.text()), machines)]
    assert not left, "\n".join(left)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3", "x86-64-v4", *(FAMILIES[name].triple for name in OTHERS)])
def test_products_with_weights_are_tiled_for_every_machine(target: str, dtype: str) -> None:
    """Panels are as wide as some vectors of the machine in this dtype."""
    build = Build(read_model(WEIGHTS.replace("DTYPE", dtype)), Options(level=2, targets=parse_targets(target)))
    lowered = build.lower(build.optimize())
    (unit,) = units_of(target)
    left = [f"{k.origins}: {line}" for k in lowered.kernels for line in find_untiled(Tiled(k.text()), [unit])]
    assert not left, "\n".join(left)
    widths = [w.packing.width for w in lowered.weights if w.packing is not None]
    lanes = unit.lanes(64 if dtype == "f64" else 32)
    assert len(widths) == 3 and all(width % lanes == 0 for width in widths) and max(widths) > lanes, (widths, lanes)


def units_of(*levels: str) -> list[VectorUnit]:
    return [t.family.choose_unit(vector_features(t)) for t in parse_targets(",".join(levels)) if t.family]


def relu_kernel() -> Tiled:
    build = Build(read_model("model f(x: f32[9]) -> f32[9] { return relu(x) }"))
    (lowered,) = build.lower(build.optimize()).kernels
    return Tiled(lowered.text())


def test_units_that_answer_differently_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault is found in exactly the units that have it; units that differ elsewhere share one kernel."""
    written: list[VectorUnit] = []

    def write(function: object, unit: VectorUnit, *, strict: bool) -> None:
        written.append(unit)
        if {"avx512f", "avx512vnni"} <= unit.features:
            raise Unsupported("planted")

    monkeypatch.setattr(untiled, "write_kernel", write)
    lines = list(find_untiled(relu_kernel(), units_of("x86-64-v4", "x86-64-v4-vnni", "x86-64-v4-vnni-bf16")))
    assert len(lines) == 2 and all("planted" in line and "avx512vnni" in line for line in lines)
    assert len(written) == 2


@pytest.mark.parametrize(("asked", "kernels"), [(True, 3), (False, 1)])
def test_units_of_other_sizes_are_told_apart_where_they_are_read(
    monkeypatch: pytest.MonkeyPatch, asked: bool, kernels: int
) -> None:
    """A method reads the fields of the unit, too."""
    written: list[VectorUnit] = []

    def write(function: object, unit: VectorUnit, *, strict: bool) -> None:
        written.append(unit)
        if asked and unit.lanes(32) == 8:
            raise Unsupported("planted")

    monkeypatch.setattr(untiled, "write_kernel", write)
    lines = list(find_untiled(relu_kernel(), units_of("x86-64-v2", "x86-64-v3", "x86-64-v4")))
    assert len(lines) == asked and all("32 bytes" in line for line in lines)
    assert len(written) == kernels
