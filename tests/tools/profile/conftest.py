"""One small model for the tests of what is measured."""

from __future__ import annotations

from pathlib import Path

import nacre
import pytest

TEXT = """dim B in 1..64
dim T in 1..256

block Layer(x: f32[B, T, 32]) -> f32[B, T, 32] {
  weight = reshape(iota(1024, dtype=f32), [32, 32]) / 1000.0
  return layer_norm(tanh(x @ weight) + x)
}

model other(x: f32[B]) -> f32[B] { return x }

model main(x: f32[B, T, 32]) -> f32[B, T, T] {
  use layer[2] = Layer
  repeat i in 0..2 { x = layer[i](x) }
  return softmax(x @ x.mT)
}
"""


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measure")
    (folder / "m.nacre").write_text(TEXT)
    nacre.compile(folder / "m.nacre", folder / "m.so")
    return folder / "m.so"
