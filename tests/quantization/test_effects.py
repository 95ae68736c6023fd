"""A policy that changes nothing for a layer, or makes it no faster, causes a warning with the names of layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nacre.compiler import build_warnings
from nacre.compiler.checking import read_model
from nacre.compiler.cli.main import run
from nacre.compiler.quantization.choose import in_precision
from nacre.compiler.quantization.effects import find_faster_precision, find_slow_products
from nacre.compiler.targets.target import parse_targets
from nacre.dialect.graph import Module

MODEL = """language 1
model net(x: f32[1, 3, 8, 8], s: f32[2, 32]) -> y: f32[1, 4, 8, 8], z: f32[2, 8] {
  param first: f32[8, 3, 3, 3]
  param second: f32[4, 8, 1, 1]
  param odd: f32[20, 32]
  param last: f32[8, 20]
  return conv2d(relu(conv2d(x, first, padding=1)), second), s @ odd.T @ last.T
}
"""
BYTES = 'quantize net {\n weights "*" to i8\n activations "*" to i8 dynamic\n}'
ONE = 'quantize net {\n weights "first" to i8\n}'


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("f32", []),
        ("bf16", []),
        (BYTES, []),
        (ONE, ["1 convolution of `net` multiplies weights in i8 by activations in f32, no faster than in f32 (first)"]),
        ("int8", ["2 convolutions of `net` multiply weights in i8 by activations in f32, no faster than in f32"]),
        ("f8", ["2 convolutions of `net` multiply weights in f8e4m3 by activations in f32, no faster than in f32"]),
        ("int4", ["`q4[block 32, zero]` does not hold 3 of 4 weights of `net`, kept in f32 (first, second, last)"]),
    ],
    ids=["f32", "bf16", "bytes", "one", "int8", "f8", "int4"],
)
def test_rules_without_effect_are_reported(precision: str, expected: list[str]) -> None:
    warnings = in_precision(read_model(MODEL), precision).warnings
    assert all(warning.severity == "warning" for warning in warnings)
    messages = [w.message.replace(" (first, second)", "") for w in warnings]
    assert messages == expected


SHORT = """
model net(x: bf16[2, 32], z: f32[2, 32]) -> bf16[2, 8], f32[2, 8], bf16[2, 4] {
  param w: bf16[8, 32]
  param v: f32[8, 32]
  param u: bf16[4, 32]
  return x @ w.T, z @ v.T, x @ u.T
}
"""


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("int8", ["`i8` does not round 2 weights of `net`, kept in bf16 (w, u)"]),
        ("bf16", []),
    ],
)
def test_weights_that_are_not_in_f32_are_reported(precision: str, expected: list[str]) -> None:
    assert [w.message for w in in_precision(read_model(SHORT), precision).warnings] == expected


EXPERTS = """
dim N in 1..64
model moe(x: f32[N, 32]) -> f32[N, 16] {
  param gate: f32[8, 32]
  param up: f32[8, 16, 32]
  e = argmax(sum(x @ gate.T, axis=0), axis=0)
  return x @ PART.T
}
"""


@pytest.mark.parametrize(("part", "count"), [("up[e:e+1][0]", 1), ("up[e]", 0)])
def test_parts_that_a_call_selects_are_reported(part: str, count: int) -> None:
    source = in_precision(read_model(EXPERTS.replace("PART", part)), "int8")
    assert [w.message for w in source.warnings] == [
        "`i8` does not round 1 weight of `moe`: each call selects the part that it reads (up)"
    ] * count
    (function,) = source.module.functions
    assert sum(node.op == "quantize" for node in function.body) >= 3 - count


@pytest.mark.parametrize(
    ("target", "count"),
    [
        ("x86-64-v3", 1),
        ("x86-64-v4-vnni-bf16", 0),
        ("portable", 1),
        ("x86-64-v4+avx512bf16", 0),
        ("x86-64-v4-vnni-bf16-avx512bf16", 1),
        ("native-avx512bf16-amx-bf16", 1),
        ("skylake-avx512", 1),
        ("x86-64-v4+amx-bf16", 0),
        ("znver4", 0),
        ("aarch64-linux-gnu", 0),
    ],
)
def test_products_of_bfloats_without_an_instruction_cause_a_warning(target: str, count: int) -> None:
    rounded, plain = (in_precision(read_model(MODEL), p).module for p in ("bf16", "f32"))
    assert len(find_slow_products(rounded, parse_targets(target))) == count
    assert find_slow_products(plain, parse_targets(target)) == ()


LANGUAGE = """
model decode(x: f32[1, 64]) -> f32[1, 32] {
  param w: f32[32, 64]
  return x @ w.T
}
model NAME(x: f32[9, 64]) -> f32[9, 32] {
  param w: f32[32, 64]
  return x @ w.T
}
"""
BLOCKS = "".join(f'quantize {name} {{\n weights "*" to q8[block 32]\n MORE\n}}\n' for name in ("decode", "NAME"))


@pytest.mark.parametrize(
    ("target", "faster"),
    [
        ("sapphirerapids", "a8bf16"),
        ("znver4", "a8"),
        ("x86-64-v3", "a8"),
        ("znver3", "a8"),
        ("x86-64-v3,x86-64-v4-vnni", "a8"),
        ("x86-64-v2", None),
        ("x86-64-v4", None),
        ("aarch64-linux-gnu", None),
        ("portable", None),
        ("cuda", None),
    ],
)
def test_a_language_model_in_f32_has_a_faster_precision(target: str, faster: str | None) -> None:
    def found(model: str, precision: str) -> str | None:
        source = read_model(LANGUAGE.replace("NAME", model))
        module = in_precision(source, precision.replace("NAME", model)).module
        return find_faster_precision(module, parse_targets(target))

    assert found("prefill", BLOCKS.replace("MORE", "")) == faster
    for rounded in ("i8 dynamic", "bf16"):
        assert found("prefill", BLOCKS.replace("MORE", f"activations matmul to {rounded}")) is None
    assert found("prefill", "f32") is None
    assert found("other", BLOCKS.replace("MORE", "")) is None


def test_commands_that_compile_a_model_name_the_faster_precision(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On any machine, as for a CPU on which another precision is faster."""
    monkeypatch.setattr(build_warnings, "find_faster_precision", lambda module, _: _faster(module, "znver4"))
    model = tmp_path / "m.nacre"
    model.write_text("language 1\n" + LANGUAGE.replace("NAME", "prefill") + BLOCKS.replace("NAME", "prefill"))
    model.write_text(model.read_text().replace("MORE", ""))
    np.savez(tmp_path / "m.npz", w=np.ones((32, 64), np.float32))
    np.save(tmp_path / "x.npy", np.ones((1, 64), np.float32))
    options = ["--entry", "decode", "--input", f"x={tmp_path / 'x.npy'}", "-O0"]
    assert run(["run", str(model), "--checkpoint", str(tmp_path / "m.npz"), *options]) == 0
    assert "`--precision a8` is faster on this target" in " ".join(capsys.readouterr().err.split())


def _faster(module: Module, target: str) -> str | None:
    return find_faster_precision(module, parse_targets(target))


@pytest.mark.parametrize(
    ("target", "count"), [("x86-64-v4-vnni-bf16", 1), ("znver4", 1), ("sapphirerapids", 0), ("aarch64-linux-gnu", 0)]
)
def test_products_with_weights_in_blocks_need_a_matrix_unit(target: str, count: int) -> None:
    model = "model m(x: f32[9, 64]) -> f32[9, 32] {\n  param w: f32[32, 64]\n  return x @ w.T\n}\n"
    policy = 'quantize m {\n weights "*" to q8[block 32]\n activations matmul to bf16\n}'
    found = find_slow_products(in_precision(read_model(model), policy).module, parse_targets(target))
    assert ["1 product in bf16 dequantizes a weight" in warning.message for warning in found] == [True] * count
    rounded = in_precision(read_model(model), policy.replace("bf16", "f16")).module
    (warning,) = find_slow_products(rounded, parse_targets(target))
    assert "1 product in f16 dequantizes a weight to f16 and is no faster" in warning.message
    assert find_slow_products(rounded, parse_targets("cuda")) == ()
