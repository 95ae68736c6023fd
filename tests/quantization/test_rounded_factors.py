"""The precision `a16`: the graph permits code to round the factors of products, and commands tell whether code does."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from nacre.compiler import packed_weights
from nacre.compiler.checking import read_model
from nacre.compiler.cli.main import run
from nacre.compiler.quantization.choose import in_precision
from nacre.compiler.quantization.effects import find_faster_precision
from nacre.compiler.targets.target import parse_targets
from nacre.dialect.graph import Module, walk
from nacre.dialect.ops.support.accumulate import rounded_to
from safetensors.numpy import save_file

MODEL = """language 1
dim T in 0..200
model net(x: f32[T, 128], i: f32[1, 3, 8, 8], t: i32[T]) -> \
f32[T, 32], f32[T, T], f32[1, 8, 6, 6], f32[T, 32], f32[T, 9] {
  param w: f32[32, 128]
  param v: f32[32, 128]
  param kernel: f32[8, 3, 3, 3]
  param e: f32[32, 128]
  # A look-up multiplies nothing.
  param table: f32[7, 9]
  return x @ w.T, x @ x.T, conv2d(i, kernel), x @ v.T + einsum("ij,kj->ik", x, e), table[t]
}
"""


def rounded(module: Module) -> list[str]:
    """The parameters of products whose factors code may round."""
    (function,) = module.functions
    makers = {value.name: node for node in walk(function.body) for value in node.outputs}
    found = []
    for node in (node for node in walk(function.body) if rounded_to(node) is not None):
        maker = makers[node.inputs[1].name]
        while maker.op != "parameter":
            maker = makers[maker.inputs[0].name]
        found.append(str(maker.attribute("name")))
    return found


@pytest.mark.parametrize(
    ("precision", "parameters", "kept"),
    [
        ("f32", [], []),
        ("a16", ["w", "v"], ["einsum"]),
        ('quantize net {\n activations "*" to i16 dynamic\n keep "v"\n}', ["w"], ["conv2d", "einsum"]),
        ('quantize net {\n activations "v" to i16 dynamic\n}', ["v"], []),
    ],
    ids=["f32", "a16", "keep", "one"],
)
def test_products_with_a_weight_are_permitted_to_round(precision: str, parameters: list[str], kept: list[str]) -> None:
    source = in_precision(read_model(MODEL), precision)
    assert rounded(source.module) == parameters
    messages = [warning.message.split(" (")[0] for warning in source.warnings]
    assert messages == [f"`i16 dynamic` does not round the factors of 1 `{op}` of `net`" for op in kept]


PRODUCTS = """language 1
dim T in 0..200
model net(x: f32[T, 128], y: f32[9, 128]) -> f32[T, 32], f32[9, 32] {
  param w: bf16[32, 128]
  return x @ cast(w.T, f32), y @ cast(w.T, f32)
}
"""
SOME = "factors of 1 kernel of `x86-64-v3` are rounded to 16-bit integers in calls of 48 rows or more; 1 in f32"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.nacre").write_text(PRODUCTS)
    weights = np.random.default_rng(0).standard_normal((32, 128)) * 0.02
    save_file({"w": weights.astype(ml_dtypes.bfloat16)}, tmp_path / "w.safetensors")
    return tmp_path


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("target", "precision", "note"),
    [
        ("x86-64-v3", "a16", SOME),
        ("x86-64-v4", "a16", "no kernel of `x86-64-v4` rounds factors to 16-bit integers: their products are in f32"),
        ("cuda", "a16", "no kernel of `cuda:sm_80` rounds factors to 16-bit integers: their products are in f32"),
        ("x86-64-v3", "f32", ""),
    ],
)
def test_a_build_tells_how_many_kernels_round(
    target: str, precision: str, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--checkpoint", "w.safetensors", "--target", target, "--precision", precision]
    assert run(["compile", "net.nacre", *options]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert (f"note: {note}" in told) if note else "factors" not in told


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("command", ["compile --check-passes", "bisect", "diff"])
def test_commands_compare_rounded_products(
    command: str, packed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of them allows the rounding of 13 bits."""
    if not parse_targets("x86-64-v3")[0].runs_here:
        pytest.skip("this machine has no AVX2")
    if packed:
        monkeypatch.setattr(packed_weights, "LEAST", 0)
        monkeypatch.setattr(packed_weights, "FEWEST_STEPS", 0)
    name, *options = command.split()
    precision = ["--precision", "a16", "--checkpoint", "w.safetensors", "--target", "x86-64-v3"]
    assert run([name, "net.nacre", *options, *precision]) == 0
    if name == "compile":
        assert SOME in " ".join(capsys.readouterr().err.split())


LANGUAGE = """
model decode(x: f32[1, 64]) -> f32[1, 32] {
  param w: bf16[32, 64]
  return x @ cast(w.T, f32)
}
model prefill(x: f32[9, 64]) -> f32[9, 32] {
  param w: bf16[32, 64]
  return x @ cast(w.T, f32)
}
"""


@pytest.mark.parametrize(
    ("target", "faster"),
    [
        ("x86-64-v3", "a16"),
        ("znver3", "a16"),
        ("znver4", None),
        ("portable", None),
        ("cuda", None),
        ("x86-64-v2", None),
    ],
)
def test_a_language_model_in_short_floats_has_a_faster_precision(target: str, faster: str | None) -> None:
    def found(text: str, precision: str) -> str | None:
        return find_faster_precision(in_precision(read_model(text), precision).module, parse_targets(target))

    assert found(LANGUAGE, "f32") == faster
    assert found(LANGUAGE, "a16") is None
    assert found(LANGUAGE.replace("bf16", "f32"), "f32") is None
    assert found(LANGUAGE.replace("prefill", "other"), "f32") is None
