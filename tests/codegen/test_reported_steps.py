"""Each schedule reports every number at which its code changes with a size; else no trial reaches both sides of it.

The numbers are read from the code itself, so that a loop, a division or a comparison that is written past the writer's
own record is noticed. Extents that are known at compile time are multiples of all steps here: they add no numbers.
"""

from __future__ import annotations

import pytest
from nacre.compiler.base.mlir import ir
from nacre.compiler.checking import read_model
from nacre.compiler.codegen.tiler.boundaries import read_boundaries
from nacre.compiler.codegen.tiler.kernels import tile_kernels
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from untiled import open_context

MODELS = {
    "map": "x: f32[T, 21], y: f32[T, 21]) -> f32[T, 21] { return exp(x) + y",
    "map of a transpose": "x: f32[T, B]) -> f32[B, T] { return exp(x).T",
    "map of neighbours": "x: f32[T], y: f32[T], z: f32[T]) -> f32[T, 3] { return stack(x, y, z, axis=1)",
    "scan": "x: f32[B, T]) -> f32[B, T] { return cumsum(x, axis=1)",
    "scan of columns": "x: f32[B, T]) -> f32[B, T] { return cumsum(x, axis=0)",
    "rows": "x: f32[B, T]) -> f32[B, T] { return softmax(x)",
    "rows of sums": "x: f32[B, 3, T]) -> f32[B, 3] { return sum(x, axis=2)",
    "tile of sums": "x: f32[B, T]) -> f32[T] { return sum(x, axis=0)",
    "tile": "x: f32[B, 24], w: f32[24, T]) -> f32[B, T] { return x @ w",
    "tile of bytes": "x: u8[B, 24], w: i8[24, 32]) -> i32[B, 32] { return matmul(x, w, into=i32)",
    "copied tile": "x: f32[B, 64], w: f32[24, 64]) -> f32[B, 24] { return relu(x @ w.T)",
    "copied tile, or in place": "x: f32[B, 64], w: f32[64, T]) -> f32[B, T] { return x @ w",
    "rows of attention": "q: f32[2, B, 16], k: f32[2, B, 16], v: f32[2, B, 16]) -> f32[2, B, 16] {\n"
    "  return attention(q, k, v)",
    "rows, online softmax": "q: f32[2, T, 16], k: f32[2, T, 16], v: f32[2, T, 16]) -> f32[2, T, 16] {\n"
    "  return attention(q, k, v)",
    "map of windows": "x: f32[1, 1, T, T]) -> f32[1, 1, 2*T, 2*T] { return resize(x, (2*T, 2*T))",
}


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("name", MODELS)
def test_the_code_has_no_other_numbers(name: str, target: str) -> None:
    build = Build(read_model(f"language 1\ndim B in 1..512\ndim T in 1..4096\nmodel f({MODELS[name]}\n}}\n"))
    unit = parse_targets(target)[0].unit
    assert unit is not None
    kinds = set()
    for kernel in build.lower(build.optimize()).kernels:
        if kernel.symbol.startswith("transpose"):
            continue  # of sizes that are known
        with open_context():
            module = ir.Module.parse(kernel.text(""))
            (report,) = tile_kernels(module, unit)
            found = {n for function in module.body.operations for n in read_boundaries(function)}
        kinds.update(report.schedules)
        assert found <= {*report.steps}, (kernel.symbol, report)
    assert any(name.startswith(kind) for kind in kinds), kinds
