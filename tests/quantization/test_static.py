"""Static ranges: from the samples that a policy names to the scales in the graph."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.quantization.choose import in_precision
from nacre.dialect.diagnostics import DiagnosticError
from nacre.dialect.graph import Constant, Node
from nacre.runtime.arguments import Array
from saving import save_npz

MODEL = """language 1
dim B in 1..64
block Dense(x: f32[B, 8]) -> f32[B, 8] {
  param weight: f32[8, 8]
  return relu(x @ weight.T)
}
model main(x: f32[B, 8]) -> f32[B, 8] {
  weights "weights.npz"
  use layer[2] = Dense
  use last = Dense
  repeat i in 0..2 { x = layer[i](x) }
  return last(x)
}
"""
POLICY = """quantize main {{
  weights "*" to i8
  activations "*" to i8 static
  activations "last" to i8 dynamic
  calibrate on file "{}"
}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(7)
    names = ("layer.0", "layer.1", "last")
    arrays = {f"{name}.weight": rng.normal(size=(8, 8)).astype("float32") for name in names}
    save_npz(tmp_path / "weights.npz", arrays)
    np.savez(tmp_path / "data.npz", x=rng.uniform(-1, 3, (40, 8)).astype("float32"))
    (tmp_path / "model.nacre").write_text(MODEL)
    return tmp_path


def constants(nodes: tuple[Node, ...]) -> dict[str, Array]:
    found = {}
    for node in nodes:
        value = node.attribute("value") if node.op == "constant" else None
        if isinstance(value, Constant):
            found[node.output.name] = value.data
    return found


def test_scales_are_those_of_the_samples(folder: Path) -> None:
    source_model = in_precision(read_model(folder / "model.nacre"), POLICY.format(folder / "data.npz"))
    body = source_model.module.function("main").body
    known = constants(body)
    # A scale that was seen is a constant, and one that each call tells is none.
    stored = [n for n in body if n.op == "quantize" and str(n.output.type.dtype) == "u8"]
    scales = [known.get(n.inputs[1].name) for n in stored]
    assert scales[2:] == [None] and len(scales) == 3
    with np.load(folder / "data.npz") as data:
        x = data["x"]
    with np.load(folder / "weights.npz") as file:
        weights = dict(file)
    hidden = np.maximum(x @ weights["layer.0.weight"].T, 0)
    for scale, node, seen in zip(scales[:2], stored, (x, hidden), strict=False):
        low, high = min(seen.min(), 0), seen.max()
        assert scale is not None
        np.testing.assert_allclose(scale, (high - low) / 255, rtol=1e-6)
        assert known[node.inputs[2].name] == round(-low / float(scale))


def test_results_are_near_those_in_f32_where_samples_are_alike(folder: Path) -> None:
    x = np.random.default_rng(8).uniform(-1, 3, (20, 8)).astype("float32")
    plain, static = (
        nacre.compile(folder / "model.nacre", folder / f"{number}.so", precision=precision)(x)
        for number, precision in enumerate(("f32", POLICY.format(folder / "data.npz")))
    )
    error = np.abs(static - plain).max() / np.abs(plain).max()
    assert 0 < error < 0.03  # three layers, of about a hundredth each


def test_samples_that_do_not_fit_are_a_fault(folder: Path) -> None:
    np.savez(folder / "other.npz", y=np.ones((4, 8), "float32"))
    with pytest.raises(DiagnosticError, match="sample-missing"):
        in_precision(read_model(folder / "model.nacre"), POLICY.format(folder / "other.npz"))


RESIDUAL = """language 1
dim B in 1..8
block Layer(x: f32[B, 8, 6, 6]) -> f32[B, 8, 6, 6] {
  param kernel: f32[8, 8, 3, 3]
  param bias: f32[8]
  return conv2d(x, kernel, bias, padding=1)
}
model main(x: f32[B, 8, 6, 6]) -> f32[B, 8, 3, 3] {
  weights "weights.npz"
  use first = Layer
  use second = Layer
  use third = Layer
  y = relu(first(x))
  z = relu(second(y) + y)
  return third(max_pool2d(z, 2)[..., :3, :3] |> pad(((0, 0), (0, 0), (0, 3), (0, 3))))[..., :3, :3]
}
"""


@pytest.mark.parametrize("strict", [False, True])
def test_residuals_are_added_in_codes(tmp_path: Path, strict: bool) -> None:
    rng = np.random.default_rng(9)
    arrays = {}
    for name in ("first", "second", "third"):
        arrays[f"{name}.kernel"] = rng.normal(0, 0.1, (8, 8, 3, 3)).astype("float32")
        arrays[f"{name}.bias"] = rng.normal(size=8).astype("float32")
    # A channel that is nearly its bias alone, which is more steps of its products than an integer holds.
    arrays["first.kernel"][3] *= 1e-25
    save_npz(tmp_path / "weights.npz", arrays)
    samples = rng.normal(size=(20, 8, 6, 6)).astype("float32")
    np.savez(tmp_path / "data.npz", x=samples)
    (tmp_path / "model.nacre").write_text(RESIDUAL)
    policy = (
        f'quantize main {{ weights "*" to i8; activations "*" to i8 static; calibrate on file "{tmp_path}/data.npz" }}'
    )
    source_model = in_precision(read_model(tmp_path / "model.nacre"), policy)
    results = {}
    for precision in ("f32", policy):
        output = tmp_path / "model.so"
        model = nacre.compile(tmp_path / "model.nacre", output, precision=precision, strict=strict)
        results[precision] = model(samples[:8])
    body = source_model.module.function("main").body
    stored = sum(node.op == "quantize" and str(node.output.type.dtype) == "u8" for node in body)
    assert stored == 3, "what two nodes read is kept once"
    error = np.abs(results[policy] - results["f32"]).max() / np.abs(results["f32"]).max()
    assert 0 < error < 0.05
