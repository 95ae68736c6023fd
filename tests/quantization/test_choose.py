"""Which policy a model is built by, and what becomes of its graph."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.model.source import SourceModel
from nacre.compiler.quantization.choose import in_precision
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.graph import walk
from nacre.dialect.printer import print_module

DIGITS = Path(__file__).parent.parent.parent / "samples" / "digits" / "digits.nacre"
MODEL = """
language 1
block Linear<inputs, outputs>(x: f32[4, inputs]) -> f32[4, outputs] {
  param weight: f32[outputs, inputs]
  return x @ weight.T
}
model net(x: f32[4, 8]) -> f32[4, 8] {
  use layer[3] = Linear<8, 8>
  repeat i in 0..3 { x = layer[i](x) }
  return x
}
model other(x: f32[4, 8]) -> f32[4, 8] {
  use layer[3] = Linear<8, 8>
  return layer[2](x)
}
"""
POLICY = """
quantize net {
  weights "*" to bf16
  keep "layer.1"
}
"""


def casts(source_model: SourceModel, name: str = "net") -> list[str]:
    """The scopes in which something is cast to bf16."""
    nodes = walk(source_model.module.function(name).body)
    return [node.scope for node in nodes if node.op == "cast" and str(node.attribute("dtype")) == "bf16"]


def test_a_model_follows_the_policy_in_its_file() -> None:
    rounded = in_precision(read_model(MODEL + POLICY))
    assert casts(rounded) == ["layer.0", "layer.2"]
    assert casts(rounded, "other") == []
    assert not rounded.policies
    assert 'keep "layer.1"' in rounded.precision


def test_a_short_form_replaces_the_policy() -> None:
    assert casts(in_precision(read_model(MODEL + POLICY), "f32")) == []
    rounded = in_precision(read_model(MODEL + POLICY), "bf16")
    assert casts(rounded) == [f"layer.{i}" for i in (0, 0, 1, 1, 2, 2)]
    assert casts(rounded, "other") == ["layer.2"] * 2
    assert rounded.precision == "bf16"


def test_without_a_policy_the_graph_stays_as_it_is() -> None:
    plain = read_model(MODEL)
    assert print_module(in_precision(plain).module) == print_module(plain.module)
    assert in_precision(plain).precision == "f32"


def test_policies_stand_in_a_file_or_a_text(tmp_path: Path) -> None:
    path = tmp_path / "policy.nacre"
    path.write_text(POLICY)
    assert casts(in_precision(read_model(MODEL), str(path))) == ["layer.0", "layer.2"]
    assert casts(in_precision(read_model(MODEL), POLICY)) == ["layer.0", "layer.2"]


@pytest.mark.parametrize(
    ("precision", "code", "text"),
    [
        ("int9", "unknown-precision", "did you mean `int8`?"),
        ("policy", "unknown-precision", "there are f32, tf32, bf16"),
        ("missing.nacre", "missing-file", "missing.nacre"),
        ("quantize nett { keep matmul }", "unknown-name", "did you mean `net`?"),
        ('quantize net { keep "laier" }', "unknown-path", 'did you mean "layer"?'),
        ("dim B in 1..2\nquantize net { keep matmul }", "not-a-policy", "may only contain `quantize`"),
        ("quantize net { keep }", "syntax", "policy.nacre:1:21"),
    ],
)
def test_errors_of_policies_are_reported(precision: str, code: str, text: str) -> None:
    with pytest.raises(DiagnosticError) as error:
        in_precision(read_model(MODEL), precision)
    assert [d.code for d in error.value.diagnostics] == [code]
    assert text in str(error.value)


def test_compiled_models_say_their_precision(tmp_path: Path) -> None:
    images = np.random.default_rng(0).uniform(0, 16, (3, 8, 8)).astype(np.float32)
    exact = nacre.compile(DIGITS, tmp_path / "exact.so")
    rounded = nacre.compile(DIGITS, tmp_path / "rounded.so", precision="bf16")
    assert exact.describe()["options"]["precision"] == "f32"
    assert rounded.describe()["options"]["precision"] == "bf16"
    a, b = exact(images), rounded(images)
    assert 0 < np.abs(a - b).max() < 0.01
    weights = [model.describe()["weights"]["bytes"] for model in (exact, rounded)]
    assert weights[1] < weights[0] - 75_000  # half of 40 394 parameters of four bytes
