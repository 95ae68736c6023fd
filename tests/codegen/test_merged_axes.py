"""Products of slices whose axes are merged: those of a slice are one axis only where it is one piece of memory."""

from __future__ import annotations

from pathlib import Path

import nacre
import numpy as np

SOURCE = """language 1
dim T in 0..9
model inner(x: f32[5, 5, 5], w: f32[5, 3]) -> f32[9, 3] { return reshape(x[1:4, 1:4], (9, 5)) @ w }
model steps(x: f32[4, 6, 8], w: f32[8, 3]) -> f32[12, 3] { return reshape(x[::2], (12, 8)) @ w }
model twice(x: f32[6, 6, 8], w: f32[8, 3]) -> f32[4, 3] { return reshape(x[1:5][:2, 2:4], (4, 8)) @ w }
model whole(x: f32[T, 6, 8], w: f32[16, 3]) -> f32[T, 3] { return reshape(x[:, 1:3], (T, 16)) @ w }
"""


def test_numbers(tmp_path: Path) -> None:
    model = nacre.compile(SOURCE, tmp_path / "model.so")
    rng = np.random.default_rng(3)
    cases = {
        "inner": ((5, 5, 5), lambda x: x[1:4, 1:4].reshape(9, 5)),
        "steps": ((4, 6, 8), lambda x: x[::2].reshape(12, 8)),
        "twice": ((6, 6, 8), lambda x: x[1:3, 2:4].reshape(4, 8)),
        "whole": ((7, 6, 8), lambda x: x[:, 1:3].reshape(7, 16)),
    }
    for name, (shape, part) in cases.items():
        # Sums of small integers are exact.
        x = rng.integers(-8, 8, shape).astype(np.float32)
        rows = part(x)
        w = rng.integers(-8, 8, (rows.shape[1], 3)).astype(np.float32)
        assert np.array_equal(model.entries[name](x, w), rows @ w), name
    # The workspace of a call would hold a copy.
    copied = {entry["name"] for entry in model.describe()["entries"] if entry["workspace"] != 0}
    assert copied == {"inner", "steps", "twice"}
