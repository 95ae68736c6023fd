"""How many loop nests the kernels of a model become, and of which kind: what belongs together shares one."""

from __future__ import annotations

import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.dumps.dumps import Dumps
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from schedules import generate, schedules

ATTENTION = {
    "whole": "attention(q, k, v)",
    "causal": "attention(q, k, v, causal=true)",
    "masked": "attention(q, k, v, mask=mask)",
    "written-out": "softmax(where(triangular_mask(T, T), q @ k.mT * 0.1, -1e9)) @ v",
}


@pytest.mark.parametrize("kind", ["whole", "causal", "masked", "written-out"])
@pytest.mark.parametrize("size", ["40", "T"])
def test_attention_is_one_nest_behind_the_transposition_of_its_keys(kind: str, size: str) -> None:
    shape = f"f32[1, 2, {size}, 16]"
    body = ATTENTION[kind].replace("(T, T)", f"({size}, {size})")
    dims = "dim T in 1..128\n" if size == "T" else ""
    mask = f", mask: f32[{size}, {size}]" if kind == "masked" else ""
    text = f"{dims}model m(q: {shape}, k: {shape}, v: {shape}{mask}) -> {shape} {{\n  return {body}\n}}\n"
    # 40 rows are one block, whose last row needs all keys.
    rows = "bounded rows" if size == "T" and kind in ("causal", "written-out") else "rows"
    assert schedules(generate(text)) == sorted([("map",), (rows,)])


IN_PLACE = {
    "x[37, 64] w[130, 64] y[37, 130]": ("x @ w.T", ("copied tile",)),
    "x[M, 64] w[130, 64] y[M, 130]": ("relu(x @ w.T)", ("copied tile",)),
    "x[1, 64] w[130, 64] y[1, 130]": ("x @ w.T", ("rows",)),
    "x[64, 32] w[32, 130] y[64, 130]": ("x @ w", ("copied tile",)),
    "x[63, 32] w[32, 130] y[63, 130]": ("x @ w", ("tile",)),
    "x[64, 31] w[31, 130] y[64, 130]": ("x @ w", ("tile",)),
    "x[2, 37, 4, 64] w[2, 130, 4, 64] y[2, 4, 37, 130]": ('einsum("bqhd,bkhd->bhqk", x, w)', ("copied tile",)),
    "x[128, 64] w[128, 48] y[64, 48]": ('einsum("km,kn->mn", x, w)', ("blocked tile",)),
    "x[128, 48] w[128, 48] y[48, 48]": ('einsum("km,kn->mn", x, w)', ("tile",)),
    "x[127, 64] w[127, 48] y[64, 48]": ('einsum("km,kn->mn", x, w)', ("tile",)),
    "x[2, 8, 64] w[2, 130, 64] y[2, 8, 64]": ("attention(x, w, w)", ("copied tile", "rows", "tile")),
    "x[2, 1, 64] w[2, 130, 64] y[2, 1, 64]": ("attention(x, w, w)", ("rows", "rows", "tile")),
}


@pytest.mark.parametrize("types", IN_PLACE)
def test_matrices_are_read_in_place(types: str) -> None:
    body, expected = IN_PLACE[types]
    x, w, y = types.replace("] ", "]; ").replace("[", ": f32[").split("; ")
    assert schedules(generate(f"dim M in 1..512\nmodel m({x}, {w}) -> {y} {{ return {body} }}\n")) == [expected]


@pytest.mark.parametrize("dtype", ["bf16", "f64"])
def test_matrices_of_other_floats_are_read_in_place_too(dtype: str) -> None:
    types = f"x: {dtype}[64, 32], w: {dtype}[32, 130], v: {dtype}[130, 32]"
    text = f"model m({types}) -> y: {dtype}[64, 130], z: {dtype}[64, 130] {{ return x @ w, x @ v.T }}\n"
    assert schedules(generate(text)) == [("copied tile",), ("copied tile",)]


def test_products_of_bf16_with_few_any_or_transposed_rows_add_pairs() -> None:
    """In one instruction, on CPUs that have it."""
    types = "x: bf16[4, 40], w: bf16[40, 33], u: bf16[128, 64], v: bf16[128, 48], t: bf16[M, 40]"
    body = 'return x @ w, einsum("km,kn->mn", u, v), t @ w'
    results = "bf16[4, 33], z: bf16[64, 48], s: bf16[M, 33]"
    text = f"dim M in 0..64\nmodel m({types}) -> y: {results} {{ {body} }}\n"
    options, dumps = Options(targets=parse_targets("x86-64-v4+avx512bf16")), Dumps(keep=("tiled",))
    Build(read_model(text), options, dumps).make("program")
    kernels = dumps.texts["tiled"].split("// -----")[1:]
    assert len(kernels) == 3
    assert all("dpbf16ps" in kernel for kernel in kernels)
    # A call with a single row reads the columns where they are.
    assert ["vector.fma" in kernel for kernel in kernels] == [False, False, True]


AVERAGES = """language 1
train step(x: f32[8, 40], lr: f32) -> loss: f32 {
  param weight: f32[24, 40] = random_normal((24, 40), seed)
  loss = mean((x @ weight.T) ** 2)
  minimize loss with adamw(lr=lr)
}
"""


def test_an_update_reads_its_gradient_in_one_nest() -> None:
    nests = [kernel for kernel in schedules(generate(AVERAGES)) if set(kernel) == {"map"} and len(kernel) > 1]
    assert nests == [("map", "map")], "single numbers, then both averages and the parameter"
