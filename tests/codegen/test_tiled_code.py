"""Tiled code of small kernels holds the forms that make it fast; their results alone would not tell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.codegen.objects import CodeOptions, generate_objects
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import Target, parse_targets

ON_STACK = "memref.alloca()"


def tiled(text: str, folder: Path, cpu: str = "x86-64-v3") -> str:
    """Returns the tiled code of all kernels of a model, for 8 lanes or those of another CPU. Weights are packed for
    AVX-512, as in a portable artifact."""
    build = Build(read_model(text), Options(targets=parse_targets("x86-64-v4")))
    generate_objects(build.lower(build.optimize()), CodeOptions((Target(cpu=cpu),)), folder)
    return "\n".join(path.read_text() for path in sorted(folder.glob("*-tiled.mlir")))


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        # A row is multiplied by the reciprocal of its sum if that is a normal number.
        (
            "model m(x: f32[9, 40], y: f32[9, 40]) -> f32[9, 40] { return x / sum(x * y, axis=1, keepdims=true) }",
            "math.absf",
        ),
        # Squares of rows are transposed in registers: running sums of 8 rows are one vector.
        ("model m(x: f32[16, 16]) -> f32[16, 16] { return cumsum(x, axis=1) }", "vector.shuffle"),
        # Rows of bf16 are widened once for all vectors of the weight.
        ("model m(x: bf16[8, 256]) -> bf16[8, 32] {\n  param w: bf16[32, 256]\n  return x @ w.T\n}", ON_STACK),
        # Panels of packed weights are fetched in advance of the rows that share them.
        (
            "model m(x: f32[1, 8, 12, 12]) -> f32[1, 16, 12, 12] {\n"
            "  param w: f32[16, 8, 3, 3]\n  return conv2d(x, w, padding=1)\n}",
            "memref.prefetch",
        ),
    ],
    ids=["reciprocals", "squares", "widened", "prefetched"],
)
def test_code_holds(text: str, needed: str, tmp_path: Path) -> None:
    assert needed in tiled(f"{text}\n", tmp_path)


@pytest.mark.parametrize(
    ("function", "cpu", "lanes"), [("erf", "v4", 64), ("exp", "v4", 16), ("erf", "v3", 16), ("exp", "v3", 16)]
)
def test_vectors_take_the_steps_of_a_long_chain_together(function: str, cpu: str, lanes: int, tmp_path: Path) -> None:
    """Four registers of 16 lanes, where the arithmetic takes longer than its latency may be hidden; two of 8 lanes."""
    text = f"model m(x: f32[4096]) -> f32[4096] {{ return {function}(x) * x }}\n"
    code = tiled(text, tmp_path, f"x86-64-{cpu}")
    assert max(int(n) for n in re.findall(r"vector<(\d+)xf32>", code)) == lanes


@pytest.mark.parametrize(
    ("body", "cpu", "lanes"),
    [
        ("softmax(x)", "v3", 32),
        ("softmax(x)", "v4", 16),
        ("softmax(x.T)", "v3", 8),
        ("x / sum(x * x, axis=1, keepdims=true)", "v3", 8),
    ],
)
def test_vectors_of_a_row_take_the_steps_of_exp_together(body: str, cpu: str, lanes: int, tmp_path: Path) -> None:
    """Four registers of 8 lanes, on a CPU with a short window of waiting instructions, where they adjoin in memory."""
    code = tiled(f"model m(x: f32[300, 300]) -> f32[300, 300] {{ return {body} }}\n", tmp_path, f"x86-64-{cpu}")
    assert max(int(n) for n in re.findall(r"vector<(\d+)xf32>", code)) == lanes


def test_a_short_row_of_exp_stays_in_registers(tmp_path: Path) -> None:
    """8 vectors, which take their steps one by one."""
    text = "model m(x: f32[300, 64]) -> f32[300, 64] { return softmax(x) }\n"
    assert "vector<32xf32>" not in tiled(text, tmp_path)


@pytest.mark.parametrize(("cpu", "fetches"), [("v3", 2), ("v4", 0)])
def test_a_copy_of_columns_fetches_the_next_ones(cpu: str, fetches: int, tmp_path: Path) -> None:
    """24 columns of 8 lanes are a line and a half."""
    text = "model m(x: f32[64, 40], w: f32[40, 240]) -> f32[64, 240] { return x @ w }\n"
    code = tiled(text, tmp_path, f"x86-64-{cpu}")
    assert code.count("locality<2>") == fetches


def test_a_convolution_of_one_pixel_copies_its_columns(tmp_path: Path) -> None:
    text = (
        "model m(x: f32[1, 256, 28, 28]) -> f32[1, 64, 28, 28] {\n"
        "  param w: f32[64, 256, 1, 1]\n  return conv2d(x, w)\n}\n"
    )
    assert ON_STACK in tiled(text, tmp_path)


def test_rows_are_overwritten_by_rows_that_are_computed_from_them(tmp_path: Path) -> None:
    """Scores and their softmax share the memory of a block of rows on the stack."""
    text = "model m(q: f32[9, 40], k: f32[9, 40], v: f32[9, 40]) -> f32[9, 40] { return softmax(q @ k.T) @ v }\n"
    assert tiled(text, tmp_path).count(ON_STACK) == 1


def test_a_part_of_an_argument_is_read_in_place(tmp_path: Path) -> None:
    text = "model m(x: f32[9, 40], w: f32[32, 20]) -> f32[9, 32] { return x[:, 3:23] @ w.T }\n"
    assert "linalg." not in tiled(text, tmp_path)


def test_a_step_fetches_one_line_of_the_next_panel(tmp_path: Path) -> None:
    """32 rows in tiles of 4 share the fetch of the next panel, 6 elements of 48 each: one line a step, not one for each
    of the 3 vectors. A panel has two tiles."""
    text = "model m(x: f32[32, 64]) -> f32[32, 48] {\n  param w: f32[64, 48]\n  return x @ w\n}\n"
    assert tiled(text, tmp_path).count("memref.prefetch") == 2


def test_a_row_fetches_each_line_of_a_weight_into_both_caches(tmp_path: Path) -> None:
    """A step reads 48 bytes, less than a line: one fetch from memory, 16384 bytes ahead, and one from the second cache,
    2048 bytes ahead. In f32, a step reads 3 lines, and the distances are as many bytes."""
    text = "model m(x: f32[1, 64]) -> f32[1, 48] {{\n  param w: {}[48, 64]\n  return x @ {}.T\n}}\n"
    for type, w, bytes, lines in (("q8[block 32]", "dequantize(w)", 1, 1), ("f32", "w", 4, 3)):
        code = tiled(text.format(type, w), tmp_path / w, "x86-64-v4")
        loop = code[code.rindex("scf.for", 0, code.index("memref.prefetch")) : code.index("scf.yield")]
        assert (loop.count("locality<2>"), loop.count("locality<3>")) == (lines, lines)
        assert all(f"arith.constant {distance // bytes} : index" in code for distance in (16384, 2048))


def test_a_row_on_zen_4_fetches_a_line_of_2048_bytes(tmp_path: Path) -> None:
    """A step reads 192 bytes in f32 and 48 in 8 bits: 8 steps, or a block of 32 steps, share a fetch into the first
    cache, outside of the loop over them."""
    text = "model m(x: f32[1, 64]) -> f32[1, 48] {{\n  param w: {}[48, 64]\n  return x @ {}.T\n}}\n"
    for type, w, steps in (("f32", "w", 8), ("q8[block 32]", "dequantize(w)", 32)):
        code = tiled(text.format(type, w), tmp_path / type.split("[")[0], "znver4")
        assert (code.count("memref.prefetch"), code.count("locality<3>")) == (1, 1)
        loop = code[code.index("memref.prefetch") : code.index("scf.yield")]
        assert loop.count("scf.for") == 1 and "vector.fma" in loop
        (last,) = re.findall(r"scf.for .* to (%\w+) step", loop)
        assert f"{last} = arith.constant {steps} : index" in code


def test_the_upper_half_of_a_byte_becomes_a_float_without_a_shift(tmp_path: Path) -> None:
    """With 16 lanes, the lower half is looked up, and the upper half is counted in the last places of a float."""
    text = "model m(x: f32[1, 64]) -> f32[1, 48] {\n  param w: q4[block 32][48, 64]\n  return x @ dequantize(w).T\n}\n"
    code = tiled(text, tmp_path, "x86-64-v4")
    assert "shrsi" not in code
    assert (code.count("permvar.sf"), code.count("arith.subf")) == (3, 3)


def test_scores_of_a_query_fetch_the_keys_of_the_next_tile(tmp_path: Path) -> None:
    """The keys of a step are far from those of the next one. A tile has 8 vectors of them, since the length is known in
    the call only, or 3 where 8 queries share them. The values of successive steps adjoin."""
    text = """dim S in 1..1024
model attend(q: f32[4, N, 16], k: f32[4, 16, S], v: f32[4, S, 16]) -> f32[4, N, 16] { return softmax(q @ k) @ v }
"""
    for queries, vectors in ((1, 8), (8, 3)):
        code = tiled(text.replace("N", str(queries)), tmp_path / str(queries), "x86-64-v4")
        assert (code.count("memref.prefetch"), code.count("locality<2>")) == (vectors, vectors)
        step = code[code.index("memref.prefetch") :]
        assert step[: step.index("scf.yield")].count("vector.fma") == queries * vectors


def test_a_fetch_serves_the_steps_that_share_a_line(tmp_path: Path) -> None:
    """128 rows are 32 tiles of 4, so a step fetches 2 elements of 24 of the next panel: a vector of 8 lanes serves 4
    steps, and the loop over them does not fetch."""
    text = "model m(x: f32[128, 64]) -> f32[128, 48] {\n  param w: f32[64, 48]\n  return x @ w\n}\n"
    fetches = tiled(text, tmp_path).split("memref.prefetch")[1:]
    assert fetches
    for code in fetches:
        assert 0 < code.find("scf.for") < code.find("vector.fma"), code


def test_a_product_in_place_takes_several_steps_at_once_and_prefetches(tmp_path: Path) -> None:
    text = "model m(x: f32[64, 64], w: f32[64, 96], y: f32[64, 96]) -> f32[64, 96] { return x @ w + y }"
    code = tiled(text, tmp_path, "x86-64-v4")
    *_, rows, steps = code.split("scf.for")
    # Before the sums of 8 rows of 3 vectors, their results and the vectors of y are fetched.
    assert (rows.count("write, locality"), rows.count("read, locality")) == (8 * 3, 8 * 3)
    # An iteration takes 4 steps, and fetches two of the cache lines with 16 numbers of the next 8 rows.
    assert (steps.count("fma"), steps.count("read, locality")) == (8 * 3 * 4, 2)


def test_partial_sums_of_a_gradient_are_in_the_memory_of_the_result(tmp_path: Path) -> None:
    product = 'einsum("km,kn->mn", x, w)'
    types = "x: f32[256, 64], w: f32[256, 48]) -> f32[64, 48]"
    alone = tiled(f"model m({types} {{ return {product} }}", tmp_path / "alone", "x86-64-v4")
    followed = tiled(f"model m({types} {{ return relu({product}) }}", tmp_path / "followed", "x86-64-v4")
    assert (alone.count("memref.alloca"), followed.count("memref.alloca")) == (2, 3)


def test_prefetches_of_a_gradient_precede_the_parts_of_its_sums(tmp_path: Path) -> None:
    text = 'model m(x: f32[256, 64], w: f32[256, 48]) -> f32[64, 48] { return einsum("km,kn->mn", x, w) }\n'
    *_, part, steps = tiled(text, tmp_path, "x86-64-v4").split("scf.for")
    # 8 tiles have 4 parts each: a share of 128 steps is 4 of them, with 3 vectors of w and 4 of x each.
    assert part.count("read, locality") == 4 * (3 + 4)
    assert (steps.count("fma"), steps.count("read, locality")) == (8 * 3 * 4, 0)


def test_a_batch_of_products_copies_each_block_of_rows_once_for_all_columns(tmp_path: Path) -> None:
    """The panel on the stack then has all 64 columns in 128 steps. A single product has more work items instead."""
    single = 'model m(x: f32[128, 128], w: f32[128, 64]) -> f32[128, 64] { return einsum("km,kn->mn", x, w) }\n'
    batch = single.replace("f32[", "f32[8, ").replace("km,kn->mn", "bkm,bkn->bmn")
    whole = f"memref<{128 * 64 + 8}xf32>"  # and a vector to spare
    assert whole in tiled(batch, tmp_path / "batch") and whole not in tiled(single, tmp_path / "single")
