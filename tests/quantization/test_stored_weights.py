"""The artifact stores weights in the dtype that a policy rounds them to, and computes what its graph means."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.checking import read_model
from nacre.compiler.model.parameters import open_parameters
from nacre.compiler.quantization.choose import in_precision
from nacre.dialect.interpreter import Interpreter
from saving import save_npz

MODEL = """language 1
dim B in 1..2

model net(x: f32[B, 3, 28, 28], s: f32[B, 6, 40]) -> y: f32[B, 24, 56, 56], z: f32[B, 12, 40], w: f32[6, B, 24] {
  weights "weights.npz"
  param stem: f32[64, 3, 3, 3]
  param stem_bias: f32[64]
  param inner: f32[64, 64, 3, 3]
  param inner_bias: f32[64]
  param each: f32[64, 1, 5, 5]
  param grouped: f32[32, 16, 3, 3]
  param up: f32[32, 24, 2, 2]
  param up_bias: f32[24]
  param along: f32[12, 6, 3]
  param mixed: f32[40, 24]
  h = relu(conv2d(x, stem, stem_bias, padding=1))
  # 49 blocks share a transform of the weight.
  h = relu(conv2d(h, inner, inner_bias, padding=1))
  h = relu(conv2d(h, each, padding=2, groups=64))
  h = relu(conv2d(h, grouped, padding=1, groups=4))
  return conv_transpose2d(h, up, up_bias, stride=2), conv1d(s, along, padding=1), einsum("btk,ko->tbo", s, mixed)
}
"""
SHAPES = {
    "stem": (64, 3, 3, 3),
    "stem_bias": (64,),
    "inner": (64, 64, 3, 3),
    "inner_bias": (64,),
    "each": (64, 1, 5, 5),
    "grouped": (32, 16, 3, 3),
    "up": (32, 24, 2, 2),
    "up_bias": (24,),
    "along": (12, 6, 3),
    "mixed": (40, 24),
}
ELEMENTS = sum(int(np.prod(shape)) for shape in SHAPES.values())
TERMS = 576
"""The longest sum."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("net")
    rng = np.random.default_rng(11)
    arrays = {}
    for name, shape in SHAPES.items():
        arrays[name] = (rng.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype(np.float32)
    save_npz(folder / "weights.npz", arrays)
    (folder / "net.nacre").write_text(MODEL)
    return folder / "net.nacre"


ALL = 'quantize net {\n weights "*" to i8\n activations "*" to i8 dynamic\n}'


@pytest.mark.parametrize(
    ("precision", "element", "strict"),
    [("int8", 1, False), ("int8", 1, True), ("f8", 1, False), ("bf16", 2, False), (ALL, 1, False)],
    ids=["int8", "int8-strict", "f8", "bf16", "int8-all"],
)
def test_weights_are_stored_as_they_were_rounded(
    precision: str, element: int, strict: bool, path: Path, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    if (strict or precision == "f8") and not pytestconfig.getoption("--variants"):
        pytest.skip("strict arithmetic and f8 are run with --variants")
    model = nacre.compile(path, tmp_path / "net.so", precision=precision, strict=strict)
    # Panels of narrow layers are filled up, and biases, scales and Winograd's matrices stay in f32.
    assert model.describe()["weights"]["bytes"] <= 1.6 * element * ELEMENTS
    source_model = in_precision(read_model(path), precision)
    rng = np.random.default_rng(5)
    x, s = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 3, 28, 28), (1, 6, 40)))
    expected = Interpreter(source_model.module, open_parameters(source_model)).run("net", [x, s])
    for actual, wanted in zip(model(x, s), expected, strict=True):
        # Activations that are rounded may fall to the other side where they are very nearly between two codes.
        bound = 2e-2 if precision in (ALL, "int8", "bf16") else 8 * TERMS**0.5 * 2**-24
        error = np.abs(actual - wanted).max() / np.abs(wanted).max()
        assert error <= bound, error
