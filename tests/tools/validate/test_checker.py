"""What `--check-passes` says nothing about: builds in which nothing is wrong, whatever they are made for."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np
import pytest
from nacre.compiler.pipeline import Build
from nacre.compiler.readers.language import load_module
from nacre.compiler.tools.validate.alone import cut_kernels

MODEL = """language 1

dim B in 0..40

model f(x: f32[B, 21], ids: i64[B]) -> y: f32[B, 30], z: f32[B, 21], again: f32[B, 21] {
  w = reshape(cos(iota(630, dtype=f32)), (21, 30))
  table = reshape(iota(210, dtype=f32), (10, 21))
  rows = gather(table, ids)
  h = softmax(x + rows)
  return relu(h @ w), h, h
}
"""


@pytest.mark.parametrize("how", [{}, {"opt_level": 0}, {"target": "x86-64-v3,x86-64-v2"}, {"placement": "external"}])
def test_right_builds_pass(how: dict[str, object], tmp_path: Path) -> None:
    model = nacre.compile(MODEL, tmp_path / "model.so", check_passes=True, **how)
    y, z, again = model(np.ones((3, 21), np.float32), np.arange(3))
    assert y.shape == (3, 30) and np.array_equal(z, again)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_every_kernel_is_cut_out() -> None:
    build = Build(load_module(MODEL, text=True))
    module = build.optimize()
    lowered = build.lower(module)
    parts = cut_kernels(module, lowered)
    assert [p.symbol for p in parts] == list(dict.fromkeys(c.symbol for f in lowered.functions for c in f.calls))
    assert any(not p.nodes for p in parts), "the copy of a result"
