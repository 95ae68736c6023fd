"""Index notation on a GPU: results of a training step, its gradients, and errors of indices are those of the CPU."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from fake_driver import Machine
from nacre.compiler.api import read_model
from nacre.compiler.options import Options
from nacre.compiler.pipeline import Build
from nacre.compiler.targets.target import parse_targets
from nacre.runtime.library import OutOfRangeError

MODEL = """language 1
dim B in 0..9
dim N in 3..40
train step(x: f32[B, N], ids: i64[4]) -> loss: f32, best: f32[B] {
  param w: f32[5, 7]
  param v: f32[7]
  z[b, o] = sum(i) (x[b, i] * w[o, 2] if i < 3 else 0)
  filtered[b, i] = sum(k) (x[b, i + k - 1] * v[k] if i + k > 0 and i + k <= N else 0)
  best[b] = max(o) z[b, o] + w[o, 1]
  least[b] = min(i) filtered[b, i] - x[b, i]
  product[o] = prod(k) w[o, k]
  gathered[t, k] = w[ids[t], k] * v[6 - k]
  moved[k] = v[k - 2] if k >= 2 else w[0, k]
  loss = sum(best * least) + sum(product) + sum(gathered * gathered) + sum(moved * v)
  minimize loss with sgd(lr=0.125)
}
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("notation") / "notation.so"
    rng = np.random.default_rng(0)
    weights = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in (("w", (5, 7)), ("v", (7,)))}
    source = read_model(MODEL, weights=weights)
    Build(source, Options(targets=parse_targets("native,cuda"))).run(path)
    return path


@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (1, 7), (9, 33)])
def test_a_step(machine: Machine, artifact: Path, rows: int, columns: int) -> None:
    x = np.random.default_rng(rows).uniform(-1, 1, (rows, columns)).astype(np.float32)
    ids = np.array([4, 0, 4, -2], np.int64)
    found = []
    for device in ("cpu", "cuda"):
        session = nacre.load(artifact, device=device).session()
        results = [np.asarray(result) for result in session.step(x, ids)]
        found.append([*results, *(np.asarray(session.states[name]) for name in ("w", "v"))])
    for cpu, gpu in zip(*found, strict=True):
        np.testing.assert_allclose(gpu, cpu, rtol=2e-5, atol=2e-5)
    assert machine.launches and not machine.error


def test_an_index_that_is_out_of_range(machine: Machine, artifact: Path) -> None:
    session = nacre.load(artifact, device="cuda").session()
    with pytest.raises(OutOfRangeError, match="is out of range for an axis of size 5"):
        session.step(np.zeros((1, 3), np.float32), np.array([0, 1, 5, 0], np.int64))
    assert not machine.error
